"""Signs in the draws of a run: nothing to learn, no posterior, or a mode that they lack.

Symbols: x draws (chains, draws, d), prior those of the prior (n, d).
"""

import time

import numpy as np
import pymc as pm
from arviz_stats.base import array_stats
from pytensor.compile import Mode
from scipy.stats import norm

from pymc_kameleon.analysis.unconstrained_draws import (
    NotMapped,
    on_unconstrained_scale,
    variables_lacking,
)
from pymc_kameleon.approximation.modes import felt
from pymc_kameleon.core.compiler import one_thread_compiles
from pymc_kameleon.core.conventions import EPS, FEW
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.model.black_boxes import black_boxes
from pymc_kameleon.model.starts import N_PRIOR
from pymc_kameleon.step.groups import LEARNED_GROUP
from pymc_kameleon.step.learned import COORDINATE, OTHER_MODE

MOST_SECONDS = 1.0
"""How long draws of the prior may take: rejection in Python may take a minute."""

MOST_SHIFT, LEAST_SPREAD, LEAST_ESS = 0.5, 0.8, FEW
"""Mean and standard deviation of normal scores by which draws hardly differ from those of the
prior: a datum as wide as the prior makes the spread 0.7; and effective draws of which fewer do not
tell."""

ROUNDED = 1e3 * EPS
"""A scale over its prior's median, below which rounding decides on a fit."""

FELT = 0.1
"""Part of the variance from which a mode is felt: standard deviations are 5 % more with it."""


def doubts(dt, model):
    """Return what the draws of a run of `pk.sample` make doubtful: Findings."""
    posterior = dt["posterior"].to_dataset()
    return [*_doubts_of_prior(posterior, model), *_doubts_of_search(dt, posterior, model)]


def _doubts_of_prior(posterior, model):
    names = [rv.name for rv in model.free_RVs if rv.name in posterior]
    if len(names) < len(model.free_RVs) or (prior := _prior_of(model)) is None:
        return []
    draws = [posterior[name].transpose("chain", "draw", ...).values for name in names]
    draws = [own.reshape(*own.shape[:2], -1) for own in draws]
    x, of = np.concatenate(draws, axis=2), np.repeat(names, [own.shape[2] for own in draws])
    has_data = model.observed_RVs or model.potentials
    found = [finding("not_felt")] if has_data and are_like_prior(x, prior) else []
    small = np.flatnonzero(are_rounded(x, prior))[:1]
    return found + [finding("no_bound", name=of[k], value=np.median(x[..., k])) for k in small]


def _doubts_of_search(dt, posterior, model):
    """Tell of a mode that was found, and where no draw is: of that which is felt most."""
    learned = dt[LEARNED_GROUP] if LEARNED_GROUP in dt.children else {}
    if OTHER_MODE not in learned or variables_lacking(posterior, model):
        return []
    try:
        x, layout, _ = on_unconstrained_scale(posterior, model)
    except NotMapped:
        return []
    x = x.reshape(-1, x.shape[-1])
    places = learned[OTHER_MODE].sel({COORDINATE: layout.coordinates()}).values
    masses = np.nan_to_num(learned[f"{OTHER_MODE}_mass"].values)  # of chains that found none
    ways = [way_to(place, x) for place in places]
    lacking = [(felt(mass, far), mass, far) for mass, far in zip(masses, ways, strict=True)]
    grows, mass, far = max(lacking)
    if not grows > FELT:
        return []
    share, factor = 100 * mass / (1 + mass), np.sqrt(1 + grows)
    return [finding("other_mode", share=share, distance=far, factor=factor)]


def way_to(place, x):
    """Return how far a place (d,) is from the mean of draws (n, d), along the farthest coordinate.

    In their standard deviations. It is 0 if any draw is nearer to the place than to the mean, or
    nothing is known of it.
    """
    mean, sd = x.mean(axis=0), x.std(axis=0)
    moves = sd > 0
    way, x = ((own - mean)[..., moves] / sd[moves] for own in (place, x))
    is_visited = not np.max(x @ way) < way @ way / 2
    return 0.0 if is_visited else np.abs(way).max()


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
        ess = min(array_stats.ess(score, chain_axis=0, draw_axis=1, method="mean"), own.size)
        if not ess > LEAST_ESS:
            return False
        shift = abs(score.mean()) - ess**-0.5  # at least, as far as so few draws tell
        spread = score.std() * (1 + (2 * ess) ** -0.5)  # at most
        if not (shift < MOST_SHIFT and spread > LEAST_SPREAD):
            return False
    return True


def are_rounded(x, prior):
    """Whether positive variables are so small that rounding decides on a fit, (d,)."""
    is_small = np.median(x, axis=(0, 1)) < ROUNDED * np.median(prior, axis=0)
    return is_small & (prior.min(axis=0) > 0) & (x.min(axis=(0, 1)) >= 0)
