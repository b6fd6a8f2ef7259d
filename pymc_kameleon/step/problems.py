"""What went wrong in a chain, in words: at its start, on its way, and in its draws."""

import numpy as np

from pymc_kameleon.model.noise import STUCK_ADVICE, explain_noise
from pymc_kameleon.model.pymc_internals import Problems, SamplerWarning, WarningType
from pymc_kameleon.model.starts import terms_that_are_not_finite
from pymc_kameleon.model.watch import AFTER, BEFORE, ODD
from pymc_kameleon.step.messages import counted, some
from pymc_kameleon.step.searches import warn_of_searches
from pymc_kameleon.step.warm_start.approach import LATE

STEEP_GAIN = 3
"""Times d: gain of log-density at the end of the warm start from which a chain warns. Of 250 warm
starts on ordinary posteriors 24 used up their evaluations, and then gained 1.4 d at most."""


def closing_warning(step):
    """Return the warnings of a step's chain at its end, a SamplerWarning or None."""
    problems = closing_problems(step)
    if not problems:
        return None
    said = Problems.of(heading(step), problems)
    return SamplerWarning(WarningType.BAD_PARAMS, said, "warn")


def closing_problems(step):
    """Return what is wrong with the chain of a step, as far as is known by now: a list of str."""
    problems = [*_start_problems(step), _explain_way(step), _explain_odd(step)]
    problems.append(warn_of_searches(step.searches, step._why_searches_fail))
    if step.monitor.done >= step.monitor.tune:
        problems += [*_chain_problems(step), explain_noise(step), *step._problems()]
        if step.tuning.n > 0:
            problems.append(_explain_condition(step))
            problems += [_explain_bound(*scale) for scale in step._tuned_scales()]
    return [problem for problem in problems if problem]


def given_warnings(steps):
    """Return the warnings that a chain gave in an earlier run, after its tuning."""
    monitor = steps[0].monitor
    if monitor.done == 0 or monitor.done < monitor.tune:
        return set()
    return {(i, problem) for i, step in enumerate(steps) for problem in closing_problems(step)}


def heading(step):
    """Return how messages of a step begin."""
    return f"{type(step).__name__}([{', '.join(step.var_names)}]):"


def _start_problems(step):
    if not step.monitor.common_start:
        return []
    return [
        "the chain started at the model's initial point, and so may all others; R-hat "
        "cannot see what none of them visits. Pass initvals=pk.initvals(chains)."
    ]


def _explain_odd(step):
    """Warn if two evaluations at one point differed."""
    if not step.watch.is_odd:
        return ""
    before, after = step.watch.values[[BEFORE, AFTER]]
    where = f"the log-density at {step.layout.in_words(step.watch.points[ODD])}"
    if np.isnan(before):
        return (
            f"{where} was NaN, and finite when it was evaluated there again: NaN comes at random, "
            "or after some earlier calls. Such moves are rejected as if they were impossible. Look "
            "for what the model takes over from one call to the next, or leaves to chance."
        )
    now = f"is {after:.8g}" if np.isfinite(after) else "is NaN or infinite"
    cure = (
        "Let each call begin afresh, with a seed of its own if it draws random numbers. Or, if it "
        "is the log of an unbiased estimate, take them from pk.noise_seed(), and pass "
        "pseudo_marginal=True: see docs/pseudo_marginal.md."
    )
    return (
        f"{where} was {before:.8g}, and {now} when it was evaluated there again: the model is "
        f"random, or remembers earlier calls. The draws are not those of the posterior then. {cure}"
    )


def _explain_way(step):
    """Warn if the log-density still rose steeply at the end of the warm start."""
    gain, d = step.monitor.climbing, step.layout.d
    if (
        not gain > STEEP_GAIN * d or step.search.budget() <= LATE * d
    ):  # a chain that follows, without one
        return ""
    return (
        f"the search for the posterior took all of its {step.search.budget()} evaluations, and the "
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
            "learn much. Raise tune or steps_per_draw, or max_evaluations if that has settled it."
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
            f"{STUCK_ADVICE if step.pseudo_marginal else cure}"
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
        "not reached. Start nearer to where the posterior is, rescale, or widen scaling_bounds."
    )


def explain_start(step, q, failure=""):
    """Return why a step can make no draw from `q` (n,); `failure` is what the evaluation did."""
    name, point = type(step).__name__, step.layout.unraveled(q)
    if failure:
        return (
            f"{name} cannot start: the likelihood {failure}.\nPoint: {point}\n"
            "Give other initial values (initvals=...), or mend the likelihood there."
        )
    if np.isfinite(q).all() and not step.log_density.inside(q):
        return (
            f"{name} cannot start: the current point is outside region.\n"
            f"Point: {point}\nGive initial values inside (initvals=...)."
        )
    bad = terms_that_are_not_finite(step.model, point)
    now = step.log_density(q)
    is_finite = not bad and np.isfinite([now, *step.log_density.gradient]).all()
    if is_finite and step.log_density.is_watched:
        return (
            f"{name} cannot go on: the log-density was not finite at the current point, twice, and "
            f"is {now:.8g} when it is evaluated there again.\nPoint: {point}\n"
            "It is NaN at random, or remembers earlier calls. Let each call begin afresh."
        )
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
