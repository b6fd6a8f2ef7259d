"""``pk.expectation``: averages over the posterior, corrected where possible."""

from typing import NamedTuple

import numpy as np
from arviz_stats.base import array_stats

from pymc_kameleon.analysis import batches
from pymc_kameleon.analysis.draws_of_result import Draws, say_if_not_finite
from pymc_kameleon.analysis.trust import warn_of, warn_of_few_events, warn_of_high_errors
from pymc_kameleon.model.layout import elements
from pymc_kameleon.result.opening import opened


class Expectation(NamedTuple):
    """An average over the posterior.

    Attributes
    ----------
    mean, mcse : float or array
        The average and its standard error, NaN where that is not known.
    gain : float or array
        Variance of the mean over the draws, over that of this average, both as estimated from these
        draws; 1 where it is that mean.
    ess : float or array
        Independent draws that would have this standard error.
    """

    mean: np.ndarray
    mcse: np.ndarray
    gain: np.ndarray
    ess: np.ndarray


def expectation(dt, function, model=None):
    """Average a function over the posterior.

    With `model`, or in its context, it is corrected by gradients of the log-density at the draws,
    whatever sampler made them, unless something speaks against it.

    Draws of SurrogateMetropolis and EmulatorMetropolis, by ``pk.sample``, are corrected by the
    surrogate or the emulator, and those of GAM by control variates, if these were kept.
    That takes no evaluation of the log-density, and is asymptotically exact however bad they are.
    Otherwise the answer is the mean, with its standard error by ArviZ.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample``, or of another sampler, or the path of a file or store of one.
    function : callable
        Takes variables on their natural scale, a dict of arrays (chain, draw, ...), and returns an
        array (chain, draw, ...). It treats each draw by itself, and is also called with other
        points.
    model : pm.Model, optional
        As in ``pk.summary``.

    Returns
    -------
    Expectation
        With arrays of what is left of the function's dimensions.

    Raises
    ------
    ValueError
        If there are no draws, if `model` is another one, or if the function returns another shape,
        or what is no real number, or mixes draws.
    KeyError
        If the function asks for a variable that does not exist.

    Notes
    -----
    It warns as ``pk.summary`` does. See docs/estimates.md.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.SurrogateMetropolis())
    >>> answer = pk.expectation(dt, lambda v: v["a"] > v["b"])  # a probability
    """
    dt = opened(dt, model)
    draws = Draws(dt, model)
    if not callable(function):
        names = list(draws.posterior)
        name = function if function in names else names[0]
        raise ValueError(
            f"function must be one of the variables, as lambda v: v[{name!r}], not {function!r}."
        )
    f, used = draws.evaluated(function)
    say_if_not_finite("The function", f)
    values, shape = f.reshape(*f.shape[:2], -1), f.shape[2:]

    def at(x):
        return draws.at(x, function, used).reshape(len(x), -1)

    is_known = draws.can_correct(used) == used and draws.is_of_each_draw(values, at)
    found, r_hat, are_enough = _averaged(draws, values, at if is_known else None)
    names = elements("the function", shape)
    warn_of_few_events(names, values, are_enough)
    sd = np.fmax(values.std(axis=(0, 1)), found.mcse * found.ess**0.5)  # of few draws it is less
    sd[np.ptp(values, axis=(0, 1)) == 0] = 0  # it is 1e-17 of rounding
    warn_of_high_errors(names, sd, found.mcse, draws)
    if draws.should_be_corrected:
        warn_of(dt, names, values, r_hat, draws)
    return Expectation(*(part.reshape(shape)[()] for part in found))


def _averaged(draws, values, function):
    """Return the Expectation of q functions, R-hat, and which are approximate."""
    with np.errstate(divide="ignore", invalid="ignore"):  # of what does not vary
        mcse, ess = (
            np.where(np.ptp(values, axis=(0, 1)) > 0, of(values, 0, 1, method="mean"), np.nan)
            for of in (array_stats.mcse, array_stats.ess)
        )
        r_hat = array_stats.rhat(values, chain_axis=0, draw_axis=1)
    found = Expectation(values.mean(axis=(0, 1)), mcse, np.ones(values.shape[2]), ess)
    plain = found, r_hat, np.zeros(values.shape[2], bool)
    if not np.isfinite(values).all() or (better := draws.corrected(values, function)) is None:
        return plain
    with np.errstate(divide="ignore", invalid="ignore"):
        ess = values.var(axis=(0, 1)) / better.mcse**2
        ess = np.where(better.is_approximate, (better.sd / better.mcse) ** 2, ess)
    pairs = zip((better.mean, better.mcse, better.gain, ess), found, strict=True)
    found = Expectation(*(np.where(better.is_better, new, old) for new, old in pairs))
    own = batches.r_hat(better.halves, values)
    own = np.where(better.is_approximate, np.nan, own)  # which no chain tells
    r_hat = np.where(better.is_better, own, r_hat)
    return found, r_hat, better.is_approximate
