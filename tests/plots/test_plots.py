"""Plots of what a run did and learned: what they draw, and what they ask for."""

import json
import re
from importlib.util import find_spec

import arviz as az
import matplotlib as mpl
import numpy as np
import pymc as pm
import pytest
import reference
import xarray as xr
from matplotlib import pyplot as plt
from runs import sample

import pymc_kameleon as pk
from pymc_kameleon.plots.proposals import _proposal

mpl.use("Agg")

TUNE, DRAWS = 400, 60
BACKENDS = ["none", *(name for name in ("bokeh", "plotly") if find_spec(name))]
PLOTS = ["adaptation", "learned", "modes", "proposals", "search"]


@pytest.fixture(scope="module")
def result():
    """KAM's, with the draws of four coordinates, of which one is transformed."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, 3)
        pm.HalfNormal("s")
        pm.Normal("b", [1, 0.1] * a**2, 1)
    return sample(pk.KAM(model=model, n_subsample=20), tune=TUNE, draws=DRAWS)


@pytest.fixture(scope="module")
def steps():
    """What CMTM and two of GAM have learned beside one another, made up."""
    coords = {"chain": [0, 1], "cmtm_coordinate": ["x", "y_interval__[0]", "y_interval__[1]"]}
    coords |= {f"gam_{k}_coordinate{bis}": ["z"] for k in (0, 1) for bis in ("", "_bis")}
    variables = {"cmtm_scaling": (("chain", "cmtm_coordinate", "cmtm_trial"), np.ones((2, 3, 5)))}
    for k in (0, 1):
        dims = ("chain", f"gam_{k}_coordinate", f"gam_{k}_coordinate_bis")
        variables |= {f"gam_{k}_scale": ("chain", [1.0, 2.0])}
        variables[f"gam_{k}_covariance"] = dims, np.ones((2, 1, 1))
    return xr.DataTree.from_dict({"learned": xr.Dataset(variables, coords)})


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def axes_of(plots):
    return plots.viz["figure"].item().axes


def coordinates(result):
    """Return the draws (chains, draws, 4) as they are sampled."""
    posterior = result["posterior"]
    first = np.stack([posterior["a"], np.log(posterior["s"])], axis=-1)
    return np.concatenate([first, posterior["b"]], axis=-1)


# ---- what is drawn ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.filterwarnings("ignore:::bokeh", "ignore:::plotly")
def test_other_backends(result, name, backend):
    draw = getattr(pk, f"plot_{name}")
    plots = draw(result, backend=backend)
    assert plots.backend == backend


def test_adaptation(result):
    plots = pk.plot_adaptation(result, backend="matplotlib")
    scaling, accept, bandwidth = axes_of(plots)
    groups = [result["warmup_sample_stats"], result["sample_stats"]]
    for axis, name in [(scaling, "scaling"), (bandwidth, "bandwidth")]:
        drawn = [line.get_ydata() for line in axis.lines[:2]]
        np.testing.assert_array_equal(drawn, np.concatenate([g[name] for g in groups], axis=1))
        assert axis.lines[2].get_xdata()[0] == TUNE - 0.5
        assert axis.get_ylabel() == name
    window = (TUNE + DRAWS) // 50
    assert f"mean of {window} draws" in accept.get_ylabel()
    for line, own in zip(accept.lines, groups[1]["accept_prob"].values, strict=False):
        assert line.get_ydata()[-1] == pytest.approx(own[-window:].mean())
        assert line.get_ydata()[TUNE + window - 1] == pytest.approx(own[:window].mean())
    assert (scaling.get_yscale(), accept.get_yscale()) == ("log", "linear")
    assert "tuning" in bandwidth.get_xlabel()


def test_each_of_several_steps_has_its_panel(result):
    tree = result.copy()
    for group in ("warmup_sample_stats", "sample_stats"):
        twice = {
            name: xr.concat([values, 2 * values], f"{name}_dim_0").transpose("chain", "draw", ...)
            for name, values in tree[group].to_dataset()[["scaling", "accept_prob"]].items()
        }
        numbers = {f"{name}_dim_0": [0, 1] for name in twice}
        tree[group] = xr.DataTree(xr.Dataset(twice, numbers))
    first, second, *_, last = axes_of(pk.plot_adaptation(tree, backend="matplotlib"))
    y, twice = (axis.lines[0].get_ydata() for axis in (first, second))
    np.testing.assert_array_equal(2 * y, twice)
    assert ["tuning" in axis.get_xlabel() for axis in (first, second, last)] == [False, False, True]


def test_learned_correlations(result):
    plots = pk.plot_learned(result, backend="matplotlib", var_names=["s", "b"])
    (axis,) = axes_of(plots)
    draws = coordinates(result).reshape(-1, 4)[:, 1:]
    lower = np.tril_indices(3, -1)
    for chain, part in enumerate(axis.collections):
        covariance = result["learned"]["covariance"].values[chain, 1:, 1:]
        sd = np.sqrt(np.diag(covariance))
        x, y = part.get_offsets().T
        np.testing.assert_allclose(x, np.corrcoef(draws.T)[lower])
        np.testing.assert_allclose(y, (covariance / np.outer(sd, sd))[lower])


def test_learned_correlations_of_several_modes_are_those_of_the_whole_past(result):
    tree = result.copy()
    learned = tree["learned"].to_dataset()
    tree["learned"] = xr.DataTree(learned.assign(global_covariance=learned["covariance"] * 0 + 1))
    (axis,) = axes_of(pk.plot_learned(tree, backend="matplotlib"))
    assert (axis.collections[0].get_offsets()[:, 1] == 1).all()


def test_proposals_are_those_of_the_sampler(result):
    """Against the slow version of KAM, at a draw of each chain."""
    own = result["learned"].to_dataset()
    propose = _proposal(result, own)
    for chain in (0, 1):
        learned, x = own.sel(chain=chain), coordinates(result)[chain, 30]
        assert learned["subsample"].shape == (20, 4)
        slow = reference.KAM.__new__(reference.KAM)
        slow.kernel, slow.bandwidth = pk.samplers.kernels.Gaussian(), learned["bandwidth"].item()
        slow.whitening = np.linalg.cholesky(learned["covariance"].values)
        slow.z, slow.nu = slow.whitened(learned["subsample"].values.T).T, learned["nu"].item()
        expected = slow.covariance(x, learned["gamma"].item())
        np.testing.assert_allclose(propose(learned, x).values, expected, rtol=1e-8)


def test_without_points_kam_is_a_walk(result):
    own = result["learned"].to_dataset()
    learned = own.sel(chain=0).assign(nu=np.nan)
    found = _proposal(result, own)(learned, np.zeros(4))
    np.testing.assert_allclose(found, learned["gamma"] ** 2 * learned["covariance"])


def test_contours_have_95_percent(result):
    tree = as_sampler(result, "GAM")
    learned = tree["learned"].to_dataset().assign(scaling=("chain", [1.0, 2.0]))
    tree["learned"] = xr.DataTree(learned)
    labels = [(0, 3), (1, 5)]
    pair = {"var_names": ["s", "b"], "coords": {"coordinate": ["s_log__", "b[1]"]}}
    plots = pk.plot_proposals(tree, draws=labels, backend="matplotlib", **pair)
    artist = plots.viz["proposal"].values[1, 0]
    ellipses = np.array(artist.get_data()).T.reshape(2, -1, 2)[:, :-1]
    centres = [coordinates(result)[k][[1, 3]] for k in labels]
    crosses = plots.viz["start"].values[1, 0].get_offsets()
    np.testing.assert_allclose(crosses, centres)
    for k, (ellipse, centre) in enumerate(zip(ellipses, centres, strict=True)):
        covariance = (k + 1) ** 2 * tree["learned"]["covariance"].values[k][[1, 3]][:, [1, 3]]
        apart = ellipse - centre
        distances = np.einsum("ni,ij,nj->n", apart, np.linalg.inv(covariance), apart)
        np.testing.assert_allclose(distances, -2 * np.log(0.05))
    evenly = pk.plot_proposals(result, draws=3, backend="none", **pair)
    assert len(evenly.viz["start"].values[1, 0]["x"]) == 3


def test_search(result):
    tree = result.copy()
    decided = ["design", "climb", "climb", "climb"]
    rounds = xr.Dataset(
        {
            "evaluations": ("round", [8, 10, 12, 9]),
            "logp": ("round", [-200.0, -80.0, -70.0, -75.0]),
            "decided": ("round", decided),
            "radius": ("round", [np.nan, 1.0, 2.0, 0.5]),
            "predicted_gain": ("round", [np.nan, 100.0, 50.0, np.inf]),
            "gain": ("round", [np.nan, 120.0, 10.0, -np.inf]),
        },
        {"of_chain": ("round", [0, 0, 0, 1]), "of_step": ("round", [0, 0, 0, 0])},
    )
    tree["search"] = xr.DataTree(rounds)
    plots = pk.plot_search(tree, backend="matplotlib")
    logp, radius, gain = axes_of(plots)
    np.testing.assert_array_equal(logp.lines[0].get_xdata()[:3], [8, 10, 12])
    np.testing.assert_array_equal(logp.lines[0].get_ydata(), [-130, -10, 0, np.nan])
    np.testing.assert_array_equal(logp.lines[1].get_ydata(), [np.nan, np.nan, np.nan, -5])
    climbs = plots.viz["decision"]["gain"].sel(decision="climb", search=0).item().get_offsets()
    assert climbs[np.isfinite(climbs[:, 1].astype(float))].tolist() == [[10, 120], [12, 10]]
    crosses = plots.viz["predicted"]["gain"].sel(search=0).item().get_offsets()
    assert crosses[1:3].tolist() == [[10, 100], [12, 50]]
    scales = [axis.get_yscale() for axis in (logp, radius, gain)]
    assert scales == ["symlog", "log", "symlog"]
    assert "evaluations" in gain.get_xlabel()
    without_gains = rounds.assign(radius=rounds["radius"] * np.nan, gain=rounds["gain"] * np.nan)
    tree["search"] = xr.DataTree(without_gains.assign(logp=rounds["logp"] / 100))
    (logp,) = axes_of(pk.plot_search(tree, backend="matplotlib"))
    assert logp.get_yscale() == "linear"


def test_modes():
    rng = np.random.default_rng(12)
    x = rng.normal(size=(4, 200, 2)) + 20 * np.array([0, 0, 0, 1])[:, None, None] * [1, 0]
    x[1, 150:, 0] += 20
    plots = pk.plot_modes({"x": x}, backend="matplotlib", coords={"chain": [1, 2, 3]})
    centres, _, draws = axes_of(plots)
    assert [t.get_text() for t in centres.get_yticklabels()] == ["x[1]", "x[0]"]
    rows = ["chain 3: 0 jumps", "chain 2: 0 jumps", "chain 1: 1 jump"]
    assert [t.get_text() for t in draws.get_yticklabels()] == rows
    kept = x[1:, :, 0].ravel()
    expected = (kept[kept < 10].mean() - kept.mean()) / kept.std()
    assert centres.collections[0].get_offsets()[0].tolist() == pytest.approx(
        [expected, 1], abs=1e-5
    )
    share = plots.viz["share"]["share"].sel(mode=1, chain=1).item()
    assert share.get_offsets().tolist() == [[0.25, 0]]
    weight = plots.viz["weight"]["share"].sel(mode=0).item().get_xdata()
    assert weight.mean() == pytest.approx(350 / 600)
    first, row = plots.viz["draw"]["draws"].sel(mode=1, chain=1).item().get_offsets().T
    assert (row.round() == 2).all()
    assert np.flatnonzero(np.isfinite(first)).tolist() == list(range(150, 200))
    assert first[-1] == 199


# ---- what is asked for --------------------------------------------------------------------------


def as_sampler(result, name):
    """Return a copy of the result that says it is of another sampler."""
    tree = result.copy()
    states = tree["sampling_state"].to_dataset()
    states.attrs["steps"] = states.attrs["steps"].replace('"KAM"', f'"{name}"')
    tree["sampling_state"] = xr.DataTree(states)
    return tree


def without(result, *names):
    return xr.DataTree.from_dict({k: v for k, v in result.children.items() if k not in names})


@pytest.mark.parametrize("name", ["learned", "proposals"])
def test_a_result_of_pm_sample_does_not_say_what_was_learned(result, name):
    with pytest.raises(ValueError, match=r"no group 'learned'.* draw with pk\.sample"):
        getattr(pk, f"plot_{name}")(without(result, "learned"), backend="none")


def test_adaptation_needs_the_draws_of_tuning(result):
    with pytest.raises(ValueError, match="discard_tuned_samples=False"):
        pk.plot_adaptation(without(result, "warmup_sample_stats"), backend="none")
    with pytest.raises(ValueError, match=r"var_names must be some of .*'scaling'.*not \['sclaing'"):
        pk.plot_adaptation(result, var_names="sclaing", backend="none")
    tree = without(result, "sample_stats")  # as of a run that was stopped while tuning
    assert pk.plot_adaptation(tree, var_names="scaling", backend="none").data.sizes["draw"] == TUNE


def test_there_are_proposals_of_some_samplers_only(result):
    for name in ("PCAKAM", "SurrogateMetropolis"):
        said = rf"{name} does not propose from a normal .* GAM.*plot_learned shows the cov"
        with pytest.raises(ValueError, match=said):
            pk.plot_proposals(as_sampler(result, name), backend="none")
    tree = result.copy()
    steps = json.loads(tree["sampling_state"].attrs["steps"])
    tree["sampling_state"].attrs["steps"] = json.dumps([steps[0] | {"options": None}])
    with pytest.raises(ValueError, match="does not know the kernel of KAM"):
        pk.plot_proposals(tree, backend="none")
    with pytest.raises(ValueError, match="group 'sampling_state'"):
        pk.plot_proposals(without(result, "sampling_state"), backend="none")
    with pytest.raises(ValueError, match=r"no pairs of coordinates to plot, only \['a'\]"):
        pk.plot_proposals(result, var_names="a", backend="none")
    for draws in (0, [(0, DRAWS)], [(2, 0)], [], 1.5):
        with pytest.raises(ValueError, match=re.escape(f"from 0 to {DRAWS - 1}, not {draws!r}")):
            pk.plot_proposals(result, draws=draws, backend="none")


def test_draws_have_to_be_on_the_scale_of_what_was_learned(result):
    tree = result.copy()
    learned = tree["learned"].to_dataset()
    names = {dim: ["a", "s_interval__", "b[0]", "b[1]"] for dim in learned["covariance"].dims[1:]}
    tree["learned"] = xr.DataTree(learned.assign_coords(names))
    with pytest.raises(ValueError, match=r's_interval__, .*"include_transformed": True'):
        pk.plot_learned(tree, backend="none")
    assert pk.plot_learned(tree, var_names=["a", "b"], backend="none").data.sizes["pair"] == 3
    posterior = tree["posterior"].to_dataset()
    tree["posterior"] = xr.DataTree(posterior.assign(s_interval__=np.log(posterior["s"])))
    before, after = (pk.plot_learned(dt, backend="matplotlib") for dt in (result, tree))
    x, y = (axes_of(plots)[0].collections[0].get_offsets() for plots in (before, after))
    np.testing.assert_array_equal(x, y)
    with pytest.raises(ValueError, match="no draws after tuning"):
        pk.plot_learned(without(result, "posterior"), backend="none")


def test_several_steps(steps):
    with pytest.raises(ValueError, match=r"step must be one of \['gam_0', 'gam_1'\], .* not None"):
        pk.plot_learned(steps, backend="none")
    with pytest.raises(ValueError, match="not 'cmtm'"):
        pk.plot_learned(steps, step="cmtm", backend="none")
    with pytest.raises(ValueError, match=r"no pairs of coordinates to plot, only \['z'\]"):
        pk.plot_learned(steps, step="gam_1", backend="none")


def test_what_was_not_learned(result, steps):
    ladder = xr.DataTree.from_dict({"learned": steps["learned"].to_dataset()[["cmtm_scaling"]]})
    with pytest.raises(ValueError, match=r"has learned a covariance: .*plot_adaptation"):
        pk.plot_learned(ladder, backend="none")
    with pytest.raises(ValueError, match=r"there is no \['t'\] among .*'s', 's_log__'"):
        pk.plot_learned(result, var_names=["a", "t"], backend="none")


def test_coords_are_those_of_what_is_shown(result):
    said = r"no dimension \['term'\] among \[.*'coordinate'.*\]"
    with pytest.raises(ValueError, match=said):
        pk.plot_learned(result, coords={"term": ["u"]}, backend="none")
    for draw in (pk.plot_adaptation, pk.plot_modes):
        with pytest.raises(ValueError, match=r"no dimension \['term'\] among \['chain', 'draw'"):
            draw(result, coords={"term": ["u"]}, backend="none")
        with pytest.raises(ValueError, match=r"coords: .*chain"):
            draw(result, coords={"chain": [7]}, backend="none")
        with pytest.raises(TypeError, match="This plot takes no step"):
            draw(result, step="kam", backend="none")


def test_a_result_is_no_table_of_pk_compare(result):
    for wrong in (result, az.summary(result)):
        said = rf"takes the table that pk\.compare_samplers\(\) returns, .* {type(wrong).__name__}"
        with pytest.raises(TypeError, match=said):
            pk.plot_compare(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adaptation", "learned", "proposals", "search"])
def test_a_path_is_that_of_a_result(result, name, tmp_path):
    draw = getattr(pk, f"plot_{name}")
    with pytest.raises(TypeError, match=r"dt is None: give the result of pk\.sample"):
        draw(None, backend="none")
    with pytest.raises(ValueError, match=r"no\.nc does not exist"):
        draw("no.nc", backend="none")
    result.to_netcdf(tmp_path / "run.nc")
    assert draw(tmp_path / "run.nc", backend="none").backend == "none"


def test_visuals_are_the_callers(result):
    options = {"visuals": {"legend": False, "equal": False, "scatter": {"marker": "s"}}}
    plots = pk.plot_learned(result, backend="none", aes={"color": ["chain"]}, **options)
    assert not {"legend", "equal"} & set(plots.viz.children)
    assert plots.viz["scatter"]["correlation"].values.flat[0]["marker"] == "s"
    with pytest.raises(ValueError, match="scater"):
        pk.plot_learned(result, backend="none", visuals={"scater": False})


def test_without_a_library_for_plotting(result):
    with az.rc_context({"plot.backend": "none"}), pytest.raises(ImportError, match="matplotlib"):
        pk.plot_learned(result)


@pytest.mark.parametrize("name", PLOTS)
def test_docstrings_are_complete(name):
    text = getattr(pk, f"plot_{name}").__doc__
    for part in ("backend : ", "visuals : dict", "Returns", "Examples", ">>> "):
        assert part in text
    assert "{" not in text.replace('{"', "")
