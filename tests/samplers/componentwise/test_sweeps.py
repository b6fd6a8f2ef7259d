"""What CMH and CMTM share: sweeps, options, statistics and warnings per coordinate."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
import reference
from componentwise import (
    ILL_SCALES,
    STARTS,
    LogDensity,
    cmh_chain,
    cmtm_chain,
    correlated_normal,
    holes,
    ill_scaled_normal,
    mixture,
    normal,
    pair_model,
    run,
    two_modes,
)
from runs import last_warning

import pymc_kameleon as pk

# ---- a sweep --------------------------------------------------------------------------------


def by_two_uniforms(log_ratio, rng):
    """Decide as CMTM does: the first one selects, unless there is nothing to select."""
    if log_ratio == -np.inf:
        return False
    rng.random()
    return np.log(1 - rng.random()) < log_ratio


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chain", "accepts"),
    [(cmtm_chain, by_two_uniforms), (cmh_chain, reference.by_exponential)],
    ids=["cmtm", "cmh"],
)
@pytest.mark.parametrize("logp", [two_modes, mixture, holes, normal], ids=lambda f: f.__name__)
def test_cmh_is_componentwise_metropolis_and_so_is_cmtm_with_one_try(logp, chain, accepts):
    """Whatever the power of the distance, which is the same both ways."""
    d, log_density = len(STARTS[logp]), LogDensity(logp)
    scales = np.linspace(1, 3, d)
    column = scales[:, None] if chain is cmtm_chain else scales
    chain = chain(logp, column)
    x, log_p = np.array(STARTS[logp]), log_density(np.array(STARTS[logp]))
    log_density.count = n_accepted = 0
    rng, other = np.random.default_rng(2), np.random.default_rng(2)
    for _ in range(250):
        accept_prob, share = chain.sweep(rng)
        moves = []
        for k in range(d):
            move = reference.metropolis(log_density, x, log_p, k, scales[k], other, accepts)
            x, log_p = move.x, move.log_p
            moves.append(move)
        np.testing.assert_allclose(chain.state.x, x, rtol=1e-12, atol=1e-14)
        assert accept_prob == pytest.approx(np.mean([move.alpha for move in moves]), rel=1e-12)
        assert share == np.mean([move.accepted for move in moves])
        n_accepted += share
    assert 25 < n_accepted < 225
    assert chain.accepted.sum() == pytest.approx(d * n_accepted)
    assert chain.target.count[0] == log_density.count


# ---- tuning of whole chains -----------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    return correlated_normal()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sampler", [pk.CMH, pk.CMTM])
def test_a_far_start_of_an_ill_scaled_model_is_left_behind(sampler, seed):
    """From 1 off the mean, thus 10 000 standard deviations, in tuning of default length."""
    positions, found = run(
        sampler(model=ill_scaled_normal()), 2000, tune=1000, seed=seed, x=np.ones(2)
    )
    z = positions[1000:] / ILL_SCALES
    assert (np.abs(z) < 5).all()
    np.testing.assert_allclose(z.std(axis=0), 1, atol=0.35)
    assert found["accept_share"][1000:].mean() > 0.1


# ---- options --------------------------------------------------------------------------------

IMPOSSIBLE = [
    *(
        (pk.CMH, {"scaling": value}, "scaling must be positive numbers")
        for value in (0, -1, np.nan, np.inf, [1, 1, 0], "a", ["a", 1, 1], [None, 1, 1], {})
    ),
    (pk.CMH, {"scaling": [1, 2]}, r"scaling must have shape \(3,\)"),
    (pk.CMH, {"scaling": np.ones((2, 3))}, r"scaling must have shape \(3,\)"),
    (pk.CMH, {"scaling": 1.0, "scaling_bounds": (0.1, 2)}, "not both"),
    *(
        (pk.CMTM, {"scaling": value}, "scaling must be positive numbers")
        for value in (-1, [0, 1, 2, 3, 4], [1, 2, 3, 4, np.inf], "a", [[1, 2, 3, 4, np.nan]] * 3)
    ),
    *(
        (pk.CMTM, {"scaling": value}, r"scaling must have shape \(3, 5\) or \(5,\)")
        for value in ([1, 2, 3], np.ones((2, 5)), np.ones((3, 3)), np.ones((5, 3)))
    ),
    (pk.CMTM, {"scaling": [1, 2, 4, 3, 5]}, "scaling must increase"),
    (pk.CMTM, {"scaling": [1, 2, 3, 4, 5], "scaling_bounds": (2, 9)}, "scaling must lie within"),
    (pk.CMTM, {"scaling": [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [5, 4, 3, 2, 1]]}, "must increase"),
    *((pk.CMTM, {"n_tries": value}, "n_tries must be an integer from 3") for value in (2, 0, 5.0)),
    *((pk.CMTM, {"alpha": value}, "alpha must be") for value in (-1, np.nan, np.inf, "a", None)),
    *(
        (pk.CMTM, {"adapt_every": value}, "adapt_every must be an integer from 1")
        for value in (0, -1, 2.5, "a", True)
    ),
    (pk.CMTM, {"keep_adapting": True}, "keep_adapting needs scaling_bounds"),
    (pk.CMTM, {"keep_adapting": "no"}, "keep_adapting must be True or False"),
    (pk.CMTM, {"keep_adapting": True, "scaling_bounds": (0.1, 9)}, "region that bounds all"),
    (
        pk.CMTM,
        {
            "keep_adapting": True,
            "scaling_bounds": (0.1, 9),
            "region": {"x": ([-1, -1, -np.inf], 1)},
        },
        "region that bounds all",
    ),
]


@pytest.mark.parametrize(("sampler", "options", "message"), IMPOSSIBLE, ids=str)
def test_impossible_options(model, sampler, options, message):
    with pytest.raises(ValueError, match=message):
        sampler(model=model, **options)


# ---- statistics -----------------------------------------------------------------------------


@cache
def two_variables():
    with pm.Model() as model:
        pm.Normal("a", 0, 1, shape=(2, 2))
        pm.Normal("b", 0, 1)
    return model


SHAPES = {
    pk.CMH: {"scaling": (), "accepted": ()},
    pk.CMTM: {"smallest_scale": (), "largest_scale": (), "selected": (5,), "accepted": (5,)},
}


@pytest.mark.parametrize("sampler", SHAPES)
def test_statistics_of_steps_with_other_numbers_of_coordinates(sampler):
    """Names end with the variables, so that PyMC has no arrays of different shapes to stack."""
    with two_variables() as model:
        steps = [sampler([model["a"]]), sampler([model["b"]])]
        dt = pm.sample(
            draws=20, tune=20, chains=2, cores=1, step=steps, progressbar=False, random_seed=1
        )
    found = dt["sample_stats"]
    for name, shape in SHAPES[sampler].items():
        for var, d in [("a", 4), ("b", 1)]:
            values = found[f"{sampler.name}_{name}_{var}"].values
            assert values.shape == (2, 20, d, *shape)
            assert np.isfinite(values).all()
            if "scal" not in name:
                assert ((values == 0) | (values == 1)).all()
                assert 0.1 * d < values.sum(axis=tuple(range(2, values.ndim))).mean() <= d
    assert found["accept_share"].shape == (2, 20, 2)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SHAPES)
def test_statistics_of_a_step_of_all_variables(sampler):
    model = two_variables()
    with model:
        dt = pm.sample(
            draws=20, tune=20, chains=2, cores=1, step=sampler(), progressbar=False, random_seed=1
        )
    for name, shape in SHAPES[sampler].items():
        assert dt["sample_stats"][f"{sampler.name}_{name}"].shape == (2, 20, 5, *shape)
    own = {name for name in dt["sample_stats"] if name.startswith(f"{sampler.name}_")}
    assert own == {f"{sampler.name}_{name}" for name in SHAPES[sampler]}


# ---- warnings -------------------------------------------------------------------------------


FIXED = {
    pk.CMH: lambda scale: {"scaling": [1.0, scale]},
    pk.CMTM: lambda scale: {
        "scaling": np.outer([1.0, scale], [1.0, 2.0, 4.0]),
        "n_tries": 3,
        "adapt_every": None,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(("tune", "draws", "n"), [(0, 500, 100), (200, 5000, 500)])
@pytest.mark.parametrize("sampler", FIXED)
def test_a_coordinate_that_does_not_move_is_named(sampler, tune, draws, n):
    step = sampler(model=pair_model(), **FIXED[sampler](1e9))
    message = last_warning(step, tune, draws)
    assert f"x[1] did not move in the last {n} sweeps." in message
    assert message.count("x[0]") == 0


@pytest.mark.parametrize("sampler", FIXED)
def test_coordinates_that_move_are_not(sampler):
    assert last_warning(sampler(model=pair_model(), **FIXED[sampler](1.0)), 0, 500) == ""


@pytest.mark.parametrize("sampler", FIXED)
def test_if_none_moves_that_is_said_instead(sampler):
    options = FIXED[sampler](1e9)
    options["scaling"] = np.add(options["scaling"], 1e9)
    message = last_warning(sampler(model=pair_model(), **options), 0, 500)
    assert "No proposal was accepted" in message
    assert "did not move" not in message


def test_at_most_three_coordinates_are_named():
    with pm.Model() as model:
        pm.Normal("x", 0, 1, shape=6)
    step = pk.CMH(model=model, scaling=[1.0, *[1e9] * 5])
    assert "x[1], x[2], x[3] and 2 others did not move" in last_warning(step, 0, 500)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [pk.CMH, pk.CMTM])
def test_tails_heavier_than_alpha(sampler):
    """The widest try would always be selected, and never accepted."""
    with pm.Model() as model:
        pm.Cauchy("x", 0, 1, shape=2)
    step = sampler(model=model)
    positions, found = run(step, 3000, tune=1000, seed=3, x=[0.5, 0.5])
    assert (np.abs(positions[1000:]) < 1).mean() == pytest.approx(0.5, abs=0.1)
    assert found["accept_share"][1000:].mean() > 0.03
