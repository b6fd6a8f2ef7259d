"""Kill workers and whole runs at random: whether draws are those of an undisturbed run.

    python examples/benchmarks/executors.py [--kills N] [--draws N]

Hares and lynxes, whose solver is a black box. Killed are workers of pk.sample, workers of Dask, and
runs that have a store, which are resumed. Nothing is kept. Linux only, and
``pip install '.[dask,examples,save]'``.
"""

import os
import random
import signal
import sys
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Timer
from time import perf_counter

from benchmark import main, quiet
from distributed import Client, LocalCluster

import pymc_kameleon as pk

sys.path.insert(0, str(Path(__file__).parents[1]))
from quickstart import build_model, starting_points

QUIET = {"progressbar": False, "compute_convergence_checks": False}
SPAWN = get_context("spawn")


def plan(options):
    """Yield what is to be killed, and how."""
    numbers = options.draws, options.kills
    yield {"killed": "worker of pk.sample"}, partial(kill_workers, *numbers, our_workers)
    yield {"killed": "worker of Dask"}, partial(kill_workers, *numbers, workers_of_dask)
    yield {"killed": "run with a store"}, partial(kill_runs, *numbers)


def add_options(parser):
    """Add the options of this script."""
    parser.add_argument("--draws", type=int, default=50, help="draws of a chain, and of tuning")
    parser.add_argument("--kills", type=int, default=20, help="random moments of each kind")


def hares_and_lynxes(draws, **where):
    """Sample the model in four chains, and return draws, statistics, and seconds."""
    starts, began = starting_points(), perf_counter()
    options = {"tune": draws, "chains": len(starts), "initvals": starts, "step": pk.GAM()}
    dt = pk.sample(draws, **options, **where, **QUIET, random_seed=1)
    return groups_of(dt), perf_counter() - began


def groups_of(dt):
    """Return draws and statistics."""
    return [dt[name].to_dataset().load() for name in ("posterior", "sample_stats")]


def kill_workers(draws, kills, workers):
    """Kill a random worker at random moments of a run; each run has `workers` of its own."""
    with build_model():
        with workers() as (where, _):
            hares_and_lynxes(draws, **where)  # compiles
            expected, whole = hares_and_lynxes(draws, **where)
        rng, equal = random.Random(1), 0
        for _ in range(kills):
            hit = Event()
            while not hit.is_set():  # there was no worker any more, or none yet
                with workers() as (where, worker):
                    delay = rng.uniform(0, whole)
                    killed = hares_and_lynxes_without(worker, delay, hit, draws, where)
            equal += same(killed, expected)
    return {"kills": kills, "equal": equal}


@contextmanager
def our_workers():
    """Let pk.sample begin two processes."""
    yield {"cores": 2}, worker_of_ours


@contextmanager
def workers_of_dask():
    """Begin two processes of Dask, which gives one up that dies while it is started again."""
    with (
        LocalCluster(2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield {"executor": client.get_executor()}, partial(worker_of_dask, client)


def hares_and_lynxes_without(worker, delay, hit, draws, where):
    """Sample, and kill what `worker()` returns after a delay in seconds."""

    def kill():
        if (pid := worker()) is not None:
            os.kill(pid, signal.SIGKILL)
            hit.set()

    timer = Timer(delay, kill)
    timer.start()
    try:
        return hares_and_lynxes(draws, **where)[0]
    finally:
        timer.cancel()
        timer.join()


def worker_of_ours():
    """Return the id of a random worker process of pk.sample, or None."""
    ids = [process.pid for process in active_children() if process.name.startswith("Fork")]
    return random.choice(ids) if ids else None


def worker_of_dask(client):
    """Return that of a random worker process of a Dask cluster, or None."""
    ids = list(client.run(os.getpid, on_error="ignore").values())
    return random.choice(ids) if ids else None


def kill_runs(draws, kills):
    """Kill the whole process at random moments, and resume from its store."""
    with build_model():
        hares_and_lynxes(draws, cores=2)  # compiles
        expected, whole = hares_and_lynxes(draws, cores=2)
    rng, equal, done = random.Random(2), 0, 0
    while done < kills:
        with TemporaryDirectory() as directory:
            path, begun = Path(directory) / "run.zarr", SPAWN.Event()
            process = SPAWN.Process(target=run_with_store, args=(draws, path, begun))
            process.start()
            while not begun.wait(1) and process.is_alive():
                pass
            process.join(rng.uniform(0, whole))
            if process.exitcode == 0:  # too late
                continue
            process.kill()
            process.join()
            with build_model():
                dt = pk.resume(path, cores=2, **QUIET)
            equal, done = equal + same(groups_of(dt), expected), done + 1
    return {"kills": kills, "equal": equal}


def run_with_store(draws, path, begun):
    """Sample, and say after the first advance that there is something to be killed."""
    with build_model(), quiet():
        hares_and_lynxes(draws, cores=2, store=path, callback=lambda run, draw: begun.set())


def same(groups, others):
    """Whether all values are equal, bit for bit."""
    return all(one.equals(other) for one, other in zip(groups, others, strict=True))


if __name__ == "__main__":
    main(None, plan, add_options=add_options)
