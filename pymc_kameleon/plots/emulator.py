"""A plot of an emulator: what each input does to each output."""

import numpy as np
import xarray as xr

from pymc_kameleon.analysis.emulator import SimulatorEmulator, emulator
from pymc_kameleon.plots.common import N_POINTS, Plot, documented, result_of

EMULATOR_VISUALS = "line", "best", "xlabel", "ylabel", "legend"

MOST_IN_LEGEND = 12
"""Outputs up to which there is a legend."""


@documented(EMULATOR_VISUALS, "PlotCollection.wrap")
def plot_emulator(
    dt,
    name=None,
    *,
    inputs=None,
    outputs=None,
    backend=None,
    visuals=None,
    **pc_kwargs,
):
    """Plot what each input of a simulator does to its outputs, as its emulator predicts it.

    One input varies over the range of the good evaluations, and all others are where the best one
    was, which a line marks.

    Parameters
    ----------
    dt : SimulatorEmulator, DataTree or path
        What ``pk.emulator`` returned, or what that takes.
    name : str, optional
        That of the black box, if there are several.
    inputs : list of str, optional
        Names of inputs; all by default.
    outputs : list of int, optional
        Which outputs, from 0 on; all by default.
    {common}

    Raises
    ------
    ValueError
        If the result keeps no evaluations, or there is no such black box, input or output.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     dt = pk.sample(step=pk.EmulatorMetropolis())
    >>> plots = pk.plot_emulator(dt)  # doctest: +SKIP
    """
    plot = Plot(EMULATOR_VISUALS, visuals, backend, pc_kwargs)
    own = dt if isinstance(dt, SimulatorEmulator) else emulator(result_of(dt), name)
    places = _chosen("inputs", inputs, own.inputs)
    rows = _chosen("outputs", outputs, list(range(own.n_outputs)))
    data = _effects(own, places, rows).to_dataset(name="effect")
    n = len(places)
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
    best = xr.DataArray(own.best[places], {"input": data["input"]}, "input")
    plot.draw("best", "vline", best.to_dataset(name="effect"), color="gray", alpha=0.5)
    for k, label in enumerate(data["input"].values):
        panel = data.isel(input=[k])
        plot.frame("xlabel", "labelled_x", panel, text=str(label))
        if k % 4 == 0:
            plot.frame("ylabel", "labelled_y", panel, text=f"outputs of {own.name}")
    if len(rows) <= MOST_IN_LEGEND:
        plot.legend("output")
    return plot.collection


def _chosen(what, wanted, known):
    """Return the places of what is wanted; raise a ValueError for what is not there."""
    if wanted is None:
        return np.arange(len(known))
    wanted = np.atleast_1d(wanted).tolist()
    if unknown := [each for each in wanted if each not in known]:
        raise ValueError(f"{what}: there is no {unknown} among {known}.")
    return np.array([known.index(each) for each in wanted])


def _effects(own, places, rows):
    """Return values of inputs and outputs, (input, output, place, plot_axis)."""
    low, high = own.range()
    values = np.empty((len(places), len(rows), N_POINTS, 2))
    for k, i in enumerate(places):
        x = np.tile(own.best, (N_POINTS, 1))
        x[:, i] = np.linspace(low[i], high[i], N_POINTS)
        values[k, :, :, 0] = x[:, i]
        values[k, :, :, 1] = own(x)[:, rows].T
    labels = [own.inputs[i] for i in places]
    if len(set(labels)) < len(labels):
        labels = [f"{label} ({i})" for label, i in zip(labels, places, strict=True)]
    coords = {"input": labels, "output": rows, "plot_axis": ["x", "y"]}
    return xr.DataArray(values, coords, ("input", "output", "place", "plot_axis"))
