"""Gradients of the log-density at the draws of any result, kept in its group ``gradients``."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import xarray as xr
from arviz_stats.base import array_stats
from pytensor.graph.traversal import graph_inputs

from pymc_kameleon.analysis.batches import LEAST_DRAWS
from pymc_kameleon.analysis.corrections import Correction, NotCorrected
from pymc_kameleon.analysis.identity import (
    probability_of_means,
    why_not_by_density,
    why_not_by_graph,
)
from pymc_kameleon.analysis.limits_of_r_hat import limits_of_r_hat
from pymc_kameleon.analysis.recomputed import CHANGED, Recomputed
from pymc_kameleon.analysis.trust import LONG_TAIL, pareto_k
from pymc_kameleon.analysis.unconstrained_draws import (
    NotMapped,
    on_unconstrained_scale,
    variables_lacking,
)
from pymc_kameleon.analysis.zero_variance import controls_of, zero_variance
from pymc_kameleon.findings.words import some
from pymc_kameleon.model.black_boxes import is_of_user, name_of, ops_of
from pymc_kameleon.model.functions import ModelLogp
from pymc_kameleon.model.noise import REPEATABLE
from pymc_kameleon.model.pymc_internals import find_constants, find_observations
from pymc_kameleon.result.opening import known_logp, statistics_in
from pymc_kameleon.result.steps import restrictions
from pymc_kameleon.step.groups import GRADIENTS, STATE_GROUP
from pymc_kameleon.step.messages import say_if_compiling

PART = 200
"""Points that are evaluated at a time."""

LEAST_P = 1e-5
"""Probability of the means of controls below which these are not used."""


def by_gradients(result):
    """Return the Correction by gradients of the log-density."""
    controls = controls_by_gradients(result.dt, result.posterior, result.model)
    return Correction(lambda values, _: zero_variance(values, controls))


def model_of_gradients(posterior, model):
    """Return the model that gives gradients: the given one, or that of the context; else None."""
    if model is not None:
        return pm.modelcontext(model)
    model = pm.Model.get_context(error_if_none=False)
    return model if model is not None and not variables_lacking(posterior, model) else None


def controls_by_gradients(dt, posterior, model):
    """Return Controls of a result's draws, by a model, or by what was kept."""
    kept = _kept_of(dt, posterior)
    if kept is None and (model := model_of_gradients(posterior, model)) is None:
        raise NotCorrected("")
    _check_draws(dt, posterior)
    stats = statistics_in(dt)
    diverged = int(stats["diverging"].sum()) if "diverging" in stats else 0
    if kept is None:
        try:
            kept = _evaluated(dt, posterior, model)
        except NotCorrected:
            raise
        except Exception as error:  # of the model, or of what compiles it
            raise NotCorrected(f"computing them raised {type(error).__name__}: {error}") from error
        if isinstance(dt, xr.DataTree):
            dt[GRADIENTS] = xr.DataTree(kept)
    if kept.attrs["broken"]:
        raise NotCorrected(kept.attrs["broken"])
    position, gradient = (
        kept[name].transpose("chain", "draw", "coordinate").values
        for name in ("position", "gradient")
    )
    with np.errstate(all="ignore"):
        r_hat = array_stats.rhat(position, chain_axis=0, draw_axis=1)
        over = np.nan_to_num(r_hat / limits_of_r_hat(position), nan=np.inf)
    if over.max() > 1:
        name, most = kept["coordinate"].values[worst := np.argmax(over)], r_hat[worst]
        raise NotCorrected(f"R-hat of {name} is {most:.3f}, more than so many good draws have")
    if (k := pareto_k(position)).max() > LONG_TAIL:
        name = kept["coordinate"].values[np.argmax(k)]
        raise NotCorrected(f"{name} has a long tail (Pareto k {k.max():.2f}), and so have controls")
    controls = controls_of(position, gradient, diverged)
    if not controls.sizes:
        raise NotCorrected("there are too few draws for so many parameters")
    if not probability_of_means(controls.values[..., : 3 * position.shape[2]]) > LEAST_P:
        raise NotCorrected(
            "controls whose means are 0 have others at these draws: the model is another one, the "
            "draws were selected, or have not converged, or its density does not fall off"
        )
    return controls


def _check_draws(dt, posterior):
    """See that there are chains and draws enough, and all of them."""
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    if STATE_GROUP in getattr(dt, "children", ()) and restrictions(dt[STATE_GROUP].attrs):
        raise NotCorrected("the sampler was held in a region")
    if chains < 2:
        raise NotCorrected("there is one chain only")
    if draws < LEAST_DRAWS:
        raise NotCorrected(f"there are fewer than {LEAST_DRAWS} draws of each chain")
    steps = np.unique(np.diff(posterior["draw"].values))
    if len(steps) == 1 and steps[0] > 1:
        raise NotCorrected("the draws were thinned, and all of them are needed")
    if (steps != 1).any():
        raise NotCorrected(
            "the draws are not numbered one after another: some were selected, repeated or "
            "reordered (runs are joined along chain, not along draw)"
        )


def _kept_of(dt, posterior):
    """Return the group of these draws, None if there is none, or draws have changed since."""
    if GRADIENTS not in getattr(dt, "children", ()):
        return None
    kept = dt[GRADIENTS].to_dataset()
    wanted = {dim: posterior[dim].values for dim in ("chain", "draw")}
    if not all(
        kept.indexes[dim].is_unique and np.isin(own, kept[dim]).all() for dim, own in wanted.items()
    ):
        return None
    kept = kept.sel(wanted)
    twice = kept.assign(start=kept["position"], end=kept["position"])
    why_not = Recomputed(posterior, twice, None).why_not(list(posterior))
    return None if CHANGED in why_not.values() else kept


def _evaluated(dt, posterior, model):
    """Return a Dataset of positions and gradients at all draws."""
    if lacking := variables_lacking(posterior, model):
        raise NotCorrected(f"the draws lack {some(lacking)} of the model")
    if model.discrete_value_vars:
        raise NotCorrected(f"{model.discrete_value_vars} are discrete")
    logp = model.logp()
    boxes = sorted({name_of(op) for op in ops_of([logp]) if is_of_user(op)})
    if boxes and "diverging" not in statistics_in(
        dt
    ):  # NUTS has called them for each draw, many times
        raise NotCorrected(f"gradients would call {' and '.join(boxes)}")
    if reason := why_not_by_graph(logp, model.value_vars):
        raise NotCorrected(reason)
    _check_data(dt, model, logp)
    try:
        x, layout, point = on_unconstrained_scale(posterior, model)
        with say_if_compiling("the gradient of the model"):
            everywhere = np.full((2, layout.d), np.inf) * [[-1], [1]]
            own = model.value_vars
            density = Density(ModelLogp(model, own, point, {}, everywhere, 1).compiled())
    except (NotMapped, ValueError) as error:  # without a gradient, or noisy
        raise NotCorrected(str(error)) from error
    flat = np.ascontiguousarray(x.reshape(-1, layout.d))
    logp, gradients = density(flat)
    if not (np.isfinite(logp).all() and np.isfinite(gradients).all()):
        raise NotCorrected("the log-density of the model, or its gradient, is not finite at a draw")
    _check_it_is_the_model(dt, logp.reshape(x.shape[:2]))
    dims = "chain", "draw", "coordinate"
    return xr.Dataset(
        {
            "position": (dims, x),
            "gradient": (dims, gradients.reshape(x.shape)),
        },
        {
            "chain": posterior["chain"].values,
            "draw": posterior["draw"].values,
            "coordinate": layout.coordinates(),
        },
        {"broken": why_not_by_density(density, x, logp, gradients)},
    )


def _check_data(dt, model, logp):
    """Compare the data that log π depends on with those that the result has kept."""
    used = {var.name for var in graph_inputs([logp])}
    constants = {name: own for name, own in find_constants(model).items() if name in used}
    for group, data in (("observed_data", find_observations(model)), ("constant_data", constants)):
        kept = dt[group] if group in getattr(dt, "children", ()) else {}
        for name in data.keys() & set(kept):
            before, now = kept[name].values, np.asarray(data[name])
            precision = {"rtol": np.finfo(np.float32).eps, "atol": 0.0, "equal_nan": True}
            if before.shape != now.shape or not np.allclose(before, now, **precision):
                raise NotCorrected(f"{name} has changed since the draws were made")


def _check_it_is_the_model(dt, logp):
    """Compare log π (chains, draws) with what the sampler has kept of it, up to a constant."""
    kept = known_logp(dt, ("lp", "logp"))
    if kept is None or kept.shape != logp.shape or not np.isfinite(kept).all():
        return
    off = min(np.std(kept - logp), np.std(kept + logp))  # of an energy
    if off > REPEATABLE * (1 + np.abs(logp).max()):
        raise NotCorrected(
            "the model gives another log-density at the draws than the sampler has kept: it, or "
            "its data, may have been changed"
        )


class Density:
    """Log π and its gradient at points, of a ModelLogp with a gradient, by all processors."""

    def __init__(self, logp):
        if logp.is_estimate:
            raise NotCorrected("the log-density is an estimate")
        self._logp = logp

    def __call__(self, points):
        """Return log π (n,) and ∇log π (n, d) at points (n, d)."""
        logp, gradients = np.empty(len(points)), np.empty(points.shape)
        n_threads = 1 if self._logp.holds_gil else os.cpu_count()

        def evaluated(part):
            density = self._logp.copy()
            with np.errstate(all="ignore"):
                for i in range(len(points))[part]:
                    logp[i] = density(points[i])
                    gradients[i] = density.gradient

        parts = [slice(i, i + PART) for i in range(0, len(points), PART)]
        with ThreadPoolExecutor(n_threads) as pool:
            list(pool.map(evaluated, parts))
        return logp, gradients
