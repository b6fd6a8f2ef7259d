"""A plot of modes: where they are, what they weigh, and how the chains went between them."""

import numpy as np
import xarray as xr
from arviz_base import convert_to_dataset, dataset_to_dataarray

from pymc_kameleon.analysis.mode_occupancy import SAMPLE_DIMS, mode_occupancy
from pymc_kameleon.findings.words import counted
from pymc_kameleon.plots.common import Plot, documented, name_rows, with_labels
from pymc_kameleon.result.opening import opened

MODE_VISUALS = "centre", "share", "weight", "draw", "names", "limits", "xlabel", "legend"

LABELS = {
    "centre": "centre of each mode\n(standard deviations from the mean)",
    "share": "share of draws, by chain;\nline: weight ± 2 standard errors",
    "draws": "draw",
}
"""Labels of the panels."""


@documented(MODE_VISUALS, "PlotCollection.grid")
def plot_modes(
    dt,
    *,
    var_names=None,
    coords=None,
    backend=None,
    visuals=None,
    **pc_kwargs,
):
    """Plot the modes of ``pk.mode_occupancy``: centres, weights, occupancy and jumps.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample`` or ``pm.sample``, or what ``pk.mode_occupancy`` takes.
    var_names : str or list of str, optional
        Variables to go by; all of real numbers by default.
    coords : dict, optional
        Which chains, and elements of variables.
    {common}

    Raises
    ------
    ValueError
        If there is no variable to go by.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.CyclicalKAM())
    >>> plots = pk.plot_modes(dt, var_names="a")
    """
    plot = Plot(MODE_VISUALS, visuals, backend, pc_kwargs)
    posterior = with_labels(convert_to_dataset(opened(dt), group="posterior"), coords)
    found = mode_occupancy(posterior, var_names=var_names)
    own, numbers = found.dataset, found.dataset["mode"].values
    values = dataset_to_dataarray(posterior[list(found.centers)], SAMPLE_DIMS, label_type="flat")
    centres = dataset_to_dataarray(found.centers, ["mode"], label_type="flat")
    centres = ((centres - values.mean(SAMPLE_DIMS)) / values.std(SAMPLE_DIMS)).round(6)
    centres = centres.assign_coords(mode=numbers)
    mode = xr.DataArray(numbers, {"mode": numbers}, "mode")
    draws = own["draw"].where(own["mode_of_draw"] == mode)
    data = xr.Dataset({"centre": centres, "share": own["share"], "draws": draws})
    names, chains = centres["label"].values, own["chain"].values
    plot.panels(
        "grid",
        data,
        figsize=(13, 1.5 + 0.4 * max(4, len(names), len(chains), len(numbers))),
        cols=["__variable__"],
        aes={"color": ["mode"], "overlay": ["chain"]},
    )
    row = xr.DataArray(np.arange(len(names))[::-1], dims="label")
    plot.draw("centre", "scatter_xy", data[["centre"]], y=row)
    row = xr.DataArray(np.arange(len(chains))[::-1], {"chain": chains}, "chain")
    lane = row - _beside(own["mode"])
    plot.draw("draw", "scatter_xy", data[["draws"]], y=lane, marker="|", alpha=0.6)
    line = own["weight"] + xr.DataArray([-2, 2], dims="end") * own["mcse"].fillna(0)
    row = len(numbers) - 1 - mode
    plot.draw("weight", "line_xy", line.to_dataset(name="share"), y=row)
    plot.draw("share", "scatter_xy", data[["share"]], y=row, alpha=0.6)
    jumps = [counted(int(n), "jump") for n in own["jumps"]]
    rows = {
        "centre": names,
        "share": [f"mode {k}" for k in numbers],
        "draws": [f"chain {chain}: {n}" for chain, n in zip(chains, jumps, strict=True)],
    }
    for name, labels in rows.items():
        panel = data[[name]]
        plot.frame("names", name_rows, panel, names=labels[::-1])
        plot.frame("limits", "set_ylim", panel, limits=(-0.5, len(labels) - 0.5))
        plot.frame("xlabel", "labelled_x", panel, text=LABELS[name])
    plot.frame("limits", "set_xlim", data[["share"]], limits=(-0.05, 1.05))
    plot.legend("mode")
    return plot.collection


def _beside(labels):
    """Return how far to move what is drawn of each label of a coordinate, so that all are seen."""
    places = 0.7 * ((np.arange(labels.size) + 0.5) / labels.size - 0.5)
    return xr.DataArray(places, {labels.name: labels.values}, labels.name)
