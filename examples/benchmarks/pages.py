"""What a script has measured, in a JSON file beside it, and the tables that pages have of it.

A table stands between two comments, ``<!-- name -->`` and ``<!-- end of name -->``. Tests check
that it is as the script would write it.
"""

import json
import os
import platform
from datetime import date
from math import floor, log10
from pathlib import Path

import numpy as np

DOCS = Path(__file__).parents[2] / "docs"


def paper(name):
    """Return the page of a paper's experiments, as seen from docs/."""
    return f"../examples/papers/{name}.md"


def load(file):
    """Return the rows of a file."""
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else []


def save(file, rows):
    """Write the file, at one blow, one row a line."""
    new = file.with_suffix(".new")
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    new.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    new.replace(file)


def when_and_where():
    """Return what each row says besides what was measured."""
    return {"date": str(date.today()), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}


def measured(file, plan):
    """Run what is not in a file yet, add each row as it ends, and return all rows.

    Parameters
    ----------
    file : Path
    plan : iterable of (dict, callable)
        What a row is of, and a function that returns what it measured, a dict.
    """
    rows = load(file)
    for what, measure in plan:
        if not any(what.items() <= row.items() for row in rows):
            rows.append(what | measure() | when_and_where())
            print(rows[-1], flush=True)
            save(file, rows)
    return rows


def table(titles, rows):
    """Return the lines of a table; None is an empty cell."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (titles, *cells)]
    return [lines[0], "|---" * len(titles) + "|", *lines[1:]]


def three_digits(x):
    """Write a positive number as the pages do, in three digits if it is 100 or more."""
    return spaced(round(float(f"{x:.3g}")))


def spaced(n):
    """Write a whole number as the pages do."""
    return f"{n:,}".replace(",", " ") if n >= 10_000 else str(n)


def estimate(value, error, digits=None):
    """Write a value and its standard error, by default to the first digit of the error."""
    if digits is None:
        digits = max(0, -floor(log10(error))) if error else 0
    cells = [f"{x:.{digits}f}" if digits else spaced(round(x)) for x in (value, error)]
    return f"{cells[0]} ({cells[1]})"


def with_error(values, digits=None):
    """Write the mean of some chains' values, and its standard error."""
    return estimate(np.mean(values), np.std(values, ddof=1) / np.sqrt(len(values)), digits)


def rounded(values, digits=4):
    """Return numbers with so many significant digits, in lists of lists, as JSON has them."""
    if np.ndim(values):
        return [rounded(value, digits) for value in values]
    return float(f"{float(values):.{digits}g}")


def filled(text, tables):
    """Return the text of a page with the tables as they should be.

    Parameters
    ----------
    text : str
    tables : dict
        Name -> lines.
    """
    for name, lines in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        assert rest, f"the page has no {name}"
        text = before + begin + "\n".join(lines) + "\n" + end + after
    return text


def write(tables):
    """Write the tables of pages in docs/.

    Parameters
    ----------
    tables : dict
        File name of a page, as seen from docs/ -> its tables, by their names.
    """
    for name, own in tables.items():
        page = DOCS / name
        page.write_text(filled(page.read_text(encoding="utf-8"), own), encoding="utf-8")
