"""Tasks of a run, in a thread or in a process of ours, and exceptions that are sent back."""

import cloudpickle
from threadpoolctl import threadpool_limits

from pymc_kameleon.model.entry_points import black_box_ops_silent
from pymc_kameleon.model.evaluators import packed
from pymc_kameleon.model.python_calls import WorkerTraceback
from pymc_kameleon.model.remote import (
    attempt,
    belong_to_parent,
    sendable,
    set_jax_doubles,
    travelling,
    uses_jax_doubles,
)

_own = []
"""The job of this process, or its functions, if it is one of ours."""


class Packed:
    """A job, or functions, pickled only where a process does not inherit them."""

    def __init__(self, value):
        self.value = value

    def __reduce__(self):
        return _opened, (packed(self.value), uses_jax_doubles())


def _opened(pickled, jax_doubles):
    set_jax_doubles(jax_doubles)
    with black_box_ops_silent():
        return Packed(cloudpickle.loads(pickled))


def set_up_process(own):
    """Let this process do tasks of a job, ignore Ctrl-C, and end when its parent has ended."""
    _own.append(own.value)
    belong_to_parent()
    threadpool_limits(1)  # LAPACK's own threads would fight with those of others


def do_in_process(function, *arguments):
    """Do a task of the job of this process."""
    return do_task(_own[-1], function, *arguments)


def call_in_process(number, timeout, inputs):
    """Return what comes of a call of a function of this process."""
    return travelling(*attempt(_own[-1][number], timeout, inputs))


def do_task(job, function, *arguments):
    """Do a task of a job: return ``function(job, *arguments)``, or Failed."""
    try:
        return function(job, *arguments)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        return Failed(error)
    except BaseException as error:  # a likelihood that calls sys.exit
        explained = RuntimeError(f"The model raised {error!r}, which would end Python.")
        explained.__notes__, explained.__cause__ = getattr(error, "__notes__", []), error
        return Failed(explained)


class Failed:
    """An exception that a task raised, as opposed to the death of its worker."""

    def __init__(self, error):
        self.error = error

    def __getstate__(self):
        return sendable(self.error)

    def __setstate__(self, state):
        self.error, text = state
        self.error.__cause__ = WorkerTraceback(text)
