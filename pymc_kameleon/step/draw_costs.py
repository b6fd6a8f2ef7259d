"""The cost of an evaluation of the log-density, and so of a draw."""

import logging
import time

import numpy as np

from pymc_kameleon.findings.words import grouped, in_words
from pymc_kameleon.model.black_boxes import names_of
from pymc_kameleon.model.python_calls import WrongReturn

_log = logging.getLogger("pymc_kameleon")

SLOW_LOGP, LONG_RUN = 1e-3, 30
"""Seconds for one logp evaluation, and for a run, from which the user is told what it costs."""


def most_evaluations(steps):
    """Return how many evaluations a draw with these steps in turn takes, at most."""
    anew = len(steps) > 1  # where another step has moved
    return sum(step.steps_per_draw * step._largest_n_logp() + anew for step in steps)


def seconds_per_logp(log_density, q, values):
    """Return how long an evaluation at `q` takes, NaN if it raises; add its value to `values`."""

    def evaluate():
        start = time.perf_counter()
        values.append(log_density(q))
        return time.perf_counter() - start

    try:
        seconds = min(evaluate(), evaluate())  # a first call may have to warm up
        if seconds < 1:
            seconds = min(seconds, evaluate())
    except WrongReturn:
        raise
    except Exception:  # a bad point is reported where a chain starts
        return np.nan
    return seconds


def what_a_run_costs(steps, evaluations, at_once):
    """Return in words how long so many evaluations take, at most, "" if that is not long."""
    seconds = np.max([step.seconds_per_logp for step in steps])  # NaN if it raised at the start
    total = evaluations * seconds / at_once
    if not (seconds > SLOW_LOGP or total > LONG_RUN) or evaluations == 0:
        return ""
    return (
        f"At most {grouped(evaluations)} evaluations of {in_words(seconds)}: about "
        f"{in_words(total)} with {at_once} at a time"
    )


def take_trials(steps):
    """Return how many evaluations were made to try steps: they are counted by one run alone."""
    n_trials = sum(step.n_trials for step in steps)
    for step in steps:
        step.n_trials = 0
    return n_trials


def say_what_a_draw_costs(step):
    """Tell the user of pm.sample, of which a step knows no more, if the likelihood is expensive.

    And if there are coarse models, which that does not know of.
    """
    if able := [op for op in step.log_density.users_ops if getattr(op, "coarse", None)]:
        _log.info(f"The coarse model of {names_of(able)} is not used: that takes pk.sample.")
    seconds, n = step.seconds_per_logp, step.steps_per_draw
    if seconds > SLOW_LOGP:
        advice = " With steps_per_draw=1 draws are cheaper, and more correlated." * (n > 1)
        _log.info(
            f"One logp evaluation takes {in_words(seconds)}, a draw of {type(step).__name__} "
            f"{in_words(seconds * n * step._largest_n_logp())} (steps_per_draw={n}).{advice}"
        )
