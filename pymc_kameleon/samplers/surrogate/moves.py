"""What a result keeps of the surrogate, and of evaluations; new runs of the inner chain, for free.

Averages are corrected by these, and draws of the surrogate itself are made by them.

Symbols: as in metropolis.py.
"""

from functools import cache
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.linalg import cholesky, solve_triangular
from scipy.special import gammaincinv, ndtri
from scipy.stats import qmc

from pymc_kameleon.approximation.chain import u_of, x_of
from pymc_kameleon.approximation.linalg import squared_distances, whitened
from pymc_kameleon.approximation.records import EVALUATION, thinned
from pymc_kameleon.core.arrays import allocate, floats
from pymc_kameleon.core.conventions import EPS, ROOT_EPS
from pymc_kameleon.core.jit import cached_jit, jit, specialise
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.metropolis import log_uniform
from pymc_kameleon.samplers.approximation.moves import log_t, remembered
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.density import Surrogate, log_surrogate
from pymc_kameleon.samplers.surrogate.inner_chain import Parameters, inner_proposal
from pymc_kameleon.step.learned import BIS, COORDINATE, Quantity
from pymc_kameleon.step.messages import say_if_compiling

# ---- the surrogate in a result -------------------------------------------------------------------

U, U_BIS, CENTRE = "whitened", "whitened_bis", "centre"
"""Dimensions: of u, and of the points that the surrogate was fitted to."""

KEPT = {
    "factor": ((COORDINATE, BIS), "L of `covariance`: s is a function of u = L⁻¹(x − mean)."),
    "nu": ((), "Degrees of freedom ν of the t density."),
    "is_quadratic": ((), "Whether kernels are added to a quadratic; if not, to the t density."),
    "constant": ((), "Constant term."),
    "linear": ((U,), "Of the polynomial, its gradient at u = 0."),
    "quadratic": ((U, U_BIS), "The polynomial's Hessian below its diagonal, half of it there."),
    "bounds": (("bound",), "Least and largest difference from the log of the t density."),
    "centres": ((U, CENTRE), "Points u that it was fitted to, times rates."),
    "weights": ((CENTRE,), "Of the kernels there."),
    "rates": ((U,), "Reciprocal lengths of the kernels."),
}
"""Dimensions and descriptions of fields of a Surrogate, and of the coordinates' factor."""


def learned(parameters):
    """Return what a result keeps of the surrogate, a Quantity by name."""
    surrogate, error = parameters.surrogate, parameters.error[0]
    n = surrogate.n[0]
    found = {
        "n_centres": Quantity((), n, "Kernels of the surrogate."),
        "surrogate_error": Quantity((), error, "Mean error of points left out.", "log-density"),
    }
    own = surrogate._asdict() | {"factor": np.tril(parameters.factor)}
    own |= {name: own[name][..., :n] for name in ("centres", "weights")}
    for name, (dims, text) in KEPT.items() if not np.isnan(error) else ():
        if n > 0 or CENTRE not in dims:
            values = own[name] if dims else own[name][0]
            found[f"surrogate_{name}"] = Quantity(dims, values, text)
    return found


def parameters_of(own):
    """Return the Parameters of one chain of a result; NaN follows the n centres that it has."""
    kept = {name: own[f"surrogate_{name}"].values for name in KEPT if f"surrogate_{name}" in own}
    n, factor = own["n_centres"].item(), kept.pop("factor")
    kept |= {name: kept[name][..., :n] for name in ("centres", "weights") if name in kept}
    sizes = {"d": len(factor), "m": len(kept.get("weights", ()))}
    if sizes["m"] != n:  # compiled code would read beyond them
        raise ValueError(f"The group learned was changed: it has {sizes['m']} centres, not {n}.")
    return allocate(
        Parameters,
        sizes,
        mean=own["mean"].values,
        factor=factor,
        n_inner=own["n_inner"].values,
        surrogate=allocate(Surrogate, sizes, n=n, **kept),
    )


def log_s(parameters, x):
    """Return log s at points x (n, d)."""
    return fit.values(parameters.surrogate, whitened(x, parameters.mean, parameters.factor))


def same_surrogates(parameters):
    """Return lists of numbers of chains, those with the same s, by the Parameters of each."""
    same = {}
    for row, own in enumerate(parameters):
        key = b"".join(part.tobytes() for part in (own.mean, own.factor, *own.surrogate))
        same.setdefault(key, []).append(row)
    return list(same.values())


# ---- evaluations in a result ---------------------------------------------------------------------


def dataset_of(coordinates, tunings, exact, numbers, kept):
    """Return the evaluations that chains of these numbers have made, each point once, as a Dataset.

    `exact` (d,) are coordinates in which log π is quadratic; `kept` has what each chain has kept of
    its draws, empty if that is nothing.
    """
    tuned = [*map(remembered, tunings)]
    drawn = [np.column_stack([moves["end"], moves["end_logp"]]) for moves in kept]
    parts, n_tuning = [*tuned, *drawn], sum(map(len, tuned))
    of_chain = np.repeat([*numbers, *numbers][: len(parts)], [*map(len, parts)])
    is_tuning = np.arange(len(of_chain)) < n_tuning
    rows = np.column_stack([np.concatenate(parts), of_chain, is_tuning])
    rows = each_once(rows, len(coordinates))
    z, (logp, of_chain, tuning) = rows[:, :-3], rows[:, -3:].T
    shown = thinned(len(rows), 8 * rows.shape[1])
    arrays = {
        "z": ((EVALUATION, COORDINATE), z[shown]),
        "logp": (EVALUATION, np.where(logp < np.inf, logp, -np.inf)[shown]),
        "of_chain": (EVALUATION, of_chain.astype(int)[shown]),
        "tuning": (EVALUATION, tuning.astype(bool)[shown]),
        "exact": (COORDINATE, exact),
    }
    return xr.Dataset(arrays, {COORDINATE: coordinates}, {"n_evaluations": len(rows)})


def each_once(rows, d):
    """Return rows whose first d numbers, a point, are finite, and of each point the first one."""
    rows = rows[np.isfinite(rows[:, :d]).all(axis=1)]
    return rows[np.sort(np.unique(rows[:, :d], axis=0, return_index=True)[1])]


# ---- the distribution s --------------------------------------------------------------------------


class Spread:
    """Points of s, with weights: those of t, spread evenly, which have weights s/t."""

    def __init__(self, parameters):
        self._parameters = parameters

    def points(self, n, rng):
        """Return points (SETS, n, d), in independent sets, and weights; n is a power of 2."""
        p, d = self._parameters, self._parameters.mean.size
        even = qmc.Sobol(d + 1, scramble=False).random(n) + rng.random((SETS, 1, d + 1))
        sets = points_of_t(even % 1, p.surrogate.nu[0])
        u = sets.reshape(-1, d)
        log_w = fit.values(p.surrogate, u) - fit.log_t(u, p.surrogate.nu[0])  # h
        weights = np.exp(log_w - log_w.max()).reshape(SETS, n)
        return p.mean + sets @ np.tril(p.factor).T, weights

    def is_lowest(self, x):
        """Whether s is as low as it may be at points x (n, d), where nothing is known."""
        p = self._parameters
        u = whitened(x, p.mean, p.factor)
        return fit.are_lowest(p.surrogate, u, fit.values(p.surrogate, u))

    def doubt(self, x):
        """Return sds (n,) by which log π may differ from log s: of a process with its kernels."""
        p, n = self._parameters.surrogate, self._parameters.surrogate.n[0]
        if n == 0:
            return np.zeros(len(x))
        u = whitened(x, self._parameters.mean, self._parameters.factor)
        centres = p.centres[:, :n].T
        covariance = 1 / (1 + squared_distances(centres, centres))
        values = covariance @ p.weights[:n]
        root = cholesky(covariance + ROOT_EPS * np.eye(n), lower=True)
        amplitude = np.square(solve_triangular(root, values, lower=True)).mean()
        cross = 1 / (1 + squared_distances(centres, u * p.rates))
        known = np.square(solve_triangular(root, cross, lower=True)).sum(axis=0)
        return np.sqrt(amplitude * np.maximum(1 - known, 0))


def points_of_t(even, nu):
    """Return points (..., d) of t by probabilities (..., d + 1), that of its scale first."""
    even = np.clip(even, EPS, 1 - EPS)
    g = gammaincinv(nu / 2, even[..., 0]) * 2 / nu
    return ndtri(even[..., 1:]) / np.sqrt(g)[..., None]


SETS = 8
"""Sets of points, by which it is seen how far off their averages are."""


# ---- new runs -----------------------------------------------------------------------------------


class Scratch(NamedTuple):
    """Where two inner chains move."""

    v: floats("d")
    w: floats("d")
    other: floats("d")
    other_w: floats("d")
    distances: floats("m")


@jit
def meet(parameters, scratch, rng):
    """Move v and other by M steps each, with the same random numbers; return whether they meet."""
    surrogate, distances = parameters.surrogate, scratch.distances
    nu = surrogate.nu[0]
    v, w, other, other_w = scratch.v, scratch.w, scratch.other, scratch.other_w
    log_s = log_surrogate(surrogate, v, distances)
    log_s_other = log_surrogate(surrogate, other, distances)
    for _ in range(parameters.n_inner[0]):
        log_ratio, log_ratio_other = -log_s, -log_s_other
        is_same = inner_proposal(parameters, v, w, rng)
        if is_same:
            copy(w, other_w)
            log_ratio += log_t(v, nu) - log_t(w, nu)
            log_ratio_other += log_t(other, nu) - log_t(other_w, nu)
        else:
            for i in range(v.size):
                other_w[i] = other[i] + (w[i] - v[i])
        log_s_w = log_s_other_w = log_surrogate(surrogate, w, distances)
        if not is_same:
            log_s_other_w = log_surrogate(surrogate, other_w, distances)
        bound = log_uniform(rng)
        accepted = bound < log_ratio + log_s_w
        other_accepted = bound < log_ratio_other + log_s_other_w
        if accepted and other_accepted and is_same:
            return True
        if accepted:
            copy(w, v)
            log_s = log_s_w
        if other_accepted:
            copy(other_w, other)
            log_s_other = log_s_other_w
    return False


@cache
def compiled_runs():
    """Return the compiled function that runs pairs of inner chains."""

    def new_runs(parameters, scratch, start, others, apart, rng):
        """Replace starts x and others (n, d) by ends."""
        for i in range(start.shape[0]):
            for points, u in ((start, scratch.v), (others, scratch.other)):
                u_of(parameters, points[i], u)
            apart[i] = not meet(parameters, scratch, rng)
            for points, u in ((start, scratch.v), (others, scratch.other)):
                x_of(parameters, u, points[i])

    sizes = {"d": 1, "m": 1}
    parameters, scratch = allocate(Parameters, sizes), allocate(Scratch, sizes)
    arguments = parameters, scratch, np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1, np.bool_)
    with say_if_compiling("new runs of the inner chain"):
        return specialise(cached_jit(new_runs, (meet,)), *arguments, np.random.default_rng(0))


def ends_of_pairs(parameters, start, others, rng):
    """Run inner chains from x and from others (n, d), each pair with the same random numbers.

    Return where each ends, and whether the pair did not meet (n,).
    """
    scratch = allocate(Scratch, {"d": start.shape[1], "m": parameters.surrogate.weights.size})
    ends, others = (np.array(points, np.float64, order="C") for points in (start, others))
    apart = np.empty(len(ends), np.bool_)
    compiled_runs()(parameters, scratch, ends, others, apart, rng)
    return ends, others, apart


def new_ends(parameters, start, rng):
    """Return where inner chains from x (n, d) end; their partners never move, so that none meet."""
    return ends_of_pairs(parameters, start, np.full(start.shape, np.nan), rng)[0]


def generator_of(points):
    """Return a Generator that has its seed from points: the same ones give the same numbers."""
    digest = sha256(np.ascontiguousarray(points)).digest()
    return np.random.default_rng(np.frombuffer(digest, np.uint32))
