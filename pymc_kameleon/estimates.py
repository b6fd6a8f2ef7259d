"""``pk.expectation`` and ``pk.summary``: averages over the posterior, corrected where possible.

They are those of corrections.py where a result has moves by a surrogate, those of controls.py where
it has control variates, and ArviZ's elsewhere.
"""

import logging
from typing import NamedTuple

import numpy as np
import pymc as pm
import xarray as xr
from arviz_base import convert_to_dataset
from arviz_stats.base import array_stats

from pymc_kameleon.controls import are_enough, controlled, kept_of
from pymc_kameleon.corrections import corrected
from pymc_kameleon.groups import CONTROL_VARIATES, KEPT_GROUPS, LEARNED_GROUP, STATE_GROUP
from pymc_kameleon.layout import Layout
from pymc_kameleon.logp import ModelOutputs, digest_of_data
from pymc_kameleon.samplers.surrogate_moves import certificate, moves_of
from pymc_kameleon.signs import warn_of
from pymc_kameleon.store import opened

_log = logging.getLogger("pymc_kameleon")

LEAST_MOVES = 8
"""Moves by the surrogate, of each chain, from which averages are corrected."""

FEW = slice(0, 1), slice(-5, None)
"""Draws by which it is seen whether a function mixes them."""


class Expectation(NamedTuple):
    """An average over the posterior.

    Attributes
    ----------
    mean, mcse : float or array
        The average and its standard error, NaN where that is not known.
    gain : float or array
        Variance of the mean over the draws, over that of this average, both as estimated from these
        draws; 1 where it is that mean.
    ess : float or array
        Independent draws that would have this standard error.
    """

    mean: np.ndarray
    mcse: np.ndarray
    gain: np.ndarray
    ess: np.ndarray


def expectation(dt, function, model=None):
    """Average a function over the posterior.

    If SurrogateMetropolis has made the draws, in ``pk.sample``, their mean is corrected by what its
    surrogate knows. That takes no evaluation of the log-density, and remains exact however bad the
    surrogate is. Draws of GAM and GadMALA are corrected by control variates, where these were kept.
    For other samplers the answer is the mean, with its standard error by ArviZ.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample``, or of another sampler, or the path of a file or store of one.
    function : callable
        Takes variables on their natural scale, a dict of arrays (chain, draw, ...), and returns an
        array (chain, draw, ...). It treats each draw for itself, and is called with other points,
        too.
    model : pm.Model, optional
        Taken from the context by default; needed to correct what has a surrogate.

    Returns
    -------
    Expectation
        With arrays of what is left of the function's dimensions.

    Raises
    ------
    ValueError
        If there are no draws, if the model is missing or another one, or if the function returns
        another shape, or what is no real number, or mixes draws.
    KeyError
        If the function asks for a variable that does not exist.

    Notes
    -----
    It warns if the function is not finite at some draws, and if there are signs that the errors are
    not to be trusted. See docs/estimates.md.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.SurrogateMetropolis())
    ...     answer = pk.expectation(dt, lambda v: v["a"] > v["b"])  # a probability
    """
    dt = opened(dt)
    draws = Draws(dt, model)
    if not callable(function):
        name = function if function in draws.names else draws.names[0]
        raise ValueError(
            f"function must be one of the variables, as lambda v: v[{name!r}], not {function!r}."
        )
    f = draws.evaluated(function)
    say_if_not_finite("The function", f)
    values, shape = f.reshape(*f.shape[:2], -1), f.shape[2:]
    found, apart = _averaged(draws, values, lambda x: draws.at(x, function).reshape(len(x), -1))
    if draws.can_be_corrected:
        names = [f"the function{list(index) or ''}" for index in np.ndindex(shape)]
        with np.errstate(divide="ignore", invalid="ignore"):  # of what does not vary
            r_hat = array_stats.rhat(values, chain_axis=0, draw_axis=1)
        warn_of(dt, names, values, r_hat, draws.certificate, apart)
    return Expectation(*(part.reshape(shape)[()] for part in found))


def _averaged(draws, values, function):
    """Return the Expectation of q functions, and how far corrected averages of chains are apart.

    By values (chains, draws, q) and at points (n, d).
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # of what does not vary
        mcse, ess = (
            np.where(np.ptp(values, axis=(0, 1)) > 0, of(values, 0, 1, method="mean"), np.nan)
            for of in (array_stats.mcse, array_stats.ess)
        )
        if draws.are_approximate:
            mcse = np.hypot(mcse, draws.error_of_surrogates(values))
            ess = values.var(axis=(0, 1)) / mcse**2
    found = Expectation(values.mean(axis=(0, 1)), mcse, np.ones(values.shape[2]), ess)
    if not (draws.can_be_corrected and np.isfinite(values).all()):
        return found, np.zeros(values.shape[2])
    better = draws.corrected(values, function)
    with np.errstate(divide="ignore", invalid="ignore"):
        ess = values.var(axis=(0, 1)) / better.mcse**2
    pairs = zip((better.mean, better.mcse, better.gain, ess), found, strict=True)
    found = Expectation(*(np.where(better.is_better, new, old) for new, old in pairs))
    return found, better.disagreement * better.is_better


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
        """Whether averages can be."""
        return self.moves is not None or self.controls is not None

    @property
    def certificate(self):
        """That of the surrogate, None without one."""
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
        part = _values(function, {name: values[FEW] for name, values in draws.items()})
        if part.shape[2:] != whole.shape[2:] or not np.allclose(part, whole[FEW], equal_nan=True):
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
