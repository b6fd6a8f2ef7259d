"""Which modes the chains of a run have visited, and whether that tells their weights."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from arviz_base import convert_to_dataset

from pymc_kameleon.analysis.draws_of_result import side_by_side
from pymc_kameleon.analysis.modes_of_draws import find_modes
from pymc_kameleon.analysis.trust import FEW_EVENTS
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.findings.words import chains_named, grouped
from pymc_kameleon.result.opening import opened

SAMPLE_DIMS = ("chain", "draw")  # the dimensions of draws


def mode_occupancy(dt, *, var_names=None):
    """Tell which modes the chains have visited, how often they jumped, and what that is worth.

    The modes are found from the draws alone, of any sampler: groups of draws with a gap between
    them that cannot be an accident, as two normals six standard deviations apart have. A mode with
    less than some hundredth of the draws is not found, and one that no chain has visited cannot be.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample`` or ``pm.sample``, or what ``arviz.convert_to_dataset`` takes.
    var_names : str or list of str, optional
        Variables to go by, for example the parameters where there are many deterministics. By
        default all of real numbers.

    Returns
    -------
    ModeOccupancy
        Printed it is a table and the verdict; ``pk.plot_modes`` draws it.

    Raises
    ------
    ValueError
        If there are no draws, or no variable to go by.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.CyclicalKAM())
    >>> occupancy = pk.mode_occupancy(dt)
    >>> weights = occupancy.dataset["weight"]
    """
    posterior = convert_to_dataset(opened(dt), group="posterior")
    if not all(posterior.sizes.get(dim, 1) for dim in SAMPLE_DIMS):
        raise ValueError("The result has no draws after tuning: go on with pk.resume(dt).")
    posterior = _chosen(posterior, var_names)
    modes = find_modes(_matrix(posterior))
    coords = {dim: posterior[dim] for dim in SAMPLE_DIMS}
    mode = xr.DataArray(modes, coords, SAMPLE_DIMS, name="mode_of_draw")
    each = [posterior.where(mode == k).mean(SAMPLE_DIMS) for k in range(modes.max() + 1)]
    return ModeOccupancy(_counted(mode, len(each)), xr.concat(each, "mode"))


@dataclass(repr=False)
class ModeOccupancy:
    """What ``pk.mode_occupancy`` found.

    Attributes
    ----------
    dataset : Dataset
        ``weight`` (mode), the share of all draws, ``mcse``, its standard error, ``ess``, the
        effective number of independent visits: that of the mode's indicator by ArviZ, and ``rhat``
        of it; ``share`` and ``visits`` (mode, chain), the share of a chain's draws and how often it
        came; ``jumps`` (chain); and ``mode_of_draw`` (chain, draw). The mode with the most draws is
        0. What only one visited mode does not tell is NaN.
    centers : Dataset
        The mean of each variable in each mode, (mode, ...).
    verdict : str
        What it comes to, in a sentence.
    weights_known : bool
        Whether the chains jump often enough to tell the weights.
    """

    dataset: xr.Dataset
    centers: xr.Dataset
    verdict: str = field(init=False)
    weights_known: bool = field(init=False)

    def __post_init__(self):
        self.verdict, self.weights_known = _judged(self.dataset)

    def __repr__(self):
        """Show the table and the verdict."""
        parts = ["weight", "mcse", "ess", "rhat"]
        table = pd.DataFrame({name: self.dataset[name].values for name in parts})
        table = table.dropna(axis=1, how="all")  # what one visited mode does not tell
        table["visits"] = self.dataset["visits"].sum("chain").values
        for chain in self.dataset["chain"].values:
            table[f"chain {chain}"] = self.dataset["share"].sel(chain=chain).values
        table.index.name = "mode"
        shown = table.to_string(float_format="{:.3g}".format, line_width=100, na_rep="–")
        return f"{shown}\n\n{self.verdict}"


# ---- the draws ----------------------------------------------------------------------------------


def _chosen(posterior, var_names):
    """Return the variables to go by; raise a ValueError if there are none."""
    if var_names is None:
        names = [name for name in posterior if posterior[name].dtype.kind == "f"]
    else:
        names = [var_names] if isinstance(var_names, str) else list(var_names)
        if unknown := [name for name in names if name not in posterior]:
            raise ValueError(f"var_names: there is no {unknown} among {list(posterior)}.")
    return posterior[names]


def _matrix(posterior):
    """Return the finite coordinates that vary, (chains, draws, d).

    Whole numbers, which have gaps in any posterior, are left out, unless there is nothing else.
    """
    draws = posterior.astype(float).transpose(*SAMPLE_DIMS, ...)
    draws = side_by_side(draws) if draws else np.empty((1, 1, 0))
    varies = np.isfinite(draws).all(axis=(0, 1)) & (draws != draws[:1, :1]).any(axis=(0, 1))
    if not varies.any():
        raise ValueError(
            f"No variable among {list(posterior)} has draws that are finite and not all equal: "
            "name one with var_names."
        )
    measured = varies & (draws != np.round(draws)).any(axis=(0, 1))
    return draws[..., measured if measured.any() else varies]


# ---- what they say ------------------------------------------------------------------------------


def _counted(mode, n):
    """Return shares, visits, jumps and what they are worth, of mode (chain, draw) out of n."""
    inside = mode == xr.DataArray(np.arange(n), {"mode": np.arange(n)}, name="mode")
    comes = inside & ~inside.shift(draw=1, fill_value=False)
    share = inside.mean("draw").transpose("mode", "chain")
    weight = inside.mean(SAMPLE_DIMS)
    with np.errstate(divide="ignore", invalid="ignore"):  # R-hat of chains that never jump
        tells = (weight > 0) & (weight < 1)
        ess = pm.stats.ess(inside.astype(float), method="mean").where(tells)
        rhat = pm.stats.rhat(inside.astype(float)).where(tells)
    return xr.Dataset(
        {
            "weight": weight,
            "mcse": np.sqrt(weight * (1 - weight) / ess),
            "ess": ess,
            "rhat": rhat,
            "share": share,
            "visits": comes.sum("draw").transpose("mode", "chain"),
            "jumps": (mode.diff("draw") != 0).sum("draw"),
            "mode_of_draw": mode,
        }
    )


def _judged(found):
    """Return what the counts come to, in a sentence, and whether the weights are known."""
    chains = "The chain" if found.sizes["chain"] == 1 else f"All {found.sizes['chain']} chains"
    n, jumps = found.sizes["mode"], int(found["jumps"].sum())
    never = found["chain"].values[found["jumps"] == 0].tolist()
    if n == 1:
        return f"{chains} {'is' if found.sizes['chain'] == 1 else 'are'} in one mode.", True
    if jumps == 0:
        return (
            "Chains sit in different modes and never jump: the weights of the modes are not known."
        ), False
    rarest = np.minimum(found["weight"], 1 - found["weight"])
    if not (found["ess"] * rarest >= FEW_EVENTS).all():
        often = "once" if jumps == 1 else f"{grouped(jumps)} times"
        stay = f", and {chains_named(never, found.sizes['chain'])} never" if never else ""
        return (
            f"Chains jump between {n} modes only {often}{stay}: the weights of the modes are "
            "hardly known."
        ), False
    if not (found["visits"] > 0).all():
        chains = "The chains together"
    which = "both modes" if n == 2 else f"all {n} modes"
    visits = int(float(f"{found['ess'].min().item():.2g}"))
    verb = "visits" if found.sizes["chain"] == 1 else "visit"
    return f"{chains} {verb} {which}, {grouped(visits)} independent visits.", True


def modes_apart(dt, var_names):
    """Tell if the chains of a result do not tell the weights of the modes that they visit."""
    occupancy = mode_occupancy(dt, var_names=var_names)
    return [] if occupancy.weights_known else [finding("modes_apart", verdict=occupancy.verdict)]
