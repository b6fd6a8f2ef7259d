"""The end of a run: which chains make the result, and what is said of them."""

import logging
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pymc as pm
from arviz_stats import rhat
from arviz_stats.base import array_stats

from pymc_kameleon.analysis.doubts import doubts
from pymc_kameleon.analysis.gradients_of_draws import check_kept
from pymc_kameleon.analysis.mode_occupancy import explain_modes
from pymc_kameleon.model.advice import what_may_help
from pymc_kameleon.model.pymc_internals import (
    WarningType,
    log_warnings,
    quiet_logging,
    run_convergence_checks,
)
from pymc_kameleon.model.watch import FAILED
from pymc_kameleon.result.superchains import HIGH_RHAT, are_high, nested_r_hat, superchains_of
from pymc_kameleon.step.messages import (
    capitalised,
    chains_named,
    counted,
    grouped,
    in_words,
    say_each_once,
)
from pymc_kameleon.step.problems import closing_problems, heading
from pymc_kameleon.step.searches import note_impossible, note_searches

_log = logging.getLogger("pymc_kameleon")

EARLY_ENDS = {
    "interrupted": "Sampling was interrupted",
    "stopped": "Sampling was stopped",
    "max_time": "The time was up",
}
"""What the log says of an end before the last draw."""


@dataclass
class Finish:
    """What to do at the end of a run."""

    model: pm.Model
    computed: dict  # group -> (function, names of variables, or None for all)
    checks_convergence: bool
    quiet: bool
    store: object  # str, path or None: from where the run can go on

    @property
    def how_to_go_on(self):
        """The call that goes on with the run."""
        there = isinstance(self.store, str | Path)
        return f"pk.resume({str(self.store)!r})" if there else "pk.resume(...)"

    def check(self, tree):
        """Compute the groups that were asked for, and check the convergence."""
        with quiet_logging(self.quiet):
            tasks = {
                name: partial(compute, tree, var_names=names, model=self.model, progressbar=False)
                for name, (compute, names) in self.computed.items()
            }
            if self.checks_convergence:
                tasks["convergence checks"] = partial(self._check_convergence, tree)
                tasks["comparison with prior and search"] = partial(self._check_draws, tree)
            for name, task in tasks.items() if tree["posterior"].sizes["draw"] > 0 else ():
                try:
                    task()
                except Exception:  # a finished run is worth more than what is said about it
                    _log.exception(f"The {name} failed; the draws are returned.")

    def _check_draws(self, tree):
        for doubt in doubts(tree, self.model):
            _log.warning(doubt)

    def _check_convergence(self, tree):
        if (numbers := superchains_of(tree["posterior"].to_dataset())) is not None:
            self._check_superchains(tree, numbers)
            return
        warnings = run_convergence_checks(tree, self.model)
        log_warnings(warnings)
        if any(warning.kind is WarningType.CONVERGENCE for warning in warnings):
            self._say_what_may_help(tree)

    def _check_superchains(self, tree, numbers):
        """Do the same for many short chains, whose R-hat is above 1.01 for being short alone."""
        names = [rv.name for rv in self.model.free_RVs if rv.name in tree["posterior"]]
        posterior = tree["posterior"].to_dataset()[names].transpose("chain", "draw", ...)
        said = []
        for name, own in posterior.items():
            values = own.values.reshape(*own.shape[:2], -1).astype(np.float64)
            both = (
                array_stats.rhat(values, chain_axis=0, draw_axis=1),
                nested_r_hat(values, numbers),
            )
            high = are_high(*both, numbers, values.shape[1])
            for what, found, are in zip(("R-hat", "nested R-hat"), both, high, strict=True):
                if are.any():
                    said.append((found[are].max(), f"{what} of {name}"))
        if said:
            value, what = max(said)
            _log.warning(
                f"The chains have not come to the same distribution: {what} is {value:.2f}, more "
                "than so few draws would give. Allow more evaluations, or fewer chains: chains=4 "
                "with the same max_concurrent has longer ones."
            )
            self._say_what_may_help(tree)

    def _say_what_may_help(self, tree):
        """Warn if the chains are in different modes; if not, but they differ, say what to try."""
        names = [rv.name for rv in self.model.free_RVs]
        kept = [name for name in names if name in tree["posterior"]]
        advice = explain_modes(tree, kept)
        if not advice and max(r.max() for r in rhat(tree, var_names=kept).values()) > HIGH_RHAT:
            advice = what_may_help(self.model)
        if advice:
            _log.warning(advice)


def say_how_it_ended(why, until_enough, chains, length, left, how_to_go_on):
    """Log what ended a run before its last draw, or whether it has drawn enough.

    `why` is a key of `EARLY_ENDS`, ``"target_ess"``, ``"disk"`` or None; `length` counts the draws
    of each of `chains`, which are the result, and `left` names the others.
    """
    made = f"{grouped(length)} draws of {counted(len(chains), 'chain')}"
    what = made if length else "no draws after tuning yet"
    how = f"{how_to_go_on} goes on."
    if left:
        shorter = capitalised(chains_named(left, len(chains) + len(left)))
        verb = "is" if len(left) == 1 else "are"
        how += f" {shorter} {verb} shorter: what was made there is kept for that."
    if why in EARLY_ENDS:
        _log.warning(f"{EARLY_ENDS[why]}. The result has {what}; {how}")
    elif why == "target_ess":
        _log.info(f"{made} are enough.")
    elif until_enough:
        _log.warning(f"{made} are not enough; {how}")


def check_gradients(tree, job):
    """See whether the gradients that a result has can be used; if that fails, log why."""
    try:
        check_kept(tree, job.steps[0])
    except Exception:  # the draws are worth more, and pk.summary sees to it again
        _log.exception("The gradients were not checked, as this failed; the draws are returned.")


def say_what_was_done(ended, seconds, evaluations=""):
    """Log the warnings of chains at their end, each once, how long it took, and for what."""
    said = defaultdict(list)
    for chain, steps in ended:
        for i, step in enumerate(steps):
            for problem in closing_problems(step):
                if (i, problem) not in chain.given_warnings:
                    said[i, _without_numbers(problem)].append((chain, problem))
    for (i, _), problems in said.items():
        first, problem = problems[0]
        same = all(other == problem for _, other in problems)
        _log.warning(
            "%s: %s %s%s",
            capitalised(chains_named([chain.number for chain, _ in problems], len(ended))),
            heading(ended[0][1][i]),
            problem,
            "" if same else f" (The numbers are those of chain {first.number}.)",
        )
    made = [_made(chain) for chain, _ in ended]
    tuned, drawn = (grouped(sum(own)) for own in zip(*made, strict=True))
    total = f"{tuned} + {drawn} draws total"
    if len(set(made)) == 1:
        tuned, drawn = map(grouped, made[0])
        total = f"for {tuned} tune and {drawn} draw iterations ({total})"
    else:  # they ended when each was somewhere else
        total = f"({total}, of tuning and after it)"
    for_what = f"; {evaluations}" if evaluations else ""
    n, took = counted(len(made), "chain"), in_words(seconds)
    _log.info("Sampling %s %s took %s%s.", n, total, took, for_what)


def say_what_tuning_found(ended):
    """Log what else there is to say of chains that were tuned in this run, each once."""
    tuned = [steps for chain, steps in ended if chain.begun < chain.tune <= chain.done]
    steps = [step for steps in tuned for step in steps]
    say_each_once(note_searches(step.searches, type(step).__name__) for step in steps)
    say_each_once(note_impossible(step.monitor) for step in steps)
    say_each_once(note for step in steps for note in step._notes())


def say_what_was_rejected(ended):
    """Log how many evaluations of all chains were rejected as they failed, or took too long."""
    watched = [(chain, step) for chain, steps in ended for step in steps]
    failed = [(chain, step) for chain, step in watched if any(step.watch.n_rejected)]
    if not failed:
        return
    errors, late = np.sum([step.watch.n_rejected for _, step in failed], axis=0)
    parts = [f"{counted(int(errors), 'exception')} of the likelihood"] if errors else []
    parts += [f"{counted(int(late), 'evaluation')} that took too long"] if late else []
    chain, step = failed[0]
    _log.warning(
        "%s counted as impossible points. That is right if the parameters are to blame, and cuts "
        "the posterior if not. The first was in chain %s at %s, where the likelihood %s.",
        " and ".join(parts),
        chain.number,
        step.layout.in_words(step.watch.points[FAILED]),
        step.watch.error[0],
    )


def _made(chain):
    """Return the draws that a chain has made in this run: of tuning, and after it."""
    tuned = min(chain.done, chain.tune) - min(chain.begun, chain.tune)
    return tuned, chain.done - chain.begun - tuned


def _without_numbers(text):
    """Return a text with # for its numbers, but for those in brackets, which name coordinates."""
    number = r"\[[^]]*\]|(?<![\w.])-?\d[\d.]*(e[+-]?\d+)?(?!\w)"
    return re.sub(number, lambda found: found[0] if found[0][0] == "[" else "#", text)


def data_of(chain):
    """Return digests of the data that the steps of a chain have seen."""
    return [own.data for own in chain.state.steps]


def longest(chains):
    """Return the chains that give the most draws, as PyMC does, and how many draws these are.

    If there are none after tuning, these are all chains.
    """
    lengths = sorted((chain.made for chain in chains), reverse=True)
    draws = [length * (i + 1) for i, length in enumerate(lengths)]
    length = lengths[int(np.argmax(draws))]
    return [chain for chain in chains if chain.made >= length], length
