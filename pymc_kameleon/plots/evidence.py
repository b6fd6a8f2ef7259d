"""A plot of what ``pk.compare_models`` has found."""

import xarray as xr

from pymc_kameleon.plots.common import check_table, panels_of_rows

TEXTS = {
    "log_bayes_factor": "log Bayes factor against the best\n(± 2 standard errors)",
    "probability": "probability\n(± 2 standard errors)",
}
"""Columns that are shown, and their labels."""


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

    check_table(table, "pk.compare_models", TEXTS)
    shown = table[::-1]  # from below
    values = _dataset(shown, list(TEXTS), "{}")
    errors = _dataset(shown, list(TEXTS), "{}_error")
    plots, place = panels_of_rows(values, TEXTS, backend, width=9)
    for row in range(len(shown)):
        ends = xr.DataArray([-2, 2], dims="end")
        line = (values + ends * errors).isel(model=row, drop=True)
        plots.map(visuals.line_xy, f"error {row}", data=line, y=xr.full_like(ends, row))
    plots.map(visuals.scatter_xy, "value", data=values, y=place)
    return plots


def _dataset(table, names, column):
    columns = {name: ("model", table[column.format(name)].to_numpy()) for name in names}
    return xr.Dataset(columns, {"model": table.index.to_list()})
