"""What there is to tell of a chain: of its start, its way, and its draws."""

from dataclasses import replace

import numpy as np

from pymc_kameleon.findings.finding import finding
from pymc_kameleon.findings.registry import NOTE
from pymc_kameleon.findings.words import counted, some
from pymc_kameleon.model.noise import noise_of
from pymc_kameleon.model.pymc_internals import Problems, SamplerWarning, WarningType
from pymc_kameleon.model.starts import terms_that_are_not_finite
from pymc_kameleon.model.watch import AFTER, BEFORE, ODD
from pymc_kameleon.step.warm_start.approach import LATE

STEEP_GAIN = 3
"""Times d: gain of log-density at the end of the warm start from which a chain warns. Of 250 warm
starts on ordinary posteriors 24 used up their evaluations, and then gained 1.4 d at most."""

SINGULAR = 3e-5
"""Share of a coordinate's sd that the others leave it, below which a covariance says no more: it is
regularised by 1e-9 of each variance, the root of which this is."""

MOST_ELSEWHERE = 0.1
"""Share of the starts that may end elsewhere from which a finding says so: if some have, or if no
other chain has made searches of its own, which R-hat would show."""


def closing_warning(step):
    """Return what PyMC is to warn of at the end of a step's chain, a SamplerWarning or None."""
    found = [one for one in findings_of(step) if one.severity != NOTE]
    if not found:
        return None
    said = Problems.of(f"{label(step)}:", [f"{one.what} {one.remedy}" for one in found])
    return SamplerWarning(WarningType.BAD_PARAMS, said, "warn")


def label(step):
    """Return what a step is called in messages."""
    return f"{type(step).__name__}([{', '.join(step.var_names)}])"


def findings_of(step):
    """Return what is known by now of the chain of a step that its user should know: Findings."""
    n, begins_alike = step.monitor.not_found, step.monitor.common_start
    found = [finding("common_start") if begins_alike else None, _way(step), _odd(step)]
    found += [finding("posterior_not_found", n=n) if n else None, impossible_prior(step.monitor)]
    if step.monitor.number >= 0 or step.searches.n > 1:  # under pm.sample each chain has one
        found.append(of_searches(step.searches))
    if step.monitor.done >= step.monitor.tune:
        found += [*_chain(step), noise_of(step), *step._findings()]
        if step.tuning.n > 0:
            found.append(_condition(step))
            found += [_bound(*scale) for scale in step._tuned_scales()]
    return [replace(one, source=label(step)) for one in found if one is not None]


def _odd(step):
    """Tell of two evaluations at one point that differed."""
    if not step.watch.is_odd:
        return None
    before, after = step.watch.values[[BEFORE, AFTER]]
    place = step.layout.in_words(step.watch.points[ODD])
    if np.isnan(before):
        return finding("random_nan", place=place)
    after = f"{after:.8g}" if np.isfinite(after) else "NaN or infinite"
    return finding("random_density", place=place, before=before, after=after)


def _way(step):
    """Tell that the log-density still rose steeply at the end of the warm start."""
    gain, d, budget = step.monitor.climbing, step.layout.d, step.search.budget()
    if not gain > STEEP_GAIN * d or budget <= LATE * d:  # a chain that follows, without one
        return None
    return finding("search_cut_short", budget=budget, gain=gain, late=LATE * d)


def _chain(step):
    monitor, found = step.monitor, []
    if monitor.infinite:
        found.append(finding("infinite_density", n=monitor.infinite))
    needed = step._needed_tuning()
    if step.tuning.n < needed:
        found.append(finding("short_tuning", n=step.tuning.n, needed=needed))
    if monitor.done > monitor.tune and not monitor.accepted:
        found.append(finding("no_move"))
    elif monitor.is_stuck(step.steps_per_draw):
        code = "stuck_on_estimate" if step.pseudo_marginal else "stuck"
        found.append(finding(code, draws=monitor.longest))
    return found


def _condition(step):
    """Tell of a coordinate that is so nearly a function of others that rounding decides."""
    factor = step._learned_factor()
    if factor is None:
        return None
    with np.errstate(invalid="ignore"):  # of what never moves
        left = np.diag(factor) / np.linalg.norm(factor, axis=1)
    i = int(left.argmin())
    if not left[i] <= SINGULAR:
        return None
    return finding("nearly_dependent", name=step.layout.coordinates()[i], singular=SINGULAR)


def _bound(scale, log_scale, bounds):
    """Tell of a log scale at one of its bounds, to 1 % of their distance."""
    low, high = bounds
    margin = 0.01 * (high - low)
    if low + margin < log_scale < high - margin:
        return None
    side = "lower" if log_scale <= low + margin else "upper"
    return finding("scale_at_bound", scale=scale, side=side, value=np.exp(log_scale))


def pool_searches(chains):
    """Let chains, each a list of steps, that have searched apart tell of all searches.

    Their ends are not compared: there are as many as in the chain that knows most. If others differ
    from these, R-hat shows it, as chains begin there.
    """
    for steps in zip(*chains, strict=True):
        if not steps[0].search.follows:
            monitors = [step.monitor for step in steps]
            n_ends = max(own.ends for own in monitors)
            n, of_prior, impossible = np.sum(
                [(own.searches, own.of_prior, own.impossible) for own in monitors], axis=0
            ).tolist()
            for own in monitors:
                own.searches, own.ends = n, n_ends
                own.of_prior, own.impossible = of_prior, impossible


def impossible_prior(monitor):
    """Tell that more than half of the prior is impossible, if so."""
    n, impossible = monitor.of_prior, monitor.impossible
    if not impossible > n / 2:
        return None
    return finding("impossible_prior", n=n, impossible=impossible)


def of_searches(searches):
    """Tell how many there were, where they ended, and whether they may have missed a mode."""
    n, share = searches.n, searches.share_elsewhere
    if n == 0:
        return None
    if searches.is_doubtful:
        return finding("blind_search", n=n, n_best=searches.n_best)
    if n == 1:
        return finding("no_search")
    code = "searches"
    if share > MOST_ELSEWHERE and (searches.n_ends > 1 or searches.are_all):
        code = "other_ends" if searches.n_ends > 1 else "few_searches"
    return finding(code, n=n, places=counted(searches.n_ends, "place"), share=100 * share)


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
