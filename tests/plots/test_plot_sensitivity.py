"""The plot of what inputs matter: it shows the numbers that it was given."""

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot as plt
from numpy.testing import assert_allclose

import pymc_kameleon as pk

mpl.use("Agg")

INPUTS = ["rate", "scale"]


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def made_up(outputs, kinds=("first_order", "total_order")):
    """Return indices of outputs, as pk.sensitivity does."""
    rng, dims, variables = np.random.default_rng(1), ("output", "input"), {}
    for kind in kinds:
        values = rng.uniform(0.2, 0.8, (len(outputs), len(INPUTS)))
        variables[kind] = dims, values
        variables[f"{kind}_interval"] = (*dims, "ci_bound"), values[..., None] + [-0.1, 0.1]
    coords = {"output": outputs, "input": INPUTS, "ci_bound": ["lower", "upper"]}
    return xr.Dataset(variables, coords)


def axes_of(plots):
    return plots.viz["figure"].item().axes


def test_few_outputs_have_rows():
    found = made_up(["highest", "last"], ("first_order", "total_order", "shapley"))
    panels = axes_of(pk.plot_sensitivity(found))
    labels = [panel.get_xlabel() for panel in panels]
    assert labels == ["first order index", "total index", "Shapley index"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == INPUTS[::-1]
    x, y = np.concatenate([own.get_offsets() for own in panels[0].collections]).T
    assert_allclose(np.sort(x), np.sort(found["first_order"].values.ravel()))
    rate = y[np.isin(x, found["first_order"].sel(input="rate"))]
    assert np.all(rate > 0.5)  # the first input is at the top
    assert len(set(y)) == 4  # outputs do not hide each other


@pytest.mark.parametrize("outputs", [range(9), [f"day {k}" for k in range(9)]])
def test_many_outputs_make_curves(outputs):
    found = made_up([*outputs])
    panels = axes_of(pk.plot_sensitivity(found))
    assert [panel.get_title() for panel in panels] == ["first order", "total"]
    for panel, kind in zip(panels, ("first_order", "total_order"), strict=True):
        for line, name in zip(panel.get_lines(), INPUTS, strict=True):
            assert_allclose(line.get_xdata(), range(9))
            assert_allclose(line.get_ydata(), found[kind].sel(input=name))


def test_curves_are_over_what_outputs_are_called():
    hours = np.geomspace(0.25, 24, 9)
    found = made_up(range(9)).assign_coords(output=hours)
    first, _ = axes_of(pk.plot_sensitivity(found, visuals={"xlabel": {"text": "hours"}}))
    assert_allclose(first.get_lines()[0].get_xdata(), hours)
    assert first.get_xlabel() == "hours"


def test_what_is_no_result_of_pk_sensitivity():
    with pytest.raises(TypeError, match="must be what pk"):
        pk.plot_sensitivity(made_up(["last"])["first_order"])
