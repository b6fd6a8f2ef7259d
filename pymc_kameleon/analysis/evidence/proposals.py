"""Normalised densities near a posterior: surrogates, with their constants.

A mode of draws has a surrogate in coordinates in which it is nearly normal. Surrogates of
SurrogateMetropolis have the model's coordinates.

Symbols: u these coordinates of points x; ρ a reference, which is a mixture of t densities; s a
surrogate; Z_s its integral, the mean of the weights s/ρ over n points of ρ. Weights count up to √n
times their mean [I], as s may be high where ρ has no point. Draws of s are those of ρ that are
accepted by their weights.

Source: Ionides, "Truncated importance sampling", Journal of Computational and Graphical Statistics
17 (2008), here [I].
"""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from pymc_kameleon.analysis.evidence.bridge import EDGE, ROUNDS
from pymc_kameleon.analysis.evidence.reference import N_SEEN, Reference, reference_of
from pymc_kameleon.analysis.evidence.warp import Unwarped, Warp, Warped
from pymc_kameleon.analysis.surrogate_correction import FEW_POINTS
from pymc_kameleon.approximation.drops import NEGLIGIBLE, drop
from pymc_kameleon.approximation.linalg import cholesky, linear_algebra, whitened
from pymc_kameleon.approximation.records import evenly
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.core.conventions import FEW, NUMBERS_PER_PART
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.density import Surrogate
from pymc_kameleon.samplers.surrogate.inner_chain import Parameters
from pymc_kameleon.samplers.surrogate.learning import worth_fitting
from pymc_kameleon.samplers.surrogate.moves import SETS, new_ends, same_surrogates

MOST_POINTS, GOOD_ERROR, LARGEST_ERROR = 2048, 2e-3, 0.02
"""Points of each set, and t density, by which Z_s is found, at most, until the error of its
logarithm is this. A surrogate whose Z_s is not known to two per cent is not used."""

NU = 8.0
"""ν of t, of a surrogate that is fitted here."""

DRAWS_PER_COORDINATE = 3
"""Different draws, besides few, of a mode that has a surrogate of its own, at least, times d."""


class Component:
    """A normalised surrogate, in `parameters`, with some of a cover, a density that is known.

    In the coordinates of `warp` are the `draws` (m, d), not those that are bridged, and the points
    `u` (n, d), with log-densities `f`, that it was fitted to.
    """

    def __init__(self, warp, parameters, cover, draws, u, f, rng, share=EDGE):
        self.parameters, self._warp, self.cover = parameters, warp, cover
        self._seen, self._u, self._f, self._rng = draws, u, f, rng
        mean, factor, nu = parameters.mean, np.tril(parameters.factor), parameters.surrogate.nu[0]
        self._reference = reference_of(mean, factor, nu, draws, rng)
        self._integrate()
        self.share = share
        if self.error > LARGEST_ERROR:
            self.share, self.error = 1.0, 0.0

    def _integrate(self):
        """Set log Z_s, its error, and the bound of weights, by points of the reference."""
        n, logs, self.error = FEW_POINTS, np.empty((SETS, 0)), np.inf
        while self.error > GOOD_ERROR and n <= MOST_POINTS:
            points = self._reference.even(n, first=not logs.size)
            n = 2 * n if logs.size else n
            flat = points.reshape(-1, points.shape[2])
            more = self._log_fit(flat) - self._reference.log_density(flat)
            logs = np.concatenate([logs, more.reshape(SETS, -1)], axis=1)
            self._log_bound = min(logs.max(), logsumexp(logs) - np.log(logs.size) / 2)
            sets = logsumexp(np.minimum(logs, self._log_bound), axis=1) - np.log(logs.shape[1])
            self.log_z = logsumexp(sets) - np.log(SETS)
            self.error = float(np.exp(sets - self.log_z).std(ddof=1) / np.sqrt(SETS))

    def _log_fit(self, u):
        """Return the fitted log-density at points (n, d)."""
        p = self.parameters
        return fit.values(p.surrogate, whitened(u, p.mean, np.tril(p.factor)))

    def _log_weights(self, u, log_reference):
        """Return log s/ρ at points (n, d), of log ρ there."""
        return np.minimum(self._log_fit(u) - log_reference, self._log_bound)

    def _logs_of_parts(self, u):
        """Return log-densities of the surrogate and of the cover at points (n, d), (2, n)."""
        log_reference = self._reference.log_density(u)
        log_s = self._log_weights(u, log_reference) + log_reference
        return np.array([log_s - self.log_z, self.cover.log_density(u)])

    def log_density(self, x):
        """Return the log-density at points (n, d)."""
        u, log_det = self._warp.to(x)
        return _mixed(self._logs_of_parts(u), self.share) + log_det

    def log_density_of_cover(self, x):
        """Return the log-density of the cover at points (n, d)."""
        u, log_det = self._warp.to(x)
        return self.cover.log_density(u) + log_det

    def draws(self, n):
        """Return n independent draws (n, d)."""
        n_cover = self._rng.binomial(n, self.share)
        u = np.concatenate([self.cover.draws(n_cover), self._of_s(n - n_cover)])
        return self._warp.back(u)

    def _of_s(self, n):
        """Return n draws of s (n, d): those of the reference that are accepted by their weights."""
        accepted, share = [self._reference.draws(0)], np.exp(self.log_z - self._log_bound)
        while (left := n - sum(map(len, accepted))) > 0:
            most = NUMBERS_PER_PART // accepted[0].shape[1]
            u = self._reference.draws(min(int(left / share) + 1, most))
            log_uniform = np.log(self._rng.random(len(u)))
            log_weights = self._log_weights(u, self._reference.log_density(u))
            accepted.append(u[log_uniform < log_weights - self._log_bound][:left])
        return np.concatenate(accepted)

    def refitted(self, x, f, w):
        """Return a Component that has learned from points, which have importance weights w."""
        if not w.any():
            return self
        u, log_det = self._warp.to(x)
        parts, f = self._logs_of_parts(u), f - log_det
        within = {"bounds": (EDGE, 1 - EDGE), "method": "bounded"}
        share = minimize_scalar(lambda share: -w @ _mixed(parts, share), **within).x
        resampled = u[self._rng.choice(len(u), N_SEEN, p=w / w.sum())]  # the surrogate may go there
        seen = np.concatenate([evenly(self._seen, N_SEEN), resampled])
        u, f = np.concatenate([self._u, u]), np.concatenate([self._f, f])
        p = self.parameters
        surrogate = _surrogate(u, f, p.mean, np.tril(p.factor), p.surrogate.nu[0], self._rng)
        if surrogate is not None:
            p = p._replace(surrogate=surrogate)
        return Component(self._warp, p, self.cover, seen, u, f, self._rng, share)


def _mixed(parts, share):
    of_s = np.log1p(-share) + parts[0] if share < 1 else -np.inf
    return np.logaddexp(of_s, np.log(share) + parts[1])


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
        return logsumexp(self._logs_of_components(x), axis=0)

    def _logs_of_components(self, x):
        logs = [component.log_density(x) for component in self.components]
        return np.log(self._shares)[:, None] + logs

    def control(self, x):
        """Return what has the mean 0 under it, at points (n, d)."""
        covers = [component.log_density_of_cover(x) for component in self.components]
        of_covers = logsumexp(np.log(self._shares)[:, None] + covers, axis=0)
        return np.expm1(of_covers - self.log_density(x))

    def draws(self, n, rng):
        """Return n independent draws (n, d)."""
        each = zip(rng.multinomial(n, self._shares), self.components, strict=True)
        return np.concatenate([component.draws(k) for k, component in each])

    def refitted(self, x, f):
        """Return a Proposal whose components have learned from the draws most likely their own."""
        logs = self._logs_of_components(x)
        log_w, whose = f - logsumexp(logs, axis=0), logs.argmax(axis=0)
        w = np.exp(log_w - log_w.max())
        components = []
        for k, component in enumerate(self.components):
            own = whose == k
            components.append(component.refitted(x[own], f[own], w[own]))
        return Proposal(components, self._shares)


def of_surrogates(parameters, draws, rng):
    """Return the Proposal of the frozen surrogates of chains, each as often as chains have it."""
    same = same_surrogates(parameters)
    shares = [len(rows) / len(parameters) for rows in same]
    return Proposal([_of_surrogate(parameters[row], draws, rng) for row, *_ in same], shares)


def _of_surrogate(own, draws, rng):
    """Return the Component of a frozen surrogate, by draws of it that chains from draws make."""
    x = draws[rng.integers(len(draws), size=N_SEEN)]
    for _ in range(ROUNDS):
        x = new_ends(own, x, rng)
    one = Reference(np.zeros_like(x[:1]), np.eye(x.shape[1])[None], own.surrogate.nu[0], rng)
    cover = Warped(Warp(x), one)
    s = own.surrogate
    u = s.centres[:, : s.n[0]].T / s.rates  # what it was fitted to
    centres, values = own.mean + u @ np.tril(own.factor).T, fit.values(s, u)
    return Component(Unwarped(), own, cover, x, centres, values, rng)


def fitted(x, f, modes, rng):
    """Return a Proposal that is fitted to draws x (n, d), log-densities f (n,) and modes there."""
    least = FEW + DRAWS_PER_COORDINATE * x.shape[1]
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
    warp = Warp(x)
    u, log_det = warp.to(x)
    f, mean, factor = f - log_det, u.mean(axis=0), cholesky(np.atleast_2d(np.cov(u.T)))
    surrogate = _surrogate(u, f, mean, factor, NU, rng)
    if surrogate is None:
        raise ValueError("No surrogate can be fitted to these draws: do they hardly differ?")
    sizes = {"d": x.shape[1], "m": surrogate.weights.size}
    parameters = allocate(Parameters, sizes, mean=mean, factor=factor, surrogate=surrogate)
    cover = reference_of(mean, factor, NU, u, rng)
    return Component(warp, parameters, cover, u, u, f, rng)


def _surrogate(x, f, mean, factor, nu, rng):
    """Return a Surrogate that is fitted to points, very low values raised; None by rounding."""
    d, u = x.shape[1], whitened(x, mean, factor)
    level = np.median(f)
    f = np.fmax(f, level - drop(d, NEGLIGIBLE) + 1)
    rows = rng.permutation(worth_fitting(u, f - level, fit.N_CENTRES, rng))
    surrogate = allocate(Surrogate, {"d": d, "m": len(rows)})
    scored, hyper = np.ones(len(rows), bool), fit.Hyper.start(d)
    with linear_algebra().limit(limits=1), np.errstate(all="ignore"):
        error = fit.fit(surrogate, u[rows], f[rows], scored, hyper, nu, level)[1]
    return surrogate if error < np.inf else None
