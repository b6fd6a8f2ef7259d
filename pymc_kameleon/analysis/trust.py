"""Signs that the standard errors of averages are not to be trusted."""

import logging
from contextlib import suppress
from math import ceil

import numpy as np
from arviz_stats.base import array_stats

from pymc_kameleon.analysis.batches import LEAST_DRAWS
from pymc_kameleon.analysis.limits_of_r_hat import HIGH_RHAT as CONVERGED
from pymc_kameleon.analysis.limits_of_r_hat import LEAST_ESS, limits_of_r_hat
from pymc_kameleon.result.superchains import HIGH_RHAT
from pymc_kameleon.step.messages import some
from pymc_kameleon.step.monitor import STUCK_SHARE, STUCK_TRANSITIONS, longest_rejection

_log = logging.getLogger("pymc_kameleon")

POOR_SHARE, LONG_TAIL = 0.3, 0.5
"""Share of effective weights, and Pareto k of the draws, beyond which errors are not to be trusted:
with a larger k the variance is infinite."""

HIGH_ERROR = LEAST_ESS**-0.5
"""Standard error, in standard deviations, above which a mean or a standard deviation is told to be
known badly: that of the mean of so many independent draws."""

FEW_EVENTS = 20
"""Independent events from which the standard error of their frequency is to be trusted."""


def warn_of_few_events(names, values, are_enough):
    """Warn of averages on which a few draws decide, as of probabilities of what is rare."""
    events = independent_events(values)
    few = np.flatnonzero((events < FEW_EVENTS) & ~are_enough)
    if few.size == 0:
        return
    few = few[np.argsort(events[few], kind="stable")]
    least = max(1.0, events[few[0]])
    _log.warning(
        "The average of %s rests on few draws: all others are equal, and these amount to about %d "
        "independent ones. So its relative error is %.0f %% or more, and with fewer than %d its "
        "standard error may be far too small. Draw %d times as long, or longer.",
        some([names[i] for i in few]),
        least,
        100 / np.sqrt(least),
        FEW_EVENTS,
        ceil(FEW_EVENTS / least),
    )


def warn_of_high_errors(names, sd, mcse, draws):
    """Warn of averages, of these sd and errors (q,), that are known badly, or not, if NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.nan_to_num(np.where(sd > 0, mcse / sd, 0), nan=np.inf)
    high = np.flatnonzero(errors > HIGH_ERROR)
    if high.size == 0:
        return
    high = high[np.argsort(-errors[high], kind="stable")]
    worst = errors[high[0]]
    largest = f"{worst:.2g} of a standard deviation, and twice that is nothing rare"
    times = f"{ceil((worst / HIGH_ERROR) ** 2)} times as long" if worst < np.inf else "longer"
    _log.warning(
        "Some averages are known badly, as by few draws: %s. The largest standard error is %s. %s.",
        some([names[i] for i in high]),
        largest if worst < np.inf else "unknown",
        "Raise max_evaluations" if draws.of_few_evaluations else f"Draw {times}",
    )


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


def warn_of(dt, names, values, r_hat, draws):
    """Warn of these signs, for q quantities with these `names` and values (chains, draws, q)."""
    reasons, k = [], pareto_k(values)
    if stuck := _longest_rejection(dt):
        reasons.append(f"a chain was stuck for {stuck} draws in a row")
    for by, one in draws.corrections.items():
        if one.certificate is not None and one.certificate.ess_share < POOR_SHARE:
            reasons.append(f"the {by.removeprefix('by_')} is poor ({one.certificate.in_words()})")
    for measured, limit, sign in (
        (r_hat, _limits_of_r_hat(values, r_hat), "R-hat of {} is {:.2f}"),
        (k, LONG_TAIL, "{} has a long tail, and maybe no variance (Pareto k {:.2f})"),
    ):
        if (measured > limit).any():
            worst = np.nanargmax(np.where(measured > limit, measured, -np.inf))
            reasons.append(sign.format(names[worst], measured[worst]))
    if reasons:
        _log.warning(
            "The standard errors may be far too small, and no correction mends chains that are "
            "stuck, or have missed a part of the posterior: %s. Tune and draw longer, or "
            "reparametrise.",
            "; ".join(reasons),
        )


def _limits_of_r_hat(values, r_hat):
    """Return R-hats (q,) that good chains with as many effective draws have, at most 1.05.

    It is 1.05 where there are fewer draws than those from which PyMC checks convergence.
    """
    limits, doubtful = np.full(len(r_hat), HIGH_RHAT), np.flatnonzero(r_hat > CONVERGED)
    if doubtful.size and values.shape[1] >= LEAST_DRAWS:
        of_good = limits_of_r_hat(values[..., doubtful], len(r_hat))
        limits[doubtful] = np.fmin(HIGH_RHAT, of_good)
    return limits


def _longest_rejection(dt):
    """Return the length of the longest run of draws without an accepted proposal, 0 if short."""
    groups = getattr(dt, "children", ())
    if "sample_stats" not in groups or "accept_share" not in dt["sample_stats"]:
        return 0
    accepted = dt["sample_stats"]["accept_share"]
    if set(accepted.dims) != {"chain", "draw"}:
        return 0
    moved = accepted.transpose("chain", "draw").values > 0
    longest = max(longest_rejection(own) for own in moved)
    return longest if longest >= max(STUCK_TRANSITIONS, STUCK_SHARE * moved.shape[1]) else 0


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
