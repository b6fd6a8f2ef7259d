"""Gaussian process classification: an unbiased estimate of the marginal likelihood, as an `Op`.

    python gp_classification.py [--data DIRECTORY]      what it costs, beside a bare Laplace fit

y_i = ±1 has the probability σ(y_i f_i), σ(z) = 1/(1 + exp(−z)), and f ~ N(0, K) with

    K_ij = exp(−½ Σ_d (x_id − x_jd)²/ℓ_d²) + ridge · δ_ij,     θ_d = log ℓ_d².

p(y|θ) = ∫ p(y|f) N(f; 0, K) df is estimated by importance sampling from Laplace's approximation.
All is done by Cholesky factors of well-conditioned matrices, with f = Cu, CCᵀ = K, u ~ N(0, I):

- Newton's method for the mode [RW, algorithm 3.1] takes one factor per step, that of I + W^½ K W^½;
- in u the approximation is N(û, A⁻¹), A = I + CᵀWC = LLᵀ, drawn as u = û + L⁻ᵀξ, ξ ~ N(0, I);
- the log-weight of a draw is Σ log σ(y_i f_i) − ½|u|² + ½|ξ|² − ½ log|A|.

Any û and W make the estimate unbiased, so Newton's method may stop early.

[RW] Rasmussen & Williams, Gaussian processes for machine learning, 2006.
"""

import argparse
import ctypes
import time

import numba
import numpy as np
import pytensor.tensor as pt
from numba.extending import get_cython_function_address
from pytensor.graph import Apply, Op
from pytensor.link.numba.dispatch.basic import numba_funcify, numba_njit
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits

RIDGE = 1e-3
"""Added to the diagonal of K."""

LEAST_GAIN = 1e-3
"""Of the log posterior of f, where Newton's method ends."""

MOST_STEPS, HALVINGS = 50, 10
"""Of Newton's method, and of one of its steps."""


class LogMarginalLikelihood(Op):
    """Logarithm of an estimate of p(y|θ), of (θ (d,), x (n, d), y (n,), seed).

    Parameters
    ----------
    n_samples : int
        Importance samples.
    """

    __props__ = ("n_samples",)

    def __init__(self, n_samples=100):
        self.n_samples = n_samples

    def make_node(self, theta, x, y, seed):
        """Take θ, x and y as float64, and the seed as int64."""
        inputs = [pt.as_tensor(value).astype("float64") for value in (theta, x, y)]
        inputs.append(pt.as_tensor(seed).astype("int64"))
        return Apply(self, inputs, [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        """Call the compiled function from Python."""
        theta, x, y, seed = inputs
        value = log_estimate(*map(np.ascontiguousarray, (theta, x, y)), int(seed), self.n_samples)
        outputs[0][0] = np.array(value)


@numba_funcify.register(LogMarginalLikelihood)
def _compiled(op, **kwargs):
    n_samples = op.n_samples

    @numba_njit
    def log_marginal_likelihood(theta, x, y, seed):
        theta, x, y = np.ascontiguousarray(theta), np.ascontiguousarray(x), np.ascontiguousarray(y)
        return np.asarray(log_estimate(theta, x, y, seed.item(), n_samples))

    return log_marginal_likelihood


# ---- LAPACK, on matrices in the order of C ------------------------------------------------------

# What Fortran takes for an upper triangle is a lower one here, and its transpose.

_PATHS = {"potrf": 5, "lauum": 5, "trsm": 11, "trmm": 11}


def _function(name):
    library = "lapack" if _PATHS[name] == 5 else "blas"
    address = get_cython_function_address(f"scipy.linalg.cython_{library}", f"d{name}")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * _PATHS[name])(address)


_potrf, _lauum, _trsm, _trmm = map(_function, _PATHS)


@numba.njit
def _letters(a, b=0, c=0, d=0):
    letters = np.empty((4, 1), np.uint8)
    letters[0], letters[1], letters[2], letters[3] = a, b, c, d
    return letters


@numba.njit
def cholesky(a):
    """Replace the lower triangle of a positive definite matrix by its factor L, a = LLᵀ."""
    n, info, letters = np.array([len(a)], np.int32), np.zeros(1, np.int32), _letters(ord("U"))
    _potrf(letters.ctypes, n.ctypes, a.ctypes, n.ctypes, info.ctypes)
    return info[0] == 0


@numba.njit
def square(factor):
    """Replace a lower triangle G by that of GᵀG."""
    n, info, letters = np.array([len(factor)], np.int32), np.zeros(1, np.int32), _letters(ord("U"))
    _lauum(letters.ctypes, n.ctypes, factor.ctypes, n.ctypes, info.ctypes)


@numba.njit
def multiply_rows(factor, rows):
    """Replace each row v (m, n) by Gv."""
    _each_row(_trmm, ord("T"), factor, rows)


@numba.njit
def solve_rows(factor, rows):
    """Replace each row v (m, n) by G⁻ᵀv."""
    _each_row(_trsm, ord("N"), factor, rows)


@numba.njit
def _each_row(function, transposed, factor, rows):
    letters = _letters(ord("L"), ord("U"), transposed, ord("N"))
    side, triangle, how, diagonal = letters[0], letters[1], letters[2], letters[3]
    m, n = np.array([len(rows)], np.int32), np.array([len(factor)], np.int32)
    one = np.ones(1)
    function(
        side.ctypes,
        triangle.ctypes,
        how.ctypes,
        diagonal.ctypes,
        n.ctypes,
        m.ctypes,
        one.ctypes,
        factor.ctypes,
        n.ctypes,
        rows.ctypes,
        n.ctypes,
    )


# ---- the estimate -------------------------------------------------------------------------------


@numba.njit(error_model="numpy")
def log_estimate(theta, x, y, seed, n_samples):
    """Logarithm of an unbiased estimate of p(y|θ); -inf if K cannot be factored.

    All its matrices are one array, which the system's allocator does not give back and fetch again
    at each call, as it does several large ones: that would take longer than all the rest.
    """
    n = y.size
    room = np.empty((2 * n + n_samples, n))
    factor, precision, samples = room[:n], room[n : 2 * n], room[2 * n :]
    kernel_matrix(theta, x, factor)
    f, a, _ = mode(factor, y, precision)
    if not cholesky(factor):
        return -np.inf
    u = np.zeros(n)
    for i in range(n):
        root = np.sqrt(weight(f[i]))
        for j in range(i + 1):
            u[j] += factor[i, j] * a[i]
            precision[i, j] = root * factor[i, j]
    square(precision)
    for i in range(n):
        precision[i, i] += 1.0
    cholesky(precision)
    fill_with_normals(samples, seed)
    return log_mean_weight(factor, u, precision, y, samples)


@numba.njit(error_model="numpy")
def log_mean_weight(factor, u, precision_factor, y, samples):
    """Return the log of the mean weight of samples from N(û, A⁻¹), made of normals (m, n)."""
    n_samples, n = samples.shape
    log_weights = np.empty(n_samples)
    for k in range(n_samples):
        log_weights[k] = 0.5 * squared_norm(samples[k])
    solve_rows(precision_factor, samples)
    for k in range(n_samples):
        for i in range(n):
            samples[k, i] += u[i]
        log_weights[k] -= 0.5 * squared_norm(samples[k])
    multiply_rows(factor, samples)
    largest = -np.inf
    for k in range(n_samples):
        log_weights[k] += log_likelihood(samples[k], y)
        largest = max(largest, log_weights[k])
    half_log_determinant = 0.0
    for i in range(n):
        half_log_determinant += np.log(precision_factor[i, i])
    total = np.exp(log_weights - largest).sum()
    return largest + np.log(total / n_samples) - half_log_determinant


@numba.njit
def fill_with_normals(out, seed):
    """Write standard normal numbers (m, n), from numba's generator of this thread."""
    np.random.seed(seed % 2**32)  # noqa: NPY002, as compiled code cannot make a Generator
    for k in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[k, i] = np.random.standard_normal()  # noqa: NPY002


@numba.njit(fastmath={"reassoc", "contract", "nsz"})
def squared_norm(v):
    """Return |v|²."""
    total = 0.0
    for value in v:
        total += value * value
    return total


@numba.njit(fastmath={"reassoc", "contract", "nsz"})
def kernel_matrix(theta, x, covariance):
    """Write K (n, n)."""
    n, d = x.shape
    columns, scales = np.ascontiguousarray(x.T), np.exp(-theta)
    for i in range(n):
        row = covariance[i]
        row[:] = 0.0
        for k in range(d):
            for j in range(i):
                difference = columns[k, i] - columns[k, j]
                row[j] += scales[k] * difference * difference
        for j in range(i):
            row[j] = np.exp(-0.5 * row[j])
            covariance[j, i] = row[j]
        row[i] = 1.0 + RIDGE


@numba.njit(error_model="numpy")
def log_likelihood(f, y):
    """Return Σ log σ(y_i f_i), with one logarithm for many of them."""
    total, product = 0.0, 1.0
    for i in range(y.size):
        z = y[i] * f[i]
        total += min(z, 0.0)
        product *= 1.0 + np.exp(-abs(z))
        if product > 1e300:
            total -= np.log(product)
            product = 1.0
    return total - np.log(product)


@numba.njit(error_model="numpy")
def weight(f):
    """Return minus the second derivative of log σ(yf), the same for y = 1 and -1."""
    e = np.exp(-abs(f))
    return e / (1.0 + e) ** 2


@numba.njit(error_model="numpy")
def mode(covariance, y, matrix):
    """Return where p(y|f) N(f; 0, K) is largest, f and a = K⁻¹f, and the steps that it took.

    `matrix` (n, n) is scratch.
    """
    n = y.size
    f, a, objective = np.zeros(n), np.zeros(n), n * np.log(0.5)
    root, b = np.empty(n), np.empty(n)
    n_steps, gain = 0, np.inf
    while gain >= LEAST_GAIN and n_steps < MOST_STEPS:
        n_steps += 1
        for i in range(n):
            w = weight(f[i])
            root[i] = np.sqrt(w)
            b[i] = w * f[i] + y[i] / (1.0 + np.exp(y[i] * f[i]))
            for j in range(i):
                matrix[i, j] = root[i] * root[j] * covariance[i, j]
            matrix[i, i] = 1.0 + w * covariance[i, i]
        cholesky(matrix)
        new = np.dot(covariance, b) * root
        solve(matrix, new)
        new = b - root * new
        for _ in range(HALVINGS):
            new_f = np.dot(covariance, new)
            now = log_likelihood(new_f, y) - 0.5 * np.dot(new, new_f)
            if now >= objective:
                break
            new = 0.5 * (new + a)
        gain = now - objective
        if gain < 0.0:
            break
        f, a, objective = new_f, new, now
    return f, a, n_steps


@numba.njit(error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def solve(factor, v):
    """Replace v by (LLᵀ)⁻¹v."""
    n = v.size
    for i in range(n):
        total = 0.0
        for j in range(i):
            total += factor[i, j] * v[j]
        v[i] = (v[i] - total) / factor[i, i]
    for i in range(n - 1, -1, -1):
        v[i] /= factor[i, i]
        for j in range(i):
            v[j] -= factor[i, j] * v[i]


# ---- what it costs ------------------------------------------------------------------------------


def bare_fit(covariance, y, n_steps):
    """Make Newton's steps with NumPy and LAPACK, from a matrix that is there, and nothing else."""
    f, positive = np.zeros(len(y)), (y + 1) / 2
    diagonal = np.arange(len(y))
    for _ in range(n_steps):
        p = 1 / (1 + np.exp(-f))
        w = p * (1 - p)
        root = np.sqrt(w)
        matrix = root[:, None] * covariance * root
        matrix[diagonal, diagonal] += 1
        factor, _ = lapack.dpotrf(matrix.T, overwrite_a=True, clean=False)
        b = w * f + positive - p
        solved, _ = lapack.dpotrs(factor, root * (covariance @ b))
        f = covariance @ (b - root * solved)
    return f


def main():
    """Print what an estimate takes, and a bare Laplace fit, in CPU time of one thread."""
    import kam_glass  # which imports this file
    from gad_targets import add_data_option

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_data_option(parser)
    x, y = kam_glass.load(parser.parse_args().data)
    theta = np.random.default_rng(1).normal(1.5, 1, x.shape[1])
    covariance = np.empty((len(y), len(y)))
    kernel_matrix(theta, x, covariance)
    _, _, n_steps = mode(covariance, y, np.empty_like(covariance))
    fit, estimate = [], []
    with threadpool_limits(1):
        for seed in range(310):
            fit.append(seconds(bare_fit, covariance, y, n_steps))
            estimate.append(seconds(log_estimate, theta, x, y, seed, 100))
    fit, estimate = np.median(fit[10:]), np.median(estimate[10:])
    print(f"n = {len(y)}, {n_steps} Newton steps, 100 samples; median of 300")
    print(f"bare Laplace fit, NumPy and LAPACK, K given   {1e3 * fit:.2f} ms")
    print(f"estimate                                      {1e3 * estimate:.2f} ms")
    print(f"ratio                                         {estimate / fit:.2f}")


def seconds(function, *arguments):
    """Return the CPU time of a call."""
    start = time.thread_time()
    function(*arguments)
    return time.thread_time() - start


if __name__ == "__main__":
    main()
