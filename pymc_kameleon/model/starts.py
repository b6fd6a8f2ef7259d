"""Where chains start: ``pk.initvals``, dispersed points, and what is not finite at a start."""

from contextlib import suppress

import numpy as np
import pymc as pm

from pymc_kameleon.core.compiler import one_thread_compiles
from pymc_kameleon.core.conventions import FEW
from pymc_kameleon.model.black_boxes import black_boxes
from pymc_kameleon.model.entry_points import black_box_ops_silent
from pymc_kameleon.model.pymc_internals import (
    FlatRV,
    HalfFlatRV,
    make_initial_point_fn,
)

RETRIES = 100
"""Points tried for each chain, until the log-density is finite."""

N_PRIOR = 300
"""Draws of the prior, of which some have to be finite."""

POINTS = {
    "jitter": "about the model's initial point",
    "prior": "drawn from the prior",
}
"""How points are drawn, and what a message says of them."""


def initvals(chains, random_seed=None, how="jitter", model=None):
    """Draw dispersed starting points, one for each chain.

    With a step of your own, ``pm.sample`` starts all chains at the same point. Steps of this
    package jump away from it while they tune; of others R-hat cannot see what no chain explores.

    Parameters
    ----------
    chains : int
        Number of chains, as for ``pm.sample``.
    random_seed : int or numpy.random.Generator, optional
        For reproducible points.
    how : {"jitter", "prior"}, optional
        "jitter" (default) is what PyMC does for NUTS. Each coordinate on the unconstrained scale is
        that of the model's initial point plus a uniform number in (−1, 1). Discrete variables stay.
        "prior" draws each variable from its prior, which is wider.
    model : pm.Model, optional
        Taken from the context by default.

    Returns
    -------
    list of dict
        Name of each free variable → value on its natural scale.

    Raises
    ------
    ValueError
        For an impossible option, a variable without a prior to draw from (``pm.Flat``), or if the
        log-density is not finite at any of 100 points.

    Examples
    --------
    >>> with model:
    ...     dt = pm.sample(step=pm.DEMetropolisZ(), chains=4, initvals=pk.initvals(4))
    """
    model = pm.modelcontext(model)
    if isinstance(chains, bool) or not isinstance(chains, int | np.integer) or chains < 1:
        raise ValueError(f"chains must be an integer from 1 on, not {chains!r}.")
    if how not in ("jitter", "prior"):
        raise ValueError(f'how must be "jitter" or "prior", not {how!r}.')
    rng = np.random.default_rng(random_seed)
    with black_box_ops_silent():
        draw = jittered(model) if how == "jitter" else starts_from_prior(model)
        logp = model.compile_logp()
        points = [finite_point(draw, logp, rng, how, model) for _ in range(chains)]
        natural = model.compile_fn(
            model.replace_rvs_by_values(model.free_RVs), inputs=model.value_vars, point_fn=True
        )
        names = [rv.name for rv in model.free_RVs]
        return [dict(zip(names, natural(point), strict=True)) for point in points]


def jittered(model, centre=None):
    """Return a function of a seed that draws a point near `centre`, or a model's initial point."""
    with one_thread_compiles:
        initial_point = make_initial_point_fn(model=model) if centre is None else None
    names = [var.name for var in model.continuous_value_vars]

    def draw(seed):
        point = dict(centre) if initial_point is None else initial_point(seed)
        rng = np.random.default_rng(seed)
        for name in names:
            value = point[name]
            point[name] = (value + rng.uniform(-1, 1, value.shape)).astype(value.dtype)
        return point

    return draw


def starts_from_prior(model):
    """Return a function of a seed that draws a point from the prior, on the unconstrained scale."""
    overrides = dict.fromkeys(model.free_RVs, "prior")
    with one_thread_compiles:
        draw = make_initial_point_fn(model=model, overrides=overrides)
    try:
        draw(0)
    except NotImplementedError:
        flat = [rv.name for rv in model.free_RVs if isinstance(rv.owner.op, FlatRV | HalfFlatRV)]
        raise ValueError(
            f"{flat or 'A variable'} has no prior to draw from. Use jittered starts, the default."
        ) from None
    return draw


def finite_point(draw, logp, rng, how, model, failures=()):
    """Draw an unconstrained point at which the log-density is finite.

    `how` is a key of `POINTS`; `logp` adds what it did where it was rejected to `failures`.
    """
    for _ in range(RETRIES):
        point = draw(int(rng.integers(2**30)))
        if np.isfinite(logp(point)):
            return point
    if failures:
        raise ValueError(
            f"No start was found: the log-density was not finite at any of {RETRIES} points. Where "
            f"it failed last, at {point}, it {failures[-1]}."
        )
    terms = terms_that_are_not_finite(model, point)
    bad = [name for name, value in point.items() if not np.all(np.isfinite(value))]
    if bad:
        reason = f"{bad} cannot be transformed (an ordered variable?)"
    elif terms:
        reason = f"the terms {terms} are not, at {point}"
    else:
        reason = f"all its terms are finite at {point}, which must be outside the region"
    other = "jitter" if how == "prior" else "prior"
    raise ValueError(
        f"The log-density is not finite at any of {RETRIES} points {POINTS[how]}: {reason}. "
        f'Try pk.initvals(how="{other}"), give initvals by hand, or check priors, data and region.'
    )


def terms_that_are_not_finite(model, point):
    """Return name -> log-density of the variables whose own is not finite at a point."""
    with black_box_ops_silent():
        terms = {name: float(logp) for name, logp in model.point_logps(point).items()}
    return {name: logp for name, logp in terms.items() if not np.isfinite(logp)}


# ---- of draws -----------------------------------------------------------------------------------


def prior_draws(model, layout):
    """Return finite draws (n, d) of a step's variables from the prior, None if there are few."""
    if any(black_boxes([rv]) for rv in model.free_RVs):
        return None
    try:
        draw = starts_from_prior(model)
    except ValueError:
        return None
    points = []
    for seed in range(N_PRIOR):
        with suppress(ArithmeticError):  # as of an inverse gamma with a small shape, at 1 / 0
            points.append(layout.raveled(draw(seed))[layout.places[: layout.d]])
    finite = [point for point in points if np.isfinite(point).all()]
    return np.array(finite) if len(finite) >= FEW else None
