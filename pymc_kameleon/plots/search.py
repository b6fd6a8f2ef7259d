"""A plot of the search for the posterior: what its evaluations have gained, round by round."""

import numpy as np
import xarray as xr

from pymc_kameleon.plots.common import Plot, documented, result_of
from pymc_kameleon.step.groups import SEARCH

SEARCH_VISUALS = "line", "predicted", "decision", "scale", "ylabel", "xlabel", "legend"

PANELS = {
    "logp": ("symlog", "best log-density,\nrelative to the last one"),
    "radius": ("log", "radius of the\ntrust region"),
    "gain": ("symlog", "gain of log-density\n(×: predicted)"),
}
"""Scale and label of each panel; it is linear within ±10, but for a radius."""


@documented(SEARCH_VISUALS, "PlotCollection.wrap")
def plot_search(dt, *, backend=None, visuals=None, **pc_kwargs):
    """Plot where the evaluations of the search for the posterior went, round by round.

    The panels show the best log-density so far, the radius of the trust region, and the gain of
    each round beside the predicted one. Colours say what a round was for, or how it ended.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample``. That of ``pm.sample`` does not keep the rounds.
    {common}

    Raises
    ------
    ValueError
        If no chain has searched, or the result is of ``pm.sample``.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.GAM())
    >>> plots = pk.plot_search(dt)
    """
    plot, dt = Plot(SEARCH_VISUALS, visuals, backend, pc_kwargs), result_of(dt)
    if SEARCH not in dt.children:
        raise ValueError(
            f"The result has no group {SEARCH!r}: no chain has searched for the posterior, or "
            "pm.sample has made it, which does not keep the rounds. pk.sample does."
        )
    rounds = dt[SEARCH].to_dataset()
    _, search = np.unique([rounds["of_chain"], rounds["of_step"]], axis=1, return_inverse=True)
    rounds = rounds.drop_vars(["of_chain", "of_step"])
    x, is_of = rounds["evaluations"], xr.DataArray(search, dims="round")
    shown = rounds.assign(logp=rounds["logp"] - rounds["logp"].max()).drop_vars("decided")
    shown = shown.where(is_of == xr.DataArray(np.unique(search), dims="search"))
    shown = shown.where(np.isfinite(shown))
    panels = [name for name in PANELS if shown[name].notnull().any()]
    names = list(dict.fromkeys(rounds["decided"].values.tolist()))
    decisions = xr.DataArray(names, {"decision": names}, "decision")
    data = shown[panels].where(rounds["decided"] == decisions)
    plot.panels(
        "wrap",
        data,
        figsize=(9, 1 + 2.2 * len(panels)),
        share="sharex",
        cols=["__variable__"],
        col_wrap=1,
        aes={"color": ["decision"], "overlay": ["search"]},
    )
    for name in panels:
        panel, (scale, text) = data[[name]], PANELS[name]
        if scale == "log" or np.abs(shown[name]).max() > 10:
            plot.frame("scale", "set_yscale", panel, scale=scale)
        plot.frame("ylabel", "labelled_y", panel, text=text)
    text = "evaluations of the log-density by a chain"
    plot.frame("xlabel", "labelled_x", panel, text=text)
    lines = shown[[name for name in panels if name != "gain"]]
    plot.draw("line", "line_xy", lines, x=x, color="gray", alpha=0.6)
    plot.draw("decision", "scatter_xy", data, x=x)
    if "gain" in panels:
        predicted = shown["predicted_gain"].to_dataset(name="gain")
        plot.draw("predicted", "scatter_xy", predicted, x=x, marker="x", color="black")
    plot.legend("decision")
    return plot.collection
