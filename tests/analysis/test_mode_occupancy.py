"""Modes of draws alone, and what the chains' visits to them are worth."""

import logging

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from averages import autoregressive
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import messages, sample

import pymc_kameleon as pk
from pymc_kameleon.analysis import mode_occupancy
from pymc_kameleon.analysis import modes_of_draws as analysis_modes_of_draws
from pymc_kameleon.analysis.modes_of_draws import find_modes, modes_of_draws, visited
from pymc_kameleon.step.initial_search import InitialSearch

CHAINS, DRAWS = 4, 1000


def normals(rng, d, correlation=0.5, draws=DRAWS):
    return autoregressive(rng, (CHAINS, draws, d), correlation)


def tree(**posterior):
    return az.from_dict({"posterior": posterior})


# ---- one mode -------------------------------------------------------------------------------


def banana(rng, d):
    x = normals(rng, d)
    x[..., 0] *= 3
    x[..., 1] = 0.3 * x[..., 1] + x[..., 0] ** 2
    return x


def ring(rng, d):
    x, angle = 0.05 * normals(rng, d), rng.uniform(0, 2 * np.pi, (CHAINS, DRAWS))
    x[..., 0] += np.cos(angle)
    x[..., 1] += np.sin(angle)
    return x


def horseshoe(rng, d, arms=5):
    """A half circle with long arms: few draws are in the middle of the line through them."""
    x, place = 0.05 * normals(rng, d), rng.uniform(-1, 1, (CHAINS, DRAWS)) * (np.pi / 2 + arms)
    angle = np.clip(place, -np.pi / 2, np.pi / 2)
    x[..., 0] += np.sin(angle)
    x[..., 1] += np.abs(place - angle) - np.cos(angle)
    return x


def correlated(rng, d):
    covariance = 0.999 + 0.001 * np.eye(d)
    return normals(rng, d) @ np.linalg.cholesky(covariance).T


def funnel(rng, d):
    v = 3 * normals(rng, 1)
    return np.concatenate([v, np.exp(v / 2) * normals(rng, d - 1)], axis=2)


def student(rng, d, nu):
    return normals(rng, d) / np.sqrt(rng.chisquare(nu, (CHAINS, DRAWS, 1)) / nu)


ONE_MODE = {
    "normal": normals,
    "slow": lambda rng, d: normals(rng, d, 0.95),
    "chains that hardly move": lambda rng, d: normals(rng, d, 0.998),
    "t3": lambda rng, d: student(rng, d, 3),
    "Cauchy": lambda rng, d: student(rng, d, 1),
    "exponential": lambda rng, d: rng.exponential(size=(CHAINS, DRAWS, d)),
    "uniform": lambda rng, d: rng.uniform(size=(CHAINS, DRAWS, d)),
    "lognormal": lambda rng, d: np.exp(2 * normals(rng, d)),
    "spike and slab": lambda rng, d: normals(rng, d) * rng.choice([0.05, 1], (CHAINS, DRAWS, d)),
    "scales": lambda rng, d: normals(rng, d) * np.logspace(-3, 3, d),
    "banana": banana,
    "ring": ring,
    "horseshoe": lambda rng, d: horseshoe(rng, d, 3),  # of arms of 5, one in six is split
    "correlated": correlated,
    "funnel": funnel,
}


@pytest.mark.parametrize("d", [2, pytest.param(9, marks=pytest.mark.slow), 32])
@pytest.mark.parametrize("shape", ONE_MODE)
def test_one_mode_is_not_split(shape, d):
    assert find_modes(ONE_MODE[shape](np.random.default_rng(1), d)).max() == 0


@pytest.mark.slow
def test_a_slow_chain_is_split_if_its_draws_count_as_independent(monkeypatch):
    slow = ONE_MODE["chains that hardly move"](np.random.default_rng(1), 32)
    monkeypatch.setattr(analysis_modes_of_draws, "independent_share", lambda values, chains: 1.0)
    assert find_modes(slow).max() > 0


def test_groups_along_a_curve_are_one(monkeypatch):
    """Mostly, where arms are long; and not without what joins groups."""
    curved = [horseshoe(np.random.default_rng(seed), 2) for seed in range(16)]
    # One of eight is split, so 8 of 16 are once in 4000 runs; two of three without joining.
    assert sum(find_modes(x).max() > 0 for x in curved) < 8
    monkeypatch.setattr(analysis_modes_of_draws, "SAME_GROUP_DENSITY", 1.0)
    assert any(find_modes(x).max() > 0 for x in curved)


# ---- several --------------------------------------------------------------------------------

SIT = np.repeat([[0], [1], [0], [0]], DRAWS, axis=1)
"""Chains that never jump; one alone is in the second mode."""


def jumping(rng, weights, stays=0.9, draws=DRAWS):
    """Chains that jump now and then to a mode drawn anew."""
    n = CHAINS * draws
    drawn = rng.choice(len(weights), n, p=weights)
    starts = (rng.uniform(size=n) > stays) | (np.arange(n) % draws == 0)
    return drawn[np.maximum.accumulate(np.where(starts, np.arange(n), 0))].reshape(CHAINS, draws)


def normal_modes(rng, modes, distance, sds, d):
    x = normals(rng, d) * np.asarray(sds)[modes][..., None]
    x[..., 0] += distance * modes
    return x


def agrees(found, modes):
    """Share of the draws of the same mode, whatever the modes' numbers."""
    table = np.zeros((found.max() + 1, modes.max() + 1), int)
    np.add.at(table, (found.ravel(), modes.ravel()), 1)
    return table.max(axis=1).sum() / modes.size if len(table) == len(table.T) else 0.0


@pytest.mark.parametrize("d", [1, *(pytest.param(d, marks=pytest.mark.slow) for d in (2, 8)), 32])
@pytest.mark.parametrize(("distance", "sds"), [(16, (0.7, 1.4)), (8, (1, 1)), (600, (1, 1))])
def test_two_modes_are_found(d, distance, sds):
    rng = np.random.default_rng(2)
    for modes in [SIT, jumping(rng, [0.2, 0.8])]:
        found = find_modes(normal_modes(rng, modes, distance, sds, d))
        assert agrees(found, modes) > 0.999
        assert found.sum() < found.size / 2, "mode 0 is the one with most draws"


def test_a_narrow_mode_beside_a_wide_one():
    rng = np.random.default_rng(3)
    modes = jumping(rng, [0.5, 0.5])
    assert agrees(find_modes(normal_modes(rng, modes, 10, (1, 0.01), 8)), modes) > 0.99


def test_modes_along_the_short_axis_of_correlated_draws():
    rng = np.random.default_rng(4)
    modes = jumping(rng, [0.5, 0.5])
    x = normals(rng, 8) @ np.linalg.cholesky(0.99 + 0.01 * np.eye(8)).T
    x[..., :2] += 0.9 * modes[..., None] * [1, -1]
    assert agrees(find_modes(x), modes) > 0.99


def test_a_rare_mode_of_one_chain():
    rng, modes = np.random.default_rng(5), np.zeros((CHAINS, DRAWS), int)
    modes[2, 300:400] = 1
    assert agrees(find_modes(normal_modes(rng, modes, 10, (1, 1), 8)), modes) > 0.999


@pytest.mark.slow
@pytest.mark.parametrize("jumps", [True, False])
def test_labels_of_a_mixture(jumps):
    """Three components with means, scales and weights: six modes, or those that chains sit in."""
    rng = np.random.default_rng(6)
    orders = np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [1, 0, 2], [2, 1, 0]])
    modes = jumping(rng, np.ones(6) / 6) if jumps else np.repeat([[0], [1], [2], [1]], DRAWS, 1)
    order, x = orders[modes], normals(rng, 9, 0.7)
    means = np.array([-4, 0, 5])[order] + 0.3 * x[..., :3]
    sds = np.exp(np.array([0, 0.3, -0.2])[order] + 0.2 * x[..., 3:6])
    weights = np.array([0.2, 0.3, 0.5])[order] + 0.04 * x[..., 6:]
    found = pk.mode_occupancy(tree(means=means, sds=sds, weights=weights))
    assert found.weights_known == jumps
    assert ("visit all 6 modes" if jumps else "never jump") in found.verdict
    assert agrees(found.dataset["mode_of_draw"].values, modes) > 0.999


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3)), min_size=2, max_size=2),
    st.permutations(range(CHAINS)),
)
def test_units_and_order_of_chains_do_not_matter(units, order):
    rng = np.random.default_rng(7)
    x = normal_modes(rng, SIT, 8, (1, 2), 2)
    shifts, scales = np.transpose(units)
    assert (find_modes((shifts + scales * x)[order]) == find_modes(x)[order]).all()


def test_many_coordinates_and_those_that_say_nothing():
    rng = np.random.default_rng(8)
    modes = jumping(rng, [0.5, 0.5])
    x = normal_modes(rng, modes, 16, (1, 1), 100)
    constant, infinite = np.zeros(modes.shape), np.where(x[..., 0] > 16, np.inf, 0.0)
    found = pk.mode_occupancy(tree(x=x, constant=constant, infinite=infinite, k=modes))
    assert agrees(found.dataset["mode_of_draw"].values, modes) > 0.999
    assert "k" not in found.centers


@pytest.mark.parametrize("draws", [4, 5, 60])
def test_few_draws_and_chains_that_do_not_move(draws):
    still = np.ones((1, draws, 2)) * np.array([0, 1, 1, 2])[:, None, None]
    rng = np.random.default_rng(15)
    for x in [still, np.where([True, False], still, rng.normal(size=still.shape))]:
        found = pk.mode_occupancy(tree(x=x))
        assert found.dataset["jumps"].sum() == 0
        assert found.verdict in repr(found)


# ---- visits ---------------------------------------------------------------------------------


def test_a_visit_has_to_go_well_into_a_mode():
    nearest = np.array([1, 0, 0, 1, 1, 0, 1, 1, 0])
    inside = np.array([0, 0, 1, 0, 0, 1, 0, 1, 0], bool)
    assert visited(nearest, inside).tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert visited(nearest, ~nearest.astype(bool)).tolist() == [0] * 9
    assert visited(nearest, np.zeros(9, bool)).tolist() == nearest.tolist()


def test_draws_between_two_modes_are_no_jumps():
    x = np.array([[0, 0.1, 4.9, 0.2, 5.1, 0, 9.9, 10, 5.1, 4.9, 10.0]])
    distances = np.square(x[:, None] - np.array([[0], [10]]))
    assert modes_of_draws(distances)[0].tolist() == [0] * 6 + [1] * 5


def test_counts(monkeypatch):
    x = np.array([[0, 0, 9, 9, 0, 0, 9, 0], [0, 0.1, 0, 0, 0, 0, 0, 0]])
    monkeypatch.setattr(mode_occupancy, "find_modes", lambda draws: (draws[..., 0] > 5).astype(int))
    found = pk.mode_occupancy(tree(x=x, y=x), var_names="x")
    data = found.dataset
    assert data["share"].values.tolist() == [[5 / 8, 1], [3 / 8, 0]]
    assert data["visits"].values.tolist() == [[3, 1], [2, 0]]
    assert data["jumps"].values.tolist() == [4, 0]
    assert data["weight"].values.tolist() == [13 / 16, 3 / 16]
    indicator = data["mode_of_draw"].values.astype(float)
    assert data["ess"].values[1] == pytest.approx(float(pm.stats.ess(indicator, method="mean")))
    assert "chain 1 never" in found.verdict
    assert list(found.centers) == ["x"]


def test_what_one_mode_does_not_tell_is_not_printed():
    x = normals(np.random.default_rng(3), 1)[..., 0]
    found = pk.mode_occupancy(tree(x=x))
    assert found.dataset["ess"].isnull().all()
    lines = repr(found).splitlines()
    assert lines[0].split()[:2] == ["weight", "visits"]
    assert "NaN" not in repr(found)
    assert len(lines) == 5


def test_there_have_to_be_draws():
    with pytest.raises(ValueError, match=r"no draws after tuning: go on with pk\.resume\(dt"):
        pk.mode_occupancy(xr.Dataset({"x": (("chain", "draw"), np.zeros((4, 0)))}))


def test_verdicts():
    rng = np.random.default_rng(9)

    def verdict(modes):
        x = 10 * modes + normals(rng, 1, draws=modes.shape[1])[..., 0]
        found = pk.mode_occupancy(tree(x=x))
        assert found.verdict in repr(found)
        return found.verdict, found.weights_known

    said, known = verdict(jumping(rng, [0.3, 0.7], draws=20_000))
    assert said.startswith("All 4 chains visit both modes, ")
    assert known
    # Of 80 000 draws, 19 of them for one; 24 runs had a standard deviation of 5 %.
    assert int(said.split(", ")[1].split()[0]) == pytest.approx(80_000 / 19, rel=0.25)
    said, known = verdict(SIT)
    assert "never jump: the weights of the modes are not known" in said
    assert not known
    once = SIT.copy()
    once[0, 500:] = 1
    said, known = verdict(once)
    assert "only once, and chains 1, 2, 3 never" in said
    assert not known
    assert verdict(0 * SIT) == ("All 4 chains are in one mode.", True)


def test_centers():
    rng = np.random.default_rng(10)
    dt = tree(x=normal_modes(rng, SIT, 8, (1, 1), 3), y=rng.standard_normal(SIT.shape))
    found = pk.mode_occupancy(dt)
    assert found.centers["x"].dims == ("mode", "x_dim_0")
    np.testing.assert_allclose(found.centers["x"][:, 0], [0, 8], atol=0.2)


def test_what_does_not_fit_is_refused():
    rng = np.random.default_rng(11)
    dt = tree(x=rng.standard_normal((4, 50, 2)), k=np.zeros((4, 50), int))
    with pytest.raises(ValueError, match=r"no \['z'\] among"):
        pk.mode_occupancy(dt, var_names=["x", "z"])
    with pytest.raises(ValueError, match=r"\['k'\] has draws that are finite and not all equal"):
        pk.mode_occupancy(dt, var_names="k")


# ---- after sampling -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def square():
    """Two modes, some hundred standard deviations apart."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, 3)
        pm.Normal("b")
        pm.Normal("y", a**2, 0.1, observed=[9.0])
    return model


@pytest.mark.parametrize(("starts", "warns"), [((-3, 3), True), ((3, 3), False)])
def test_chains_in_different_modes_are_told(square, caplog, starts, warns, monkeypatch):
    """Those that begin where they are told."""
    monkeypatch.setattr(InitialSearch, "may_look", False)
    with caplog.at_level(logging.WARNING, "pymc_kameleon"):
        initvals = [{"a": a, "b": 0.0} for a in starts]
        options = {"random_seed": 1, "compute_convergence_checks": True, "initvals": initvals}
        sample(pk.GAM(model=square), draws=200, tune=200, **options)
    told = [text for text in messages(caplog) if "[modes_apart]" in text]
    assert len(told) == warns
    assert not warns or "pk.mode_occupancy(dt)" in told[0]


def test_counts_are_no_modes():
    """Though they have gaps: a float variable that is 0 or 1, or rounded."""
    x = np.random.default_rng(1).standard_normal((4, 500))
    dt = tree(x=x, positive=(x > 0).astype(float), rounded=np.round(x))
    assert pk.mode_occupancy(dt).dataset.sizes["mode"] == 1
