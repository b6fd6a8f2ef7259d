"""The draws and statistics of a result, as averages and tables need them."""

import logging

import numpy as np
import pymc as pm
import xarray as xr
from arviz_base import convert_to_dataset

from pymc_kameleon.analysis.control_correction import are_enough, controlled, kept_of
from pymc_kameleon.analysis.surrogate_correction import corrected
from pymc_kameleon.model.functions import ModelOutputs, digest_of_data
from pymc_kameleon.model.layout import Layout
from pymc_kameleon.samplers.surrogate.moves import certificate, moves_of
from pymc_kameleon.step.groups import CONTROL_VARIATES, KEPT_GROUPS, LEARNED_GROUP, STATE_GROUP

_log = logging.getLogger("pymc_kameleon")

LEAST_MOVES = 8
"""Moves by the surrogate, of each chain, at least, if averages are to be corrected."""

TRIAL = slice(0, 1), slice(-5, None)
"""Some draws, with which alone a function is called again, to see whether it mixes draws."""


class Draws:
    """The draws of a result, and its variables at other points.

    Parameters
    ----------
    dt : DataTree
    model : pm.Model or None

    Attributes
    ----------
    posterior : Dataset
    moves : Moves or None
        Those by a surrogate, None if there are too few to correct anything.
    controls : Kept or None
        What GAM or GadMALA has kept for that, likewise.
    names : list of str
        Variables that are known at other points; all, if there are no moves.
    are_approximate : bool
        Whether they are of surrogates, not of the posterior.
    """

    def __init__(self, dt, model):
        if isinstance(dt, xr.DataTree) and not dt.children:  # a group, which need not be posterior
            dt = dt.to_dataset()
        elif isinstance(dt, xr.DataTree) and "posterior" not in dt.children:
            raise ValueError("There are no draws to average: the result has no posterior.")
        self.posterior = convert_to_dataset(dt, group="posterior")
        self.moves = self.controls = None
        self.names = list(self.posterior)
        if not {"chain", "draw"} <= set(self.posterior.dims):
            raise ValueError(
                "The draws need the dimensions chain and draw, and have "
                f"{list(self.posterior.dims)}. az.extract stacks them, and dt.isel(chain=0) drops "
                "one: pass the whole result, or dt.isel(chain=[0])."
            )
        if any(self.posterior.sizes.get(dim) == 0 for dim in ("chain", "draw")):
            raise ValueError("There are no draws to average: chain or draw has the length 0.")
        self.are_approximate = "approximate" in self.posterior.attrs
        if self.are_approximate:
            _log.warning(
                "These are draws of the surrogate, which are approximate: those of the posterior, "
                "and corrected averages, are in the whole result."
            )
        group = next((name for name in KEPT_GROUPS if name in getattr(dt, "children", ())), None)
        if group is None or LEARNED_GROUP not in dt.children:
            return
        kept, learned = dt[group].to_dataset(), dt[LEARNED_GROUP].to_dataset()
        if not {"chain", "draw"} <= set(kept.dims):
            return
        common = {dim: np.intersect1d(kept[dim], self.posterior[dim]) for dim in ("chain", "draw")}
        self.posterior, kept = self.posterior.sel(common), kept.sel(common)
        if group == CONTROL_VARIATES:
            controls = kept_of(kept, learned)
            if are_enough(controls):
                self.controls = controls
            else:
                _log.info(
                    "Control variates correct no averages here: there are too few chains or draws, "
                    "or a parameter never moved."
                )
            return
        moves = moves_of(kept, learned)
        if _are_enough(moves, kept.sizes):
            self.moves = moves
            self._begin_to_compute(dt, _context(model), kept["coordinate"].values.tolist())

    def _begin_to_compute(self, dt, model, coordinates):
        initial = model.initial_point()
        own = Layout(model, list(model.value_vars), initial).coordinates()
        if sorted(own) != sorted(coordinates):
            raise ValueError(
                f"This is not the model that was sampled: its coordinates are {own}, and those of "
                f"the draws {coordinates}."
            )
        self._order = [coordinates.index(name) for name in own]
        every = [var.name for var in model.unobserved_value_vars]
        self.names = [name for name in every if name in self.posterior]
        self._model, self._initial, self._outputs = model, initial, None
        data = digest_of_data(model, self.names).hex()
        state = dt[STATE_GROUP].attrs if STATE_GROUP in dt.children else {}
        if state.get("data", data) != data:
            raise ValueError(
                "pm.Data, or the length of a dimension, is not what it was for these draws. Set it "
                "again."
            )

    @property
    def can_be_corrected(self):
        """Whether averages can be corrected."""
        return self.moves is not None or self.controls is not None

    @property
    def certificate(self):
        """The certificate of the surrogate, None without one."""
        return None if self.moves is None else certificate(self.moves)

    def corrected(self, values, function, n_decisive=None):
        """Return Corrected averages of values (chains, draws, q), of a function of points."""
        if self.moves is None:
            return controlled(values, self.controls)
        return corrected(values, self.moves, function, n_decisive)

    def error_of_surrogates(self, values):
        """Return what means of values (chains, draws, q) may be wrong by, (q,), by the jackknife.

        Each chain's surrogate has learned from all others. NaN, if it has not.
        """
        means, n = values.mean(axis=1), len(values)
        known = self.posterior.attrs.get("learned_from_other_chains")
        return np.sqrt((n - 1) * means.var(axis=0)) if known else np.full(means.shape[1], np.nan)

    def values(self):
        """Return the draws by name, arrays (chains, draws, ...)."""
        sampled = self.posterior.transpose("chain", "draw", ...)
        return {name: sampled[name].values for name in self.names}

    def evaluated(self, function):
        """Return the values of a function at the draws, (chains, draws, ...)."""
        draws = self.values()
        whole = _values(function, draws)
        part = _values(function, {name: values[TRIAL] for name, values in draws.items()})
        if part.shape[2:] != whole.shape[2:] or not np.allclose(part, whole[TRIAL], equal_nan=True):
            raise ValueError(
                "The function must treat each draw for itself, but its values at five draws change "
                "with the others. Compute beforehand what depends on several draws."
            )
        return whole

    def at(self, x, function, names=None):
        """Return the values of a function at points x (n, d), (n, ...).

        It gets the variables `names`, by default all: others are not computed.
        """
        names = self.names if names is None else names
        if self._outputs is None or list(self._outputs.variables) != names:
            self._outputs = ModelOutputs(self._model, names, self._initial, {})
        variables = self._outputs.named(self._outputs.rows(x[:, self._order]))
        return _values(function, {name: values[None] for name, values in variables.items()})[0]


def _are_enough(moves, sizes):
    """Whether there are moves enough in each of several chains."""
    moved = moves.row[(moves.start != moves.end).any(axis=1)]
    each = np.bincount(moved, minlength=sizes["chain"])
    return sizes["chain"] > 1 and each.min() >= LEAST_MOVES


def _context(model):
    try:
        return pm.modelcontext(model)
    except TypeError:
        raise ValueError(
            "Averages over draws of SurrogateMetropolis are corrected by means of the model: pass "
            "model=..., or call this in its context."
        ) from None


def _values(function, variables):
    """Return what a function makes of arrays (chains, draws, ...), as float64."""
    shape = next(iter(variables.values())).shape[:2]
    with np.errstate(all="ignore"):
        found = function(_Named(variables))
    here = f"({shape[0]}, {shape[1]}, ...)"
    wanted = f"The function must return an array (chain, draw, ...), here of shape {here}"
    if isinstance(found, dict | list | tuple):
        kind = type(found).__name__
        raise ValueError(f"{wanted}, not a {kind}: average its parts one by one, or stack them.")
    if found is None:
        raise ValueError(f"{wanted}, but returns None: does it end with return?")
    values = np.asarray(found)
    if values.dtype.kind not in "biuf":
        raise ValueError(
            f"{wanted}, of real numbers, not of {values.dtype}: average the real and the imaginary "
            "part of complex numbers, and of text whether it is equal to something."
        )
    if values.shape[:2] != shape:
        raise ValueError(f"{wanted}, not {values.shape}.")
    if values.size == 0:
        raise ValueError(f"{wanted}, not {values.shape}: that has nothing to average.")
    return values.astype(np.float64)


class _Named(dict):
    """Variables, which say what there are if one is asked for that there is not."""

    def __missing__(self, name):
        raise KeyError(f"The function asks for {name!r}, but the variables are {list(self)}.")


def side_by_side(variables, n_kept=2):
    """Return arrays (chains, draws, ...), by name, side by side: float64 (chains, draws, q).

    Of others, so many dimensions are kept.
    """
    arrays = [np.asarray(values) for values in variables.values()]
    flat = [values.reshape(*values.shape[:n_kept], -1) for values in arrays]
    return np.concatenate(flat, axis=n_kept, dtype=np.float64)


def say_if_not_finite(what, values):
    """Warn if values (chains, draws, ...) are NaN or infinite at some draws; say at how many."""
    fine = np.isfinite(values).reshape(*values.shape[:2], -1).all(axis=2)
    if not fine.all():
        _log.warning(
            "%s is NaN or infinite at %d of %d draws, and so is its average. Give it a value "
            "there, as by np.where.",
            what,
            (~fine).sum(),
            fine.size,
        )
