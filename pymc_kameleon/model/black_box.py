"""``pk.black_box``: a function that models call, and PyTensor knows nothing of: a simulator."""

import sys
from contextlib import suppress
from functools import partial, update_wrapper
from inspect import Parameter, signature
from time import perf_counter

import numpy as np
from pytensor.graph import Apply, Op, Variable
from pytensor.tensor import TensorType, as_tensor_variable

from pymc_kameleon.model.failures import OnFailure, Rejected, watched
from pymc_kameleon.model.gathering import gathering
from pymc_kameleon.model.python_calls import WrongReturn


def black_box(
    function=None,
    *,
    ndim=1,
    batched=False,
    on_error="raise",
    timeout=None,
    check_repeatable=True,
    coarse=None,
):
    """Make a simulator of a function, to be called in a model.

    Samplers then know that it is expensive, emulate it, and count its calls. It has no gradient.

    Parameters
    ----------
    function : callable
        Takes arrays, and returns an array, a list, or a number, of real numbers. It must not keep
        anything from call to call.
    ndim : int or tuple of int, default 1
        Number of dimensions of what it returns: 1 for an array of shape (n,), 0 for a number. A
        tuple if it returns several arrays, as ``ndim=(1, 2)``.
    batched : bool, default False
        Whether it computes many evaluations in one call: its arrays then have one more axis, the
        first one, with a row for each evaluation, which must not depend on others.
    on_error : {"raise", "reject"}, default "raise"
        What an exception means. "raise" stops the run, because exceptions may be mistakes. With
        "reject" the parameters count as impossible, and `pk.sample` reports at its end how often,
        with the first point and exception. MemoryError, Ctrl-C, and results of another type than
        declared always stop the run. Other steps than ours get NaN.
    timeout : float, optional
        Seconds that a call may take. A slower one is stopped, as soon as it is in Python code, and
        rejected and reported like an exception. Choose many times the usual duration: a limit that
        cuts where the posterior is changes it. Chains then run in processes of their own.
    check_repeatable : bool, default True
        Whether chains evaluate the log-density again at some points where they were, and warn if
        it differs. ``n_logp`` counts that.
    coarse : callable, optional
        A cheap model of the same, as a solver with a coarser grid, which takes and returns the
        same. `pk.sample` with EmulatorMetropolis first looks for the posterior with it, by some
        hundred evaluations that ``n_logp`` does not count, and then emulates what `function` adds
        to it. The draws are exact for `function`, whatever `coarse` returns. The other options are
        those of both functions.

    Returns
    -------
    pytensor.graph.Op
        Models call it with random variables, arrays, and numbers, by position or by name. The
        function itself is its attribute ``function``. Without a function, a decorator.

    Raises
    ------
    TypeError
        If `function` or `coarse` is none, or `ndim` is not what it has to be.
    ValueError
        For another impossible option.

    Examples
    --------
    >>> @pk.black_box
    ... def growth(rate, capacity):
    ...     return capacity / (1 + (capacity - 1) * np.exp(-rate * np.arange(5.0)))
    >>> with pm.Model():
    ...     rate, capacity = pm.LogNormal("rate"), pm.LogNormal("capacity")
    ...     y = pm.Normal("y", growth(rate, capacity), 0.1, observed=np.ones(5))
    >>> growth.function(0.5, 4.0).shape
    (5,)
    >>> largest = pk.black_box(lambda rates: rates.max(), ndim=0)  # a number
    """
    if function is None:
        options = {"on_error": on_error, "timeout": timeout, "check_repeatable": check_repeatable}
        return partial(black_box, ndim=ndim, batched=batched, coarse=coarse, **options)
    on_failure = OnFailure.checked(on_error, timeout, check_repeatable)
    if isinstance(coarse, Function):
        if isinstance(coarse, Batched) != batched:
            raise ValueError(
                f"`{coarse}` is to be a coarse model, so it has to compute as many evaluations in "
                f"a call as the function itself: make it with batched={batched}."
            )
        coarse = coarse.function
    for given in (function,) if coarse is None else (function, coarse):
        _check_function(given)
    every = ndim if isinstance(ndim, tuple) else (ndim,)
    if not every or not all(type(n) is int and n >= 0 for n in every):
        raise TypeError(
            "ndim of black_box must be a number of dimensions, as 0 or 1, or a tuple with one for "
            f"each array that the function returns, as (1, 2), not {ndim!r}."
        )
    if not isinstance(batched, bool):
        raise TypeError(f"batched of black_box must be True or False, not {batched!r}.")
    kind = Batched if batched else Function
    coarse = None if coarse is None else kind(coarse, ndim, on_failure)
    return kind(function, ndim, on_failure, coarse)


def _check_function(function):
    """Raise a TypeError unless it can be a black box."""
    if isinstance(function, Function):
        raise TypeError(f"`{function}` is a black box already: give it its options there.")
    if isinstance(function, Op) or not callable(function):
        raise TypeError(
            f"black_box takes a function, not {function!r}. With options it is a decorator: "
            "@pk.black_box(ndim=0). Of an Op it takes what pytensor.function compiles."
        )
    try:
        hash(function)  # PyTensor compares Ops by it; what holds an array may have none
    except TypeError:
        raise TypeError(
            f"black_box takes what has a hash, as a function, and {type(function).__name__} has "
            "none. A dataclass has one with eq=False."
        ) from None


class Function(Op):
    """A function of arrays, in a model.

    `coarse` is another one, its cheap model, if any. `stands_for` is the one whose place it takes
    as that, so that two that share a coarse model remain two.
    """

    __props__ = ("function", "ndim", "on_failure", "coarse", "stands_for")
    minds_turns = True  # as it calls a function alone, a task may leave its turn meanwhile

    def __init__(self, function, ndim, on_failure, coarse=None, stands_for=None):
        self.function, self.ndim, self.on_failure = function, ndim, on_failure
        self.coarse, self.stands_for = coarse, stands_for
        self.ndims = ndim if isinstance(ndim, tuple) else (ndim,)  # of all that it returns
        self.shapes = {}  # of what it has returned, by those of inputs
        self.seconds = np.inf  # of the fastest call
        self.__name__ = type(function).__name__  # of a partial, which has none
        update_wrapper(self, function, updated=())

    def __str__(self):
        return self.__name__

    __repr__ = __str__

    def __reduce__(self):
        """Travel by name, or else with the function: so from a script, or a notebook."""
        found = sys.modules.get(self.__module__) if self.__module__ != "__main__" else None
        for part in getattr(self, "__qualname__", "").split("."):
            found = getattr(found, part, None)
        return self.__qualname__ if found is self else (type(self), self._props())

    def make_node(self, *inputs, **named):
        """Build the node of a call."""
        inputs = [self._as_variable(x) for x in self._by_position(inputs, named)]
        outputs = [TensorType("float64", (None,) * n)() for n in self.ndims]
        return Apply(self, inputs, outputs)

    def _by_position(self, inputs, named):
        """Return all that the function is called with in its order."""
        try:
            bound = _signature(self.function).bind(*inputs, **named)
        except TypeError as error:
            raise TypeError(f"`{self}` {error}.") from None
        except ValueError:  # a function in C may not say what it takes
            if named:
                raise TypeError(
                    f"`{self}` does not say what its arguments are called: pass "
                    f"{', '.join(named)} by position."
                ) from None
            return inputs
        if bound.kwargs:
            bound.apply_defaults()
        if bound.kwargs:
            raise TypeError(
                f"`{self}` takes {', '.join(bound.kwargs)} by name alone: let that have a position."
            )
        return bound.args

    def _as_variable(self, x):
        try:  # PyTensor would take numbers for small ones; of a list it makes an array
            own = x if isinstance(x, Variable | list | tuple) else np.asarray(x)
            return as_tensor_variable(own)
        except (TypeError, ValueError, NotImplementedError):
            raise TypeError(
                f"`{self}` takes random variables, arrays, and numbers, not {x!r}."
            ) from None

    def perform(self, node, inputs, outputs):
        """Call the function; where it rejects, the outputs are NaN, if their shapes are known."""
        own = [x if x.flags.writeable else x.copy() for x in inputs]  # constants are not
        key = tuple([x.shape for x in inputs])
        turns, begun = gathering.get(), perf_counter()
        try:
            found = self.compute(own) if turns is None else turns.call(self, own)
            self.seconds = min(self.seconds, perf_counter() - begun)
            self.shapes[key] = [value.shape for value in found]
        except Rejected as error:
            if watched.get():
                raise
            if key not in self.shapes:
                raise error.__cause__ or error from None
            found = [np.full(shape, np.nan) for shape in self.shapes[key]]
        for place, value in zip(outputs, found, strict=True):
            place[0] = value

    def pullback(self, inputs, outputs, cotangents):
        """Say that there is no gradient."""
        raise NotImplementedError(
            f"`{self}` is a black box, and has no gradient: use pk.sample(), which chooses a "
            "sampler that needs none, or step=pk.GAM()."
        )

    def compute(self, inputs):
        """Return what the function returns, as arrays."""
        return self._checked(self.on_failure.call(self.function, *inputs))

    def _checked(self, found, rows=()):
        """Return what the function has returned as arrays; `rows` is (n,) if they have n rows."""
        is_tuple = isinstance(self.ndim, tuple)
        found = found if is_tuple and isinstance(found, tuple | list) else (found,)
        if len(found) != len(self.ndims):
            returned = f"{len(found)} array{'s' * (len(found) != 1)}"
            raise WrongReturn(f"`{self}` returned {returned}, but declares ndim={self.ndim}.")
        pairs = zip(found, self.ndims, strict=True)
        return [self._as_declared(value, ndim, rows) for value, ndim in pairs]

    def _as_declared(self, value, ndim, rows):
        """Return an output as a float64 array, NaN where it is masked."""
        if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
            value = value.astype(np.float64).filled(np.nan)
        try:
            array = np.array(value)  # a copy, as it may be an input, or be used again
        except ValueError as error:
            raise WrongReturn(f"`{self}` returned what is no array: {error}") from None
        if not np.can_cast(array.dtype, np.float64):
            kind = type(value).__name__ if array.dtype == object else array.dtype
            raise WrongReturn(f"`{self}` returned {kind}. Let it return real numbers.")
        if ndim == 0 and not rows and array.size == 1:
            array = array.reshape(())
        if array.ndim != len(rows) + ndim or array.shape[: len(rows)] != rows:
            shape = ", ".join(map(str, [*rows, *"?" * ndim]))
            of_rows = f" for {rows[0]} evaluation{'s' * (rows[0] != 1)}" if rows else ""
            advice = f", or declare @pk.black_box(ndim={array.ndim})"
            if rows:
                advice = ": its first axis is that of the rows that it was given"
            elif array.ndim == 0 and np.isnan(array):
                advice = ", with NaN everywhere, as by np.full"
            raise WrongReturn(
                f"`{self}` returned an array of shape {array.shape}{of_rows}. Let it return one of "
                f"shape ({shape}{',' * (len(rows) + ndim == 1)}){advice}."
            )
        return array.astype(np.float64, copy=False)


def _signature(function):
    """Return what a function takes: the outermost of decorators, unless that takes any names."""
    with suppress(ValueError):
        own = signature(function, follow_wrapped=False)
        if all(each.kind != Parameter.VAR_KEYWORD for each in own.parameters.values()):
            return own
    return signature(function)


class Batched(Function):
    """A function that computes one row for each evaluation."""

    def compute(self, inputs):
        """Return the outputs of one evaluation."""
        return self.rows([inputs])[0]

    def outcomes(self, evaluations):
        """Return what comes of each evaluation: its outputs, or the exception that it raised.

        If a call of several raises, each is made alone, so that the others are not rejected for it.
        """
        try:
            return self.rows(evaluations)
        except WrongReturn as error:  # of some number of rows, which one alone may not show
            return [WrongReturn(*error.args) for _ in evaluations]
        except BaseException as error:
            if len(evaluations) == 1:
                return [error]
        return [outcome for own in evaluations for outcome in self.outcomes([own])]

    def rows(self, evaluations):
        """Return the outputs of evaluations, lists of inputs of the same shapes, by one call."""
        n = len(evaluations)
        stacked = map(np.stack, zip(*evaluations, strict=True))
        found = self._checked(self.on_failure.call(self.function, *stacked), (n,))
        return [[np.array(value[i]) for value in found] for i in range(n)]
