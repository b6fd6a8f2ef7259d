"""What a run will take: said before it begins."""

import logging

import numpy as np

from pymc_kameleon.findings.finding import say
from pymc_kameleon.findings.words import counted, grouped, in_words, some
from pymc_kameleon.model.black_box import Function
from pymc_kameleon.model.black_boxes import names_of
from pymc_kameleon.step.draw_costs import SLOW_LOGP

_log = logging.getLogger("pymc_kameleon")

LONG_RUN = 30
"""Seconds from which the user is told how long a run will take."""


def what_a_run_costs(
    steps, chains, draws_in_all, cores, scouting=0, pools=False, looks=0, together=False
):
    """Return in words how long a run will take, if the likelihood is expensive, or the run long.

    No chain is touched, and no evaluation counted. Each chain makes `draws_in_all`, those of tuning
    too; `cores` chains run at a time, None if nobody knows, so that computing time is told;
    `scouting` chains look for the posterior first, or all but one follow that, if the run `pools`
    tuning; `looks` are evaluations of points a second time; and `together` says whether those of
    all chains are made in one call.
    """
    if draws_in_all == 0 or any(np.isnan(step.seconds_per_logp) for step in steps):
        return ""  # nothing to do, or it raised at the initial point
    draws, at_once = chains * draws_in_all, min(cores or 1, chains)
    parts, seconds, least, scouted, slow, exact = [], 0.0, 0, 0, False, True
    for step in steps:
        n, largest = step.steps_per_draw, step._largest_n_logp()
        logp = step.seconds_per_logp
        evaluations = draws * n * largest
        alone, at_a_time = _evaluations_before_draws(step, scouting, pools)
        seconds += logp * (alone + (evaluations + at_a_time) / at_once)
        scouted += alone + at_a_time
        least += draws * largest
        slow |= logp > SLOW_LOGP
        exact &= largest == 1
        parts.append(
            f"× {counted(n, 'transition')} of {type(step).__name__} = "
            f"{'' if largest == 1 else 'at most '}{grouped(evaluations)} evaluations of "
            f"{in_words(logp)}"
        )
    if not slow and seconds <= LONG_RUN:
        return ""
    more = f", and about {grouped(scouted)} to find the posterior" if scouted else ""
    more += f", {looks} to see whether it repeats itself" if looks else ""
    advice = any(step.steps_per_draw > 1 for step in steps)
    return (
        f"{counted(chains, 'chain')} × {grouped(draws_in_all)} draws {', and '.join(parts)}"
        f"{more}: about {in_words(seconds)}{'' if exact else ' at most'} "
        f"{_on_cores(cores, at_once, together)}{_besides(steps)}"
        f"{f'; steps_per_draw=1 makes {grouped(least)}' if advice else ''}."
    )


def what_evaluations_cost(job, evaluations, chains, cores, together=False):
    """Return in words how long evaluations take, if that is long; see `what_a_run_costs`."""
    seconds = max(step.seconds_per_logp for step in job.steps)
    most = max(chains, job.at_once)
    at_once = min(cores or (most if job.at_once > 1 else 1), most)
    if seconds <= SLOW_LOGP and seconds * evaluations / at_once <= LONG_RUN:
        return ""
    least = in_words(evaluations * seconds / at_once)
    how, times = f"{at_once} at a time", f"{least} or more"
    where = _on_cores(cores, at_once, together)
    if job.at_once == 1:
        how = "one by one until the posterior is found"
        times = f"{least} to {in_words(evaluations * seconds)}"
    elif cores is None:
        where = "with as many workers"
    return (
        f"At most {grouped(evaluations)} evaluations of {in_words(seconds)}, {how}: {times} "
        f"{where}{_besides(job.steps)}."
    )


def say_what_more_workers_do(job, chains):
    """Tell who has an executor how more of its workers would have something to do."""
    alone = [op for op in job.users_ops if not isinstance(op, Function)]
    if alone:
        say("one_thread_at_a_time", boxes=names_of(alone))
    if job.at_once == 1 and all(step.search.follows for step in job.steps):
        _log.info(
            f"At most {chains} evaluations are under way at a time, and one while the first chain "
            "looks for the posterior. If there are more workers, pass max_concurrent=64, for "
            "example."
        )


def say_what_at_once_is_for(job):
    """Tell that searches make one evaluation after another, where they do."""
    if job.at_once > 1 and not any(step.search.follows for step in job.steps):
        _log.info(
            "max_concurrent sets the number of chains, and nothing else: with "
            f"{some([type(step).__name__ for step in job.steps])} each chain looks for the "
            "posterior alone."
        )


def _besides(steps):
    return "".join(f", and {step.own_arithmetic}" for step in steps if step.own_arithmetic)


def _on_cores(cores, at_once, together):
    if together:
        return f"with {at_once} in one call"
    return "of computing" if cores is None else f"on {counted(at_once, 'core')}"


def say_what_n_logp_leaves_out(job, draws, likelihood):
    """Tell the user of a black box of all its calls that the statistic n_logp does not count.

    `draws` are kept of all chains. PyMC computes the groups `likelihood` from them.
    """
    if not job.holds_gil:
        return
    for box, names in job.outputs.own_calls.items():
        _log.info(
            f"The log-density does not take {', '.join(names)} from {box}. So this is called once "
            f"more for each of at most {grouped(draws)} draws, and was once before; n_logp does "
            "not count this. Leave out what you do not need by var_names."
        )
    for box in job.outputs.looped:
        _log.info(
            f"{box} is called in a loop of PyTensor, and so again for each of {grouped(draws)} "
            "draws; n_logp does not count this."
        )
    for group in likelihood:
        _log.info(f"PyMC evaluates the model at each of {grouped(draws)} draws for {group}.")


def _evaluations_before_draws(step, scouting, pools):
    """Return the evaluations of a chain for which the others wait, and those of all together."""
    whole, short = step.search.usual_evaluations()
    if not (scouting and step.search.exists):
        return 0, 0
    if step.search.follows and step.pool_tuning and pools:
        return whole, short * (scouting - 1)
    return 0, whole * scouting
