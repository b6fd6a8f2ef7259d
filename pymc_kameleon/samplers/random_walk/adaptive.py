"""AM, RBAM and GAM: random walks that learn a covariance.

Sources: Andrieu & Thoms, "A tutorial on adaptive MCMC", Statistics and Computing 18 (2008), here
[AT]; Gelman, Roberts & Gilks (1996) for the scale 2.38/√d.

Symbols: x the position (d,), y the proposal, ξ ~ N(0, I), λ the scale and Σ = LLᵀ the covariance,
μ the mean that Σ is taken about, η the learning rate, α the acceptance probability and α* its
target, t the transition, n the number of tuning transitions.
"""

from typing import NamedTuple

from pymc_kameleon.core.arrays import allocate, integers
from pymc_kameleon.core.chain import Algorithm, nothing_derived
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy_matrix
from pymc_kameleon.core.moments import (
    learning_rate,
    renew_moments,
    update_from_both,
    update_mean_and_factor,
)
from pymc_kameleon.core.scaling import best_scale, settle_scale
from pymc_kameleon.core.schedules import UNSET
from pymc_kameleon.core.shape import ShapeTuning, learn_shape, set_to_best, tune_scale_of
from pymc_kameleon.samplers.learned_shape import LearnedShape
from pymc_kameleon.samplers.one_scale import report_scale, tuned_scale
from pymc_kameleon.samplers.random_walk.rwm import State, Work, transition
from pymc_kameleon.step.learned import learned_walk, proposal_of_walk
from pymc_kameleon.step.options import checked_scaling_bounds, checked_schedule


class Tuning(NamedTuple):
    """What tuning remembers: t of n, μ and Σ."""

    t: integers(1)
    n: int
    shape: ShapeTuning


class AdaptiveWalk(LearnedShape):
    """What AM, RBAM and GAM share."""

    proposal = staticmethod(proposal_of_walk)
    _learned = learned_walk

    def __init__(self, vars=None, *, learning_rate=None, **common):
        self.settings = {**self.settings, "learning_rate": checked_rate(learning_rate)}
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        sizes, settings = {"d": scales.size}, self.settings
        shape, shape_tuning = ShapeTuning.start(
            scales,
            n_tune,
            self.target_accept,
            best_scale(scales.size),
            settings.get("scaling_bounds"),
            settings["learning_rate"] or UNSET,
        )
        tuning = allocate(Tuning, sizes, n=n_tune, shape=shape_tuning)
        return allocate(State, sizes), shape, tuning, allocate(Work, sizes)


def checked_rate(rate):
    """Return a learning rate as a Decay, or None; raise a ValueError unless it is below 1."""
    if rate is None:
        return None
    schedule = checked_schedule("learning_rate", rate)
    if schedule.start > 1 or schedule == (1, schedule.delay, 0):
        raise ValueError(f"learning_rate must be below 1, or start from 1, not {rate!r}.")
    return schedule


# ---- AM: λ = 2.38²/d ----------------------------------------------------------------------------


@jit
def am_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Learn Σ from the state after the move [AT, algorithm 2]; before it is seeded, this is RWM."""
    t, moments = tuning.t[0], tuning.shape.moments
    eta = tune_then_fix(parameters, tuning.shape, state.x, accept_prob, t)
    if eta > 0.0:
        update_mean_and_factor(moments.mean, moments.factor, state.x, eta, work.v)
    copy_matrix(moments.factor, parameters.factor)
    tuning.t[0] = t + 1


@jit
def tune_then_fix(parameters, tuning, x, accept_prob, t):
    """Tune λ as long as Σ is seeded, then fix it; return η, 0 if Σ is not to follow it."""
    moments = tuning.moments
    if moments.seeding[1] == 0 or t < moments.n_fast:
        tune_scale_of(parameters, tuning, accept_prob, t)
    else:
        set_to_best(parameters, tuning)
    eta = learning_rate(moments, t)
    if renew_moments(moments, x, t):
        set_to_best(parameters, tuning)
        return 0.0
    return eta


class AM(AdaptiveWalk):
    r"""Adaptive Metropolis: a random walk with the posterior's own covariance, its scale fixed.

    .. math:: y \sim N(x, \lambda\Sigma), \qquad \lambda = 2.38^2/d

    The classical baseline. Prefer :class:`.GAM`, which also tunes λ. See docs/random_walk.md.

    Parameters
    ----------
    learning_rate : float or pk.samplers.Decay, optional
        η at transition t. By default 1/max(16 d, 2t/3), a memory of two thirds of the past, with
        which μ and Σ are also seeded afresh at doubling times. With a rate of your own they are
        seeded once.
    {common parameters}

    Notes
    -----
    Σ learns from the state after the move [AT, algorithm 2]. In the first half of tuning, as long
    as it is seeded afresh, λ is tuned as in :class:`.GAM`, to ``target_accept``; with a learning
    rate of your own only until Σ is seeded.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.baselines.AM())
    """

    name = "am"
    algorithm = Algorithm(transition, am_adapt, nothing_derived, report_scale)


# ---- RBAM: AM, Rao-Blackwellised ----------------------------------------------------------------


@jit
def rbam_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Learn Σ from x before the move and y, weighted by α [AT, algorithm 3]."""
    t, moments = tuning.t[0], tuning.shape.moments
    eta = tune_then_fix(parameters, tuning.shape, state.x, accept_prob, t)
    if eta > 0.0:
        update_from_both(moments.mean, moments.factor, work.x, work.y, accept_prob, eta, work.v)
    copy_matrix(moments.factor, parameters.factor)
    tuning.t[0] = t + 1


class RBAM(AdaptiveWalk):
    r"""Rao-Blackwellised adaptive Metropolis: AM that also learns from rejected proposals.

    .. math:: y \sim N(x, \lambda\Sigma), \qquad \lambda = 2.38^2/d

    Parameters
    ----------
    learning_rate : float or pk.samplers.Decay, optional
        η at transition t; as for :class:`.AM`.
    {common parameters}

    Notes
    -----
    Σ learns from x before the move and the proposal y, weighted by its acceptance probability
    [AT, algorithm 3]: the expectation of :class:`.AM`'s update over acceptance.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.baselines.RBAM())
    """

    name = "rbam"
    algorithm = Algorithm(transition, rbam_adapt, nothing_derived, report_scale)


# ---- GAM: λ tuned -------------------------------------------------------------------------------


@jit
def gam_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Learn Σ from the state after the move, and tune log λ [AT, algorithm 4]."""
    t, n, scale = tuning.t[0], tuning.n, tuning.shape.scale
    learn_shape(parameters, tuning.shape, state.x, accept_prob, t, work.v)
    settle_scale(parameters.log_scale, scale, 0, t, n - n // 2, n)
    tuning.t[0] = t + 1


class GAM(AdaptiveWalk):
    r"""Global adaptive Metropolis: a random walk with the posterior's own covariance, scale tuned.

    .. math:: y = x + \sqrt{\lambda}\, L \xi, \qquad \xi \sim N(0, I), \quad LL^\top = \Sigma

    Σ is learned from the chain and λ tuned to the acceptance rate. The first choice without a
    gradient for many parameters; for up to about 40 see :class:`.SurrogateMetropolis`.

    Parameters
    ----------
    learning_rate : float or pk.samplers.Decay, optional
        η at transition t; as for :class:`.AM`.
    scaling_bounds : (float, float), optional
        Least and largest √λ; by default within a factor of 1e6 of 2.38/√d, where it starts.
    {common parameters}

    Notes
    -----
    The statistic ``scaling`` is √λ. Before the first draw an optimiser goes to the posterior. Σ is
    seeded from the newest half of the past, at doubling times up to half of tuning, and otherwise
    follows [AT], algorithm 4, in O(d²). In ``pk.sample`` the chains pool it. Deviations: [AT]
    leaves η open, and has no seeding, without which the way from a far start stays in Σ. See
    docs/random_walk.md.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.GAM())  # all variables, whole chains compiled
    ...     dt = pm.sample(step=[pk.GAM(["a"])])  # PyMC's own steps take the other variables
    """

    name = "gam"
    algorithm = Algorithm(transition, gam_adapt, nothing_derived, report_scale)

    def __init__(self, vars=None, *, learning_rate=None, scaling_bounds=None, **common):
        self.settings = {"scaling_bounds": checked_scaling_bounds(scaling_bounds)}
        super().__init__(vars, learning_rate=learning_rate, **common)

    def _tuned_scales(self):
        return tuned_scale(self.parameters, self.tuning.shape)
