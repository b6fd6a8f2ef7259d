"""The checks of pymc_kameleon.testing: a plain step passes them, and wrong ones fail them."""

import importlib
import threading
from functools import cache
from pathlib import Path
from typing import ClassVar
from unittest import SkipTest

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import BlockedStep, StepMethodState
from pymc.step_methods.state import dataclass_state
from rich.progress import TextColumn

from pymc_kameleon import testing


@cache
def log_density(model):
    return model.compile_logp()


@dataclass_state
class WalkState(StepMethodState):
    tune: bool
    scale: float
    stale: float | None


class Walk(BlockedStep):
    """A random walk whose scale is tuned, as plain as can be; it keeps to all that is checked."""

    # As PyMC's Metropolis declares them: it takes float for another type than np.float64.
    stats_dtypes_shapes: ClassVar = {"scaling": (np.float64, []), "accepted": (np.float64, [])}
    _state_class = WalkState
    scale, stale = 1.0, None

    def __init__(self, vars, *, model=None, rng=None, blocked=True):
        model = pm.modelcontext(model)
        self.vars = [model.rvs_to_values[var] for var in vars]
        self.logp = log_density(model)
        self.rng, self.tune = np.random.default_rng(rng), True

    def __repr__(self):
        return f"{type(self).__name__}({self.vars})"

    def setup_chain(self, rng, tune, draws):
        super().setup_chain(rng, tune, draws)
        self.tune, self.scale, self.stale = tune > 0, 1.0, None

    def step(self, point):
        proposal = dict(point)
        for name in (var.name for var in self.vars):
            noise = self.scale * self.rng.normal(size=point[name].shape)
            proposal[name] = np.asarray(point[name] + noise)
        log_ratio = self.difference(proposal, point)
        accepted = np.log(self.rng.random()) < log_ratio
        if self.tune:
            self.scale *= 1.1 if accepted else 0.97
        stats = {"scaling": self.scale, "accepted": float(accepted)}
        return (proposal if accepted else point), [stats]

    def difference(self, proposal, point):
        return self.logp(proposal) - self.logp(point)

    @staticmethod
    def _progressbar_config(n_chains=1):
        return [TextColumn("{task.fields[scaling]}")], {"scaling": [0.0] * n_chains}


# ---- wrong ones -----------------------------------------------------------------------------


class NotEmitted(Walk):
    stats_dtypes_shapes = Walk.stats_dtypes_shapes | {"never": (float, [])}


class NotDeclared(Walk):
    stats_dtypes_shapes: ClassVar = {"scaling": (np.float64, [])}


class DeclaredWhole(Walk):
    stats_dtypes_shapes = Walk.stats_dtypes_shapes | {"scaling": (int, [])}


class OtherShape(Walk):
    stats_dtypes_shapes = Walk.stats_dtypes_shapes | {"scaling": (np.float64, [None])}


class MovesWhatIsNotItsOwn(Walk):
    def step(self, point):
        point, stats = super().step(point)
        return point | {name: point[name] + 0.01 for name in point if name == "level"}, stats


class OtherOrder(Walk):
    def step(self, point):
        point, stats = super().step(point)
        return dict(sorted(point.items())), stats


class WritesIntoTheGivenPoint(Walk):
    def step(self, point):
        new, stats = super().step(point)
        for name, value in new.items():
            point[name][...] = value
        return new, stats


class Forgetful(Walk):
    @dataclass_state
    class _state_class(StepMethodState):
        tune: bool


class StateThatCannotTravel(Walk):
    def setup_chain(self, rng, tune, draws):
        super().setup_chain(rng, tune, draws)
        self.stale = lambda: None


class Leaky(Walk):
    def setup_chain(self, rng, tune, draws):
        scale = self.scale
        super().setup_chain(rng, tune, draws)
        self.scale = scale


class AlwaysTunes(Walk):
    def setup_chain(self, rng, tune, draws):
        super().setup_chain(rng, tune, draws)
        self.stale = float(tune == 0)

    def stop_tuning(self):
        self.tune = bool(self.stale)


class Frozen(Walk):
    def setup_chain(self, rng, tune, draws):
        super().setup_chain(rng, tune, draws)
        self.scale = 1.0 if tune else 0.0


class NeverStops(Walk):
    def stop_tuning(self):
        pass


class KeepsTheLogp(Walk):
    def difference(self, proposal, point):
        before = self.logp(point) if self.stale is None else self.stale
        self.stale = self.logp(proposal)
        return self.stale - before


class IgnoresTheOthers(Walk):
    def difference(self, proposal, point):
        level = {name: np.array(0.0) for name in point if name == "level"}
        return super().difference(proposal | level, point | level)


class OtherTypeThanMetropolis(Walk):
    stats_dtypes_shapes = Walk.stats_dtypes_shapes | {"accepted": (bool, [])}

    def step(self, point):
        point, [stats] = super().step(point)
        return point, [stats | {"accepted": bool(stats["accepted"])}]


class FailingBar(Walk):
    @staticmethod
    def _make_progressbar_update_functions():
        return (lambda stats: {"scaling": stats["scale"]},)


class EmptyColumn(Walk):
    @staticmethod
    def _make_progressbar_update_functions():
        return (lambda stats: {},)


class CannotTravel(Walk):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.lock = threading.Lock()


class DependsOnTheProcess(Walk):
    def setup_chain(self, rng, tune, draws):
        super().setup_chain(np.random.default_rng(threading.get_native_id()), tune, draws)


class Nameless(Walk):
    __repr__ = object.__repr__


WRONG = {
    NotEmitted: ("statistics",),
    NotDeclared: ("statistics", "beside", "progress_bar"),
    DeclaredWhole: ("statistics", "beside"),
    OtherShape: ("statistics",),
    MovesWhatIsNotItsOwn: ("point",),
    OtherOrder: ("point", "statistics", "beside", "progress_bar"),
    WritesIntoTheGivenPoint: ("point",),
    Forgetful: ("state",),
    StateThatCannotTravel: ("state",),
    Leaky: ("reuse",),
    AlwaysTunes: ("tune_zero",),
    Frozen: ("tune_zero", "follows_others"),
    NeverStops: ("tuning_ends",),
    KeepsTheLogp: ("follows_others",),
    IgnoresTheOthers: ("follows_others",),
    OtherTypeThanMetropolis: ("beside",),
    FailingBar: ("progress_bar",),
    EmptyColumn: ("progress_bar",),
    Nameless: ("representation",),
}
"""The checks that they fail, but for processes: first what they are wrong about."""

NAMES = [str(check) for check in testing.checks]
PROCESSES = ["fork", "forkserver", "spawn"]
QUICK = [name for name in NAMES if name not in PROCESSES]


def fails(step):
    """Names of the checks that a step fails."""
    names = set()
    for check in testing.checks:
        try:
            check(step)
        except SkipTest:
            continue
        except Exception:
            names.add(str(check))
    return names


@pytest.fixture
def only(monkeypatch):
    """Return a function that leaves some of the checks."""

    def leave(*names):
        left = tuple(check for check in testing.checks if str(check) in names)
        assert len(left) == len(names)
        monkeypatch.setattr(testing, "checks", left)

    return leave


def test_every_check_has_a_wrong_step_and_a_reason():
    assert {first for first, *_ in WRONG.values()} == set(QUICK) - {"zarr_trace"}
    for check in testing.checks:
        assert ", or " in check.__doc__
        assert "users" in check.__doc__


def test_a_plain_step_passes(only):
    only(*QUICK)
    testing.check_step(Walk)


@pytest.mark.parametrize(
    ("wrong", "name"), [(wrong, first) for wrong, (first, *_) in WRONG.items()]
)
def test_wrong_steps_fail(wrong, name, only):
    only(name)
    assert fails(wrong) == {name}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_steps_fail_nothing_else(wrong, only):
    only(*QUICK)
    assert fails(wrong) == set(WRONG[wrong])


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (DependsOnTheProcess, "fork"),
        (CannotTravel, "forkserver"),
        (CannotTravel, "spawn"),
        pytest.param(DependsOnTheProcess, "forkserver", marks=pytest.mark.slow),
        pytest.param(DependsOnTheProcess, "spawn", marks=pytest.mark.slow),
    ],
)
def test_wrong_steps_fail_in_processes(wrong, name, only):
    only(name)
    assert fails(wrong) == {name}


def test_wrong_steps_fail_in_a_zarr_trace(only):
    """Where PyMC can use zarr, as docs/conformance.md says."""
    testing.zarr_trace(Walk)
    only("zarr_trace")
    assert fails(StateThatCannotTravel) == {"zarr_trace"}


def test_all_that_fails_is_named(only):
    class Wrong(NotEmitted, Nameless):
        pass

    only("statistics", "reuse", "zarr_trace", "representation")
    with pytest.raises(ExceptionGroup, match="fails 2 of 4 checks: statistics, repr") as raised:
        testing.check_step(Wrong)
    first, second = raised.value.exceptions
    assert "expected all that is declared, ['accepted', 'never', 'scaling']; saw" in str(first)
    assert "Check representation: Show name and variables" in second.__notes__[0]


def test_the_other_step_is_named():
    said = "expected accepted of type <class 'numpy.float64'>, as that of Metropolis is"
    with pytest.raises(AssertionError, match=said):
        testing.beside(OtherTypeThanMetropolis)


@pytest.mark.parametrize(
    ("make", "kind", "said"),
    [
        (lambda vars: None, TypeError, "must return a step of PyMC, .* not None"),
        (lambda vars: 1 / 0, ZeroDivisionError, "division by zero"),
    ],
)
def test_a_step_that_cannot_be_made_is_told_once(make, kind, said):
    with pytest.raises(kind, match=said) as raised:
        testing.check_step(make)
    assert raised.value.__notes__ == ["The step could not be made, so that nothing was checked."]
    assert fails(make) >= set(NAMES) - {"zarr_trace"}


def test_the_table_of_the_example(only, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples")
    only("statistics", "representation", "zarr_trace")
    table = importlib.import_module("conformance").report([Walk, Nameless], testing.continuous)
    assert table.loc["representation", "Nameless"].startswith("fails: expected repr to show ['Name")
    assert (table.loc["statistics"] == "passes").all()
    assert table["Walk"].str.startswith(("passes", "not run")).all()
