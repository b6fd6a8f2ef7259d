"""The draws and statistics of a result, as averages and tables need them."""

from collections import UserDict
from collections.abc import Mapping

import numpy as np
import xarray as xr

from pymc_kameleon.analysis.corrections import NotCorrected, Result, best_of
from pymc_kameleon.analysis.emulator_correction import by_emulator
from pymc_kameleon.analysis.gradients_of_draws import by_gradients
from pymc_kameleon.analysis.process_correction import by_process
from pymc_kameleon.analysis.recomputed import CHANGED, Recomputed, agree, model_for
from pymc_kameleon.analysis.surrogate_correction import by_surrogate
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.result.opening import draws_in, learned_in
from pymc_kameleon.step.groups import GRADIENTS, KEPT_GROUPS, LEARNED_GROUP

KINDS = by_surrogate, by_emulator, by_process, by_gradients
"""All kinds of corrections, approximate ones after those that they stand beside."""


class Draws:
    """The draws of a result, its variables at other points, and the `corrections` of averages.

    `should_be_corrected` tells whether a sampler has kept something for that, be it enough or not.
    `why_not` has the reasons why some kinds of corrections are none, and `findings` what there is
    to tell of all this. Without `evaluates` no gradients are, but those that were kept are used.
    """

    def __init__(self, dt, model, evaluates=True):
        posterior = draws_in(dt, "average")
        if isinstance(dt, xr.DataTree) and not dt.children:
            dt = dt.to_dataset()
        result = _result_of(dt, posterior, model)
        self.posterior, self.corrections, self.why_not = result.posterior, {}, {}
        is_kept = GRADIENTS in getattr(dt, "children", ())
        for kind in KINDS if evaluates or is_kept else KINDS[:-1]:
            try:
                self.corrections[kind.__name__] = kind(result)
            except NotCorrected as error:
                if str(error):
                    self.why_not[kind.__name__] = str(error)
        self.findings = [*result.findings]
        if not self.corrections:
            self.findings += [
                finding("not_corrected", by=by.replace("_", " "), reason=reason)
                for by, reason in self.why_not.items()
            ]
        self.should_be_corrected = bool(result.group or self.corrections)
        self._recomputed = None
        if any(one.is_anew for one in self.corrections.values()):
            model = model_for(result.kept, model, result.kept["coordinate"].values.tolist())
            self._recomputed = Recomputed(self.posterior, result.kept, model)

    def corrected(self, values, function):
        """Return Corrected averages of values (chains, draws, q), each in the best way; or None."""
        return best_of(self.corrections, values, function, self.findings)

    def many(self, function):
        """Return a function of positions (n, d) at many further draws; None without them."""
        for one in self.corrections.values():
            if one.draws is not None:
                with np.errstate(all="ignore"):
                    values = function(one.draws)
                return values if np.isfinite(values).all() else None
        return None

    def can_correct(self, names):
        """Return which variables are known at other points; note why others are not."""
        if self._recomputed is None:
            return []
        reasons = self._recomputed.why_not(names)
        for reason in dict.fromkeys(reasons.values()):
            own = ", ".join(name for name, one in reasons.items() if one == reason)
            code = "changed_variables" if reason == CHANGED else "plain_averages"
            self.findings.append(finding(code, names=own, reason=reason))
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
        order = np.argsort(expected[0].reshape(expected.shape[1], -1)[:, 0])
        # backwards, and those with the lowest and the highest values for themselves
        for places in (np.arange(len(order))[::-1], *np.array_split(order, 2)):
            if not len(places):
                continue
            few = _Named({name: own[:, places] for name, own in flat.items()})
            part = _values(function, few, (1, len(places)))
            if part.shape[2:] != whole.shape[2:] or not agree(expected[0, places], part):
                raise ValueError(
                    "The function must treat each draw for itself, but its values at some draws "
                    "change with the others. Compute beforehand what depends on several draws."
                )
        return whole, used

    def is_of_each_draw(self, values, function):
        """Whether a function of positions (n, d) gives values (chains, draws, ...) at the draws."""
        if self._recomputed.is_of_draws(values, function):
            return True
        self.findings.append(finding("changing_function"))
        return False

    def at(self, x, function, names):
        """Return the values of a function of the variables `names` at points x (n, d), (n, ...)."""
        variables = {name: own[None] for name, own in self._recomputed.at(x, names).items()}
        return _values(function, _Named(variables), (1, len(x)))[0]


def _result_of(dt, posterior, model):
    """Return the Result, with what the sampler has kept of the draws to correct averages by."""
    plain, groups = Result(dt, posterior, model), getattr(dt, "children", ())
    group = next((name for name in KEPT_GROUPS if name in groups), None)
    if group is None or LEARNED_GROUP not in groups:
        return plain
    kept, learned = dt[group].to_dataset(), learned_in(dt)
    if not {"chain", "draw"} <= set(kept.dims):
        return plain
    numbers = {dim: np.unique(posterior[dim]) for dim in ("chain", "draw")}
    known = {"chain": np.intersect1d(kept["chain"], learned["chain"]), "draw": kept["draw"]}
    why_not = ""
    if any(
        len(own) < posterior.sizes[dim] or not np.isin(own, known[dim]).all()
        for dim, own in numbers.items()
    ):
        why_not = "chains or draws have been renumbered since sampling"
    elif len(np.unique(np.diff(numbers["draw"]))) > 1:
        why_not = (
            "some were selected, perhaps by their values, and corrections need draws at equal "
            "distances"
        )
    if why_not:
        return plain._replace(findings=(finding("changed_draws", reason=why_not),))
    return Result(dt, posterior.sel(numbers), model, group, kept.sel(numbers), learned)


def _one_chain(values):
    return values.reshape(1, -1, *values.shape[2:])


def _values(function, variables, shape):
    """Return what a function makes of arrays of this shape (chains, draws), ..., as float64."""
    with np.errstate(all="ignore"):
        found = function(variables)
    here = f"({shape[0]}, {shape[1]}, ...)"
    wanted = f"The function must return an array (chain, draw, ...), here of shape {here}"
    if isinstance(found, Mapping | list | tuple):
        kind = type(found).__name__
        raise ValueError(f"{wanted}, not a {kind}: average its parts one by one, or stack them.")
    values = np.asarray(found)
    if values.dtype.kind not in "biuf":
        raise ValueError(
            f"{wanted}, of real numbers, not of {values.dtype}: average the real and the imaginary "
            "part of complex numbers, and of text whether it is equal to something."
        )
    if values.shape[:2] != shape or values.size == 0:
        raise ValueError(f"{wanted}, with something to average, not {values.shape}.")
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

    __contains__ = Mapping.__contains__  # which asks for it

    def __iter__(self):
        self.used.update(self.data)
        return super().__iter__()

    def __len__(self):
        self.used.update(self.data)
        return super().__len__()


def side_by_side(variables):
    """Return arrays (chains, draws, ...) by name side by side, float64 (chains, draws, q)."""
    arrays = [np.asarray(values) for values in variables.values()]
    flat = [values.reshape(*values.shape[:2], -1) for values in arrays]
    return np.concatenate(flat, axis=2, dtype=np.float64)


def not_finite(what, values):
    """Tell of values (chains, draws, ...) that are NaN or infinite at some draws."""
    fine = np.isfinite(values).reshape(*values.shape[:2], -1).all(axis=2)
    if fine.all():
        return []
    return [finding("not_finite", name=what, n=int((~fine).sum()), draws=fine.size)]
