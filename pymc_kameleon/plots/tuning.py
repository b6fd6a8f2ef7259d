"""Plots of tuning: how it went, and the covariances that it has learned."""

import numpy as np
import xarray as xr
from arviz_base.labels import MapLabeller

from pymc_kameleon.plots.common import (
    N_POINTS,
    Plot,
    checked_pairs,
    documented,
    draws_as_learned,
    learned_by,
    result_of,
    with_labels,
)
from pymc_kameleon.step.groups import WARMUP_STATS
from pymc_kameleon.step.learned import BIS, COORDINATE

TUNED = ("scaling", "accept_prob", "bandwidth")
"""Statistics that are shown by default, if there are any."""

ADAPTATION_VISUALS = "line", "tuning_end", "scale", "ylabel", "xlabel", "legend"
LEARNED_VISUALS = "scatter", "equal", "xlabel", "ylabel", "legend"


@documented(ADAPTATION_VISUALS, "PlotCollection.wrap")
def plot_adaptation(
    dt,
    *,
    var_names=None,
    coords=None,
    backend=None,
    visuals=None,
    **pc_kwargs,
):
    """Plot how scale, acceptance and bandwidth went in each chain, and where tuning ended.

    The acceptance is a running mean over a fiftieth of the draws, not across the end of tuning.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample``, or of ``pm.sample(discard_tuned_samples=False)``.
    var_names : str or list of str, optional
        Statistics; ``"scaling"``, ``"accept_prob"`` and ``"bandwidth"`` by default.
    coords : dict, optional
        Which chains and so on.
    {common}

    Raises
    ------
    ValueError
        If the draws of tuning, or such statistics, are lacking.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.GAM())
    >>> plots = pk.plot_adaptation(dt)
    """
    plot = Plot(ADAPTATION_VISUALS, visuals, backend, pc_kwargs)
    parts, window = _statistics(result_of(dt), var_names, coords)
    end = parts[0].sizes["draw"]
    if "accept_prob" in parts[0]:
        rolling = {"draw": window, "min_periods": -(-window // 2)}
        parts = [p.assign(accept_prob=p["accept_prob"].rolling(**rolling).mean()) for p in parts]
    data = xr.concat(parts, "draw", join="override")
    data = data.assign_coords(draw=np.arange(data.sizes["draw"]))
    facets = [dim for dim in data.dims if dim not in ("chain", "draw")]
    n = sum(int(np.prod([v.sizes[dim] for dim in facets if dim in v.dims])) for v in data.values())
    plot.panels(
        "wrap",
        data,
        figsize=(10, 1 + 2 * n),
        share="sharex",
        cols=["__variable__", *facets],
        col_wrap=1,
        aes={"color": ["chain"]},
    )
    plot.draw("line", "line", data, xname="draw", alpha=0.8)
    first = xr.full_like(data.isel(chain=0, draw=0, drop=True), end - 0.5)
    plot.draw("tuning_end", "vline", first, color="gray")
    plot.frame("scale", "set_yscale", first[[n for n in first if n == "scaling"]], scale="log")
    names = {"accept_prob": f"accept_prob,\nmean of {window} draws"}
    labeller = MapLabeller(var_name_map=names)
    plot.frame("ylabel", "labelled_y", data, labeller=labeller, subset_info=True)
    last = first[[list(first)[-1]]]
    last = last.isel({dim: slice(-1, None) for dim in last.dims})
    plot.frame("xlabel", "labelled_x", last, text="draw; tuning ends at the line")
    plot.legend("chain")
    return plot.collection


def _statistics(dt, var_names, coords):
    """Return statistics while tuning and after it, and the number of draws in a window."""
    groups = (WARMUP_STATS, "sample_stats")
    if groups[0] not in dt.children:
        raise ValueError(
            "The result has no group 'warmup_sample_stats', the statistics of tuning. pk.sample "
            "always keeps it if there was tuning; pm.sample does so with "
            "discard_tuned_samples=False."
        )
    parts = [dt[group].to_dataset() for group in groups if group in dt.children]
    parts = [part for part in parts if part.sizes["draw"] > 0]  # none yet, after tuning
    if var_names is None:
        names = [n for n in TUNED if n in parts[0] and any(p[n].notnull().any() for p in parts)]
    else:
        names = [var_names] if isinstance(var_names, str) else list(var_names)
    if not names or any(name not in parts[0] for name in names):
        raise ValueError(
            f"var_names must be some of the statistics {list(parts[0])}, not {names or var_names}. "
            f"Samplers of pymc_kameleon have {list(TUNED)}, or the first two."
        )
    n = sum(part.sizes.get("draw", 0) for part in parts)
    return [with_labels(part[names], coords) for part in parts], max(1, n // N_POINTS)


@documented(LEARNED_VISUALS, "PlotCollection.grid")
def plot_learned(
    dt,
    *,
    var_names=None,
    coords=None,
    step=None,
    backend=None,
    visuals=None,
    **pc_kwargs,
):
    """Plot the correlations that each chain has learned against those of the draws.

    A dot is a pair of coordinates, on the scale that they are sampled on. CyclicalKAM shows those
    of its whole past.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample``.
    var_names : str or list of str, optional
        Variables of the model; all that the step moves by default.
    coords : dict, optional
        Which chains and coordinates, as ``{"coordinate": ["a", "s_log__", "b[0]"]}``.
    step : str, optional
        Which, as ``"gam"``, if several have learned a covariance.
    {common}

    Raises
    ------
    ValueError
        If the result is of ``pm.sample``, or no covariance was learned.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.GAM())
    >>> plots = pk.plot_learned(dt, var_names=["a", "b"])
    """
    plot, dt = Plot(LEARNED_VISUALS, visuals, backend, pc_kwargs), result_of(dt)
    own = learned_by(dt, step, var_names, coords)
    checked_pairs(own)
    draws = draws_as_learned(dt, own)
    other = draws.rename({COORDINATE: BIS})
    found = _pairs(xr.corr(draws, other, ["chain", "draw"]), own)
    learned = _pairs(_correlation(own.get("global_covariance", own["covariance"])), own)
    data = learned.to_dataset(name="correlation")
    plot.panels("grid", data, figsize=(6, 5), aes={"color": ["chain"]})
    ends = np.array([min(found.min(), learned.min()), max(found.max(), learned.max())], float)
    plot.frame("equal", "dline", data, x=ends, color="gray")
    plot.draw("scatter", "scatter_xy", data, x=found, alpha=0.7)
    plot.frame("xlabel", "labelled_x", data, text="correlation of the draws")
    plot.frame("ylabel", "labelled_y", data, text="learned correlation")
    plot.legend("chain")
    return plot.collection


def _correlation(covariance):
    """Return correlations of covariances (..., coordinate, coordinate_bis)."""
    covariance = covariance.transpose(..., COORDINATE, BIS)
    sd = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    return covariance / (sd[..., None] * sd[..., None, :])


def _pairs(matrix, own):
    """Return what is below the diagonals of matrices, with the dimension ``pair``."""
    rows, columns = np.tril_indices(own.sizes[COORDINATE], -1)
    names = own[COORDINATE].values
    labels = [f"{names[j]}, {names[i]}" for i, j in zip(rows, columns, strict=True)]
    chosen = {COORDINATE: xr.Variable("pair", rows), BIS: xr.Variable("pair", columns)}
    return matrix.isel(chosen).drop_vars([COORDINATE, BIS]).assign_coords(pair=labels)
