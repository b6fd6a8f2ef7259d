"""What a run has found that its user should know: data, whose words are in registry.py."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pymc_kameleon.findings.registry import KINDS, NOTE, SEVERITIES
from pymc_kameleon.findings.words import capitalised, chains_named

_log = logging.getLogger("pymc_kameleon")


@dataclass(frozen=True)
class Finding:
    """One of them.

    Attributes
    ----------
    code : str
        A key of the registry.
    numbers : Mapping
        What the words of that code are about, by name: numbers, and names of variables.
    source : str
        The step that found it, as ``"GAM([x])"``; "" if it is of the whole run.
    chains : tuple of int
        The chains in which it was found; empty if it is of all chains.
    of_first : bool
        Whether the numbers are those of the first of these chains.
    """

    code: str
    numbers: Mapping
    source: str = ""
    chains: tuple = ()
    of_first: bool = False

    def __post_init__(self):
        if self.code not in KINDS:
            raise KeyError(f"{self.code} is no finding of the registry.")

    @property
    def severity(self):
        """``"note"``, ``"caution"`` or ``"problem"``."""
        return KINDS[self.code].severity

    @property
    def what(self):
        """What was found, in words."""
        return KINDS[self.code].what.format_map(self.numbers)

    @property
    def remedy(self):
        """What to do, in words, or ``""``."""
        return KINDS[self.code].remedy.format_map(self.numbers)

    @property
    def where(self):
        """The chains and the step in which it was found, or ``""``."""
        chains = capitalised(chains_named(self.chains)) if self.chains else ""
        return " of ".join(filter(None, [chains, self.source]))

    def __str__(self):
        """Where, what, and what to do."""
        where = f"{self.where}: " if self.where else ""
        own = f" (The numbers are those of chain {self.chains[0]}.)" if self.of_first else ""
        return f"{where}{self.what} {self.remedy}".rstrip() + own


def finding(code, **numbers):
    """Return a Finding."""
    return Finding(code, numbers)


def merged(findings, n_chains, several_steps=False):
    """Return findings of chains, each code of a step once, with the words of the first chain.

    Where it was found is told of some of `n_chains`, and if there are several steps.
    """
    found = {}
    for one in findings:
        key = one.code, one.source, one.numbers.get("scale")
        first = found.setdefault(key, one)
        of_first = first.of_first or dict(first.numbers) != dict(one.numbers)
        chains = tuple(dict.fromkeys([*first.chains, *one.chains]))
        found[key] = replace(first, chains=chains, of_first=of_first)
    return [
        replace(
            one,
            chains=() if len(one.chains) == n_chains and not one.of_first else one.chains,
            source=one.source if several_steps else "",
        )
        for one in found.values()
    ]


def said(findings, known=()):
    """Log findings in words, those of other codes than the `known` ones."""
    for one in most_serious_first(findings):
        if one.code not in known:
            level = logging.INFO if one.severity == NOTE else logging.WARNING
            _log.log(level, "%s", one, extra={"findings": [one]})


def say(code, **numbers):
    """Log a finding at once."""
    said([finding(code, **numbers)])


def most_serious_first(findings):
    """Return findings in the order in which they matter."""
    return sorted(findings, key=lambda one: -SEVERITIES.index(one.severity))
