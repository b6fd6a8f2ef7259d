"""Write the tables of samplers and of findings, which follow from the code.

    python docs/tables.py

They stand in docs/samplers.md and docs/diagnose.md between two comments, ``<!-- table -->`` and
``<!-- end -->``. A test checks that they are as this file would write them, and that the pages name
every sampler and statistic.
"""

import inspect
import re
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_kameleon as pk
from pymc_kameleon.findings.registry import SECTIONS

ROOT = Path(__file__).parents[1]

D = 10
"""Parameters for which evaluations per draw are told, at most."""


def page_of(sampler):
    """Return the name of the page in docs/ whose title names a sampler."""
    name, pages = sampler.__name__, []
    for page in sorted((ROOT / "docs").glob("*.md")):
        title = page.read_text(encoding="utf-8").partition("\n")[0]
        if re.search(rf"\b{name}\b", title):
            pages.append(page.name)
    if len(pages) != 1:
        raise LookupError(f"One page in docs/ must have {name} in its title, not {pages}.")
    return pages[0]


def sampler_table():
    """Return what each sampler is, and what a draw of it costs."""
    black_box = pk.black_box(np.sin)
    with pm.Model() as plain:
        pm.Normal("x", shape=D)
    with pm.Model() as simulated:
        x = pm.Normal("x", shape=D)
        pm.Normal("y", black_box(x), observed=np.ones(D))
    lines = ["| sampler | | gradient | evaluations per draw |", "|---|---|---|---|"]
    for sampler in pk.samplers.SAMPLERS:
        model = simulated if sampler is pk.EmulatorMetropolis else plain
        step = sampler(model=model)
        summary = inspect.getdoc(sampler).partition("\n\n")[0].replace("\n", " ").rstrip(".")
        cost = step.steps_per_draw * step._largest_n_logp()
        needs = "yes" if sampler.derivatives else "no"
        room = "pk.baselines" if sampler in pk.samplers.BASELINES else "pk"
        name = f"[`{room}.{sampler.__name__}`]({page_of(sampler)})"
        lines.append(f"| {name} | {summary} | {needs} | {cost} |")
    return lines


def finding_tables():
    """Return what can be found in a run, what it means, and what to do."""
    lines = []
    for title, kinds in SECTIONS.items():
        head = "| finding | what it means | what to do |"
        lines += ["", f"## {title}", "", head, "|---|---|---|"]
        for code, kind in kinds.items():
            what, remedy = map(_without_numbers, (kind.what, kind.remedy))
            test = _test_of(code)
            what = f"**{kind.severity}** `{code}`: {what} ([example]({test}))"
            lines.append(
                f"| {what} | {kind.means} | {remedy} |".replace("|u", r"\|u").replace("ū|", r"ū\|")
            )
    return [*lines[1:], ""]


def _without_numbers(template):
    """Return a template with the names of its numbers."""
    return re.sub(r"{(\w+)[^}]*}", r"*\1*", template).replace("_", r"\_")


def _test_of(code):
    """Return the first test that names a finding, as a link from docs/."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name != "test_registry.py" and (f'"{code}"' in text or f"[{code}]" in text):
            return f"../{path.relative_to(ROOT)}"
    raise LookupError(f"No test names the finding {code}.")


TABLES = {"samplers.md": sampler_table, "diagnose.md": finding_tables}
"""The pages, and the functions that return the lines of their tables."""


def with_table(name):
    """Return the text of a page as it is, and with the table as it should be."""
    text, begin, end = (ROOT / "docs" / name).read_text("utf-8"), "<!-- table -->\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return text, before + begin + "\n".join(TABLES[name]()) + "\n" + end + after


def undocumented():
    """Return what docs/statistics.md and docs/sampling.md have to name, and do not.

    That is each sampler, for its scale and for what it learns, and its own statistics.
    """
    pages = [ROOT / "docs" / name for name in ("statistics.md", "sampling.md")]
    statistics, sampling = (page.read_text(encoding="utf-8") for page in pages)
    samplers = {sampler.__name__ for sampler in pk.samplers.SAMPLERS}
    own = {
        (s.name, field)
        for s in pk.samplers.SAMPLERS
        for field in s.stats._fields
        if field != "kept"
    }
    missing = {
        field
        for name, field in own
        if f"`{field}`" not in statistics and f"`{name}_{field}`" not in statistics
    }
    for page in (statistics, sampling):
        missing |= {name for name in samplers if not re.search(rf"\b{name}\b", page)}
    return sorted(missing)


if __name__ == "__main__":
    for name in TABLES:
        (ROOT / "docs" / name).write_text(with_table(name)[1], encoding="utf-8")
