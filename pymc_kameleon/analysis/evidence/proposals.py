"""Normalised densities near a posterior: surrogates, with their constants.

Symbols: s a surrogate, not normalised, Z_s its integral, and ρ a reference, which is a mixture of t
densities. Z_s is the mean of s/ρ over points of ρ, which takes no evaluation of the log-density.
"""

import numpy as np
from scipy.special import expit, logsumexp

from pymc_kameleon.analysis.evidence.bridge import bridge
from pymc_kameleon.analysis.evidence.reference import reference_of
from pymc_kameleon.analysis.evidence.warp import Warp, WarpedT
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.archive import cholesky, whitened, worth_fitting
from pymc_kameleon.samplers.surrogate.density import Surrogate
from pymc_kameleon.samplers.surrogate.effort import EXPENSIVE
from pymc_kameleon.samplers.surrogate.emulator import POINTS_AT_A_TIME
from pymc_kameleon.samplers.surrogate.evaluations import evenly
from pymc_kameleon.samplers.surrogate.learning import linear_algebra
from pymc_kameleon.samplers.surrogate.moves import SETS, new_ends
from pymc_kameleon.samplers.surrogate.proposal import Parameters

FIRST_POINTS, MOST_POINTS, GOOD_ERROR = 128, 2048, 2e-3
"""Points of each set, and t density, by which Z_s is found, to begin with and at most, until the
error of its logarithm is this."""

N_PROBES, PROBE_RUNS, MOST_REFERENCES, GOOD_DOUBT = 200, 4, 3, 0.02
"""Draws of s that look for where ρ is not, inner chains of each; how often there is another ρ, at
most, which is made of these, too; and by how much log Z_s may be in doubt without one."""

N_WARPED, COVERED = 600, 0.5
"""Draws of s that make a cover, and its share if it is s."""

SEEN = 400
"""Draws that make a reference if a proposal has learned: of those it has, and of new points."""

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
    cover : Reference, WarpedT or None
        It covers what the surrogate may take for less than it is. By default draws of s make it.
    draws : (m, d) float64
        Of the posterior, by which the reference is made. Those that are bridged may be among them,
        but may have made neither the cover nor the surrogate.
    x, f : (n, d) and (n,) float64
        The points and values that it was fitted to.
    rng : numpy.random.Generator
    share : float, optional
        Of the cover.
    """

    def __init__(self, parameters, cover, draws, x, f, rng, share=SHARES[0]):
        self.parameters, self.cover, self.share = parameters, cover, share
        self._seen, self._x, self._f, self._rng = draws, x, f, rng
        p = parameters
        for _ in range(MOST_REFERENCES):
            args = p.mean, np.tril(p.factor), p.surrogate.nu[0], draws, rng
            self._integrate(reference_of(*args))
            ends = self._of_s(N_PROBES, PROBE_RUNS)
            doubt = self._doubt(ends)
            if doubt < GOOD_DOUBT:
                break
            draws = np.concatenate([evenly(self._seen, N_PROBES), ends])
        self.error = float(np.hypot(self.error, doubt))
        if cover is None:
            self._cover_tails(p.surrogate.nu[0])

    def _cover_tails(self, nu):
        """Make a cover of draws of s, and give it a share by its overlap with s."""
        x = self._of_s(N_WARPED, PROBE_RUNS)
        self.cover = WarpedT(Warp(x), x.shape[1], nu, self._rng)
        of_s, of_cover = self._logs_of_parts(x)
        overlap = np.mean(2 * expit(of_cover - of_s))
        self.share = max(SHARES[0], COVERED * overlap)

    def _integrate(self, reference):
        """Set log Z_s and its error, by points of a reference, which are kept."""
        self._reference, n = reference, FIRST_POINTS
        points, logs, self.error = [], [], np.inf
        while not points or (self.error > GOOD_ERROR and n <= MOST_POINTS):
            points.append(reference.even(n, first=not points))
            flat = points[-1].reshape(-1, points[-1].shape[2])
            logs.append((self._log_s(flat) - reference.log_density(flat)).reshape(SETS, -1))
            n = 2 * n if len(points) > 1 else n
            self._points, self._logs = (np.concatenate(own, axis=1) for own in (points, logs))
            sets = logsumexp(self._logs, axis=1) - np.log(self._logs.shape[1])
            self.log_z = logsumexp(sets) - np.log(SETS)
            self.error = np.exp(sets - self.log_z).std(ddof=1) / np.sqrt(SETS)

    def _of_s(self, n, runs=1):
        """Return n draws of s (n, d): weighted points, from where inner chains go on."""
        logs = self._logs.ravel()
        weights = np.exp(logs - logs.max())
        chosen = self._rng.choice(len(logs), n, p=weights / weights.sum())
        x = self._points.reshape(len(logs), -1)[chosen]
        for _ in range(runs):
            x = new_ends(self.parameters, x, self._rng)
        return x

    def _doubt(self, ends):
        """Return what log Z_s may lack, as chains on s have come to where no point of ρ is."""
        at_s, at_reference = (
            self._log_s(ends) - self._reference.log_density(ends),
            self._logs.ravel(),
        )
        found = bridge(at_s[None], at_reference, np.zeros(len(at_reference)))
        return max(0.0, abs(found.log_ratio - self.log_z) - 3 * found.standard_error)

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
        n_cover = self._rng.binomial(n, self.share)
        return np.concatenate([self.cover.draws(n_cover), self._of_s(n - n_cover)])

    def refitted(self, x, f, w):
        """Return a Component that has learned from points, which have importance weights w."""
        parts = self._logs_of_parts(x)
        share = max(SHARES, key=lambda share: w @ _mixed(parts, share))
        resampled = x[self._rng.choice(len(x), SEEN, p=w / w.sum())]  # the surrogate may go there
        seen = np.concatenate([evenly(self._seen, SEEN), resampled])
        x, f = np.concatenate([self._x, x]), np.concatenate([self._f, f])
        p = self.parameters
        surrogate = _surrogate(x, f, p.mean, np.tril(p.factor), p.surrogate.nu[0], self._rng)
        if surrogate is not None:
            p = p._replace(surrogate=surrogate)
        return Component(p, self.cover, seen, x, f, self._rng, share)


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
        components.append(Component(own, None, draws, *_fitted_to(own), rng))
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
    return Component(parameters, cover, x, x, f, rng)


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
