"""Signs in the draws of a run that there was nothing to learn, or that there is no posterior.

Symbols: x draws (chains, draws, d), prior those of the prior (n, d).
"""

import time

import numpy as np
import pymc as pm
from arviz_stats.base import array_stats
from pytensor.compile import Mode
from scipy.stats import norm

from pymc_kameleon.core.compiler import one_thread_compiles
from pymc_kameleon.model.black_boxes import black_boxes
from pymc_kameleon.model.starts import N_PRIOR

MOST_SECONDS = 1.0
"""How long draws of the prior may take: rejection in Python may take a minute."""

MOST_SHIFT, LEAST_SPREAD, LEAST_ESS = 0.5, 0.8, 60
"""Mean and standard deviation of normal scores by which draws hardly differ from those of the
prior: a datum as wide as the prior makes the spread 0.7; and effective draws of which fewer do not
tell."""

ROUNDED = 1e3 * np.finfo(float).eps
"""A scale over its prior's median, below which rounding decides on a fit."""

NOT_FELT = (
    "The draws of each parameter hardly differ from draws of its prior. So the data say little of "
    "each alone, or no evaluation came to where they are felt, as in a narrow posterior. Compare "
    "what the model predicts with the data. If that is far off, start where the data point to "
    "(initvals), or narrow the prior."
)
NO_BOUND = (
    "{name} is {value:.3g}, where only rounding is left of the misfit: the density may have no "
    "bound there. If the model fits data exactly, there is no posterior: give the noise a prior "
    "that keeps it from 0."
)


def doubts(posterior, model):
    """Return what the draws of a model's variables make doubtful, a list of texts."""
    names = [rv.name for rv in model.free_RVs if rv.name in posterior]
    if len(names) < len(model.free_RVs) or (prior := _prior_of(model)) is None:
        return []
    draws = [posterior[name].transpose("chain", "draw", ...).values for name in names]
    draws = [own.reshape(*own.shape[:2], -1) for own in draws]
    x, of = np.concatenate(draws, axis=2), np.repeat(names, [own.shape[2] for own in draws])
    has_data = model.observed_RVs or model.potentials
    said = [NOT_FELT] if has_data and are_like_prior(x, prior) else []
    small = np.flatnonzero(are_rounded(x, prior))[:1]
    return said + [NO_BOUND.format(name=of[k], value=np.median(x[..., k])) for k in small]


def _prior_of(model):
    """Return draws of the prior (n, d) on the natural scale; None where there are none, or few."""
    if any(black_boxes([rv]) for rv in model.free_RVs):
        return None
    end, found = time.perf_counter() + MOST_SECONDS, []
    try:
        with one_thread_compiles:
            mode = Mode("py", None)
            draw = pm.compile([], model.free_RVs, mode=mode, random_seed=0)
        while len(found) < N_PRIOR and time.perf_counter() < end:
            found.append(np.concatenate([np.ravel(own) for own in draw()]))
    except Exception:  # there is no prior, as of pm.Flat, or it cannot be drawn in all of its tails
        return None
    return np.array(found) if len(found) == N_PRIOR else None


def are_like_prior(x, prior):
    """Whether enough draws hardly differ from those of the prior, in all coordinates.

    Both are compared by normal scores, which have the mean 0 and the variance 1 over the prior.
    """
    n = len(prior)
    for own, of_prior in zip(np.moveaxis(x, 2, 0), np.sort(prior, axis=0).T, strict=True):
        below = np.searchsorted(of_prior, own, "left") + np.searchsorted(of_prior, own, "right")
        score = norm.ppf((below + 1) / (2 * n + 2))
        ess = array_stats.ess(score, chain_axis=0, draw_axis=1, method="mean")
        is_like = abs(score.mean()) < MOST_SHIFT and score.std() > LEAST_SPREAD
        if not (min(ess, own.size) > LEAST_ESS and is_like):
            return False
    return True


def are_rounded(x, prior):
    """Whether positive variables are so small that rounding decides on a fit, (d,)."""
    is_small = np.median(x, axis=(0, 1)) < ROUNDED * np.median(prior, axis=0)
    return is_small & (prior.min(axis=0) > 0) & (x.min(axis=(0, 1)) >= 0)
