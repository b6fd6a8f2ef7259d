"""A simulator that is a program of its own: one process for each evaluation.

Three parameters of a heated rod (`rod.py`), from temperatures at five sensors and four times. An
evaluation takes some 40 ms, nearly all of it to start the program. Draws go to a store while the
chains run; started again, the script goes on from there. About a minute on two cores:

    python subprocess_simulator.py [--draws N] [--tune N] [--store PATH]
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_kameleon as pk

PROGRAM = [sys.executable, "-I", str(Path(__file__).resolve().with_name("rod.py"))]
UNSTABLE = 3
"""The exit status by which the program says that it cannot simulate these parameters."""
SHAPE = (4, 5)
TRUTH = np.array([8.0, 0.15, 60.0])


@pk.black_box(ndim=2)
def rod(parameters):
    """Return the temperatures at 4 times and 5 sensors, NaN where the program gives up.

    Each call has a folder of its own, as several chains run the program at the same time. Only the
    failure that belongs to the parameters is NaN, which rejects them. Any other, such as a full
    disk or a missing library, ends the run: as a rejection it would change the posterior.
    """
    diffusivity, loss, hot = parameters.tolist()
    with TemporaryDirectory(prefix="rod-") as folder:
        values = {"diffusivity": diffusivity, "loss": loss, "hot": hot}
        Path(folder, "parameters.json").write_text(json.dumps(values))
        # In a process group of its own, Ctrl-C does not reach it, and the draw can be finished.
        done = subprocess.run(PROGRAM, cwd=folder, timeout=60, process_group=0, check=False)
        if done.returncode == UNSTABLE:
            return np.full(SHAPE, np.nan)
        done.check_returncode()
        return np.loadtxt(Path(folder, "temperatures.csv"), delimiter=",")


def build_model():
    """Return the model: normal errors of 1 degree around the simulated temperatures."""
    noise = np.random.default_rng(1).normal(0, 1, SHAPE)
    with pm.Model() as model:
        diffusivity = pm.LogNormal("diffusivity", np.log(5), 1)
        loss = pm.HalfNormal("loss", 1)
        hot = pm.Normal("hot", 50, 20)
        temperatures = rod(pt.stack([diffusivity, loss, hot]))
        pm.Normal("seen", temperatures, 1, observed=rod.function(TRUTH) + noise)
    return model


def main(arguments=None):
    """Begin, or go on with a store that exists, and print averages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=150, help="draws of each chain")
    parser.add_argument("--tune", type=int, default=50, help="draws of tuning before them")
    parser.add_argument("--store", type=Path, default="rod.zarr", help="where draws go")
    options = parser.parse_args(arguments)

    with build_model():
        if options.store.exists():
            dt = pk.resume(options.store)
        else:
            dt = pk.sample(
                options.draws,
                tune=options.tune,
                cores=2,
                step=pk.SurrogateMetropolis(),
                store=options.store,
                random_seed=1,
            )
        runs = dt["warmup_sample_stats"]["n_logp"].sum() + dt["sample_stats"]["n_logp"].sum()
        print(f"{int(runs)} runs of the program; the data are of {TRUTH}.")
        print(pk.summary(dt))


if __name__ == "__main__":
    main()
