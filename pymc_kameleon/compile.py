"""Fill the cache of compiled transitions ahead of time, as for an image of a container or cluster.

    python -m pymc_kameleon.compile              all samplers
    python -m pymc_kameleon.compile GAM KAM      some of them

The transitions of a sampler do not depend on the model, nor on most options: what is compiled here
serves all of them. Several samplers are compiled at a time, each in a process of its own.
"""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from time import perf_counter

import numpy as np
import pymc as pm

from pymc_kameleon.model.black_box import black_box
from pymc_kameleon.samplers import SAMPLERS, EmulatorMetropolis

BY_NAME = {sampler.__name__: sampler for sampler in SAMPLERS}  # samplers by name


def main(arguments=None):
    """Compile what the command line names, and say how long each took."""
    parser = argparse.ArgumentParser(
        prog="python -m pymc_kameleon.compile",
        description="Compile the transitions of samplers, and keep them on disk.",
    )
    parser.add_argument(
        "samplers", nargs="*", metavar="SAMPLER", help=f"{', '.join(BY_NAME)}; all by default"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="samplers at a time; all processors"
    )
    options = parser.parse_args(arguments)
    unknown = [name for name in options.samplers if name not in BY_NAME]
    if unknown:
        parser.error(f"unknown samplers {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    names = dict.fromkeys(options.samplers or BY_NAME)
    # No fork: a compiler's threads and locks do not survive it.
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        running = {pool.submit(seconds_to_compile, name): name for name in names}
        for done in as_completed(running):
            print(f"{running[done]:12} {done.result():6.1f} s", flush=True)


def seconds_to_compile(name):
    """Compile the transitions of a sampler, or load them; return the time."""
    sampler = BY_NAME[name]
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        if sampler is EmulatorMetropolis:
            pm.Normal("y", black_box(np.sin)(x), observed=np.zeros(2))
    start = perf_counter()
    sampler(model=model).compile_learning()
    return perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
