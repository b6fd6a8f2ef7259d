"""A plot of an emulator: what each input does to each output."""

import numpy as np
import xarray as xr

from pymc_kameleon.analysis.emulator import SimulatorEmulator, emulator
from pymc_kameleon.plots.common import N_POINTS, Plot, documented, result_of, with_labels

EMULATOR_VISUALS = "line", "best", "xlabel", "ylabel", "legend"

MOST_IN_LEGEND = 12
"""Outputs up to which there is a legend."""


@documented(EMULATOR_VISUALS, "PlotCollection.wrap")
def plot_emulator(dt, *, coords=None, backend=None, visuals=None, **pc_kwargs):
    """Plot what each input of a simulator does to its outputs, as its emulator predicts it.

    One input varies over the range of the good evaluations, and all others are where the best one
    was, which a line marks.

    Parameters
    ----------
    dt : SimulatorEmulator, DataTree or path
        What ``pk.emulator`` returned, or what that takes.
    coords : dict, optional
        Which inputs and outputs, as ``{"input": ["rate"], "output": [0, 5]}``; all by default.
    {common}

    Raises
    ------
    ValueError
        If the result keeps no evaluations, or of several black boxes, or there is no such input or
        output.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     dt = pk.sample(step=pk.EmulatorMetropolis())
    >>> plots = pk.plot_emulator(dt)  # doctest: +SKIP
    """
    plot = Plot(EMULATOR_VISUALS, visuals, backend, pc_kwargs)
    own = dt if isinstance(dt, SimulatorEmulator) else emulator(result_of(dt))
    effects = with_labels(_effects(own), coords)
    best, data = effects["best"].to_dataset(name="effect"), effects[["effect"]]
    n = data.sizes["input"]
    plot.panels(
        "wrap",
        data,
        figsize=(3.2 * min(4, n), 2.6 * -(-n // 4)),
        share="sharey",
        cols=["input"],
        col_wrap=4,
        aes={"color": ["output"]},
    )
    plot.draw("line", "line_xy", data, alpha=0.9)
    plot.draw("best", "vline", best, color="gray", alpha=0.5)
    for k, label in enumerate(data["input"].values):
        panel = data.isel(input=[k])
        plot.frame("xlabel", "labelled_x", panel, text=str(label))
        if k % 4 == 0:
            plot.frame("ylabel", "labelled_y", panel, text=f"outputs of {own.name}")
    if data.sizes["output"] <= MOST_IN_LEGEND:
        plot.legend("output")
    return plot.collection


def _effects(own):
    """Return a Dataset of effects (input, output, place, plot_axis), and the best inputs."""
    low, high = own.range()
    values = np.empty((len(own.inputs), own.n_outputs, N_POINTS, 2))
    for i in range(len(own.inputs)):
        x = np.tile(own.best, (N_POINTS, 1))
        x[:, i] = np.linspace(low[i], high[i], N_POINTS)
        values[i, :, :, 0] = x[:, i]
        values[i, :, :, 1] = own(x).T
    labels = own.inputs
    if len(set(labels)) < len(labels):
        labels = [f"{label} ({i})" for i, label in enumerate(labels)]
    coords = {"input": labels, "output": np.arange(own.n_outputs), "plot_axis": ["x", "y"]}
    dims = "input", "output", "place", "plot_axis"
    return xr.Dataset({"effect": (dims, values), "best": ("input", own.best)}, coords)
