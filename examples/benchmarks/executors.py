"""Where the chains of pk.sample run: two cores, the way to a worker and back, kill -9, the store.

    python examples/benchmarks/executors.py [--draws N] [--long N] [--repeats N]
    python examples/benchmarks/executors.py --kill [--kills N] [--draws N]

Hares and lynxes, whose solver is a black box, and for the store ten normal variables. Steps are
built before the clock starts. Ratios are of runs side by side, medians of several. Linux only,
and ``pip install '.[dask,examples,save]'``.
"""

import argparse
import logging
import os
import random
import re
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Timer
from time import perf_counter

import pymc as pm
from distributed import Client, LocalCluster

import pymc_kameleon as pk
from pymc_kameleon.sampling.new_run import NewRun
from pymc_kameleon.sampling.prepared import prepare
from pymc_kameleon.sampling.settings import Settings
from pymc_kameleon.sampling.worker_process import Lacks
from pymc_kameleon.sampling.workers import Workers
from pymc_kameleon.step.job import advance

sys.path.insert(0, str(Path(__file__).parents[1]))
from quickstart import build_model, starting_points

QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
SPAWN = get_context("spawn")


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, help="draws of a chain, and of tuning: 500; 50 kills")
    parser.add_argument("--long", type=int, default=1_000_000, help="draws for the store")
    parser.add_argument("--repeats", type=int, default=5, help="runs for each median")
    parser.add_argument("--kill", action="store_true", help="kill workers and runs, nothing else")
    parser.add_argument("--kills", type=int, default=20, help="random moments of each kind")
    options = parser.parse_args()
    logging.disable(logging.ERROR if options.kill else logging.WARNING)
    if options.kill:
        draws, kills = options.draws or 50, options.kills
        with build_model():
            kill_workers("of pk.sample", draws, kills, our_workers)
            kill_workers("of Dask", draws, kills, workers_of_dask)
            kill_runs(draws, kills)
        return
    with dask_cluster() as client:
        with build_model():
            two_cores(client, options.draws or 500, options.repeats)
        there_and_back(client)
    store_seconds(options.long, options.repeats)
    store_memory(options.long)


@contextmanager
def dask_cluster():
    """Two worker processes of one thread."""
    with (
        LocalCluster(2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        yield client


def two_workers(client):
    """Return arguments of pk.sample for two processes, its own ones and Dask's."""
    return {"cores": 2}, {"executor": client.get_executor()}


def hares_and_lynxes(draws, **where):
    """Sample the model of the context in four chains, and return draws and statistics."""
    starts = starting_points()
    options = {"tune": draws, "chains": len(starts), "initvals": starts, "step": pk.GAM()}
    dt = pk.sample(draws, **options, **where, **QUIET)
    return dt["posterior"].to_dataset().load(), dt["sample_stats"].to_dataset().load()


# ---- speed --------------------------------------------------------------------------------------


def seconds(function, *arguments, **options):
    """Return how long a call takes."""
    start = perf_counter()
    function(*arguments, **options)
    return perf_counter() - start


def two_cores(client, draws, repeats):
    """Compare four chains in turn with two at a time."""
    places = dict(zip(("2 processes", "Dask, 2 workers"), two_workers(client), strict=True))
    ratios, starts = {name: [] for name in places}, {}
    for _ in range(repeats):
        for name, where in places.items():
            starts[name] = seconds(hares_and_lynxes, 1, **where)
        one = seconds(hares_and_lynxes, draws, cores=1)
        for name, where in places.items():
            ratios[name].append(one / seconds(hares_and_lynxes, draws, **where))
    print(f"4 chains of {2 * draws} draws, hares and lynxes, in turn: {one:.1f} s")
    for name in places:
        print(f"  over {name}: {median(ratios[name]):.2f} (one draw: {starts[name]:.1f} s)")


def there_and_back(client, d=10, n=200):
    """Time an advance by one draw, of which nearly all is the way to a worker and back."""
    with pm.Model():
        pm.Normal("x", shape=d)
        step = pk.GAM(steps_per_draw=1)
    origin = NewRun([step], Settings(chains=1, var_names=["x"]), 1, None, {})
    run = prepare(origin, None)
    state, _ = advance(run.job, run.chains[0].state, 10)
    here = median(seconds(advance, run.job, state, 1) for _ in range(n))
    print(f"an advance, d = {d}: {1e3 * here:.2f} ms here", end="")
    with ProcessPoolExecutor(2, SPAWN) as pool:
        for name, executor in {
            "in a process": pool,
            "by Dask": client.get_executor(),
        }.items():
            with Workers(run.job, 1, executor) as workers:
                took = median(round_trips(workers, state, n))
            print(f", {1e3 * took:.2f} ms {name}", end="")
    print()


def round_trips(workers, state, n):
    """Time n advances in a row, once all workers have the model."""
    took, lacks = [], None
    while len(took) < n:
        start = perf_counter()
        outcome = workers.submit(advance, state, 1, lacks=lacks).result()
        lacks = outcome if isinstance(outcome, Lacks) else None
        if lacks:
            took.clear()
        else:
            took.append(perf_counter() - start)
    return took


# ---- kill -9 ------------------------------------------------------------------------------------


def kill_workers(whose, draws, kills, workers):
    """Kill a random worker at random moments of a run; each run has `workers` of its own."""
    with workers() as (where, _):
        expected, rng, good = hares_and_lynxes(draws, **where), random.Random(1), 0
        whole = seconds(hares_and_lynxes, draws, **where)
    for _ in range(kills):
        hit = Event()
        while not hit.is_set():  # there was no worker any more, or none yet
            with workers() as (where, worker):
                delay = rng.uniform(0, whole)
                killed = hares_and_lynxes_without(worker, delay, hit, draws, where)
        good += same(killed, expected)
    print(f"kill -9 of a worker {whose}: {good} of {kills} go on, draws equal", flush=True)


@contextmanager
def our_workers():
    """Let pk.sample begin two processes."""
    yield {"cores": 2}, worker_of_ours


@contextmanager
def workers_of_dask():
    """Begin two processes of Dask, which gives one up that dies while it is started again."""
    with dask_cluster() as client:
        yield {"executor": client.get_executor()}, worker_of_dask(client)


def hares_and_lynxes_without(worker, delay, hit, draws, where):
    """Sample, and kill what `worker()` returns after a delay in seconds."""

    def kill():
        if (pid := worker()) is not None:
            os.kill(pid, signal.SIGKILL)
            hit.set()

    timer = Timer(delay, kill)
    timer.start()
    try:
        return hares_and_lynxes(draws, **where)
    finally:
        timer.cancel()
        timer.join()


def worker_of_ours():
    """Return the id of a random worker process of pk.sample, or None."""
    ids = [process.pid for process in active_children() if process.name.startswith("Fork")]
    return random.choice(ids) if ids else None


def worker_of_dask(client):
    """Return a function that does so for a Dask cluster."""

    def worker():
        ids = list(client.run(os.getpid, on_error="ignore").values())
        return random.choice(ids) if ids else None

    return worker


def kill_runs(draws, kills):
    """Kill the whole process at random moments, and go on from its store."""
    expected, rng, good = hares_and_lynxes(draws, cores=2), random.Random(2), 0
    whole, done = seconds(hares_and_lynxes, draws, cores=2), 0
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
            dt = pk.resume(path, cores=2, **QUIET | {"random_seed": None})
            groups = [dt[name].to_dataset() for name in ("posterior", "sample_stats")]
            good, done = good + same(groups, expected), done + 1
    print(f"kill -9 of a run with a store: {good} of {kills} go on, draws equal", flush=True)


def run_with_store(draws, path, begun):
    """Sample, and say after the first advance that there is something to be killed."""
    logging.disable(logging.ERROR)
    with build_model():
        hares_and_lynxes(draws, cores=2, store=path, callback=lambda run, draw: begun.set())


def same(groups, others):
    """Whether all values are equal, bit for bit."""
    return all(one.equals(other) for one, other in zip(groups, others, strict=True))


# ---- the store ----------------------------------------------------------------------------------


def ten_normals(draws, store):
    """Sample one chain of ten parameters, with or without a store; return seconds."""
    logging.disable(logging.WARNING)
    with pm.Model(), TemporaryDirectory() as directory:
        pm.Normal("x", shape=10)
        options = {"chains": 1, "step": pk.GAM(), **QUIET}
        pk.sample(10, tune=10, **options)
        path = Path(directory) / "run.zarr" if store else None
        return seconds(pk.sample, draws, store=path, **options)


def store_seconds(draws, repeats):
    """Compare a run with a store with the same run without."""
    ratios = []
    for _ in range(repeats):
        without = ten_normals(draws, store=False)
        ratios.append(ten_normals(draws, store=True) / without)
    print(f"{draws:_} draws of 10 parameters, with a store over without: {median(ratios):.2f}")


def store_memory(draws):
    """Follow the most memory of a fresh process as draws grow."""
    for n in (draws // 4, draws // 2, draws):
        for store in (False, True):
            with ProcessPoolExecutor(1, SPAWN) as pool:
                most = pool.submit(most_memory, n, store).result()
            place = "in a store" if store else "in memory"
            print(f"  most memory with {n:_} draws {place}: {most / 1e6:.0f} MB")


def most_memory(draws, store):
    """Return the bytes that this process took at most, after a run (Linux only).

    What resource.getrusage says counts the process that began this one.
    """
    ten_normals(draws, store)
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])


if __name__ == "__main__":
    main()
