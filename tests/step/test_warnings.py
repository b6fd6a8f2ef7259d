"""What a chain says at its end, through PyMC's `warning` statistic. A sound run is silent."""

import logging
import re

import numpy as np
import pymc as pm
import pytest
from boxed import SAMPLERS
from models import box, normal
from pymc.stats.convergence import log_warning_stats
from runs import codes, last_warning, sample

import pymc_kameleon as pk
from pymc_kameleon.step.problems import findings_of

ARGUMENTS = {cls: {"n_subsample": 50} for cls in (pk.KAM, pk.PCAKAM, pk.CyclicalKAM)}


BY_NAME = {cls.__name__: cls for cls in SAMPLERS}


SLOW = {"BoxedEmulator": [pytest.mark.slow]}


@pytest.fixture(params=[pytest.param(name, marks=SLOW.get(name, [])) for name in BY_NAME])
def sampler(request):
    cls = BY_NAME[request.param]
    return lambda **kwargs: cls(**ARGUMENTS.get(cls, {}) | kwargs)


kinds = pytest.mark.parametrize("sampler", ["GAM", "CMTM", "GadMALA"], indirect=True)
"""For what the base class says: one of each kind of transition."""


@pytest.mark.parametrize("d", [*(pytest.param(d, marks=pytest.mark.slow) for d in (1, 2)), 8])
def test_a_sound_run_is_silent(sampler, d):
    assert last_warning(sampler(model=normal(d)), tune=400 * d) == ""


def test_start_at_the_initial_point(sampler):
    message = last_warning(sampler(model=normal(2), jitter=False), x=np.zeros(2))
    assert "([x]): The chain started at the model's initial point" in message
    assert "pk.initvals" in message


def test_a_way_to_the_posterior_that_is_too_long():
    """Scales of twenty orders, and slopes that are straight."""
    sds = np.geomspace(1e-12, 1e8, 10)
    with pm.Model() as model:
        x = pm.Flat("x", shape=10)
        pm.Potential("logp", -pm.math.sum(pm.math.sqrt(1 + (x / sds) ** 2)))
    step = pk.GAM(model=model)
    found = sample(step, draws=10, tune=200, random_seed=1)
    said = "used all of its 600 evaluations, and the log-density still grew by"
    assert any(said in str(text) for text in found["findings"]["what"].values)
    assert "search_cut_short" in codes(found)


@pytest.mark.parametrize(("width", "warns"), [(1e-3, False), (1e-9, True)])
def test_a_correlation_that_cannot_be_learned(width, warns):
    """The sum of two parameters is known to `width`, its difference to 2."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        total = pm.math.sum(x) / width
        pm.Potential("logp", -0.5 * total**2 - (x[0] - x[1]) ** 2 / 8)
    message = last_warning(pk.GAM(model=model), tune=1000)
    assert ("x[1] is known to " in message) == ("[nearly_dependent]" in message) == warns


@pytest.mark.slow
@kinds
def test_start_of_some_variables(sampler):
    """Only the step's own variables count, on the scale that they are sampled on."""
    with pm.Model() as model:
        pm.HalfNormal("s")
        pm.Normal("x", 1)
    step = sampler(vars=[model["s"]], model=model, jitter=False)
    step.setup_chain(np.random.default_rng(0), 200, 1)
    point = model.initial_point() | {"x": np.array(7.0)}
    for _ in range(201):
        point, [stats] = step.step(point)
    assert "initial point" in stats["warning"].message
    assert "s_log__" in stats["warning"].message


def test_tuning_too_short(sampler):
    step = sampler(model=normal(2), steps_per_draw=5)
    needed = step._needed_tuning()
    assert needed >= (1 if isinstance(step, pk.EmulatorMetropolis) else 4)
    for share, warns in [(0, True), (0.9, True), (1, False)]:
        tune = int((np.floor if share < 1 else np.ceil)(share * needed / 5))
        message = last_warning(step, tune=tune)
        said = f"Only {tune * 5} transitions of tuning; at least {needed}" in message
        assert said == warns, (share, message)


def test_a_fixed_scale_needs_no_tuning():
    step = pk.baselines.RWM(model=normal(2), scaling=1.7, tune_scaling=False)
    assert last_warning(step, tune=0) == ""
    assert last_warning(step, tune=200) == ""


def refused(step, op, when, tune=300, draws=300):
    """Run a chain whose moves are all refused in the draws `when`; return its warning, or ''."""
    refusing = [False]
    op.function = lambda x: np.nan if refusing[0] else -0.5 * x @ x
    step.setup_chain(np.random.default_rng(1), tune, draws)
    point = {"x": np.full(2, 0.3)}
    for i in range(tune + draws):
        refusing[0] = i in when
        if i == tune:
            step.stop_tuning()
        point, [stats] = step.step(point)
    return stats["warning"].message if stats["warning"] else ""


@pytest.mark.slow
@kinds
def test_no_proposal_accepted(sampler):
    op, model = box()
    step = sampler(model=model, steps_per_draw=10)
    message = refused(step, op, range(300, 600))
    assert "No proposal was accepted after tuning" in message
    assert "([x])" in message
    assert "no_move" in codes(findings_of(step))
    assert "stuck" not in message


@kinds
def test_a_long_run_of_rejections(sampler):
    """Of 300 draws, 30 in a row are 10 %."""
    op, model = box()
    step = sampler(model=model, steps_per_draw=10)
    message = refused(step, op, range(400, 445))
    assert re.search(r"\(\[x\]\).* stuck for 4[5-8] draws in a row", message)
    assert "stuck" not in refused(step, op, range(400, 420))


def test_plus_infinity_is_told():
    """Of the chain that has seen it alone, however many draws are made at a time."""
    _, model = box(lambda x: np.inf if x[0] > 1 else -0.5 * x @ x)
    step = pk.baselines.RWM(model=model, steps_per_draw=3, scaling=1.0, tune_scaling=False)
    message = last_warning(step)
    n = int(re.search(r"The log-density was \+inf at (\d+) points\. They are", message)[1])
    assert 50 < n < 900
    assert "[infinite_density]" in message
    box()
    assert "inf" not in last_warning(step)


def test_few_transitions_are_no_long_run():
    """Of 100 draws of one transition, 15 rejections in a row may be an accident."""
    op, model = box()
    step = pk.baselines.RWM(model=model, steps_per_draw=1)
    assert refused(step, op, range(350, 365), draws=100) == ""
    assert step.monitor.longest >= 15


@pytest.mark.parametrize(("side", "bounds"), [("upper", (1e-4, 1e-3)), ("lower", (500, 1000))])
def test_a_scale_at_its_bound(side, bounds):
    message = last_warning(pk.GAM(model=normal(2), scaling_bounds=bounds))
    assert f"{side} bound" in message
    assert "[scale_at_bound]" in message
    assert "scaling_bounds" in message


@pytest.mark.parametrize("cls", [pk.KAM, pk.PCAKAM])
def test_too_few_distinct_points(cls):
    """A chain that hardly ever moved while tuning has nothing to learn from."""
    op, model = box()
    step = cls(model=model, steps_per_draw=10, **ARGUMENTS[cls])
    message = refused(step, op, range(1, 100), tune=100)
    assert "([x])" in message
    assert "fewer than 6 distinct points" in message
    assert "few_points" in codes(findings_of(step))


def test_kam_with_a_bandwidth_that_is_far_too_small():
    step = pk.KAM(model=normal(3), kernel=pk.samplers.kernels.Gaussian(1e-3), n_subsample=50)
    message = last_warning(step)
    assert "upper bound" in message
    assert "bandwidth is too small" in message


def test_an_initial_point_of_the_step_is_not_where_chains_start():
    step = pk.GAM(model=normal(2), initial_point={"x": np.ones(2)}, jitter=False)
    assert "initial point" in last_warning(step, x=np.zeros(2))
    assert "initial point" not in last_warning(step, x=np.ones(2))


def test_a_chain_that_jumps_does_not_start_at_the_initial_point():
    step = pk.GAM(model=normal(2))
    assert last_warning(step, x=np.zeros(2)) == ""
    assert "initial point" in last_warning(step, x=np.zeros(2), tune=0)


# ---- through pm.sample ----------------------------------------------------------------------

START = "The chain started at the model's initial point"
FEW = "Only 0 transitions of tuning"


@pytest.mark.parametrize("cores", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_once_per_run_and_cause(cores, caplog):
    """In the log of the parent; without trouble beside NUTS, which warns too."""
    with pm.Model():
        x = pm.Normal("x", shape=2)
        pm.Normal("y", x.sum())
        step = pk.GAM([x])

        def said(**kwargs):
            caplog.clear()
            options = {"draws": 30, "chains": 3, "cores": cores, "random_seed": 1} | kwargs
            options |= {"progressbar": False, "compute_convergence_checks": False}
            with caplog.at_level(logging.WARNING):
                pm.sample(step=[step], **options)
            return [line for line in caplog.messages if "GAM([x])" in line]

        starts = pk.initvals(3, random_seed=1)
        assert said(tune=50) == []  # they jump
        for _ in range(2):  # a second run warns again
            (line,) = said(tune=0)
            assert line.count("GAM([x]):") == line.count(START) == line.count(FEW) == 1
        # What the first chain does not say is said by the second one, without the rest.
        lines = said(tune=0, initvals=[starts[0], {}, {}])
        if cores == 1:  # otherwise, which chain speaks first is open
            assert [(START in line, FEW in line) for line in lines] == [
                (False, True),
                (True, False),
            ]
        assert "".join(lines).count(START) == "".join(lines).count(FEW) == 1
        assert said(tune=50, initvals=starts) == []


def test_other_messages_of_pymc_pass_the_filter_and_ours_outside_a_run(caplog):
    """PyMC's population sampler has no bar of the steps: there, each chain warns."""
    step = pk.GAM(model=normal(2))
    said = closing(step, draws=1)
    updates = step._make_progressbar_update_functions()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            log_warning_stats([{"warning": said}, {"warning": "theirs"}])
        del updates
        for _ in range(2):
            log_warning_stats([{"warning": said}])
    assert [line.partition(":")[0] for line in caplog.messages] == [
        *("GAM([x])", "theirs", "theirs"),
        *("GAM([x])", "GAM([x])"),
    ]


def closing(step, draws):
    """Return the SamplerWarning of a chain without tuning."""
    step.setup_chain(np.random.default_rng(1), 0, draws)
    return step.step({"x": np.zeros(2)})[1][0]["warning"]
