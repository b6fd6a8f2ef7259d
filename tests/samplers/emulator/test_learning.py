"""How emulators, shape and shares are learned."""

from types import SimpleNamespace

import numpy as np
import pytest
from simulated import GROWTH, banana, bend, density_of, growth, logistic

import pymc_kameleon as pk
from pymc_kameleon.approximation import chain as chain_on_s
from pymc_kameleon.approximation.modes import Mode, mix
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.approximation import learning
from pymc_kameleon.samplers.approximation.metropolis import BY_S
from pymc_kameleon.samplers.approximation.moves import shares_of
from pymc_kameleon.samplers.approximation.step import several_modes
from pymc_kameleon.samplers.emulator import learning as emulators


@pytest.fixture(scope="module")
def bent():
    return pk.EmulatorMetropolis(model=banana())


@pytest.fixture(scope="module")
def step():
    return pk.EmulatorMetropolis(model=growth())


def chains_of(step, n_chains=2, tune=50):
    """Return fresh chains."""
    chains = [step.for_chain() for _ in range(n_chains)]
    for k, chain in enumerate(chains):
        chain.setup_chain(np.random.default_rng(k), tune, 10)
    return chains


def note_around(chain, middle, width, simulate, n, seed=1):
    """Let a chain have evaluated n points around one."""
    z = middle + width * np.random.default_rng(seed).standard_normal((n, middle.size))
    for row in z:
        logp = chain.log_density(row)
        learning.note(chain, row, logp, simulate(row))
    chain.state.x[:] = z[-1]
    return z


# ---- evaluations ----------------------------------------------------------------------------


def test_evaluations_are_as_they_were(bent):
    """Of all chains; the newest, and where there is no more room the oldest are forgotten."""
    chains = chains_of(bent)
    ours = [note_around(chain, np.zeros(2), 1, bend, 5 + k, k) for k, chain in enumerate(chains)]
    known = emulators.evaluations_of(chains)
    np.testing.assert_array_equal(known.z, np.concatenate(ours))
    np.testing.assert_allclose(known.x, known.z)
    np.testing.assert_allclose(known.y, [bend(z) for z in known.z])
    np.testing.assert_allclose(known.logp, [bent.log_density(z) for z in known.z])
    assert np.isnan(known.log_s).all()
    chains[0].tuning.n_learned[0] = 3
    newest = learning.evaluations_of(chains, since_fit=True)
    np.testing.assert_array_equal(newest.z, np.concatenate([ours[0][3:], ours[1]]))
    room = len(chains[0].tuning.evaluated)
    more = note_around(chains[0], np.zeros(2), 1, bend, room + 2, 7)
    found = learning.evaluations_of(chains[:1], since_fit=True)
    np.testing.assert_array_equal(found.z, more[2:])


def test_the_best_has_finite_outputs(bent):
    [chain] = chains_of(bent, 1)
    z = note_around(chain, np.zeros(2), 1, bend, 6)
    logp = np.array([bent.log_density(row) for row in z])
    best, value = learning.best_of(chain)
    np.testing.assert_array_equal(best, z[np.argmax(logp)])
    assert value == logp.max()
    learning.note(chain, np.zeros(2), 1e3, np.array([np.nan, 0.0]))
    learning.note(chain, np.zeros(2), np.nan, np.zeros(2))
    np.testing.assert_array_equal(learning.best_of(chain)[0], best)


def test_curvatures_are_those_of_the_noise(bent):
    [chain] = chains_of(bent, 1)
    note_around(chain, np.zeros(2), 1, bend, 6)
    found = emulators.curvatures(bent.log_density, emulators.evaluations_of([chain]))
    np.testing.assert_allclose(found, [1 / 4, 1], rtol=1e-4)


# ---- fits -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned(step):
    """Two chains that have learned from what one of them has seen, at the end of tuning."""
    chains = chains_of(step)

    def simulate(z):
        return logistic(np.exp(z[:2]))

    note_around(chains[0], GROWTH, 0.3, simulate, 40)
    for chain in chains:
        chain.state.x[:], chain.monitor.done = GROWTH, 20  # where a search would have led
    learning.learn_s(chains[:1], np.random.default_rng(0), chain_on_s.FIRST_LENGTHS, 0)  # a search
    learning.learn_from(chains, np.random.default_rng(1))
    assert [chain.parameters.n_others[0] for chain in chains] == [0, 0]
    note_around(chains[1], GROWTH, [0.05, 0.05, 0.3], simulate, 30, seed=2)
    chains[0].monitor.done = chains[1].monitor.done = 49
    learning.learn_from(chains, np.random.default_rng(2))
    return chains


def test_all_chains_learn_the_same(learned):
    one, other = learned
    for a, b in zip(one.parameters.s, other.parameters.s, strict=True):
        for x, y in zip(*((v if isinstance(v, tuple) else [v]) for v in (a, b)), strict=True):
            np.testing.assert_array_equal(x, y)
    for name in ("shares", "mean", "factor"):
        np.testing.assert_array_equal(*(getattr(c.parameters, name) for c in learned))
    for a, b in zip(one.tuning.choices, other.tuning.choices, strict=True):
        np.testing.assert_array_equal(a, b)
    assert [chain.tuning.n_learned[0] for chain in learned] == [40, 30]
    stops = len(one.state.others)
    assert [chain.parameters.n_others[0] for chain in learned] == [stops] * 2
    assert one.parameters.shares[BY_S] == pytest.approx(0.85, abs=1e-3)


def test_the_emulator_predicts_the_simulator(learned):
    rng = np.random.default_rng(3)
    x = np.exp(GROWTH[:2] + 0.05 * rng.standard_normal((30, 2)))
    truth = np.array([logistic(row) for row in x])
    errors = np.log(density_of(learned[0]).emulate(x) / truth)
    assert np.sqrt(np.mean(errors**2)) < 0.01  # a tenth of the noise


def test_the_shape_is_that_of_the_posterior(step, learned):
    """By importance sampling."""
    emulated, rng = learned[0].parameters.s, np.random.default_rng(4)
    t = rng.standard_normal((20_000, 3)) / np.sqrt(rng.chisquare(6, (20_000, 1)) / 6)
    z = emulated.mean + 1.2 * t @ emulated.factor.T
    outputs = np.array([logistic(np.exp(row[:2])) for row in z])
    log_w = step.log_density.logp_given(z, outputs) + 4.5 * np.log1p(np.sum(t * t, axis=1) / 6)
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    assert 1 / np.sum(w**2) > 1000
    mean = w @ z
    covariance = (w[:, None] * (z - mean)).T @ (z - mean)
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(emulated.mean - mean) < 0.6 * sd).all()
    ratio = np.sqrt(np.diag(emulated.factor @ emulated.factor.T)) / sd
    assert (np.abs(np.log(ratio)) < np.log(1.6)).all()


def test_nothing_finite_nothing_learned(bent):
    [chain] = chains_of(bent, 1)
    learning.note(chain, np.zeros(2), -np.inf, np.full(2, np.nan))
    before = [array.copy() for array in chain.parameters.s.emulator]
    with np.errstate(invalid="ignore"):
        learning.refit([chain])
    for found, own in zip(chain.parameters.s.emulator, before, strict=True):
        np.testing.assert_array_equal(found, own)


# ---- judging --------------------------------------------------------------------------------


def judged(bent, log_w, widening=2.0):
    """Return by how much s reaches farther, after moves that end with these log π − log s."""
    choices = allocate(emulators.Choices, {"boxes": 1}, widening=widening)
    bent.fit.judge(choices, np.array(log_w))
    return choices.widening[0]


def test_the_emulator_is_judged_by_its_own_moves(bent):
    """Where s is too high at most of their ends, it ends nearer."""
    assert judged(bent, [0.3, 0.3, 0.3]) == 3.0
    assert judged(bent, [-9.0, -9.0, 0.0]) == 1.0
    assert judged(bent, [-np.inf, np.nan, 0.0]) == 1.0
    assert judged(bent, [0.0], widening=7.0) == 8.0
    [chain] = chains_of(bent, 1)
    note_around(chain, np.zeros(2), 1, bend, 20)  # by no move
    learning.learn_from([chain], np.random.default_rng(1))
    assert chain.tuning.choices.widening[0] == 2.0


def test_moves_that_are_worth_more_are_made_oftener():
    """Between the least share, and what others leave."""

    def share(worth):
        worth = np.array([[w * 100, 100] for w in (0.1, 0.1, worth)])
        return shares_of(worth, np.full(3, learning.LEAST_SHARE))[BY_S]

    low, middle, high = map(share, (1e-6, 0.1, 100.0))
    assert low == pytest.approx(learning.LEAST_SHARE, abs=1e-3)
    assert middle == pytest.approx(1 / 3)
    assert high == pytest.approx(1 - 2 * learning.LEAST_SHARE, abs=1e-6)


@pytest.mark.parametrize(("worth", "trusted"), [(0.05, False), (1.5, True)])
def test_an_emulator_that_does_not_predict_moves_seldom(bent, worth, trusted):
    """But not before it was tried."""
    chains = chains_of(bent)
    for chain in chains:
        chain.tuning.worth[:BY_S] = 0.5 * 20, 20
    learning.settle_moves(chains)
    assert chains[1].parameters.shares[BY_S] > 0.8
    for chain in chains:
        chain.tuning.worth[BY_S] += 100 * np.array([worth, 1])
    learning.settle_moves(chains)
    for chain in chains:
        assert (chain.parameters.shares[BY_S] > 0.8) == trusted


def test_walks_have_the_shape_of_s_and_then_that_of_moves(bent):
    """As these are more than twice as many as coordinates."""
    [chain] = chains_of(bent, 1)
    s, tuning, rng = chain.parameters.s, chain.tuning, np.random.default_rng(2)
    s.mean[:], s.factor[:] = 1.0, np.diag([2.0, 3.0])
    learning.settle_moves([chain])
    np.testing.assert_allclose(chain.parameters.mean, s.mean)
    np.testing.assert_allclose(chain.parameters.factor, s.factor, rtol=1e-6)
    x, y = rng.normal([5, -5], 0.1, (2, 100, 2))
    tuning.moves.points[:100] = np.column_stack([x, y, np.zeros(100), np.ones(100)])
    tuning.moves.counts[0] = 100
    learning.settle_moves([chain])
    assert np.linalg.norm(chain.parameters.mean - [5, -5]) < 0.5


# ---- the shape of s -----------------------------------------------------------------------------


def test_a_shape_is_blended_with_the_last_one():
    """As if all points had been in one sample."""
    rng = np.random.default_rng(5)
    old, new = rng.normal(1, 2, (300, 2)), rng.normal(-1, 1, (100, 2))
    emulated = SimpleNamespace(mean=np.empty(2), factor=np.eye(2))
    chain_on_s.change_shape(emulated, old, 1)
    chain_on_s.change_shape(emulated, new, 0.25)
    both = np.concatenate([old, new])
    np.testing.assert_allclose(emulated.mean, both.mean(axis=0))
    covariance = np.cov(both.T, bias=True)
    np.testing.assert_allclose(emulated.factor @ emulated.factor.T, covariance, rtol=1e-6)


@pytest.mark.parametrize(("correlation", "expected"), [(0.0, 1), (0.55, 2), (0.76, 4), (0.99, 6)])
def test_slower_chains_have_their_stops_farther_apart(correlation, expected):
    """By the slowest coordinate: 0.15 is the largest mean of ρ^km over the first four stops."""
    rng, u = np.random.default_rng(6), np.zeros((3000, 8, 2))
    noise = rng.standard_normal(u.shape)
    for i in range(1, len(u)):
        u[i] = [correlation, 0] * u[i - 1] + np.sqrt(1 - np.square([correlation, 0])) * noise[i]
    assert chain_on_s.enough_transitions(u) == expected


@pytest.mark.parametrize("n_modes", [0, 2])
def test_s_ends_beyond_the_modes_that_were_found(bent, n_modes):
    """Chains have evaluated points of one of them alone; without the other one s ends nearer."""
    [chain] = chains_of(bent, 1)
    note_around(chain, np.zeros(2), 0.3, bend, 40)
    density, far = density_of(chain), np.array([[0.0, 0.0], [30.0, -20.0]])
    chain.parameters.s.modes.n_modes[0] = n_modes
    chain.parameters.s.modes.mode_means[:2] = far
    chain.fit.bound(chain, density, learning.evaluations_of([chain]))
    reach = np.linalg.norm(density.u_of(far[1:]))
    assert (chain.parameters.s.radius[0] > reach) == (n_modes == 2)


def test_it_says_between_which_modes_chains_go(bent):
    modes = bent.for_chain()
    modes.setup_chain(np.random.default_rng(0), 50, 10)
    modes = modes.parameters.s.modes
    assert several_modes(modes) is None
    mix(modes, [Mode(np.zeros(2), np.eye(2), 0.0)] * 2, np.array([0.75, 0.25]))
    found = several_modes(modes)
    assert found.code == "several_modes"
    assert "2 modes, or arms of a curved one, with about 75 %, 25 % of the mass" in found.what
