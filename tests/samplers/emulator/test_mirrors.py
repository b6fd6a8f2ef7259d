"""Modes that mirror one another: how they are found, and that chains go to all of them."""

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from runs import codes, sample
from scipy import stats
from simulated import DECAYED, TIMES, decays, growth, parts, simulator, two_decays

import pymc_kameleon as pk
from pymc_kameleon.approximation.search import MOST_IMAGES, PosteriorSearch
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.emulator.density import Mirrors
from pymc_kameleon.samplers.emulator.findings import in_words
from pymc_kameleon.samplers.emulator.mirrors import Images
from pymc_kameleon.step.job import ChainState, Job, advance

# ---- the look -----------------------------------------------------------------------------------


def found_by(step, monkeypatch, seed=1):
    """Return the maps that a search goes by, to how many the same outputs, and images (n, d)."""
    seen, look = [], PosteriorSearch._look_at_images

    def noted(self):
        looking, logp = look(self), None
        while True:
            try:
                points = looking.send(logp)
            except StopIteration:
                return
            seen.extend(points)
            logp = yield points

    monkeypatch.setattr(PosteriorSearch, "_look_at_images", noted)
    own, start = step.for_chain(), step.layout.raveled(step.model.initial_point())
    own.setup_chain(np.random.default_rng([seed, 0]), 60, 20)
    job = Job([step], step.outputs(step.var_names[:1]), keeps_warmup=True)
    state, _ = advance(job, ChainState(start, [own.sampling_state]), 1)
    mirrors = state.steps[0].parameters.s.mirrors
    return mirrors.maps[: mirrors.n_maps[0]], mirrors.n_same[0], seen


@pytest.fixture(scope="module")
def step():
    return pk.EmulatorMetropolis(model=decays())


PLACES = np.linspace(-4, 4, 15)


def two_peaks(x):
    """Return a sum of two peaks, of a weight and two places."""
    return x[0] * np.exp(-2 * (PLACES - x[1]) ** 2) + (1 - x[0]) * np.exp(-2 * (PLACES - x[2]) ** 2)


def peaks():
    data = two_peaks([0.3, -1.5, 1.5]) + 0.05 * np.random.default_rng(1).normal(size=15)
    with pm.Model() as model:
        x = pt.concatenate([[pm.Uniform("w", 0, 1)], pm.Normal("place", 0, 2, shape=2)])
        pm.Normal("y", simulator(two_peaks)(x), 0.05, observed=data)
    return model


def products_of_two(x):
    return np.outer(x[:3], x[3:]).ravel()


def loadings():
    data = products_of_two(np.array([1, 0.7, -0.8, 1.2, -0.5, 0.9, 0.3]))
    with pm.Model() as model:
        x = pt.concatenate([pm.Normal("loading", shape=3), pm.Normal("score", shape=4)])
        pm.Normal("y", simulator(products_of_two)(x), 0.1, observed=data)
    return model


def by_rows(x):
    return x[[0, 2]] @ np.exp(-np.multiply.outer(x[[1, 3]], TIMES))


def matrix():
    data = by_rows(np.array([2, 0.4, 1, 2.5]))
    with pm.Model() as model:
        x = pm.LogNormal("x", 0, 1, shape=(2, 2))
        pm.Normal("y", simulator(by_rows)(x.ravel()), 0.03, observed=data)
    return model


def with_offset(x):
    return np.array([x[0] ** 2 + x[1], x[1]])


def offset():
    """About 0, so that its sign makes no difference there, and there alone."""
    with pm.Model() as model:
        x = pm.Normal("x", [1.0, 0.0], [1.0, 0.1], shape=2)
        pm.Normal("y", simulator(with_offset)(x), 0.1, observed=[1.0, 0.0])
    return model


MIRRORED = {
    "two rates change places": (decays, np.eye(2)[::-1]),
    "amplitudes change places along with rates": (parts, np.eye(4)[[1, 0, 3, 2]]),
    "a weight is reversed as places are exchanged": (peaks, [[-1, 0, 0], [0, 0, 1], [0, 1, 0]]),
    "loadings and scores change sign": (loadings, -np.eye(7)),
    "rows of a square matrix change places": (matrix, np.eye(4)[[2, 3, 0, 1]]),
    "what is squared changes sign, and an offset does not": (offset, np.diag([-1, 1])),
}


@pytest.mark.slow
@pytest.mark.parametrize(("build", "expected"), MIRRORED.values(), ids=MIRRORED)
def test_the_map_is_found_and_no_other(build, expected, monkeypatch):
    """Parts of it alone give the same outputs, other than those that fit."""
    maps, n_same, seen = found_by(pk.EmulatorMetropolis(model=build()), monkeypatch)
    np.testing.assert_array_equal(maps, [expected])
    assert n_same == 1
    assert len(seen) <= MOST_IMAGES + 2


def even(x):
    return x**2 + 0.1 * x**4


@pytest.mark.slow
def test_signs_change_and_all_products_are_modes(monkeypatch):
    with pm.Model() as model:
        x = pm.Normal("x", 0, 2, shape=2)
        pm.Normal("y", simulator(even)(x), 0.2, observed=[3.0, 4.0])
    maps, n_same, _ = found_by(pk.EmulatorMetropolis(model=model), monkeypatch)
    assert {tuple(np.diag(one)) for one in maps} == {(-1, -1), (-1, 1), (1, -1)}
    assert n_same == 3


def squares(x):
    return x**2


def test_masses_of_images_are_those_of_the_posterior():
    """The prior tells them apart: N(1, 1) at ±2 with a likelihood that is narrow there."""
    with pm.Model() as model:
        pm.Normal("y", simulator(squares)(pm.Normal("x", 1, 1, shape=1)), 0.4, observed=[4.0])
    with model:
        dt = sample(pk.EmulatorMetropolis(), tune=60, draws=60)
    grid = np.linspace(-4, 4, 4001)
    density = stats.norm.pdf(grid, 1) * stats.norm.pdf(4, grid**2, 0.4)
    exact = density[grid < 0].sum() / density[grid > 0].sum()
    mass = dt["learned"]["other_mode_mass"].values
    place = dt["learned"]["other_mode"].values
    assert abs(mass[0] / exact - 1) < 0.1
    assert abs(place[0, 0] + 2) < 0.1


def test_maps_that_make_too_many_modes_are_left_out():
    """Six signs have 64, of which 32 have room; what is kept is a group."""
    signs = [np.diag(np.where(np.arange(6) == k, -1.0, 1.0)) for k in range(6)]
    sizes = {"mirrors": 31, "d": 6}
    mirrors = allocate(Mirrors, sizes)
    images = Images(SimpleNamespace(parameters=SimpleNamespace(s=SimpleNamespace(mirrors=mirrors))))
    images.keep(signs[:3], signs[3:])
    assert (mirrors.n_same[0], mirrors.n_maps[0], mirrors.n_products[0]) == (3, 5, 31)
    kept = {tuple(np.diag(g)) for g in mirrors.maps}
    assert len(kept) == 31
    assert all(tuple(np.multiply(a, b)) in kept | {(1,) * 6} for a in kept for b in kept)


def unequal(x):
    return two_decays(x) + 0.15 * np.exp(-TIMES * x[1])


@pytest.mark.slow
def test_an_image_that_is_not_the_same_is_climbed_from(monkeypatch):
    """Two modes that are mirror images only nearly."""
    with pm.Model() as model:
        x = pm.LogNormal("x", 0, 1, shape=2)
        data = unequal(np.array([0.2, 1.6])) + 0.1 * np.random.default_rng(1).normal(size=8)
        pm.Normal("y", simulator(unequal)(x), 0.1, observed=data)
    maps, n_same, seen = found_by(pk.EmulatorMetropolis(model=model), monkeypatch)
    np.testing.assert_array_equal(maps, [np.eye(2)[::-1]])
    assert n_same == 0
    assert len(seen) > 2  # and not the image alone


@pytest.mark.slow
def test_without_a_symmetry_it_costs_few_evaluations(monkeypatch):
    maps, _, seen = found_by(pk.EmulatorMetropolis(model=growth()), monkeypatch)
    assert len(maps) == 0
    assert 0 < len(seen) <= MOST_IMAGES


@pytest.mark.slow
def test_nothing_is_looked_at_where_nothing_can_be_exchanged(monkeypatch):
    with pm.Model() as model:
        x = pm.HalfNormal("x", 2)
        pm.Normal("y", simulator(even)(pt.stack([x])), 0.2, observed=[3.0])
    maps, _, seen = found_by(pk.EmulatorMetropolis(model=model), monkeypatch)
    assert maps.shape == (0, 1, 1)
    assert seen == []


def test_what_is_said():
    names = ["a[0]", "a[1]", "k[0]", "k[1]"]
    assert in_words(np.diag([1, -1, 1, 1.0]), names) == "a[1] can be reversed"
    said = in_words(np.eye(4)[[1, 0, 3, 2]], names)
    assert said == "a[0] and a[1] and k[0] and k[1] can change places"
    both = np.eye(4)[[1, 0, 2, 3]] @ np.diag([1, 1, 1, -1.0])
    assert in_words(both, names) == "a[0] and a[1] can change places, and k[1] can be reversed"


# ---- a run --------------------------------------------------------------------------------------


def share_by_grid():
    """Return the mass where fast > slow, by a sum over a grid of logarithms."""
    z = np.linspace(-4, 3, 701)
    y = np.exp(-np.multiply.outer(np.exp(z), TIMES))
    log_p = -0.5 * np.square((y[:, None] + y - DECAYED) / 0.05).sum(axis=2)
    log_p += stats.norm.logpdf(z, 0.15, 0.7)[:, None] + stats.norm.logpdf(z, -0.15, 0.7)
    p = np.exp(log_p - log_p.max())
    return p[z[:, None] > z].sum() / p.sum()


def test_chains_go_to_both_modes_as_often_as_they_should(step):
    """Which is not as often, as the priors are not the same."""
    dt = sample(step, tune=30, draws=250, chains=4, random_seed=1)
    assert codes(dt).count("mirrored_modes") == 1
    assert "fast and slow can change places" in str(dt["findings"]["what"].values)
    assert "mirrors_not_sought" not in codes(dt)
    is_faster = dt["posterior"]["fast"].values > dt["posterior"]["slow"].values
    share = share_by_grid()
    assert 0.65 < share < 0.85
    assert abs(is_faster.mean() - share) < 0.06
    assert (np.abs(is_faster.mean(axis=1) - share) < 0.12).all()


@pytest.mark.slow
def test_what_workers_find_is_said_once_here(step):
    """Also if the way asks for evaluations, and so is begun again and again."""
    dt = sample(step, tune=10, draws=10, cores=2, max_concurrent=2)
    assert codes(dt).count("mirrored_modes") == 1


def test_a_look_that_no_evaluations_were_left_for_is_told(step, monkeypatch):
    """However many the climb before it took."""

    def endless(self):
        while True:
            yield from self._evaluated(self.best.z[None])

    monkeypatch.setattr(PosteriorSearch, "_look_at_images", endless)
    dt = sample(step, tune=None, draws=None, max_evaluations=52)
    assert codes(dt).count("mirrors_not_sought") == 1
