"""A plot of what ``pk.compare_samplers`` has found."""

import xarray as xr

from pymc_kameleon.plots.common import check_table, panels_of_rows

TEXTS = {
    "ess_per_second": "ESS per second",
    "ess_per_evaluation": "ESS per evaluation",
    "disagreement": "disagreement (standard errors)",
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

    check_table(table, "pk.compare_samplers", ["ok", *TEXTS])
    shown = table[::-1]  # from below
    columns = {name: ("step", shown[name].to_numpy()) for name in TEXTS}
    values = xr.Dataset(columns, {"step": shown.index.to_list()})
    ok = xr.DataArray(shown["ok"].to_numpy(), values.coords)
    plots, place = panels_of_rows(values, TEXTS, backend, width=10)
    # Plotly calls circles otherwise than the others, so they are left to be the default.
    for name, kept, marker in [("ok", ok, {}), ("not ok", ~ok, {"marker": "x"})]:
        plots.map(visuals.scatter_xy, name, data=values.where(kept), y=place, **marker)
    logarithmic = values.drop_vars("disagreement")
    plots.map(visuals.set_xscale, data=logarithmic, scale="log", store_artist=False)
    if "limit" in table.attrs:  # pandas drops it in some operations
        limit = xr.Dataset({"disagreement": table.attrs["limit"]})
        plots.map(visuals.vline, "limit", data=limit, color="gray")
    return plots
