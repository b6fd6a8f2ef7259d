"""Log-densities that are only estimated: pseudo-marginal Metropolis.

A likelihood may be replaced by an unbiased estimate of it, if the estimate at the current point is
kept until a move is accepted [AR]. Its noise comes from a seed, an integer input of the model,
which core/target.py draws from the chain's Generator before each evaluation.

Source: Andrieu & Roberts, "The pseudo-marginal approach for efficient Monte Carlo computations",
Annals of Statistics 37 (2009), here [AR]. Symbols: v the variance of the log-estimate at one point.
"""

import numpy as np
import pymc as pm
import pytensor
from pytensor.graph.traversal import ancestors

from pymc_kameleon.core.conventions import FEW
from pymc_kameleon.findings.finding import finding, say

NOISE_SEED = "noise_seed"
"""The name of the seed in the model."""

NOISE_STATISTIC = "log_estimate_var"
"""The statistic that tells v; NaN while tuning."""

TOO_NOISY = 4.0
"""v above which a chain warns: with a normal log-estimate the best random walk then accepts 6 %,
and moves 28 % as far, squared, as without noise."""

REPEATABLE = 1e-6
"""Difference of two evaluations, absolute or relative, that counts as none."""


def noise_seed(model=None):
    """Return the seed of an estimated likelihood, an integer that becomes part of the model.

    Samplers with ``pseudo_marginal=True`` draw it before each evaluation, so an estimator has to
    draw all its random numbers from it.

    Parameters
    ----------
    model : pm.Model, optional
        Taken from the context by default.

    Returns
    -------
    pytensor variable
        A scalar int64, in the model as "noise_seed", one for all its estimates: two of them are
        independent if they take it as ``default_rng([int(seed), 0])`` and ``[int(seed), 1]``.

    Raises
    ------
    ValueError
        If the model has it already.

    Examples
    --------
    >>> @pk.black_box(ndim=0)
    ... def log_estimate(theta, seed):
    ...     rng = np.random.default_rng(int(seed))
    ...     return -(theta**2) / 2 + 0.1 * rng.normal()
    >>> with pm.Model():
    ...     theta = pm.Normal("theta")
    ...     pm.Potential("likelihood", log_estimate(theta, pk.noise_seed()))
    ...     dt = pk.sample(step=pk.GAM(pseudo_marginal=True))
    """
    model = pm.modelcontext(model)
    if NOISE_SEED in model:
        raise ValueError(
            f"The model already has its {NOISE_SEED}, the one seed of all its estimates: use "
            f'model["{NOISE_SEED}"], and let two estimates draw from [int(seed), 0] and '
            "[int(seed), 1]."
        )
    seed = pytensor.shared(np.int64(0), name=NOISE_SEED)
    model.register_data_var(seed)
    return seed


def target_accept(d):
    """Return the acceptance rate that scales are tuned to, near the best one for 0.25 < v < 4."""
    return 0.1


# ---- when a step is built -----------------------------------------------------------------------


def check_sampler(step):
    """Raise a ValueError if a step that is to keep estimates cannot."""
    name, layout = type(step).__name__, step.layout
    if not layout.covers_all:
        others = [var.name for var in step.model.value_vars if var.name not in layout.shapes]
        raise ValueError(
            f"With pseudo_marginal=True {name} has to move all variables of the model, but leaves "
            f"{others} to other steps. When these move, the estimate that is kept would have to be "
            "made again, and the draws would be wrong."
        )


CURE = "Use pk.GAM(pseudo_marginal=True), pk.KAM, pk.CMH or pk.CMTM."  # of other samplers


def check_model(step):
    """Raise a ValueError unless a step and its model agree on what is only estimated."""
    name, model = type(step).__name__, step.model
    if step.log_density.is_estimate and not step.pseudo_marginal:
        cure = CURE if step.needs_exact_logp else f"Make it {name}(pseudo_marginal=True)."
        raise ValueError(
            f"The model's log-density depends on {NOISE_SEED}, so it is only estimated. {cure}"
        )
    if not step.pseudo_marginal:
        return
    if not step.log_density.is_estimate:
        raise ValueError(
            f"{name} is to be pseudo_marginal, but the model's log-density does not depend on "
            "pk.noise_seed(). Make it an input of the estimator, and draw all random numbers from "
            "it; an estimator with a generator of its own repeats its noise in several chains."
        )
    noisy = [v.name for v in model.deterministics if model[NOISE_SEED] in ancestors([v])]
    if noisy:
        raise ValueError(
            f"{noisy} depend on {NOISE_SEED}, so their values would be other estimates than those "
            "that the chain keeps. Leave out pm.Deterministic for them."
        )


def say_if_noisy(step, values):
    """Log a warning if evaluations at one point, with the same seed, differ."""
    values = np.array(values)
    differ = ~np.isclose(values, values[:1], rtol=REPEATABLE, atol=REPEATABLE)
    if differ.any():
        before, after = values[0], values[differ][0]
        say("noisy_density", before=before, after=after, sampler=type(step).__name__)


# ---- in a chain ---------------------------------------------------------------------------------


def estimate_variance(log_density, q):
    """Return v at the point `q` (n,); inf if some estimates are 0."""
    values = np.array([log_density(q) for _ in range(FEW)])
    return float(values.var(ddof=1)) if np.isfinite(values).all() else np.inf


def explain_moved(step):
    """Return why a chain cannot go on whose variables another step has moved."""
    return (
        f"{type(step).__name__} with pseudo_marginal=True keeps an estimate of the log-density "
        f"where it is, but another step has moved {', '.join(step.var_names)}, and "
        "draws would be wrong. It has to be the only step: leave the others out."
    )


def noise_of(step):
    """Tell of estimates that are too noisy to work with."""
    v = step.monitor.noise
    return finding("noisy_estimates", variance=v) if v > TOO_NOISY else None
