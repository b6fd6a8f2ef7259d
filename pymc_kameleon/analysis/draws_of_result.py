"""The draws and statistics of a result, as averages and tables need them."""

import logging
from collections import UserDict
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import xarray as xr
from arviz_base import convert_to_dataset

from pymc_kameleon.analysis import emulator_correction, surrogate_correction
from pymc_kameleon.analysis.batches import best_of
from pymc_kameleon.analysis.control_correction import are_enough, controlled, kept_of
from pymc_kameleon.analysis.gradients_of_draws import NoGradients, controls_by_gradients
from pymc_kameleon.analysis.process_correction import NOTHING, known_of, with_process
from pymc_kameleon.analysis.recomputed import CHANGED, Recomputed, model_for
from pymc_kameleon.analysis.zero_variance import zero_variance
from pymc_kameleon.approximation.records import evenly
from pymc_kameleon.result.superchains import size_of_superchains, superchains_of
from pymc_kameleon.samplers.emulator.moves import EmulatorMoves, emulator_moves_of
from pymc_kameleon.samplers.surrogate.moves import certificate, moves_of
from pymc_kameleon.step.groups import (
    APPROXIMATIONS,
    CONTROL_VARIATES,
    EMULATOR_MOVES,
    EVALUATIONS,
    KEPT_GROUPS,
    LEARNED_GROUP,
)

_log = logging.getLogger("pymc_kameleon")

LEAST_MOVES, LEAST_BY_EMULATOR = 8, 2
"""Moves by the surrogate of each chain, at least, if averages are to be corrected; and by the
emulator, each of which stops at many places."""

ROUNDING = 1e-9
"""Difference of values of a function that counts as none, relative, and in standard deviations."""

MANY = 2000
"""Draws of a process that quantiles are taken from, which need not be exact."""

EXTREMES, MIDDLE, MOST_COLUMNS = 3, 100, 50
"""Draws at each end of a quantity, and near the medians of all of them, with which alone a function
is called again, to see whether it mixes draws; and quantities at whose ends it is, at most."""


class Draws:
    """The draws of a result, and its variables at other points.

    `moves` by the surrogate or emulator that is the `approximation`, the `known` of a process, the
    `controls` of a sampler, and those `by_gradients` are None, or correct averages of the
    `posterior`. `should_be_corrected` tells whether a sampler has kept something for that, be it
    enough or not.
    """

    def __init__(self, dt, model):
        if isinstance(dt, xr.DataTree) and not dt.children:  # a group, which need not be posterior
            dt = dt.to_dataset()
        elif isinstance(dt, xr.DataTree) and "posterior" not in dt.children:
            raise ValueError("There are no draws to average: the result has no posterior.")
        self.posterior = convert_to_dataset(dt, group="posterior")
        self.moves = self.known = self.controls = self.approximation = None
        self.should_be_corrected, self._size = False, 1  # chains that are taken for one
        self.by_gradients, self.why_not_by_gradients = None, ""
        if not {"chain", "draw"} <= set(self.posterior.dims):
            raise ValueError(
                "The draws need the dimensions chain and draw, and have "
                f"{list(self.posterior.dims)}. az.extract stacks them, and dt.isel(chain=0) drops "
                "one: pass the whole result, or dt.isel(chain=[0])."
            )
        if any(self.posterior.sizes.get(dim) == 0 for dim in ("chain", "draw")):
            raise ValueError("There are no draws to average: chain or draw has the length 0.")
        self._take_kept(dt, model)
        self._take_gradients(dt, model)

    def _take_kept(self, dt, model):
        """Take what the sampler has kept to correct averages by, if there is enough of it."""
        group = next((name for name in KEPT_GROUPS if name in getattr(dt, "children", ())), None)
        if group is None or LEARNED_GROUP not in dt.children:
            return
        kept, learned = dt[group].to_dataset(), dt[LEARNED_GROUP].to_dataset()
        learned = learned.map(lambda own: own.astype(float) if own.dtype.kind == "f" else own)
        if not {"chain", "draw"} <= set(kept.dims):
            return
        numbers = {dim: np.unique(self.posterior[dim]) for dim in ("chain", "draw")}
        known = {"chain": np.intersect1d(kept["chain"], learned["chain"]), "draw": kept["draw"]}
        if any(
            len(own) < self.posterior.sizes[dim] or not np.isin(own, known[dim]).all()
            for dim, own in numbers.items()
        ):
            _log.warning(
                "Averages are those of the draws: their chains or draws are not numbered as they "
                "were sampled."
            )
            return
        if len(np.unique(np.diff(numbers["draw"]))) > 1:
            _log.warning(
                "Averages are those of the draws: some were selected, perhaps by their values. "
                "Corrected averages are those of the whole posterior, of draws at equal distances."
            )
            return
        self.posterior, kept = self.posterior.sel(numbers), kept.sel(numbers)
        self.should_be_corrected = True
        if group == CONTROL_VARIATES:
            if are_enough(controls := kept_of(kept, learned)):
                self.controls = controls
            else:
                _log.info(
                    "Control variates correct no averages here: there are too few chains or draws, "
                    "or a parameter never moved."
                )
            return
        by_emulator = group == EMULATOR_MOVES
        moves = emulator_moves_of(kept) if by_emulator else moves_of(kept, learned)
        if EVALUATIONS in dt.children:
            self.known = known_of(dt[EVALUATIONS].to_dataset(), kept)
        size = size_of_superchains(superchains_of(self.posterior))
        if size > 1 and not by_emulator and (joined := moves.joined(size)) is not None:
            moves, self._size = joined, size
        if _are_enough(moves, kept.sizes["chain"] // self._size):
            self.moves, self.approximation = moves, APPROXIMATIONS[group]
        elif self.known is None:
            _log.info(
                "The %s corrects no averages here: there are too few chains, or moves by it.",
                APPROXIMATIONS[group],
            )
            return
        model = model_for(kept, model, kept["coordinate"].values.tolist())
        self._recomputed = Recomputed(self.posterior, kept, model)

    def _take_gradients(self, dt, model):
        """Take gradients at the draws, if there is a model, or they are kept; say why not."""
        try:
            self.by_gradients = controls_by_gradients(dt, self.posterior, model)
        except NoGradients as error:
            self.why_not_by_gradients = str(error)
            if not self._has_kept:  # else they are corrected by that
                _log.info("Averages are not corrected by gradients: %s.", error)
            return
        self.should_be_corrected |= self.by_gradients is not None

    @property
    def can_be_corrected(self):
        """Whether averages can be corrected."""
        return self.by_gradients is not None or self._has_kept

    @property
    def _has_kept(self):
        return self.controls is not None or self._can_recompute

    @property
    def _can_recompute(self):
        return self.moves is not None or self.known is not None

    @cached_property
    def certificate(self):
        """The certificate of the surrogate, or the emulator, None without one."""
        return None if self.moves is None else certificate(self.moves)

    def corrected(self, values, function, n_decisive=None):
        """Return Corrected averages of values (chains, draws, q), each in the best way; or None."""
        found = [] if function is None else [self._corrected(values, function, n_decisive)]
        if self.by_gradients is not None:
            found.append(zero_variance(values, self.by_gradients))
        found = [own for own in found if own is not None]
        return best_of(found) if found else None

    def _corrected(self, values, function, n_decisive):
        """Return Corrected averages by what the sampler has kept, None if that failed."""
        if not self._can_recompute:
            return controlled(values, self.controls)
        try:
            found = None
            if isinstance(self.moves, EmulatorMoves):
                found = emulator_correction.corrected(values, self.moves, function)
            elif self.moves is not None:
                joined = values.reshape(-1, self._size * values.shape[1], values.shape[2])
                found = surrogate_correction.corrected(joined, self.moves, function, n_decisive)
                found = found._replace(is_better=found.is_better & (found.gain > 1))
            if self.known is not None:
                found = with_process(found, values, self.known, function)
            return found
        except Exception as error:  # of the model, or of the user's function
            _log.warning(
                "Averages are those of the draws: at other points computing them raised %s: %s",
                type(error).__name__,
                error,
            )
            return None

    def many(self, function):
        """Return a function of positions (n, d) at `MANY` draws of a process, None without it."""
        if self.known is None or self.known is NOTHING:
            return None
        with np.errstate(all="ignore"):
            values = function(evenly(self.known.draws, MANY))
        return values if np.isfinite(values).all() else None

    def can_correct(self, names):
        """Return which variables what the sampler kept can correct; log why others cannot be."""
        if not self._has_kept:
            return []
        reasons = self._recomputed.why_not(names) if self._can_recompute else {}
        for reason in dict.fromkeys(reasons.values()):
            own = ", ".join(name for name, one in reasons.items() if one == reason)
            level = logging.WARNING if reason == CHANGED else logging.INFO
            _log.log(level, "Averages of %s are those of the draws: %s.", own, reason)
        return [name for name in names if name not in reasons]

    def evaluated(self, function):
        """Return the values of a function at the draws (chains, draws, ...), and what it uses."""
        sampled = self.posterior.transpose("chain", "draw", ...)
        arrays = {
            name: own.values for name, own in sampled.items() if own.dims[:2] == ("chain", "draw")
        }
        shape = sampled.sizes["chain"], sampled.sizes["draw"]
        draws = _Named({name: own.copy() for name, own in arrays.items()})  # it may write there
        whole = _values(function, draws, shape)
        used = [name for name in arrays if name in draws.used] or list(arrays)
        flat = {name: _one_chain(own) for name, own in arrays.items()}
        expected = _one_chain(whole)
        with np.errstate(invalid="ignore"):
            spread = np.nan_to_num(expected[0].std(axis=0))
        for places in _trials([expected, *flat.values()]):
            few = _Named({name: own[:, places] for name, own in flat.items()})
            part = _values(function, few, (1, len(places)))
            if part.shape[2:] != whole.shape[2:] or not np.allclose(
                part, expected[:, places], ROUNDING, ROUNDING * spread, equal_nan=True
            ):
                raise ValueError(
                    "The function must treat each draw for itself, but its values at some draws "
                    "change with the others. Compute beforehand what depends on several draws."
                )
        return whole, used

    def is_of_each_draw(self, values, function):
        """Whether a function of positions (n, d) gives values (chains, draws, ...) at the draws."""
        if not self._can_recompute or self._recomputed.is_of_draws(values, function):
            return True
        _log.warning(
            "The average is that of the draws: the function gives other values at the same points."
        )
        return False

    def at(self, x, function, names):
        """Return the values of a function of the variables `names` at points x (n, d), (n, ...)."""
        variables = {name: own[None] for name, own in self._recomputed.at(x, names).items()}
        return _values(function, _Named(variables), (1, len(x)))[0]


def _one_chain(values):
    return values.reshape(1, -1, *values.shape[2:])


def _trials(arrays):
    """Yield places of some of n draws: in reverse, at the ends of each quantity, in the middle."""
    numbers = [own[0].reshape(own.shape[1], -1) for own in arrays if own.dtype.kind in "fiub"]
    columns = np.concatenate([own[:, :MOST_COLUMNS] for own in numbers], axis=1, dtype=np.float64)
    yield np.arange(len(columns))[::-1]
    order = np.argsort(columns, axis=0)
    yield np.unique(np.concatenate([order[:EXTREMES], order[-EXTREMES:]]))
    ranks = np.abs(np.argsort(order, axis=0) - len(columns) / 2)
    yield np.argsort(ranks.max(axis=1))[:MIDDLE]


def _are_enough(moves, chains):
    """Whether there are moves enough in each of several chains."""
    moved = moves.row[(moves.start != moves.end).any(axis=1)]
    least = LEAST_BY_EMULATOR if isinstance(moves, EmulatorMoves) else LEAST_MOVES
    return chains > 1 and np.bincount(moved, minlength=chains).min() >= least


def _values(function, variables, shape):
    """Return what a function makes of arrays of this shape (chains, draws), ..., as float64."""
    with np.errstate(all="ignore"):
        found = function(variables)
    here = f"({shape[0]}, {shape[1]}, ...)"
    wanted = f"The function must return an array (chain, draw, ...), here of shape {here}"
    if isinstance(found, Mapping | list | tuple):
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


class _Named(UserDict):
    """Variables, which remember what was asked for, and say what there is if it is not there.

    Whoever goes through their names, as by dict(v), {**v} or len(v), has asked for all.
    """

    def __init__(self, variables):
        super().__init__(variables)
        self.used = set()

    def __getitem__(self, name):
        self.used.add(name)
        return super().__getitem__(name)

    def __missing__(self, name):
        raise KeyError(f"The function asks for {name!r}, but the variables are {list(self)}.")

    def __contains__(self, name):
        self.used.add(name)
        return super().__contains__(name)

    def __iter__(self):
        self.used.update(self.data)
        return super().__iter__()

    def __len__(self):
        self.used.update(self.data)
        return super().__len__()


def side_by_side(variables, n_kept=2):
    """Return arrays by name side by side, float64 (chains, draws, q); `n_kept` dimensions stay."""
    arrays = [np.asarray(values) for values in variables.values()]
    flat = [values.reshape(*values.shape[:n_kept], -1) for values in arrays]
    return np.concatenate(flat, axis=n_kept, dtype=np.float64)


def say_if_not_finite(what, values):
    """Warn if values (chains, draws, ...) are NaN or infinite at some draws; say at how many."""
    fine = np.isfinite(values).reshape(*values.shape[:2], -1).all(axis=2)
    if not fine.all():
        _log.warning(
            "%s is NaN or infinite at %d of %d draws, and so is its average. Give it a value "
            "there, for example by np.where.",
            what,
            (~fine).sum(),
            fine.size,
        )
