"""Maps under which posteriors with several modes may be symmetric."""

import numpy as np
import pymc as pm
import pytest
from runs import sample

import pymc_kameleon as pk
from pymc_kameleon.model.layout import Layout
from pymc_kameleon.samplers.symmetries import (
    MOST_COORDINATES,
    _parts,
    likely_symmetries,
)


@pytest.fixture(scope="module")
def labels():
    """A mixture whose three labels can be exchanged, and a scale that has none."""
    rng = np.random.default_rng(1)
    y = rng.normal(np.repeat([-6, 0, 7], 40), np.repeat([1, 0.5, 2], 40))
    with pm.Model() as model:
        weights = pm.Dirichlet("weights", np.full(3, 2.0))
        pm.HalfNormal("scale")
        means = pm.Normal("means", 0, 10, shape=3)
        sds = pm.HalfNormal("sds", 5, shape=3)
        pm.NormalMixture("y", weights, means, sds, observed=y)
    return pk.CyclicalKAM(model=model)


@pytest.mark.slow
def test_each_is_its_own_inverse_and_keeps_volumes(labels):
    maps = likely_symmetries(labels)
    assert len({one.tobytes() for one in maps}) == len(maps)
    for one in maps:
        np.testing.assert_allclose(one @ one, np.eye(9), atol=1e-12)
        assert abs(np.linalg.det(one)) == pytest.approx(1)
        assert not np.array_equal(one, np.eye(9))


def test_labels_are_exchanged_in_all_variables(labels):
    """By the log-density: exchanges of two labels leave it as it is, and nothing else does."""
    rng = np.random.default_rng(2)
    points = rng.standard_normal((3, 9))
    same = [
        one
        for one in likely_symmetries(labels)
        if all(
            labels.log_density(one @ x) == pytest.approx(labels.log_density(x), rel=1e-12)
            for x in points
        )
    ]
    assert len(same) == 3
    for one, order in zip(same, ([1, 0, 2], [0, 2, 1], [2, 1, 0]), strict=True):
        for x in points:
            before, after = (labels.layout.unraveled(q) for q in (x, one @ x))
            np.testing.assert_allclose(after["means"], before["means"][order])
            np.testing.assert_allclose(after["sds_log__"], before["sds_log__"][order])


class Bare:
    """What maps are made from of a step: a model."""

    def __init__(self, model):
        self.model, self.vars = model, model.value_vars
        point = model.initial_point()
        self.layout = Layout(model, self.vars, point)


def orders_of(maps):
    """Return where each number of 0, 1, … goes, with its sign, of maps that only move these."""
    return [tuple((one @ np.arange(1, 1 + len(one))).astype(int)) for one in maps]


def test_the_likeliest_guesses_come_first():
    """Numbered scalars are exchanged together, then alone; then any of the same transform."""
    with pm.Model() as model:
        pm.HalfNormal("a1")
        pm.HalfNormal("a2", 3)
        pm.LogNormal("k_1")
        pm.LogNormal("k_2")
        pm.Uniform("b")
        pm.HalfNormal("sigma")
    found = orders_of(likely_symmetries(Bare(model)))
    assert found[0] == (2, 1, 4, 3, 5, 6)
    assert found[2:4] == [(2, 1, 3, 4, 5, 6), (1, 2, 4, 3, 5, 6)]
    assert len(found) == 1 + 10 + 1
    assert [order for order in found if order[4] != 5] == [(1, 2, 3, 4, -5, 6)]  # b becomes 1 − b


def test_any_two_places_of_a_short_axis_and_signs():
    with pm.Model() as model:
        pm.Normal("x", shape=3)
        pm.Normal("long", shape=9)
    found = [order[:3] for order in orders_of(likely_symmetries(Bare(model)))]
    assert found[::2][:3] == [(2, 1, 3), (1, 3, 2), (3, 2, 1)]
    assert found[1::2][:3] == [(-1, -2, -3), (1, 2, 3), (-1, 2, 3)]
    with pm.Model() as model:
        pm.Normal("x", shape=(2, MOST_COORDINATES))
    assert likely_symmetries(Bare(model)) == []


def test_numbers_are_reversed_about_0_and_one_half():
    """Of other middles it would be chance if there is another mode."""
    with pm.Model() as model:
        low = pm.Normal("x")
        pm.Uniform("w", shape=2)
        pm.Beta("b", 1, 1)
        pm.Uniform("y", [-1, -2], [1, 2])
        pm.Uniform("rate", 0, 5)
        pm.Uniform("some", [0, 0], [1, 5])
        pm.TruncatedNormal("t", lower=0)
        pm.Uniform("u", low, low + 1)
        pm.LogNormal("k")
    expected = [0, 0.5, 0.5, 0.5, 0, 0, *[np.nan] * 6]
    found = np.full(len(expected), np.nan)
    for part in _parts(Bare(model)).values():
        found[part.places] = part.middle
    np.testing.assert_array_equal(found, expected)


def test_columns_of_loadings_change_sign_along_with_scores():
    with pm.Model() as model:
        pm.Normal("loading", shape=(3, 2))
        pm.Normal("score", shape=2)
    found = orders_of(likely_symmetries(Bare(model)))
    assert (2, 1, 4, 3, 6, 5, 8, 7) in found[:2]
    assert (-1, 2, -3, 4, -5, 6, -7, 8) in found[:2]
    assert (1, 2, 3, 4, 5, 6, -7, -8) in found


def test_rows_of_a_square_matrix_are_exchanged_alone_too():
    with pm.Model() as model:
        pm.LogNormal("x", shape=(2, 2))
    found = orders_of(likely_symmetries(Bare(model)))
    assert found == [(4, 3, 2, 1), (3, 4, 1, 2), (2, 1, 4, 3)]


@pytest.mark.slow
def test_all_chains_visit_all_labels(labels):
    """In about the same share of draws, from wherever they begin."""
    dt = sample(labels, draws=1000, tune=300, chains=3, random_seed=1)
    orders = np.argsort(dt.posterior["means"].values, axis=2) @ [9, 3, 1]
    for chain in orders:
        _, counts = np.unique(chain, return_counts=True)
        assert len(counts) == 6
        assert counts.min() > 70
