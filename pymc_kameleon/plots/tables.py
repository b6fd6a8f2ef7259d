"""Plots of the tables of ``pk.compare_samplers`` and ``pk.compare_models``."""

import numpy as np
import pandas as pd
import xarray as xr

from pymc_kameleon.plots.common import Plot, name_rows

OF_SAMPLERS = {
    "ess_per_second": "ESS per second",
    "ess_per_evaluation": "ESS per evaluation",
    "disagreement": "disagreement (standard errors)",
}

OF_MODELS = {
    "log_bayes_factor": "log Bayes factor against the best\n(± 2 standard errors)",
    "probability": "probability\n(± 2 standard errors)",
}
"""Columns that are shown, and their labels."""


def plot_compare(table, backend=None):
    """Plot what ``pk.compare_samplers`` returns: a row for each step, the recommended one on top.

    Crosses are steps that are not ``ok``. The line is the largest disagreement that may be chance.
    With matplotlib the axes of ESS are logarithmic; ArviZ has no such axes with other backends.

    Parameters
    ----------
    table : DataFrame
    backend : str, optional
        ``"matplotlib"``, ``"bokeh"`` or ``"plotly"``; by default that of ArviZ.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    TypeError
        For what is no such table, as a result.

    Examples
    --------
    >>> with model:
    ...     table = pk.compare_samplers(["GAM", "KAM"])
    >>> plot = pk.plot_compare(table)
    """
    check_table(table, "pk.compare_samplers", ["ok", *OF_SAMPLERS])
    values = columns_of(table, OF_SAMPLERS)
    ok = xr.DataArray(table["ok"].to_numpy()[::-1], values.coords)
    plot, place = panels_of_rows(values, OF_SAMPLERS, backend, width=10)
    # Plotly calls circles otherwise than the others, so they are left to be the default.
    for name, kept, marker in [("ok", ok, {}), ("not ok", ~ok, {"marker": "x"})]:
        plot.draw(name, "scatter_xy", values.where(kept), y=place, **marker)
    plot.frame("scale", "set_xscale", values.drop_vars("disagreement"), scale="log")
    if "limit" in table.attrs:  # pandas drops it in some operations
        limit = xr.Dataset({"disagreement": table.attrs["limit"]})
        plot.draw("limit", "vline", limit, color="gray")
    return plot.collection


def plot_evidence(table, backend=None):
    """Plot what ``pk.compare_models`` returns: a row for each model, the best one on top.

    Parameters
    ----------
    table : DataFrame
    backend : str, optional
        ``"matplotlib"``, ``"bokeh"`` or ``"plotly"``; by default that of ArviZ.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    TypeError
        For what is no such table.

    Examples
    --------
    >>> table = pk.compare_models({"a": dt_a, "b": dt_b})  # doctest: +SKIP
    >>> plot = pk.plot_evidence(table)  # doctest: +SKIP
    """
    check_table(table, "pk.compare_models", OF_MODELS)
    values = columns_of(table, OF_MODELS)
    errors = columns_of(table, OF_MODELS, "_error")
    plot, place = panels_of_rows(values, OF_MODELS, backend, width=9)
    ends = xr.DataArray([-2, 2], dims="end")
    for row in range(len(table)):
        line = (values + ends * errors).isel(row=row, drop=True)
        plot.draw(f"error {row}", "line_xy", line, y=xr.full_like(ends, row))
    plot.draw("value", "scatter_xy", values, y=place)
    return plot.collection


def columns_of(table, names, suffix=""):
    """Return columns as a Dataset, in the order of the rows from below."""
    columns = {name: ("row", table[name + suffix].to_numpy()[::-1]) for name in names}
    return xr.Dataset(columns, {"row": table.index.to_list()[::-1]})


def panels_of_rows(values, texts, backend, width):
    """Return a Plot with a panel for each column, by the labels `texts`, and the rows' places."""
    n = values.sizes["row"]
    plot = Plot((), None, backend, {})
    plot.panels("grid", values, (width, 1.5 + 0.4 * n), share="sharey", cols=["__variable__"])
    for name, text in texts.items():
        plot.frame("xlabel", "labelled_x", values[[name]], text=text)
    plot.frame("limits", "set_ylim", values, limits=(-0.5, n - 0.5))
    plot.frame("names", name_rows, values, names=values["row"].values)
    return plot, xr.DataArray(np.arange(n), values.coords)


def check_table(table, source, columns):
    """Raise a TypeError unless it is a DataFrame with the columns that `source` returns."""
    if not isinstance(table, pd.DataFrame) or not {*columns} <= {*table}:
        raise TypeError(
            f"This plot takes the table that {source}() returns, with the columns {[*columns]}, "
            f"not {type(table).__name__}."
        )
