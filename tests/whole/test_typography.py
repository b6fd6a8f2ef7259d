"""How the site sets text: numbers stay whole, indices are lowered, columns are aligned."""

import pytest

pytest.importorskip("sphinx", reason="of the extra docs")
import typography
from docutils import nodes
from docutils.core import publish_doctree


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("29 100 000 draws", "29\u202f100\u202f000 draws"),
        ("in 2024 300 runs", "in 2024 300 runs"),  # two numbers
        ("0.25 300", "0.25 300"),
        ("89 % of", "89\u202f% of"),
        ("1e-6", "1e−6"),
    ],
)
def test_numbers_stay_whole(text, expected):
    assert typography.whole(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("of x_k and σ_kj", "of x<sub>k</sub> and σ<sub>kj</sub>"),
        ("(1 + t)^-0.6", "(1 + t)<sup>−0.6</sup>"),
        ("t^-1/2 and 10^(d/2)", "t<sup>−1/2</sup> and 10<sup>d/2</sup>"),
        ("ess_bulk, x_dim_0", "ess_bulk, x_dim_0"),  # names
    ],
)
def test_indices_and_exponents(text, expected):
    tags = {nodes.subscript: "sub", nodes.superscript: "sup"}
    parts = [
        f"<{tags[type(part)]}>{part.astext()}</{tags[type(part)]}>" if type(part) in tags else part
        for part in typography.marked(text)
    ]
    assert "".join(parts) == expected


def test_columns_of_numbers_are_aligned_at_the_right():
    text = """
==== ============ ========
case draws        what
==== ============ ========
A    2641 to 3420 2 chains
B    –            none
==== ============ ========
"""
    table = next(publish_doctree(text).findall(nodes.table))
    typography.set_table(table)
    right = [["text-right" in cell["classes"] for cell in row] for row in table.findall(nodes.row)]
    assert right == [[False, True, False]] * 3


def test_pages_that_a_docstring_names_are_links():
    names = [
        part.astext() for part in typography.linked(nodes.Text("See docs/gad.md, and x."), "p")
    ]
    assert names == ["See ", "docs/gad.md", ", and x."]
    document = publish_doctree("Words.\n\n:Parameters: See docs/gad.md")
    [text] = [text for text in document.findall(nodes.Text) if "gad" in text]
    assert not typography.is_as_written(text)
