"""Tasks in a worker: the jobs that it keeps, Ctrl-C, and exceptions that are sent back."""

import io
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from hashlib import sha256
from multiprocessing import parent_process

import cloudpickle
from pytensor.compile.ops import FromFunctionOp
from pytensor.graph.op import Op
from threadpoolctl import threadpool_limits

from pymc_kameleon.model.black_box_calls import users_own
from pymc_kameleon.model.black_boxes import is_of_user, ops_of, reduced
from pymc_kameleon.model.entry_points import black_box_ops_silent
from pymc_kameleon.model.functions import Compiled
from pymc_kameleon.model.watch import Watched

MOST_JOBS = 4
"""Jobs that a worker keeps at most, and compiled functions; the oldest is forgotten first."""

_jobs, _compiled, _loading = OrderedDict(), OrderedDict(), threading.Lock()


class Lacks(Enum):
    """What a worker has to be sent, with the task once more."""

    JOB, FUNCTIONS = 0, 1


@dataclass
class Parcel:
    """A job that travels, and apart from it its compiled functions: a worker may have these.

    Black boxes go with the functions, as they may be large.

    Attributes
    ----------
    job : bytes
    key : bytes
        Digest of the functions, black boxes included.
    functions : bytes or None
    jax_doubles : bool
        Whether JAX computes with 64 bits, which a program has to say: workers do not know.
    """

    job: bytes
    key: bytes
    functions: bytes | None
    jax_doubles: bool

    @classmethod
    def of(cls, job):
        """Pack a job."""
        file, apart = io.BytesIO(), []
        try:
            _Packer(file, apart).dump(job)
            functions = packed(apart)
        except Exception as error:  # pickling calls what users have written
            error.add_note(
                "The model has to be pickled, to travel to workers, with all that functions of a "
                "script or notebook refer to. What cannot be pickled can be made by the function "
                "that needs it, or be in a module that workers import."
            )
            raise
        jax = sys.modules.get("jax")
        doubles = jax is not None and bool(jax.config.jax_enable_x64)
        return cls(file.getvalue(), sha256(functions).digest(), functions, doubles)

    def opened(self, functions):
        """Return the job, with functions that have been unpickled."""
        return _Opener(io.BytesIO(self.job), functions).load()


class _Pickler(cloudpickle.Pickler):
    """Lets functions of a script or notebook travel, of which PyTensor would send the names."""

    def reducer_override(self, obj):
        return reduced(obj) if type(obj) is FromFunctionOp else super().reducer_override(obj)


def packed(value):
    """Return functions, or black boxes, as bytes that a worker can open."""
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _Packer(cloudpickle.Pickler):
    """Leaves compiled functions and black boxes out, and puts them into a list."""

    def __init__(self, file, apart):
        super().__init__(file)
        self._apart, self._places = apart, {}

    def persistent_id(self, obj):
        if not (isinstance(obj, Compiled | Watched) or (isinstance(obj, Op) and is_of_user(obj))):
            return None
        if id(obj) not in self._places:
            self._places[id(obj)] = len(self._apart)
            self._apart.append(obj)
        return self._places[id(obj)]


class _Opener(pickle.Unpickler):
    def __init__(self, file, functions):
        super().__init__(file)
        self._functions = functions

    def persistent_load(self, place):
        return self._functions[place]


class Kept:
    """Compiled functions that a worker keeps from run to run.

    Parameters
    ----------
    pickled : bytes

    Attributes
    ----------
    functions : list of Compiled, Watched and Op
    turns : threading.Lock
        Of all jobs that call them: what Python computes is not safe in several threads.
    """

    def __init__(self, pickled):
        self.functions, self.turns = cloudpickle.loads(pickled), threading.Lock()
        self._before = self._fingerprints()

    @property
    def are_as_they_were(self):
        """Whether no black box has changed since, by calls of it, or as its class has changed."""
        with self.turns:
            return self._before is not None and self._fingerprints() == self._before

    def _fingerprints(self):
        """Return what tells whether black boxes change, None of one that does not travel on."""
        try:
            return {sha256(packed(op)).digest() for op in self.black_boxes}
        except Exception:  # whatever a user's __reduce__ raises, as of what it has opened here
            return None

    @property
    def black_boxes(self):
        """The user's Ops that they call, a set."""
        compiled = [each for each in self.functions if not isinstance(each, Op)]
        graphs = [each.function.maker.fgraph.outputs for each in compiled]
        ops = {users_own(op) for graph in graphs for op in ops_of(graph)}
        return set(filter(is_of_user, ops))


def keep_job(job):
    """Let this process, and those that are forked from it, do tasks of a job."""
    _jobs[job.token] = job


def forget_job(job):
    """Forget a job."""
    _jobs.pop(job.token, None)


def do_task(number, token, parcel, function, *arguments):
    """Do a task of a job: return ``function(job, *arguments)``, or Failed.

    Each task has a `number`, as some executors answer equal tasks from memory.

    Returns what this worker lacks if it does not have the job, and the parcel does not hold it: the
    task is then sent again with that, which so is sent a few times at most to each worker.
    """
    if token not in _jobs:
        with _loading:
            if token not in _jobs and (lacks := _load(token, parcel)):
                return lacks
    try:
        return function(_jobs[token], *arguments)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        return Failed(error)
    except BaseException as error:  # a likelihood that calls sys.exit
        explained = RuntimeError(f"The model raised {error!r}, which would end Python.")
        explained.__notes__, explained.__cause__ = getattr(error, "__notes__", []), error
        return Failed(explained)


def _load(token, parcel):
    """Keep the job of a parcel; return what is lacking for that, or None."""
    if parcel is None:
        return Lacks.JOB
    if parcel.jax_doubles:
        os.environ["JAX_ENABLE_X64"] = "1"  # which it reads when it is imported
        if jax := sys.modules.get("jax"):
            jax.config.update("jax_enable_x64", True)
    with black_box_ops_silent():
        kept = _compiled.pop(parcel.key, None)
        if kept is None or not kept.are_as_they_were:
            if parcel.functions is None:
                return Lacks.FUNCTIONS
            ignore_ctrl_c()
            threadpool_limits(1)  # LAPACK's own threads would fight with other workers
            kept = Kept(parcel.functions)
        job = parcel.opened(kept.functions)
    if job.holds_gil:
        job.turns = kept.turns
    _compiled[parcel.key], _jobs[token] = kept, job
    for memory in (_compiled, _jobs):
        while len(memory) > MOST_JOBS:
            memory.popitem(last=False)
    return None


def ignore_ctrl_c():
    """Ignore Ctrl-C, which a terminal sends to all processes: the parent handles it."""
    if parent_process() is None:
        return
    ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    if threading.current_thread() is threading.main_thread():
        ignore()
    elif "distributed" in sys.modules:  # Dask does tasks in threads, and all else in the main one
        with suppress(ValueError):  # no worker of Dask
            sys.modules["distributed"].get_worker().loop.add_callback(ignore)


class WorkerTraceback(Exception):
    """The traceback of another process, as text."""

    def __str__(self):
        return f"\n{self.args[0]}"


class Failed:
    """An exception that a task raised, as opposed to the death of its worker.

    Attributes
    ----------
    error : Exception
        With its traceback, which is its cause if it comes from another process.
    """

    def __init__(self, error):
        self.error = error

    def __getstate__(self):
        text = "".join(traceback.format_exception(self.error))
        try:
            pickle.loads(pickle.dumps(self.error))
            return self.error, text
        except Exception:  # of its own kind, with arguments that do not travel
            error = RuntimeError(f"{type(self.error).__name__}: {self.error}")
            error.__notes__ = getattr(self.error, "__notes__", [])
            return error, text

    def __setstate__(self, state):
        self.error, text = state
        self.error.__cause__ = WorkerTraceback(text)
