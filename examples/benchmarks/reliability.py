"""Which samplers are right with default arguments, which say that they are not, and which do not.

    python examples/benchmarks/reliability.py [--samplers GAM KAM] [--cases AR5 GARCH] [--seeds 1]

A run is `pk.sample(step=...)` with all its defaults: four chains from dispersed starts. Its means
of every x_k and x_k², on the unconstrained scale, are compared with exact quadrature, or a long
run of PyMC's NUTS. A table of docs/reliability.md has what each run gave.
"""

import time
from collections import Counter
from functools import partial
from pathlib import Path

import arviz as az
import benchmark
import numpy as np
from posteriors import POSTERIORS
from problems import Case, Problem, exact, from_draws, problem_of

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
ERRORS, SMALL = 4.0, 0.1
"""A mean is wrong if it is off by more than so many standard errors and standard deviations."""


SAMPLERS = [cls.__name__ for cls in pk.samplers.SAMPLERS if cls is not pk.EmulatorMetropolis]
"""Those of any model: EmulatorMetropolis needs a black box that returns predictions."""


def plan(options):
    """Yield what is known, and the runs."""
    yield from benchmark.each(known_of, case=CASES, sampler=["known"])
    yield from benchmark.each(run, case=CASES, sampler=SAMPLERS, seed=range(options.seeds))


# ---- a run --------------------------------------------------------------------------------------


def run(case, sampler, seed):
    """Run once, and say what is wrong, and what the run said."""
    problem = problem_of(case, CASES[case])
    step = benchmark.step_of(sampler, problem.model)
    [known] = benchmark.grouped(benchmark.load(FILE), "case", "sampler")[case, "known"]
    began = time.perf_counter()
    with benchmark.quiet():
        dt = benchmark.sample(step, random_seed=seed, compute_convergence_checks=True)
    seconds = time.perf_counter() - began
    x = benchmark.both(problem.coordinates(dt["posterior"]))
    tree = az.convert_to_datatree({"x": x})
    mcse = np.nan_to_num(az.mcse(tree, method="mean")["x"].values)
    sd = np.array(known["sd"])
    error = (x.mean(axis=(0, 1)) - known["mean"]) / sd
    z = error / np.maximum(np.hypot(mcse, known["mcse"]) / sd, 1e-300)
    wrong = (np.abs(error) > SMALL) & (np.abs(z) > ERRORS)
    k = int(np.argmax(np.where(wrong | ~wrong.any(), np.abs(z), 0)))
    return {
        "right": not wrong.any(),
        **benchmark.judged(dt),
        "off": round(float(np.abs(error[: problem.d]).max()), 3),  # of means of x
        "worst": quantities(problem)[k],
        "error": round(float(error[k]), 3),
        "z": round(float(z[k]), 1),
        "rhat": round(benchmark.largest_rhat(x), 3),
        "ess": round(benchmark.least_ess(x)),
        "seconds": round(seconds, 1),
    }


def quantities(problem):
    """Return the names of x_k and x_k², (2d,)."""
    names = []
    for name, value in problem.initial.items():
        names += [f"{name}{list(i) if i else ''}" for i in np.ndindex(value.shape)]
    return names + [f"{name}²" for name in names]


# ---- what is known ------------------------------------------------------------------------------


def known_of(case):
    """Return means, standard deviations and standard errors of x_k and x_k², and how."""
    problem = problem_of(case, CASES[case])
    moments = problem.case.known(problem)
    return {
        "mean": moments.mean.tolist(),
        "sd": moments.sd.tolist(),
        "mcse": (moments.sd * moments.ess**-0.5).tolist(),
        "how": "quadrature" if np.isinf(moments.ess).all() else "NUTS",
        "d": problem.d,
    }


def long_nuts(problem):
    """Return the moments of a long run of PyMC's NUTS, which has to have converged."""
    dt = benchmark.sample_by_pymc(
        10_000,
        tune=2000,
        model=problem.model,
        random_seed=1,
        target_accept=0.95,
        nuts_sampler="pymc",
        idata_kwargs={"include_transformed": True},
    )
    x = problem.coordinates(dt["posterior"])
    rhat = benchmark.largest_rhat(benchmark.both(x))
    diverging = int(dt["sample_stats"]["diverging"].sum())
    print(f"{problem.name}: R-hat {rhat:.4f}, {diverging} divergences", flush=True)
    assert rhat < 1.01
    return from_draws(x)


def by_quadrature(problem, given=("sigma_log__",), within=(-14, 12), to=None):
    """Return the exact Moments where all but the `given` coordinates are normal, given those.

    `given` are names of one or two value variables that are numbers. `to` returns a matrix by which
    the others are multiplied. `within` is where to look for the `given`.
    """
    own = np.concatenate(
        [np.full(value.size, name in given) for name, value in problem.initial.items()]
    )
    logp, gradient = problem.model.compile_logp(), problem.model.compile_dlogp()
    eye = np.eye(problem.d)[~own]

    def slope(x):
        return gradient(problem.unraveled(x))[~own]

    def conditional(values):
        """Return the log marginal density of the given values, and mean and covariance."""
        x = np.zeros(problem.d)
        x[own] = values
        for _ in range(2):  # the second one takes back what the first one rounds
            here = slope(x)
            precision = here - np.array([slope(x + e) for e in eye])
            x[~own] += np.linalg.solve(precision, here)
        log_density = logp(problem.unraveled(x)) - np.linalg.slogdet(precision)[1] / 2
        a = np.eye(len(eye)) if to is None else to(values)
        return log_density, a @ x[~own], np.diag(a @ np.linalg.inv(precision) @ a.T)

    points, log_w, rest, spread = grid(conditional, [within] * len(given))
    m, v = np.zeros((2, len(points), problem.d))
    m[:, own], m[:, ~own], v[:, ~own] = points, rest, spread
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    return exact(w @ m, w @ (m**2 + v), w @ (m**4 + 6 * m**2 * v + 3 * v**2))


def grid(conditional, ends, n=(600, 60), rounds=5, depth=30):
    """Return points (m, k) where the density is not negligible, and what is known there.

    Each round looks at where the last one has found it, with as many points.
    """
    for _ in range(rounds):
        axes = [np.linspace(*pair, n[len(ends) - 1]) for pair in ends]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(ends))
        log_w, means, variances = map(np.array, zip(*map(conditional, points), strict=True))
        high = points[log_w > log_w.max() - depth]
        step = np.array([axis[1] - axis[0] for axis in axes])
        ends = np.stack([high.min(axis=0) - step, high.max(axis=0) + step], axis=1)
    return points, log_w, means, variances


def centred_schools(problem):
    """Return the moments of the schools by those of z, as θ = μ + τz."""

    def to(given):
        a = np.exp(given[0]) * np.eye(9)
        a[:, 0] = 1.0
        return a

    return by_quadrature(Problem("schools"), given=("tau_log__",), to=to)


CASES = {
    "AR5": Case(POSTERIORS["autoregression"], by_quadrature),
    "interaction": Case(POSTERIORS["interaction"], by_quadrature),
    "trend": Case(POSTERIORS["trend"], by_quadrature),
    "prices": Case(POSTERIORS["prices"], by_quadrature),
    "groups": Case(
        POSTERIORS["groups"],
        partial(by_quadrature, given=("tau_log__", "sigma_log__"), within=(-9, 9)),
    ),
    "schools": Case(POSTERIORS["schools"], partial(by_quadrature, given=("tau_log__",))),
    "centred schools": Case(POSTERIORS["centred schools"], centred_schools),
    **{
        name: Case(POSTERIORS[name], long_nuts)
        for name in (
            "robust",
            "wells",
            "negative binomial",
            "dose response",
            "elimination",
            "oxygen",
            "GARCH",
            "two components",
            "latent process",
        )
    },
}

# ---- the page -----------------------------------------------------------------------------------


RIGHT, RIGHT_TOLD = "right", "right, with a caution"
TOLD, SILENT = "wrong, with a caution", "wrong without one"
SIGNS = {RIGHT: "+", RIGHT_TOLD: "(+)", TOLD: "–", SILENT: "**S**"}


def outcome(run):
    """Return one of the four outcomes."""
    if run["right"]:
        return RIGHT_TOLD if run["told"] else RIGHT
    return TOLD if run["told"] else SILENT


def tables(rows):
    """Return the tables of the page."""
    known = {row["case"]: row for row in rows if row["sampler"] == "known"}
    runs = [row for row in rows if row["sampler"] != "known"]
    signs = benchmark.grouped(runs, "case", "sampler")
    count = {
        sampler: Counter(map(outcome, own))
        for sampler, own in benchmark.grouped(runs, "sampler").items()
    }
    dates = sorted(row["date"] for row in runs)
    unwarned = [row for row in runs if not row["told"]]
    silent = [row for row in runs if outcome(row) == SILENT]
    told = [
        f"{len(runs)} runs, {' to '.join(sorted({dates[0], dates[-1]}))}. {len(unwarned)} of them "
        "had no caution and no problem;",
        f"the worst mean among these was off by {max(abs(row['z']) for row in unwarned)} standard "
        "errors.",
    ]
    by_sampler = benchmark.table(
        ["sampler", *SIGNS],
        [[name, *(count[name][what] for what in SIGNS)] for name in SAMPLERS],
    )
    by_case = benchmark.table(
        ["posterior", "d", "known by", *SAMPLERS],
        [
            [
                *(case, known[case]["d"], known[case]["how"]),
                *(" ".join(SIGNS[outcome(row)] for row in signs[case, name]) for name in SAMPLERS),
            ]
            for case in CASES
        ],
    )
    titles = ["posterior", "sampler", "seed", "worst", "off by, in sd", "in standard errors"]
    keys = "case", "sampler", "seed", "worst", "error", "z"
    wrong = (
        benchmark.table(titles, [[row[key] for key in keys] for row in silent]) if silent else []
    )
    how_many = f"Wrong without a caution: {len(silent) or 'none'}."
    lines = [*told, "", *by_sampler, "", *by_case, "", how_many, "", *wrong]
    judged = [row for row in runs if "verdict" in row]
    own = {"tables": lines} | ({"verdicts": verdict_table(judged)} if judged else {})
    return {"reliability.md": own}


FAR, NEAR = 0.2, 0.1
"""Posterior standard deviations by which a mean is wrong, and right."""


def verdict_table(runs):
    """Return how often each verdict was given, and how far the worst mean of x was off then."""
    lines = []
    for verdict in ("usable", "check", "not usable"):
        off = np.array([row["off"] for row in runs if row["verdict"] == verdict])
        lines.append([verdict, len(off), (off <= NEAR).sum(), (off > FAR).sum()])
    near = [row["verdict"] == "usable" for row in runs if row["off"] <= NEAR]
    titles = ["verdict", "runs", f"all means within {NEAR} sd", f"a mean off by more than {FAR} sd"]
    share = f"Of the runs with all means within {NEAR} sd, {np.mean(near):.0%} are called usable."
    return [*benchmark.table(titles, lines), "", share]


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, seeds=1)
