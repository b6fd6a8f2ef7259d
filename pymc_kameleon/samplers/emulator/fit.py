"""The fit of a box's emulator to its evaluations, by a Gaussian process.

All outputs have one kernel k, so that a prediction is k(x, X) α with α = K⁻¹ Y, and their scales do
not matter. Inputs are whitened by good points. Directions among them count by how much they move
the outputs, in units of the noise that the model has in these: of 25 coefficients of a field, a few
do. Points far below the best one have larger noise, as errors there matter less.

What cannot be known beforehand, the trends, lengths and noise, is chosen by leave-one-out errors,
which a Gaussian process gives in closed form [RW, section 5.4.2].

Sources: Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), here [RW]; Conti &
O'Hagan, Journal of Statistical Planning and Inference 140 (2010), 640: one kernel for all outputs;
Constantine, Active Subspaces (2015).

Symbols: as in ``gaussian_process``; Δ how far log π is below the best, d the dimension of the
model, ω the weights of points, W² the curvature of −log π in the outputs, K the kernel of the
points, τ the noise.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

CONSTANT = 100.0
"""Variance of the kernel's constant."""

LEVELS = {
    "rate": tuple(2.0 ** (k / 2) for k in range(-12, 5)),
    "linear": tuple(10.0**k for k in range(-3, 7)),
    "quadratic": tuple(10.0**k for k in range(-5, 6)),
    "noise": tuple(10.0**k for k in range(-10, 0)),
    "floor": tuple(10.0 ** (k / 2) for k in range(-8, 1)),
}
"""The values that a choice is made among."""

LEAST_JUDGED = 10
"""Points, the best ones, by which it is at least judged how far off a fit may be."""

N_DIRECTIONS = 25
"""Points at most, over which the derivatives of the outputs are averaged."""

JITTER = 1e-12
"""Noise added where rounding forbids a fit; ten times as much until it does not."""


class Hyper(NamedTuple):
    """What was chosen, as places in LEVELS."""

    rate: int = 8  # s: of the kernel, over all directions
    linear: int = 4  # a₁
    quadratic: int = 4  # a₂
    noise: int = 4  # τ
    floor: int = 4  # ε: rate of directions that do not move the outputs, squared

    def value(self, name):
        """Return what a place stands for."""
        return LEVELS[name][getattr(self, name)]


class Fit(NamedTuple):
    """An emulator of one box."""

    hyper: Hyper
    error: float  # leave-one-out
    log_inputs: np.ndarray  # (p,) bool
    log_outputs: np.ndarray  # (q,) bool
    centre: np.ndarray  # c (p,)
    whiten: np.ndarray  # W (p, p)
    rotate: np.ndarray  # T (p, p)
    trends: np.ndarray  # a₁, a₂
    v: np.ndarray  # (n, p)
    u: np.ndarray  # (n, p)
    mean: np.ndarray  # m (q,)
    weights: np.ndarray  # α (n, q)

    def predict(self, x):
        """Return the outputs (N, q) at inputs x (N, p)."""
        v = (transformed(x, self.log_inputs) - self.centre) @ self.whiten.T
        distances = squared_distances(v @ self.rotate.T, self.u)
        t = self.mean + covariance(v @ self.v.T, distances, self.trends) @ self.weights
        return np.where(self.log_outputs, np.exp(np.where(self.log_outputs, t, 0)), t)

    def derivatives(self, x):
        """Return ∂t/∂g (N, q, p): of outputs in inputs, both after logarithms."""
        v = (transformed(x, self.log_inputs) - self.centre) @ self.whiten.T
        u = v @ self.rotate.T
        dots, kernel = v @ self.v.T, np.exp(-squared_distances(u, self.u) / 2)
        a1, a2 = self.trends
        out = np.empty((len(v), self.mean.size, v.shape[1]))
        for i in range(len(v)):
            of_c = (a1 + 2 * a2 * dots[i])[:, None] * self.v
            of_c -= (kernel[i][:, None] * (u[i] - self.u)) @ self.rotate
            out[i] = self.weights.T @ of_c @ self.whiten
        return out

    def write(self, structure, emulator, box):
        """Write it into the emulator of all boxes."""
        n, (p, q) = len(self.v), structure.boxes[box]
        inputs = slice(structure.input_places[box], structure.input_places[box] + p)
        outputs = slice(structure.output_places[box], structure.output_places[box] + q)
        squares = slice(structure.square_places[box], structure.square_places[box] + p * p)
        emulator.n[box] = n
        emulator.log_inputs[inputs], emulator.log_outputs[outputs] = (
            self.log_inputs,
            self.log_outputs,
        )
        emulator.centre[inputs], emulator.mean[outputs] = self.centre, self.mean
        emulator.whiten[squares], emulator.rotate[squares] = (
            self.whiten.ravel(),
            self.rotate.ravel(),
        )
        emulator.trends[box] = self.trends
        for flat, values, place in (
            (emulator.v, self.v, inputs),
            (emulator.u, self.u, inputs),
            (emulator.weights, self.weights, outputs),
        ):
            by_column = flat.reshape(-1, emulator.v.size // emulator.centre.size)
            by_column[place, :n] = values.T


def fit_box(x, y, drop, d, curvature, variant=(False, False), last=None, m=900, full=False):
    """Fit the emulator of a box.

    Parameters
    ----------
    x : (N, p) float64
        Inputs of its applications, the newest last.
    y : (N, q) float64
        Outputs. Rows that are not finite are left out.
    drop : (N,) float64
        Δ: how far the log-density is below the best, 0 where it is not much.
    d : int
        Dimension of the model.
    curvature : (q,) float64
        W²: of −log π in the outputs, at the best point.
    variant : (bool, bool)
        Whether to take logarithms of inputs and outputs, of those that `have_logarithms`.
    last : Fit, optional
        The last one of this variant: where the choice begins.
    m : int
        Points at most; the best are taken, and the newest of those that are as good.
    full : bool
        Whether to choose among all values, not only those next to the last ones.

    Returns
    -------
    fit : Fit or None
        None without a finite row.
    """
    x, y, drop = _rows(x, y, drop, m)
    if len(x) == 0:
        return None
    problem = _Problem(x, y, drop, d, curvature, variant)
    start = Hyper() if last is None else last
    problem.rotate(problem.fit(start))
    if full is None and last is not None:
        return problem.fit(start)
    if last is None or full:
        hyper, error = problem.choose(start, (2, -2, 1, -1, 4, -4), rounds=3)
        problem.rotate(problem.fit(hyper))
        hyper, error = problem.choose(hyper, (1, -1), rounds=1)
    else:
        hyper, error = problem.choose(start, (1, -1), rounds=1)
    return problem.fit(hyper)._replace(error=error)


def _rows(x, y, drop, m):
    """Return the rows that a fit is made of."""
    finite = np.isfinite(y).all(axis=1) & np.isfinite(x).all(axis=1) & np.isfinite(drop)
    x, y, drop = x[finite], y[finite], drop[finite]
    best = np.sort(np.lexsort((-np.arange(len(drop)), drop))[:m])
    return x[best], y[best], drop[best]


class Uncertainty(NamedTuple):
    """How far off a fit may be."""

    inverse: np.ndarray  # (n, n), L⁻¹ of K = LLᵀ
    noise: float  # τ
    sd: np.ndarray  # (q,), of the process that an output is, after logarithms
    left_out: np.ndarray  # (q,), root mean square of leave-one-out errors of good points, likewise

    def of(self, fit, x):
        """Return the standard deviations (N, q) of predictions at inputs x (N, p)."""
        v = (transformed(x, fit.log_inputs) - fit.centre) @ fit.whiten.T
        squares = np.sum(v * v, axis=1)
        k = covariance(v @ fit.v.T, squared_distances(v @ fit.rotate.T, fit.u), fit.trends)
        own = CONSTANT + fit.trends[0] * squares + fit.trends[1] * squares**2 + 1.0
        explained = np.sum(((k + CONSTANT) @ self.inverse.T) ** 2, axis=1)
        sd = np.sqrt(np.maximum(own - explained, 0) + self.noise)[:, None] * self.sd
        return np.where(fit.log_outputs, sd * fit.predict(x), sd)


def uncertainty(fit, x, y, drop, d, m):
    """Return the Uncertainty of a fit to these calls, the arguments as of `fit_box`.

    The kernel's own variance is not known. So errors are as large, relative to the standard
    deviations that the kernel gives, as they are of points that are left out [RW, section 5.4.2].
    """
    _, _, drop = _rows(x, y, drop, m)
    noise = fit.hyper.value("noise")
    k = covariance(fit.v @ fit.v.T, squared_distances(fit.u, fit.u), fit.trends) + CONSTANT
    k[np.diag_indices(len(k))] += noise * (1 + (drop / (2 * d)) ** 2)
    inverse = np.tril(lapack.dtrtri(factor_of(k), lower=1)[0])
    variances = 1 / np.einsum("ij,ij->j", inverse, inverse)
    good = drop <= np.sort(drop)[min(len(drop), LEAST_JUDGED) - 1]
    omega = good / good.sum()
    weights = 1 / (1 + (drop / d) ** 2)
    sd = np.sqrt(weights @ (fit.weights**2 * variances[:, None]) / weights.sum())
    left_out = np.sqrt(omega @ (fit.weights * variances[:, None]) ** 2)
    return Uncertainty(inverse, noise, sd, left_out)


class _Problem:
    """A fit to points, for any choice."""

    def __init__(self, x, y, drop, d, curvature, variant):
        p = x.shape[1]
        log_x, log_y = have_logarithms(x), have_logarithms(y)
        self.log_inputs, self.log_outputs = log_x & variant[0], log_y & variant[1]
        self.drop, self.d = drop, d
        self.noise = 1 + (drop / (2 * d)) ** 2
        self.omega = 1 / (1 + (drop / d) ** 2)
        self.omega[np.argsort(drop, kind="stable")[: 2 * d + 2]] = 1.0
        g, t = transformed(x, self.log_inputs), transformed(y, self.log_outputs)
        self.centre, self.whiten = _whitening(g, self.omega)
        self.v = (g - self.centre) @ self.whiten.T
        self.mean = self.omega @ t / self.omega.sum()
        centred = t - self.mean
        self.scale = np.sqrt(self.omega @ centred**2 / self.omega.sum())
        varies = (self.scale > 0) & (np.ptp(t, axis=0) > 1e-13 * np.abs(t).max(axis=0))
        self.scale[~varies] = 0.0
        self.mean[~varies] = t[0, ~varies]
        with np.errstate(divide="ignore", invalid="ignore"):
            self.targets = np.where(varies, centred / self.scale, 0.0)
        best = y[np.argmin(drop)]
        per_t = np.sqrt(np.maximum(curvature, 0)) * np.where(self.log_outputs, best, 1.0)
        self.w = np.abs(per_t) * self.scale  # units of noise per unit of the targets
        if not np.any(self.w > 0):
            self.w = np.ones(len(self.w))
        self.dots = self.v @ self.v.T
        self.plain = squared_distances(self.v, self.v)
        self.squares = self.dots**2
        self.directions = np.eye(p)
        self.rotated = self.plain

    def differs(self, last):
        """Whether the last fit has other logarithms."""
        return (last.log_inputs != self.log_inputs).any() or (
            last.log_outputs != self.log_outputs
        ).any()

    def rotate(self, fit):
        """Take the directions that move the outputs of `fit`."""
        good = np.argsort(self.drop, kind="stable")[:N_DIRECTIONS]
        back = np.linalg.pinv(self.whiten)  # dg/dv
        g = self.v[good] @ back.T + self.centre
        x = np.where(self.log_inputs, np.exp(np.where(self.log_inputs, g, 0)), g)
        slopes = fit.derivatives(x) @ back
        with np.errstate(divide="ignore", invalid="ignore"):
            w = np.where(self.scale > 0, self.w / self.scale, 0.0)
        slopes = (slopes * w[:, None]).reshape(-1, len(self.centre))
        moves = slopes.T @ slopes
        largest = np.linalg.eigvalsh(moves)[-1]
        if np.isfinite(largest) and largest > 0:
            self.directions = moves / largest
            self.rotated = np.maximum(_quadratic_distances(self.v, self.directions), 0)

    def distances(self, hyper):
        """Return |u_i − u_j|²."""
        floor, rate = hyper.value("floor"), hyper.value("rate")
        return (self.rotated + floor * self.plain) * (rate**2 / (1 + floor))

    def rotation(self, hyper):
        """Return T = s R."""
        floor = hyper.value("floor")
        values, vectors = np.linalg.eigh(self.directions)
        lengths = np.sqrt((np.maximum(values, 0) + floor) / (1 + floor))
        return hyper.value("rate") * (vectors * lengths) @ vectors.T

    def trends(self, hyper):
        """Return a₁ and a₂."""
        return np.array([hyper.value("linear"), hyper.value("quadratic")])

    def factor(self, hyper):
        """Return the Cholesky factor of K."""
        a1, a2 = self.trends(hyper)
        k = np.exp(self.distances(hyper) * -0.5)
        k += a1 * self.dots
        k += a2 * self.squares
        k += CONSTANT
        k[np.diag_indices(len(k))] += hyper.value("noise") * self.noise
        return factor_of(k)

    def error(self, hyper):
        """Return what is minimised: a mean over leave-one-out errors [RW, equation 5.12]."""
        return criterion(self.errors(hyper), self.omega)

    def errors(self, hyper):
        """Return the leave-one-out errors of points, in units of noise."""
        factor = self.factor(hyper)
        alpha = lapack.dpotrs(factor, self.targets, lower=1)[0]
        inverse, _ = lapack.dtrtri(factor, lower=1)
        variances = 1 / np.einsum("ij,ij->j", inverse, inverse)
        return np.sqrt(alpha**2 @ self.w**2) * variances

    def choose(self, hyper, steps, rounds):
        """Return a better choice, changing its parts in turn, and its error."""
        errors = {}

        def error(hyper):
            if hyper not in errors:
                errors[hyper] = self.error(hyper)
            return errors[hyper]

        for _ in range(rounds):
            last = hyper
            for name, levels in LEVELS.items():
                places = [getattr(hyper, name) + step for step in steps]
                inside = [place for place in places if 0 <= place < len(levels)]
                others = [hyper._replace(**{name: place}) for place in inside]
                hyper = min([hyper, *others], key=error)
            if hyper == last:
                break
        return hyper, float(error(hyper))

    def fit(self, hyper):
        """Return the fit of this choice."""
        alpha = lapack.dpotrs(self.factor(hyper), self.targets, lower=1)[0]
        rotate = self.rotation(hyper)
        return Fit(
            hyper=hyper,
            error=np.nan,
            log_inputs=self.log_inputs,
            log_outputs=self.log_outputs,
            centre=self.centre,
            whiten=self.whiten,
            rotate=rotate,
            trends=self.trends(hyper),
            v=self.v,
            u=self.v @ rotate.T,
            mean=self.mean + CONSTANT * alpha.sum(axis=0) * self.scale,
            weights=alpha * self.scale,
        )


def factor_of(k):
    """Return the Cholesky factor of K, which gets more noise where rounding forbids that."""
    jitter = JITTER * np.trace(k) / len(k)
    while True:
        factor, failed = lapack.dpotrf(k, lower=1)
        if not failed:
            return factor
        k[np.diag_indices(len(k))] += jitter
        jitter *= 10


def criterion(errors, omega):
    """Return a mean of errors in which neither the large nor the good ones are all that counts."""
    return omega @ np.log1p(errors**2) / omega.sum()


def _whitening(g, omega):
    """Return the centre and W, zero for coordinates that do not vary."""
    p = g.shape[1]
    total = omega.sum()
    centre = omega @ g / total
    varies = np.ptp(g, axis=0) > 1e-13 * np.abs(g).max(axis=0)
    whiten = np.zeros((p, p))
    if not varies.any():
        return centre, whiten
    deviations = g[:, varies] - centre[varies]
    sd = np.sqrt(omega @ deviations**2 / total)
    sd = np.where(sd > 0, sd, 1.0)
    scaled = deviations / sd
    correlation = (scaled * omega[:, None]).T @ scaled / total
    n_effective = total**2 / np.sum(omega**2)
    shrink = min(1.0, varies.sum() / n_effective)
    correlation *= 1 - shrink
    correlation[np.diag_indices(len(sd))] = 1.0
    inverse = np.linalg.inv(np.linalg.cholesky(correlation))
    whiten[np.ix_(varies, varies)] = inverse / sd
    return centre, whiten


def have_logarithms(columns):
    """Return of which columns logarithms may be taken."""
    low, high = columns.min(axis=0), columns.max(axis=0)
    return (low > 0) & (high > 1.5 * low)


def transformed(columns, are_logarithms):
    """Return columns, or their logarithms; NaN for that of what is not positive."""
    logs = np.full(columns.shape, np.nan)
    np.log(columns, out=logs, where=columns > 0)
    return np.where(are_logarithms, logs, columns)


def covariance(dots, distances, trends):
    """Return the kernel but for its constant."""
    return trends[0] * dots + trends[1] * dots**2 + np.exp(-distances / 2)


def squared_distances(a, b):
    """Return |a_i − b_j|² of rows."""
    squares = np.sum(a * a, axis=1)[:, None] + np.sum(b * b, axis=1)
    return np.maximum(squares - 2 * a @ b.T, 0)


def _quadratic_distances(v, matrix):
    """Return (v_i − v_j)ᵀ M (v_i − v_j)."""
    products = v @ matrix @ v.T
    squares = np.diag(products)
    return squares[:, None] + squares - 2 * products
