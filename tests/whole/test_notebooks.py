"""Pages with cells are run, and can be downloaded as notebooks."""

import pytest

pytest.importorskip("nbformat", reason="of the extra docs")
import cells
import nbformat
import notebooks


def test_links_lead_to_the_site_or_are_none():
    text = "[gad](../gad.md#x), [pymc](https://pymc.io), [file](../../a.py)"
    page = "docs/gallery/oxygen"
    assert notebooks.with_links(text, page, "") == "gad, [pymc](https://pymc.io), file"
    linked = notebooks.with_links(text, page, "https://x.org/")
    assert linked == "[gad](https://x.org/docs/gad.html#x), [pymc](https://pymc.io), file"


def test_readers_see_no_comments_of_tests():
    cells = [
        nbformat.v4.new_markdown_cell("Words <!--=n-->12<!--/-->\n\n<!-- slow -->"),
        nbformat.v4.new_code_cell("1 + 1", metadata={"mystnb": {"image": {}}}),
        nbformat.v4.new_markdown_cell("<!-- slow -->"),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"source_map": [1]})
    made = notebooks.as_notebook(notebook, "docs/quickstart", "")
    assert [cell.source for cell in made.cells] == ["Words 12", "1 + 1"]
    assert all(not cell.metadata for cell in made.cells)
    assert not made.metadata


def test_pages_with_cells_are_run_the_long_ones_first():
    found = [page.stem for page in cells.notebooks()]
    written = [
        page.stem
        for page in cells.DOCS.glob("**/*.md")
        if page.read_text(encoding="utf-8").startswith("---")
    ]
    assert sorted(found) == sorted(written)
    assert sorted(found[: len(cells.LONG_ONES)]) == sorted(cells.LONG_ONES)
