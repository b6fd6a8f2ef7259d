"""What pages say: numbers are those of the stored files, and sentences are short."""

import re
from pathlib import Path

import pytest
import quoted

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
        return [row | {"beyond": 7.0} if "beyond" in row else row for row in stored(name)]

    assert quoted.speed()["draw cost"] == "0.2"
    monkeypatch.setattr(quoted, "rows", other)
    assert quoted.speed()["draw cost"] == "7"


def test_every_number_is_on_a_page():
    used = {name for text in PAGES.values() for name, _ in quoted.QUOTED.findall(text)}
    assert used == quoted.numbers().keys()


def test_numbers_never_stand_without_their_comments():
    found = {name: quoted.unquoted(text) for name, text in PAGES.items()}
    assert {name: said for name, said in found.items() if said} == {}
    assert quoted.unquoted("It had 0.9 of\nGAM's effective draws.") != []
    assert quoted.unquoted("which takes 14 to 60 evaluations per parameter") != []


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

READ_FIRST = [
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "index",
            "learn",
            "install",
            "quickstart",
            "choosing",
            "slow_simulators",
            "emulator",
            "reliability",
            "barker",
            "surrogate",
            "estimates",
            "sampling",
            "samplers",
            "gallery",
            "guides",
            "faq",
            "glossary",
            "coming_from",
            "starts",
            "mixing",
            "citing",
            "out_of_scope",
            "tutorials/pharmacokinetics",
            "tutorials/heat",
            "tutorials/earthquakes",
            "tutorials/cluster",
        )
    ),
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


@pytest.mark.parametrize("name", READ_FIRST)
def test_sentences_are_short(name):
    assert long_sentences(PAGES[name]) == []


def test_long_sentences_are_found():
    long = "Word " + "word " * 24 + "word"
    code = f"```python\n{long}\n```\n| {long} |\n"
    text = f"# {long}\n{code}Short, [{'a b ' * 9}](x.md). {long}. Short:\n\n- {long}\n- `{long}`\n"
    assert [len(s.split()) for s in long_sentences(text)] == [26, 27]


def test_the_readme_is_short():
    assert len(PAGES["README.md"].splitlines()) <= 120
