"""How the site sets numbers, indices, tables and descriptions of pages: a Sphinx extension.

Pages are written so that they read well as plain text: 10 000, x_k, (1 + t)^-0.6. On the site the
parts of such a number stay on one line, indices are lowered, exponents raised, columns of numbers
are aligned at the right, tables without heads are cards, and docs/NAME.md in a docstring is a link.
"""

import html
import re
import textwrap

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

NARROW = "\N{NARROW NO-BREAK SPACE}"

THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?!\d)")
PER_CENT = re.compile(r"(?<=\d) (?=%)")
MINUS = re.compile(r"(?<=\de)-(?=\d)")  # of 1e-6: no line ends after it, as after a hyphen
LETTER = r"[A-Za-zα-ωΑ-Ω∂ℓ]"
MARK = re.compile(
    rf"(?<![\w^]){LETTER}['′*]?_(?P<sub>[A-Za-z0-9α-ω]{{1,3}})(?!\w)"  # x_k, σ_kj, w*_j
    rf"|(?<=[\w)\]])\^(?P<sup>-?(?:\d+(?:[./]\d+)?|{LETTER}+)|\([^()]*\))"  # t^-1/2, 10^(d/2)
)
PAGE = re.compile(r"\bdocs/([a-z_]+)\.md\b")

NUMBER = re.compile(
    r"^[<>≥≤≈~±+−–-]?\s*[\d.]"  # begins as one, and has few words
    r"(?:[\d\s.,/×·%±e+−–()-]|µ|to|and|s\b|ms\b|min\b|h\b|d\b|\u202f|\u00a0)*\+?$"
)
WIDE = 95
"""Letters of the longest words of all columns, with the gaps, that still fit a page."""

AS_WRITTEN = (
    nodes.literal,
    nodes.FixedTextElement,  # blocks of code, too
    nodes.math,
    nodes.math_block,
    nodes.raw,
    nodes.Invisible,
    nodes.docinfo,
    addnodes.desc_signature,
)


def whole(text):
    """Return the text with spaces within numbers at which no line ends."""
    text = THOUSANDS.sub(lambda number: number[0].replace(" ", NARROW), text)
    return MINUS.sub("−", PER_CENT.sub(NARROW, text))


def marked(text):
    """Return a text in parts: text, indices and exponents."""
    parts, end = [], 0
    for mark in MARK.finditer(text):
        kind = "sub" if mark["sub"] else "sup"
        content = mark[kind].removeprefix("(").removesuffix(")").replace("-", "−")
        parts.append(nodes.Text(text[end : mark.start(kind) - 1]))
        parts.append((nodes.subscript if kind == "sub" else nodes.superscript)("", content))
        end = mark.end()
    return [*parts, nodes.Text(text[end:])]


class Typography(SphinxTransform):
    """Set the texts and tables of a page."""

    default_priority = 800  # after all that reads text

    def apply(self):
        """Change the page."""
        for text in list(self.document.findall(nodes.Text)):
            if is_as_written(text):
                continue
            parts = [nodes.Text(whole(text))]
            if not any(isinstance(above, nodes.title) for above in ancestors(text)):
                parts = marked(parts[0])
            if "/generated/" in self.env.docname:
                parts = [new for part in parts for new in linked(part, self.env.docname)]
            text.parent.replace(text, parts)
        for table in self.document.findall(nodes.table):
            set_table(table)


def linked(part, page):
    """Return a part of a docstring in parts: text, and links to pages of docs/."""
    if not isinstance(part, nodes.Text):
        return [part]
    parts, end = [], 0
    for link in PAGE.finditer(part):
        parts.append(nodes.Text(part[end : link.start()]))
        to = {"refdomain": "std", "reftype": "doc", "reftarget": f"/docs/{link[1]}"}
        how = {"refdoc": page, "refexplicit": False, "refwarn": True}
        parts.append(addnodes.pending_xref("", nodes.inline("", link[0]), **to, **how))
        end = link.end()
    return [*parts, nodes.Text(part[end:])]


def is_as_written(text):
    """Return whether a text is code, a formula, or another thing that is left as it is."""
    return any(isinstance(above, AS_WRITTEN) for above in ancestors(text))


def ancestors(node):
    """Yield what a node is in."""
    while node := node.parent:
        yield node


def is_one_of(classes):
    """Return what tells whether a node is of one of some classes."""
    return lambda node: isinstance(node, classes)


def set_table(table):
    """Align columns of numbers at the right, and name tables that need a style of their own."""
    rows = [row.children for row in table.findall(nodes.row)]
    body = [row.children for part in table.findall(nodes.tbody) for row in part.findall(nodes.row)]
    if len({len(row) for row in rows}) != 1 or not body:
        return  # of cells that span columns
    heads = [text for part in table.findall(nodes.thead) if (text := part.astext().strip())]
    shown = (nodes.image, nodes.reference, addnodes.pending_xref)
    if not heads and all(any(True for _ in row[0].findall(is_one_of(shown))) for row in body):
        table["classes"].append("cards")
        return
    words = [max(len(word) for cell in column for word in ["", *cell.astext().split(" ")])
             for column in zip(*rows, strict=True)]  # fmt: skip
    if sum(words) + 2 * len(words) > WIDE:
        table["classes"].append("upright-heads")
    for column, cells in enumerate(zip(*body, strict=True)):
        texts = [text for cell in cells if (text := cell.astext().strip()) not in ("", "–", "—")]
        if texts and sum(bool(NUMBER.match(text)) for text in texts) > len(texts) / 2:
            for row in rows:
                if not any(name.startswith("text-") for name in row[column]["classes"]):
                    row[column]["classes"].append("text-right")


def describe(app, page, template, context, doctree):
    """Tell search engines what a page is about: the beginning of its first paragraph."""
    paragraphs = doctree.findall(nodes.paragraph) if doctree else ()
    texts = (text for p in paragraphs if len(text := " ".join(p.astext().split())) > 40)
    if text := next(texts, None):
        text = textwrap.shorten(text, 160, placeholder=" …")
        context["metatags"] += f'<meta name="description" content="{html.escape(text)}">'


def setup(app):
    """Register the transform, and what describes a page."""
    app.add_transform(Typography)
    app.connect("html-page-context", describe)
    return {"parallel_read_safe": True, "version": "1"}
