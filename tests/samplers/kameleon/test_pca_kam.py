"""PCAKAM against the slow version from the paper, on the same random numbers."""

import copy
import importlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import reference
from invariance import TARGETS as EXACT
from invariance import invariance_p_value, log_banana, moved_fast
from invariance import tuned as tuned_on_target
from kameleon import (
    TARGETS,
    banana_model,
    compare_by_hand,
    redraws,
    start_chain,
    tuned,
    z_score,
)
from runs import driven as run
from scipy import stats
from scipy.linalg import eigh
from scipy.spatial.distance import pdist
from scipy.stats import norm

import pymc_kameleon as pk
from pymc_kameleon.samplers.kameleon import pca_kam

# ---- transition -----------------------------------------------------------------------------

VARIANTS = [
    ("banana", {}),
    ("banana", {"whiten": False}),
    ("banana", {"n_components": 1}),
    ("banana", {"n_components": 60, "n_subsample": 20}),
    ("banana", {"gamma": 0.1}),
    ("line", {}),
]


@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
def test_transitions_by_hand(name, arguments):
    step = tuned(pk.PCAKAM, name, **arguments)
    chain = reference.PCAKAM(step)
    assert len(chain.z) >= 20
    stats, _ = compare_by_hand(step, chain, name, 300)
    assert 20 < stats["accept_share"].sum() < 280
    np.testing.assert_allclose(stats["scaling"], chain.omega @ chain.nu)
    np.testing.assert_allclose(stats["bandwidth"], chain.bandwidth)
    assert (stats["n_logp"][1:] == 1).all()


@pytest.mark.slow
def test_reported_acceptance_is_unbiased():
    """Without its correction for the rejections that are seen early, it is not."""
    step = tuned(pk.PCAKAM, "banana", n_components=3)
    stats, alphas = compare_by_hand(step, reference.PCAKAM(step), "banana", 2000, seed=8)
    reported = stats["accept_prob"]
    assert 0.1 < np.mean(reported == 0) < 0.9
    assert abs(z_score(reported - alphas)) < 4
    assert z_score(np.where(reported == 0, 0, alphas) - alphas) < -5


# ---- the density of the proposal ------------------------------------------------------------


@pytest.mark.parametrize(("name", "arguments"), [VARIANTS[i] for i in (0, 1, 5)])
def test_log_proposal_is_scipys(name, arguments):
    """Of each direction, with log |C| apart."""
    step = tuned(pk.PCAKAM, name, **arguments)
    expected_chain, subsample = reference.PCAKAM(step), step.parameters.subsample
    rng, d = np.random.default_rng(0), TARGETS[name].start.size
    log_det = np.linalg.slogdet(expected_chain.whitening)[1]
    weights, w = np.empty(step.state.local.weights.size), np.empty(d)
    for j in range(5):
        u = expected_chain.z[rng.integers(len(expected_chain.z))] + 0.3 * rng.standard_normal(d)
        move = 0.5 * rng.standard_normal(d)
        pca_kam.weigh(subsample, u, weights)
        pca_kam.look(subsample, step.parameters.directions[j], weights, u, w)
        found = pca_kam.log_normal(move, w, expected_chain.gamma, expected_chain.nu[j])
        x, y = expected_chain.whitening @ u, expected_chain.whitening @ (u + move)
        expected = expected_chain.log_q(y, x, j) + log_det + d / 2 * np.log(2 * np.pi)
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-7)


class Mixture(reference.PCAKAM):
    """PCAKAM with the proposal density of proposition 3, that of all directions."""

    def log_q(self, y, x, j):
        own = [(w, super(Mixture, self).log_q(y, x, i)) for i, w in enumerate(self.omega) if w > 0]
        return np.logaddexp.reduce([np.log(w) + log_q for w, log_q in own])


@pytest.mark.slow
def test_the_mixture_of_the_examples_by_hand(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "examples" / "papers")
    kind = importlib.import_module("kam_mixture").MixturePCAKAM
    step = kind(model=banana_model(), steps_per_draw=1)
    step.setup_chain(np.random.default_rng(1), 1000, 1)
    run(step, 1000, TARGETS["banana"].start)
    step.stop_tuning()
    stats, _ = compare_by_hand(step, Mixture(step), "banana", 300)
    assert 20 < stats["accept_share"].sum() < 280


def uneven(step):
    """Give the directions scales and weights that differ, so that wrong ones are seen."""
    step.parameters.probabilities[:] = 0
    step.parameters.probabilities[:4] = [0.1, 0.5, 0.3, 0.1]
    for j, length in enumerate([4.0, 0.5, 1.0, 8.0]):
        w = reference.PCAKAM(step).direction(step.state.x, j)
        step.parameters.log_nu0[j] = np.log(length / np.linalg.norm(w))
    step.parameters.log_rho[:] = 0
    return reference.PCAKAM(step)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["banana", "line"])
def test_proposals_have_the_density_of_proposition_3(name):
    """Along any line they are a mixture of normals; with other weights they are not."""
    n, x = 20_000, TARGETS[name].start
    d, step = x.size, tuned(pk.PCAKAM, name)
    step.step({"x": x})
    step.state.x[:] = x
    expected_chain = uneven(step)
    step.rng = np.random.default_rng(4)
    moves = np.empty((n, d))
    for i in range(n):
        step.step({"x": x})
        moves[i] = step._work.walk.step
    moves = moves @ expected_chain.whitening.T

    def p_values(omega):
        result = []
        for angle in [0.0, 1.0, 2.0] if d == 2 else [0.0]:
            a = np.array([np.cos(angle), np.sin(angle)])[:d]
            sds = [np.sqrt(a @ expected_chain.covariance(x, j) @ a) for j in range(4)]

            def cdf(t, sds=sds):
                return sum(w * norm.cdf(t, scale=sd) for w, sd in zip(omega, sds, strict=True))

            result.append(stats.kstest(moves @ a, cdf).pvalue)
        return result

    assert min(p_values([0.1, 0.5, 0.3, 0.1])) > 1e-3
    assert np.median(p_values([0.25] * 4)) < 1e-3
    assert min(p_values([0.5, 0.1, 0.3, 0.1])) < 1e-3


# ---- what tuning learns ---------------------------------------------------------------------


@pytest.mark.parametrize("whiten", [False, True])
def test_directions_and_what_follows_from_them(whiten):
    """Leading eigenvectors of HKH, ω ∝ λ; γ and ν₀ by their definitions."""
    step = tuned(pk.PCAKAM, "banana", n_subsample=40, whiten=whiten)
    kernel = pk.samplers.kernels.Gaussian()
    learned, parameters = reference.PCAKAM(step), step.parameters
    m = len(learned.z)
    assert m == 40
    values, vectors = eigh(reference.gram(kernel, learned.bandwidth, learned.z))
    values, vectors = values[::-1][:10], vectors[:, ::-1][:, :10]
    exists = values > 1e-8 * values[0]
    assert exists.sum() == 10
    np.testing.assert_allclose(
        parameters.probabilities, np.where(exists, values, 0) / values[exists].sum(), rtol=1e-4
    )
    for j in np.flatnonzero(exists):
        assert abs(learned.alpha[j] @ vectors[:, j]) == pytest.approx(1, abs=1e-2)
        assert np.linalg.norm(learned.alpha[j]) == pytest.approx(1, rel=1e-12)

    s = np.median(pdist(learned.z)) / np.sqrt(2 * 2)
    assert learned.gamma < 0.6 * 2.38 / np.sqrt(2) * s * (1 + 1e-9)  # and what gave way to ν
    big_m = [reference.directions(kernel, learned.bandwidth, z, learned.z) for z in learned.z]
    for j in np.flatnonzero(exists):
        mean_square = np.mean([np.sum((mh @ learned.alpha[j]) ** 2) for mh in big_m])
        nu0 = np.exp(parameters.log_nu0[j])
        # α is found by iteration, so that its sum is not quite 0, which counts where λ is small.
        assert nu0**2 * mean_square == pytest.approx((2.38 * s) ** 2, rel=1e-4)


def followed(n_tune, n, **arguments):
    """Run n transitions on the banana; return positions, acceptance, and looks at the step."""

    def look(step):
        return copy.deepcopy(step.parameters), step._work.chosen[0]

    step = start_chain(pk.PCAKAM, "banana", n_tune, n - n_tune, 5, n_subsample=30, **arguments)
    positions, found, seen = run(step, n_tune, TARGETS["banana"].start, look)
    step.stop_tuning()
    if n > n_tune:
        after, stats, more = run(step, n - n_tune, positions[-1], look)
        positions, seen = np.concatenate([positions, after]), seen + more
        found = {name: np.concatenate([found[name], stats[name]]) for name in found}
    kept, chosen = zip(*seen, strict=True)
    return positions, found["accept_prob"], kept, np.array(chosen)


def test_adaptation_by_hand():
    """A walk for 70 %, directions for 15 %, then ν alone; each ν_j by its own count."""
    n, n_walk, n_learning = 2000, 1400, 1700
    positions, accept, kept, chosen = followed(n, n, n_components=4, target_accept=0.7)
    times = redraws(kept)
    # The second refresh after 100 transitions, the next where half of those since the first
    # have passed, but 100 at least; the last of all at the end of learning.
    assert times == [n_walk, n_walk + 100, n_walk + 200, n_learning - 1]
    assert [bool(p.subsample.m[0]) for p in kept] == [False] * n_walk + [True] * (n - n_walk)

    log_rho, counts, settled = np.zeros(4), np.zeros(4), [[] for _ in range(4)]
    given_way, n_given = 0.0, 0
    for t in range(n_walk + 1, n):
        j = chosen[t]
        wanted = log_rho[j] + (1 + 10 + counts[j]) ** -0.6 * (accept[t] - 0.7)
        log_rho[j] = max(wanted, np.log(0.1))
        given_way = 0.0 if t in times else given_way + min(0, wanted - log_rho[j])
        n_given += wanted < log_rho[j]
        start = kept[max(time for time in times if time <= t)].subsample.shape.log_scale
        log_gamma = kept[t].subsample.shape.log_scale
        assert log_gamma == pytest.approx(start + given_way, rel=1e-9)
        counts[j] += 1
        if t >= (n_learning + n) // 2:
            for path, value in zip(settled, log_rho, strict=True):
                path.append(value)
        if t < n - 1:
            np.testing.assert_allclose(kept[t].log_rho, log_rho, rtol=1e-9, atol=1e-12)
    assert (counts > 20).all()
    assert n_given > 5
    final = [np.mean(path) for path in settled]
    np.testing.assert_allclose(kept[-1].log_rho, final, rtol=1e-9, atol=1e-12)

    first = np.tril(kept[0].subsample.shape.factor)
    sigmas = [sigma for _, sigma in reference.moments(positions, n, first @ first.T)]
    for t in (800, n_walk - 1, *times):
        expected = np.linalg.cholesky(sigmas[t])
        np.testing.assert_allclose(
            np.tril(kept[t].subsample.shape.factor), expected, rtol=1e-6, atol=1e-9
        )


@pytest.mark.slow
def test_each_direction_reaches_the_target_acceptance():
    step = tuned(pk.PCAKAM, "banana", 4000, n_components=3, target_accept=0.3, seed=0)
    n = 6000
    _, found, chosen = run(step, n, TARGETS["banana"].start, lambda step: step._work.chosen[0])
    shares = [found["accept_prob"][np.array(chosen) == j].mean() for j in range(3)]
    np.testing.assert_allclose(shares, 0.3, atol=0.06)


def test_gamma_of_the_user():
    """From the first z on; then it does not give way."""
    _, _, kept, _ = followed(400, 500, gamma=0.3)
    found = np.exp([p.subsample.shape.log_scale[0] for p in kept[280:]])
    np.testing.assert_allclose(found, 0.3, rtol=1e-12)


@pytest.mark.slow
def test_keep_adapting():
    """Refreshes go on at times that are 1.5 times apart, and each ν_j by its own count."""
    n_tune, n, n_walk = 400, 8000, 280
    _, accept, kept, chosen = followed(n_tune, n, keep_adapting=True, n_components=3)
    times = np.array(redraws(kept))
    times = times[times >= n_tune] - n_walk
    assert len(times) >= 6
    assert (np.diff(times) >= 100).all()
    late = times[1:] > 400
    np.testing.assert_allclose((times[1:] / times[:-1])[late], 1.5, atol=0.02)

    counts = np.bincount(chosen[n_walk + 1 : n_tune], minlength=3)
    log_rho = kept[n_tune - 1].log_rho.copy()
    for t in range(n_tune, n):
        j = chosen[t]
        log_rho[j] += (1 + 10 + counts[j]) ** -0.6 * (accept[t] - 0.44)
        log_rho[j] = np.clip(log_rho[j], np.log(0.1), np.log(10))
        counts[j] += 1
        np.testing.assert_allclose(kept[t].log_rho, log_rho, rtol=1e-9, atol=1e-10)


# ---- exactness ------------------------------------------------------------------------------


class Twin:
    """The frozen transition on many points at once, with a right or wrong acceptance."""

    def __init__(self, step, rule):
        slow = reference.PCAKAM(step)
        self.whitening, self.z, self.alpha = slow.whitening, slow.z, slow.alpha
        self.omega = slow.omega / slow.omega.sum()
        self.bandwidth, self.gamma, self.nu = slow.bandwidth, slow.gamma, slow.nu
        self.rule = rule

    def steps(self, u):
        """ν_j w_j(u) for all j, (n, j, d), for the Gaussian kernel."""
        difference = self.z - u[:, None]
        k = np.exp(-np.sum(difference**2, axis=2) / (2 * self.bandwidth**2))
        columns = 2 * k[:, :, None] * difference / self.bandwidth**2
        columns -= columns.mean(axis=1, keepdims=True)
        return self.nu[:, None] * np.einsum("ji,nid->njd", self.alpha, columns)

    def log_q(self, move, steps):
        """Log density of `move` along each direction, (n, j)."""
        covariance = np.einsum("njd,nje->njde", steps, steps) + self.gamma**2 * np.eye(2)
        solved = np.linalg.solve(covariance, move[:, None, :, None])[..., 0]
        distance2 = np.einsum("nd,njd->nj", move, solved)
        return -0.5 * distance2 - 0.5 * np.linalg.slogdet(covariance)[1]

    def __call__(self, log_density, x, n_transitions, rng):
        u = np.linalg.solve(self.whitening, x.T).T
        rows = np.arange(len(u))
        for _ in range(n_transitions):
            j, other = rng.choice(self.omega.size, (2, len(u)), p=self.omega)
            here = self.steps(u)
            move = here[rows, j] * rng.standard_normal((len(u), 1))
            move += self.gamma * rng.standard_normal(u.shape)
            v = u + move
            forward, back = self.log_q(move, here), self.log_q(move, self.steps(v))
            ratio = log_density(v @ self.whitening.T) - log_density(u @ self.whitening.T)
            if self.rule == "direction":
                ratio += back[rows, j] - forward[rows, j]
            elif self.rule == "mixture":
                weights = np.log(self.omega)
                ratio += np.logaddexp.reduce(back + weights, axis=1)
                ratio -= np.logaddexp.reduce(forward + weights, axis=1)
            elif self.rule == "another direction back":
                ratio += back[rows, other] - forward[rows, j]
            elif self.rule == "the first direction back":
                ratio += back[:, 0] - forward[rows, j]
            accepted = -rng.standard_exponential(len(u)) < ratio
            u = np.where(accepted[:, None], v, u)
        return u @ self.whitening.T


ON_CURVED = {"n_subsample": 60, "n_components": 5}
"""And with a small γ and long ν_j, so that a wrong acceptance is seen."""


@cache
def tuned_on_curved():
    model = EXACT["banana"].build()
    step = pk.PCAKAM(model=model, steps_per_draw=10, **ON_CURVED)
    tuned_on_target(step, EXACT["banana"])
    step.parameters.subsample.shape.log_scale[0] = np.log(0.2)
    step.parameters.log_rho[:] = 0
    return step


def test_exact_draws_stay_exact():
    step = tuned_on_curved()
    assert step.parameters.subsample.m[0] == 60
    p_value = invariance_p_value(lambda x: moved_fast(step, x), EXACT["banana"], n=10_000)
    assert p_value > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "is_exact"),
    [
        ("direction", True),
        ("mixture", True),
        ("another direction back", True),  # drawn from ω as well: (x, j) and (y, i) change places
        ("the first direction back", False),
        ("no hastings term", False),
    ],
)
def test_the_rules_that_are_exact_and_those_that_are_not(rule, is_exact):
    """In plain numpy, with the same frozen parameters."""
    twin = Twin(tuned_on_curved(), rule)

    def transform(x):
        return twin(log_banana, x, 20, np.random.default_rng(9))

    p_value = invariance_p_value(transform, EXACT["banana"], n=10_000)
    assert (p_value > 1e-3) == is_exact
