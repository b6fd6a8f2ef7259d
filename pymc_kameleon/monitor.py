"""What a chain has seen, and what it says: warnings, explanations, costs."""

import logging
import re
import time
import warnings
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer

import numpy as np

from pymc_kameleon.approach import LATE
from pymc_kameleon.host import Problems, SamplerWarning, WarningType
from pymc_kameleon.noise import STUCK, explain_noise

_log = logging.getLogger("pymc_kameleon")

SLOW_LOGP = 1e-3
"""Seconds for one logp evaluation from which the user is told what a draw costs."""

LONG_RUN = 30
"""Seconds from which the user is told how long a run will take."""

STUCK_SHARE, STUCK_TRANSITIONS = 0.1, 100
"""A run of rejections is reported if it is longer than this share of the draws, and this number."""

STEEP = 3
"""Times d: log-density gained at the end of the way to the posterior, from which it is reported.
Of 250 ways to ordinary posteriors 24 used up their evaluations, and then gained 1.4 d at most."""


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
    uncounted : int
        Evaluations by which the chains learned together, which no draw has counted yet.
    common_start : bool
        Whether the chain began at the model's initial point.
    climbing : float
        What the log-density still gained when the way to the posterior ended for want of
        evaluations.
    noise : float
        Variance of estimates of the log-density where tuning ended; 0 if it is no estimate.
    accepted : bool
        Whether any proposal was accepted after tuning.
    run, longest : int
        Draws after tuning without an accepted proposal: now, and at most in a row.
    accept_sum : float
        Sum of the draws' acceptance probabilities; it starts anew when tuning has ended.
    infinite : int
        Proposed points at which the log-density was +inf.
    """

    tune: int
    draws: int
    done: int = 0
    learned: int = -1
    uncounted: int = 0
    common_start: bool = False
    climbing: float = 0.0
    noise: float = 0.0
    accepted: bool = False
    run: int = 0
    longest: int = 0
    accept_sum: float = 0.0
    infinite: int = 0

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
    problems = closing_problems(step)
    if not problems:
        return None
    said = Problems.of(_heading(step), problems)
    return SamplerWarning(WarningType.BAD_PARAMS, said, "warn")


def closing_problems(step):
    """Return what is wrong with the chain of a step, as it is now: a list of str.

    What tuning came to is known when it is over.
    """
    problems = [*_start_problems(step), _explain_way(step)]
    if step.monitor.done >= step.monitor.tune:
        problems += [*_chain_problems(step), explain_noise(step), *step._problems()]
        if step.tuning.n > 0:
            problems.append(_explain_condition(step))
            problems += [_explain_bound(*scale) for scale in step._tuned_scales()]
    return [problem for problem in problems if problem]


def told(steps):
    """Return what a chain that begins or goes on has told in an earlier run, after its tuning."""
    monitor = steps[0].monitor
    if monitor.done == 0 or monitor.done < monitor.tune:
        return set()
    return {(i, problem) for i, step in enumerate(steps) for problem in closing_problems(step)}


def _heading(step):
    return f"{type(step).__name__}([{', '.join(step.var_names)}]):"


def say_what_was_done(speakers, seconds):
    """Log what chains have to say at their end, each thing once, and how long it took.

    Parameters
    ----------
    speakers : list of (Chain, list of KameleonStep)
        What a chain has `told`, as of the function of that name, is not repeated.
    seconds : float
    """
    said = defaultdict(list)
    for chain, steps in speakers:
        for i, step in enumerate(steps):
            for problem in closing_problems(step):
                if (i, problem) not in chain.told:
                    said[i, _without_numbers(problem)].append((chain, problem))
    for (i, _), problems in said.items():
        first, problem = problems[0]
        same = all(other == problem for _, other in problems)
        _log.warning(
            "Chain%s %s: %s %s%s",
            "s" * (len(problems) > 1),
            ", ".join(str(chain.number) for chain, _ in problems),
            _heading(speakers[0][1][i]),
            problem,
            "" if same else f" (The numbers are those of chain {first.number}.)",
        )
    made = [_made(chain) for chain, _ in speakers]
    total = "{:_d} + {:_d} draws total".format(*map(sum, zip(*made, strict=True)))
    if len(set(made)) == 1:
        total = "for {:_d} tune and {:_d} draw iterations ({})".format(*made[0], total)
    else:  # they ended when each was somewhere else
        total = f"({total}, of tuning and after it)"
    _log.info("Sampling %s %s took %s.", counted(len(made), "chain"), total, in_words(seconds))


def _made(chain):
    """Return the draws that a chain has made in this run: of tuning, and after it."""
    tuned = min(chain.done, chain.tune) - min(chain.begun, chain.tune)
    return tuned, chain.done - chain.begun - tuned


def _without_numbers(text):
    """Return a text with # for its numbers, but for those in brackets, which name coordinates."""
    number = r"\[[^]]*\]|(?<![\w.])\d[\d.]*(e[+-]?\d+)?(?!\w)"
    return re.sub(number, lambda found: found[0] if found[0][0] == "[" else "#", text)


def _start_problems(step):
    if not step.monitor.common_start:
        return []
    return [
        "the chain started at the model's initial point, and so may all others; R-hat "
        "cannot see what none of them visits. Pass initvals=pk.initvals(chains)."
    ]


def _explain_way(step):
    """Warn if the way to the posterior ended while it still went up steeply."""
    gain, d = step.monitor.climbing, step.layout.d
    if not gain > STEEP * d:
        return ""
    return (
        f"the way to the posterior took all of its {step._budget()} evaluations, and the "
        f"log-density still grew by {gain:.3g} in the last {LATE * d} of them. So the chain may "
        "not have arrived before it was tuned. Start nearer (initvals=...), rescale the "
        "parameters so that their scales are about 1, or tune longer; and look at R-hat."
    )


def _chain_problems(step):
    monitor, problems = step.monitor, []
    if monitor.infinite:
        problems.append(
            f"the log-density was +inf at {counted(monitor.infinite, 'point')}. They are rejected, "
            "so the posterior is cut there. Let the likelihood return a finite number, or -inf "
            "where parameters are impossible; look for a scale that goes to 0."
        )
    needed = step._needed_tuning()
    if step.tuning.n < needed:
        problems.append(
            f"only {step.tuning.n} transitions of tuning; at least {needed} are needed to "
            "learn much. Raise tune, or steps_per_draw."
        )
    if monitor.done > monitor.tune and not monitor.accepted:
        problems.append(
            "no proposal was accepted after tuning, so all draws are equal, although ArviZ "
            "reports them as independent. Tune longer, start elsewhere, or rescale."
        )
    elif monitor.is_stuck(step.steps_per_draw):
        cure = "Look there for a narrow part of the posterior; tune longer, or reparametrise."
        problems.append(
            f"the chain was stuck for {monitor.longest} draws in a row "
            f"({monitor.longest * step.steps_per_draw} transitions). "
            f"{STUCK if step.pseudo_marginal else cure}"
        )
    return problems


SINGULAR = 3e-5
"""Share of a coordinate's sd that the others leave it, below which a covariance says no more: it is
regularised by 1e-9 of each variance, the root of which this is."""


def _explain_condition(step):
    """Warn if a coordinate is so nearly a function of others that rounding decides."""
    factor = step._learned_factor()
    if factor is None:
        return ""
    with np.errstate(invalid="ignore"):  # of what never moves
        left = np.diag(factor) / np.linalg.norm(factor, axis=1)
    i = int(left.argmin())
    if not left[i] <= SINGULAR:
        return ""
    return (
        f"{step.layout.coordinates()[i]} is known to {SINGULAR:.0e} of its sd, or better, if the "
        "others are known. That is not learned exactly, and the draws may be too narrow. "
        "Make the combination that is known so well a parameter of its own."
    )


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


def seconds_per_logp(log_density, q, values):
    """Return how long an evaluation at `q` (n,) takes, NaN if it raises.

    What takes more than a second is evaluated twice, anything else three times. What it was is
    added to the list `values`.
    """

    def evaluate():
        start = time.perf_counter()
        values.append(log_density(q))
        return time.perf_counter() - start

    try:
        seconds = min(evaluate(), evaluate())  # a first call may have to warm up
        if seconds < 1:
            seconds = min(seconds, evaluate())
    except Exception:  # a bad point is reported where a chain starts
        return np.nan
    return seconds


def say_what_a_draw_costs(step):
    """Tell the user of pm.sample, of which a step knows no more, if the likelihood is expensive."""
    seconds, n = step.seconds_per_logp, step.steps_per_draw
    if seconds > SLOW_LOGP:
        advice = " With steps_per_draw=1 draws are cheaper, and more correlated." * (n > 1)
        _log.info(
            "One logp evaluation takes %s, a draw of %s %s (steps_per_draw=%d).%s",
            in_words(seconds),
            type(step).__name__,
            in_words(seconds * n * step._largest_n_logp()),
            n,
            advice,
        )


def say_what_a_run_costs(steps, chains, draws_in_all, cores, point, scouting=0):
    """Tell the user how long a run will take, if the likelihood is expensive, or the run long.

    No chain is touched, and no evaluation counted.

    Parameters
    ----------
    steps : list of KameleonStep
    chains : int
    draws_in_all : int
        Of each chain in this run, of tuning too.
    cores : int or None
        How many chains run at a time; None if nobody knows, so that computing time is told.
    point : (n_values,) float64
        Where a chain begins, in the model's order.
    scouting : int
        How many chains look for the posterior before their first draw.
    """
    draws, at_once = chains * draws_in_all, min(cores or 1, chains)
    parts, seconds, least, scouted, slow, exact = [], 0.0, 0, 0, False, True
    for step in steps:
        n, largest = step.steps_per_draw, step._largest_n_logp()
        logp = step.seconds_per_logp
        own = _own_arithmetic(step, point, logp) if draws * n * SLOWEST > LONG_RUN else 0.0
        evaluations = draws * n * largest
        scouts = scouting * SCOUTING * step.layout.d * step.approaches
        seconds += (evaluations * (logp + own) + scouts * logp) / at_once
        scouted += scouts
        least += draws * largest
        slow |= logp > SLOW_LOGP
        exact &= largest == 1
        arithmetic = f" and {in_words(own)} of arithmetic" if own > 0.1 * logp else ""
        parts.append(
            f"× {counted(n, 'transition')} of {type(step).__name__} = "
            f"{'' if largest == 1 else 'at most '}{grouped(evaluations)} evaluations of "
            f"{in_words(logp)}{arithmetic}"
        )
    if slow or seconds > LONG_RUN:
        advice = any(step.steps_per_draw > 1 for step in steps)
        _log.info(
            "%s × %s draws %s%s: about %s%s %s%s.",
            counted(chains, "chain"),
            grouped(draws_in_all),
            ", and ".join(parts),
            f", and some {grouped(scouted)} to find the posterior" if scouted else "",
            in_words(seconds),
            "" if exact else " at most",
            "of computing" if cores is None else f"on {counted(at_once, 'core')}",
            f"; steps_per_draw=1 makes {grouped(least)}" if advice else "",
        )


SCOUTING = 30
"""Times d: evaluations by which a chain finds the posterior, about; at most twice as many."""

SLOWEST, SLOWEST_LOGP = 0.01, 0.1
"""Seconds that a transition takes at most by itself, and a logp evaluation beside which that is
little: what takes more is not evaluated again for the sake of a message."""


def _own_arithmetic(step, point, logp):
    """Return seconds for each evaluation that a step needs beside it, tuned, from `point` on.

    Measured on a copy that is thrown away. A log-density that calls Python may hang or crash, which
    is for workers to meet: there it is 0.
    """
    if step.log_density.holds_gil or not logp < SLOWEST_LOGP:
        return 0.0
    twin, rng = step.for_chain(), np.random.default_rng(0)
    twin.setup_chain(rng, 0, 100)
    twin._as_if_tuned(rng)
    q, n, seconds = point[twin.layout.places], 1, 0.0
    try:
        while seconds < 0.02 and n <= 1000:
            twin.steps_per_draw = n
            start = time.perf_counter()
            x, [stats] = twin.astep(q)
            seconds = time.perf_counter() - start
            q[: x.size] = x
            n *= 10
    except Exception:  # where a chain starts, it is said why it cannot
        return 0.0
    return max(0.0, seconds / max(1, stats["n_logp"]) - logp)


@contextmanager
def say_if_compiling(what, seconds=0.5):
    """Log that `what` is compiled, and how long it took, if that is more than a moment."""
    start, said = time.perf_counter(), []

    def say():
        said.append(True)
        _log.info("Compiling %s, once per machine and version …", what)

    timer = Timer(seconds, say)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
    if said:
        _log.info("… compiling %s done in %s.", what, in_words(time.perf_counter() - start))


# ---- words --------------------------------------------------------------------------------------


def in_words(seconds):
    """Return a duration to two digits, or two units: 2.1 ms, 12 s, 3 min, 2 h 10 min."""
    rounded, minutes = float(f"{seconds:.2g}"), max(60, round(seconds / 60))
    if seconds >= 48 * 3600:
        hours = round(seconds / 3600)
        return f"{hours // 24} d {hours % 24} h"
    if rounded >= 3600:
        return f"{minutes // 60} h {minutes % 60} min"
    for unit, size in {"min": 60, "s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}.items():
        if rounded >= size:
            return f"{float(f'{max(1, seconds / size):.2g}'):g} {unit}"
    return "0 s"


def grouped(n):
    """Return an integer with a space before every three digits, if there are more than four."""
    return f"{n:,}".replace(",", " ") if n >= 10_000 else str(n)


def counted(n, what):
    """Return how many there are of something: 1 chain, 4 chains."""
    return f"{n:_d} {what}{'s' * (n != 1)}"


def some(names):
    """List at most three names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
