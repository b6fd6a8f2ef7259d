"""The end of a run: which chains make the result, and what is said of them."""

import logging
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pymc as pm

from pymc_kameleon.step.messages import counted, in_words
from pymc_kameleon.step.problems import closing_problems, heading

_log = logging.getLogger("pymc_kameleon")


@dataclass
class Finish:
    """What is to be done at the end.

    Attributes
    ----------
    model : pm.Model
    computed : dict
        Groups to compute: name -> (function, names of variables, or None for all).
    checks_convergence, keeps_warnings, quiet : bool
    store : str, path or None
        From where the run can go on.
    """

    model: pm.Model
    computed: dict
    checks_convergence: bool
    keeps_warnings: bool
    quiet: bool
    store: object

    @property
    def how_to_go_on(self):
        """Say how."""
        there = isinstance(self.store, str | Path)
        return f"pk.sample(resume={str(self.store)!r})" if there else "pk.sample(resume=...)"


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
            heading(speakers[0][1][i]),
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
