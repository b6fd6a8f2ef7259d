"""What control variates by gradients gain over runs of PyMC's NUTS: a table of docs/any_run.md.

    python examples/benchmarks/any_run.py [--cases GARCH schools] [--seeds 10]

A run has four chains of 1000 draws, after 1000 of tuning, by ``pm.sample``. Quantities are each
x_k, x_k² and whether x_k is below its 5, 50 and 95 % points, on the unconstrained scale. Effective
draws are the variance of a quantity over the mean squared error of the runs. Errors are those from
exact_averages.py: by quadrature if all but one or two parameters are normal given these, or else by
importance sampling, whose own squared error is subtracted, and is in z. Runs that were refused
count with their plain averages. Runs and what is exact are kept in a folder for
temporary files, and averages until their case is measured.
"""

import tempfile
import warnings
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pymc as pm
import xarray as xr
from benchmark import CHAINS, joined, main, rounded, sample_by_pymc, table, three_digits
from exact_averages import by_importance, by_quadrature
from posteriors import POSTERIORS
from problems import Case, Problem, hidden_markov

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
FOLDER = Path(tempfile.gettempdir()) / "any_run"
DRAWS, RUNS_AT_A_TIME = 1000, 5
SLOW = "survival", "robust", "GARCH", "hidden Markov", "correlated"  # one run at a time
POINTS = 0.05, 0.5, 0.95
KINDS = ("means", "mean squares", *(f"below {100 * p:.0f} %" for p in POINTS))


def grouped(n_groups=30, n=8):
    """Return a hierarchical regression: intercepts of 30 groups, not centred, and a slope."""
    rng = np.random.default_rng(24)
    group = np.repeat(np.arange(n_groups), n)
    x = rng.normal(size=group.size)
    y = rng.normal(2, 1, n_groups)[group] + 0.5 * x + rng.normal(0, 1.5, group.size)
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 2)
        slope, sigma = pm.Normal("slope", 0, 2), pm.HalfNormal("sigma", 3)
        intercept = mu + tau * pm.Normal("z", shape=n_groups)
        pm.Normal("y", intercept[group] + slope * x, sigma, observed=y)
    return model


CASES = {
    "interaction": "regression with interaction",
    "regression 5": "regression",
    "regression 10": "regression",
    "prices": "regression, prices of houses",
    "correlated": "regression, correlated predictors",
    "autoregression": "AR(5)",
    "wells": "logistic regression",
    "Poisson": "Poisson regression",
    "negative binomial": "negative binomial regression",
    "survival": "Weibull regression, censored",
    "robust": "Student t regression",
    "schools": "eight schools, non-centred",
    "GARCH": "GARCH(1,1)",
    "hidden Markov": "hidden Markov model",
    "two components": "mixture of two normals",
    "30 groups": "regression with 30 groups",
}
BUILD = POSTERIORS | {"hidden Markov": hidden_markov, "30 groups": grouped}

GIVEN = {
    **dict.fromkeys(list(CASES)[:6], ("sigma_log__",)),
    "schools": ["tau_log__"],
    "30 groups": ["tau_log__", "sigma_log__"],
}
"""Variables given which all others of a posterior are normal."""
REACH = {"schools": (-40, 12)}
"""Where quadrature looks for them: log τ may be far below."""

CAREFUL = {"schools": 0.99, "GARCH": 0.99, "30 groups": 0.95}
"""target_accept of cases in which draws diverge with PyMC's default, as its warning advises."""


def plan(options):
    """Yield what is to be measured."""
    for case in CASES:
        yield {"case": case, "seeds": options.seeds}, partial(measure, case, options.seeds)


def runs(name, model, seeds):
    """Yield runs; several are one call of ``pm.sample``, which compiles for each."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    at_a_time = 1 if name in SLOW else RUNS_AT_A_TIME
    for first in range(0, seeds, at_a_time):
        file = FOLDER / f"{name.replace(' ', '_')}-{first}.nc"
        if not file.exists():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dt = sample_by_pymc(
                    DRAWS,
                    tune=1000,
                    chains=CHAINS * at_a_time,
                    random_seed=first,
                    model=model,
                    target_accept=CAREFUL.get(name, 0.8),
                    idata_kwargs={"include_transformed": True},
                )
            dt.to_netcdf(file.with_suffix(".new"))
            file.with_suffix(".new").replace(file)
        dt = xr.load_datatree(file)
        for k in range(min(at_a_time, seeds - first)):
            yield dt.isel(chain=slice(CHAINS * k, CHAINS * (k + 1)))


def coordinates(model, variables):
    """Return the value variables (chains, draws, d)."""
    return joined(variables[var.name] for var in model.value_vars)


def measure(name, seeds):
    """Return effective draws of all quantities by kind, and z, before and after."""
    model = BUILD[name]()
    every = np.concatenate([coordinates(model, dt["posterior"]) for dt in runs(name, model, seeds)])
    points = np.quantile(every, POINTS, axis=(0, 1))

    def quantities(variables):
        return quantities_of(coordinates(model, variables), points)

    def averages(dt):
        plain = pk.expectation(dt["posterior"].to_dataset(), quantities)
        found = pk.expectation(dt, quantities, model=model)
        reason = ""
        if np.all(found.gain == 1):
            table_of_run = pk.summary(dt, next(iter(dt["posterior"])), model=model)
            reason = table_of_run.attrs["not_by_gradients"]
        return *plain[:2], *found[:2], reason

    variances = quantities_of(every, points).var(axis=(0, 1))
    files = [file_of(name, f"averages-{k}") for k in range(seeds)]
    *several, reasons = zip(
        *(
            kept(file, points, partial(averages, dt))
            for file, dt in zip(files, runs(name, model, seeds), strict=True)
        ),
        strict=True,
    )
    truth, error = exact(name, model, every, points)
    before, after = (judged(*own, truth, error, variances) for own in (several[:2], several[2:]))
    ratios = before.pop("mse") / after.pop("mse")
    for file in files:
        file.unlink()
    return {
        "d": every.shape[2],
        "refused": [str(reason) for reason in reasons if reason],
        "plain": before,
        "corrected": after,
        "ratio": {
            kind: {"least": rounded(own.min(), 3), "median": rounded(np.median(own), 3)}
            for kind, own in by_kind(ratios).items()
        },
        "exact": None if name in GIVEN else rounded((variances / error**2).min(), 3),
    }


def exact(name, model, every, points):
    """Return means of quantities, and their own errors, which are 0 by quadrature."""
    function = model.logp_dlogp_function(ravel_inputs=True)
    function.set_extra_values({})

    def density(x):
        pairs = [function(row) for row in x]
        return tuple(np.array(part) for part in zip(*pairs, strict=True))

    def kept_density(x):
        file = file_of(name, f"density-{next(number)}")
        return kept(file, x, partial(density, x))

    number = count()
    x = every.reshape(-1, every.shape[2])
    if name in GIVEN:

        def quadrature():
            problem = Problem(name, Case(lambda: model))
            normals = by_quadrature(problem, GIVEN[name], REACH.get(name, (-12, 9)))
            means = normals.moments().mean
            return (np.concatenate([means, normals.below(points).ravel()]),)

        (mean,) = kept(file_of(name, "exact"), points, quadrature)
        return mean, np.zeros(mean.size)
    return by_importance(kept_density, x, points)


def file_of(name, what):
    """Return where something of a case is kept."""
    return FOLDER / f"{name.replace(' ', '_')}-{what}.npz"


def kept(file, of, compute):
    """Return arrays of a file, if they are of the same array, or else compute and keep them."""
    if file.exists() and np.array_equal((old := np.load(file))["of"], of):
        return [old[key] for key in old.files if key != "of"]
    arrays = compute()
    new = file.with_suffix(".new.npz")
    np.savez(new, *arrays, of=of)
    new.replace(file)
    return arrays


def quantities_of(x, points):
    """Return the quantities (chains, draws, q) of coordinates."""
    return np.concatenate([x, x**2, *(x < point for point in points)], axis=2)


def judged(means, mcse, truth, error, variances):
    """Return effective draws by kind, and z by kind, of several averages; and all errors."""
    squares = (np.array(means) - truth) ** 2
    mse = np.maximum(np.mean(squares, axis=0) - error**2, 1e-99)
    z = np.mean(squares / (np.square(mcse) + error**2), axis=0)
    ess, z = by_kind(variances / mse), by_kind(z)
    return {"mse": mse} | {
        kind: {
            "worst": rounded(ess[kind].min(), 3),
            "median": rounded(np.median(ess[kind]), 3),
            "z": rounded(np.sqrt(z[kind].mean()), 3),
        }
        for kind in KINDS
    }


def by_kind(x):
    """Return what there is of each quantity, (q,), by kind."""
    return dict(zip(KINDS, np.split(x, len(KINDS)), strict=True))


def tables(rows):
    """Return the tables of the page: of means and mean squares, and of probabilities."""
    by_case = {row["case"]: row for row in rows}
    ordered = [by_case[name] for name in CASES if name in by_case]
    return {
        "any_run.md": {
            "means of any run": of_kinds(ordered, KINDS[:2]),
            "probabilities of any run": of_kinds(ordered, KINDS[2:]),
        }
    }


def of_kinds(rows, kinds):
    """Return a table of some kinds: plain and corrected, worst / median of each, and z."""
    titles = ["posterior", "d", "runs", "refused", *(f"{kind} | corrected | z" for kind in kinds)]
    lines = []
    for row in rows:
        cells = [CASES[row["case"]], row["d"], row["seeds"], len(row["refused"]) or None]
        for kind in kinds:
            for way in ("plain", "corrected"):
                own = row[way][kind]
                cells.append(f"{three_digits(own['worst'])} / {three_digits(own['median'])}")
            cells.append(f"{row['corrected'][kind]['z']:.2f}")
        lines.append(cells)
    titles = [part for title in titles for part in title.split(" | ")]
    return table(titles, lines)


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=10)
