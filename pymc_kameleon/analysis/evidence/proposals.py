"""Normalised densities near a posterior: surrogates, with their constants.

Symbols: s a surrogate, not normalised, Z_s its integral, and ρ a reference, which is a mixture of t
densities. Z_s is the mean of s/ρ over points of ρ, which takes no evaluation of the log-density.
"""

import numpy as np
from scipy.special import logsumexp

from pymc_kameleon.analysis.evidence.reference import reference_of, t_density
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.archive import cholesky, whitened, worth_fitting
from pymc_kameleon.samplers.surrogate.density import Surrogate
from pymc_kameleon.samplers.surrogate.effort import EXPENSIVE
from pymc_kameleon.samplers.surrogate.emulator import POINTS_AT_A_TIME
from pymc_kameleon.samplers.surrogate.learning import linear_algebra
from pymc_kameleon.samplers.surrogate.moves import SETS, new_ends
from pymc_kameleon.samplers.surrogate.proposal import Parameters

FIRST_POINTS, MOST_POINTS, GOOD_ERROR = 128, 2048, 2e-3
"""Points of each set, and t density, by which Z_s is found, to begin with and at most, until the
error of its logarithm is this."""

SHARES = 0.1, 0.2, 0.4, 0.6, 0.8, 0.9
"""Shares of a cover in a proposal, which covers what the surrogate takes for less than it is."""

NU, N_INNER = 8.0, 32
"""ν of t, and steps of the chain that makes draws, of a surrogate that is fitted here."""

LEAST_OF_MODE = 30, 3
"""Different draws of a mode that has a surrogate of its own, at least, and times d."""

MOST_DROP = 15, 3
"""How far below what is typical a log-density is as good as 0 for a fit, and times d."""


class Component:
    """A normalised surrogate with some of a cover, a density that is known.

    Parameters
    ----------
    parameters : Parameters
        With the surrogate.
    cover, reference : Reference
        What the surrogate may take for less than it is, and what it is integrated by. Draws that
        are bridged may have made the reference, but neither the cover nor the surrogate.
    x, f : (n, d) and (n,) float64
        The points and values that it was fitted to.
    rng : numpy.random.Generator
    share : float, optional
        Of the cover.
    """

    def __init__(self, parameters, cover, reference, x, f, rng, share=SHARES[0]):
        self.parameters, self.cover, self.share = parameters, cover, share
        self._reference, self._x, self._f, self._rng = reference, x, f, rng
        self._points, self._logs, n = [], [], FIRST_POINTS
        while not self._points or (self.error > GOOD_ERROR and n <= MOST_POINTS):
            points = reference.even(n, first=not self._points)
            flat = points.reshape(-1, points.shape[2])
            logs = self._log_s(flat) - reference.log_density(flat)
            self._points.append(points)
            self._logs.append(logs.reshape(points.shape[:2]))
            self._integrate()
            n = 2 * n if len(self._points) > 1 else n

    def _integrate(self):
        """Set log Z_s and its error."""
        logs = np.concatenate(self._logs, axis=1)
        sets = logsumexp(logs, axis=1) - np.log(logs.shape[1])
        self.log_z = logsumexp(sets) - np.log(SETS)
        self.error = np.exp(sets - self.log_z).std(ddof=1) / np.sqrt(SETS)

    def _log_s(self, x):
        """Return log s at points (n, d)."""
        p, found = self.parameters, np.empty(len(x))
        for start in range(0, len(x), POINTS_AT_A_TIME):
            part = slice(start, start + POINTS_AT_A_TIME)
            u = whitened(x[part], p.mean, np.tril(p.factor))
            found[part] = fit.values(p.surrogate, u)
        return found

    def _logs_of_parts(self, x):
        """Return log-densities of the surrogate and of the cover at points (n, d), (2, n)."""
        return np.array([self._log_s(x) - self.log_z, self.cover.log_density(x)])

    def log_density(self, x):
        """Return the log-density at points (n, d)."""
        return _mixed(self._logs_of_parts(x), self.share)

    def draws(self, n):
        """Return n draws (n, d): of the cover, and of s, by weighted points and inner chains."""
        rng, d = self._rng, self.parameters.mean.size
        n_cover = rng.binomial(n, self.share)
        points = np.concatenate(self._points, axis=1).reshape(-1, d)
        logs = np.concatenate(self._logs, axis=1).ravel()
        weights = np.exp(logs - logs.max())
        chosen = rng.choice(len(points), n - n_cover, p=weights / weights.sum())
        ends = new_ends(self.parameters, points[chosen], rng)
        return np.concatenate([self.cover.draws(n_cover), ends])

    def refitted(self, x, f, w):
        """Return a Component that has learned from points, which have importance weights w."""
        parts = self._logs_of_parts(x)
        share = max(SHARES, key=lambda share: w @ _mixed(parts, share))
        x, f = np.concatenate([self._x, x]), np.concatenate([self._f, f])
        p = self.parameters
        surrogate = _surrogate(x, f, p.mean, np.tril(p.factor), p.surrogate.nu[0], self._rng)
        if surrogate is not None:
            p = p._replace(surrogate=surrogate)
        return Component(p, self.cover, self._reference, x, f, self._rng, share)


def _mixed(parts, share):
    return np.logaddexp(np.log1p(-share) + parts[0], np.log(share) + parts[1])


class Proposal:
    """A mixture of components with these shares."""

    def __init__(self, components, shares):
        self.components, self._shares = components, np.asarray(shares, np.float64)

    @property
    def error(self):
        """What the logarithm of its constant may be off by."""
        errors = [component.error for component in self.components]
        return float(np.sqrt(np.sum(np.square(self._shares * errors))))

    def log_density(self, x):
        """Return the log-density at points (n, d)."""
        logs = [component.log_density(x) for component in self.components]
        return logsumexp(np.log(self._shares)[:, None] + logs, axis=0)

    def control(self, x):
        """Return what has the mean 0 under it, at points (n, d)."""
        covers = [component.cover.log_density(x) for component in self.components]
        of_covers = logsumexp(np.log(self._shares)[:, None] + covers, axis=0)
        return np.expm1(of_covers - self.log_density(x))

    def draws(self, n, rng):
        """Return n independent draws (n, d)."""
        each = zip(rng.multinomial(n, self._shares), self.components, strict=True)
        return np.concatenate([component.draws(k) for k, component in each])

    def refitted(self, x, f):
        """Return a Proposal that has learned from its draws (n, d), and values (n,), too."""
        log_w = f - self.log_density(x)
        w = np.exp(log_w - log_w.max())
        return Proposal([own.refitted(x, f, w) for own in self.components], self._shares)


def of_surrogates(parameters, draws, rng):
    """Return the Proposal of the frozen surrogates of chains, each as often as chains have it."""
    same = {}
    for own in parameters:
        key = b"".join(part.tobytes() for part in (own.mean, own.factor, *own.surrogate))
        same.setdefault(key, []).append(own)
    components = []
    for own, *_ in same.values():
        t = own.mean, np.tril(own.factor), own.surrogate.nu[0]
        cover, reference = t_density(*t, rng), reference_of(*t, draws, rng)
        components.append(Component(own, cover, reference, *_fitted_to(own), rng))
    return Proposal(components, [len(own) / len(parameters) for own in same.values()])


def _fitted_to(own):
    """Return the centres of a surrogate (n, d), and what it is there."""
    s = own.surrogate
    u = s.centres[:, : s.n[0]].T / s.rates
    return own.mean + u @ np.tril(own.factor).T, fit.values(s, u)


def fitted(x, f, modes, rng):
    """Return a Proposal that is fitted to draws x (n, d), log-densities f (n,) and modes there.

    Draws that are repeated count once. A mode that is too small belongs to the largest one.
    """
    least = LEAST_OF_MODE[0] + LEAST_OF_MODE[1] * x.shape[1]
    x, first = np.unique(x, axis=0, return_index=True)
    f, modes = f[first], modes[first]
    modes = np.where(np.bincount(modes)[modes] < least, 0, modes)
    if len(x) < least:
        raise ValueError(
            f"Half of the draws are at {len(x)} different points, which are too few for the "
            f"evidence: let there be {least} at least."
        )
    numbers, counts = np.unique(modes, return_counts=True)
    own = [modes == number for number in numbers]
    return Proposal([_fitted(x[rows], f[rows], rng) for rows in own], counts / counts.sum())


def _fitted(x, f, rng):
    """Return a Component that is fitted to draws."""
    mean, factor = x.mean(axis=0), cholesky(np.atleast_2d(np.cov(x.T)))
    surrogate = _surrogate(x, f, mean, factor, NU, rng)
    if surrogate is None:
        raise ValueError("No surrogate can be fitted to these draws: do they hardly differ?")
    sizes = {"d": x.shape[1], "m": surrogate.weights.size}
    parameters = allocate(
        Parameters,
        sizes,
        mean=mean,
        factor=factor,
        angle=[np.pi / 2],
        reference_share=[0.5],
        n_inner=[N_INNER],
        surrogate=surrogate,
    )
    cover = reference_of(mean, factor, NU, x, rng)
    return Component(parameters, cover, cover, x, f, rng)


def _surrogate(x, f, mean, factor, nu, rng):
    """Return a Surrogate that is fitted to points, None if rounding forbids it.

    Values that are very low are raised: that they are low is all that counts.
    """
    d, u = x.shape[1], whitened(x, mean, factor)
    effort, level = EXPENSIVE.in_dimensions(d), np.median(f)
    f = np.fmax(f, level - MOST_DROP[0] - MOST_DROP[1] * d + 1)
    rows = rng.permutation(worth_fitting(u, f - level, effort.n_centres, rng))
    surrogate = allocate(Surrogate, {"d": d, "m": len(rows)})
    scored, hyper = np.ones(len(rows), bool), fit.Hyper.start(d)
    with linear_algebra().limit(limits=1), np.errstate(all="ignore"):
        error = fit.fit(surrogate, u[rows], f[rows], scored, hyper, nu, effort, level)[1]
    return surrogate if error < np.inf else None
