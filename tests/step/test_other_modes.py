"""Chains of all samplers look for other modes and begin in each, so that R-hat can show them."""

import numpy as np
import pymc as pm
import pytest
from models import Counting, black_box
from runs import codes, sample

import pymc_kameleon as pk
from pymc_kameleon.approximation.modes import Mode
from pymc_kameleon.step.initial_search import InitialSearch
from pymc_kameleon.step.problems import impossible_prior, pool_searches

FAR = np.array([9.0, 12.0])
BY_GRADIENT = pk.GadRWM, pk.GadMALA
SAMPLERS = pk.GAM, pk.KAM, pk.PCAKAM, pk.CyclicalKAM, pk.CMH, pk.CMTM, *BY_GRADIENT


def two_modes(x):
    """Normals at 0 and at FAR, with two thirds and one third of the mass."""
    z = x - FAR
    return np.logaddexp(np.log(2) - x @ x / 2, 2 * np.log(2) - 2 * z @ z)


def of_other(values):
    """Return whether draws (..., 2) are of the mode at FAR."""
    return values @ FAR > FAR @ FAR / 2


def with_gradient():
    """Return a model of the same modes, with a gradient, and a proper prior."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 20, shape=2)
        modes = np.log(2) - x @ x / 2, 2 * np.log(2) - 2 * (x - FAR) @ (x - FAR)
        pm.Potential("modes", pm.math.logaddexp(*modes))
    return model


def run(sampler, tune=300, **options):
    is_by_gradient = sampler in BY_GRADIENT
    step = sampler(model=with_gradient() if is_by_gradient else black_box(Counting(two_modes)))
    return sample(step, tune=tune, draws=50, chains=2, **options)


@pytest.fixture
def known(monkeypatch):
    """Let each look find both modes."""
    home, other = Mode(np.zeros(2), np.eye(2), np.log(2)), Mode(FAR, 0.5 * np.eye(2), np.log(4))

    def look(search, at, logp):
        start = search.approach(FAR.copy(), logp)
        search.note_searches(9, 2)
        return [home, other], [None, start._replace(x=FAR, factor=other.factor, logp=logp(FAR))]

    monkeypatch.setattr(InitialSearch, "look_elsewhere", look)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_second_chain_begins_in_the_second_mode(sampler, known):
    dt = run(sampler, discard_tuned_samples=False)
    assert of_other(dt["warmup_posterior"]["x"].values)[:, 0].tolist() == [False, True]


@pytest.mark.parametrize("sampler", [pk.GAM, pk.CMTM, pk.GadMALA])
def test_chains_in_two_modes_stay_there_so_that_r_hat_shows_it(sampler, known):
    stay = of_other(run(sampler)["posterior"]["x"].values)
    assert stay.all(axis=1).tolist() == [False, True]
    assert not stay[0].any()


@pytest.mark.parametrize("ends", [1, 2])
def test_chains_pool_what_they_have_learned_in_one_mode(ends):
    """With several ends, those in the same one; all of them are the broken twin."""
    chains = [pk.GAM(model=black_box(Counting(two_modes))) for _ in range(3)]
    for chain, mean in zip(chains, [np.zeros(2), FAR, FAR + 0.4], strict=True):
        chain.setup_chain(1, 100, 10)
        chain.monitor.ends, chain.tuning.shape.moments.mean[:] = ends, mean
        chain.tuning.shape.moments.factor[:] = np.eye(2)
    pk.GAM.learn(chains)
    means = [chain.tuning.shape.moments.mean for chain in chains]
    whole = (2 * FAR + 0.4) / 3
    pooled = [whole] * 3 if ends == 1 else [np.zeros(2), FAR + 0.2, FAR + 0.2]
    np.testing.assert_allclose(means, pooled)


def test_a_look_is_made_and_counted():
    """One sentence tells of the looks of all chains."""
    dt = run(pk.GAM, discard_tuned_samples=False)
    assert sum(code in ("searches", "other_ends", "few_searches") for code in codes(dt)) == 1
    assert np.all(dt["warmup_sample_stats"]["n_logp"].values[:, 0] > 200)


@pytest.mark.parametrize("sampler", BY_GRADIENT)
def test_with_a_gradient_a_look_finds_the_other_mode(sampler):
    """With default tuning it takes some hundred evaluations."""
    dt = run(sampler, tune=1000, discard_tuned_samples=False)
    assert of_other(dt["posterior"]["x"].values).mean(axis=1).tolist() in ([0, 1], [1, 0])
    n_logp = dt["warmup_sample_stats"]["n_logp"].values
    assert np.all(n_logp[:, 0] > 200)
    assert np.all(n_logp[:, 0] < 0.5 * n_logp.sum(axis=1))


@pytest.mark.parametrize(
    ("options", "how"),
    [({}, {"max_evaluations": 4000}), ({"adaptation": "published"}, {}), ({}, {"tune": 20})],
)
def test_with_a_gradient_none_is_made_where_evaluations_are_limited_or_few(options, how):
    """Nor by what a paper has published."""
    step = pk.GadMALA(model=with_gradient(), **options)
    how = {"tune": 1000, "draws": 50, "chains": 2, "discard_tuned_samples": False} | how
    dt = sample(step, **how)
    assert np.all(dt["warmup_sample_stats"]["n_logp"].values[:, 0] < 10)


@pytest.mark.parametrize(
    ("sampler", "own", "told"),
    [
        (pk.GAM, [(10, 3), (2, 1), (9, 2)], (21, 3)),
        (pk.SurrogateMetropolis, [(21, 3)] * 3, (21, 3)),  # whose chains share them already
    ],
)
def test_chains_tell_of_all_searches(sampler, own, told):
    chains = [[sampler(model=black_box(Counting(two_modes)))] for _ in own]
    for [step], (n, n_ends) in zip(chains, own, strict=True):
        step.setup_chain(1, 100, 10)
        step.monitor.searches, step.monitor.ends = n, n_ends
    pool_searches(chains)
    assert {step.searches[:2] for [step] in chains} == {told}


@pytest.mark.parametrize(("impossible", "words"), [((12, 5), "17 of 30 draws"), ((12, 3), "")])
def test_all_chains_say_together_what_of_the_prior_is_impossible(impossible, words):
    """Half of it, and no more, is not told."""
    chains = [[pk.GAM(model=black_box(Counting(two_modes)))] for _ in impossible]
    for [step], n in zip(chains, impossible, strict=True):
        step.setup_chain(1, 100, 10)
        step.monitor.of_prior, step.monitor.impossible = 15, n
    pool_searches(chains)
    for [step] in chains:
        found = impossible_prior(step.monitor)
        assert (found is not None) == bool(words)
        assert not found or (found.code, words) == ("impossible_prior", "17 of 30 draws")
        assert not found or "17 of 30 draws" in found.what


def test_a_step_of_some_variables_does_not_look():
    with black_box(Counting(two_modes)) as model:
        assert pk.GAM().search.may_look
        pm.Normal("other")
        assert not pk.GAM([model["x"]]).search.may_look


@pytest.mark.parametrize(
    ("spreads", "own", "number", "begins"),
    [
        (True, 0, 0, {2}),
        (True, 0, 1, {0}),
        (True, 0, 2, {0, 2}),
        (False, 0, 2, {0}),
        (False, 1, 0, {2}),  # as its own has no mass
    ],
)
def test_chains_begin_in_each_mode_that_has_mass(spreads, own, number, begins):
    """In the order of masses, and then by mass; or where they are, if they are told where."""
    step = pk.GAM(model=black_box(Counting(two_modes)))
    step.setup_chain(1, 100, 10)
    step.monitor.number, step.monitor.spreads = number, spreads
    modes = [Mode(np.zeros(2), np.eye(2), logp) for logp in (0.0, -9.0, 2.0)]
    starts = [None if k == own else "another" for k in range(3)]
    found = [step.search.mode_to_begin_in(modes, starts) for _ in range(200)]
    assert set(found) == begins
    assert len(begins) == 1 or 2 * found.count(0) < found.count(2)
