"""Write the table of samplers in docs/samplers.md, which follows from their classes.

    python docs/tables.py

It stands between two comments, ``<!-- samplers -->`` and ``<!-- end -->``. A test checks that it is
as this file would write it, and that the pages name every sampler and statistic.
"""

import inspect
import re
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_kameleon as pk

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "samplers.md"

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


def with_table(text):
    """Return the text of the page with the table as it should be."""
    begin, end = "<!-- samplers -->\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return before + begin + "\n".join(sampler_table()) + "\n" + end + after


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
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
