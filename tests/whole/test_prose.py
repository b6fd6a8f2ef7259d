"""What pages say: numbers are those of the stored files, and sentences are short."""

import re
from pathlib import Path

import pytest
import quoted

from pymc_kameleon.analysis.process_correction import MOST_EVALUATIONS
from pymc_kameleon.samplers.choice import MOST_DENSE, MOST_FOR_SURROGATE
from pymc_kameleon.samplers.surrogate.initial_search import BUDGET, MOST_COORDINATES

ROOT = Path(__file__).parents[2]
PAGES = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in quoted.PAGES}

# ---- numbers ------------------------------------------------------------------------------------


def test_numbers_are_those_of_the_files():
    for name, text in PAGES.items():
        assert quoted.filled(text) == text, f"{name}: run python docs/quoted.py"
    wrong = "KAM had <!--=kam per evaluation-->9.9<!--/--> of it"
    assert quoted.filled(wrong) == wrong.replace("9.9", quoted.numbers()["kam per evaluation"])
    with pytest.raises(LookupError, match="no number 'of nothing'"):
        quoted.filled("<!--=of nothing-->1<!--/-->")


def test_a_number_follows_its_file(monkeypatch):
    stored = quoted.rows

    def other(name):
        return [row | {"ratio": 50.0} if name == "driver" else row for row in stored(name)]

    assert quoted.speed()["batch speed"] == "30 to 100"
    monkeypatch.setattr(quoted, "rows", other)
    assert quoted.speed()["batch speed"] == "50 to 50"


def test_every_number_is_on_a_page():
    used = {name for text in PAGES.values() for name, _ in quoted.QUOTED.findall(text)}
    assert used == quoted.numbers().keys()


def test_numbers_never_stand_without_their_comments():
    found = {name: quoted.unquoted(text) for name, text in PAGES.items()}
    assert {name: said for name, said in found.items() if said} == {}
    assert quoted.unquoted("It had 0.9 of\nGAM's effective draws.") != []
    assert quoted.unquoted("which takes 14 to 60 evaluations per parameter") != []


LIMITS = {
    r"(?:up to|at most|more than|beyond) (\d+)\s+coordinates": {MOST_FOR_SURROGATE, MOST_DENSE},
    r"(?:up to|at most|more than|beyond) (1[1-9])\s+parameters": {MOST_COORDINATES},
    r"(\d+) d \+\s+60": {BUDGET[0]},
    r"15 d \+\s+(\d+)": {BUDGET[1]},
    r"with at most (\d+)\s+evaluations": {MOST_EVALUATIONS},
}
"""How pages say limits, and what these are in the code."""


def wrong_limits(text):
    """Limits of a page that are not those of the code."""
    for pattern, right in LIMITS.items():
        for match in re.finditer(pattern, text, re.I):
            if int(match[1]) not in right:
                yield match[0]


def test_limits_are_those_of_the_code():
    assert {
        name: [*wrong_limits(text)] for name, text in PAGES.items() if [*wrong_limits(text)]
    } == {}
    assert all(any(re.search(pattern, text, re.I) for text in PAGES.values()) for pattern in LIMITS)
    wrong = "up to 41 coordinates, at most 13\nparameters, 14 d + 60, with at most 501 evaluations"
    assert len([*wrong_limits(wrong)]) == 4


def test_no_comment_of_a_number_begins_a_line():
    begins = re.compile(r"^\s*(?:[-*] )?<!--[=/]", re.M)
    assert [name for name, text in PAGES.items() if begins.search(text)] == []
    assert begins.search("It takes\n<!--=draw cost-->1<!--/--> µs")


def test_the_output_in_the_readme_is_that_of_its_run():
    [run] = (
        row
        for row in quoted.rows("first_example")
        if row["sampler"] == "pk.sample" and row["seed"] == 1
    )
    lines = re.findall(r"^(?:infection|recovery|dispersion) .*$", PAGES["README.md"], re.M)
    shown = [float(line.split()[-2]) for line in lines]
    assert [float(f"{ess:.4g}") for ess in shown] == run["ess"]


# ---- sentences ----------------------------------------------------------------------------------

OTHERS = "adding_a_sampler", "faults", "modes", "peers", "suites", "versions"
"""Pages of docs/ that are tables for the most part, or for developers: sentences may be longer."""

USER_PAGES = [
    name
    for name in PAGES
    if name == "README.md" or Path(name).stem not in OTHERS or Path(name).parent.name == "gallery"
]
LONGEST = 25
"""Words of a sentence on these pages."""

NO_PROSE = re.compile(
    r"^---\n.*?^---$|^( *)(```+)[^\n]*\n.*?^\1\2 *$|\$\$.*?\$\$|<!--.*?-->|^ *\|[^\n]*|^#[^\n]*"
    r"|!\[[^\]]*\]\([^)]*\)|^\*\*References?\.\*\*.*?(?=\n\n|\Z)",
    re.M | re.S,
)
ITEM = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")
END = re.compile(r"(?<=[.!?])[*_)\"”]*\s+(?=[*_(\"“\[]*(?:[A-Z0-9`*]|[b-z] ))")


def sentences(text):
    """Sentences of a page, without code, tables, headings and formulas."""
    prose = NO_PROSE.sub("", text)
    prose = re.sub(r"`[^`\n]*`", "Code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", prose))
    for item in ITEM.split(prose):
        yield from END.split(" ".join(item.split()))


def long_sentences(text):
    """Sentences of a page with more words than `LONGEST`."""
    return [s for s in sentences(text) if len(re.findall(r"\S*\w\S*", s)) > LONGEST]


@pytest.mark.parametrize("name", USER_PAGES)
def test_sentences_are_short(name):
    assert long_sentences(PAGES[name]) == []


def test_long_sentences_are_found():
    long = "Word " + "word " * 24 + "word"
    code = f"```python\n{long}\n```\n| {long} |\n"
    text = f"# {long}\n{code}Short, [{'a b ' * 9}](x.md). {long}. Short:\n\n- {long}\n- `{long}`\n"
    assert [len(s.split()) for s in long_sentences(text)] == [26, 27]


BANNED = {
    r"\bsome \d": "about",
    r"\bso many\b": "the number, or as many",
    r"\bas by\b": "for example by, as in",
    r"\b(?:sampler|step|choice|page|table|case)s? of ours\b": "our",
    r", too(?! [\w])": "also, as well",
    r"\b(?:is|are|was|were|be) worth\b(?! (?:a|re)\w*\b)": "as accurate as, amount to",
    r"\bknows? .{0,30} to (?:some |about )?\d+ %": "the standard error is about",
    r"\bways? to the posterior\b": "search for the posterior",
    r"\bin silence\b": "without a warning",
    r"\bas of (?!\d)": "such as, like that of",
    r"\b(?:is|are) told\b(?! (?:apart|to)\b)": "a warning says so, is reported",
    r"\btells? nothing\b": "says nothing about",
}
"""What nobody says in English, or what says nothing; and what to say instead."""


def banned(text):
    """Phrases of a page that are banned, and what to say instead."""
    prose = " ".join(sentences(text))
    cells = " ".join(re.findall(r"^ *\|[^\n]*", text, re.M))
    for phrase, instead in BANNED.items():
        for match in re.finditer(phrase, f"{prose} {cells}", re.I):
            yield f"{match[0]}: {instead}"


@pytest.mark.parametrize("name", [*PAGES, "CHANGELOG.md"])
def test_phrases_are_english(name):
    text = PAGES.get(name) or (ROOT / name).read_text(encoding="utf-8")
    assert [*banned(text)] == []


def test_banned_phrases_are_found():
    wrong = (
        "Some steps of ours\nare worth some 30 draws, too. It knows a mean to 40 %.\n\n| as by |\n"
        "A kink, as of a corner, is told; it\ntells nothing."
    )
    assert len([*banned(wrong)]) == 9
    right = "It is worth a try. Four are too few. So may worlds. They are told apart as of 3 May."
    assert [*banned(right)] == []


def test_the_readme_is_short():
    assert len(PAGES["README.md"].splitlines()) <= 120
