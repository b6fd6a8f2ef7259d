"""What the plots share: how they draw, what a step learned, and draws on the scale of that."""

from inspect import cleandoc
from textwrap import fill

import numpy as np
import xarray as xr
from arviz_base import rcParams
from arviz_base.validate import validate_dict_argument

from pymc_kameleon.analysis.unconstrained_draws import draws_of_coordinate
from pymc_kameleon.model.layout import split_name
from pymc_kameleon.model.pymc_internals import natural_name
from pymc_kameleon.result.opening import opened
from pymc_kameleon.step.groups import LEARNED_GROUP
from pymc_kameleon.step.learned import BIS, COORDINATE

COVARIANCE = "covariance"
"""What is plotted of what a step has learned."""

N_POINTS = 50
"""Places along an axis of which a curve is made: values of an input, or windows of draws."""

PLOT_PARAMETERS = """\
backend : str, optional
    ``"matplotlib"``, ``"bokeh"`` or ``"plotly"``; by default that of ArviZ.
visuals : dict, optional
    Visual -> False to leave it out, or keyword arguments of what draws it.
    {}
**pc_kwargs
    To ``{}``.

Returns
-------
arviz_plots.PlotCollection"""
"""What the docstrings of all plots say of their common parameters."""


def documented(known, layout):
    """Return a decorator that describes common parameters, of visuals and arviz_plots' `layout`."""
    *names, last = [f'``"{name}"``' for name in known]
    listed = fill(f"The visuals are {', '.join(names)} and {last}.", 95, subsequent_indent="    ")
    text = PLOT_PARAMETERS.format(listed, f"arviz_plots.{layout}")

    def complete(function):
        if function.__doc__:  # python -OO has none
            function.__doc__ = cleandoc(function.__doc__).replace("{common}", text)
        return function

    return complete


def name_rows(data, target, names):
    """Put names at 0, 1, 2 ... of the vertical axis."""
    from arviz_plots.plot_collection import backend_from_object

    backend_from_object(target).yticks(np.arange(len(names)), [*map(str, names)], target)


class Plot:
    """A plot in the making: what its caller wants, and the PlotCollection that is drawn into."""

    def __init__(self, known, visuals, backend, pc_kwargs):
        if "step" in pc_kwargs:
            raise TypeError(
                "This plot takes no step: it shows all of them, or what var_names selects."
            )
        self.backend = rcParams["plot.backend"] if backend is None else backend
        if backend is None and self.backend == "none":
            raise ImportError("Plotting needs matplotlib, bokeh or plotly: install one of them.")
        self._visuals = validate_dict_argument(visuals, valid_keys=list(known))
        self._pc_kwargs, self.collection = pc_kwargs, None

    def panels(self, layout, data, figsize, share=None, **defaults):
        """Begin the PlotCollection, a "grid" or "wrap" of panels, perhaps with a shared axis."""
        from arviz_plots import PlotCollection  # takes half a second

        shared = {share: True} if share else {}
        options = defaults | self._pc_kwargs | self.figure(figsize, **shared)
        self.collection = getattr(PlotCollection, layout)(data, backend=self.backend, **options)

    def figure(self, figsize, **options):
        """Return ``figure_kwargs``, by default of a figure of a size in inches."""
        given = self._pc_kwargs.get("figure_kwargs", {})
        if self.backend == "matplotlib":  # the others leave space for labels and legends
            options |= {"layout": "constrained", "figsize": figsize}
        elif "figsize" not in given:
            options |= {"figsize": tuple(100 * side for side in figsize), "figsize_units": "dots"}
        return {"figure_kwargs": options | given}

    def options(self, name, **defaults):
        """Return the keyword arguments of a visual, None if it is left out."""
        wanted = self._visuals.get(name, {})
        return None if wanted is False else defaults | ({} if wanted is True else wanted)

    def draw(self, name, how, data, *, mapped="map", **defaults):
        """Draw data by one of arviz_plots.visuals, with the aesthetics of its dimensions."""
        aes = self.collection.aes
        follows = {key for key in self.collection.aes_set if {*aes[key].dims} <= {*data.dims}}
        defaults = {key: value for key, value in defaults.items() if key not in follows}
        self._map(name, how, data, self.collection.aes_set - follows, defaults, mapped)

    def frame(self, name, how, data, **defaults):
        """Draw what a panel has once, whatever the aesthetics; `how` may be a function."""
        self._map(name, how, data, self.collection.aes_set, {"store_artist": False} | defaults)

    def _map(self, name, how, data, ignored, defaults, mapped="map"):
        from arviz_plots import visuals  # takes half a second

        options = self.options(name, **defaults)
        if options is not None:
            how = getattr(visuals, how) if isinstance(how, str) else how
            getattr(self.collection, mapped)(how, name, data=data, ignore_aes=ignored, **options)

    def legend(self, dim):
        """Add a legend of a dimension that colours are mapped to."""
        plots, options = self.collection, self.options("legend")
        if options is not None and "color" in plots.aes_set and dim in plots.aes["color"].dims:
            plots.add_legend(dim, **options)


# ---- what was learned, and draws ----------------------------------------------------------------


def result_of(dt):
    """Return the result that is meant, also by a path; raise a TypeError for what is none."""
    dt = opened(dt)
    if not isinstance(dt, xr.DataTree):
        kind = dt if dt is None else type(dt)
        raise TypeError(f"dt is {kind}: give the result of pk.sample, or the path of one.")
    return dt


def with_labels(data, coords):
    """Return the data with these labels; raise a ValueError if there are none."""
    coords = coords or {}
    if unknown := [dim for dim in coords if dim not in data.dims]:
        raise ValueError(f"coords: there is no dimension {unknown} among {list(data.dims)}.")
    lists = {k: v if isinstance(v, slice) else np.atleast_1d(v) for k, v in coords.items()}
    try:
        return data.sel(lists)
    except KeyError as error:
        raise ValueError(f"coords: there is no {coords}: {error.args[0]}") from None


def learned_by(dt, step, var_names, coords):
    """Return the Dataset of what one step with a covariance has learned, without its name."""
    if LEARNED_GROUP not in dt.children:
        raise ValueError(
            "There is no group 'learned', which tells what tuning decided. Only pk.sample keeps "
            "it, and not pm.sample: draw with pk.sample."
        )
    learned = dt[LEARNED_GROUP].to_dataset()
    starts = [name.removesuffix(COVARIANCE) for name in learned if name.endswith(COVARIANCE)]
    able = [own for own in starts if f"{own}{COORDINATE}" in learned[own + COVARIANCE].dims]
    able = [own.removesuffix("_") for own in able]
    if not able:
        raise ValueError(
            f"No step of {learned.attrs.get('samplers')} has learned a covariance: 'learned' has "
            f"{list(learned)}. docs/plots.md says which samplers do; pk.plot_adaptation is for all."
        )
    if (step is None and len(able) > 1) or step not in (None, *able):
        raise ValueError(f"step must be one of {able}, with a covariance, not {step!r}.")
    own = _of(learned, able[0] if step is None else step)
    return selected(own, var_names, coords)


def _of(learned, step):
    """Return what one step has learned, without its name."""
    if step == "":
        return learned
    start = f"{step}_"
    names = [name for name in learned if name.startswith(start)]
    own = learned[names]
    every = [name for name in (*names, *own.dims) if name.startswith(start)]
    return own.rename({name: name.removeprefix(start) for name in every})


def selected(own, var_names, coords):
    """Return what was learned of some variables and coordinates."""
    if var_names is not None:
        wanted = [var_names] if isinstance(var_names, str) else list(var_names)
        names = [split_name(name)[0] for name in own[COORDINATE].values]
        known = {*names, *map(natural_name, names)}
        if unknown := [name for name in wanted if name not in known]:
            raise ValueError(f"var_names: there is no {unknown} among {sorted(known)}.")
        mine = [k for k, name in enumerate(names) if {name, natural_name(name)} & {*wanted}]
        own = own.isel({dim: mine for dim in (COORDINATE, BIS) if dim in own.dims})
    coords = dict(coords or {})
    if COORDINATE in coords and BIS in own.dims:
        coords[BIS] = coords[COORDINATE]
    return with_labels(own, coords)


def draws_as_learned(dt, own):
    """Return draws (chain, draw, coordinate) of `own`, on the scale of what was learned."""
    if "posterior" not in dt.children or not dt["posterior"].sizes.get("draw"):
        raise ValueError("The result has no draws after tuning: go on with pk.resume(dt).")
    posterior = dt["posterior"].to_dataset().sel(chain=own["chain"])
    coordinates = own[COORDINATE].values
    parts = [draws_of_coordinate(posterior, coordinate) for coordinate in coordinates]
    return xr.concat(parts, xr.Variable(COORDINATE, coordinates)).transpose("chain", "draw", ...)


def checked_pairs(own):
    """Raise a ValueError if there is one coordinate only."""
    if own.sizes[COORDINATE] < 2:
        raise ValueError(
            f"There are no pairs of coordinates to plot, only {own[COORDINATE].values.tolist()}."
        )
