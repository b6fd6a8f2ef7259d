"""Gaussian process classification: an unbiased estimate of the marginal likelihood, as an `Op`.

y_i = ±1 has the probability σ(y_i f_i), σ(z) = 1/(1 + exp(−z)), and f ~ N(0, K) with

    K_ij = exp(−½ Σ_d (x_id − x_jd)²/ℓ_d²) + ridge · δ_ij,     θ_d = log ℓ_d².

p(y|θ) = ∫ p(y|f) N(f; 0, K) df is estimated by importance sampling from Laplace's approximation.
With f = Cu, CCᵀ = K, u ~ N(0, I):

- Newton's method finds the mode û [RW, algorithm 3.1];
- in u the approximation is N(û, A⁻¹), A = I + CᵀWC = LLᵀ, drawn as u = û + L⁻ᵀξ, ξ ~ N(0, I);
- the log-weight of a draw is Σ log σ(y_i f_i) − ½|u|² + ½|ξ|² − ½ log|A|.

Any û and W make the estimate unbiased, so Newton's method may stop early.

[RW] Rasmussen & Williams, Gaussian processes for machine learning, 2006.
"""

import numba
import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Apply, Op
from pytensor.link.numba.dispatch.basic import numba_funcify, numba_njit

RIDGE = 1e-3
"""Added to the diagonal of K."""

LEAST_GAIN = 1e-3
"""Of the log posterior of f, where Newton's method ends."""

MOST_STEPS, HALVINGS = 50, 10
"""Of Newton's method, and of one of its steps."""


class LogMarginalLikelihood(Op):
    """Log of an estimate of p(y|θ) by importance samples, of (θ (d,), x (n, d), y (n,), seed)."""

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


@numba.njit(error_model="numpy")
def log_estimate(theta, x, y, seed, n_samples):
    """Return the logarithm of an unbiased estimate of p(y|θ); -inf if K is not finite."""
    covariance = kernel_matrix(theta, x)
    if not np.isfinite(covariance).all():
        return -np.inf
    f, a = mode(covariance, y)
    factor = np.linalg.cholesky(covariance)
    scaled = np.sqrt(weight(f)).reshape(-1, 1) * factor
    of_precision = np.linalg.cholesky(np.eye(y.size) + scaled.T @ scaled)

    np.random.seed(seed % 2**32)  # noqa: NPY002, as compiled code cannot make a Generator
    normals = np.random.standard_normal((y.size, n_samples))  # noqa: NPY002
    u = (factor.T @ a).reshape(-1, 1) + np.linalg.solve(of_precision.T, normals)
    log_weights = log_likelihood(factor @ u, y.reshape(-1, 1))
    log_weights += ((normals**2).sum(axis=0) - (u**2).sum(axis=0)) / 2
    largest = log_weights.max()
    mean = np.exp(log_weights - largest).mean()
    return largest + np.log(mean) - np.log(np.diag(of_precision)).sum()


@numba.njit
def kernel_matrix(theta, x):
    """Return K (n, n)."""
    scaled = x * np.exp(-theta / 2)
    squares = (scaled**2).sum(axis=1)
    distances = squares.reshape(-1, 1) + squares - 2 * scaled @ scaled.T
    return np.exp(-np.maximum(distances, 0.0) / 2) + RIDGE * np.eye(len(x))


@numba.njit
def log_likelihood(f, y):
    """Return Σ_i log σ(y_i f_i)."""
    return -np.logaddexp(0.0, -y * f).sum(axis=0)


@numba.njit(error_model="numpy")
def weight(f):
    """Return minus the second derivative of log σ(yf), the same for y = 1 and -1."""
    e = np.exp(-np.abs(f))
    return e / (1.0 + e) ** 2


@numba.njit(error_model="numpy")
def mode(covariance, y):
    """Return where p(y|f) N(f; 0, K) is largest, f and a = K⁻¹f."""
    f, a, objective = np.zeros(y.size), np.zeros(y.size), y.size * np.log(0.5)
    for _ in range(MOST_STEPS):
        w = weight(f)
        root = np.sqrt(w)
        b = w * f + y / (1.0 + np.exp(y * f))
        matrix = np.eye(y.size) + root.reshape(-1, 1) * covariance * root
        new = b - root * np.linalg.solve(matrix, root * (covariance @ b))
        for _ in range(HALVINGS):
            new_f = covariance @ new
            gain = log_likelihood(new_f, y) - new @ new_f / 2 - objective
            if gain >= 0.0:
                break
            new = (new + a) / 2
        if gain < 0.0:
            break
        f, a, objective = new_f, new, objective + gain
        if gain < LEAST_GAIN:
            break
    return f, a
