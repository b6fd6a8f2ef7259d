"""What a result keeps of the surrogate of SurrogateMetropolis, and the function made from that."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from runs import sample, states_of

import pymc_kameleon as pk
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.density import Surrogate
from pymc_kameleon.samplers.surrogate.inner_chain import Parameters
from pymc_kameleon.samplers.surrogate.moves import log_s, parameters_of
from pymc_kameleon.step.learned import learned_dataset


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


def kept_of(result, chain):
    return parameters_of(result["learned"].to_dataset().sel(chain=chain))


def test_it_is_the_log_density_of_the_model(step, result):
    logp, x = step.model.compile_logp(), unconstrained(result["posterior"])
    for k in range(2):
        names = step.layout.coordinates()
        true = [logp({"a": a, "s_log__": log_sd, "p_logodds__": [q]}) for a, log_sd, q in x[k]]
        assert names == ["a", "s_log__", "p_logodds__[0]"]
        error = result["learned"]["surrogate_error"].values[k]
        assert np.median(np.abs(log_s(kept_of(result, k), x[k]) - true)) < 2 * error < 0.2


@pytest.mark.parametrize("is_loaded", [False, True])
def test_it_is_what_the_moves_went_by(result, tmp_path, is_loaded):
    """Compiled code has left log s where it moved last; files hold it, too."""
    if is_loaded:
        result.to_netcdf(tmp_path / "run.nc")
        result = xr.load_datatree(tmp_path / "run.nc")
    last = [(own["0.state.x"], own["0.state.log_s"][0]) for own in states_of(result)]
    known = [k for k in range(2) if np.isfinite(last[k][1])]
    assert known
    for k in known:
        x, expected = last[k]
        assert log_s(kept_of(result, k), x[None])[0] == pytest.approx(expected, abs=1e-6)


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
    chains = [Chain(9), Chain(4, is_quadratic=False, seed=2), Chain(0, seed=3)]
    chains.append(Chain(9, error=np.nan))
    u = 2 * np.random.default_rng(3).standard_normal((2 * fit.BLOCK + 1, 2))
    for some in (chains, chains[2:3]):
        result = result_of(*some)
        for k, chain in enumerate(some):
            own = chain.parameters
            if np.isnan(own.error[0]):  # nothing was fitted
                continue
            expected = fit.values(own.surrogate, u)
            assert (expected.min(), expected.max()) < (-127, -119)
            found = log_s(kept_of(result, k), own.mean + u @ own.factor.T)
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_group_that_was_changed_is_refused():
    """Compiled code would read beyond its centres."""
    result = result_of(Chain(9))
    result["learned"]["n_centres"] = result["learned"]["n_centres"] + 1
    with pytest.raises(ValueError, match="learned was changed: it has 9 centres, not 10"):
        kept_of(result, 0)
