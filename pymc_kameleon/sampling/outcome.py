"""The end of a run: which chains make the result, and what there is to tell of them."""

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pymc as pm
import xarray as xr

from pymc_kameleon.analysis.diagnose import findings_of_draws
from pymc_kameleon.findings.diagnosis import UNCHECKED, USABLE, Diagnosis, dataset_of
from pymc_kameleon.findings.finding import finding, merged, say
from pymc_kameleon.findings.words import capitalised, chains_named, counted, grouped, in_words
from pymc_kameleon.model.pymc_internals import quiet_logging
from pymc_kameleon.model.watch import FAILED
from pymc_kameleon.result.store import add_group
from pymc_kameleon.step.groups import FINDINGS
from pymc_kameleon.step.problems import findings_of

_log = logging.getLogger("pymc_kameleon")

COMPUTED_GROUPS = {
    "log_likelihood": pm.stats.compute_log_likelihood,
    "log_prior": pm.stats.compute_log_prior,
}
"""What is computed at the end of a run, if `idata_kwargs` asks for it."""


@dataclass
class Finish:
    """What to do at the end of a run."""

    model: pm.Model
    idata_kwargs: dict  # which groups to compute
    checks_convergence: bool
    quiet: bool
    store: object  # path, or a result in memory, or None: from where the run can go on
    n_before: int = 0  # evaluations before the run, which it does not count
    computed: dict = field(default_factory=dict)  # group -> variables, None for all of them

    def prepare(self, kept):
        """See what is to be done at the end of a run that keeps these free variables."""
        self.checks_convergence = self.checks_convergence and bool(kept)
        variables = {"log_likelihood": self.model.observed_RVs, "log_prior": self.model.free_RVs}
        for group in COMPUTED_GROUPS:
            if not (chosen := self.idata_kwargs.get(group)):
                continue
            known = [rv.name for rv in variables[group]]
            if chosen is not True and not set(chosen) <= set(known):
                raise ValueError(f"idata_kwargs: {group} must be True, or some of {known}.")
            if left := [rv.name for rv in self.model.free_RVs if rv.name not in kept]:
                raise ValueError(f"idata_kwargs: {group} needs {left}, which var_names leaves out.")
            self.computed[group] = None if chosen is True else chosen

    @property
    def how_to_go_on(self):
        """The call that goes on with the run."""
        there = isinstance(self.store, Path)
        return f"pk.resume({str(self.store)!r})" if there else "pk.resume(...)"

    def conclude(self, tree, findings, made):
        """Compute the groups that were asked for, judge the draws, and log the verdict.

        `findings` are those of the chains, and `made` says what these have made.
        """
        with quiet_logging(self.quiet):
            if tree["posterior"].sizes["draw"] > 0:
                for name, variables in self.computed.items():
                    options = {"var_names": variables, "model": self.model, "progressbar": False}
                    _or_log(f"The {name}", partial(COMPUTED_GROUPS[name], tree, **options))
            judged = None
            if self.checks_convergence:
                judge = partial(findings_of_draws, tree, self.model)
                judged = _or_log("The convergence checks", judge)
            of_draws, known = judged or ([], "")
            codes = {one.code for one in findings}
            findings = [one for one in of_draws if one.code not in codes] + findings
            diagnosis = Diagnosis(findings, f"{made}. {known}".rstrip(), judged is not None)
            is_good = diagnosis.verdict in (USABLE, UNCHECKED)
            level = logging.INFO if is_good else logging.WARNING
            _log.log(level, "%s", diagnosis.brief, extra={"findings": diagnosis.findings})
            self.keep(tree, diagnosis)

    def keep(self, tree, diagnosis):
        """Put a Diagnosis into the result, and into its store."""
        tree[FINDINGS] = xr.DataTree(data := dataset_of(diagnosis))
        if isinstance(self.store, Path) and self.store.is_dir():
            try:
                add_group(self.store, FINDINGS, data)
            except OSError as error:
                say("findings_not_kept", store=self.store, error=error)


def _or_log(what, task):
    """Return what a task does; if it fails, log that, as the draws are worth more."""
    try:
        return task()
    except Exception:
        _log.exception(f"{what} failed; the draws are returned.")
        return None


EARLY_ENDS = {
    "interrupted": "Sampling was interrupted",
    "stopped": "Sampling was stopped",
    "max_time": "The time was up",
}
"""What ended a run before its last draw, in words."""


def of_end(why, until_enough, chains, length, left, how_to_go_on):
    """Tell what ended a run before its last draw, or that it has not drawn enough.

    `why` is a key of `EARLY_ENDS`, ``"target_ess"``, ``"disk"`` or None; `length` counts the draws
    of each of `chains`, which are the result, and `left` names the others.
    """
    found = [finding("no_draws")] if not length else []
    if why not in EARLY_ENDS and not (until_enough and why is None):
        return found
    made = f"{grouped(length)} draws of {counted(len(chains), 'chain')}"
    shorter = ""
    if left:
        others = capitalised(chains_named(left, len(chains) + len(left)))
        shorter = f" {others} {'is' if len(left) == 1 else 'are'} shorter, and kept for that."
    what = made if length else "no draws after tuning yet"
    numbers = {"draws": what, "left": shorter, "call": how_to_go_on}
    if why in EARLY_ENDS:
        return [*found, finding("ended_early", why=EARLY_ENDS[why], **numbers)]
    return [*found, finding("not_enough", **numbers)]


def of_chains(ended):
    """Return Findings of chains at their end, each a pair of it and its steps."""
    found = [
        replace(one, chains=(chain.number,))
        for chain, steps in ended
        for step in steps
        for one in findings_of(step)
    ]
    return merged(found, len(ended), several_steps=len(ended[0][1]) > 1)


def of_rejections(ended):
    """Tell how many evaluations of all chains were rejected as they failed, or took too long."""
    watched = [(chain, step) for chain, steps in ended for step in steps]
    failed = [(chain, step) for chain, step in watched if any(step.watch.n_rejected)]
    if not failed:
        return []
    errors, late = np.sum([step.watch.n_rejected for _, step in failed], axis=0)
    parts = [f"{counted(int(errors), 'exception')} of the likelihood"] if errors else []
    parts += [f"{counted(int(late), 'evaluation')} that took too long"] if late else []
    chain, step = failed[0]
    return [
        finding(
            "rejected_evaluations",
            counts=" and ".join(parts),
            chain=chain.number,
            place=step.layout.in_words(step.watch.points[FAILED]),
            error=step.watch.error[0],
        )
    ]


def what_was_made(ended, seconds, evaluations):
    """Return in words the draws and evaluations of a run, and how long it took."""
    made = []
    for chain, _ in ended:
        tuned = min(chain.done, chain.tune) - min(chain.begun, chain.tune)
        made.append((tuned, chain.done - chain.begun - tuned))
    tuned, drawn = (grouped(sum(own)) for own in zip(*made, strict=True))
    total = f"{tuned} + {drawn} draws"
    if len(set(made)) == 1:
        tuned, drawn = map(grouped, made[0])
        total = f"{len(made)} × ({tuned} + {drawn}) draws"
    return f"{total} and {evaluations} in {in_words(seconds)}"


def longest(chains):
    """Return the chains that give the most draws, as PyMC does, and how many draws these are.

    If there are none after tuning, these are all chains.
    """
    lengths = sorted((chain.made for chain in chains), reverse=True)
    draws = [length * (i + 1) for i, length in enumerate(lengths)]
    length = lengths[int(np.argmax(draws))]
    return [chain for chain in chains if chain.made >= length], length
