"""Plots of the tables of ``pk.compare_samplers`` and ``pk.compare_models``."""

import numpy as np
import pandas as pd
import xarray as xr

from pymc_kameleon.plots.common import checked_backend, figure_of, name_rows

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
    from arviz_plots import visuals  # takes half a second

    check_table(table, "pk.compare_samplers", ["ok", *OF_SAMPLERS])
    shown = table[::-1]  # from below
    columns = {name: ("step", shown[name].to_numpy()) for name in OF_SAMPLERS}
    values = xr.Dataset(columns, {"step": shown.index.to_list()})
    ok = xr.DataArray(shown["ok"].to_numpy(), values.coords)
    plots, place = panels_of_rows(values, OF_SAMPLERS, backend, width=10)
    # Plotly calls circles otherwise than the others, so they are left to be the default.
    for name, kept, marker in [("ok", ok, {}), ("not ok", ~ok, {"marker": "x"})]:
        plots.map(visuals.scatter_xy, name, data=values.where(kept), y=place, **marker)
    logarithmic = values.drop_vars("disagreement")
    plots.map(visuals.set_xscale, data=logarithmic, scale="log", store_artist=False)
    if "limit" in table.attrs:  # pandas drops it in some operations
        limit = xr.Dataset({"disagreement": table.attrs["limit"]})
        plots.map(visuals.vline, "limit", data=limit, color="gray")
    return plots


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
    from arviz_plots import visuals  # takes half a second

    check_table(table, "pk.compare_models", OF_MODELS)
    shown = table[::-1]  # from below
    values = _dataset(shown, list(OF_MODELS), "{}")
    errors = _dataset(shown, list(OF_MODELS), "{}_error")
    plots, place = panels_of_rows(values, OF_MODELS, backend, width=9)
    for row in range(len(shown)):
        ends = xr.DataArray([-2, 2], dims="end")
        line = (values + ends * errors).isel(model=row, drop=True)
        plots.map(visuals.line_xy, f"error {row}", data=line, y=xr.full_like(ends, row))
    plots.map(visuals.scatter_xy, "value", data=values, y=place)
    return plots


def _dataset(table, names, column):
    columns = {name: ("model", table[column.format(name)].to_numpy()) for name in names}
    return xr.Dataset(columns, {"model": table.index.to_list()})


def panels_of_rows(values, texts, backend, width):
    """Return panels for the columns of a Dataset, with the labels `texts`, and its rows' places."""
    from arviz_plots import PlotCollection, visuals  # takes half a second

    [dim], n = values.dims, len(next(iter(values.values())))
    backend, size = checked_backend(backend), (width, 1.5 + 0.4 * n)
    plots = PlotCollection.grid(
        values,
        cols=["__variable__"],
        backend=backend,
        figure_kwargs=figure_of(backend, {}, figsize=size, sharey=True),
    )
    for name, text in texts.items():
        plots.map(visuals.labelled_x, data=values[[name]], text=text, store_artist=False)
    plots.map(visuals.set_ylim, data=values, limits=(-0.5, n - 0.5), store_artist=False)
    plots.map(name_rows, data=values, names=values[dim].values, store_artist=False)
    return plots, xr.DataArray(np.arange(n), values.coords)


def check_table(table, source, columns):
    """Raise a TypeError unless it is a DataFrame with the columns that `source` returns."""
    if not isinstance(table, pd.DataFrame) or not {*columns} <= {*table}:
        raise TypeError(
            f"This plot takes the table that {source}() returns, with the columns {[*columns]}, "
            f"not {type(table).__name__}."
        )
