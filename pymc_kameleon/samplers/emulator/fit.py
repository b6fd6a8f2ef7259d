"""The fit of a box's emulator to its evaluations, by a Gaussian process.

All outputs have one kernel k, so that a prediction is k(x, X) α with α = K⁻¹ Y. Directions among
the inputs count by how much they move the outputs, in units of the noise that the model has in
these. Points far below the best one have larger noise, as errors there matter less. Trends, lengths
and noise are chosen by leave-one-out errors [RW, section 5.4.2]; logarithms by errors on points
that a fit has not seen. Where few directions of the outputs hold all that the points show, the
compiled emulator has those alone.

Calls of a coarse model may be among the points. Its process is k, and the fine model is that plus
an independent process of the covariance σk, so the covariance of two fine points is (1 + σ) k. That
is the autoregressive model of Kennedy & O'Hagan with ρ = 1, where both differ on the same lengths.

Sources: Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), here [RW]; Conti &
O'Hagan, Journal of Statistical Planning and Inference 140 (2010), 640: one kernel for all outputs;
Kennedy & O'Hagan, Biometrika 87 (2000), 1: coarse models; Constantine, Active Subspaces (2015).

Symbols, besides those of ``gaussian_process``: Δ how far log π is below the best; d the dimension
of the model; ω the weights of points; W² the curvature of −log π in the outputs; K the kernel of
the points, with noise τ; v the scaled inputs; M the mean of JᵀW²J, its largest eigenvalue 1, with J
the derivatives of the outputs in v; s and ε the rates of the kernel along directions that move the
outputs most and not at all, u = s R v with R² = (M^γ + ε) / (1 + ε); B a basis of r directions of
outputs.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack, svd

from pymc_kameleon.approximation.linalg import factorised, squared_distances


def half_decades(powers):
    """Return powers of the root of ten."""
    return tuple(10.0 ** (k / 2) for k in powers)


LEVELS = {
    "rate": tuple(2.0 ** (k / 2) for k in range(-12, 6)),
    "linear": tuple(10.0**k for k in range(-3, 6)),
    "noise": tuple(10.0**k for k in range(-9, 0)),
    "floor": half_decades(range(-12, 1)),
    "difference": (*half_decades(range(-12, 5)), np.inf),
}
"""The values that a choice is made among."""

ALONE = LEVELS["difference"].index(np.inf)
"""Place of a difference that leaves coarse points out."""

LEAST_ALONE = 3
"""Fine points from which their leave-one-out errors say whether coarse points are of use. With more
than the inputs of a spring, errors after 60 and 80 calls were 2 to 4 times as large, in the median
of four runs, and one run was in a wrong place."""

ALL_STEPS, NEXT_STEPS = (2, -2, 1, -1, 4, -4), (1, -1)
"""Steps from a level to those that are tried instead."""

CONSTANT = 100.0
"""Variance of the constant; that of the kernel is 1."""

POWER = 0.7
"""γ: with less than 1, directions that move the outputs little are not forgotten."""

N_DIRECTIONS = 25
"""Points at most over which M is averaged."""

N_TURNS = 2
"""How often the directions are found anew, by a fit that goes by the last ones."""

N_SEARCHED = 200
"""Points at most by which a choice is made, the best ones."""

FARTHEST, USEFUL = 1e6, 100.0
"""Δ at most, times d, or times that of the second best point: those beyond say nothing, as their
simulator may have broken down. And Δ/d at most, of the best 2d + 2 points: where they are farther
down, as on the way to a narrow posterior, all Δ are divided."""

LEAST_UNITS = 0.1
"""Of an output's units of noise, relative to their mean over outputs, in the search for directions:
it may matter elsewhere."""

LEAST_ERROR, LARGEST_ERROR = 1e-3, 10.0
"""Errors of a point, in units of noise, below and above which no difference matters."""

LARGEST_SQUARE = 50.0
"""Variance of a logarithm from which on no difference matters, so that nothing overflows."""

N_WAVES = 512
"""Random waves of a function that is drawn: an engineering limit."""

NO_CHANGE = 1e-12
"""Relative range up to which a number does not vary."""

LOGARITHMIC_RANGE = 1.5
"""Ratio of the largest to the least from which on logarithms are worth a try."""


class Hyper(NamedTuple):
    """What was chosen, as places in LEVELS."""

    rate: int = 8  # s
    linear: int = 4  # variance of the linear part, in units of u / s
    noise: int = 3  # τ
    floor: int = 8  # ε
    difference: int = 8  # σ

    def value(self, name):
        """Return what a place stands for."""
        return LEVELS[name][getattr(self, name)]


class Fit(NamedTuple):
    """An emulator of one box."""

    hyper: Hyper
    error: float  # leave-one-out, in units of noise
    log_inputs: np.ndarray  # (p,) bool
    log_outputs: np.ndarray  # (q,) bool
    centre: np.ndarray  # c (p,)
    transform: np.ndarray  # A (p, p)
    u: np.ndarray  # (n, p)
    mean: np.ndarray  # m (q,)
    slopes: np.ndarray  # b (q, p)
    weights: np.ndarray  # α (n, q)
    omega: np.ndarray  # ω (n,)
    per_noise: np.ndarray  # (q,), one over the noise of outputs, after logarithms

    def predict(self, x):
        """Return the outputs (N, q) at inputs x (N, p)."""
        u = self.transformed(x)
        near = nearness(squared_distances(u, self.u))
        t = self.mean + u @ self.slopes.T + near**2 @ self.weights
        return untransformed(t, self.log_outputs)

    def derivatives(self, x):
        """Return ∂t/∂g (N, q, p): of outputs in inputs, after logarithms where these are taken."""
        u = self.transformed(x)
        cubes = nearness(squared_distances(u, self.u)) ** 3
        out = np.empty((len(u), self.mean.size, u.shape[1]))
        for i in range(len(u)):
            of_c = cubes[i][:, None] * (self.u - u[i])
            out[i] = (self.slopes + self.weights.T @ of_c) @ self.transform
        return out

    def write(self, structure, emulator, box):
        """Write it into the emulator of all boxes."""
        (n, p), q, m = self.u.shape, self.mean.size, emulator.u.size // emulator.centre.size
        basis, mean, slopes, weights = self.reduced()
        r = weights.shape[1]
        inputs = slice(structure.input_places[box], structure.input_places[box] + p)
        outputs = slice(structure.output_places[box], structure.output_places[box] + q)
        squares = slice(structure.square_places[box], structure.square_places[box] + p * p)
        emulator.n[box] = n
        emulator.log_inputs[inputs] = self.log_inputs
        emulator.log_outputs[outputs] = self.log_outputs
        emulator.centre[inputs], emulator.mean[outputs] = self.centre, mean
        emulator.transform[squares] = self.transform.ravel()
        start = structure.slope_places[box]
        emulator.slopes[start : start + p * r] = slopes.ravel()
        emulator.u.reshape(-1, m)[inputs, :n] = self.u.T
        emulator.weights.reshape(-1, m)[outputs][:r, :n] = weights.T
        emulator.rank[box] = len(basis)
        start = m // 2 * structure.output_places[box]
        emulator.basis[start : start + basis.size] = basis.ravel()

    def reduced(self):
        """Return B (r, q) and what is left of m (q,), b (r, p) and α (n, r).

        What is left out is at most `LEAST_ERROR` units of noise; B is empty unless it saves
        products.
        """
        n, q = self.weights.shape
        t = nearness(squared_distances(self.u, self.u)) ** 2 @ self.weights + self.u @ self.slopes.T
        rows = np.sqrt(self.omega)[:, None] * (t - self.omega @ t) * self.per_noise
        whole = np.zeros((0, q)), self.mean, self.slopes, self.weights
        if not np.isfinite(rows).all():
            return whole
        _, sizes, vectors = svd(rows, full_matrices=False)
        r = max(np.count_nonzero(np.cumsum(sizes[::-1] ** 2) > LEAST_ERROR**2), 1)
        if r > n / 2 or r * (n + q) > n * q:
            return whole
        basis, towards = vectors[:r] / self.per_noise, (vectors[:r] * self.per_noise).T
        weights = self.weights @ towards
        mean = self.mean + CONSTANT * np.sum(weights @ basis - self.weights, axis=0)
        return basis, mean, (self.slopes.T @ towards).T, weights

    def transformed(self, x):
        """Return u (N, p) of inputs x (N, p)."""
        return (transformed(x, self.log_inputs) - self.centre) @ self.transform.T


def fit_box(
    x, y, drop, d, curvature, variant=(False, False), start=None, m=900, look="next", fine=None
):
    """Fit the emulator of a box to its calls; return a Fit, None without a finite row.

    `x` (N, p) and `y` (N, q) have a row for each application of each evaluation, the newest last;
    the best `m` of those that are finite count. `drop` (N,) is Δ, zero where that is not much;
    `curvature` (q,) is W² at the best point; `variant` is whether to take logarithms of inputs, and
    of outputs. The choice begins at `start`, the last one, and looks at the "next" levels, "all" or
    "none". Rows that are not `fine` (N,) are calls of a coarse model.
    """
    rows = _rows(x, y, _tempered(drop, d), m, True if fine is None else fine)
    of_model, alone = (d, curvature, variant), [part[rows[-1]] for part in rows]
    was_alone = start is not None and start.difference == ALONE
    if rows[-1].all() or (was_alone and look == "none"):
        return _fit_rows(alone, of_model, start, look)
    last = start._replace(difference=Hyper().difference) if was_alone else start
    both = _fit_rows(rows, of_model, last, look)
    if look == "none" or len(alone[0]) < LEAST_ALONE:
        return both
    own = _fit_rows(alone, of_model, start, look)  # by the same Δ, so that errors compare
    if both.error < own.error:
        return both
    return own._replace(hyper=own.hyper._replace(difference=ALONE))


def _fit_rows(rows, of_model, start, look):
    """Return the Fit to some rows, as `fit_box` does."""
    x, y, drop, fine = rows
    if len(x) == 0:
        return None
    few = problem = _Problem(*rows, *of_model)
    if len(x) > N_SEARCHED:
        few = _Problem(*_rows(x, y, drop, N_SEARCHED, fine), *of_model)
    first = few.fit(Hyper() if start is None else start)
    if start is None or look == "all":
        first = few.search(first)
    for _ in range(N_TURNS):
        few.take_directions(first)
        first = few.fit(first.hyper)
    few.take_directions(first)
    hyper, error = first.hyper, np.inf
    if start is None or look != "none":
        hyper, error = few.choose(hyper, NEXT_STEPS, n_rounds=1)
    problem.take_directions(first)
    return problem.fit(hyper)._replace(error=error)


def problem_of(x, y, drop, d, curvature, variant, m):
    """Return what a fit to these calls is chosen by, the arguments as of `fit_box`; and outputs."""
    rows = _rows(x, y, _tempered(drop, d), m)
    return _Problem(*rows, d, curvature, variant), rows[1]


def variants_of(x, y, drop, d, m=900):
    """Return which pairs (logarithms of inputs, of outputs) differ, the plain one first.

    The arguments are as of `fit_box`, and the same calls count.
    """
    x, y, *_ = _rows(x, y, _tempered(drop, d), m)
    inputs, outputs = (len(x) > 0 and have_logarithms(rows).any() for rows in (x, y))
    return [(a, b) for a in (False, True)[: 1 + inputs] for b in (False, True)[: 1 + outputs]]


class Uncertainty(NamedTuple):
    """How far off a fit may be."""

    inverse: np.ndarray  # (n, n), L⁻¹ of K = LLᵀ
    linear: float  # variance of the linear part, in units of u
    noise: float  # τ
    noises: np.ndarray  # (n,), variances of what is no part of a smooth function, of points
    sd: np.ndarray  # (q,), of the process that an output is, after logarithms
    left_out: np.ndarray  # (q,), root mean square of leave-one-out errors of good points, likewise

    def of(self, fit, x):
        """Return the standard deviations (N, q) of predictions at inputs x (N, p)."""
        _, left = self._explained(fit, fit.transformed(x))
        sd = np.sqrt(np.maximum(left, 0.0) + self.noise)[:, None] * self.sd
        return np.where(fit.log_outputs, sd * fit.predict(x), sd)

    def _explained(self, fit, u):
        """Return L⁻¹k (N, n) of points u (N, p), and the variances (N,) that this leaves."""
        k = nearness(squared_distances(u, fit.u)) ** 2 + self.linear * u @ fit.u.T + CONSTANT
        rows = k @ self.inverse.T
        own = 1.0 + self.linear * np.sum(u * u, axis=1) + CONSTANT
        return rows, own - np.sum(rows**2, axis=1)

    def least_known(self, fit, x, n, scale):
        """Return the places of n of the inputs x (N, p), each where outputs are least known.

        That is by the variances given the outputs at those chosen before, relative to squares of
        the outputs' `scale` (q,), and added up. Of logarithms they are those of log-normals.
        """
        u, y = fit.transformed(x), fit.predict(x)
        rows, left = self._explained(fit, u)
        places, columns = [], np.empty((len(u), n))
        for m in range(n):
            square = np.maximum(left, 0.0)[:, None] * self.sd**2
            of_log = np.minimum(square, LARGEST_SQUARE)
            of_logs = np.expm1(of_log) * np.exp(of_log) * y**2
            square = np.where(fit.log_outputs, of_logs, square) * scale**-2.0
            places.append(new := int(np.argmax(np.nan_to_num(square).sum(axis=1))))
            column = nearness(squared_distances(u, u[new : new + 1])[:, 0]) ** 2
            column += self.linear * u @ u[new] + CONSTANT - rows @ rows[new]
            column -= columns[:, :m] @ columns[new, :m]
            columns[:, m] = column / np.sqrt(max(column[new], 0.0) + self.noise)
            left = left - columns[:, m] ** 2
        return places

    def drawn(self, fit, widening, rng):
        """Return a function of inputs x (N, p) to outputs (N, q), drawn from the process.

        The process without its data is a sum of random waves, which its data then correct (Wilson
        et al., ICML 2020, equation 13). The waves of 1 / (1 + |u|²/4)² have normal frequencies,
        whose variance is a gamma variable. Errors are `widening` times those of the process.
        """
        n, p = fit.u.shape
        variances = rng.gamma(2.0, 0.5, N_WAVES)
        frequencies = rng.normal(size=(p, N_WAVES)) * np.sqrt(variances)
        phases = rng.uniform(0, 2 * np.pi, N_WAVES)
        sizes = [2 / N_WAVES] * N_WAVES + [self.linear] * p + [CONSTANT]

        def features(u):
            return np.column_stack([np.cos(u @ frequencies + phases), u, np.ones(len(u))])

        sd = widening * self.sd
        loadings = np.sqrt(sizes)[:, None] * rng.normal(size=(len(sizes), len(sd))) * sd
        noise = np.sqrt(self.noises)[:, None] * rng.normal(size=(n, len(sd))) * sd
        at_points = features(fit.u) @ loadings + noise
        weights = self.inverse.T @ (self.inverse @ at_points)

        def function(x):
            u = fit.transformed(x)
            near = nearness(squared_distances(u, fit.u)) ** 2
            k = near + self.linear * u @ fit.u.T + CONSTANT
            t = fit.mean + u @ fit.slopes.T + near @ fit.weights
            t += features(u) @ loadings - k @ weights
            return untransformed(t, fit.log_outputs)

        return function


def uncertainty(fit, x, y, drop, d, m):
    """Return the Uncertainty of a fit to these calls, the arguments as of `fit_box`.

    Errors are as large, in the kernel's standard deviations, as of points left out [RW, section
    5.4.2].
    """
    _, _, drop, _ = _rows(x, y, _tempered(drop, d), m)
    noise = fit.hyper.value("noise")
    linear = fit.hyper.value("linear") / fit.hyper.value("rate") ** 2
    k = nearness(squared_distances(fit.u, fit.u)) ** 2 + linear * fit.u @ fit.u.T + CONSTANT
    noises = noise * (1 + (drop / (2 * d)) ** 2)
    k[np.diag_indices(len(k))] += noises
    inverse = lapack.dtrtri(factorised(k), lower=1)[0]
    variances = 1 / np.einsum("ij,ij->j", inverse, inverse)
    omega = 1 / (1 + (drop / d) ** 2)
    sd = np.sqrt(omega @ (fit.weights**2 * variances[:, None]) / omega.sum())
    left_out = np.sqrt(np.mean((fit.weights * variances[:, None])[drop == 0] ** 2, axis=0))
    return Uncertainty(inverse, linear, noise, noises, sd, left_out)


def left_out_errors(fit, unsure, x, y, drop, d, m):
    """Return of points that are left out of a fit, (n, q), errors and these in standard deviations.

    Errors are those of outputs themselves, the others of their logarithms if these are predicted,
    of a process with the sd of 1. Also the inputs and outputs of these points. The arguments are as
    of `uncertainty`.
    """
    x, y, *_ = _rows(x, y, _tempered(drop, d), m)
    variances = 1 / np.einsum("ij,ij->j", unsure.inverse, unsure.inverse)[:, None]
    t = transformed(y, fit.log_outputs) - fit.weights * variances
    return untransformed(t, fit.log_outputs) - y, fit.weights * np.sqrt(variances), x, y


class _Problem:
    """A fit to points, for any choice."""

    def __init__(self, x, y, drop, fine, d, curvature, variant):
        self.drop, self.fine = drop, fine
        self.log_inputs = have_logarithms(x) & variant[0]
        self.log_outputs = have_logarithms(y) & variant[1]
        self.noise = 1 + (drop / (2 * d)) ** 2
        self.omega = 1 / (1 + (drop / d) ** 2)
        self.omega[self.best(2 * d + 2)] = 1.0
        self.omega /= self.omega.sum()
        self.of_errors = self.omega * fine / (self.omega @ fine) if fine.any() else self.omega
        g = transformed(x, self.log_inputs)
        self.centre, self.sd = scales(g, self.omega)
        self.per_sd = np.where(self.sd > 0, 1 / np.where(self.sd > 0, self.sd, 1.0), 0.0)
        self.v = (g - self.centre) * self.per_sd
        self._set_targets(transformed(y, self.log_outputs))
        slopes = np.where(self.log_outputs, y[self.best(1)[0]], 1.0)  # ∂y/∂t
        self.per_noise = np.sqrt(np.maximum(np.nan_to_num(curvature), 0.0)) * np.abs(slopes)
        self.per_noise *= self.scale  # from units of the targets
        if not self.per_noise.any():
            self.per_noise = np.ones(len(self.scale))
        self.directions = np.eye(x.shape[1])  # M^γ
        self.plain = self.products = self.v @ self.v.T

    def _set_targets(self, t):
        """Scale outputs by their sd at good points, for rounding; constants are zero."""
        self.mean, self.scale = scales(t, self.omega)
        varies = self.scale > 0
        self.mean[~varies] = t[0, ~varies]
        self.targets = np.where(varies, t - self.mean, 0.0) / np.where(varies, self.scale, 1.0)

    def best(self, n):
        """Return the places of the best points, the fine ones first."""
        return np.lexsort((self.drop, ~self.fine))[:n]

    def take_directions(self, fit):
        """Take M from the derivatives of `fit`."""
        g = self.v[self.best(N_DIRECTIONS)] * self.sd + self.centre
        x = untransformed(g, self.log_inputs)
        weights = self.per_noise / np.where(self.scale > 0, self.scale, np.inf)
        slopes = (weights[:, None] * (fit.derivatives(x) * self.sd)).reshape(-1, g.shape[1])
        largest = np.abs(slopes).max()
        if not (np.isfinite(largest) and largest > 0):
            return
        slopes /= largest
        values, vectors = np.linalg.eigh(slopes.T @ slopes)
        self.directions = (vectors * np.clip(values / values[-1], 0, 1) ** POWER) @ vectors.T
        self.products = self.v @ self.directions @ self.v.T

    def covariance(self, hyper):
        """Return K."""
        floor, rate = hyper.value("floor"), hyper.value("rate")
        dots = (self.products + floor * self.plain) * (rate**2 / (1 + floor))
        squares = np.diag(dots)
        distances = squares[:, None] + squares - 2 * dots
        k = nearness(np.maximum(distances, 0.0, out=distances))
        k *= k
        k += hyper.value("linear") / rate**2 * dots
        k += CONSTANT
        if not self.fine.all():
            k[np.ix_(self.fine, self.fine)] *= 1 + hyper.value("difference")
        k[np.diag_indices(len(k))] += hyper.value("noise") * self.noise
        return k

    def levels(self, hyper):
        """Return the covariance of points with the fine model, (n, 1), relative to the kernel."""
        return 1.0 if self.fine.all() else 1 + hyper.value("difference") * self.fine[:, None]

    def factor(self, hyper):
        """Return the Cholesky factor of K."""
        return factorised(self.covariance(hyper))

    def errors(self, hyper):
        """Return the leave-one-out errors of points, in units of noise [RW, equation 5.12]."""
        factor = self.factor(hyper)
        alpha = lapack.dpotrs(factor, self.targets, lower=1)[0]
        inverse = lapack.dtrtri(factor, lower=1)[0]  # zero above the diagonal, as the factor is
        return np.sqrt(alpha**2 @ self.per_noise**2) / np.einsum("ij,ij->j", inverse, inverse)

    def search(self, fit):
        """Return the fit of a choice among all levels, which begins with another one."""
        self.take_directions(fit)
        hyper, _ = self.choose(fit.hyper, ALL_STEPS, n_rounds=3)
        return self.fit(hyper)

    def choose(self, hyper, steps, n_rounds):
        """Return a better choice, changing its parts in turn, and its error."""
        errors, scores = {}, {}

        def score(hyper):
            if hyper not in scores:
                errors[hyper] = np.minimum(self.errors(hyper), LARGEST_ERROR)
                scores[hyper] = self.of_errors @ np.log(LEAST_ERROR + errors[hyper])
            return scores[hyper]

        for _ in range(n_rounds):
            last = hyper
            for name, levels in LEVELS.items():
                if name == "difference" and self.fine.all():
                    continue
                places = [getattr(hyper, name) + step for step in steps]
                inside = [k for k in places if 0 <= k < len(levels) and levels[k] < np.inf]
                others = [hyper._replace(**{name: place}) for place in inside]
                hyper = min([hyper, *others], key=score)
            if hyper == last:
                break
        score(hyper)
        return hyper, float(self.of_errors @ errors[hyper])

    def fit(self, hyper):
        """Return the fit of this choice."""
        alpha = lapack.dpotrs(self.factor(hyper), self.targets, lower=1)[0]
        floor = hyper.value("floor")
        values, vectors = np.linalg.eigh(self.directions)
        lengths = np.sqrt((np.maximum(values, 0.0) + floor) / (1 + floor))
        rotate = hyper.value("rate") * (vectors * lengths) @ vectors.T
        u, weights = self.v @ rotate.T, alpha * self.scale * self.levels(hyper)
        return Fit(
            hyper=hyper,
            error=np.inf,
            log_inputs=self.log_inputs,
            log_outputs=self.log_outputs,
            centre=self.centre,
            transform=rotate * self.per_sd,
            u=u,
            mean=self.mean + CONSTANT * weights.sum(axis=0),
            slopes=hyper.value("linear") / hyper.value("rate") ** 2 * (weights.T @ u),
            weights=weights,
            omega=self.omega,
            per_noise=self.units(),
        )

    def units(self):
        """Return one over the noise of outputs, after logarithms, none of them nearly 0."""
        mean = np.sqrt(np.mean(self.per_noise**2))
        scale = np.where(self.scale > 0, self.scale, 1.0)
        return np.maximum(self.per_noise, LEAST_UNITS * mean) / scale


def _tempered(drop, d):
    """Return Δ, divided by a temperature at which the best points are useful; NaN where too far."""
    best = np.sort(drop[np.isfinite(drop)])[: 2 * d + 2]
    farthest = FARTHEST * max([d, *best[1:2]])
    temperature = best[best < farthest].max(initial=0.0) / (USEFUL * d)
    return np.where(drop < farthest, drop / max(1.0, temperature), np.nan)


def _rows(x, y, drop, m, fine=True):
    """Return the rows that a fit is made of, and which of them are fine: these go first."""
    finite = np.isfinite(y).all(axis=1) & np.isfinite(x).all(axis=1) & np.isfinite(drop)
    rows = np.flatnonzero(finite)
    fine = np.broadcast_to(fine, drop.shape)
    best = np.sort(rows[np.lexsort((-rows, drop[rows], ~fine[rows]))[:m]])
    return x[best], y[best], drop[best], fine[best]


def nearness(distances):
    """Return 1 / (1 + |u − u'|²/4), of squared distances."""
    return 1 / (1 + distances / 4)


def scales(columns, omega):
    """Return weighted means and sds of columns, zero if they do not vary; nothing is whitened."""
    mean = omega @ columns
    varies = np.ptp(columns, axis=0) > NO_CHANGE * np.abs(columns).max(axis=0)
    deviations = columns - mean
    largest = np.where(varies, np.abs(deviations).max(axis=0), 1.0)
    sd = np.sqrt(omega @ (deviations / largest) ** 2) * largest  # squares may underflow otherwise
    return mean, np.where(varies, sd, 0.0)


def have_logarithms(columns):
    """Return of which columns logarithms are worth a try."""
    low, high = columns.min(axis=0), columns.max(axis=0)
    return (low > 0) & (high > LOGARITHMIC_RANGE * low)


def transformed(columns, are_logarithms):
    """Return columns, or their logarithms, NaN of what is not positive."""
    logarithms = np.full(columns.shape, np.nan)
    np.log(columns, out=logarithms, where=columns > 0)
    return np.where(are_logarithms, logarithms, columns)


def untransformed(columns, are_logarithms):
    """Return columns, or the exponentials of those that are logarithms."""
    return np.where(are_logarithms, np.exp(np.where(are_logarithms, columns, 0.0)), columns)
