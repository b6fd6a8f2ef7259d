"""How Sphinx makes the site: `make docs`.

The root of the repository is Sphinx's source, so that links between README.md, docs/ and examples/
are the same here as where the repository is browsed. Nothing is fetched: formulas are MathML, and
there are no links into other projects' documentation, whose inventories would have to be.
"""

import importlib.metadata
import os
import sys
import tomllib
from pathlib import Path

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from numpydoc.xref import DEFAULT_LINKS
from sphinx.util import logging

sys.path.append(str(Path(__file__).parent))  # of typography.py and notebooks.py

project = "pymc_kameleon"
author = "The pymc_kameleon developers"
copyright = author
release = importlib.metadata.version("pymc_kameleon")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_copybutton",
    "typography",
    "notebooks",
]
root_doc = "docs/index"
highlight_language = "text"  # of blocks that name none
include_patterns = [
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/gallery/*.md",
    "docs/tutorials/*.md",
    "docs/generated/*.rst",
    "examples/papers/*.md",
]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # links to headings, as page.md#heading
nb_execution_mode = "cache"  # pages with cells run once, and again when their code changes
nb_merge_streams = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds of a cell, the first of which may compile
os.environ["MATPLOTLIBRC"] = str(Path(__file__).parent)  # of the pages with cells

autodoc_typehints = "none"  # the docstrings say it
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_xref_param_type = True  # what is returned is linked, if it is ours
numpydoc_xref_ignore = "all"
DEFAULT_LINKS.clear()  # into Python's own documentation
numpydoc_xref_aliases = {
    place.rpartition(".")[2]: f"pymc_kameleon.{place}"
    for place in [
        "sampling.run.Run",
        "analysis.expectation.Expectation",
        "analysis.evidence.result.Evidence",
        "analysis.mode_occupancy.ModeOccupancy",
        "analysis.emulator.SimulatorEmulator",
        "analysis.identifiability.Identifiability",
        "sampling.find_mode.Mode",
    ]
}

copybutton_exclude = ".linenos, .gp, .go"  # of an example, what one types

html_theme = "pydata_sphinx_theme"
html_title = project
html_additional_pages = {"index": "front.html"}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["llms.txt"]  # what language models are told to read
html_logo = html_favicon = "_static/logo.svg"
templates_path = [str(Path(__file__).parent / "_templates")]
html_theme_options = {
    "logo": {"text": project},
    "header_links_before_dropdown": 8,  # all
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "article_header_end": ["notebook"],
    "secondary_sidebar_items": {
        "**": ["page-toc", "edit-this-page"],
        "docs/index": [],
    },
}
toc_object_entries_show_parents = "hide"
html_math_renderer = "mathml"

doors = ["index", "choosing", "learn", "understand", "reference"]
html_sidebars = {f"docs/{page}": [] for page in doors}

# Where the repository and the site are, as soon as pyproject.toml says it.
with open(Path(__file__).parents[1] / "pyproject.toml", "rb") as file:
    addresses = tomllib.load(file)["project"].get("urls", {})
html_baseurl = addresses.get("Documentation", "")
if repository := addresses.get("Repository"):
    *_, user, name = repository.rstrip("/").split("/")
    html_context = {"github_user": user, "github_repo": name, "github_version": "main"}
    html_theme_options |= {"use_edit_page_button": True, "github_url": repository}


def writer(*, as_block):
    """Return what writes a formula as MathML, which browsers draw without a script."""

    def write(translator, node):
        try:
            formula = tex2mathml(node.astext(), as_block=as_block)
        except MathError as error:
            formula = ""
            logging.getLogger(__name__).warning("%s", error, location=node)
        translator.body.append(f'<div class="formula">{formula}</div>' if as_block else formula)
        raise nodes.SkipNode

    return write, None


def setup(app):
    """Register the writer of formulas."""
    app.add_html_math_renderer("mathml", writer(as_block=False), writer(as_block=True))
