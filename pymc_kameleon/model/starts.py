"""Where chains start: ``pk.initvals``, dispersed points, and what is not finite at a start."""

import warnings

import numpy as np
import pymc as pm

from pymc_kameleon.model.entry_points import black_box_ops_silent
from pymc_kameleon.model.pymc_internals import FlatRV, HalfFlatRV, make_initial_point_fn

RETRIES = 100
"""Points tried for each chain, until the log-density is finite."""


def initvals(chains, random_seed=None, how="jitter", model=None):
    """Draw dispersed starting points, one for each chain.

    With a step of your own, ``pm.sample`` starts all chains at the same point. Steps of this
    package jump away from it while they tune; other steps do not. If no chain then explores a
    mode, or a slow direction, R-hat cannot see that.

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
        draw = jittered(model) if how == "jitter" else _from_prior(model)
        logp = model.compile_logp()
        points = [finite_point(draw, logp, rng, how, model) for _ in range(chains)]
        natural = model.compile_fn(
            model.replace_rvs_by_values(model.free_RVs), inputs=model.value_vars, point_fn=True
        )
        names = [rv.name for rv in model.free_RVs]
        return [dict(zip(names, natural(point), strict=True)) for point in points]


def jittered(model):
    """Return a function of a seed that draws a point on the unconstrained scale."""
    initial_point = make_initial_point_fn(model=model)
    names = [var.name for var in model.continuous_value_vars]

    def draw(seed):
        point, rng = initial_point(seed), np.random.default_rng(seed)
        for name in names:
            value = point[name]
            point[name] = (value + rng.uniform(-1, 1, value.shape)).astype(value.dtype)
        return point

    return draw


def _from_prior(model):
    overrides = dict.fromkeys(model.free_RVs, "prior")
    draw = make_initial_point_fn(model=model, overrides=overrides)
    try:
        draw(0)
    except NotImplementedError:
        flat = [rv.name for rv in model.free_RVs if isinstance(rv.owner.op, FlatRV | HalfFlatRV)]
        raise ValueError(
            f'{flat or "A variable"} has no prior to draw from. Use how="jitter".'
        ) from None
    return draw


def finite_point(draw, logp, rng, how, model, failures=()):
    """Draw a point on the unconstrained scale at which the log-density is finite.

    `failures` are what it did where it was rejected for that, to which `logp` adds.
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
        f'The log-density is not finite at any of {RETRIES} points with how="{how}": {reason}. '
        f'Try pk.initvals(how="{other}"), give initvals by hand, or check priors, data and region.'
    )


def terms_that_are_not_finite(model, point):
    """Return name -> log-density of the variables whose own is not finite at a point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTensor, of black-box Ops
        terms = {name: float(logp) for name, logp in model.point_logps(point).items()}
    return {name: logp for name, logp in terms.items() if not np.isfinite(logp)}
