"""A simulator behind a network: a model that UM-Bridge serves over HTTP, evaluated by 8 workers.

The server, here on this machine, has the growth of a colony in a dish, at ten times, from a rate
and a capacity. Each evaluation takes it 50 ms. Half a minute on two cores, and
``pip install umbridge``:

    python umbridge_simulator.py [--evaluations N] [--url http://cluster:4242]
    python umbridge_simulator.py --serve PORT  # the server alone
"""

import argparse
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import requests
import umbridge

import pymc_kameleon as pk

NAME, WORKERS, SECONDS = "colony", 8, 0.05
TIMES = np.linspace(0.5, 5, 10)
TRUTH = np.array([1.3, 40.0])


class Colony(umbridge.Model):
    """The model on the server."""

    def get_input_sizes(self, config):
        """Say what it takes."""
        return [2]

    def get_output_sizes(self, config):
        """Say what it returns."""
        return [len(TIMES)]

    def supports_evaluate(self):
        """Say that it can be evaluated."""
        return True

    def __call__(self, parameters, config):
        """Return the number of cells, in thousands."""
        time.sleep(SECONDS)
        return [colony(np.array(parameters[0])).tolist()]


def colony(parameters):
    """Return logistic growth from one thousand cells."""
    rate, capacity = parameters
    return capacity / (1 + (capacity - 1) * np.exp(-rate * TIMES))


@contextmanager
def server():
    """Have a server in a process of its own, and return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, __file__, "--serve", str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            try:
                requests.get(f"{url}/Info", timeout=5)
                break
            except requests.ConnectionError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def build_model(url):
    """Return the model: the parameters are here, the simulator is behind the network."""
    model_there = umbridge.HTTPModel(url, NAME)

    @pk.black_box
    def growth(parameters):
        [counts] = model_there([parameters.tolist()])
        return np.array(counts)

    observed = colony(TRUTH) * np.random.default_rng(1).lognormal(0, 0.1, len(TIMES))
    with pm.Model() as model:
        rate = pm.LogNormal("rate", 0, 0.5)
        capacity = pm.LogNormal("capacity", np.log(30), 0.5)
        spread = pm.HalfNormal("spread", 0.2)
        counts = growth(pt.stack([rate, capacity]))
        pm.LogNormal("counts", pt.log(counts), spread, observed=observed)
    return model


def main(arguments=None):
    """Sample it, and print averages, and how busy the server was."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--evaluations", type=int, default=500)
    parser.add_argument("--url", help="of a server that is there; else one is started")
    parser.add_argument("--serve", type=int, metavar="PORT", help="be the server")
    options = parser.parse_args(arguments)
    if options.serve:
        umbridge.serve_models([Colony(NAME)], options.serve, max_workers=WORKERS)
    elif options.url:
        sample(options.url, options.evaluations)
    else:
        with server() as url:
            sample(url, options.evaluations)


def sample(url, evaluations):
    """Sample the model of a server."""
    with build_model(url):
        begun = time.perf_counter()
        with ThreadPoolExecutor(WORKERS) as threads:
            dt = pk.sample(
                max_evaluations=evaluations, executor=threads, random_seed=1, progressbar=False
            )
        rounds = (time.perf_counter() - begun) / SECONDS
        print(pk.summary(dt))
    print(f"{evaluations} evaluations in {rounds:.0f} times what one takes.")


if __name__ == "__main__":
    main()
