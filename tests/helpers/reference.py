"""What the samplers do, from its definition, in plain numpy: nothing here is fast or compiled."""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.stats import multivariate_normal, multivariate_t
from slow_modes import SlowModes

import pymc_kameleon as pk
from pymc_kameleon.samplers.approximation.moves import SHORT_SHARE, SHORTEST_STEP
from pymc_kameleon.samplers.kameleon import cyclical_kam

# ---- comparison ----------------------------------------------------------------------------


def assert_equal(one, other):
    """Compare tuples of arrays, bit for bit."""
    for name in other._fields:
        a, b = getattr(one, name), getattr(other, name)
        if isinstance(a, tuple):
            assert_equal(a, b)
        else:
            np.testing.assert_array_equal(a, b, name)


# ---- schedules ------------------------------------------------------------------------------


def decayed(schedule, t):
    """Value of a number, or of start · ((delay + t)/delay)^-power, at transition t."""
    if isinstance(schedule, float):
        return schedule
    return schedule.start / ((schedule.delay + t) / schedule.delay) ** schedule.power


# ---- the covariance of the past -------------------------------------------------------------


def seeding_times(d, n_tune, rate=None):
    """Transitions after which mean and Σ are seeded: n_seed, 2 n_seed, … up to half of tuning.

    Only the first of them with a rate of the user.
    """
    n_seed = min(max(100, 20 * d), n_tune // 4 + 1)
    times = [n_seed]
    while rate is None and 2 * times[-1] <= n_tune // 2:
        times.append(2 * times[-1])
    return times


def seed(states, n_seed, sigma):
    """Return mean and covariance of the newest half, blended with Σ if few of it are distinct."""
    d = states.shape[1]
    stride = 1  # the past is thinned to at most 2 n_seed states
    while len(states) // stride > 2 * n_seed:
        stride *= 2
    kept = states[stride - 1 :: stride]
    half = kept[len(kept) // 2 :]
    distinct = len(np.unique(half, axis=0))
    if distinct > 1:
        raw = np.atleast_2d(np.cov(half, rowvar=False, bias=True))
        weight = distinct / (5 * d + 2)
        blended = raw if weight >= 1 else weight * raw + (1 - weight) * sigma
        sigma = blended * (1 + 1e-9 * np.eye(d))
    return half.mean(axis=0), sigma


def am_update(mean, sigma, x, eta):
    """Make one step of Andrieu & Thoms, algorithm 2: v is taken about the old mean."""
    v = x - mean
    return mean + eta * v, sigma + eta * (np.outer(v, v) - sigma)


def rbam_update(mean, sigma, x, y, alpha, eta):
    """Make one step of their algorithm 3, with x before the move: a mean of outer products."""
    v, w = x - mean, y - mean
    products = alpha * np.outer(w, w) + (1 - alpha) * np.outer(v, v)
    return mean + eta * (alpha * w + (1 - alpha) * v), sigma + eta * (products - sigma)


def rate_at(rate, d, t):
    """Return η at transition t: by default a memory of two thirds of the past, 16 d at least."""
    return 1 / max(16 * d, t / 1.5) if rate is None else decayed(rate, t)


def moments(states, n_tune, sigma=None, rate=None):
    """Return mean and Σ after each of the states (n, d); Σ is `sigma` until one can be formed."""
    states = np.asarray(states)
    d = states.shape[1]
    seedings = seeding_times(d, n_tune, rate)
    mean = None
    result = []
    for t, x in enumerate(states):
        if t + 1 in seedings:
            mean, sigma = seed(states[: t + 1], seedings[0], sigma)
        elif mean is not None:
            mean, sigma = am_update(mean, sigma, x, rate_at(rate, d, t))
        result.append((mean, sigma))
    return result


# ---- kernels --------------------------------------------------------------------------------


def kernel_value(kernel, bandwidth, x, z):
    """k(x, z), as its class defines it."""
    if isinstance(kernel, pk.samplers.kernels.Linear):
        return x @ z
    r = np.linalg.norm(x - z)
    if isinstance(kernel, pk.samplers.kernels.Gaussian):
        return np.exp(-(r**2) / (2 * bandwidth**2))
    v = kernel.order
    u = np.sqrt(2 * v) * r / bandwidth
    return 1.0 if u < 1e-8 else 2 ** (1 - v) / special.gamma(v) * u**v * special.kv(v, u)


def kernel_gradients(kernel, bandwidth, x, points):
    """∇ₓk(x, zᵢ) by hand, one in each row; k′ of Matérn's by d/du u^v K_v(u) = -u^v K_{v-1}(u)."""
    if isinstance(kernel, pk.samplers.kernels.Linear):
        return points
    r2 = np.sum((points - x) ** 2, axis=1)
    if isinstance(kernel, pk.samplers.kernels.Gaussian):
        c = np.exp(-r2 / (2 * bandwidth**2)) / bandwidth**2
    else:
        v = kernel.order
        u = np.maximum(np.sqrt(2 * v * r2) / bandwidth, 1e-8)
        kappa = 2 ** (2 - v) / special.gamma(v - 1) * u ** (v - 1) * special.kv(v - 1, u)
        c = v / (bandwidth**2 * (v - 1)) * kappa
    return c[:, None] * (points - x)


@cache
def centring(m):
    """H = I - 11ᵀ/m, in full."""
    return np.eye(m) - np.ones((m, m)) / m


def directions(kernel, bandwidth, x, points):
    """M = 2[∇ₓk(x, z₁) … ∇ₓk(x, z_m)] times H."""
    return 2 * kernel_gradients(kernel, bandwidth, x, points).T @ centring(len(points))


def kernel_covariance(kernel, bandwidth, x, points):
    """S(x) = M H Mᵀ."""
    mh = directions(kernel, bandwidth, x, points)
    return mh @ mh.T


def gram(kernel, bandwidth, points):
    """H K H."""
    k = [[kernel_value(kernel, bandwidth, a, b) for b in points] for a in points]
    h = centring(len(points))
    return h @ np.array(k) @ h


# ---- KAM ------------------------------------------------------------------------------------


class KernelWalk:
    """What KAM or a relative of it has learned, in plain matrices."""

    def __init__(self, step):
        own = step.parameters
        self.parameters = getattr(own, "kam", own)
        subsample = self.parameters.subsample
        self.kernel = step.settings["kernel"]
        self.whitening = np.tril(subsample.shape.factor)
        self.z = subsample.z[:, : subsample.m[0]].T.copy()
        self.bandwidth = subsample.kernel.bandwidth[0]
        self.gamma = np.exp(subsample.shape.log_scale[0])

    def kernel_covariance(self, u):
        """S(u)."""
        return kernel_covariance(self.kernel, self.bandwidth, u, self.z)

    def whitened(self, x):
        """C⁻¹x."""
        return np.linalg.solve(self.whitening, x)

    def follow(self, log_density, positions, start, rng):
        """Make each transition from where the compiled chain was; return new positions and α."""
        before = [start, *positions[:-1]]
        expected, alphas = zip(*(self.transition(log_density, x, rng) for x in before), strict=True)
        return np.array(expected), np.array(alphas)


class KAM(KernelWalk):
    """KAM after tuning."""

    def __init__(self, step):
        super().__init__(step)
        self.nu = self.parameters.nu0[0] * np.exp(self.parameters.log_rho[0])

    def covariance(self, x, gamma):
        """C (γ²I + ν² M H Mᵀ) Cᵀ."""
        s = self.kernel_covariance(self.whitened(x))
        return self.whitening @ (gamma**2 * np.eye(x.size) + self.nu**2 * s) @ self.whitening.T

    def transition(self, log_density, x, rng, gamma=None):
        """Propose from q(·|x) and accept by log q both ways; return the new x and α."""
        gamma = self.gamma if gamma is None else gamma
        here = self.covariance(x, gamma)
        y = x + np.linalg.cholesky(here) @ rng.standard_normal(x.size)
        log_u = -rng.standard_exponential()
        log_ratio = log_density(y) - log_density(x)
        log_ratio += multivariate_normal.logpdf(x, y, self.covariance(y, gamma))
        log_ratio -= multivariate_normal.logpdf(y, x, here)
        return (y if log_u < log_ratio else x), np.exp(min(0.0, log_ratio))


class PCAKAM(KernelWalk):
    """PCAKAM after tuning."""

    def __init__(self, step):
        super().__init__(step)
        parameters = step.parameters
        self.alpha = parameters.directions[:, : len(self.z)].copy()
        self.omega = parameters.probabilities.copy()
        self.nu = np.exp(parameters.log_nu0 + parameters.log_rho)

    def direction(self, x, j):
        """M H α_j, in whitened coordinates."""
        return directions(self.kernel, self.bandwidth, self.whitened(x), self.z) @ self.alpha[j]

    def covariance(self, x, j):
        """C (γ²I + ν_j² M H α_j (M H α_j)ᵀ) Cᵀ."""
        w = self.direction(x, j)
        inside = self.gamma**2 * np.eye(x.size) + self.nu[j] ** 2 * np.outer(w, w)
        return self.whitening @ inside @ self.whitening.T

    def log_q(self, y, x, j):
        """Log density of y given x and j."""
        return multivariate_normal.logpdf(y, x, self.covariance(x, j))

    def transition(self, log_density, x, rng):
        """Draw j, propose along w_j, and accept by q_j."""
        left = rng.random()
        j = min(np.searchsorted(np.cumsum(self.omega), left, side="right"), self.omega.size - 1)
        along = self.nu[j] * rng.standard_normal() * self.direction(x, j)
        y = x + self.whitening @ (along + self.gamma * rng.standard_normal(x.size))
        log_u = -rng.standard_exponential()
        log_ratio = log_density(y) - log_density(x)
        log_ratio += self.log_q(x, y, j) - self.log_q(y, x, j)
        return (y if log_u < log_ratio else x), np.exp(min(0.0, log_ratio))


# ---- CyclicalKAM ----------------------------------------------------------------------------


class CyclicalKAM(KAM):
    """CyclicalKAM after tuning, with the place in the cycle where the compiled one is."""

    def __init__(self, step):
        super().__init__(step)
        clusters, n = step.parameters.clusters, step.parameters.clusters.n[0]
        self.weights = np.exp(clusters.log_weights[:n])
        self.means = clusters.means[:n].copy()
        self.factors = np.tril(clusters.factors[:n])
        self.maps = step.parameters.maps[: step.parameters.n_maps[0]]
        self.sigma = np.tril(step.parameters.global_factor)
        self.sigma = self.sigma @ self.sigma.T
        self.length = step.settings["cycle_length"]
        self.n_exploration = int(step.settings["beta"] * self.length + 1e-9)
        self.position = int(step.state.position[0])
        self.moves = []

    def ladder(self, t):
        """γ of the t-th transition of a cycle: from 20 s to γ = 0.25 (2.38/√d) s, geometrically."""
        widest = 20 * self.gamma * np.sqrt(self.whitening.shape[0]) / (0.25 * 2.38)
        return widest * (self.gamma / widest) ** (t / max(1, self.n_exploration - 1))

    def responsibilities(self, x):
        """r(·|x) of the mixture of normals."""
        densities = [
            w * multivariate_normal.pdf(x, mean, factor @ factor.T)
            for w, mean, factor in zip(self.weights, self.means, self.factors, strict=True)
        ]
        return densities / np.sum(densities)

    def jump(self, x, rng):
        """Map x from the mode i to j; return it and the log of its ratio but for π."""
        n = len(self.means)
        r = self.responsibilities(x)
        i = min(np.searchsorted(np.cumsum(r), rng.random(), side="right"), n - 1)
        v = self.weights + 1 / n
        others = np.delete(np.arange(n), i)
        ends = np.cumsum(v[others])
        j = others[np.searchsorted(ends, rng.random() * ends[-1], side="right")]
        forth, to = v[j] / (v.sum() - v[i]), v[i] / (v.sum() - v[j])
        a, b = self.factors[i], self.factors[j]
        y = self.means[j] + b @ np.linalg.inv(a) @ (x - self.means[i])
        back = self.responsibilities(y)[j] * to * np.linalg.det(b)
        return y, np.log(back / (r[i] * forth * np.linalg.det(a)))

    def difference(self, x, rng):
        """Add a difference of two points of z, and γCξ, in all coordinates, one of Cx, or of x."""
        m, d = self.z.shape
        a = int(rng.random() * m)
        b = (a + 1 + int(rng.random() * (m - 1))) % m
        i, kind = int(rng.random() * d), self.kind
        move = np.zeros(d)
        whitened = [i] if kind == 1 else np.arange(d)
        move[whitened] = (self.z[a] - self.z[b])[whitened]
        move[whitened] += self.gamma * rng.standard_normal(len(whitened))
        move = self.whitening @ move
        return x + (np.eye(d)[i] * move if kind == 2 else move), 0.0

    def mirror(self, x, rng):
        """Map x by a symmetry."""
        return self.maps[int(rng.random() * len(self.maps))] @ x, 0.0

    def walk(self, x, rng):
        """N(x, 2.38²/d Σ)."""
        factor = np.linalg.cholesky(2.38**2 / x.size * self.sigma)
        return x + factor @ rng.standard_normal(x.size), 0.0

    def choose(self, rng):
        """Draw a move of exploration: a method that proposes, or None for KAM's."""
        if len(self.means) > 1 and rng.random() < cyclical_kam.JUMP_SHARE:
            return self.jump
        if len(self.maps) and rng.random() < cyclical_kam.MIRROR_SHARE:
            return self.mirror
        self.kind = int(rng.random() * 5)
        return (self.difference, self.difference, self.difference, self.walk, None)[self.kind]

    def transition(self, log_density, x, rng):
        """Make the move that is due."""
        t, self.position = self.position, (self.position + 1) % self.length
        explores = t < self.n_exploration
        propose = self.choose(rng) if explores else None
        self.moves.append(propose.__name__ if propose else "ladder" if explores else "kam")
        if propose is None:
            return super().transition(log_density, x, rng, self.ladder(t) if explores else None)
        y, log_ratio = propose(x, rng)
        log_ratio += log_density(y) - log_density(x)
        if log_ratio == -np.inf:
            return x, 0.0
        return (y if -rng.standard_exponential() < log_ratio else x), np.exp(min(0.0, log_ratio))


class PublishedCyclicalKAM:
    """A chain of cKAM [Li, Zeng & Guo, algorithm 2] from x on, Exploration included.

    Yields x after each transition of Sampling, with α, ν_t and ν_exp.
    """

    def __init__(self, step):
        self.settings = step.settings
        self.kernel = step.settings["kernel"]
        self.target_accept = step.target_accept

    def chain(self, log_density, x, rng):
        """Make cycle after cycle."""
        length, beta = self.settings["cycle_length"], self.settings["beta"]
        n_exploration = int(beta * length + 1e-9)
        while True:
            x, nu_exp, sigma = self.explore(log_density, x, rng, n_exploration)
            nu0 = 2 * nu_exp / (np.cos(beta * np.pi) + 1)
            factor = np.linalg.cholesky(sigma)
            for t in range(n_exploration, length):
                nu = nu0 / 2 * (np.cos(np.pi * t / length) + 1)
                y = x + nu * factor @ rng.standard_normal(x.size)
                log_ratio = log_density(y) - log_density(x)
                x = y if -rng.standard_exponential() < log_ratio else x
                yield x, np.exp(min(0.0, log_ratio)), nu, nu_exp

    def explore(self, log_density, x, rng, n):
        """KAM with γ_t, ν adapted, and z from this Exploration; return x, ν and Σ at its end."""
        nu = 2 * 2.38 / np.sqrt(x.size)
        past = []
        for t in range(n):
            past.append(x)
            if t == 0 or rng.random() < (1 + t) ** -0.2:
                z = self.subsample(past, rng)
            gamma = decayed(self.settings["gamma"], t)
            x, reported = self.move(log_density, x, z, gamma, nu, rng)
            nu = np.exp(np.log(nu) + (1 + t) ** -0.75 * (reported - self.target_accept))
        s = kernel_covariance(self.kernel, self.kernel.bandwidth, x, z)
        return x, nu, (gamma / nu) ** 2 * np.eye(x.size) + s

    def subsample(self, past, rng):
        """Draw min(m, t+1) of the states so far, by the first swaps of a shuffle."""
        past = list(past)
        m = min(len(past), self.settings["n_subsample"])
        for i in range(m):
            j = i + int(rng.random() * (len(past) - i))
            past[i], past[j] = past[j], past[i]
        return np.array(past[:m])

    def move(self, log_density, x, z, gamma, nu, rng):
        """Make a KAM move; return the new x and what it reports of α.

        That is 0 where even the largest q(x|y) of any R ≥ γ²I rejects, and else α over what that
        bound would accept with.
        """
        d = x.size

        def q(at):
            s = kernel_covariance(self.kernel, self.kernel.bandwidth, at, z)
            return multivariate_normal(at, gamma**2 * np.eye(d) + nu**2 * s)

        y = x + np.linalg.cholesky(q(x).cov) @ rng.standard_normal(d)
        log_u = -rng.standard_exponential()
        log_ratio = log_density(y) - log_density(x) - q(x).logpdf(y)
        distance2 = np.sum((y - x) ** 2)
        widest = max(gamma**2, distance2)  # the variance along y − x that is best
        bound = -d / 2 * np.log(2 * np.pi) - (d - 1) * np.log(gamma) - np.log(widest) / 2
        cap = log_ratio + bound - distance2 / widest / 2
        if log_u >= cap:
            return x, 0.0
        log_ratio += q(y).logpdf(x)
        reported = np.exp(min(0.0, log_ratio) - min(0.0, cap))
        return (y if log_u < log_ratio else x), min(1.0, reported)


# ---- CMH and CMTM ---------------------------------------------------------------------------


class Move(NamedTuple):
    """What became of a coordinate.

    x and log π(x) after it, α, what is reported of it, the try selected or -1, whether it was
    accepted, how many points were evaluated, how far each try alone would be expected to move,
    squared, and the acceptance probability of the widest alone.
    """

    x: np.ndarray
    log_p: float
    alpha: float
    reported: float
    selected: int
    accepted: float
    n_evaluated: int
    squares: np.ndarray
    widest: float = 0.0


def with_coordinate(x, k, z):
    """Return x with z for its coordinate k."""
    y = np.array(x)
    y[k] = z
    return y


def metropolis(log_density, x, log_p, k, scale, rng, accepts):
    """Propose N(x_k, scale²) for x_k; accepts(log_ratio, rng) decides."""
    y = with_coordinate(x, k, x[k] + scale * rng.standard_normal())
    log_p_y = log_density(y)
    log_ratio = log_p_y - log_p
    accepted = bool(accepts(log_ratio, rng))
    alpha = np.exp(min(0.0, log_ratio))
    if accepted:
        x, log_p = y, log_p_y
    return Move(x, log_p, alpha, alpha, 0, accepted, 1, np.zeros(1))


def by_exponential(log_ratio, rng):
    """Decide as CMH does: log u is an exponential random number, but for its sign."""
    return -rng.standard_exponential() < log_ratio


def multiple_try(log_density, x, log_p, k, scales, power, rng, patient=False):
    """Update x_k as Yang, Levi, Craiu & Rosenthal do.

    References are drawn until their weights reject; α is then not known, and what is reported is
    to have its mean. With patience all of them are drawn.
    """

    def log_weight(log_p, distance):
        if power == 0:
            return log_p
        return log_p + power * np.log(abs(distance)) if distance != 0 else -np.inf

    m = len(scales)
    tries = [with_coordinate(x, k, x[k] + scale * rng.standard_normal()) for scale in scales]
    log_ps = [log_density(y) for y in tries]
    log_w = [log_weight(p, y[k] - x[k]) for p, y in zip(log_ps, tries, strict=True)]
    alone = np.exp(np.minimum(0.0, np.array(log_ps) - log_p))
    squares = alone * np.array([(y[k] - x[k]) ** 2 for y in tries])
    log_sum = np.logaddexp.reduce(log_w)
    if log_sum == -np.inf:
        return Move(x, log_p, 0.0, 0.0, -1, False, m, squares, alone[-1])
    selection = rng.random()
    s = int(np.flatnonzero(np.cumsum(np.exp(log_w - log_sum)) > selection)[0])
    u = 1 - rng.random()
    y = tries[s]

    log_back, n_evaluated = log_weight(log_p, x[k] - y[k]), m
    for scale in [*scales[:s], *scales[s + 1 :]]:
        cap = np.exp(min(0.0, log_sum - log_back))
        if u >= cap and not patient:
            return Move(x, log_p, np.nan, 0.0, s, False, n_evaluated, squares, alone[-1])
        z = with_coordinate(y, k, y[k] + scale * rng.standard_normal())
        log_back = np.logaddexp(log_back, log_weight(log_density(z), z[k] - y[k]))
        n_evaluated += 1
    alpha = np.exp(min(0.0, log_sum - log_back))
    reported = alpha / cap if m > 1 else alpha
    if u < alpha:
        return Move(y, log_ps[s], alpha, reported, s, True, n_evaluated, squares, alone[-1])
    return Move(x, log_p, alpha, reported, s, False, n_evaluated, squares, alone[-1])


def too_wide(selected, widest):
    """Whether no try was ever selected, or the widest too often although hopeless by itself."""
    often = selected[-1] > 2 * sum(selected) / len(selected)
    return sum(selected) == 0 or (often and widest < 0.05 * sum(selected))


def shifted_ladder(scales, selected, widest, bounds):
    """Double all scales if σ_m is selected too often, halve them if σ_1 is, or all are too wide."""
    limit, factor = 2 * sum(selected) / len(scales), 1.0
    if too_wide(selected, widest) or selected[0] > limit:
        factor = 0.5
    elif selected[-1] > limit:
        factor = 2.0
    moved = factor * np.array(scales)
    return moved if bounds[0] <= moved[0] and moved[-1] <= bounds[1] else np.array(scales)


def adapted_ladder(scales, selected, widest, bounds):
    """Double and halve the ends of a ladder by how often they were selected [CMTM]."""
    m, total = len(scales), sum(selected)
    low, high = scales[0], scales[-1]
    if too_wide(selected, widest):
        low, high = low / 2, high / 2
    else:
        first, last = selected[0] / total, selected[-1] / total
        low *= 1 / 2 if first > 2 / m else 2 if first < 1 / (2 * m) else 1
        high *= 2 if last > 2 / m else 1 / 2 if last < 1 / (2 * m) else 1
    low, high = max(low, bounds[0]), min(high, bounds[1])
    if high < 2 * low and high / low < scales[-1] / scales[0]:
        return np.array(scales)
    if (low, high) == (scales[0], scales[-1]):  # no alarm
        return np.array(scales)
    return np.geomspace(low, high, m)


def single_tries(squares, moved, n_steps, n_evaluated):
    """Return how many single tries replace a multiple one, or 0, and which scale they have.

    They cover 1.5 times the squared distance `moved`, with fewer evaluations.
    """
    best = int(np.argmax(squares))
    if n_steps < 50 or squares[best] == 0:
        return 0, 0
    n = max(1, int(np.ceil(1.5 * moved / squares[best])))
    return (n, best) if n < n_evaluated / n_steps else (0, 0)


class CMTM:
    """A chain of CMTM from x on, which learns its ladders (d, m) for n_tune sweeps."""

    def __init__(self, log_density, x, scales, power=2.9):
        self.log_density = log_density
        self.x, self.log_p = np.array(x), log_density(np.array(x))
        self.scales, self.power = np.array(scales), power
        self.n_single, self.single = np.zeros((2, len(x)), int)
        self.selected, self.accepted = np.zeros((2, *self.scales.shape))
        self.n_evaluated = 0

    def update(self, k, rng):
        """Update a coordinate by a multiple try, or by single ones; return the move."""
        if self.n_single[k] == 0:
            move = multiple_try(
                self.log_density, self.x, self.log_p, k, self.scales[k], self.power, rng
            )
            self.x, self.log_p = move.x, move.log_p
            return move
        s, moves = self.single[k], []
        for _ in range(self.n_single[k]):
            move = metropolis(
                self.log_density, self.x, self.log_p, k, self.scales[k, s], rng, by_exponential
            )
            self.x, self.log_p = move.x, move.log_p
            moves.append(move)
        alpha = np.mean([move.alpha for move in moves])
        accepted = np.mean([move.accepted for move in moves])
        return move._replace(
            alpha=alpha, reported=alpha, accepted=accepted, selected=s, n_evaluated=len(moves)
        )

    def sweep(self, rng):
        """Update each coordinate; return the moves in the order of the coordinates."""
        moves = [None] * len(self.x)
        for k in range(len(self.x)):
            moves[k] = move = self.update(k, rng)
            if move.selected >= 0:
                self.selected[k, move.selected] += 1
                self.accepted[k, move.selected] += move.accepted
            self.n_evaluated += move.n_evaluated
        return moves

    def tune(self, n, rng, adapt_every, n_shifting=0, bounds=None, fewer_tries=False):
        """Make n sweeps that tune; return positions, and the scales after each.

        In the first n_shifting whole ladders are shifted every 2m-th sweep. Then, at the r-th point
        of adaptation, one coin decides whether they are adapted to what happened since the last. At
        the end single tries may replace multiple ones, by what was seen since the ladder changed,
        which must not happen in the last 50 sweeps then.
        """
        if bounds is None:
            bounds = [(1e-6 * row[0], 1e6 * row[-1]) for row in self.scales]
        d, r, positions, scales = len(self.x), 0, [], []
        since, widest = np.zeros_like(self.selected), np.zeros(d)
        seen = [[] for _ in range(d)]
        for t in range(1, n + 1):
            before = self.x
            for k, move in enumerate(self.sweep(rng)):
                moved = (self.x[k] - before[k]) ** 2
                seen[k].append((moved, move.n_evaluated, *move.squares))
                widest[k] += move.widest
                if move.selected >= 0:
                    since[k, move.selected] += 1
            change = None
            if t <= n_shifting:
                restart = t % (2 * self.scales.shape[1]) == 0
                change = shifted_ladder if restart else None
            else:
                restart = (t - n_shifting) % adapt_every == 0
                restart &= not fewer_tries or n - t >= 50
                r += restart
                if restart and rng.random() < max(0.99 ** (r - 1), r**-0.5):
                    change = adapted_ladder
            if change is not None:
                old, rows = self.scales, zip(self.scales, since, widest, bounds, strict=True)
                self.scales = np.array([change(*row) for row in rows])
                for k in np.flatnonzero((self.scales != old)[:, [0, -1]].any(axis=1)):
                    seen[k] = []
            if restart:
                since[:] = widest[:] = 0
            positions.append(self.x)
            scales.append(self.scales)
        for k in range(d) if fewer_tries else ():
            moved, n_evaluated, *squares = np.sum(seen[k], axis=0) if seen[k] else (0, 0, 0)
            self.n_single[k], self.single[k] = single_tries(
                squares, moved, len(seen[k]), n_evaluated
            )
        return np.array(positions), np.array(scales)


def tuned_cmh(log_density, x, n, log_scales, rng, target=0.44, bounds=None):
    """Make n sweeps of componentwise Metropolis that tune; return positions, and log σ after each.

    The steps are 1 in the first quarter; then log σ_k settles at the mean of the second half.
    """
    log_scales = np.array(log_scales)
    if bounds is None:
        bounds = log_scales[:, None] + np.log([1e-6, 1e6])
    log_p, positions, path = log_density(x), [], []
    for t in range(n):
        alphas = np.empty(len(x))
        for k in range(len(x)):
            scale = np.exp(log_scales[k])
            move = metropolis(log_density, x, log_p, k, scale, rng, by_exponential)
            x, log_p, alphas[k] = move.x, move.log_p, move.alpha
        step = 1.0 if t < n // 4 else (11 + t - n // 4) ** -0.6
        log_scales = np.clip(log_scales + step * (alphas - target), *bounds.T)
        positions.append(x)
        path.append(log_scales)
    path[-1] = np.mean(path[min(n // 2, n - 1) :], axis=0)
    return np.array(positions), np.array(path)


# ---- MALA, GadRWM and GadMALA ---------------------------------------------------------------
# A target is a function that returns the log-density and its gradient.


class Jump(NamedTuple):
    """A proposal and what became of it; log r is -inf where anything is not finite."""

    x: np.ndarray
    log_p: float
    gradient: np.ndarray
    y: np.ndarray
    log_p_y: float
    gradient_y: np.ndarray
    xi: np.ndarray
    log_ratio: float
    accepted: bool

    @property
    def alpha(self):
        return np.exp(min(0.0, self.log_ratio))

    @property
    def new(self):
        return self.y if self.accepted else self.x

    @property
    def teaches(self):
        """Whether adaptation can learn from it."""
        return self.log_ratio > -np.inf and np.isfinite(self.gradient_y).all()


def jump(target, x, xi, propose, rng):
    """Accept or reject y, where propose(x, ξ) is y and log r."""
    with np.errstate(all="ignore"):
        y, log_ratio = propose(x, xi)
    log_p_y, gradient_y = target(y)
    if not (np.isfinite(log_p_y) and log_ratio < np.inf):
        log_ratio = -np.inf
    accepted = bool(-rng.standard_exponential() < log_ratio)
    return Jump(x, *target(x), y, log_p_y, gradient_y, xi, log_ratio, accepted)


def langevin(target, x, factor, rng):
    """Propose N(x + ½LLᵀ∇log π(x), LLᵀ), and accept by the densities of both ways."""
    covariance = factor @ factor.T

    def log_q(to, start):
        """But for a constant."""
        v = np.linalg.solve(factor, to - start - covariance @ target(start)[1] / 2)
        return -v @ v / 2

    def propose(x, xi):
        y = x + covariance @ target(x)[1] / 2 + factor @ xi
        return y, target(y)[0] - target(x)[0] + log_q(x, y) - log_q(y, x)

    return jump(target, x, rng.standard_normal(x.size), propose, rng)


def walk(target, x, factor, rng):
    """Propose N(x, LLᵀ)."""

    def propose(x, xi):
        y = x + factor @ xi
        return y, target(y)[0] - target(x)[0]

    return jump(target, x, rng.standard_normal(x.size), propose, rng)


def leapfrog(target, x, momentum, covariance, n):
    """Make n leapfrog steps of length 1, the mass being the inverse of `covariance`.

    Returns where it ends, the momentum, and whether it never left the support; if so, it stops.
    """
    for _ in range(n):
        momentum = momentum + target(x)[1] / 2
        x = x + covariance @ momentum
        if not np.isfinite(target(x)[0]):
            return x, momentum, False
        momentum = momentum + target(x)[1] / 2
    return x, momentum, True


def hamiltonian(target, x, factor, n_leapfrog, rng):
    """Make k leapfrog steps, k uniform in ⌊K/2⌋+1 … K, and accept by the energy; K = 1 is MALA."""
    n, half = 1, n_leapfrog // 2
    if n_leapfrog > 1:
        n = half + 1 + int(rng.random() * (n_leapfrog - half))
    covariance = factor @ factor.T

    def propose(x, xi):
        momentum = np.linalg.solve(factor.T, xi)
        y, end, inside = leapfrog(target, x, momentum, covariance, n)
        kinetic = (end @ covariance @ end - momentum @ covariance @ momentum) / 2
        return y, target(y)[0] - target(x)[0] - kinetic if inside else -np.inf

    return jump(target, x, rng.standard_normal(x.size), propose, rng)


def published_gradient(move, factor, beta, hessian=None):
    """∇_L of min(0, log r) + β Σ log L_ii for MALA [GAD, appendix B].

    With a function that returns the Hessian of log π, ∇log π(y) is not held constant.
    """
    gradient = beta * np.diag(1 / np.diag(factor))
    if move.log_ratio >= 0:
        return gradient
    g, gy = move.gradient, move.gradient_y
    difference = factor.T @ (g - gy) / 2 + move.xi
    inside = -np.outer(g - gy, difference) / 2
    if hessian is not None:
        h, back = factor.T @ g / 2 + move.xi, factor.T @ (g + gy) / 2 + move.xi
        k = hessian(move.y) @ factor @ back
        inside -= (np.outer(k, h) + np.outer(g, factor.T @ k) / 2) / 2
    return gradient + np.tril(inside)


def published_walk_gradient(move, factor, beta):
    """∇_L of min(0, log r) + β Σ log L_ii for the random walk [GAD, section 2.2]."""
    gradient = beta * np.diag(1 / np.diag(factor))
    if move.log_ratio < 0:
        gradient += np.tril(np.outer(move.gradient_y, move.xi))
    return gradient


def rms_step(factor, squares, gradient, rate):
    """Return L and G after a step of RMSprop; the first one has no G yet."""
    squares = gradient**2 if squares is None else 0.9 * squares + 0.1 * gradient**2
    factor = factor + rate * gradient / (1 + np.sqrt(squares))
    np.fill_diagonal(factor, np.maximum(np.diag(factor), 1e-3))
    return factor, squares


def whitened_step(move, factor, beta, t, n_tune):
    """Return L(I + rA), A the gradient of the objective with respect to the second factor."""
    d = factor.shape[0]
    a = -factor.T @ move.gradient_y if move.log_ratio < 0 else np.zeros(d)
    inside = beta * np.eye(d) - np.tril(np.outer(a, move.xi))
    longest = 0.3 / (beta * np.sqrt(d) + np.linalg.norm(a) * np.linalg.norm(move.xi))
    rate = min(1 / (d * (1 + t / (0.15 * n_tune))), longest)
    return factor @ (np.eye(d) + rate * inside)


def steered(beta, accepted, target_accept):
    """Return β after an acceptance or a rejection."""
    return max(1e-4, beta * (1 + 0.02 * (accepted - target_accept)))


def start_factor(gradient):
    """L at the start: each coordinate's scale from the gradient there, if it has one."""
    size = np.abs(gradient)
    scales = np.where(size > 1e-10, np.maximum(size, 1e-300) ** -0.5, 1.0)
    return np.diag(np.clip(scales, 1e-10, 1e10))


def geometric_mean(a, b):
    """Return the positive definite S with S b S = a, from a singular value decomposition.

    With b = BBᵀ and a = AAᵀ it is B⁻ᵀ (Bᵀ a B)^½ B⁻¹, where Bᵀ a B = BᵀA (BᵀA)ᵀ.
    """
    root = np.linalg.cholesky(b)
    left, values, _ = np.linalg.svd(root.T @ np.linalg.cholesky(a))
    side = np.linalg.solve(root.T, left)
    return side * values @ side.T


def fisher_covariance(x, g, least=0.1):
    """Return the regularised geometric mean of cov(x) and cov(g)⁻¹, and the scales s.

    Gradients whose variance times that of x is less than `least` are not believed.
    """
    k, d = x.shape
    vx, vg = x.var(axis=0), g.var(axis=0)
    s2 = np.where(vx == 0, 1.0, vx)
    believed = vx * vg >= least
    s2[believed] = np.sqrt(vx[believed] / vg[believed])
    s = np.sqrt(np.clip(s2, 1e-20, 1e20))
    a, b = (x - x.mean(axis=0)) / s, (g - g.mean(axis=0)) * s
    w, eye = 0.05 / (0.05 + k**2), np.eye(d)
    cx, cg = a.T @ a / k, b.T @ b / k
    cx = (1 - w) * cx + (w * np.trace(cx) / d + 1e-12) * eye
    cg = (1 - w) * cg + (w * np.trace(cg) / d + 1e-12) * eye
    cg += np.diag(np.maximum(0, 1 - vx * vg / least))
    return geometric_mean(cx, cg), s


def fisher_factor(x, g, least=0.1):
    """Return L of the pairs (k, d)."""
    mean, s = fisher_covariance(x, g, least)
    return s[:, None] * np.linalg.cholesky(mean)


def longest_scale(n_leapfrog):
    """Return the largest log s: on a standard normal, the mean path turns it by a right angle.

    A leapfrog step of length s turns it by φ with cos φ = 1 − s²/2.
    """
    if n_leapfrog == 1:
        return np.inf
    n_steps = np.arange(n_leapfrog // 2 + 1, n_leapfrog + 1)
    return np.log(2 * (1 - np.cos(np.pi / 2 / n_steps.mean()))) / 2


class GadChain:
    """A chain from x on, which tunes for n_tune transitions; `walks` makes it GadRWM.

    In the last phase of tuning L stays, s is tuned, and there are n_leapfrog steps. Of the
    published rule there is no last phase.

    Parameters
    ----------
    targets : (2,) float
        The acceptance to tune to, before and in the last phase.
    capacity : int
        Of pairs that "fisher" keeps.
    """

    def __init__(
        self,
        target,
        x,
        n_tune,
        adaptation,
        targets,
        *,
        walks=False,
        n_leapfrog=1,
        learning_rate=None,
        hessian=None,
        capacity=np.inf,
        keep_adapting=False,
    ):
        d = len(x)
        self.keep_adapting = keep_adapting
        self.target, self.x, self.n_tune, self.d = target, np.array(x), n_tune, d
        self.adaptation, self.targets = adaptation, targets
        self.walks, self.n_leapfrog, self.hessian = walks, n_leapfrog, hessian
        self.learning_rate, self.capacity = learning_rate, capacity
        self.factor, self.end = np.eye(d), n_tune
        if adaptation == "published":
            self.factor = 0.1 / np.sqrt(d) * np.eye(d)
        else:
            self.end -= min(max(100, n_tune // 10), n_tune // 3)
            if n_tune > 0:
                self.factor = start_factor(target(self.x)[1])
        self.log_scale, self.beta, self.squares = 0.0, 1.0, None
        self.t, self.k_scale, self.path = 0, 0, []
        self.pairs, self.stride, self.passed = [], 1, 0
        self.next = max(1, min(max(20, d // 4), n_tune // 3))
        self.refreshes, self.learn_factor = [], fisher_factor

    def step(self, rng):
        """Make a transition, and tune."""
        factor = np.exp(self.log_scale) * self.factor
        if self.walks:
            move = walk(self.target, self.x, factor, rng)
        elif self.t < self.end or self.n_leapfrog == 1:
            move = langevin(self.target, self.x, factor, rng)
        else:
            move = hamiltonian(self.target, self.x, factor, self.n_leapfrog, rng)
        self.x = move.new
        if self.t < self.n_tune or (self.keep_adapting and self.n_tune > 0):
            if self.t < self.end or self.adaptation == "published":
                getattr(self, f"learn_{self.adaptation}")(move)
            else:
                self.tune_scale(move.alpha, self.targets[1])
                self.log_scale = min(self.log_scale, longest_scale(self.n_leapfrog))
                self.settle_scale()
            self.t += 1
            if self.t == self.end:
                self.k_scale = 3
        return move

    def learn_published(self, move):
        """Make a step of RMSprop; L shrinks where nothing is finite, but for a walk."""
        if move.teaches:
            if self.walks:
                gradient = published_walk_gradient(move, self.factor, self.beta)
            else:
                gradient = published_gradient(move, self.factor, self.beta, self.hessian)
            if self.t > 0 and self.squares is None:
                self.squares = np.zeros((self.d, self.d))
            rate = decayed(self.learning_rate, self.t)
            if self.t >= self.n_tune:
                rate *= self.n_tune / self.t
            self.factor, self.squares = rms_step(self.factor, self.squares, gradient, rate)
        elif not self.walks:
            self.factor = 0.9 * self.factor
        self.beta = steered(self.beta, move.accepted, self.targets[0])

    def learn_whitened(self, move):
        """Make a relative step; L shrinks where nothing is finite."""
        if move.teaches:
            self.factor = whitened_step(move, self.factor, self.beta, self.t, self.n_tune)
        else:
            self.factor = 0.9 * self.factor
        self.beta = steered(self.beta, move.accepted, self.targets[0])

    def learn_fisher(self, move):
        """Tune s, keep pairs, and learn L from them now and then."""
        self.tune_scale(move.alpha, self.targets[0])
        plausible = move.accepted or move.log_p_y > move.log_p - 10 - self.d
        if plausible and move.log_ratio > -np.inf:
            self.keep((move.y, move.gradient_y))
        t = self.t + 1
        if t != self.next:
            return
        if len(self.pairs) < 4:
            self.next = min(t + 11, self.end)
            return
        self.refreshes.append(t)
        x, g = map(np.array, zip(*self.pairs, strict=True))
        self.factor = self.learn_factor(x, g, 1e-8 if t < self.n_tune // 2 else 0.1)
        self.k_scale, self.log_scale = 3, np.log(1.65 * self.d ** (-1 / 6))
        self.pairs = self.pairs[len(self.pairs) // 2 :]
        self.next = t + max(20, t // 2)
        if self.next > self.end - 20:
            self.next = self.end

    def keep(self, pair):
        """Keep a pair, or every second one, every fourth, … once there is no room."""
        self.passed += 1
        if self.passed < self.stride:
            return
        if len(self.pairs) == self.capacity:
            self.pairs = self.pairs[::-1][::2][::-1]
            self.stride *= 2
            return
        self.pairs.append(pair)
        self.passed = 0

    def tune_scale(self, alpha, target_accept):
        """Make a step of log s."""
        self.k_scale += 1
        self.log_scale += min(0.5, 1.5 * self.k_scale**-0.6) * (alpha - target_accept)

    def settle_scale(self):
        """Settle log s at its mean over the last two thirds of the last phase."""
        if self.t >= self.end + (self.n_tune - self.end) // 3:
            self.path.append(self.log_scale)
        if self.t + 1 >= self.n_tune:
            self.log_scale = np.mean(self.path)


# ---- SurrogateMetropolis --------------------------------------------------------------------


class Surrogate:
    """A fitted log-density, by its formula, of the numbers that describe it."""

    def __init__(self, fitted):
        n = fitted.n[0]
        self.nu, self.bounds = fitted.nu[0], fitted.bounds
        self.is_quadratic = bool(fitted.is_quadratic[0])
        self.constant, self.linear = fitted.constant[0], fitted.linear
        lower = np.tril(fitted.quadratic)
        self.hessian = lower + lower.T
        self.rates, self.weights = fitted.rates, fitted.weights[:n]
        self.centres = fitted.centres[:, :n].T / fitted.rates

    def log_t(self, u):
        """Log of the t density, but for a constant."""
        return multivariate_t.logpdf(u, np.zeros(u.size), np.eye(u.size), self.nu)

    def log_s(self, u):
        """The base and the kernels, within bounds of how far that is from t."""
        d, reference = u.size, -(self.nu + u.size) / 2 * np.log(1 + u @ u / self.nu)
        h = self.constant
        if self.is_quadratic:
            h += self.linear @ u + u @ self.hessian @ u / 2 - reference
        for weight, centre in zip(self.weights, self.centres, strict=True):
            h += weight / (1 + sum((self.rates[i] * (u[i] - centre[i])) ** 2 for i in range(d)))
        return reference + np.clip(h, *self.bounds)


class SurrogateChain:
    """A frozen SurrogateMetropolis [Liu 2001, section 9.4.3], in x alone: u is computed anew.

    `log_density` maps x (d,) to log π.
    """

    def __init__(self, parameters, log_density):
        self.log_density, self.s = log_density, Surrogate(parameters.surrogate)
        self.shares, self.n_inner = parameters.shares, parameters.n_inner[0]
        self.power = parameters.power[0]
        self.mean, self.factor = parameters.mean, np.tril(parameters.factor)
        self.scale = np.exp(parameters.log_scale[0])
        self.modes = SlowModes(parameters.modes)

    def walk(self, u, scale, rng):
        """Propose from a mixture of normals about u: half of them of log-uniform scale."""
        if rng.random() < SHORT_SHARE:
            scale *= np.exp(rng.random() * np.log(SHORTEST_STEP))
        return u + scale * rng.standard_normal(u.size)

    def reference(self, u, rng):
        """Draw from t."""
        g = rng.standard_gamma(self.s.nu / 2) * 2 / self.s.nu
        return rng.standard_normal(u.size) / np.sqrt(g)

    def inner_chain(self, u, power, rng):
        """Return the end of a chain of Metropolis-Hastings steps on a power of s."""
        for _ in range(self.n_inner):
            if rng.random() < 0.5:
                w = self.reference(u, rng)
                log_hastings = self.s.log_t(u) - self.s.log_t(w)
            else:
                w, log_hastings = self.walk(u, 2.38 / np.sqrt(u.size), rng), 0.0
            log_ratio = power * (self.s.log_s(w) - self.s.log_s(u)) + log_hastings
            if -rng.standard_exponential() < log_ratio:
                u = w
        return u

    def transition(self, x, rng):
        """Return the new x, α, and the kind of move; α is None where nothing was proposed."""
        u = np.linalg.solve(self.factor, x - self.mean)
        kind = np.searchsorted(np.cumsum(self.shares), rng.random(), side="right")
        if kind == 0:
            v, log_hastings = self.walk(u, self.scale, rng), 0.0
        elif kind == 1 and self.modes.n > 0:
            y = self.modes.draw(rng)
            v = np.linalg.solve(self.factor, y - self.mean)
            log_hastings = self.modes.log_density(x) - self.modes.log_density(y)
        elif kind == 1:
            v = self.reference(u, rng)
            log_hastings = self.s.log_t(u) - self.s.log_t(v)
        else:
            power = 1.0 if kind == 2 else self.power
            v = self.inner_chain(u, power, rng)
            if v is u:
                return x, None, kind
            log_hastings = power * (self.s.log_s(u) - self.s.log_s(v))
        y = self.mean + self.factor @ v
        log_ratio = self.log_density(y) - self.log_density(x) + log_hastings
        accepted = -rng.standard_exponential() < log_ratio
        return (y if accepted else x), np.exp(min(0.0, log_ratio)), kind
