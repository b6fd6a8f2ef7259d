"""Signs that averages, or their standard errors, are not to be trusted: Findings."""

from contextlib import suppress
from math import ceil

import numpy as np
from arviz_stats.base import array_stats

from pymc_kameleon.analysis.batches import LEAST_DRAWS
from pymc_kameleon.analysis.limits_of_r_hat import LEAST_ESS, high_r_hats
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.findings.words import grouped, some

POOR_SHARE, LONG_TAIL = 0.3, 0.5
"""Share of effective weights, and Pareto k of the draws, beyond which errors are not to be trusted:
with a larger k the variance is infinite."""

HIGH_ERROR = LEAST_ESS**-0.5
"""Standard error, in standard deviations, above which a mean or a standard deviation is said to be
imprecise: that of the mean of so many independent draws."""

FEW_EVENTS = 20
"""Independent events from which the standard error of their frequency is to be trusted."""

DISAGREE = 1.1
"""R-hat from which chains disagree [Gelman & Rubin, Statistical Science 7 (1992)]."""


def few_events(names, values, are_enough):
    """Tell of averages on which a few draws decide, as of probabilities of what is rare."""
    events = independent_events(values)
    few = np.flatnonzero((events < FEW_EVENTS) & ~are_enough)
    if few.size == 0:
        return []
    few = few[np.argsort(events[few], kind="stable")]
    least = max(1.0, events[few[0]])
    return [
        finding(
            "rare_events",
            names=some([names[i] for i in few]),
            events=least,
            error=100 * least**-0.5,
            times=ceil(FEW_EVENTS / least),
        )
    ]


def high_errors(names, sd, mcse):
    """Tell of averages, of these sd and errors (q,), whose errors are large, or not known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.where(sd > 0, mcse / sd, 0)
    high, unknown = np.flatnonzero(errors > HIGH_ERROR), np.isnan(errors)
    if high.size == 0:
        return [finding("unknown_errors", name=names[unknown.argmax()])] if unknown.any() else []
    high = high[np.argsort(-errors[high], kind="stable")]
    times, listed = ceil((errors[high[0]] / HIGH_ERROR) ** 2), some([names[i] for i in high])
    return [finding("imprecise", names=listed, error=errors[high[0]], times=times)]


def independent_events(values):
    """Return how many independent draws are unlike most others, (q,); inf if most have no value."""
    events, size = np.full(values.shape[2], np.inf), values[..., 0].size
    rare = values != np.median(values, axis=(0, 1))  # which is the value of most, if they have one
    number = rare.sum(axis=(0, 1))
    own = np.flatnonzero((number > 0) & (number < size / 2))
    rare = rare[..., own]
    ess = array_stats.ess(rare.astype(np.float64), chain_axis=0, draw_axis=1, method="mean")
    events[own] = number[own] * np.fmin(1, ess / size)
    return events


def signs(names, values, r_hat, draws):
    """Tell of R-hats (q,), tails and approximations by which errors of averages are doubtful.

    They are of quantities with these `names` and values (chains, draws, q), of some Draws.
    """
    high = high_r_hats(values, r_hat)
    found = high_r_hat(names, r_hat, high) + poor_approximations(draws.corrections)
    return found + long_tails(names, values)


def high_r_hat(names, r_hat, are_high):
    """Tell of the largest R-hat (q,) of those that are high."""
    if not are_high.any():
        return []
    worst = np.nanargmax(np.where(are_high, r_hat, -np.inf))
    code = "chains_disagree" if r_hat[worst] > DISAGREE else "r_hat"
    return [finding(code, name=names[worst], r_hat=r_hat[worst])]


def slow_chains(names, values):
    """Tell of the least bulk ESS of values (chains, draws, q), if chains move slowly.

    That is if it is less than 100 for each chain, with which R-hat and errors are to be trusted
    [Vehtari et al., Bayesian Analysis 16 (2021)], and less than half of the draws: few draws alone
    are no sign of that.
    """
    with np.errstate(all="ignore"):  # of what does not vary
        ess = array_stats.ess(values, chain_axis=0, draw_axis=1, method="bulk")
    ess[np.ptp(values, axis=(0, 1)) == 0] = np.inf
    draws, worst = values[..., 0].size, np.nan_to_num(ess, nan=np.inf).argmin()
    if not ess[worst] < min(LEAST_ESS * len(values), draws / 2):
        return []
    return [finding("slow_chains", name=names[worst], ess=ess[worst], draws=grouped(draws))]


def poor_approximations(corrections):
    """Tell of approximations by which averages are corrected, and that are poor."""
    return [
        finding(
            "poor_approximation",
            approximation=by.removeprefix("by_"),
            share=one.ess_share,
        )
        for by, one in corrections.items()
        if one.ess_share is not None and one.ess_share < POOR_SHARE
    ]


def long_tails(names, values):
    """Tell of the longest tail of values (chains, draws, q), if they may have no variance."""
    k = pareto_k(values)
    if not (k > LONG_TAIL).any():
        return []
    return [finding("long_tail", name=names[k.argmax()], k=k.max())]


def pareto_k(values):
    """Return k of the longer tail of values (chains, draws, q), (q,); -inf if none is fitted."""
    found = np.full(values.shape[2], -np.inf)
    if values[..., 0].size < LEAST_DRAWS:
        return found
    for j in np.flatnonzero(np.isfinite(values).all(axis=(0, 1))):
        for tail in ("left", "right"):
            with suppress(ValueError), np.errstate(all="ignore"):  # if all in it are equal
                k = array_stats.pareto_khat(
                    values[..., j], chain_axis=0, draw_axis=1, r_eff=1.0, tail=tail
                )
                found[j] = np.fmax(found[j], k)
    return found
