"""The logarithm of an integral from draws: bridges, proposals, and which draws they may see."""

import numpy as np
import pytest
from averages import autoregressive
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm

from pymc_kameleon.analysis.evidence import bridge, estimate, proposals, reference
from pymc_kameleon.analysis.evidence.warp import Unwarped, Warp
from pymc_kameleon.core.moments import shrunk_covariance

CHAINS = 4


def t_density(mean, factor, nu, rng):
    return reference.Reference(mean[None], factor[None], nu, rng)


def chains(rng, draws, d, correlation=0.5):
    return autoregressive(rng, (CHAINS, draws, d), correlation)


# ---- a bridge ---------------------------------------------------------------------------------


def z_of_bridges(correlation, n=200):
    """Error over standard error of log 3, from N(0, 1) to N(0.4, 1.3²), with a control of t."""
    rng, z = np.random.default_rng(1), []

    def log_ratio(x):
        return np.log(3) + norm.logpdf(x) - norm.logpdf(x, 0.4, 1.3)

    for _ in range(n):
        x, y = chains(rng, 200, 1, correlation)[..., 0], rng.normal(0.4, 1.3, 200)
        control = np.exp(norm.logpdf(y, 0.4, 1) - norm.logpdf(y, 0.4, 1.3)) - 1
        found = bridge.bridge(log_ratio(x), log_ratio(y), control)
        assert 0.7 < found.overlap <= 1
        z.append((found.log_z - np.log(3)) / found.standard_error)
    return np.array(z)


@pytest.mark.parametrize("correlation", [0, 0.9])
def test_a_bridge_knows_its_error(correlation):
    z = z_of_bridges(correlation)
    assert abs(z.mean()) < 0.3
    assert 0.8 < z.std() < 1.2


def test_draws_that_depend_on_each_other_are_worth_less(monkeypatch):
    monkeypatch.setattr(
        bridge, "_variance_and_ess", lambda values: (values.var() / values.size, values.size)
    )
    assert z_of_bridges(0.9).std() > 1.4


def contradictions(scale, n=100):
    """Of draws of N(0, scale²) that are taken for those of N(0, 1), and N(0.4, 1.3²)."""
    rng, found = np.random.default_rng(6), []

    def log_ratio(x):
        return norm.logpdf(x) - norm.logpdf(x, 0.4, 1.3)

    for _ in range(n):
        x, y = scale * chains(rng, 200, 1)[..., 0], rng.normal(0.4, 1.3, 200)
        difference, error = bridge.contradiction(log_ratio(x), log_ratio(y))
        found.append(difference / error)
    return np.array(found)


def test_draws_of_another_distribution_contradict_new_ones():
    assert 0.7 < np.sqrt(np.mean(contradictions(1) ** 2)) < 1.3
    for scale in (0.6, 1.6):
        assert np.median(np.abs(contradictions(scale, 20))) > 5


def test_without_overlap_nothing_is_known():
    nothing = bridge.bridge(np.zeros((2, 50)), np.full(50, -np.inf), np.zeros(50))
    assert np.isnan(nothing.log_z)
    assert nothing.overlap == 0


# ---- known integrals ----------------------------------------------------------------------------


def banana(x):
    return -(x[:, 0] ** 2) / 18 - 2 * (x[:, 1] - x[:, 0] ** 2 / 3) ** 2


def draws_of_banana(rng, n):
    x = chains(rng, n, 2) * [3, 0.5]
    x[..., 1] += x[..., 0] ** 2 / 3
    return x


RADIUS, WIDTH = 3.0, 0.4


def ring(x):
    return -((np.linalg.norm(x, axis=1) - RADIUS) ** 2) / (2 * WIDTH**2)


def draws_of_ring(rng, n):
    r = np.abs(RADIUS + WIDTH * rng.standard_normal((CHAINS, n, 20)))  # weighted by their lengths
    chosen = np.argmax(np.log(r) + rng.gumbel(size=r.shape), axis=2)[..., None]
    r, angle = np.take_along_axis(r, chosen, 2)[..., 0], rng.uniform(0, 2 * np.pi, (CHAINS, n))
    return np.stack([r * np.cos(angle), r * np.sin(angle)], axis=2)


APART = 8.0


def two_modes(x):
    logs = [-np.sum((x - place) ** 2, axis=1) / 2 for place in (-APART, APART)]
    return np.logaddexp(np.log(0.3) + logs[0], np.log(0.7) + logs[1])


def draws_of_modes(rng, n):
    side = np.where(rng.random((CHAINS, n, 1)) < 0.3, -APART, APART)
    return rng.standard_normal((CHAINS, n, 3)) + side


def skewed(x):
    """Return the log-density of the logarithm of a gamma variable, times Γ(3)."""
    return 3 * x[:, 0] - np.exp(x[:, 0])


def draws_of_skewed(rng, n):
    return np.log(rng.gamma(3, size=(CHAINS, n, 1)))


KNOWN = {
    "normal": (
        lambda x: -np.sum(x**2, axis=1) / 2,
        lambda rng, n: chains(rng, n, 6),
        3 * np.log(2 * np.pi),
    ),
    "banana": (banana, draws_of_banana, np.log(2 * np.pi * 3 * 0.5)),
    "ring": (
        ring,
        draws_of_ring,
        np.log(
            2 * np.pi * quad(lambda r: r * np.exp(-((r - RADIUS) ** 2) / 2 / WIDTH**2), 0, 9)[0]
        ),
    ),
    "two modes": (two_modes, draws_of_modes, 1.5 * np.log(2 * np.pi)),
    "skewed": (skewed, draws_of_skewed, np.log(2)),
}


def errors(name, seeds, draws=300, n=400):
    """Errors of log Z, and their standard errors, of so many seeds."""
    log_density, draw, known = KNOWN[name]
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        x = draw(rng, draws)
        f = log_density(x.reshape(-1, x.shape[2])).reshape(x.shape[:2])
        own = estimate.estimate(x, f, None, log_density, n, rng)
        found.append([own.log_z - known, own.standard_error])
    return np.array(found).T


@pytest.mark.parametrize("name", KNOWN)
def test_known_integrals(name):
    [error], [standard_error] = errors(name, 1)
    assert abs(error) < 4 * standard_error < 0.2


@pytest.mark.slow  # 8 fits of each, at least
@pytest.mark.parametrize("name", KNOWN)
def test_standard_errors_of_known_integrals(name):
    error, standard_error = errors(name, 4)
    assert np.sqrt(np.mean((error / standard_error) ** 2)) < 2.2


@pytest.mark.slow
def test_a_jacobian_that_is_forgotten_is_seen():
    rng = np.random.default_rng(0)
    x = draws_of_skewed(rng, 300)

    def without(x):
        return skewed(x) - x[:, 0]

    own = estimate.estimate(
        x, without(x.reshape(-1, 1)).reshape(x.shape[:2]), None, without, 400, rng
    )
    assert abs(own.log_z - np.log(2)) > 10 * own.standard_error


# ---- tails that draws have missed ---------------------------------------------------------------


def banana_of_short_draws():
    """Error and standard error of log Z of a banana, whose draws end at 1.6 standard deviations."""
    rng = np.random.default_rng(8)
    x = chains(rng, 1500, 2, 0)
    x = x[np.abs(x[..., 0]) < 1.6][: CHAINS * 250].reshape(CHAINS, 250, 2) * [3, 0.5]
    x[..., 1] += x[..., 0] ** 2 / 3
    f = banana(x.reshape(-1, 2)).reshape(x.shape[:2])
    own = estimate.estimate(x, f, None, banana, 400, rng)
    return own.log_z - np.log(2 * np.pi * 3 * 0.5), own.standard_error


@pytest.mark.slow
def test_the_tails_of_a_banana_need_no_draws():
    error, standard_error = banana_of_short_draws()
    assert abs(error) < max(3 * standard_error, 0.02)


@pytest.mark.slow
def test_without_a_warp_they_are_missing(monkeypatch):
    monkeypatch.setattr(proposals, "Warp", lambda x: Unwarped())
    assert banana_of_short_draws()[0] < -0.04


def test_a_warp_makes_a_funnel_and_a_banana_normal():
    rng = np.random.default_rng(7)
    x = rng.standard_normal((1000, 4))
    x[:, 1] += x[:, 0] ** 2
    x[:, 3] *= np.exp(x[:, 2])
    warp = Warp(x)
    u, log_det = warp.to(x)
    np.testing.assert_allclose(np.cov(u.T), np.eye(4), atol=0.2)
    assert np.mean(u**4, axis=0).max() < 4
    np.testing.assert_allclose(warp.back(u), x)
    steps = 1e-5 * np.eye(4)
    jacobian = [(warp.to(x[:1] + step)[0] - warp.to(x[:1] - step)[0])[0] / 2e-5 for step in steps]
    assert np.linalg.slogdet(jacobian)[1] == pytest.approx(log_det[0], abs=1e-4)


def test_new_draws_that_are_all_impossible_teach_nothing():
    rng = np.random.default_rng(5)
    x = chains(rng, 100, 2)

    def nowhere(x):
        return np.full(len(x), -np.inf)

    f = -np.sum(x**2, axis=2) / 2
    assert estimate.estimate(x, f, None, nowhere, 400, rng).overlap == 0


# ---- which draws a proposal may see -------------------------------------------------------------


def unwarped_parameters(x, f, rng):
    """Return the Parameters that are fitted to draws, in their own coordinates."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(proposals, "Warp", lambda x: Unwarped())
        [component] = proposals.fitted(x, f, np.zeros(len(x), int), rng).components
    return component.parameters


def z_of_ten_runs(make_cover):
    """Mean error for a normal in ten dimensions, in standard errors by the spread of ten runs."""
    rng = np.random.default_rng(3)
    found = []
    for _ in range(10):
        x, fitting = chains(rng, 100, 10, 0), rng.standard_normal((300, 10))

        def log_density(x):
            return -np.sum(x**2, axis=1) / 2

        p = unwarped_parameters(fitting, log_density(fitting), rng)
        cover = make_cover(p.mean, np.tril(p.factor), 8.0, draws=x.reshape(-1, 10), rng=rng)
        fits = fitting, fitting, log_density(fitting)
        bridged = proposals.Component(Unwarped(), p, cover, *fits, rng, 0.1)
        f = log_density(x.reshape(-1, 10)).reshape(x.shape[:2])
        proposal = proposals.Proposal([bridged], [1.0])
        own = estimate._bridged(proposal, x, f, log_density, 200, rng)
        found.append(own.log_z - 5 * np.log(2 * np.pi))
    return np.mean(found) / np.std(found, ddof=1) * np.sqrt(10)


@pytest.mark.slow
def test_draws_that_are_bridged_have_not_made_the_proposal():
    assert abs(z_of_ten_runs(lambda *of, draws, rng: t_density(*of, rng))) < 3


@pytest.mark.slow
def test_draws_that_have_made_it_are_seen():
    assert z_of_ten_runs(lambda *of, draws, rng: reference.reference_of(*of, draws, rng)) < -6


@pytest.mark.slow
def test_a_proposal_learns_where_it_was_wrong():
    """Beyond all draws the log-density falls, which no draw has shown."""
    rng = np.random.default_rng(4)
    x = np.minimum(chains(rng, 150, 2, 0), 0.5)

    def log_density(x):
        return np.where((x > 0.6).any(axis=1), -1e3, -np.sum(x**2, axis=1) / 2)

    fitting = x.reshape(-1, 2)
    proposal = proposals.fitted(fitting, log_density(fitting), np.zeros(len(fitting), int), rng)
    y = proposal.draws(200, rng)
    better = proposal.refitted(y, log_density(y))
    wrong = [np.mean(log_density(own.draws(400, rng)) < -500) for own in (proposal, better)]
    assert wrong[1] < wrong[0] / 2


def bent(x, sides):
    """Log-density of bent modes that have the same mass, normalised."""
    z = x[:, 0] - np.array(sides)[:, None]
    logs = -(z**2 + (x[:, 1] - 2 * (z**2 - 1)) ** 2) / 2 - np.log(2 * np.pi)
    return logsumexp(logs, axis=0) - np.log(len(sides))


def draws_of_bent(rng, sides, n=1600):
    """Return draws (n, 2), and which mode each is of."""
    x, mode = rng.standard_normal((n, 2)), rng.integers(len(sides), size=n)
    x[:, 1] += 2 * (x[:, 0] ** 2 - 1)
    x[:, 0] += np.array(sides)[mode]
    return x, mode


def integral(density, low=(-20, -20), high=(60, 80), steps=(0.2, 0.4)):
    """Return the integral of a density of points (n, 2), which is smooth beyond such steps."""
    axes = [np.arange(*axis) for axis in zip(low, high, steps, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    return np.exp(density.log_density(points)).sum() * np.prod(steps)


@pytest.mark.parametrize("sides", [[0.0], [-4.0, 4.0], [-8.0, 0.0, 8.0]], ids=len)
def test_a_proposal_that_has_learned_of_bent_modes_is_normalised(sides):
    rng = np.random.default_rng(2)
    x, mode = draws_of_bent(rng, sides)
    proposal = proposals.fitted(x, bent(x, sides), mode, rng)
    y = proposal.draws(100, rng)
    better = proposal.refitted(y, bent(y, sides))
    assert abs(integral(better) - 1) < 0.02
    assert better.error < 0.01


def test_mass_of_a_surrogate_that_no_point_has_shown_does_not_count(monkeypatch):
    rng, sides = np.random.default_rng(2), [0.0, 40.0]
    x, mode = draws_of_bent(rng, sides)
    f, seen = bent(x, sides), x[mode == 0]
    p = unwarped_parameters(seen, f[mode == 0], rng)
    monkeypatch.setattr(
        proposals.fit, "values", lambda _, u: bent(p.mean + u @ np.tril(p.factor).T, sides)
    )
    cover = t_density(p.mean, np.tril(p.factor), 8.0, rng)
    component = proposals.Component(Unwarped(), p, cover, seen, x, f, rng, 0.1)
    assert abs(integral(component) - 1) < 0.02
    component._log_bound = np.inf
    assert integral(component) > 1.5


@pytest.mark.slow
def test_the_cover_of_a_surrogate_knows_tails_that_it_lacks():
    rng = np.random.default_rng(8)
    x = rng.standard_normal((2000, 2))
    x = x[np.abs(x[:, 0]) < 1.6][:500] * [3, 0.5]
    x[:, 1] += x[:, 0] ** 2 / 3
    own = unwarped_parameters(x, banana(x), rng)
    component = proposals.of_surrogates([own], x, rng).components[0]
    beyond = rng.standard_normal((200, 2)) * [0.3, 0.5] + [6.6, 0]  # 2.2 standard deviations away
    beyond[:, 1] += beyond[:, 0] ** 2 / 3
    log_p = banana(beyond) - np.log(2 * np.pi * 3 * 0.5)
    assert (component.log_density(beyond) > log_p - np.log(20)).mean() > 0.9
    straight = t_density(own.mean, np.tril(own.factor), 8.0, rng)
    assert (straight.log_density(beyond) > log_p - np.log(20)).mean() < 0.1
    assert abs(integral(component.cover, (-20, -10), (20, 150), (0.05, 0.2)) - 1) < 0.02


def test_constants_of_proposals_are_known():
    """The surrogate of a normal is one, and its constant is that of the normal."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((400, 3)) * [1, 10, 0.1]
    f = -np.sum((x / [1, 10, 0.1]) ** 2, axis=1) / 2
    proposal = proposals.fitted(x, f, np.zeros(400, int), rng)
    assert abs(proposal.components[0].log_z - 1.5 * np.log(2 * np.pi)) < 0.02
    assert proposal.error < 0.01
    control = proposal.control(proposal.draws(4000, rng))
    assert abs(control.mean()) < 4 * control.std() / np.sqrt(4000)


def test_blended_factors():
    """By their formula: few points take their shape from all of them, but not their size."""
    rng = np.random.default_rng(0)
    groups = [rng.standard_normal((n, 2)) * sd + 5 for n, sd in [(3, 1), (500, [10, 1]), (40, 0.1)]]
    covariances = [shrunk_covariance(points) for points in groups]
    pooled = sum(len(p) * c for p, c in zip(groups, covariances, strict=True)) / 543
    found = reference.blended_factors(groups)
    for points, covariance, factor in zip(groups, covariances, found, strict=True):
        n = len(points)
        volume = np.trace(np.linalg.inv(pooled) @ covariance) / 2
        volume = (n * volume + 1) / (n + 1)
        own = n / (n + reference.BLEND * 2)
        expected = own * covariance + (1 - own) * volume * pooled
        np.testing.assert_allclose(factor, np.linalg.cholesky(expected), rtol=1e-9)
