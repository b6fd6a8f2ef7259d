"""A plot of what each input of a simulator matters for each output."""

import numpy as np
import xarray as xr

from pymc_kameleon.plots.common import Plot, documented, name_rows

SENSITIVITY_VISUALS = (
    "value",
    "interval",
    "xlabel",
    "ylabel",
    "names",
    "limits",
    "title",
    "legend",
)

KINDS = {"first_order": "first order", "total_order": "total", "shapley": "Shapley"}
"""Indices, and what their panels are called."""

MOST_ROWS = 6
"""Outputs up to which each input has a row for each; more are a curve."""


@documented(SENSITIVITY_VISUALS, "PlotCollection.grid")
def plot_sensitivity(indices, *, backend=None, visuals=None, **pc_kwargs):
    """Plot what ``pk.sensitivity`` returned: indices with their intervals, a panel for each kind.

    Inputs have a row each; if there are many outputs, a curve over these each. It is over numbers
    of outputs, or over what ``indices.assign_coords(output=times)`` calls them.

    Parameters
    ----------
    indices : Dataset
    {common}

    Raises
    ------
    TypeError
        For what is no such Dataset.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     dt = pk.sample()
    >>> plots = pk.plot_sensitivity(pk.sensitivity(dt))  # doctest: +SKIP
    """
    if not isinstance(indices, xr.Dataset) or "first_order" not in indices:
        raise TypeError(f"indices must be what pk.sensitivity returns, not {type(indices)}.")
    kinds = [kind for kind in KINDS if kind in indices]
    values, intervals = (
        xr.concat([indices[kind + end] for kind in kinds], xr.Variable("kind", kinds))
        for end in ("", "_interval")
    )
    plot = Plot(SENSITIVITY_VISUALS, visuals, backend, pc_kwargs)
    draw = _rows if indices.sizes["output"] <= MOST_ROWS else _curves
    draw(plot, values.to_dataset(name="index"), intervals.to_dataset(name="index"))
    return plot.collection


def _rows(plot, values, intervals):
    n = values.sizes["input"]
    figsize = (3.4 * values.sizes["kind"], 1.2 + 0.45 * n)
    _panels(plot, values, figsize, "sharey", "output")
    rows = xr.DataArray(np.arange(n)[::-1], {"input": values["input"]}, "input")
    places = rows - 0.6 * beside(values["output"])
    for k in range(n):
        one = intervals.isel(input=k, drop=True).rename(ci_bound="end")
        y = places.isel(input=k, drop=True).expand_dims(end=one["end"])
        plot.draw("interval", "line_xy", one, y=y)
    plot.draw("value", "scatter_xy", values, y=places)
    for kind in values["kind"].values:
        panel = values.sel(kind=[kind])
        plot.frame("xlabel", "labelled_x", panel, text=f"{KINDS[kind]} index")
    plot.frame("limits", "set_ylim", values, limits=(-0.5, n - 0.5))
    plot.frame("limits", "set_xlim", values, limits=(-0.05, 1.05))
    plot.frame("names", name_rows, values, names=values["input"].values[::-1])
    if values.sizes["output"] > 1:
        plot.legend("output")


def _curves(plot, values, intervals):
    _panels(plot, values, (4 * values.sizes["kind"], 3.2), "sharey", "input")
    output = values["output"]
    x = output if output.dtype.kind in "iuf" else output.copy(data=np.arange(output.size))
    low, high = (intervals["index"].sel(ci_bound=end, drop=True) for end in ("lower", "upper"))
    plot.draw("interval", "fill_between_y", values, x=x, y_bottom=low, y_top=high, alpha=0.3)
    plot.draw("value", "line_xy", values, x=x)
    for k, kind in enumerate(values["kind"].values):
        panel = values.sel(kind=[kind])
        plot.frame("xlabel", "labelled_x", panel, text="output")
        if k == 0:
            plot.frame("ylabel", "labelled_y", panel, text="index")
        plot.frame("title", "labelled_title", panel, text=KINDS[kind])
    plot.legend("input")


def _panels(plot, values, figsize, share, colour):
    plot.panels("grid", values, figsize, share=share, cols=["kind"], aes={"color": [colour]})


def beside(labels):
    """Return how far to move what is drawn of each label of a coordinate, so that all are seen."""
    places = 0.7 * ((np.arange(labels.size) + 0.5) / labels.size - 0.5)
    return xr.DataArray(places, {labels.name: labels.values}, labels.name)
