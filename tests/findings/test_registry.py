"""The registry of findings: each is made somewhere, tested, and documented, with its numbers."""

import ast
import re
from pathlib import Path
from string import Formatter

import pytest

import pymc_kameleon
from pymc_kameleon.findings.registry import KINDS, SEVERITIES

PACKAGE = Path(pymc_kameleon.__file__).parent
TESTS = Path(__file__).parents[1]


def findings_made():
    """Yield the code, or None if it is computed, and the names of numbers of each call."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("finding", "say"):
                code = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
                yield path.name, code, {keyword.arg for keyword in node.keywords}


MADE = list(findings_made())


def fields(kind):
    return {name for text in (kind.what, kind.remedy) for _, name, *_ in Formatter().parse(text)}


def test_each_finding_is_made_with_the_numbers_of_its_words():
    for path, code, numbers in MADE:
        if code is not None and None not in numbers:
            assert fields(KINDS[code]) - {None} <= numbers, (path, code)


def test_each_finding_is_made_somewhere():
    """Those whose code is computed are named as text in the same file."""
    computed = {path for path, code, _ in MADE if code is None}
    named = {code for _, code, _ in MADE}
    for path in PACKAGE.rglob("*.py"):
        if path.name in computed and path.name != "registry.py":
            named |= set(re.findall(r'"(\w+)"', path.read_text(encoding="utf-8")))
    assert set(KINDS) <= named
    assert {code for _, code, _ in MADE} - {None} <= set(KINDS)


@pytest.mark.parametrize("code", KINDS)
def test_some_test_names_each_finding(code):
    others = (path for path in TESTS.rglob("*.py") if path != Path(__file__))
    texts = (path.read_text(encoding="utf-8") for path in others)
    assert any(f'"{code}"' in text or f"[{code}]" in text for text in texts)


@pytest.mark.parametrize("code", KINDS)
def test_words_are_sentences(code):
    kind = KINDS[code]
    assert kind.severity in SEVERITIES
    for text in (kind.what, kind.remedy, kind.means):
        named = text.startswith(("pk.", "pm.", "initvals", "cores", "docs/"))
        assert not text or text[0] in "{`" or text[0].isupper() or named
        assert not text or text.endswith((".", "}"))
    assert kind.what


def test_nothing_else_writes_warnings_of_a_result():
    """What is logged elsewhere tells of progress, costs and compilers, and is no warning."""
    warnings = {
        str(path.relative_to(PACKAGE)): n
        for path in sorted(PACKAGE.rglob("*.py"))
        if (n := path.read_text(encoding="utf-8").count("_log.warning("))
    }
    assert warnings == {}
