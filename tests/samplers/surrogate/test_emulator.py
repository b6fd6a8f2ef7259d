"""The fitted log-density of SurrogateMetropolis, as a function of its coordinates."""

import pickle

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from runs import sample

import pymc_kameleon as pk
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.density import Surrogate
from pymc_kameleon.samplers.surrogate.emulator import emulator_from
from pymc_kameleon.samplers.surrogate.proposal import Parameters
from pymc_kameleon.step.learned import learned_dataset

NAMES = ["a", "s_log__", "p_logodds__[0]"]


@pytest.fixture(scope="module")
def step():
    data = 3 + 2 * np.random.default_rng(1).standard_normal(30)
    with pm.Model() as model:
        a, s, p = pm.Normal("a", 0, 10), pm.HalfNormal("s", 5), pm.Beta("p", 2, 3, shape=1)
        pm.Normal("y", a + p[0], s, observed=data)
        return pk.SurrogateMetropolis(model=model)


@pytest.fixture(scope="module")
def result(step):
    return sample(step, tune=400, random_seed=8)


def unconstrained(posterior):
    """Return the draws (chain, draw, d) in the sampler's coordinates."""
    p = posterior["p"].values[..., 0]
    return np.stack([posterior["a"], np.log(posterior["s"]), np.log(p / (1 - p))], axis=-1)


def test_it_is_the_log_density_of_the_model(step, result):
    emulator = pk.emulator(result)
    assert emulator.coordinates == NAMES
    logp, x = step.model.compile_logp(), unconstrained(result["posterior"])
    true = [
        [logp({"a": a, "s_log__": log_s, "p_logodds__": [q]}) for a, log_s, q in chain]
        for chain in x
    ]
    found = emulator(x)
    assert found.shape == x.shape[:2]
    assert np.median(np.abs(found - true)) < 2 * emulator.error < 0.2
    assert emulator.posterior_error == pytest.approx(np.abs(found - true).mean(), rel=1e-3)
    part = pk.emulator(result.isel(draw=slice(5, None, 2)))
    expected = np.abs(found - true)[:, 5::2].mean()
    assert part.posterior_error == pytest.approx(expected, rel=1e-3)
    u = x - emulator.mean
    squares = np.sum(u @ np.linalg.inv(emulator.covariance) * u, axis=-1)
    assert np.mean(squares) == pytest.approx(3, rel=0.5)


def test_it_is_what_the_moves_went_by(result):
    """Compiled code has left log s where it moved last."""
    last = result["sampling_state"]
    known = [k for k in range(2) if np.isfinite(last["state_log_s"].values[k, 0])]
    assert known
    for k in known:
        x, log_s = last["state_x"].values[k], last["state_log_s"].values[k, 0]
        assert emulator_of(result, k)(x) == pytest.approx(log_s, abs=1e-6)


def emulator_of(result, chain):
    return emulator_from(result["learned"].to_dataset().sel(chain=chain))


@pytest.mark.slow
def test_files_hold_it(result, tmp_path):
    emulator = pk.emulator(result)
    x = emulator.mean + np.linspace(-1, 1, 5)[:, None]
    result.to_netcdf(tmp_path / "run.nc")
    loaded = pk.emulator(xr.load_datatree(tmp_path / "run.nc"))
    for other in (loaded, pickle.loads(pickle.dumps(emulator))):
        np.testing.assert_array_equal(other(x), emulator(x))
        assert repr(other) == repr(emulator)


def test_it_says_what_it_is(result):
    emulator, learned = pk.emulator(result), result["learned"].to_dataset()
    n = learned["n_centres"].values[learned["surrogate_error"].argmin("chain")]
    assert repr(emulator) == (
        f"Emulator(unconstrained log-density of {', '.join(NAMES)}; "
        f"error {emulator.error:.2g}, {emulator.posterior_error:.2g} at the draws, "
        f"fitted to {n} points)"
    )
    with pytest.raises(ValueError, match=r"\(\.\.\., 3\) in the order of a, .*shape \(2,\)"):
        emulator([0.0, 0.0])


def test_learned_says_what_the_shares_are_of(result):
    learned = result["learned"]
    assert learned["move"].values.tolist() == ["walk", "reference", "surrogate", "wide"]
    np.testing.assert_allclose(learned["shares"].sum("move"), 1)


# ---- without sampling ---------------------------------------------------------------------------


class Chain(pk.SurrogateMetropolis):
    """A step in two coordinates that has learned numbers at random."""

    def __new__(cls, *args, **options):
        return object.__new__(cls)  # without a model

    def __init__(self, n, is_quadratic=True, error=1.0, seed=1):
        rng, sizes = np.random.default_rng(seed), {"d": 2, "m": 9}
        self.other_mode = np.full(3, np.nan)
        noise = {k: rng.standard_normal(s) for k, s in {"g": 2, "h": (2, 2), "c": (2, 9)}.items()}
        surrogate = allocate(
            Surrogate,
            sizes,
            nu=4.0,
            is_quadratic=int(is_quadratic),
            constant=-123.0,
            linear=noise["g"],
            quadratic=np.tril(noise["h"]),
            bounds=(-126.0, -119.0),
            n=n,
            centres=noise["c"],
            weights=rng.standard_normal(9),
            rates=(0.5, 0.3),
        )
        mean, factor = rng.standard_normal(2), np.array([[2.0, 0.0], [-1.0, 0.5]])
        self.layout, self.parameters = (
            self,
            allocate(Parameters, sizes, mean=mean, factor=factor, error=error, surrogate=surrogate),
        )

    def coordinates(self):
        return ["x", "y"]


def result_of(*chains):
    learned = learned_dataset([[chain] for chain in chains])
    return xr.DataTree.from_dict({"learned": learned.assign_coords(chain=range(len(chains)))})


def test_each_chain_has_its_own():
    """Of as many points as it has, on a quadratic or a t density; a batch is no boundary."""
    chains = [Chain(9), Chain(4, is_quadratic=False, seed=2), Chain(0, error=np.nan)]
    u = 2 * np.random.default_rng(3).standard_normal((2 * fit.BLOCK + 1, 2))
    for k, chain in enumerate(chains[:2]):
        mean, factor = chain.parameters.mean, chain.parameters.factor
        expected = fit.values(chain.parameters.surrogate, u)
        assert (expected.min(), expected.max()) < (-127, -119)
        emulator = emulator_of(result_of(*chains), chain=k)
        np.testing.assert_allclose(emulator(mean + u @ factor.T), expected, rtol=1e-12)
        np.testing.assert_allclose(emulator.covariance, factor @ factor.T)


@pytest.mark.parametrize("others", [(), (Chain(9, error=2.0),)])
def test_a_quadratic_needs_no_points(others):
    chain = Chain(0)
    parameters, u = chain.parameters, np.random.default_rng(3).standard_normal((9, 2))
    emulator = pk.emulator(result_of(chain, *others))
    found = emulator(parameters.mean + u @ parameters.factor.T)
    np.testing.assert_allclose(found, fit.values(parameters.surrogate, u), rtol=1e-12)
    assert repr(emulator).endswith("error 1, a quadratic)")


def test_the_best_is_taken():
    chains = [Chain(9, error=2.0), Chain(9, error=0.5, seed=2), Chain(0, error=np.nan)]
    emulator = pk.emulator(result_of(*chains))
    assert emulator.error == 0.5
    np.testing.assert_array_equal(emulator.mean, chains[1].parameters.mean)


def test_there_may_be_none(step):
    find = pk.emulator
    with pytest.raises(ValueError, match=r"No surrogate was fitted in this result.*tune=0"):
        find(sample(step, tune=0))
    with pytest.raises(ValueError, match=r"no group 'evaluations'.* pm.sample does not"):
        find(xr.DataTree.from_dict({"posterior": xr.Dataset()}))
    with pytest.raises(ValueError, match=r"takes results of pk\.sample, or their paths"):
        find(result_of(Chain(9))["learned"].to_dataset())
    with pytest.raises(ValueError, match="no group 'evaluations'"):
        find(sample(pk.baselines.RWM(model=step.model)))
    with pytest.raises(ValueError, match="name is for black boxes: 'f' has no emulator"):
        find(result_of(Chain(9)), "f")
    several = learned_dataset([[Chain(9), Chain(9)]])
    with pytest.raises(ValueError, match="several steps"):
        find(xr.DataTree.from_dict({"learned": several}))
    with pytest.raises(ValueError, match="no dimension chain"):
        find(result_of(Chain(9)).isel(chain=0))
