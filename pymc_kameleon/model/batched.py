"""``pk.batched``: a black box that computes many evaluations in one call."""

import numpy as np
from pytensor.compile.ops import FromFunctionOp, wrap_py

from pymc_kameleon.model.black_boxes import reduced
from pymc_kameleon.model.gathering import gathering
from pymc_kameleon.model.python_calls import WrongReturn


def batched(itypes, otypes, infer_shape=None):
    """Return a decorator that makes a black box of a function that computes many rows at once.

    As ``pytensor.wrap_py``, but that the function takes arrays, and returns them, with one more
    axis in front: one row for each evaluation. Models call it with the types of one evaluation.
    `pk.sample` makes the evaluations of all chains that are under way in one call.

    Parameters
    ----------
    itypes, otypes : PyTensor type or list of them
        Of what one evaluation takes and returns: ``pt.dvector`` if the function takes, or returns,
        an array of shape (rows, n).
    infer_shape : callable, optional
        As of ``pytensor.wrap_py``: of one evaluation.

    Returns
    -------
    callable
        Makes an Op of a function. A row of what that returns must not depend on the other rows, or
        on how many there are.

    Raises
    ------
    TypeError
        For what is no type of PyTensor.

    Examples
    --------
    >>> @pk.batched(itypes=[pt.dvector], otypes=[pt.dvector])  # doctest: +SKIP
    ... def growth(theta):  # (rows, 2)
    ...     rate, capacity = theta.T[:, :, None]
    ...     return capacity / (1 + (capacity - 1) * np.exp(-rate * DAYS))  # (rows, days)
    >>> with pm.Model():  # doctest: +SKIP
    ...     theta = pm.LogNormal("theta", shape=2)
    ...     pm.Normal("y", growth(theta), 0.1, observed=y)
    ...     dt = pk.sample(chains=64)
    """
    of_one = wrap_py(itypes, otypes, infer_shape)(None)  # which checks them
    return lambda function: Batched(function, of_one.itypes, of_one.otypes, infer_shape)


class Batched(FromFunctionOp):
    """A black box whose function computes one row for each evaluation."""

    def __init__(self, function, itypes, otypes, infer_shape=None):
        super().__init__(function, itypes, otypes, infer_shape)
        self.function = function

    def __str__(self):
        return getattr(self.function, "__name__", type(self).__name__)

    def __reduce__(self):
        """Travel by name, or else with the function."""
        return reduced(self)

    def perform(self, node, inputs, outputs):
        """Compute one evaluation, in one call with those of other tasks if there are any."""
        turns = gathering.get()
        if turns is not None and self in turns.ops:
            found = turns.call(self, inputs)
        else:
            [found] = self.rows([inputs])
        for place, value in zip(outputs, found, strict=True):
            place[0] = value

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
        """Return the outputs of each evaluation, by one call.

        Parameters
        ----------
        evaluations : list of list of array
            The inputs of each, all of the same shapes.
        """
        n, name = len(evaluations), str(self)
        found = self.function(*map(np.stack, zip(*evaluations, strict=True)))
        found = list(found) if isinstance(found, list | tuple) else [found]
        if len(found) != len(self.otypes):
            raise WrongReturn(
                f"`{name}` returned {len(found)} arrays, but declares {len(self.otypes)}."
            )
        pairs = zip(map(np.asarray, found), self.otypes, strict=True)
        found = [_checked(name, n, value, declared) for value, declared in pairs]
        return [[np.array(value[i]) for value in found] for i in range(n)]


def _checked(name, n, value, declared):
    """Return an output of n rows as it is declared."""
    shape = n, *("?" if length is None else length for length in declared.shape)
    is_one = value.ndim == len(shape)
    if not is_one or any(own not in ("?", k) for own, k in zip(shape, value.shape, strict=True)):
        raise WrongReturn(
            f"`{name}` returned an array of shape {value.shape} for {n} "
            f"evaluation{'s' * (n != 1)}. Let it return one of shape "
            f"({', '.join(map(str, shape))}{',' * (len(shape) == 1)}): its first axis is that of "
            "the rows that it was given."
        )
    if not np.can_cast(value.dtype, declared.dtype):
        raise WrongReturn(f"`{name}` returned {value.dtype}, but declares {declared.dtype}.")
    return value.astype(declared.dtype, copy=False)
