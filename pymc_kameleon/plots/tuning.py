"""Plots of tuning: how it went, and the covariances and scales that it has learned."""

import numpy as np
import xarray as xr
from arviz_base.labels import MapLabeller

from pymc_kameleon.plots.common import (
    N_POINTS,
    Style,
    beside,
    checked_pairs,
    documented,
    draws_as_learned,
    has_learned,
    learned_by,
    made,
    name_rows,
    result_of,
    with_labels,
)
from pymc_kameleon.step.groups import WARMUP_STATS
from pymc_kameleon.step.learned import BIS, COORDINATE
from pymc_kameleon.step.options import checked_choice

TUNED = ("scaling", "accept_prob", "bandwidth")
"""Statistics that are shown by default, if there are any."""

STEM_HEIGHT = 0.45
"""Height of a stem of 1, in rows."""

ADAPTATION_VISUALS = {
    **{"line": ["color"], "tuning_end": [], "scale": []},
    **{"ylabel": [], "xlabel": [], "legend": []},
}  # visuals of plot_adaptation, and the aesthetics that they follow
VISUALS = {
    "correlation": {"scatter": ["color"], "equal": [], "xlabel": [], "ylabel": []},
    "factor": {"stem": ["color"], "tip": ["color"], "zero": [], "rows": [], "columns": []},
    "scaling": {
        **{"ladder": ["color", "overlay"], "tries": ["color", "overlay"], "single": ["color"]},
        **{"names": [], "limits": [], "scale": [], "xlabel": []},
    },
}
"""Visuals of each kind of plot_learned, and the aesthetics that they follow; each has a legend."""


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
    style = Style(ADAPTATION_VISUALS, visuals)
    parts, window = _statistics(result_of(dt), var_names, coords)
    end = parts[0].sizes["draw"]
    if "accept_prob" in parts[0]:
        rolling = {"draw": window, "min_periods": -(-window // 2)}
        parts = [p.assign(accept_prob=p["accept_prob"].rolling(**rolling).mean()) for p in parts]
    data = xr.concat(parts, "draw", join="override")
    data = data.assign_coords(draw=np.arange(data.sizes["draw"]))
    facets = [dim for dim in data.dims if dim not in ("chain", "draw")]
    n = sum(int(np.prod([v.sizes[dim] for dim in facets if dim in v.dims])) for v in data.values())
    plots = made(
        *("wrap", data, backend, pc_kwargs),
        {"figsize": (10, 1 + 2 * n), "sharex": True},
        cols=["__variable__", *facets],
        col_wrap=1,
        aes={"color": ["chain"]},
    )
    style.draw(plots, "line", "line", data, xname="draw", alpha=0.8)
    first = xr.full_like(data.isel(chain=0, draw=0, drop=True), end - 0.5)
    style.draw(plots, "tuning_end", "vline", first, color="gray")
    scales = first[[name for name in first if name == "scaling"]]
    style.draw(plots, "scale", "set_yscale", scales, scale="log", store_artist=False)
    names = {"accept_prob": f"accept_prob,\nmean of {window} draws"}
    labels = {"labeller": MapLabeller(var_name_map=names), "subset_info": True}
    style.draw(plots, "ylabel", "labelled_y", data, **labels, store_artist=False)
    last = first[[list(first)[-1]]]
    last = last.isel({dim: slice(-1, None) for dim in last.dims})
    text = "draw; tuning ends at the line"
    style.draw(plots, "xlabel", "labelled_x", last, text=text, store_artist=False)
    style.legend(plots, "chain")
    return plots


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


@documented({**VISUALS["correlation"], "legend": []}, "PlotCollection.grid")
def plot_learned(
    dt,
    *,
    kind=None,
    var_names=None,
    coords=None,
    step=None,
    backend=None,
    visuals=None,
    **pc_kwargs,
):
    """Plot the covariances or scales that each chain has learned.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample``.
    kind : {"correlation", "factor", "scaling"}, optional
        * ``"correlation"`` (default if a covariance was learned): learned correlations against
          those of the draws. A dot is a pair of coordinates, on the scale that they are sampled
          on. CyclicalKAM shows the covariance of its whole past.
        * ``"factor"``: the triangular factor L of the covariance LLᵀ. Each row is divided by the
          coordinate's standard deviation, so its squares sum to one. A number is a stem, which
          points up if the number is positive, and fills nearly half a row if it is 1.
        * ``"scaling"`` (default otherwise): the ladders of scales of CMTM, or the scales of CMH. A
          row is a coordinate, a line a chain, a dot a try. A cross is the scale of the single
          tries that replace them after tuning.
    var_names : str or list of str, optional
        Variables of the model; all that the step moves by default.
    coords : dict, optional
        Which chains and coordinates, as ``{"coordinate": ["a", "s_log__", "b[0]"]}``. A factor has
        its rows in this order.
    step : str, optional
        Which, as ``"gam"``, if several have learned such things.
    {common}

    Raises
    ------
    ValueError
        If the result is of ``pm.sample``, nothing of this kind was learned, or `kind` is none of
        these.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.GAM())
    >>> plots = pk.plot_learned(dt, var_names=["a", "b"])
    """
    dt = result_of(dt)
    if kind is None:
        is_ladder = has_learned(dt, "scaling", step) and not has_learned(dt, "covariance", step)
        kind = "scaling" if is_ladder else "correlation"
    checked_choice("kind", kind, tuple(VISUALS))
    style = Style({**VISUALS[kind], "legend": []}, visuals)
    own = learned_by(dt, "scaling" if kind == "scaling" else "covariance", step, var_names, coords)
    draw = {"correlation": _plot_correlations, "factor": _plot_factor, "scaling": _plot_scales}
    plots = draw[kind](dt, own, style, backend, pc_kwargs)
    style.legend(plots, "chain")
    return plots


def _plot_correlations(dt, own, style, backend, pc_kwargs):
    """Plot correlations of pairs of coordinates, learned and of the draws."""
    checked_pairs(own)
    draws = draws_as_learned(dt, own)
    other = draws.rename({COORDINATE: BIS})
    found = _pairs(xr.corr(draws, other, ["chain", "draw"]), own)
    learned = _pairs(_correlation(own.get("global_covariance", own["covariance"])), own)
    data = learned.to_dataset(name="correlation")
    plots = made(
        *("grid", data, backend, pc_kwargs),
        {"figsize": (6, 5)},
        aes={"color": ["chain"]},
    )
    ends = np.array([min(found.min(), learned.min()), max(found.max(), learned.max())], float)
    style.draw(plots, "equal", "dline", data, x=ends, color="gray")
    style.draw(plots, "scatter", "scatter_xy", data, x=found, alpha=0.7)
    text = {"x": "correlation of the draws", "y": "learned correlation"}
    for axis in "xy":
        how = f"labelled_{axis}"
        style.draw(plots, f"{axis}label", how, data, text=text[axis], store_artist=False)
    return plots


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


def _plot_factor(dt, own, style, backend, pc_kwargs):
    """Plot the factor of each chain, with a stem for each number."""
    names = own[COORDINATE].values
    d, (rows, columns) = len(names), np.tril_indices(len(names))
    factor = np.linalg.cholesky(_correlation(own["covariance"]).values)[:, rows, columns]
    feet = np.broadcast_to(d - 1.0 - rows, factor.shape)
    stems = np.stack([feet, feet + STEM_HEIGHT * factor, np.full_like(feet, np.nan)], axis=2)
    by_chain = {"chain": own["chain"].values}
    data = xr.Dataset({"factor": (("chain", "entry"), stems.reshape(len(stems), -1))}, by_chain)
    place = xr.DataArray(np.repeat(columns, 3), dims="entry") + beside(own["chain"])
    plots = made(
        *("grid", data, backend, pc_kwargs),
        {"figsize": (2 + 0.8 * d, 1.5 + 0.6 * d)},
        aes={"color": ["chain"]},
    )
    lines = np.stack([np.full(d, -0.5), np.full(d, d - 0.5), np.full(d, np.nan)], axis=1)
    zero = xr.Dataset({"factor": ("entry", lines.ravel())})
    height = xr.DataArray(np.repeat(np.arange(d), 3), dims="entry")
    style.draw(plots, "zero", "line_xy", zero, y=height, color="lightgray", width=1)
    style.draw(plots, "stem", "line_xy", data, x=place)
    tip = {"entry": slice(1, None, 3)}
    style.draw(plots, "tip", "scatter_xy", data.isel(tip), x=place.isel(tip), size=15)
    style.draw(plots, "rows", name_rows, data, names=names[::-1], store_artist=False)
    ticks = {"values": np.arange(d), "labels": names, "rotation": 90}
    style.draw(plots, "columns", "set_xticks", data, **ticks, store_artist=False)
    return plots


def _plot_scales(dt, own, style, backend, pc_kwargs):
    """Plot the scales of each coordinate and chain."""
    names = own[COORDINATE].values
    data = own[["scaling"]]
    data = data if "trial" in data.dims else data.expand_dims("trial")
    row = xr.DataArray(np.arange(len(names))[::-1], {COORDINATE: names}, COORDINATE)
    place = row - beside(own["chain"])
    plots = made(
        *("grid", data, backend, pc_kwargs),
        {"figsize": (8, 1.2 + 0.5 * len(names))},
        aes={"color": ["chain"], "overlay": [COORDINATE]},
    )
    style.draw(plots, "ladder", "line_xy", data, y=place)
    style.draw(plots, "tries", "scatter_xy", data, y=place, size=12)
    text = "scale"
    if "single_scaling" in own and own["single_scaling"].notnull().any():
        single, text = own["single_scaling"].to_dataset(name="scaling"), "scale; ×: single tries"
        cross = {"marker": "x", "size": 60, "width": 1.5}
        style.draw(plots, "single", "scatter_xy", single, y=place, **cross)
    style.draw(plots, "names", name_rows, data, names=names[::-1], store_artist=False)
    limits = (-0.5, len(names) - 0.5)
    style.draw(plots, "limits", "set_ylim", data, limits=limits, store_artist=False)
    style.draw(plots, "scale", "set_xscale", data, scale="log", store_artist=False)
    style.draw(plots, "xlabel", "labelled_x", data, text=text, store_artist=False)
    return plots
