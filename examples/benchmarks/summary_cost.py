"""What `pk.summary` costs after 500 evaluations, beside the sampling.

    python examples/benchmarks/summary_cost.py [--problems influenza,hares] [--evaluations 500]
        [--seed 0]

For each problem it prints the number of parameters, the rows of the table, and the seconds of all
processors that `pk.sample` and the first `pk.summary` took. Each problem has a process of its own,
as many things are computed only once in a process. Run it twice: the first time compiles.

The problems are models of simulators.py with an emulator, and models of evaluations.py and
simulators.py with a surrogate of their log-density.
"""

import argparse
import subprocess
import sys
import warnings
from functools import partial
from time import process_time

from dispersed import quiet
from evaluations import CASES
from simulators import MODELS

import pymc_kameleon as pk

PROBLEMS = {
    **dict.fromkeys(("influenza", "hares", "pk_by_subject", "heat"), "EmulatorMetropolis"),
    **dict.fromkeys(("log_likelihood", "schools", "GARCH", "AR5"), "SurrogateMetropolis"),
}
"""The step of each."""

OPTIONS = {"EmulatorMetropolis": {}, "SurrogateMetropolis": {"expensive": True}}


def main():
    """Measure each problem in a new process, or the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", default=",".join(PROBLEMS))
    parser.add_argument("--evaluations", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    names = options.problems.split(",")
    if len(names) == 1:
        measure(names[0], options.evaluations, options.seed)
        return
    print(f"{'':<16}{'step':<22}{'d':>4}{'rows':>6}{'sampling':>10}{'summary':>9}", flush=True)
    for name in names:
        arguments = ["--evaluations", str(options.evaluations), "--seed", str(options.seed)]
        subprocess.run([sys.executable, __file__, "--problems", name, *arguments], check=True)


def measure(name, evaluations, seed):
    """Print a line of one problem."""
    warnings.simplefilter("ignore")
    model = MODELS[name].model() if name in MODELS else CASES[name].build()
    kind = PROBLEMS[name]
    with quiet():
        step = getattr(pk, kind)(model=model, **OPTIONS[kind])
        sample = partial(pk.sample, step=step, model=model, chains=4, cores=1, progressbar=False)
        began = process_time()
        dt = sample(max_evaluations=evaluations, random_seed=seed)
        sampled = process_time()
        table = pk.summary(dt, model=model)
        ended = process_time()
    d = sum(value.size for value in model.initial_point().values())
    line = f"{name:<16}{kind:<22}{d:>4}{len(table):>6}"
    print(f"{line}{sampled - began:>9.1f}s{ended - sampled:>8.1f}s", flush=True)


if __name__ == "__main__":
    main()
