"""What the papers' scripts take from examples/benchmarks: its modules, by way of this one."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import benchmark
import pictures

__all__ = ["benchmark", "pictures"]
