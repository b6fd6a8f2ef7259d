"""What a sampler declares as its statistics is what comes out, by name."""

from typing import NamedTuple

import cloudpickle
import numpy as np
import pymc as pm
import pytest
import skeleton
from models import mixed, normal

import pymc_kameleon as pk
from pymc_kameleon.core.arrays import bools, floats, integers
from pymc_kameleon.core.jit import jit
from pymc_kameleon.step.groups import SURROGATE_MOVES, Keeps

QUIET = {"progressbar": False, "compute_convergence_checks": False, "cores": 1, "chains": 2}


class Kept(NamedTuple):
    """What is kept."""

    last: floats("d")
    energy: floats(1)


class Stats(NamedTuple):
    """One of each kind."""

    squares: floats("d", "width")
    energy: floats(1)
    n_below: integers(1)
    is_low: bools(1)
    seldom: floats("d")
    kept: Kept


@jit
def report(state, parameters, stats):
    """Write all that follows from x; `seldom` only where x[0] > 0."""
    d, n = state.x.size, 0
    for k in range(d):
        n += state.x[k] < 0.0
        for j in range(stats.squares.shape[1]):
            stats.squares[k, j] = j + state.x[k] ** 2
        stats.kept.last[k] = state.x[k]
        if state.x[0] > 0.0:
            stats.seldom[k] = state.x[k]
    stats.n_below[0] = n
    stats.is_low[0] = n == 0
    stats.energy[0] = -state.logp[0]
    stats.kept.energy[0] = state.logp[0]
    return 1.5


class Talking(skeleton.CubeWalk):
    name = "talking"
    keeps = Keeps(SURROGATE_MOVES)
    algorithm = skeleton.CubeWalk.algorithm._replace(report=report)
    stats = Stats

    def __init__(self, vars=None, **common):
        self.settings = {"width": 2}
        super().__init__(vars, **common)

    def _stat_name(self, field):
        return "talking_energy" if field == "energy" else field


def sampled(step, sample):
    with step.model:
        options = {"discard_tuned_samples": False, "random_seed": 1}
        return sample(30, tune=20, step=step, **QUIET, **options)


@pytest.fixture(scope="module")
def step():
    return Talking(model=normal((2,)), steps_per_draw=1)


@pytest.mark.parametrize("sample", [pk.sample, pm.sample])
def test_statistics_are_what_was_written(step, sample):
    dt = sampled(step, sample)
    for posterior, stats in (
        (dt["posterior"], dt["sample_stats"]),
        (dt["warmup_posterior"], dt["warmup_sample_stats"]),
    ):
        x = posterior["x"].values
        expected = {
            "squares": np.arange(2.0) + x[..., None] ** 2,
            "talking_energy": -stats["lp"].values,
            "n_below": (x < 0).sum(axis=2),
            "is_low": (x >= 0).all(axis=2),
            "seldom": np.where(x[..., :1] > 0, x, np.nan),
            "scaling": np.full(x.shape[:2], 1.5),
        }
        for name, values in expected.items():
            np.testing.assert_array_equal(stats[name], values, name)
            assert stats[name].dtype == values.dtype, name
        np.testing.assert_allclose(stats["lp"], -0.5 * (x**2 + np.log(2 * np.pi)).sum(axis=2))
        assert not {"energy", "kept", "last"} & set(stats)
    if sample is pk.sample:
        kept = dt[SURROGATE_MOVES]
        np.testing.assert_array_equal(kept["last"], dt["posterior"]["x"])
        np.testing.assert_array_equal(kept["energy"], dt["sample_stats"]["lp"])


def test_kinds_follow_from_the_declaration(step):
    assert step.stats_dtypes_shapes == {
        "accept_prob": (np.float64, []),
        "accept_share": (np.float64, []),
        "n_logp": (np.int64, []),
        "scaling": (np.float64, []),
        "model_logp": (np.float64, []),
        "squares": (np.float64, [2, 2]),
        "talking_energy": (np.float64, []),
        "n_below": (np.int64, []),
        "is_low": (np.bool_, []),
        "seldom": (np.float64, [2]),
        "warning": (pm.stats.convergence.SamplerWarning, None),
    }


def test_beside_another_step_nothing_is_kept():
    """And no log-density of the model is known."""
    one = Talking([mixed()["a"]], model=mixed())
    statistics = one.statistics
    assert statistics.kept == {}
    assert statistics.width == 5 + 4 + 1 + 1 + 1 + 2
    assert "model_logp" not in one.stats_dtypes_shapes
    named = statistics.named(np.zeros((1, statistics.width)))
    assert one.stats_dtypes_shapes.keys() - {"warning"} == named.keys()
    _, [stats] = one.step(mixed().initial_point())
    assert stats["talking_energy"] == -one.state.logp[0]


def test_the_numbers_of_a_step_are_its_own(step):
    """Chains are made by copies, perhaps in threads or other processes."""
    travelled = cloudpickle.loads(cloudpickle.dumps(step))
    buffers = [one._buffer for one in (step, step.for_chain(), travelled)]
    for k, (row, stats) in enumerate(buffers):
        assert all(np.shares_memory(row, field) for field in (*stats[:-1], *stats.kept))
        assert not any(np.shares_memory(row, other) for other, _ in buffers[:k])
    _, [stats] = travelled.step({"x": np.array([-1.0, 2.0])})
    assert stats["n_below"] == (travelled.state.x < 0).sum()


# ---- what an author is told ---------------------------------------------------------------------


def test_statistics_are_declared_as_a_tuple():
    with pytest.raises(TypeError, match=r"statistics of Careless as a NamedTuple.*stats = Stats"):
        type("Careless", (pk.baselines.RWM,), {"stats": ("bandwidth",)})


def declared(**fields):
    return NamedTuple("Stats", list(fields.items()))


@pytest.mark.parametrize(
    ("stats", "report", "message"),
    [
        (declared(energy=str), report, "Declare Stats.energy by floats, integers or bools"),
        (declared(energy=floats("m")), report, "Stats.energy has a size 'm', which was not given"),
        (declared(scaling=floats(1)), report, r"Wrong declares \['scaling'\], which every sampler"),
    ],
)
def test_a_wrong_declaration_or_report_is_refused(stats, report, message):
    algorithm = pk.baselines.RWM.algorithm._replace(report=report)
    wrong = type("Wrong", (pk.baselines.RWM,), {"stats": stats, "algorithm": algorithm})
    with pytest.raises(TypeError, match=message):
        wrong(model=normal((2,)))


class Nested(NamedTuple):
    """A tuple that is not called kept."""

    other: Kept


class Flat(NamedTuple):
    """What is kept is no tuple."""

    kept: floats("d")


@pytest.mark.parametrize("declared", [Nested, Flat])
def test_what_is_kept_alone_is_a_tuple(declared):
    wrong = type("Wrong", (Talking,), {"stats": declared})
    with pytest.raises(TypeError, match="Stats of Wrong: of its fields kept alone is a tuple"):
        wrong(model=normal((2,)))
