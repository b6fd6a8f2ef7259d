"""The verdict on a run, from its findings: a line, the three most serious of them, and a table."""

import json
import shutil
from dataclasses import dataclass, field
from html import escape
from io import StringIO

import numpy as np
import pandas as pd
import xarray as xr
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pymc_kameleon.findings.finding import Finding, most_serious_first
from pymc_kameleon.findings.registry import CAUTION, KINDS, NOTE, PROBLEM
from pymc_kameleon.findings.words import counted

USABLE, UNCHECKED, CHECK, NOT_USABLE = "usable", "not checked", "check", "not usable"
VERDICTS = {NOTE: USABLE, CAUTION: CHECK, PROBLEM: NOT_USABLE}
"""The verdict is that on the most serious finding."""

SHOWN = 3
"""Findings that are shown with the verdict; the table has all."""


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Whether a result can be used, and what speaks against it.

    Attributes
    ----------
    verdict : str
        ``"usable"``; ``"check"``: averages may be off by more than their errors tell; ``"not
        usable"``: they are wrong; or ``"not checked"``, if draws were not looked at.
    findings : list of Finding
        The most serious first; each has a `code`, `severity`, `what`, `remedy`, `numbers`,
        `source` and `chains`.
    summary : str
        What was made, and how well means are known, in a sentence each.
    table : DataFrame
        The findings, a row each.
    """

    findings: list
    summary: str = ""
    is_checked: bool = True
    verdict: str = field(init=False)

    def __post_init__(self):
        found = most_serious_first(self.findings)
        severity = found[0].severity if found else NOTE
        verdict = UNCHECKED if severity == NOTE and not self.is_checked else VERDICTS[severity]
        for name, value in {"findings": found, "verdict": verdict}.items():
            object.__setattr__(self, name, value)

    @property
    def line(self):
        """The verdict, what was made, and how well that is known."""
        return f"{self.verdict.capitalize()}. {self.summary}".rstrip()

    @property
    def brief(self):
        """The line, and the most serious findings."""
        lines = [f"  {one.severity:8} {one}" for one in self.findings[:SHOWN]]
        if (more := len(self.findings) - SHOWN) > 0:
            lines[-1] += f" ({counted(more, 'more finding')}: pk.diagnose(dt).)"
        return "\n".join([self.line, *lines])

    @property
    def table(self):
        """The findings."""
        rows = [(one.severity, one.code, one.where, one.what, one.remedy) for one in self.findings]
        return pd.DataFrame(rows, columns=["severity", "code", "where", "what", "what to do"])

    def __repr__(self):
        """Return the line, and a table of all findings."""
        console = Console(file=StringIO(), width=shutil.get_terminal_size((100, 20)).columns)
        console.print(Text(self.line))
        if self.findings:
            table = Table("severity", "what", "what to do", box=box.SIMPLE_HEAD)
            for one in self.findings:
                where = f"{one.where}: " if one.where else ""
                table.add_row(*map(Text, (one.severity, f"{where}{one.what}", one.remedy)))
            console.print(table)
        return "\n".join(line.rstrip() for line in console.file.getvalue().rstrip().split("\n"))

    def _repr_html_(self):
        with pd.option_context("display.max_colwidth", None):
            return f"<p>{escape(self.line)}</p>{self.table.to_html(index=False)}"


def dataset_of(diagnosis):
    """Return a Dataset that can be saved."""
    columns = {
        "code": [one.code for one in diagnosis.findings],
        "severity": [one.severity for one in diagnosis.findings],
        "what": [one.what for one in diagnosis.findings],
        "remedy": [one.remedy for one in diagnosis.findings],
        "source": [one.source for one in diagnosis.findings],
        "chains": [json.dumps(one.chains) for one in diagnosis.findings],
        "numbers": [_as_json(one.numbers) for one in diagnosis.findings],
    }
    data = {name: ("finding", np.array(own, dtype=str)) for name, own in columns.items()}
    data["of_first"] = ("finding", np.array([one.of_first for one in diagnosis.findings], bool))
    attributes = {
        "verdict": diagnosis.verdict,
        "summary": diagnosis.summary,
        "is_checked": int(diagnosis.is_checked),
    }
    return xr.Dataset(data, attrs=attributes)


def _as_json(numbers):
    return json.dumps(dict(numbers), default=lambda number: number.item())


def diagnosis_in(data):
    """Return the Diagnosis that a Dataset was made of."""
    names = "code", "numbers", "source", "chains", "of_first"
    findings = [
        Finding(
            *(str(code), json.loads(str(numbers)), str(source), tuple(json.loads(str(chains)))),
            bool(of_first),
        )
        for code, numbers, source, chains, of_first in zip(
            *(data[name].values for name in names), strict=True
        )
        if str(code) in KINDS  # that of another version may not be
    ]
    return Diagnosis(findings, data.attrs["summary"], bool(data.attrs["is_checked"]))
