"""Which checks of pymc_kameleon.testing the steps of PyMC pass.

    python examples/conformance.py

writes the table of docs/conformance.md, and prints why a step fails. It takes some minutes, as
worker processes are begun in each way that the system has.
"""

import sys
from pathlib import Path
from unittest import SkipTest

import pandas as pd
import pymc as pm

from pymc_kameleon import testing

sys.path.append(str(Path(__file__).parent / "benchmarks"))
import benchmark


def categorical():
    """Make a vector and a scalar of three categories: variables of one's own for the checks."""
    p = [0.2, 0.3, 0.5]
    return [pm.Categorical("vector", p, shape=2), pm.Categorical("scalar", p)]


STEPS = {
    testing.continuous: [pm.Metropolis, pm.DEMetropolisZ, pm.Slice, pm.NUTS],
    testing.binary: [pm.BinaryGibbsMetropolis],
    categorical: [pm.CategoricalGibbsMetropolis],
}
"""The steps for each kind of variables."""


def outcomes():
    """Return what each check says of each step."""
    reports = [report(steps, variables) for variables, steps in STEPS.items()]
    return pd.concat(reports, axis=1)


def report(steps, variables):
    """Return a row for each check, a column for each step: "passes", or why not."""
    columns = {
        step.__name__: [outcome(check, step, variables) for check in testing.checks]
        for step in steps
    }
    return pd.DataFrame(columns, index=map(str, testing.checks))


def outcome(check, step, variables):
    """Return "passes", "fails: why", or "not run: why"."""
    try:
        check(step, variables)
    except SkipTest as reason:
        return f"not run: {reason}"
    except AssertionError as error:
        return f"fails: {error}"
    except Exception as error:
        return f"fails: {type(error).__name__}: {str(error).partition('\n')[0]}"
    return "passes"


def table(reports):
    """Return the table of the page, a line for each check."""
    marks = {"passes": "✓", "fails": "✗", "not run": "–"}
    return benchmark.table(
        ["", *reports.columns],
        [
            [f"`{check}`", *(marks[said.partition(":")[0]] for said in row)]
            for check, row in reports.iterrows()
        ],
    )


if __name__ == "__main__":
    found = outcomes()
    for step in found:
        for check, said in found[step].items():
            if said != "passes":
                print(f"{step}, {check} {said}")
    benchmark.write({"conformance.md": {"conformance": table(found)}})
