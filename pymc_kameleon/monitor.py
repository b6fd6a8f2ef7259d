"""What a chain has seen, and what it says: warnings, explanations, costs."""

import logging
import time
import warnings
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer

import numpy as np

from pymc_kameleon.core.subsample import least_points
from pymc_kameleon.host import Problems, SamplerWarning, WarningType

_log = logging.getLogger("pymc_kameleon")

SLOW_LOGP = 1e-3
"""Seconds for one logp evaluation from which the user is told what a draw costs."""

STUCK_SHARE, STUCK_TRANSITIONS = 0.1, 100
"""A run of rejections is reported if it is longer than this share of the draws, and this number."""


@dataclass
class ChainMonitor:
    """What a chain has seen, for its warnings.

    Attributes
    ----------
    tune, draws : int
        Draws of tuning and after it, as PyMC announced them.
    done : int
        Draws made.
    learned : int
        Draws made when the step learned in Python for the last time; -1 before that.
    common_start : bool
        Whether the chain began at the model's initial point.
    accepted : bool
        Whether any proposal was accepted after tuning.
    run, longest : int
        Draws after tuning without an accepted proposal: now, and at most in a row.
    accept_sum : float
        Sum of the draws' acceptance probabilities; it starts anew when tuning has ended.
    """

    tune: int
    draws: int
    done: int = 0
    learned: int = -1
    common_start: bool = False
    accepted: bool = False
    run: int = 0
    longest: int = 0
    accept_sum: float = 0.0

    def follow(self, accept_probs, accept_shares):
        """Take notice of draws, which are all of tuning or all after it."""
        sums = accept_probs.copy()
        if self.done != self.tune:
            sums[0] += self.accept_sum
        self.accept_sum = float(sums.cumsum()[-1])  # one by one, so equal in any portions
        n = len(accept_shares)
        self.done += n
        if self.done <= self.tune:
            return
        moves, before = accept_shares.nonzero()[0], self.run
        if moves.size == 0:
            self.run += n
        else:
            self.accepted, self.run = True, n - 1 - int(moves[-1])
            if n > 1:
                ends = np.concatenate(([-1 - before], moves))
                self.longest = max(self.longest, int((ends[1:] - ends[:-1]).max()) - 1)
        self.longest = max(self.longest, self.run)

    @property
    def mean_accept(self):
        """Mean acceptance probability of the draws: after tuning, once there are some."""
        return self.accept_sum / (self.done - self.tune if self.done > self.tune else self.done)

    @property
    def finished(self):
        """Whether that was the last draw."""
        return self.done == self.tune + self.draws

    def is_stuck(self, steps_per_draw):
        """Return whether the chain did not move for long, after tuning."""
        long_enough = self.longest * steps_per_draw >= STUCK_TRANSITIONS
        return long_enough and self.longest > STUCK_SHARE * self.draws


# ---- at the end of a chain ----------------------------------------------------------------------


def closing_warning(step):
    """Return what the chain of a step has to say at its end, a SamplerWarning or None."""
    problems = [*_chain_problems(step), *step._problems()]
    if step.tuning.n > 0:
        problems += [_explain_bound(*scale) for scale in step._tuned_scales()]
    problems = [problem for problem in problems if problem]
    if not problems:
        return None
    heading = f"{type(step).__name__}([{', '.join(step.var_names)}]):"
    return SamplerWarning(WarningType.BAD_PARAMS, Problems.of(heading, problems), "warn")


def _chain_problems(step):
    monitor, problems = step.monitor, []
    if monitor.common_start:
        problems.append(
            "the chain started at the model's initial point, and so may all others; R-hat "
            "cannot see what none of them visits. Pass initvals=pk.initvals(chains)."
        )
    needed = step._needed_tuning()
    if step.tuning.n < needed:
        problems.append(
            f"only {step.tuning.n} transitions of tuning; at least {needed} are needed to "
            "learn anything. Raise tune, or steps_per_draw."
        )
    if monitor.draws > 0 and not monitor.accepted:
        problems.append(
            "no proposal was accepted after tuning, so all draws are equal, although ArviZ "
            "reports them as independent. Tune longer, start elsewhere, or rescale."
        )
    elif monitor.is_stuck(step.steps_per_draw):
        problems.append(
            f"the chain was stuck for {monitor.longest} draws in a row "
            f"({monitor.longest * step.steps_per_draw} transitions). "
            "Look there for a narrow part of the posterior; tune longer, or reparametrise."
        )
    return problems


def _explain_bound(label, log_scale, bounds):
    """Return a warning if a log scale is at one of its bounds, to 1 % of their distance."""
    low, high = bounds
    margin = 0.01 * (high - low)
    if low + margin < log_scale < high - margin:
        return ""
    side = "lower" if log_scale <= low + margin else "upper"
    return (
        f"{label} ended at its {side} bound, {np.exp(log_scale):.3g}, so the target acceptance was "
        "not reached. Start nearer to where the posterior is, rescale, or widen scale_bounds."
    )


def explain_few_points(step, subsample):
    """Warn if a sampler with a Subsample never had the points for it."""
    if subsample.m[0] > 0 or step.tuning.n < step._needed_tuning():
        return ""
    return (
        f"while tuning the chain had fewer than {least_points(step.layout.d)} distinct points to "
        "learn from, so it is a plain random walk. Tune longer, or start nearer to where the "
        "posterior is."
    )


# ---- at the end of a chain that moves one coordinate at a time ----------------------------------

SLOW = 20
"""Sweeps per independent draw from which the user is told that the coordinates correlate."""


def explain_idle(step, idle):
    """Name the coordinates that have not moved for `idle` (d,) sweeps, if that is long.

    If none moves at all, that is said for all samplers.
    """
    n = max(STUCK_TRANSITIONS, int(STUCK_SHARE * step.monitor.draws * step.steps_per_draw))
    names = [name for name, i in zip(step.layout.coordinates(), idle, strict=True) if i > n]
    if not names or not step.monitor.accepted:
        return ""
    return (
        f"{some(names)} did not move in the last {n} sweeps. Look there for a narrow part of the "
        "posterior; tune longer, give scales, or reparametrise."
    )


def explain_correlation(points, names, sweeps_per_draw):
    """Warn if the past (n, d) shows correlations that moves along the axes cannot follow.

    `sweeps_per_draw` are what an independent draw of a normal takes, times the least eigenvalue of
    its precision matrix scaled to a diagonal of 1.
    """
    d = len(names)
    if d == 1 or len(points) < max(100, 10 * d) or not (np.ptp(points, axis=0) > 0).all():
        return ""
    correlation = np.corrcoef(points.T)
    precision = np.linalg.pinv(correlation, hermitian=True)
    precision /= np.sqrt(np.outer(np.diag(precision), np.diag(precision)))
    values, vectors = np.linalg.eigh(precision)
    sweeps = sweeps_per_draw / max(values[0], 1e-9)
    if sweeps < SLOW:
        return ""
    i, j = np.sort(np.argsort(-np.abs(vectors[:, 0]))[:2])
    return (
        f"coordinates correlate too much to be moved one by one, most of all {names[i]} and "
        f"{names[j]} (by {correlation[i, j]:.2g} while tuning): about {sweeps:.0f} sweeps per "
        "independent draw. Use pk.GAM, or reparametrise."
    )


def say_what_was_done(speakers, length, seconds):
    """Log what chains have to say at their end, and how long it took.

    Parameters
    ----------
    speakers : list of (Chain, list of KameleonStep)
    length : int
        Draws after tuning in the result.
    seconds : float
    """
    said = defaultdict(list)
    for chain, steps in speakers:
        for step in steps:
            warning = closing_warning(step)
            if warning is not None:
                said[warning.message].append(chain.number)
    for message, numbers in said.items():
        which = f"Chain{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
        _log.warning("%s: %s", which, message)
    n, first = len(speakers), speakers[0][0]
    tune, draws = first.n_tune, length - max(0, first.begun - first.tune)
    _log.info(
        "Sampling %s for %s tune and %s draw iterations (%s + %s draws total) took %.0f seconds.",
        f"{n:_d} chain{'s' * (n != 1)}",
        *(f"{number:_d}" for number in (tune, draws, n * tune, n * draws)),
        seconds,
    )


# ---- at its start, and before -------------------------------------------------------------------


def explain_start(step, q):
    """Return why a step can make no draw from `q` (n,), which is in its own order."""
    name, point = type(step).__name__, step.layout.unraveled(q)
    if np.isfinite(q).all() and not step.log_density.inside(q):
        return (
            f"{name} cannot start: the current point is outside region.\n"
            f"Point: {point}\nGive initial values inside (initvals=...)."
        )
    bad = terms_that_are_not_finite(step.model, point)
    step.log_density(q)
    blunt = ~np.isfinite(step.log_density.gradient)
    if not bad and blunt.any():
        names = [key for key, b in zip(step.layout.coordinates(), blunt, strict=True) if b]
        return (
            f"{name} cannot start: the gradient of the log-density is not finite at the current "
            f"point, with respect to {some(names)}.\nPoint: {point}\n"
            "Give other initial values (initvals=...), or use pk.GAM."
        )
    return (
        f"{name} cannot start: the log-density is not finite at the current point.\n"
        f"Terms that are not finite: {bad or 'their sum'}\nPoint: {point}\n"
        "Give initial values inside the support (initvals=...), or check these "
        "variables' parameters and data."
    )


def terms_that_are_not_finite(model, point):
    """Return name -> log-density of the variables whose own is not finite at a point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTensor, of black-box Ops
        terms = {name: float(logp) for name, logp in model.point_logps(point).items()}
    return {name: logp for name, logp in terms.items() if not np.isfinite(logp)}


def say_what_a_draw_costs(step, q):
    """Tell the user if the likelihood is expensive, as it is at `q` (n,) in the step's order."""

    def evaluate():
        start = time.perf_counter()
        step.log_density(q)
        return time.perf_counter() - start

    try:
        seconds = evaluate()
        if seconds < 1:  # a first call may have to warm up
            seconds = min(seconds, evaluate(), evaluate())
    except Exception:  # a bad point is reported where a chain starts
        return
    if seconds > SLOW_LOGP:
        n = step.steps_per_draw
        advice = " With steps_per_draw=1 draws are cheaper, and more correlated." * (n > 1)
        _log.info(
            "One logp evaluation takes %.3g ms, a draw of %s %.3g ms (steps_per_draw=%d).%s",
            1e3 * seconds,
            type(step).__name__,
            1e3 * seconds * n * step._largest_n_logp(),
            n,
            advice,
        )


@contextmanager
def say_if_slow(message, seconds=0.5):
    """Log `message` if what happens inside takes more than a moment."""
    timer = Timer(seconds, _log.info, [message])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def some(names):
    """List at most three names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
