"""What tuning decided, as people read it: words, coordinates, the variables' scale."""

import arviz as az
import matplotlib as mpl
import numpy as np
import pymc as pm
import pytest
from runs import sample

import pymc_kameleon as pk
from pymc_kameleon.step.learned import COORDINATE, Quantity, learned_dataset


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        pm.Normal("a", 0, 100)
        pm.HalfNormal("s")
        pm.Normal("b", 0, 1e-3, shape=1)
    return model


NAMES = ["a", "s_log__", "b[0]"]


@pytest.mark.slow
def test_a_covariance_is_that_of_the_posterior(model):
    for cls in (pk.GAM, pk.GadMALA):
        result = sample(cls(model=model), tune=3000, draws=3000, chains=1)
        learned, posterior = result["learned"], result["posterior"]
        sd = [posterior[name].std() for name in "ab"]
        variances = [learned["covariance"].sel(coordinate=n, coordinate_bis=n) for n in NAMES[::2]]
        np.testing.assert_allclose(np.sqrt(np.ravel(variances)), sd, rtol=0.3)
        scale = learned["scaling"].item()
        assert scale == pytest.approx(result["sample_stats"]["scaling"][0, -1].item())


def test_a_diagonal_is_told_as_variances(model):
    learned = sample(pk.GadMALA(model=model, factor="diagonal"), tune=500)["learned"].to_dataset()
    assert set(learned) == {"scaling", "n_leapfrog", "variance"}
    assert learned["variance"].dims == ("chain", "coordinate")
    assert learned["variance"].sel(coordinate="a").mean() == pytest.approx(1e4, rel=0.5)


def test_the_subsample_is_of_the_past(model):
    step = pk.KAM(model=model, steps_per_draw=1, n_subsample=60)
    result = sample(step, tune=1000, chains=1, discard_tuned_samples=False)
    learned, past = result["learned"], result["warmup_posterior"]
    for name, of in {"a": past["a"], "s_log__": np.log(past["s"]), "b[0]": past["b"]}.items():
        points = learned["subsample"].sel(coordinate=name).values
        assert points.shape == (1, 60)
        distances = np.abs(points.T - of.values.ravel()).min(axis=1)
        assert distances.max() < 1e-9 * np.abs(points).max(), name


@pytest.mark.slow
def test_modes_have_weights_means_and_covariances():
    with pm.Model() as model:
        pm.Mixture("x", [0.5, 0.5], [pm.Normal.dist(-8, 1), pm.Normal.dist(8, 2)])
    learned = sample(pk.CyclicalKAM(model=model), tune=1500, chains=1)["learned"].isel(chain=0)
    assert learned["n_modes"] == learned.sizes["mode"] == 2
    order = np.argsort(learned["mode_mean"].values.ravel())
    modes = learned.isel(mode=order)
    np.testing.assert_allclose(modes["mode_mean"].values.ravel(), [-8, 8], atol=1)
    np.testing.assert_allclose(np.sqrt(modes["mode_covariance"].values.ravel()), [1, 2], rtol=0.5)
    assert modes["mode_weight"].sum().item() == pytest.approx(1)


@pytest.mark.slow
def test_names_of_several_steps_do_not_collide(model):
    a, s, b = model.free_RVs
    steps = [pk.GAM([a], model=model), pk.CMH([s], model=model), pk.GAM([b], model=model)]
    learned = sample(steps)["learned"].to_dataset()
    gam = {f"gam_{k}_{what}" for k in (0, 1) for what in ("scaling", "covariance")}
    assert set(learned) == gam | {"cmh_scaling"}
    for prefix, names in {"gam_0": ["a"], "cmh": ["s_log__"], "gam_1": ["b[0]"]}.items():
        assert learned[f"{prefix}_coordinate"].values.tolist() == names
    assert learned["gam_1_covariance"].dims[1:] == ("gam_1_coordinate", "gam_1_coordinate_bis")


class Fake:
    """A step that learned points, of which there may be none."""

    name = "fake"

    def __init__(self, points):
        self.layout, self.points, self.other_mode = self, points, np.full(3, np.nan)

    def coordinates(self):
        return ["x", "y"]

    def _learned(self):
        n = {"n": Quantity((), len(self.points), "How many.")}
        if not len(self.points):
            return n
        return n | {"points": Quantity(("point", COORDINATE), self.points, "Points.", "cm")}


def test_chains_that_learned_less_end_in_nan():
    two, one, none = np.arange(4.0).reshape(2, 2), np.array([[5.0, 6.0]]), np.zeros((0, 2))
    learned = learned_dataset([[Fake(none)], [Fake(one)], [Fake(two)]])
    assert learned["n"].dtype.kind == "i"
    assert learned["points"].attrs == {"description": "Points.", "units": "cm"}
    expected = [np.full((2, 2), np.nan), [[5, 6], [np.nan, np.nan]], two]
    np.testing.assert_array_equal(learned["points"], expected)
    assert set(learned_dataset([[Fake(none)]])) == {"n"}  # files have no arrays of length 0


def test_warmup_shows_adaptation(model):
    mpl.use("Agg")
    result = sample(pk.GAM(model=model), discard_tuned_samples=False)
    plot = az.plot_trace(result, group="warmup_sample_stats", var_names=["scaling"])
    (axes,) = plot.viz["plot"].to_dataset().data_vars.values()
    lines = axes.item().get_lines()
    drawn = [line.get_ydata() for line in lines if len(line.get_ydata()) == 50]
    np.testing.assert_array_equal(drawn, result["warmup_sample_stats"]["scaling"])
