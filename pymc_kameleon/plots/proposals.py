"""A plot of proposals: from some draws, where 95 % of them go."""

from functools import partial

import numpy as np
import xarray as xr
from scipy.stats import rayleigh

from pymc_kameleon.model.layout import split_name
from pymc_kameleon.plots.common import (
    Plot,
    checked_pairs,
    documented,
    draws_as_learned,
    learned_by,
    result_of,
    selected,
)
from pymc_kameleon.result.steps import sampler_of
from pymc_kameleon.step.base import samplers
from pymc_kameleon.step.groups import STATE_GROUP
from pymc_kameleon.step.learned import BIS, COORDINATE

CONTOUR = rayleigh.ppf(0.95)
"""Radius of the circle that has 95 % of a standard normal in two dimensions."""

PAIR_VISUALS = "scatter", "dist", "xlabel", "ylabel"  # plot_pair's
PROPOSAL_VISUALS = *PAIR_VISUALS, "proposal", "start"


@documented(PROPOSAL_VISUALS, "PlotMatrix")
def plot_proposals(
    dt,
    *,
    var_names=None,
    coords=None,
    draws=6,
    step=None,
    backend=None,
    visuals=None,
    **pc_kwargs,
):
    """Plot the draws of each pair of coordinates, and where 95 % of the proposals from some go.

    An ellipse has 95 % of a pair's marginal distribution, whatever the others do. Coordinates are
    on the scale that they are sampled on. Of CyclicalKAM these are the moves within modes.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample`` with AM, RBAM, GAM, GadRWM, KAM or CyclicalKAM. The others
        propose from no normal distribution that a result knows.
    var_names : str or list of str, optional
        Variables of the model; all that the step moves by default.
    coords : dict, optional
        Which chains and coordinates, as ``{"chain": [0], "coordinate": ["a", "b[0]"]}``.
    draws : int or list of (chain, draw), optional
        From how many draws, evenly spaced over all chains, or from which, by their labels. The
        proposal is that of their chain.
    step : str, optional
        Which, as ``"gam"``, if several have learned a covariance.
    {common}

    Raises
    ------
    ValueError
        If the result is of ``pm.sample``, or of other samplers, or there is one coordinate only.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.KAM())
    >>> plots = pk.plot_proposals(dt, draws=[(0, 5), (1, 5)])
    """
    from arviz_plots import plot_pair  # takes half a second

    plot = Plot(PROPOSAL_VISUALS, visuals, backend, pc_kwargs)
    dt = result_of(dt)
    own = learned_by(dt, step, None, None)
    shown = selected(own, var_names, coords)
    checked_pairs(shown)
    names, chains = shown[COORDINATE].values.tolist(), shown["chain"]
    propose = _proposal(dt, own)
    cloud = draws_as_learned(dt, shown)
    labels = _chosen(cloud, draws)
    from_all = draws_as_learned(dt, own.sel(chain=chains)) if "subsample" in own else cloud
    covariances = [
        propose(own.sel(chain=chain), from_all.sel(chain=chain, draw=draw).values)
        .sel({COORDINATE: names, BIS: names})
        .values
        for chain, draw in labels
    ]
    defaults = {"scatter": {"color": "gray", "alpha": 0.3, "size": 6}, "dist": {"color": "gray"}}
    passed = {name: plot.options(name, **defaults.get(name, {})) for name in PAIR_VISUALS}
    plot.collection = plot_pair(
        cloud.to_dataset(COORDINATE),
        backend=plot.backend,
        visuals={name: False if options is None else options for name, options in passed.items()},
        **pc_kwargs | plot.figure((2.8 * len(names), 2.3 * len(names))),
    )
    starts = xr.concat([cloud.sel(chain=c, draw=d, drop=True) for c, d in labels], "start")
    starts = starts.to_dataset(COORDINATE)
    lower = {"mapped": "map_lower", "color": "C1"}
    ellipses = _ellipses(names, np.stack(covariances))
    plot.draw("proposal", ellipses, starts, subset_info=True, **lower)
    plot.draw("start", "scatter_couple", starts, marker="x", width=1.5, **lower)
    return plot.collection


def _chosen(cloud, draws):
    """Return the labels (chain, draw) of draws."""
    chains, numbers = cloud["chain"].values.tolist(), cloud["draw"].values.tolist()
    if isinstance(draws, int | np.integer) and not isinstance(draws, bool) and draws > 0:
        places = np.linspace(0, cloud["chain"].size * cloud["draw"].size - 1, draws + 2)[1:-1]
        where = zip(*np.divmod(places.astype(int), len(numbers)), strict=True)
        return [(chains[k], numbers[i]) for k, i in where]
    try:
        labels = [(chain, draw) for chain, draw in draws]
        valid = bool(labels) and all(c in chains and d in numbers for c, d in labels)
    except TypeError:
        valid = False
    if not valid:
        raise ValueError(
            f"draws must be a number from 1 on, or a list of (chain, draw) with chains of {chains} "
            f"and draws from {numbers[0]} to {numbers[-1]}, not {draws!r}."
        )
    return labels


def _proposal(dt, own):
    """Return a function of what a chain learned, and a point (d,): the proposal's covariance."""
    if STATE_GROUP not in dt.children:
        raise ValueError(f"The result has no group {STATE_GROUP!r}, which names the sampler.")
    variables = {split_name(name)[0] for name in own[COORDINATE].values}
    name, sampler, options = sampler_of(dt, variables)
    if sampler is None or sampler.proposal is None:
        able = dict.fromkeys(cls.__name__ for cls in samplers() if cls.proposal is not None)
        raise ValueError(
            f"{name} does not propose from a normal distribution that the result knows, which "
            f"plot_proposals draws: it is for {', '.join(able)}. pk.plot_learned shows the "
            f"covariance that {name} has learned."
        )
    if options is None:
        raise ValueError(
            f"The result does not know the kernel of {name}, as it has options that cannot be "
            "stored."
        )
    return partial(sampler.proposal, options=options)


def _ellipses(names, covariances):
    """Return what draws those that have 95 % of normals with covariances (n, d, d)."""
    angle = np.linspace(0, 2 * np.pi, 100)
    circle = np.append(CONTOUR * np.stack([np.cos(angle), np.sin(angle)]), [[np.nan]] * 2, 1)

    def proposal(da_x, da_y, target, *, var_name_x, var_name_y, color=None, **options):
        from arviz_plots.plot_collection import backend_from_object

        for extra in ("sel_x", "isel_x", "sel_y", "isel_y"):
            del options[extra]
        pair = [names.index(name) for name in (var_name_x, var_name_y)]
        roots = np.linalg.cholesky(covariances[:, pair][:, :, pair])
        x, y = np.stack([da_x.values, da_y.values])[..., None] + (roots @ circle).swapaxes(0, 1)
        return backend_from_object(target).line(
            x.ravel(), y.ravel(), target, color=color, **options
        )

    return proposal
