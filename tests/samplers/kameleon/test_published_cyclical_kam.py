"""The published CyclicalKAM against the slow version of the paper, and that it is not exact."""

from functools import cache
from itertools import islice

import numpy as np
import pytest
import reference
from invariance import Mixture, invariance_p_value, moved_fast
from runs import driven as run

import pymc_kameleon as pk

CORRELATED = np.array([[1.0, 0.9], [0.9, 1.5]])
LINE = Mixture([0.4, 0.6], [[-3], [4]], [0.3, 2])
PLANE = Mixture([0.2, 0.8], [[-2.5, 0], [2.5, 1]], [0.5, CORRELATED])
SPACE = Mixture([1.0], [[0, 1, 2]], [np.diag([1, 0.1, 4])])


@cache
def _made(target, options):
    return pk.baselines.PublishedCyclicalKAM(model=target.build(), **dict(options))


def started(target, seed=7, steps_per_draw=1, tune=0, **options):
    step = _made(target, tuple(options.items()))
    step.steps_per_draw = steps_per_draw
    step.setup_chain(np.random.default_rng(seed), tune, 1)
    return step


# ---- cycles by hand -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "options"),
    [
        (LINE, {"cycle_length": 50}),
        (PLANE, {"cycle_length": 50}),
        (SPACE, {"cycle_length": 50}),
        (PLANE, {"cycle_length": 20, "beta": 0.75, "gamma": 0.3}),
        (PLANE, {"cycle_length": 5, "beta": 0.2, "gamma": 0.5}),
        (PLANE, {"cycle_length": 50, "gamma": 0.5, "kernel": pk.samplers.kernels.Gaussian(1.0)}),
        (
            PLANE,
            {
                "cycle_length": 100,
                "beta": 0.5,
                "gamma": pk.samplers.Decay(3, 5, 0.7),
                "n_subsample": 7,
            },
        ),
        (SPACE, {"cycle_length": 50, "gamma": 0.5}),
        (PLANE, {"cycle_length": 50, "target_accept": 0.6, "gamma": 0.5}),
    ],
)
@pytest.mark.parametrize("tune", [0, 50])
def test_cycles_by_hand(target, options, tune):
    """With z from each Exploration's own past, ν and γ that begin anew; tuning is the same."""
    step, start, n = started(target, tune=tune, **options), target.means[0] + 0.3, 150
    positions, stats, _ = run(step, n, start)
    chain = reference.PublishedCyclicalKAM(step).chain(
        target.log_density, start, np.random.default_rng(7)
    )
    expected, alphas, nu, nu_exploration = map(np.array, zip(*islice(chain, n), strict=True))
    np.testing.assert_allclose(positions, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(stats["accept_prob"], alphas, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(stats["scaling"], nu, rtol=1e-6)
    np.testing.assert_allclose(stats["nu_exploration"], nu_exploration, rtol=1e-6)
    assert (stats["bandwidth"] == step.settings["kernel"].bandwidth).all()
    assert len(np.unique(positions[:, 0])) > 20

    length = step.settings["cycle_length"]
    n_exploration = int(step.settings["beta"] * length)
    first = np.arange(n) % (length - n_exploration) == 0
    np.testing.assert_array_equal(stats["n_logp"][1:], np.where(first, n_exploration + 1, 1)[1:])
    assert stats["n_logp"][0] >= n_exploration + 2  # and what the scales of the start took


def test_defaults_are_the_papers():
    step = pk.baselines.PublishedCyclicalKAM(model=PLANE.build())
    assert step.settings["kernel"] == pk.samplers.kernels.Matern(4, 2.0)
    settings = {name: step.settings[name] for name in ("n_subsample", "cycle_length", "beta")}
    assert settings == {"n_subsample": 50, "cycle_length": 1000, "beta": 0.4}
    assert step.settings["gamma"] == pk.samplers.Decay(20.0, 10.0, 0.5)
    assert step.target_accept == 0.234


def test_the_cycle_goes_on_from_draw_to_draw():
    """The same chain whatever steps_per_draw is, tuning or not; as saved in the middle."""
    chains = {}
    for n, tune in [(1, 0), (7, 5), (210, 1)]:
        step = started(PLANE, steps_per_draw=n, tune=tune, cycle_length=50)
        chains[n], *_ = run(step, 420 // n, PLANE.means[0])
    np.testing.assert_array_equal(chains[1][6::7], chains[7])
    np.testing.assert_array_equal(chains[1][209::210], chains[210])

    step = started(PLANE, steps_per_draw=7, cycle_length=50)
    run(step, 11, PLANE.means[0])
    midway = step.sampling_state
    assert midway.state.position[0] == 77 % 30
    results = []
    for _ in range(2):
        step.sampling_state = midway
        step.rng = np.random.default_rng(9)
        results.append(run(step, 20, midway.state.x)[0])
    np.testing.assert_array_equal(*results)


# ---- it is not exact ------------------------------------------------------------------------

LINES = Mixture([0.3, 0.7], [[-2], [3]], [0.3, 1.5])


def p_value(n_cycles, n=20_000, **options):
    """Put exact draws through whole cycles."""
    length = options["cycle_length"]
    step = started(LINES, steps_per_draw=n_cycles * (length - 2 * length // 5), **options)
    return invariance_p_value(lambda x: moved_fast(step, x), LINES, n)


@pytest.mark.slow
@pytest.mark.parametrize("length", [20, 50])
def test_short_cycles_are_not_exact(length):
    """As the exact ones are, on the same target: see test_cycles_are_exact.

    Exploration adapts to where the chain is, and the change to Sampling leaves out a ratio.
    """
    assert p_value(1, cycle_length=length, gamma=1.0) < 1e-6


@pytest.mark.slow
def test_a_narrow_gamma_is_not_exact_either():
    assert p_value(5, cycle_length=20, gamma=0.2) < 1e-6


# ---- options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": pk.samplers.kernels.Gaussian()}, "bandwidth is a number"),
        ({"kernel": pk.samplers.kernels.Matern(2.5)}, "bandwidth is a number"),
        ({"kernel": "gaussian"}, "kernel"),
        ({"gamma": pk.samplers.Decay(-1.0)}, "gamma"),
        ({"gamma": 0.0}, "gamma"),
        ({"n_subsample": 0}, "n_subsample"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(ValueError, match=message):
        pk.baselines.PublishedCyclicalKAM(model=LINE.build(), **options)


@pytest.mark.parametrize("sampler", [pk.CyclicalKAM, pk.baselines.PublishedCyclicalKAM])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cycle_length": 1}, "cycle_length"),
        ({"cycle_length": 10.5}, "cycle_length"),
        ({"beta": 0.0}, "beta"),
        ({"beta": 1}, "beta"),
        ({"beta": "a"}, "beta"),
        ({"beta": 0.009, "cycle_length": 100}, r"beta \* cycle_length must be at least 1"),
    ],
)
def test_impossible_cycles(sampler, options, message):
    with pytest.raises(ValueError, match=message):
        sampler(model=LINE.build(), **options)


@pytest.mark.parametrize(
    ("sampler", "option"),
    [
        (pk.CyclicalKAM, {"gamma": 1.0}),
        (pk.baselines.PublishedCyclicalKAM, {"whiten": False}),
    ],
)
def test_options_of_the_other_one(sampler, option):
    with pytest.raises(TypeError, match=f"has no option {next(iter(option))!r}; it has"):
        sampler(model=LINE.build(), **option)
