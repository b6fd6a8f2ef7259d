"""Random-walk Metropolis: RWM with one scale; AM, RBAM, GAM and RAM with a learned covariance.

Sources: Andrieu & Thoms, "A tutorial on adaptive MCMC", Statistics and Computing 18 (2008), here
[AT]; Vihola, "Robust adaptive Metropolis algorithm with coerced acceptance rate", Statistics and
Computing 22 (2012), here [V]; Gelman, Roberts & Gilks (1996) for the scale 2.38/√d.

Symbols: x the position (d,), y the proposal, ξ ~ N(0, I), ν the scale of RWM, λ the scale and
Σ = LLᵀ the covariance of the others, μ the mean that Σ is taken about, η the learning rate, α the
acceptance probability and α* its target, t the transition, n the number of tuning transitions.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, floats, integers
from pymc_kameleon.core.chain import Algorithm, nothing_derived
from pymc_kameleon.core.controls import (
    COLUMNS,
    GRID,
    Controls,
    add_controls,
    add_state,
    report_controls,
    standardise,
    tally_size,
)
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import (
    copy,
    copy_matrix,
    log_determinant,
    multiply_lower,
    rank_one_downdate,
    rank_one_update,
    squared_norm,
)
from pymc_kameleon.core.metropolis import accept, normal_step
from pymc_kameleon.core.moments import (
    learning_rate,
    multiply_factor,
    renew_moments,
    update_factor_to_first_order,
    update_from_both,
    update_mean_and_factor,
)
from pymc_kameleon.core.scaling import ScaleTuning, best_scale, set_scale, settle_scale
from pymc_kameleon.core.schedules import UNSET
from pymc_kameleon.core.shape import ShapeTuning, learn_shape, set_to_best, tune_scale_of
from pymc_kameleon.core.target import log_density
from pymc_kameleon.learned import learned_walk, proposal_of_walk, scale_of
from pymc_kameleon.options import checked_choice, checked_rate, checked_scale_bounds
from pymc_kameleon.samplers import control_table
from pymc_kameleon.samplers.keeps_controls import KeepsControls
from pymc_kameleon.samplers.learned_shape import LearnedShape
from pymc_kameleon.samplers.one_scale import OneScale, report_scale, tune_one_scale, tuned_scale


class State(NamedTuple):
    """What the next transition needs: the position and its log-density."""

    x: floats("d")
    logp: floats(1)


# ---- RWM: y = x + νξ ----------------------------------------------------------------------------


class RWMParameters(NamedTuple):
    """What tuning decides: log ν."""

    log_scale: floats(1)


class RWMWork(NamedTuple):
    """Scratch."""

    y: floats("d")


@jit
def rwm_transition(target, state, parameters, work, rng):
    """Propose x + νξ."""
    scale = np.exp(parameters.log_scale[0])
    for i in range(state.x.size):
        work.y[i] = state.x[i] + scale * rng.standard_normal()
    return accept(target, state, work.y, log_density(target, work.y), 0.0, rng)


class RWM(OneScale):
    r"""Random-walk Metropolis with one scale.

    .. math:: y = x + \nu \xi, \qquad \xi \sim N(0, I)

    The baseline of the other samplers: it suits posteriors whose parameters have similar scales
    and hardly correlate. Otherwise prefer :class:`GAM`.

    Parameters
    ----------
    scaling : float, optional
        ν at first, which is then tuned; by default 2.38/√d.
    tune_scaling : bool, optional
        False keeps ν fixed.
    scale_bounds : (float, float), optional
        Least and largest ν; by default within a factor of 1e6 of where it starts.
    {common parameters}

    Notes
    -----
    log ν follows [AT]'s Robbins-Monro recursion with step size :math:`(1+t)^{-0.6}` and settles at
    its mean over the second half of tuning.

    Examples
    --------
    >>> with model:
    ...     dt = pm.sample(step=pk.RWM(scaling=0.5, tune_scaling=False))  # a fixed scale
    """

    name = "rwm"
    algorithm = Algorithm(rwm_transition, tune_one_scale, nothing_derived, report_scale)

    def _allocate(self, scales, n_tune):
        sizes = {"d": scales.size}
        log_scale, tuning = self._start(best_scale(scales.size), n_tune)
        parameters = RWMParameters(log_scale)
        return allocate(State, sizes), parameters, tuning, allocate(RWMWork, sizes)

    def _learned(self):
        return {"scale": scale_of(self.parameters, "Standard deviation ν of the proposal.")}


# ---- walks with a covariance: y = x + √λ L ξ ----------------------------------------------------


class Tuning(NamedTuple):
    """What tuning remembers: the transition t of n, μ and Σ.

    `on_factor` is whether AM's recursion is that on L.
    """

    t: integers(1)
    n: int
    shape: ShapeTuning
    on_factor: bool


class Work(NamedTuple):
    """Scratch, and what adaptation wants to know of the last transition."""

    x: floats("d")  # before the move
    xi: floats("d")
    step: floats("d")  # √λ L ξ
    y: floats("d")
    v: floats("d")


@jit
def transition(target, state, parameters, work, rng):
    """Propose x + √λ L ξ."""
    copy(state.x, work.x)
    scale = np.exp(parameters.log_scale[0])
    return walk(target, state, scale, parameters.factor, work, rng)


@jit
def walk(target, state, scale, factor, work, rng):
    """Make a step of a random walk, x + scale · factor ξ."""
    normal_step(scale, factor, work.xi, work.step, rng)
    for i in range(state.x.size):
        work.y[i] = state.x[i] + work.step[i]
    return accept(target, state, work.y, log_density(target, work.y), 0.0, rng)


def start_walk(step, scales, n_tune, target_accept=None):
    """Return the first Shape and ShapeTuning of a walk that learns its covariance."""
    return ShapeTuning.start(
        scales,
        n_tune,
        step.target_accept if target_accept is None else target_accept,
        best_scale(scales.size),
        step.settings.get("scale_bounds"),
        step.settings.get("learning_rate") or UNSET,
    )


def allocate_walk(step, scales, n_tune):
    """Return fresh (state, parameters, tuning, work) of AM, RBAM and GAM."""
    sizes = {"d": scales.size}
    shape, shape_tuning = start_walk(step, scales, n_tune)
    on_factor = step.settings.get("update") == "cholesky"
    tuning = allocate(Tuning, sizes, n=n_tune, shape=shape_tuning, on_factor=on_factor)
    return allocate(State, sizes), shape, tuning, allocate(Work, sizes)


# ---- AM: λ = 2.38²/d ----------------------------------------------------------------------------


@jit
def am_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Learn Σ from the state after the move [AT, algorithm 2].

    Until Σ is seeded, this is RWM with the shape that it starts with.
    """
    t, moments = tuning.t[0], tuning.shape.moments
    eta = tune_then_fix(parameters, tuning.shape, state.x, accept_prob, t)
    if eta > 0.0 and tuning.on_factor:
        update_factor_to_first_order(moments.mean, moments.factor, state.x, eta, work.v)
    elif eta > 0.0:
        update_mean_and_factor(moments.mean, moments.factor, state.x, eta, work.v)
    copy_matrix(moments.factor, parameters.factor)
    tuning.t[0] = t + 1


@jit
def tune_then_fix(parameters, tuning, x, accept_prob, t):
    """Tune λ as long as Σ is seeded afresh, so that a far start is left behind; then fix it.

    Returns η, or 0 if Σ is not to follow its recursion: it was seeded afresh, or never.
    """
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


class AM(LearnedShape):
    r"""Adaptive Metropolis: a random walk with the posterior's own covariance, its scale fixed.

    .. math:: y \sim N(x, \lambda\Sigma), \qquad \lambda = 2.38^2/d

    The classical baseline. Prefer :class:`GAM`, which also tunes λ. See docs/random_walk.md.

    Parameters
    ----------
    update : {"rank_one", "cholesky"}, optional
        How the factor L of Σ learns. "rank_one" (default) follows Σ exactly. "cholesky" is [GAD]'s
        recursion on L, which does so to first order in η only; it is there for comparison.
    learning_rate : float or pk.Decay, optional
        η at transition t. By default 1/max(16 d, 2t/3), a memory of two thirds of the past, with
        which μ and Σ are also seeded afresh at doubling times. With a rate of your own they are
        seeded once.
    {common parameters}

    Notes
    -----
    Σ learns from the state after the move [AT, algorithm 2]. In the first half of tuning, as long
    as it is seeded afresh, λ is tuned as in :class:`GAM`, to ``target_accept``; with a learning
    rate of your own only until Σ is seeded.

    References
    ----------
    Haario, Saksman & Tamminen (2001). An adaptive Metropolis algorithm. Bernoulli 7.
    Titsias & Dellaportas (2019). Gradient-based adaptive Markov chain Monte Carlo. NeurIPS,
    appendix B, here [GAD].

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.AM())
    """

    name = "am"
    algorithm = Algorithm(transition, am_adapt, nothing_derived, report_scale)
    _allocate = allocate_walk
    proposal = staticmethod(proposal_of_walk)
    _learned = learned_walk

    def __init__(self, vars=None, *, update="rank_one", learning_rate=None, **common):
        checked_choice("update", update, ("rank_one", "cholesky"))
        self.settings = {"update": update, "learning_rate": checked_rate(learning_rate)}
        super().__init__(vars, **common)


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


class RBAM(LearnedShape):
    r"""Rao-Blackwellised adaptive Metropolis: AM that also learns from rejected proposals.

    .. math:: y \sim N(x, \lambda\Sigma), \qquad \lambda = 2.38^2/d

    Parameters
    ----------
    learning_rate : float or pk.Decay, optional
        η at transition t; as for :class:`AM`.
    {common parameters}

    Notes
    -----
    Σ learns from x before the move and the proposal y, weighted by its acceptance probability
    [AT, algorithm 3]: the expectation of :class:`AM`'s update over acceptance.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.RBAM())
    """

    name = "rbam"
    algorithm = Algorithm(transition, rbam_adapt, nothing_derived, report_scale)
    _allocate = allocate_walk
    proposal = staticmethod(proposal_of_walk)
    _learned = learned_walk

    def __init__(self, vars=None, *, learning_rate=None, **common):
        self.settings = {"learning_rate": checked_rate(learning_rate)}
        super().__init__(vars, **common)


# ---- GAM: λ tuned -------------------------------------------------------------------------------


@jit
def gam_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Learn Σ from the state after the move, and tune log λ [AT, algorithm 4]."""
    t, n, scale = tuning.t[0], tuning.n, tuning.shape.scale
    learn_shape(parameters, tuning.shape, state.x, accept_prob, t, work.v)
    settle_scale(parameters.log_scale, scale, 0, t, n - n // 2, n)
    tuning.t[0] = t + 1
    return True  # what is derived is of use after tuning only


# ---- GAM that keeps control variates -------------------------------------------------------------


class ControlledState(NamedTuple):
    """A State, and what control variates need.

    Attributes
    ----------
    x, logp
    z : (d,) float64
        L⁻¹(x − μ).
    tally : (4d + 2,) float64
        See `tally_size`.
    """

    x: floats("d")
    logp: floats(1)
    z: floats("d")
    tally: floats("tally")


class ControlledParameters(NamedTuple):
    """What tuning decides: a Shape, and what control variates need."""

    log_scale: floats(1)
    factor: floats("d", "d")
    controls: Controls


class ControlledWork(NamedTuple):
    """Scratch, as Work."""

    x: floats("d")
    xi: floats("d")
    step: floats("d")
    y: floats("d")
    v: floats("d")
    expected: floats(COLUMNS)


@jit
def controlled_transition(target, state, parameters, work, rng):
    """Propose x + √λ L ξ, and add up control variates."""
    accept_prob, accepted = transition(target, state, parameters, work, rng)
    d, controls = state.x.size, parameters.controls
    scale = np.exp(parameters.log_scale[0])
    for k in range(d):
        work.v[k] = scale * work.xi[k]
    add_state(controls, work.x, state.tally)
    sums = state.tally[1 + 2 * d :]
    add_controls(controls, work.x, work.y, state.z, work.v, accept_prob, work.expected, sums)
    if accepted:
        for k in range(d):
            state.z[k] += work.v[k]
    return accept_prob, accepted


@jit
def controlled_derived(state, parameters, work):
    """Compute z."""
    standardise(parameters.controls, parameters.factor, state.x, work.v, state.z)


@jit
def controlled_report(state, parameters, stats):
    """Report √λ, and what is kept for the controls."""
    report_controls(state.x, state.tally, stats)
    return np.exp(parameters.log_scale[0])


WALK = Algorithm(transition, gam_adapt, nothing_derived, report_scale)
CONTROLLED = Algorithm(controlled_transition, gam_adapt, controlled_derived, controlled_report)


class GAM(KeepsControls, LearnedShape):
    r"""Global adaptive Metropolis: a random walk with the posterior's own covariance, scale tuned.

    .. math:: y = x + \sqrt{\lambda}\, L \xi, \qquad \xi \sim N(0, I), \quad LL^\top = \Sigma

    Σ is learned from the chain and λ tuned to the acceptance rate. The first choice without a
    gradient for more than some 30 parameters; for fewer see :class:`SurrogateMetropolis`.

    Parameters
    ----------
    learning_rate : float or pk.Decay, optional
        η at transition t; as for :class:`AM`.
    scale_bounds : (float, float), optional
        Least and largest √λ; by default within a factor of 1e6 of 2.38/√d, where it starts.
    control_variates : bool, optional
        Let ``pk.sample`` keep what ``pk.summary`` and ``pk.expectation`` correct averages by; see
        docs/estimates.md. It takes no evaluation and changes no draw. False by default, as a
        result is then some six times as large.
    {common parameters}

    Notes
    -----
    The statistic ``scaling`` is √λ. Before the first draw an optimiser goes to the posterior, by at
    most 60 d evaluations, and L starts with the shape there. Σ is seeded from the newest half of
    the past, at doubling times up to half of tuning. In between and afterwards it follows [AT],
    algorithm 4, in O(d²). In ``pk.sample`` the chains pool it.
    Deviations: [AT] leaves η open, and has no seeding, without which the way from a far start
    stays in Σ. See docs/random_walk.md.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.GAM())  # all variables, whole chains compiled
    ...     dt = pm.sample(step=[pk.GAM(["a"])])  # PyMC's own steps take the other variables
    """

    name = "gam"
    proposal = staticmethod(proposal_of_walk)
    algorithm = WALK

    def __init__(
        self,
        vars=None,
        *,
        learning_rate=None,
        scale_bounds=None,
        control_variates=False,
        **common,
    ):
        self.settings = {
            "learning_rate": checked_rate(learning_rate),
            "scale_bounds": checked_scale_bounds(scale_bounds),
            "control_variates": control_variates,
        }
        self.algorithm = CONTROLLED if control_variates else WALK
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        if not self.settings["control_variates"]:
            return allocate_walk(self, scales, n_tune)
        d = scales.size
        shape, shape_tuning = start_walk(self, scales, n_tune)
        controls = allocate(Controls, {"d": d, "grid": GRID})
        parameters = allocate(ControlledParameters, {"d": d}, **shape._asdict(), controls=controls)
        tuning = allocate(Tuning, {"d": d}, n=n_tune, shape=shape_tuning, on_factor=False)
        state = allocate(ControlledState, {"d": d, "tally": tally_size(d)})
        return state, parameters, tuning, allocate(ControlledWork, {"d": d})

    def _normal(self):
        scale = np.exp(self.parameters.log_scale[0])
        return self.tuning.shape.moments.mean, control_table.walk(scale)

    def _learned(self):
        return learned_walk(self) | self._learned_mean()

    def _tuned_scales(self):
        return tuned_scale(self.parameters, self.tuning.shape)


# ---- RAM: shape and scale from the acceptance alone ---------------------------------------------


class RAMTuning(NamedTuple):
    """What tuning remembers: GAM's for three quarters of n transitions, and the bounds of |L|."""

    t: integers(1)
    n: int
    walk: ShapeTuning
    scale: ScaleTuning


class RAMWork(NamedTuple):
    """Scratch: the walk's, and a factor."""

    x: floats("d")
    xi: floats("d")
    step: floats("d")
    y: floats("d")
    v: floats("d")
    factor: floats("d", "d")


@jit
def ram_adapt(state, parameters, tuning, work, accept_prob, rng):
    """LLᵀ ← L(I + η(α − α*)ξξᵀ/|ξ|²)Lᵀ with η = min(1, d t^-2/3) [V, section 2].

    L is kept as a scale, which has bounds, and a factor of determinant 1. For three
    quarters of tuning this is GAM, which finds the posterior and its shape much sooner.
    """
    t, d = tuning.t[0], state.x.size
    tuning.t[0] = t + 1
    if t < tuning.n - tuning.n // 4:
        learn_shape(parameters, tuning.walk, state.x, accept_prob, t, work.v)
        return
    eta = min(1.0, d * (t + 1) ** (-2.0 / 3.0)) * (accept_prob - tuning.scale.target_accept)
    multiply_lower(parameters.factor, work.xi, work.v)
    length = (abs(eta) / squared_norm(work.xi)) ** 0.5
    for i in range(d):
        work.v[i] *= length
    copy_matrix(parameters.factor, work.factor)
    positive = True
    if eta >= 0.0:
        rank_one_update(work.factor, work.v)
    else:
        positive = rank_one_downdate(work.factor, work.v)
    if positive:
        copy_matrix(work.factor, parameters.factor)
    log_size = normalise(parameters.factor)
    set_scale(parameters.log_scale, tuning.scale, 0, parameters.log_scale[0] + log_size)


@jit
def normalise(factor):
    """Divide L by |L|^(1/d); return the logarithm of that."""
    log_size = log_determinant(factor) / factor.shape[0]
    multiply_factor(factor, np.exp(-log_size))
    return log_size


class RAM(LearnedShape):
    r"""Robust adaptive Metropolis: a random walk that learns its shape from the acceptance rate.

    .. math:: y = x + L\xi, \qquad \xi \sim N(0, I)

    The recursion needs no second moments, so it suits posteriors with heavy tails. Otherwise
    :class:`GAM` learns faster.

    Parameters
    ----------
    scale_bounds : (float, float), optional
        Least and largest :math:`|L|^{1/d}`, which is the statistic ``scaling`` in the last
        quarter of tuning and after it; by default within a factor of 1e6 of its start.
    {common parameters}

    Notes
    -----
    .. math:: LL^\top \leftarrow L\Bigl(I + \eta_t(\alpha - \alpha^*)
        \frac{\xi\xi^\top}{|\xi|^2}\Bigr)L^\top, \qquad \eta_t = \min(1, d\,t^{-2/3})

    by a rank-one update or downdate in O(d²), in the last quarter of tuning. Deviation: before, the
    sampler is :class:`GAM`, without which a far start, or a posterior of high condition number, is
    learned too slowly.

    References
    ----------
    Vihola (2012). Robust adaptive Metropolis algorithm with coerced acceptance rate. Statistics
    and Computing 22.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.RAM())
    ...     dt = pk.sample(step=pk.RAM(region={"a": (-10, 10)}))  # the posterior in a box
    """

    name = "ram"
    algorithm = Algorithm(transition, ram_adapt, nothing_derived, report_scale)
    proposal = staticmethod(proposal_of_walk)
    _learned = learned_walk

    def __init__(self, vars=None, *, scale_bounds=None, **common):
        self.settings = {"log_bounds": checked_scale_bounds(scale_bounds)}
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        sizes = {"d": scales.size}
        shape, walk = start_walk(self, scales, n_tune)
        log_start = shape.log_scale[0] + np.log(scales).mean()
        _, scale = ScaleTuning.start(self.target_accept, log_start, self.settings["log_bounds"])
        tuning = allocate(RAMTuning, sizes, n=n_tune, walk=walk, scale=scale)
        return allocate(State, sizes), shape, tuning, allocate(RAMWork, sizes)

    def _shape(self):
        return self.parameters, self.tuning.walk

    def _tuned_scales(self):
        return tuned_scale(self.parameters, self.tuning)
