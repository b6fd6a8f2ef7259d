"""The pages: their links lead somewhere, their code runs, and the API has every public name.

A block of Python on a page is run, after those above it, with few draws. It finds the usual
modules, a `model` with the variables a and b, and what the blocks above it have made. Comments
right before a block, which readers do not see, say otherwise:

    <!-- not run: reason -->    it is only parsed
    <!-- slow -->               its page is run with the slow tests
    <!-- first: code -->        what has to be there is made by this code
    <!-- needs: module -->      its page is skipped without that
"""

import ast
import concurrent.futures
import datetime
import doctest
import functools
import inspect
import os
import pathlib
import re

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_kameleon as pk

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # of NUTS, in ten draws of tuning
    pytest.mark.filterwarnings("ignore:Numba will use object mode"),  # of black boxes
]

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/*/*.md")),
    *sorted(ROOT.glob("examples/**/*.md")),
    *sorted(ROOT.glob("community/*.md")),
]
TEXTS = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}

# ---- links --------------------------------------------------------------------------------------

FENCED = re.compile(r"^( *)(```+)[^\n]*\n.*?^\1\2 *$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)|<(?:img|source)[^>]* src(?:set)?=\"([^\"]+)\"")


def prose(text):
    """A page without its code."""
    return re.sub(r"`[^`\n]*`", "code", FENCED.sub("", text))


def anchors(text):
    """What links to headings of a page end in, as GitHub and MyST have it."""
    found = []
    for heading in re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        again = sum(
            re.fullmatch(rf"{re.escape(slug)}(-\d+)?", other) is not None for other in found
        )
        found.append(f"{slug}-{again}" if again else slug)
    return found


def broken_links(name, text):
    """Links of a page to files, pictures and headings that there are not."""
    for target in ("".join(groups) for groups in LINK.findall(prose(text))):
        if re.match(r"[a-z]+:|[A-Z]+_ADDRESS$", target):  # RELEASING.md has those to come
            continue
        path, _, anchor = target.partition("#")
        page = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
        if not (ROOT / page).exists():
            yield f"{name}: {target}: no such file"
        elif anchor and anchor not in anchors(TEXTS[page]):
            yield f"{name}: {target}: no such heading"


def test_links_lead_somewhere():
    assert [line for name, text in TEXTS.items() for line in broken_links(name, text)] == []
    wrong = (
        "# A b\n[x](y.md) ![z](images/z.png) [h](docs/kam.md#pcakam) [h](docs/kam.md#no) [a](#a-b)"
    )
    found = [line.split(": ")[1] for line in broken_links("README.md", wrong)]
    assert found == ["y.md", "images/z.png", "docs/kam.md#no", "#a-b"]


PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)|<img[^>]*>")


def unsaid(text):
    """Pictures of a page whose text for those who do not see them has fewer than four words."""
    found = [match for match in PICTURE.finditer(prose(text)) if len((match[1] or "").split()) < 4]
    return [match[2] or match[0] for match in found]


def test_tests_that_are_named_are_there():
    """Faults have tests: `test_jit: what_it_is`, and without the file after another one of it."""
    tests = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py"))
    faults = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    named = re.findall(r"`(?:test_\w+: |(?=test_))(\w+)`", faults)
    assert len(named) > 20
    assert [name for name in named if not re.search(rf"def \w*{name}", tests)] == []


def test_pictures_are_said_in_words():
    assert {name: unsaid(text) for name, text in TEXTS.items() if unsaid(text)} == {}
    wrong = "![](a.png) ![convergence](b.png) ![two lines that cross](c.png) <img src='d.png'>"
    assert unsaid(wrong) == ["a.png", "b.png", "<img src='d.png'>"]


def unshown(texts):
    """Pictures that no page shows."""
    shown = {os.path.basename(match[2] or "") for text in texts for match in PICTURE.finditer(text)}
    return sorted({path.name for path in ROOT.glob("docs/images/*")} - shown)


def test_every_picture_is_on_a_page():
    assert unshown(TEXTS.values()) == []
    assert "compare.png" in unshown(text for name, text in TEXTS.items() if "compare" not in name)


def test_anchors_are_those_of_github():
    text = "# `pk.sample`, and more\n```\n# code\n```\n## [Two](x.md) words\n## Two words"
    assert anchors(text) == ["pksample-and-more", "two-words", "two-words-1"]


def test_every_page_is_in_the_contents_of_the_site():
    contents = re.findall(r"^```{toctree}\n(.*?)^```$", "".join(TEXTS.values()), re.M | re.S)
    listed = set("".join(contents).split())
    pages = {name.removeprefix("docs/").removesuffix(".md") for name in TEXTS if "docs/" in name}
    assert pages - listed == {"index"}


# ---- code ---------------------------------------------------------------------------------------

BLOCK = re.compile(
    r"((?:^<!--(?:(?!-->).)*-->\n+)*)"
    r"^```(?:python|\{code-cell\}[^\n]*)\n((?::\w+: [^\n]*\n)*)(.*?)^```$",
    re.M | re.S,
)
NOTE = re.compile(r"<!--\s*(not run|slow|first|needs)(?::\s*((?:(?!-->).)+?))?\s*-->", re.S)


class Block:
    """A block of Python on a page, and what is said of it."""

    def __init__(self, text, match):
        said, _, self.code = match.groups()  # without what a cell says of itself, as `:tags: [x]`
        self.notes = dict(NOTE.findall(said))
        self.unknown = NOTE.sub("", said).strip()
        self.line = text.count("\n", 0, match.start(3))


def blocks(text):
    return [Block(text, match) for match in BLOCK.finditer(text)]


def unclear_code(name, text):
    """Lines of a page where nobody knows whether the code that begins there is run."""
    for block in blocks(text):
        reason = block.notes.get("not run")
        if block.unknown or reason == "" or block.notes.get("first") == "":
            yield f"{name}:{block.line}: what is said of the block is not clear"
        for code in (block.notes.get("first", ""), block.code):
            ast.parse(code, f"{name}:{block.line}")
    rest = BLOCK.sub(lambda match: "\n" * match[0].count("\n"), text)
    for number, line in enumerate(rest.splitlines(), 1):
        if re.match(r"\s*```+(python|py|\{code)|( {4,}|>>> ).*\b(pk|pm|az)\.\w+\(", line):
            yield f"{name}:{number}: Python that is in no block of its own"


def test_code_is_run_or_says_why_not():
    assert [line for name, text in TEXTS.items() for line in unclear_code(name, text)] == []
    vague = "<!-- not run -->\n```python\n1\n```\n<!-- no -->\n```python\n2\n```\n```py\n3\n```\n"
    found = [line.split(":")[1] for line in unclear_code("p", vague + "\n    pk.sample()\n")]
    assert found == ["2", "6", "9", "13"]


@pytest.fixture(scope="module")
def things():
    """What blocks find: a model whose densities are compiled once."""
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        pm.Normal("y", a + b, 1, observed=np.array([0.5, 1.2]))
    modules = {"az": az, "np": np, "pk": pk, "pm": pm, "pt": pt, "Path": pathlib.Path}
    return modules | {
        "model": model,
        "a": a,
        "b": b,
        "timedelta": datetime.timedelta,
        "ProcessPoolExecutor": concurrent.futures.ProcessPoolExecutor,
    }


DRAWS = 10


def few(function, **quietly):
    """A function that makes few draws, whatever it is asked for."""

    parameters = inspect.signature(function).parameters

    @functools.wraps(function)
    def sample(*args, **options):
        options = dict(zip(parameters, args, strict=False)) | options | quietly
        options["draws"] = DRAWS
        if "tune" in parameters:
            options["tune"] = DRAWS
        return function(**options)

    return sample


@pytest.fixture
def run(things, tmp_path, monkeypatch):
    """Return a function that runs code with few draws, in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(pk, "sample", few(pk.sample, quiet=True))
    monkeypatch.setattr(pk, "resume", few(pk.resume, quiet=True))
    monkeypatch.setattr(pk, "compare_samplers", few(pk.compare_samplers))
    monkeypatch.setattr(pm, "sample", few(pm.sample, cores=1, quiet=True))
    found = things | {"__name__": "__main__"}  # as in a notebook, whose functions travel to workers

    def run(code, name, line=0):
        exec(compile("\n" * line + code, name, "exec"), found)

    return run


def blocks_to_run(text):
    return [block for block in blocks(text) if "not run" not in block.notes]


FIRST_READ = "README.md", "docs/quickstart.md", "docs/starts.md"


def pages_with_code():
    """Names of the pages that have code to run, marked if that takes long."""
    for name, text in TEXTS.items():
        if code := blocks_to_run(text):
            slow = name not in FIRST_READ or any("slow" in block.notes for block in code)
            yield pytest.param(name, marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("name", [*pages_with_code()])
def test_the_code_of_a_page_runs(name, run):
    for block in blocks_to_run(TEXTS[name]):
        if "needs" in block.notes:
            pytest.importorskip(block.notes["needs"])
        run(block.notes.get("first", ""), f"what comes before line {block.line} of {name}")
        run(block.code, name, block.line)


# ---- the API ------------------------------------------------------------------------------------

KERNELS = [name for name, thing in vars(pk.samplers.kernels).items() if hasattr(thing, "compiled")]
PUBLIC = {name: getattr(pk, name) for name in pk.__all__ if callable(getattr(pk, name))}
PUBLIC |= {f"samplers.kernels.{name}": getattr(pk.samplers.kernels, name) for name in KERNELS}
PUBLIC |= {f"baselines.{name}": getattr(pk.baselines, name) for name in pk.baselines.__all__}
PUBLIC |= {"samplers.Decay": pk.samplers.Decay}
EXAMPLES = PUBLIC


def examples(thing):
    return doctest.DocTestParser().get_examples(inspect.getdoc(thing) or "")


def without_example(things):
    for name, thing in things.items():
        called = f"{name.rpartition('.')[2]}("
        if not any(called in example.source for example in examples(thing)):
            yield name


def test_the_api_has_every_public_name():
    page = TEXTS["docs/api.md"]
    assert sorted(re.findall(r"^   ([\w.]+)$", page, re.M)) == sorted(PUBLIC)
    others = set(pk.__all__) - set(PUBLIC)
    assert others == {"baselines"}
    assert all(f"`pk.{name}`" in page for name in others)


def test_every_public_name_has_an_example():
    assert [*without_example(EXAMPLES)] == []
    assert [*without_example({"GAM": lambda: None, "KAM": pk.KAM})] == ["GAM"]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_docstring_runs(name, run):
    for example in examples(EXAMPLES[name]):
        if doctest.SKIP not in example.options:
            run(example.source, f"the docstring of {name}")
