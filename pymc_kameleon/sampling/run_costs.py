"""What a run will take: said before it begins."""

import logging

import numpy as np

from pymc_kameleon.findings.words import counted, grouped, in_words
from pymc_kameleon.step.draw_costs import SLOW_LOGP

_log = logging.getLogger("pymc_kameleon")

LONG_RUN = 30
"""Seconds from which the user is told how long a run will take."""


def what_a_run_costs(steps, chains, draws, at_once, scouting=0, pools=False):
    """Return in words how long a run will take, if the likelihood is expensive, or the run long.

    No chain is touched, and no evaluation counted. Each chain makes `draws`, those of tuning too;
    `at_once` evaluations are made at a time; and `scouting` chains look for the posterior first, or
    all but one follow that, if the run `pools` tuning.
    """
    if draws == 0 or any(np.isnan(step.seconds_per_logp) for step in steps):
        return ""  # nothing to do, or it raised at the initial point
    parts, seconds, least, scouted, exact = [], 0.0, 0, 0, True
    for step in steps:
        n, largest = step.steps_per_draw, step._largest_n_logp()
        evaluations = chains * draws * n * largest
        before = _evaluations_before_draws(step, scouting, pools)
        seconds += step.seconds_per_logp * (evaluations + before) / at_once
        scouted += before
        least += chains * draws * largest
        exact &= largest == 1
        parts.append(
            f"× {counted(n, 'transition')} of {type(step).__name__} = "
            f"{'' if largest == 1 else 'at most '}{grouped(evaluations)} evaluations of "
            f"{in_words(step.seconds_per_logp)}"
        )
    if seconds <= LONG_RUN and all(step.seconds_per_logp <= SLOW_LOGP for step in steps):
        return ""
    more = f", and about {grouped(scouted)} to find the posterior" if scouted else ""
    advice = any(step.steps_per_draw > 1 for step in steps)
    return (
        f"{counted(chains, 'chain')} × {grouped(draws)} draws {', and '.join(parts)}{more}: about "
        f"{in_words(seconds)}{'' if exact else ' at most'} with {at_once} at a time"
        f"{f'; steps_per_draw=1 makes {grouped(least)}' if advice else ''}."
    )


def what_evaluations_cost(job, evaluations, at_once):
    """Return in words how long evaluations take, if that is long; see `what_a_run_costs`."""
    seconds = max(step.seconds_per_logp for step in job.steps)
    least = evaluations * seconds / at_once
    if seconds <= SLOW_LOGP and least <= LONG_RUN:
        return ""
    duration = f"{in_words(least)} or more"
    if job.at_once == 1:  # and one by one until the posterior is found
        duration = f"{in_words(least)} to {in_words(evaluations * seconds)}"
    return (
        f"At most {grouped(evaluations)} evaluations of {in_words(seconds)}: {duration} with "
        f"{at_once} at a time."
    )


def say_what_n_logp_leaves_out(job, draws):
    """Tell the user of a black box of all its calls that the statistic n_logp does not count.

    `draws` are kept of all chains.
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


def _evaluations_before_draws(step, scouting, pools):
    """Return the evaluations by which all chains together look for the posterior."""
    if not (scouting and step.search.exists):
        return 0
    whole, short = step.search.usual_evaluations()
    follow = step.search.follows and step.pool_tuning and pools
    return whole + short * (scouting - 1) if follow else whole * scouting
