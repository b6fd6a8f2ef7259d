"""Every sampler leaves the target exactly invariant after tuning, and broken twins do not."""

from copy import copy
from functools import cache
from itertools import cycle, product

import numpy as np
import pymc as pm
import pytest
from boxed import SAMPLERS, BoxedEmulator
from invariance import (
    PAIR,
    TARGETS,
    Target,
    invariance_p_value,
    moved,
    moved_by_driver,
    moved_fast,
    tuned,
)

import pymc_kameleon as pk
from pymc_kameleon.core import linalg
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import multiply_lower
from pymc_kameleon.core.metropolis import accept, log_uniform, normal_step
from pymc_kameleon.core.target import log_density, log_density_along
from pymc_kameleon.samplers.componentwise import cmtm, sweeps
from pymc_kameleon.samplers.gradient import fisher_rule, gad, mala
from pymc_kameleon.samplers.kameleon import kam

SMALL = {cls: {"n_subsample": 60} for cls in (pk.KAM, pk.PCAKAM, pk.CyclicalKAM)}
SMALL |= {BoxedEmulator: {"steps_per_draw": 1}}
ROWS = {cls.__name__: (cls, SMALL.get(cls, {})) for cls in SAMPLERS} | {
    "multiple tries": (pk.CMTM, {"scaling": np.geomspace(0.5, 8, 5)}),
    "three tries": (pk.CMTM, {"scaling": np.geomspace(0.5, 8, 3), "n_tries": 3}),
    "one leapfrog step": (pk.GadMALA, {"n_leapfrog": 1}),
    "many leapfrog steps": (pk.GadMALA, {"n_leapfrog": 7}),
    "diagonal": (pk.GadMALA, {"factor": "diagonal"}),
    "published": (pk.GadMALA, {"adaptation": "published"}),
    "exact": (pk.GadMALA, {"adaptation": "published", "gradient": "exact"}),
    "published walk": (pk.GadRWM, {"adaptation": "published"}),
}
SAME = {
    "GAM": {"AM", "RBAM"},
    "GadRWM": {"published walk"},
    "many leapfrog steps": {"GadMALA", "one leapfrog step", "diagonal", "published", "exact"},
}
"""Rows of one transition, which only learn its parameters in another way: the others are slow.

And so are all but two targets of each row: the banana, and one of the others by turns.
"""

LEVEL = 1e-3


def cases():
    """All pairs."""
    others = set().union(*SAME.values(), {"BoxedEmulator"})  # which test_metropolis.py looks at
    turns = cycle(["normal", "bounded", "bimodal", "one dimension"])
    turn = {row: next(turns) for row in ROWS if row not in others}
    for (row, (sampler, arguments)), (name, target) in product(ROWS.items(), TARGETS.items()):
        marks = [pytest.mark.slow] * (turn.get(row) != name)
        yield pytest.param(sampler, arguments, target, id=f"{row}-{name}", marks=marks)


@pytest.mark.parametrize(("sampler", "arguments", "target"), list(cases()))
def test_exact_draws_stay_exact(sampler, arguments, target):
    step = sampler(model=target.build(), **{"steps_per_draw": 10} | arguments)
    tuned(step, target)
    if sampler is pk.CMTM:
        assert (step.parameters.n_single > 0).any() == (not arguments)
    assert invariance_p_value(lambda x: moved_fast(step, x), target) > LEVEL


def test_exact_draws_stay_exact_as_pymc_steps():
    """`moved_fast` leaves out what happens around the transitions of a draw."""
    target = TARGETS["banana"]
    step = tuned(pk.GAM(model=target.build(), steps_per_draw=10), target)
    assert invariance_p_value(lambda x: moved(step, x), target) > LEVEL


def test_slow_rows_have_the_transition_of_others():
    for algorithms in [
        [cls.algorithm for cls in (pk.GAM, pk.baselines.AM, pk.baselines.RBAM)],
        [fisher_rule.FISHER, gad.PUBLISHED, gad.EXACT],
        [gad.WALK_WHITENED, gad.WALK_PUBLISHED],
    ]:
        assert len({algorithm.transition for algorithm in algorithms}) == 1, algorithms


@cache
def hundred_dimensions():
    with pm.Model() as model:
        pm.StudentT("x", 5, shape=100)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [{}, {"factor": "diagonal"}])
def test_exact_draws_stay_exact_in_a_hundred_dimensions(arguments):
    target = Target(hundred_dimensions, lambda rng, n: rng.standard_t(5, (n, 100)))
    step = pk.GadMALA(model=target.build(), steps_per_draw=3, **arguments)
    tuned(step, target, tune=500)
    assert invariance_p_value(lambda x: moved_fast(step, x), target, n=4000) > LEVEL


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_doing_nothing_passes(target):
    assert invariance_p_value(lambda x: x, target) > LEVEL


@jit
def drifting_transition(target, state, parameters, work, rng):
    """RWM whose proposal drifts, without the Hastings term that it would need."""
    scale = np.exp(parameters.log_scale[0])
    for i in range(state.x.size):
        work.y[i] = state.x[i] + scale * (rng.standard_normal() + 0.1)
    return accept(target, state, work.y, log_density(target, work.y), 0.0, rng)


@jit
def local_transition(target, state, parameters, work, rng):
    """KAM that takes its local proposal for a symmetric one."""
    local, walk = state.local, work.walk
    gamma, nu = kam.scales(parameters)
    kam.derived(state, parameters, work)
    kam.factorise(local.covariance, gamma, nu, local.factor)
    normal_step(1.0, local.factor, walk.xi, walk.step, rng)
    for i in range(state.x.size):
        work.u[i] = local.u[i] + walk.step[i]
    multiply_lower(parameters.subsample.shape.factor, work.u, walk.y)
    return accept(target, state, walk.y, log_density(target, walk.y), 0.0, rng)


@jit
def greedy_move(target, state, parameters, k, work, rng):
    """CMTM that accepts the selected try by its own density, without references."""
    for j in range(work.tries.shape[1]):
        z = state.x[k] + parameters.ladders[k, j] * rng.standard_normal()
        work.tries[k, j], work.logp[k, j] = z, log_density_along(target, k, z)
        distance = z - state.x[k]
        work.weights[j] = cmtm.log_weight(work.logp[k, j], distance, parameters.alpha)
    s, _ = cmtm.select(work.weights, rng)
    accepted = s >= 0 and log_uniform(rng) < work.logp[k, s] - state.logp[0]
    sweeps.move_along(target, state, k, work.tries[k, s], work.logp[k, s], accepted)
    return s, 1.0, 1.0


@jit
def do_not_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Leave the first ladders as they are."""


class DriftingRWM(pk.baselines.RWM):
    name = "drifting"
    algorithm = pk.baselines.RWM.algorithm._replace(transition=drifting_transition)


class LocalKAM(pk.KAM):
    name = "local"
    algorithm = pk.KAM.algorithm._replace(transition=local_transition)


class GreedyCMTM(pk.CMTM):
    name = "greedy"
    algorithm = pk.CMTM.algorithm._replace(
        transition=sweeps.sweep_by(greedy_move), adapt=do_not_adapt
    )


@jit
def unfinished_transition(target, state, parameters, work, rng):
    """GadMALA that forgets the last half step of the momentum."""
    scale, kinetic, kinetic_y = np.exp(parameters.log_scale[0]), 0.0, 0.0
    for i in range(state.x.size):
        xi = rng.standard_normal()
        kinetic += xi * xi
        work.h[i] = xi + 0.5 * scale * state.u[i]
        work.y[i] = state.x[i]
    logp_y = mala.leapfrog(target, parameters.factor, scale, 2, work)
    for i in range(state.x.size):
        kinetic_y += work.h[i] * work.h[i]
    accept_prob, accepted = accept(target, state, work.y, logp_y, 0.5 * (kinetic - kinetic_y), rng)
    if accepted:
        linalg.copy(work.uy, state.u)
    return accept_prob, accepted


class UnfinishedGadMALA(pk.GadMALA):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.algorithm = fisher_rule.FISHER._replace(transition=unfinished_transition)
        self._load()


QUICK = "one dimension", "bounded"
"""Targets that show a twin quickly. That all targets show all twins is slow."""


def twin_cases():
    for twin, name in product((DriftingRWM, LocalKAM, GreedyCMTM, UnfinishedGadMALA), TARGETS):
        marks = [] if twin is DriftingRWM and name in QUICK else [pytest.mark.slow]
        yield pytest.param(twin, TARGETS[name], id=f"{twin.__name__}-{name}", marks=marks)


@pytest.mark.parametrize(("sampler", "target"), list(twin_cases()))
def test_broken_twins_fail(sampler, target):
    arguments = SMALL[pk.KAM] if sampler is LocalKAM else {}
    step = tuned(sampler(model=target.build(), steps_per_draw=50, **arguments), target)
    assert invariance_p_value(lambda x: moved_fast(step, x), target) < LEVEL


# ---- pk.sample ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampler", "target"),
    [
        (pk.GAM, "banana"),
        (pk.KAM, "bounded"),
        (pk.CyclicalKAM, "bimodal"),
        (pk.CMTM, "one dimension"),
        (pk.GadMALA, "normal"),
    ],
)
def test_the_driver_keeps_exact_draws_exact(sampler, target):
    step = sampler(model=TARGETS[target].build(), **SMALL.get(sampler, {}))
    assert driver_p_value([step], TARGETS[target]) > LEVEL


@pytest.mark.slow
def test_broken_twins_fail_through_the_driver():
    target = TARGETS["normal"]
    step = DriftingRWM(model=target.build(), steps_per_draw=20)
    assert driver_p_value([step], target) < LEVEL


@pytest.mark.parametrize("deaf", [False, True])
def test_two_steps_in_turn_keep_exact_draws_exact(deaf):
    """Not if the second one takes its own variable for that of the first."""
    model = PAIR.build()
    steps = [pk.GAM([model["x"]], model=model), pk.baselines.MALA([model["y"]], model=model)]
    if deaf:
        steps[1].layout = copy(steps[1].layout)
        steps[1].layout.places = steps[1].layout.places[[0, 0]]
    assert (driver_p_value(steps, PAIR) > LEVEL) == (not deaf)


def driver_p_value(steps, target):
    return invariance_p_value(lambda x: moved_by_driver(steps, x), target, n=8000)
