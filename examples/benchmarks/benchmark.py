"""What all benchmarks do: they run what is not in their file yet, and write the tables of pages.

A script has a `plan`, which says what is to be run and what measures it, and `tables`, which makes
tables of the rows that were measured. :func:`main` gives all scripts the same options:

    python examples/benchmarks/SCRIPT.py [--cases AR5 GARCH] [--samplers GAM KAM] [--budgets 2000]
        [--seeds 4] [--seconds 600] [--json FILE] [--table] [--picture]

Without options, everything on the pages is run. Each row is added to the JSON file beside the
script as soon as it is there, with date and machine. What is in the file is not run again, so a
script that was stopped resumes. ``--table`` and ``--picture`` only read the file. Tables of another
file are printed.

A table stands on a page between two comments, ``<!-- name -->`` and ``<!-- end of name -->``. Tests
check that it is as the script would write it.
"""

import argparse
import inspect
import json
import logging
import os
import platform
import sys
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import date
from functools import cache, lru_cache, partial
from itertools import product
from logging.handlers import BufferingHandler
from math import floor, inf, log10
from pathlib import Path
from time import perf_counter, process_time

import arviz as az
import numpy as np
import pymc as pm

import pymc_kameleon as pk
from pymc_kameleon.analysis.draws_of_result import side_by_side
from pymc_kameleon.findings.diagnosis import diagnosis_in
from pymc_kameleon.findings.registry import NOTE
from pymc_kameleon.findings.words import grouped as spaced

EXAMPLES = Path(__file__).parents[1]
DOCS = EXAMPLES.parent / "docs"
sys.path += [str(EXAMPLES), str(EXAMPLES / "papers")]  # of whose modules some scripts are made

# ---- what is run --------------------------------------------------------------------------------


def main(file, plan, tables=None, *, seeds=None, draw=None, add_options=None):
    """Run what is asked for and is not in the file yet, and write tables or a picture.

    Rows are kept in `file`, if that is not None; else tables are printed. The `plan` takes options,
    and returns what :func:`measured` takes. `tables` makes of rows what :func:`write` takes, and
    `draw` a picture. `seeds` is the default of ``--seeds``; `add_options` takes the parser.
    """
    options = parsed(file, seeds, draw, add_options)
    warnings.simplefilter("ignore")
    if options.picture:
        draw(load(options.json))
        return
    runs = [] if options.table else wanted(plan(options), options)
    rows = measured(options.json, runs, options)
    if tables and file and options.json == file:
        write(tables(load(file)))
    elif tables and (options.table or not file):
        show(tables(rows or load(options.json)))


def parsed(file, seeds, draw, add_options):
    """Return the options of a script."""
    [about] = (sys.modules["__main__"].__doc__ or "").splitlines()[:1] or [None]
    parser = argparse.ArgumentParser(description=about)
    for name in ASKED:
        parser.add_argument(f"--{name}", nargs="+", help="some of them")
    parser.add_argument("--seeds", type=int, default=seeds, help="runs of each")
    parser.add_argument("--seconds", type=float, default=inf, help="after which no run begins")
    parser.add_argument("--json", type=Path, default=file, help="another file for the rows")
    parser.add_argument("--table", action="store_true", help="run nothing, write the tables")
    if draw:
        parser.add_argument("--picture", action="store_true", help="run nothing, draw the picture")
    parser.set_defaults(picture=False)
    if add_options:
        add_options(parser)
    return parser.parse_args()


ASKED = {"cases": ("case", "target"), "samplers": ("of", "sampler"), "budgets": ("evaluations",)}
"""Options, and the keys of rows that they choose by: the first that a row has."""


KNOWN = ("known", "truth")
"""What rows have instead of a sampler whatever was chosen: those of what runs are compared with."""


def wanted(plan, options):
    """Yield what was asked for of a plan."""
    for what, measure in plan:
        if all(is_asked(what, keys, getattr(options, name)) for name, keys in ASKED.items()):
            yield what, measure


def is_asked(what, keys, names):
    """Whether an option names what a row is of; a row without its keys is always asked for."""
    own = next((what[key] for key in keys if key in what), None)
    return None in (own, names) or own in KNOWN or str(own) in names


def measured(file, plan, options=None):
    """Run what is not in a file yet, add each row as it ends, and return all rows.

    The `plan` has pairs: what a row is of, a dict, and a function that returns what it measured, a
    dict or a list of them for as many rows. After so many seconds of the `options` no run begins.
    """
    rows, began = load(file), perf_counter()
    for what, measure in plan:
        if options is not None and perf_counter() - began > options.seconds:
            break
        if not any(what.items() <= row.items() for row in rows):
            with quiet():
                found = measure()
            new = [what | row for row in ([found] if isinstance(found, dict) else found)]
            for row in new:
                print(json.dumps(row, ensure_ascii=False, default=str), flush=True)
            rows = (load(file) if file else rows) + [row | when_and_where() for row in new]
            if file:  # which another process may have added to
                save(file, rows)
    return rows


def each(measure, **choices):
    """Yield a run for each combination of choices, as :func:`measured` takes it.

    `measure` is called with the names of `choices` that it has as arguments.
    """
    names = inspect.signature(measure).parameters
    for values in product(*choices.values()):
        what = dict(zip(choices, values, strict=True))
        yield what, partial(measure, **{name: what[name] for name in what if name in names})


def load(file):
    """Return the rows of a file."""
    return json.loads(file.read_text(encoding="utf-8")) if file and file.exists() else []


def save(file, rows):
    """Write the file, at one blow, one row a line."""
    new = file.with_suffix(".new")
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    new.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    new.replace(file)


def when_and_where():
    """Return what each row says besides what was measured."""
    return {"date": str(date.today()), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}


def in_processes(measure, *what, seeds):
    """Return what `measure` returns of `what` and of each seed; two at a time."""
    return list(processes().map(partial(measure, *what), seeds))


@cache
def processes():
    """Return processes, which keep what they have compiled."""
    return ProcessPoolExecutor(2)


@contextmanager
def quiet(level=logging.WARNING):
    """Show no messages; yield a list of those that are warnings, or of this level."""
    keeper = BufferingHandler(10_000)
    keeper.setLevel(level)
    loggers = [logging.getLogger(name) for name in ("pymc_kameleon", "pymc")]
    before = [(logger, logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [keeper], False
    try:
        yield keeper.buffer
    finally:
        for logger, handlers, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate


def judged(dt):
    """Return the verdict of a run of `pk.sample`, and the codes of its cautions and problems."""
    diagnosis = diagnosis_in(dt["findings"].to_dataset())
    told = [one.code for one in diagnosis.findings if one.severity != NOTE]
    notes = [one.code for one in diagnosis.findings if one.severity == NOTE]
    return {"verdict": diagnosis.verdict, "told": told, "notes": notes}


CHAINS = 4
IN_TURN = {"chains": CHAINS, "cores": 1}
QUIETLY = {"progressbar": False, "compute_convergence_checks": False}


def sample(step, *draws, **options):
    """Run ``pk.sample`` with a step that was made before: by default four chains, in turn."""
    own = {"model": step.model, "idata_kwargs": {"include_transformed": True}}
    return pk.sample(*draws, step=step, **own | IN_TURN | QUIETLY | options)


def sample_by_pymc(*draws, **options):
    """Run ``pm.sample`` quietly: by default four chains, in turn."""
    return pm.sample(*draws, **IN_TURN | QUIETLY | options)


@lru_cache(1)
def step_of(sampler, model, **options):
    """Return a step of a sampler, by its name; the last one is kept, as compiling takes long."""
    return sampler_class(sampler)(model=model, **options)


def driven(step, start, tune, draws, seed):
    """Yield the point and the statistics of each draw of a chain that is driven by hand."""
    point = start
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    for _ in range(tune):
        point, [statistics] = step.step(point)
        yield point, statistics
    step.stop_tuning()
    for _ in range(draws):
        point, [statistics] = step.step(point)
        yield point, statistics


def seconds_of(chain, clock=process_time):
    """Return the seconds that each item of an iterator takes, (n,)."""
    marks = [clock()]
    for _ in chain:
        marks.append(clock())
    return np.diff(marks)


# ---- what is measured ---------------------------------------------------------------------------


def sampler_class(name):
    """Return the class of a sampler."""
    return getattr(pk, name, None) or getattr(pk.baselines, name)


def joined(values):
    """Return arrays (chains, n, …) side by side, (chains, n, d)."""
    return side_by_side(dict(enumerate(values)))


def parameters(model, dt):
    """Return the draws of all free variables, (chains, n, d)."""
    return joined(dt["posterior"][rv.name] for rv in model.free_RVs)


def evaluations(dt):
    """Return the evaluations of the log-density up to each draw, tuning first: (chains, n)."""
    return np.cumsum(costs(dt, lambda stats: stats["n_logp"].values), axis=1)


def costs(dt, cost):
    """Return what each draw cost by its statistics, tuning first: (chains, n)."""
    groups = (dt["warmup_sample_stats"], dt["sample_stats"])
    return np.concatenate([cost(group) for group in groups], axis=1)


def both(x):
    """Return x (..., d) and its squares, (..., 2d)."""
    return np.concatenate([x, x**2], axis=-1)


def least_ess(x):
    """Return the least bulk ESS of quantities (chains, n, q)."""
    return float(az.ess(az.convert_to_datatree({"x": x}))["x"].min())


def largest_rhat(x):
    """Return the largest R-hat of quantities (chains, n, q)."""
    return float(az.rhat(az.convert_to_datatree({"x": x}))["x"].max())


def ess_of_means(x):
    """Return of each quantity (chains, n, q) how many independent draws know its mean as well."""
    return az.ess(az.convert_to_datatree({"x": x}), method="mean")["x"].values


# ---- tables -------------------------------------------------------------------------------------


def grouped(rows, *keys):
    """Return lists of rows by their values of keys, or by the value of one key."""
    found = defaultdict(list)
    for row in rows:
        values = tuple(row.get(key) for key in keys)
        found[values if len(keys) > 1 else values[0]].append(row)
    return found


def table(titles, rows):
    """Return the lines of a table; None is an empty cell."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in (titles, *cells)]
    width = sum(title.count(" | ") + 1 for title in titles)
    return [lines[0], "|---" * width + "|", *lines[1:]]


def three_digits(x):
    """Write a positive number as the pages do, in three digits if it is 100 or more."""
    return spaced(round(float(f"{x:.3g}")))


def span(values, form=spaced):
    """Write the least and the largest of some values."""
    return f"{form(min(values))} to {form(max(values))}"


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


def paper(name):
    """Return the page of a paper's experiments, as seen from docs/."""
    return f"../examples/papers/{name}.md"


def filled(text, tables):
    """Return the text of a page with the tables, name -> lines, as they should be."""
    for name, lines in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        assert rest, f"the page has no {name}"
        text = before + begin + "\n".join(lines) + "\n" + end + after
    return text


def write(tables):
    """Write tables by their names, of each page by its file name as seen from docs/."""
    for name, own in tables.items():
        page = DOCS / name
        page.write_text(filled(page.read_text(encoding="utf-8"), own), encoding="utf-8")


def show(tables):
    """Print the tables of pages."""
    for own in tables.values():
        for lines in own.values():
            print(*lines, "", sep="\n")
