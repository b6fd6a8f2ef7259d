"""Signs in the draws of a run that there was nothing to learn, or that there is no posterior.

Symbols: x draws (chains, draws, d) on the unconstrained scale, prior those of the prior (n, d).
"""

import numpy as np
from arviz_stats.base import array_stats
from scipy.stats import norm

from pymc_kameleon.analysis.unconstrained_draws import (
    NotMapped,
    on_unconstrained_scale,
    variables_lacking,
)
from pymc_kameleon.model.starts import prior_draws

LEAST_P, LEAST_ESS = 0.01, 60
"""Probability of the largest difference from the prior, from which there is none, by convention;
and effective draws, of which fewer do not tell a spread from half of it."""

ROUNDED = np.log(1e3 * np.finfo(float).eps)
"""Logarithm of a scale, less that of its prior's median, below which rounding decides on a fit."""

NOT_FELT = (
    "The draws of no parameter differ from draws of its prior. So the data say next to nothing, or "
    "no evaluation came to where they are felt, as in a narrow posterior. Compare what the model "
    "predicts with the data. If that is far off, start where the data point to (initvals), or "
    "narrow the prior."
)
NO_BOUND = (
    "{name} is {value:.3g}, where only rounding is left of the misfit: the density may have no "
    "bound there. If the model fits data exactly, there is no posterior: give the noise a prior "
    "that keeps it from 0."
)


def doubts(tree, model):
    """Return what the draws of a model's variables make doubtful, a list of texts."""
    posterior = tree["posterior"].to_dataset()
    if variables_lacking(posterior, model):
        return []
    try:
        x, layout, _ = on_unconstrained_scale(posterior, model)
    except NotMapped:
        return []
    if (prior := prior_draws(model, layout)) is None:
        return []
    has_data = model.observed_RVs or model.potentials
    said = [NOT_FELT] if has_data and are_of_prior(x, prior) else []
    names = layout.coordinates()
    small = np.flatnonzero(is_rounded(x, prior, names))[:1]
    return said + [NO_BOUND.format(name=names[k], value=np.median(x[..., k])) for k in small]


def are_of_prior(x, prior):
    """Whether enough draws differ in no coordinate from those of the prior.

    Both are compared by normal scores, which have the mean 0 and the variance 1 over the prior.
    """
    n, d = prior.shape
    for own, of_prior in zip(np.moveaxis(x, 2, 0), np.sort(prior, axis=0).T, strict=True):
        below = np.searchsorted(of_prior, own, "left") + np.searchsorted(of_prior, own, "right")
        score = norm.ppf((below + 1) / (2 * n + 2))
        for value, sd in (score, 1.0), (score**2 - 1, np.sqrt(2)):
            ess = array_stats.ess(value, chain_axis=0, draw_axis=1, method="mean")
            z = value.mean() / (sd * np.sqrt(1 / ess + 1 / n))
            if not (ess > LEAST_ESS and 4 * d * norm.sf(abs(z)) > LEAST_P):
                return False
    return True


def is_rounded(x, prior, names):
    """Whether positive variables are so small that rounding decides on a fit, (d,)."""
    is_log = np.array(["_log__" in name for name in names])
    return is_log & (np.median(x, axis=(0, 1)) < np.median(prior, axis=0) + ROUNDED)
