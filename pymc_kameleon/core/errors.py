"""What numba says of a sampler that it cannot compile, in a line."""

import re
from contextlib import contextmanager

from numba.core.errors import NumbaError, UnsupportedBytecodeError

CAUSES = {
    r'lowering "[^"\n]*\] = [\s\S]*NRT required|NRT required[^"]*lowering "[^"\n]*\] = ': (
        "slice assignment is not possible in a function compiled with jit, because it allocates. "
        "Use pymc_kameleon.core.linalg.copy, or jit(allocates=True)."
    ),
    "NRT required|Only accept returning of array passed": (
        "a function compiled with jit can neither allocate an array nor return one. Write into an "
        "array of Work, or use jit(allocates=True)."
    ),
    r"Untyped global name '(\w+)'[\s\S]*type of <class 'function'>": (
        r"\1 is a plain function. Decorate it with jit, of pymc_kameleon.core.jit."
    ),
    r"Unknown attribute '(\w+)' of type (\w+)\(": r"\2 has no field \1.",
    r"No definition for lowering (\w+)\(.*\)\.(\w+) = ": (
        r"\1.\2 cannot be replaced. Write into its array, as state.logp[0] = logp."
    ),
    r">>> setitem\((\w+)\((?:array|\))": r"\1 is written by name, as stats.energy[0] = energy.",
    r"No implementation of function .* found for signature:\s+>>> (.*)": r"numba knows no \1.",
}
"""Patterns in numba's messages, and what they mean."""

SOURCE_LINE = re.compile(r'(?: at |File ")(?!\S*/numba/)([^"\n]+?\.py)(?:"?, line | \()(\d+)')
"""A line of source outside numba, where it failed or where what failed is called."""

CALLED_PART = re.compile(r"PartDispatcher\(<function (\S+) at ")
"""A compiled function that another one calls; the innermost is named first."""


@contextmanager
def explained(what):
    """Turn what numba raises inside into a TypeError that says function, line and cause."""
    try:
        yield
    except (NumbaError, UnsupportedBytecodeError, NotImplementedError) as error:
        message = str(error)
        function, place = CALLED_PART.search(message), SOURCE_LINE.search(message)
        where = [function and function[1], place and f"{place[1]}, line {place[2]}"]
        where = " at ".join(part for part in where if part)
        text = f"{what} cannot be compiled{where and f': {where}'}: {_cause(message)}"
        raise TypeError(text) from error


def _cause(message):
    """Return what a known pattern means, or the first line that says more than that it failed."""
    for pattern, meaning in CAUSES.items():
        if found := re.search(pattern, message):
            return found.expand(meaning)
    lines = (line.strip() for line in message.splitlines())
    return next((line for line in lines if line and not line.startswith("Failed in")), message)
