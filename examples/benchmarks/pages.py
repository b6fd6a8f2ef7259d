"""What a script has measured, in a JSON file beside it, and the tables that pages have of it.

A table stands between two comments, ``<!-- name -->`` and ``<!-- end of name -->``. Tests check
that it is as the script would write it.
"""

import json
import os
import platform
from datetime import date
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
PAPERS = "../examples/papers/README.md"
"""The page of the papers, as seen from there."""


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


def two_digits(x):
    """Write a number from 10 on with two digits that say something."""
    return spaced(round(float(f"{x:.2g}")))


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
