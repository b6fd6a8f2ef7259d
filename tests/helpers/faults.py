"""What can go wrong with expensive likelihoods, and a sampler whose chains learn together."""

import os
import sys
import threading
from pathlib import Path

import numpy as np
from models import Counting, black_box

import pymc_kameleon as pk

APART = 100.0
"""Between the wells of `wells`."""

HANGING = 600
"""Seconds after which a test hangs: far more than it takes, however busy the machine is."""


def wells(x):
    """Standard normals around 0, ±100, …, none of which a short chain leaves."""
    z = x.copy()
    z[0] -= APART * round(z[0] / APART)
    return -0.5 * z @ z


def shallow(x):
    """`wells` that are twice as wide."""
    return 0.25 * wells(x)


def well(chain):
    """Return a start in the well of a chain."""
    return {"x": np.array([APART * chain, 0.5])}


class Fault:
    """`wells`, but something happens where x[0] is in `where`.

    Parameters
    ----------
    where : (float, float)
    once : path, optional
        A file that is made then; once it exists, nothing happens any more.
    """

    def __init__(self, where, once=None):
        self.where, self.once, self.home = where, once, os.getpid()

    def __call__(self, x):
        if self.where[0] < x[0] < self.where[1] and self._first():
            self.happen(x)
        return wells(x)

    def _first(self):
        if self.once is None:
            return True
        try:
            Path(self.once).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True


def send_half_a_result():
    """Do as a worker that is killed while it sends: all others, and the pool, wait for the rest."""
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        frame = frame.f_back
    queue = frame.f_locals["result_queue"]
    queue._wlock.acquire()
    queue._writer._send((1000).to_bytes(4, "big"))


class Kills(Fault):
    """Kills the process it is in, unless that is the user's."""

    def _first(self):
        return os.getpid() != self.home and super()._first()

    def happen(self, x):
        os.kill(os.getpid(), 9)


class KillsSending(Kills):
    """The same, as if it were sending its result."""

    def happen(self, x):
        send_half_a_result()
        super().happen(x)


class Raises(Fault):
    def happen(self, x):
        raise ZeroDivisionError("the solver broke down")


class Stubborn(Exception):
    """Cannot be made again from what pickle keeps."""

    def __init__(self, code, reason):
        super().__init__(f"{reason} ({code})")

    def __reduce__(self):
        return type(self), self.args


class RaisesStubborn(Fault):
    def happen(self, x):
        raise Stubborn(7, "the solver broke down")


class Hangs(Fault):
    """Tells that it hangs by a file, `once`."""

    def happen(self, x):
        threading.Event().wait()


class Leaks:
    """`wells`, which keeps some memory with each evaluation.

    A worker that has evaluated it too often is killed, as a system does that runs out of memory.

    Parameters
    ----------
    most : int
        Evaluations that a worker survives.
    """

    def __init__(self, most):
        self.most, self.kept, self.home = most, [], os.getpid()

    def __call__(self, x):
        self.kept.append(bytes(10_000))
        if len(self.kept) > self.most and os.getpid() != self.home:
            os.kill(os.getpid(), 9)
        return wells(x)


class TakesAll(Leaks):
    """Takes all the memory that there is with one evaluation, its `most`-th, and keeps it."""

    def __call__(self, x):
        self.most -= 1
        while self.most == 0:
            self.kept.append(bytes(10_000))
        return wells(x)


class Arrivals(Counting):
    """Writes a line with the process's number whenever it is unpickled."""

    def __init__(self, path):
        super().__init__(wells)
        self.path = path

    def __setstate__(self, state):
        self.__dict__.update(state)
        with open(self.path, "a") as file:
            file.write(f"{os.getpid()}\n")


def arriving(path):
    """Return a model that says whenever it arrives somewhere."""
    return black_box(Arrivals(path))


class Herd(pk.baselines.RWM):
    """A random walk whose chains take the mean of their log scales, and remember their number."""

    name = "herd"
    learns = "both"
    calls = None
    at = (0, 10, 25, 40, 45)  # the last ones are too late in a short run

    def pauses(self):
        return self.at

    @classmethod
    def learn(cls, chains):
        if cls.calls is not None:
            cls.calls.append((len(chains), [chain.monitor.done for chain in chains]))
        far = [np.abs(chain.log_density.point).max() for chain in chains]
        mean = np.mean([chain.parameters.log_scale[0] for chain in chains])
        for chain in chains:
            chain.parameters.log_scale[0] = mean + 0.01 * np.tanh(max(far))


class Loner(Herd):
    """Its broken twin: each chain learns by itself."""

    name = "loner"
    learns = "alone"
