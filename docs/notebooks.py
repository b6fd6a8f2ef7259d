"""Pages with cells can be downloaded as notebooks, with what these gave: a Sphinx extension."""

import re
from pathlib import Path

import nbformat

COMMENT = re.compile(r"<!--.*?-->\n?", re.S)
RELATIVE = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)([^)\s]+)\)")


def with_links(text, page, base):
    """Return a text whose links lead to the site at `base`, or are no links if that is unknown."""

    def link(match):
        if not base or not (target := re.fullmatch(r"([^#]*)\.md(#.*)?", match[2])):
            return match[1]
        place = Path(page).parent / target[1]
        parts = []
        for part in place.parts:
            parts = parts[:-1] if part == ".." and parts else [*parts, part]
        return f"[{match[1]}]({base.rstrip('/')}/{'/'.join(parts)}.html{target[2] or ''})"

    return RELATIVE.sub(link, text)


def as_notebook(notebook, page, base):
    """Return a notebook for readers, without comments that are for tests."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = with_links(COMMENT.sub("", cell.source), page, base).strip()
        cell.metadata.clear()
    notebook.cells = [cell for cell in notebook.cells if cell.source]
    notebook.metadata = {
        key: value
        for key, value in notebook.metadata.items()
        if key in ("kernelspec", "language_info")
    }
    return notebook


def has_cells(app, page):
    """Return whether a page is made from cells."""
    return "kernelspec" in app.env.metadata.get(page, {})


def link(app, page, template, context, doctree):
    """Tell the template of a page where its notebook is."""
    if has_cells(app, page):
        context["notebook"] = context["pathto"](f"_notebooks/{page}.ipynb", resource=True)


def write(app, exception):
    """Write the notebooks beside the pages."""
    if exception or app.builder.format != "html":
        return
    made = Path(app.outdir).parent / "jupyter_execute"
    for page in filter(lambda page: has_cells(app, page), app.env.found_docs):
        notebook = nbformat.read(made / f"{page}.ipynb", as_version=4)
        to = Path(app.outdir) / "_notebooks" / f"{page}.ipynb"
        to.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(as_notebook(notebook, page, app.config.html_baseurl), to)


def setup(app):
    """Register what links and writes them."""
    app.connect("html-page-context", link)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "version": "1"}
