"""``pk.expectation``: averages over the posterior, corrected where possible."""

from typing import NamedTuple

import numpy as np
from arviz_stats.base import array_stats

from pymc_kameleon.analysis.batches import LEAST_DRAWS, Corrected
from pymc_kameleon.analysis.batches import r_hat as r_hat_of
from pymc_kameleon.analysis.corrections import WIDER
from pymc_kameleon.analysis.draws_of_result import Draws, not_finite
from pymc_kameleon.analysis.trust import few_events, high_errors, signs
from pymc_kameleon.findings.finding import said
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
    surrogate or the emulator. That takes no evaluation of the log-density, and is asymptotically
    exact however bad these are.
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
    about = not_finite("The function", f)
    values, shape = f.reshape(*f.shape[:2], -1), f.shape[2:]

    def at(x):
        return draws.at(x, function, used).reshape(len(x), -1)

    is_known = draws.can_correct(used) == used and draws.is_of_each_draw(values, at)
    found = averages_of(draws, values, at if is_known else None)
    names = elements("the function", shape)
    about += few_events(names, values, found.is_approximate)
    sd = np.fmax(found.sd, found.mcse * found.ess**0.5)  # of few draws it is less
    about += high_errors(names, np.where(np.ptp(values, axis=(0, 1)) > 0, sd, 0), found.mcse)
    if draws.should_be_corrected:
        about += signs(names, values, found.r_hat, draws)
    said(about + draws.findings)
    return Expectation(*(part.reshape(shape)[()] for part in found[:4]))


class Averages(NamedTuple):
    """Averages of q functions, corrected where that is of use, (q,) each."""

    mean: np.ndarray
    mcse: np.ndarray
    gain: np.ndarray
    ess: np.ndarray
    sd: np.ndarray
    mcse_sd: np.ndarray
    r_hat: np.ndarray  # NaN of what is approximate, which no chain tells
    is_approximate: np.ndarray


def averages_of(draws, values, function):
    """Return Averages of values (chains, draws, q), which a function (n, q) gives elsewhere.

    They are not corrected where draws are farther out than what would correct them knows. R-hat is
    the larger one of draws and corrected halves of chains, or that of the halves if draws are few:
    what corrects averages does not mend chains that have missed a part.
    """
    axes, centre, q = {"chain_axis": 0, "draw_axis": 1}, values.mean(axis=(0, 1)), values.shape[2]
    varies = ~(np.ptp(values, axis=(0, 1)) == 0)  # what is not finite does, too
    with np.errstate(all="ignore"):  # of what does not vary
        mcse, ess, mcse_sd = (
            np.where(varies, of(values, **axes, method=what), np.nan)
            for of, what in (
                (array_stats.mcse, "mean"),
                (array_stats.ess, "mean"),
                (array_stats.mcse, "sd"),
            )
        )
        r_hat = array_stats.rhat(values, **axes)
    sd, none = np.where(varies, values.std(axis=(0, 1)), 0), np.zeros(q, bool)
    plain = Averages(centre, mcse, np.ones(q), ess, sd, mcse_sd, r_hat, none)
    if not (draws.corrections and np.isfinite(values).all()):
        return plain

    def both(x):
        return np.concatenate([x, (x - centre) ** 2], axis=-1)

    at = None if function is None else lambda x: both(function(x))
    if (found := draws.corrected(both(values), at)) is None:
        return plain
    mean, square = (
        Corrected(*(own[..., part] if np.ndim(own) else own for own in found))
        for part in (slice(q), slice(q, 2 * q))
    )
    with np.errstate(all="ignore"):
        new = np.where(mean.is_better, mean.mean, centre)
        variance = square.mean - (new - centre) ** 2
        fine = square.is_better & (variance > 0) & varies
        own_sd = np.where(fine, np.sqrt(variance), sd)
        mcse_sd = np.where(fine, square.mcse / own_sd / 2, mcse_sd)
        is_better = mean.is_better & varies & ~(sd > WIDER * own_sd)
        scale = np.where(mean.is_approximate, mean.sd, sd)
        of_halves = r_hat_of(mean.halves, values)
        of_draws = r_hat if values.shape[1] >= LEAST_DRAWS else np.nan
        own = Averages(
            mean.mean,
            mean.mcse,
            mean.gain,
            (scale / mean.mcse) ** 2,
            own_sd,
            mcse_sd,
            np.where(mean.is_approximate, np.nan, np.fmax(of_halves, of_draws)),
            np.broadcast_to(mean.is_approximate, q),
        )
    return Averages(*(np.where(is_better, a, b) for a, b in zip(own, plain, strict=True)))
