"""Bridge sampling: the ratio of two normalising constants, from draws of both distributions.

Symbols: p the distribution whose constant is sought, f = Z·p what is known of it, g a proposal that
is normalised; s₁ and s₂ the shares of draws of p, which are worth fewer independent ones, and of g.
docs/evidence_methods.md has the equation, whose sides are both the overlap.

Sources: Meng & Wong, "Simulating ratios of normalizing constants via a simple identity", Statistica
Sinica 6 (1996); Frühwirth-Schnatter, "Estimating marginal likelihoods for mixture and Markov
switching models using bridge sampling techniques", Econometrics Journal 7 (2004).
"""

from typing import NamedTuple

import numpy as np
from arviz_stats.base import array_stats
from scipy.optimize import brentq
from scipy.special import expit, logsumexp

from pymc_kameleon.core.conventions import EPS, TINY

ROUNDS = 3
"""How often two things are found that depend on each other, as shares and what draws are worth."""

UNSEEN = 0.5
"""Of new draws, so many count as such that were where p is not, besides those that were."""

EDGE = 0.1
"""Least share of a part of a mixture. With a smaller one single draws would decide."""


class Estimate(NamedTuple):
    """What a bridge has found, or several."""

    log_z: float
    standard_error: float
    overlap: float
    ess: float  # independent draws that those of p are worth
    contradiction: float = 0.0  # of draws and new draws, in standard errors


def bridge(at_p, at_g, control):
    """Return the Estimate by a bridge to p from g.

    `at_p` (chains, draws) and `at_g` (n,) are log f/g at their draws; `control` (n,) has the mean 0
    under g.
    """
    ess, n, b, centred = float(at_p.size), len(at_g), 0.0, control - control.mean()
    if not np.isfinite(at_g).any():
        return Estimate(np.nan, np.inf, 0.0, 0.0)
    for _ in range(ROUNDS):
        share = ess / (ess + n)
        log_z = _solved(at_p, at_g, share, b * control)
        of_p, of_g = _terms(at_p - log_z, at_g - log_z, share)
        b = centred @ of_g / max(centred @ centred, TINY)
        of_g = of_g - b * control
        variance, ess = _variance_and_ess(of_p)
    overlap = of_g.mean()
    unseen = UNSEEN / n
    with np.errstate(divide="ignore", invalid="ignore"):
        of_new = of_g.var(ddof=1) / n / overlap**2 + unseen**2
        error = np.sqrt(variance / of_p.mean() ** 2 + of_new)
    return Estimate(float(log_z), float(error), float(min(overlap, 1)), ess)


def contradiction(at_p, at_g):
    """Return by how much log Z differs between unequal shares of draws, and the error of that."""
    if not np.isfinite(at_g).any():
        return 0.0, 1.0
    log_z, of_p, of_g = [], [], []
    for share in (EDGE, 1 - EDGE):
        log_z.append(_solved(at_p, at_g, share, 0.0))
        terms = _terms(at_p - log_z[-1], at_g - log_z[-1], share)
        for all_of, own in zip((of_p, of_g), terms, strict=True):
            all_of.append(own / own.mean())  # what draws add to log Z
    differences = of_p[1] - of_p[0], of_g[1] - of_g[0]
    variance = _variance_and_ess(differences[0])[0] + differences[1].var() / len(at_g)
    return float(log_z[1] - log_z[0]), float(np.sqrt(max(variance, EPS)))


def _terms(at_p, at_g, share):
    """Return g/(s₁p + s₂g) at draws of p, and p/(s₁p + s₂g) at those of g, of log p/g there."""
    odds = np.log(share / (1 - share))
    return expit(-at_p - odds) / (1 - share), expit(at_g + odds) / share


def _solved(at_p, at_g, share, known):
    """Return the log Z at which both means are equal."""

    def difference(log_z):
        of_p, of_g = _terms(at_p - log_z, at_g - log_z, share)
        return np.log(of_p.mean()) - np.log(max((of_g - known).mean(), 1e-300))

    low = -logsumexp(-at_p.ravel()) + np.log(at_p.size)
    high = logsumexp(at_g) - np.log(len(at_g))
    low, high = min(low, high) - 1, max(low, high) + 1
    while difference(low) > 0:
        low -= high - low
    while difference(high) < 0:
        high += high - low
    return brentq(difference, low, high, xtol=1e-10)


def _variance_and_ess(values):
    """Return the variance of the mean of values (chains, draws), and what these are worth."""
    if np.ptp(values) == 0:
        return 0.0, float(values.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        ess = array_stats.ess(values, chain_axis=0, draw_axis=1, method="mean")
    ess = np.clip(np.nan_to_num(ess, nan=1.0), 1.0, values.size)
    between = values.mean(axis=1).var(ddof=1) / len(values) if len(values) > 1 else 0.0
    variance = max(values.var() / ess, between)
    return variance, float(values.var() / variance)
