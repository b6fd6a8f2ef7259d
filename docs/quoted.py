"""Numbers that pages quote, each computed here from what was measured and stored.

    python docs/quoted.py    writes them on the pages

A page quotes a number between two comments, which readers do not see: ``<!--=name-->42<!--/-->``.
So a number is the same wherever it stands, and follows its file. A test checks that pages are as
this file would write them, and that numbers of `STATED` never stand without their comments. A
comment must not begin a line, which would end the paragraph there.
"""

import json
import re
import sys
from functools import cache
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "examples" / "benchmarks"
sys.path.append(str(BENCHMARKS))  # whose scripts know what their rows mean
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]

QUOTED = re.compile(r"<!--=([\w -]+)-->(.*?)<!--/-->", re.S)

STATED = {
    "kam per evaluation": r"([\d.]+) of\s+GAM's\s+effective\s+draws",
    "way alone": r"([\d,. ]+ to [\d ]+) evaluations\s+per\s+parameter",
    "batch speed": r"(\d+ to \d+) times\s+as\s+many\s+draws\s+per\s+second",
}
"""How pages say a number that must be quoted wherever it is said so."""


def rows(name):
    """Return what a script has measured."""
    return json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))


def spaced(n):
    """Write a whole number as the pages do."""
    return f"{n:,}".replace(",", " ") if n >= 10_000 else str(n)


def short(x, digits=2):
    """Write a positive number with so many digits."""
    rounded = float(f"{x:.{digits}g}")
    return spaced(int(rounded)) if rounded >= 10 else f"{rounded:g}"


def span(values, digits=2):
    """Write the least and the largest of some numbers."""
    return f"{short(min(values), digits)} to {short(max(values), digits)}"


@cache
def numbers():
    """Return all numbers, as text by name."""
    return first_example() | ways() | effective_draws() | speed() | peers() | coverage()


def first_example():
    """Return what the README's example takes and gives, beside what PyMC does of itself."""
    import first_example

    found = first_example.summary(rows("first_example"))
    ours, pymc, other = (found[key] for key in ("pk.sample", "pm.sample", "pm.DEMetropolisZ"))
    per_call = {key: own["ess_bulk"] / own["calls"] for key, own in found.items()}
    return {
        "example runs": str(ours["runs"]),
        "example calls": short(ours["calls"]),
        "example bulk": short(ours["ess_bulk"]),
        "example stated": short(min(ours["stated"])),
        "example effective": short(min(ours["effective draws"])),
        "example z": f"{ours['z']:.1f}",
        "pymc calls": short(pymc["calls"]),
        "pymc bulk": short(pymc["ess_bulk"]),
        "pymc ratio": short(per_call["pk.sample"] / per_call["pm.sample"], 1),
        "demz bulk": short(other["ess_bulk"]),
        "demz rhat": f"{other['least rhat']:.1f}",
    }


def ways():
    """Return evaluations per parameter to the posterior."""
    import ways

    found = ways.per_parameter(rows("ways"))
    return {
        "way alone": span(found["alone"]),
        "way first": span(found["first"]),
        "way followers": short(np.median(found["followers"])),
        "way most followers": short(np.quantile(found["followers"], 0.9)),
    }


def posteriors(cases):
    """Return how many posteriors these are: hares and lynxes were run from two kinds of starts."""
    return len({case.removesuffix(" 0.1") for case in cases})


def effective_draws():
    """Return what evaluations are worth on the posteriors of evaluations.py, without the funnel."""
    by_row = {
        (row["case"], row["evaluations"], row["of"], row["sampler"]): row
        for row in rows("evaluations")
    }
    kam = {key[:2]: row["median"] for key, row in by_row.items() if key[2:] == ("KAM", "KAM")}
    gam = {place: by_row[*place, "GAM", "GAM"]["median"] for place in kam}
    ratios = [kam[place] / gam[place] for place in kam]
    surrogate = "SurrogateMetropolis"
    draws = {
        n: {
            key[0]: row
            for key, row in by_row.items()
            if key[1:] == (n, surrogate, surrogate) and key[0] != "funnel"
        }
        for n in (2000, 10_000)
    }
    small = [row for row in draws[2000].values() if row["d"] <= 10]
    gains = {
        name: by_row[name, 2000, surrogate, "corrected"]["median"] / row["median"]
        for name, row in draws[2000].items()
        if row["median"] > 0
    }
    large = [name for name, gain in gains.items() if gain >= 20]
    return {
        "kam per evaluation": f"{np.median(ratios):.1f}",
        "kam ahead": f"{sum(ratio > 1 for ratio in ratios)} of the {len(ratios)}",
        "2000 posteriors": str(posteriors(row["case"] for row in small)),
        "2000 median": span([row["median"] for row in small]),
        "2000 worst": span([row["worst"] for row in small]),
        "2000 GAM": span([by_row[row["case"], 2000, "GAM", "GAM"]["median"] for row in small]),
        "2000 few": str(sum(row["worst"] < 20 for row in small)),
        "10000 posteriors": str(posteriors(draws[10_000])),
        "10000 median": span([row["median"] for row in draws[10_000].values()]),
        "banana there": short(draws[10_000]["banana"]["worst"]),
        "10000 worst": span([row["worst"] for row in draws[10_000].values()]),
        "correction high": span([gains[name] for name in large]),
        "correction many": f"{posteriors(large)} of {posteriors(gains)}",
        "correction low": span([gain for gain in gains.values() if gain < 20]),
    }


def speed():
    """Return how much faster draws of ``pk.sample`` are than those of ``pm.sample``."""
    return {"batch speed": span([row["ratio"] for row in rows("driver")], 1)}


def peers():
    """Return how often other gradient samplers are ahead of GadMALA, and what runs take."""
    by_row = {
        (row["sampler"], row["case"], row["evaluations"]): row
        for row in rows("peers")
        if "worst" in row
    }
    found = {}
    others = {"nutpie": "diagonal", "nutpie low rank": "low rank", "BlackJAX": "blackjax"}
    for sampler, name in others.items():
        pairs = [
            (row, by_row["GadMALA", *key[1:]])
            for key, row in by_row.items()
            if key[0] == sampler and ("GadMALA", *key[1:]) in by_row
        ]
        more = [a["worst"] > b["worst"] for a, b in pairs]
        faster = [a["worst"] / a["seconds"] > b["worst"] / b["seconds"] for a, b in pairs]
        found[f"{name} evaluations"] = f"{sum(more)} of {len(more)}"
        found[f"{name} seconds"] = f"{sum(faster)} of {len(faster)}"
    found["banana here"] = short(by_row["SurrogateMetropolis", "banana", 10_000]["worst"])
    for sampler, name in {"SurrogateMetropolis": "surrogate", "GAM": "gam"}.items():
        own = [row for key, row in by_row.items() if key[0] == sampler and key[2] == 10_000]
        found[f"{name} seconds"] = span([row["seconds"] for row in own])
    return found


def coverage():
    """Return how many percent of stated errors hold that 89 % should."""
    import stated_errors

    funnel, others = [], []
    for row in rows("stated_errors"):
        (funnel if row["case"] == stated_errors.FUNNEL else others).append(row)
    shares = [
        [share for pair in stated_errors.percentages(own).values() for share in pair]
        for own in (others, funnel)
    ]
    return {"coverage": span(shares[0]), "coverage in the funnel": span(shares[1])}


def filled(text):
    """Return the text of a page with its numbers as they should be."""

    def write(match):
        name = match[1]
        if name not in numbers():
            raise LookupError(f"there is no number {name!r}")
        return f"<!--={name}-->{numbers()[name]}<!--/-->"

    return QUOTED.sub(write, text)


def unquoted(text):
    """Return what a page says of the numbers of `STATED` without quoting them."""
    bare = QUOTED.sub("QUOTED", text)
    return [match[0] for pattern in STATED.values() for match in re.finditer(pattern, bare)]


if __name__ == "__main__":
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        if (after := filled(before)) != before:
            page.write_text(after, encoding="utf-8")
