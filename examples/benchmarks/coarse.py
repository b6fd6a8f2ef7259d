"""Calls of a fine model until means are known, with coarse models and without.

    python examples/benchmarks/coarse.py [--cases spring rod aquifer] [--seeds 4]    an hour

Three fine models: a driven mass on a spring with a damper, by a solver with tight tolerances; heat
in a rod of ten conductivities, on 200 cells; and the water level in an aquifer of four zones, on a
grid of 25 × 25 cells. Their coarse models are

* good: a symplectic Euler step, 24 cells, 11 × 11 cells;
* biased: an explicit Euler step, which gains energy, 9 cells, 5 × 5 cells;
* elsewhere: the good one at shifted parameters, so that it fits the data best elsewhere;
* useless: a function that has nothing to do with it.

A run is ``pk.sample(max_evaluations=...)``: calls of the fine model. Its error is the largest one
of means by `pk.summary`, in posterior standard deviations, which are those of a run with 2500
evaluations. A row has the errors of some seeds. "Calls" are where the median error comes below 0.1
sd, between two lengths that were run by interpolation of logarithms.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pymc as pm
import scipy.sparse as sp
from benchmark import each, grouped, main, rounded, table
from scipy.integrate import solve_ivp
from scipy.interpolate import RegularGridInterpolator
from scipy.sparse.linalg import splu

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
LENGTHS = 45, 60, 80, 105, 140, 185, 245
KINDS = "none", "good", "biased", "elsewhere", "useless"
ENOUGH, LONG = 0.1, 2500

# ---- a mass on a spring, with a damper, that is driven ------------------------------------------

TIMES, END = np.linspace(0.4, 16, 40), 16.0


def tight_spring(k, c, x0, v0, a, w):
    """Return where the mass is at TIMES, by a solver with tight tolerances."""

    def slope(t, y):
        return y[1], -k * y[0] - c * y[1] + a * np.sin(w * t)

    return solve_ivp(slope, (0, END), [x0, v0], t_eval=TIMES, rtol=1e-8, atol=1e-10).y[0]


def stepped_spring(k, c, x0, v0, a, w, symplectic, step=0.02):
    """Return the same by steps of Euler's."""
    x, v, path = x0, v0, [x0]
    for i in range(round(END / step)):
        push = -c * v + a * np.sin(w * i * step)
        new_v = v + step * (push - k * x)
        x = x + step * (new_v if symplectic else v)
        x, v = np.clip([x, new_v], -1e3, 1e3)
        path.append(x)
    return np.interp(TIMES, step * np.arange(len(path)), path)


def spring(coarse):
    """Return the model of the spring, with a coarse model of that kind."""

    def fine(*p):
        return tight_spring(*map(float, p))

    def good(*p):
        return stepped_spring(*map(float, p), symplectic=True)

    def biased(*p):
        return stepped_spring(*map(float, p), symplectic=False)

    def elsewhere(k, c, *others):
        return good(1.2 * k, c + 0.1, *others)

    def useless(*p):
        p = np.array(p, float)
        return np.cos(2 * np.arange(40) * p[0] + 5 * p[1] + p.sum())

    box = pk.black_box(fine, coarse=of_kind(coarse, good, biased, elsewhere, useless))
    observed = noisy(fine(3.0, 0.3, 1.2, -0.5, 0.8, 1.1), 0.05, seed=0)
    with pm.Model() as model:
        k, c = pm.LogNormal("k", 1, 0.5), pm.LogNormal("c", -1, 0.7)
        x0, v0 = pm.Normal("x0", 1, 0.5), pm.Normal("v0", 0, 0.7)
        a, w = pm.HalfNormal("a", 1), pm.LogNormal("w", 0, 0.3)
        pm.Normal("y", box(k, c, x0, v0, a, w), pm.HalfNormal("s", 0.2), observed=observed)
    return model


# ---- heat in a rod ------------------------------------------------------------------------------


def temperatures(log_k, n):
    """Return the steady temperature at 24 places, by n cells."""
    middle = (np.arange(n) + 0.5) / n
    k = np.exp(np.interp(middle, np.linspace(0, 1, len(log_k)), log_k))
    between = 2 / (1 / k[1:] + 1 / k[:-1])
    heat = sum(s * np.exp(-(((middle - p) / 0.08) ** 2) / 2) for p, s in ((0.3, 10), (0.7, 20)))
    ends = np.zeros(n)
    ends[[0, -1]] = 2 * k[[0, -1]]
    diagonal = ends + np.append(between, 0) + np.insert(between, 0, 0)
    matrix = np.diag(diagonal) - np.diag(between, 1) - np.diag(between, -1)
    return np.interp(np.linspace(0.04, 0.96, 24), middle, np.linalg.solve(matrix, heat / n**2))


def rod(coarse):
    """Return the model of the rod, with a coarse model of that kind."""

    def fine(log_k):
        return temperatures(log_k, 200)

    def good(log_k):
        return temperatures(log_k, 24)

    def biased(log_k):
        return temperatures(log_k, 9)

    def elsewhere(log_k):
        return temperatures(log_k - 0.5, 24)

    def useless(log_k):
        return np.sin(np.arange(24) + log_k @ np.arange(1.0, 11.0))

    box = pk.black_box(fine, coarse=of_kind(coarse, good, biased, elsewhere, useless))
    observed = noisy(fine(0.7 * np.sin(1.3 * np.arange(10))), 0.01, seed=1)
    with pm.Model() as model:
        log_k, s = pm.Normal("log_k", 0, 0.7, shape=10), pm.HalfNormal("s", 0.05)
        pm.Normal("y", box(log_k), s, observed=observed)
    return model


# ---- an aquifer ---------------------------------------------------------------------------------

WELLS = np.array([[0.5, 0.5], [0.3, 0.7], [0.7, 0.3], [0.6, 0.8], [0.25, 0.3]])
ZONES = np.array([[0.25, 0.25], [0.25, 0.75], [0.75, 0.25], [0.75, 0.75]])
SEEN = 0, 1, 3, 7


def levels(log_t, log_s, rate, n):
    """Return the water level in WELLS at four times after a pump has started, on n × n cells."""
    x = (np.arange(n) + 1) / (n + 1)
    at = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1)
    near = np.exp(-np.sum((at[..., None, :] - ZONES) ** 2, axis=-1) / (2 * 0.25**2))
    t = np.exp(near @ log_t / near.sum(axis=-1))
    places, total = np.arange(n * n).reshape(n, n), np.zeros((n, n))
    rows, columns, values = [], [], []
    for axis, step in ((0, 1), (0, -1), (1, 1), (1, -1)):
        beside, its = np.roll(places, step, axis), np.roll(t, step, axis)
        is_edge = np.zeros((n, n), bool)
        np.moveaxis(is_edge, axis, 0)[0 if step == 1 else -1] = True
        flow = np.where(is_edge, t, 2 / (1 / t + 1 / its)) * (n + 1) ** 2
        total += flow
        rows.append(places[~is_edge])
        columns.append(beside[~is_edge])
        values.append(flow[~is_edge])
    flows = sp.csc_matrix(
        tuple([np.concatenate(values), tuple(map(np.concatenate, (rows, columns)))]),
        shape=(n * n, n * n),
    )
    storage = np.exp(log_s) / 0.05
    solve = splu((sp.diags(storage + total.ravel()) - flows).tocsc()).solve
    pump = 40 * rate * np.exp(-np.sum((at - [0.4, 0.55]) ** 2, axis=-1) / (2 * 0.08**2))
    level, found = np.zeros(n * n), []
    for i in range(SEEN[-1] + 1):
        level = solve(storage * level - pump.ravel())
        if i in SEEN:
            grid = level.reshape(n, n)
            found.append(
                RegularGridInterpolator((x, x), grid, bounds_error=False, fill_value=None)(WELLS)
            )
    return np.concatenate(found)


def aquifer(coarse):
    """Return the model of the aquifer, with a coarse model of that kind."""

    def fine(log_t, log_s, rate):
        return levels(log_t, float(log_s), float(rate), 25)

    def good(log_t, log_s, rate):
        return levels(log_t, float(log_s), float(rate), 11)

    def biased(log_t, log_s, rate):
        return levels(log_t, float(log_s), float(rate), 5)

    def elsewhere(log_t, log_s, rate):
        return good(log_t + 0.5, log_s - 0.4, 1.3 * rate)

    def useless(log_t, log_s, rate):
        return np.tanh(np.arange(20) - 10 + 5 * rate * log_s + log_t.sum())

    box = pk.black_box(fine, coarse=of_kind(coarse, good, biased, elsewhere, useless))
    exact = fine(np.array([0.3, -0.4, 0.5, 0.0]), -0.5, 1.0)
    noise = 0.02 * np.abs(exact).max()
    with pm.Model() as model:
        log_t, log_s = pm.Normal("log_t", 0, 0.7, shape=4), pm.Normal("log_s", 0, 0.7)
        rate, s = pm.LogNormal("rate", 0, 0.4), pm.HalfNormal("s", 3 * noise)
        pm.Normal("y", box(log_t, log_s, rate), s, observed=noisy(exact, noise, seed=2))
    return model


MODELS = {"spring": spring, "rod": rod, "aquifer": aquifer}


def of_kind(kind, *functions):
    """Return the coarse model of a kind, None of "none"."""
    return dict(zip(KINDS, [None, *functions], strict=True))[kind]


def noisy(exact, sd, seed):
    """Return data."""
    return exact + sd * np.random.default_rng(seed).normal(size=exact.shape)


# ---- what is run --------------------------------------------------------------------------------


def plan(options):
    """Return what is to be run."""
    seeds = {"seeds": [options.seeds]}
    return each(errors, case=MODELS, coarse=KINDS, evaluations=LENGTHS, **seeds)


@lru_cache
def model_of(case, coarse):
    """Return a model, for all its runs."""
    return MODELS[case](coarse)


@lru_cache
def known(case):
    """Return posterior means and sds, by a long run."""
    return moments(case, "none", LONG, seed=1000)


def moments(case, coarse, evaluations, seed):
    """Return means and standard deviations by a run."""
    with model_of(case, coarse):
        dt = pk.sample(max_evaluations=evaluations, random_seed=seed, progressbar=False, quiet=True)
    found = pk.summary(dt, round_to="none")
    return found["mean"].to_numpy(), found["sd"].to_numpy()


def errors(case, coarse, evaluations, seeds):
    """Return the largest error of a mean of each seed; none if there are too few evaluations."""
    mean, sd = known(case)
    try:
        own = [moments(case, coarse, evaluations, seed)[0] for seed in range(seeds)]
    except ValueError as error:
        if "max_evaluations is too small" not in str(error):
            raise
        return {"errors": None}
    return {"errors": rounded([np.abs((one - mean) / sd).max() for one in own])}


def calls_of(rows):
    """Return the calls until the median error is small, NaN if it never was."""
    found = [(row["evaluations"], np.median(row["errors"])) for row in rows if row["errors"]]
    found.sort()
    for k, (n, error) in enumerate(found):
        if all(later <= ENOUGH for _, later in found[k:]):
            if k == 0:
                return float(n)
            before, larger = found[k - 1]
            share = np.log(larger / ENOUGH) / np.log(larger / error)
            return before * (n / before) ** share
    return np.nan


def tables(rows):
    """Return the table of docs/coarse.md."""
    by_place, lines = grouped(rows, "case", "coarse"), []
    for case in MODELS:
        if not all(by_place[case, kind] for kind in KINDS):
            continue
        n = {kind: calls_of(by_place[case, kind]) for kind in KINDS}
        others = [f"{n[kind]:.0f} ({n[kind] / n['none']:.2f})" for kind in KINDS[1:]]
        lines.append([case, f"{n['none']:.0f}", *others])
    return {"coarse.md": {"coarse": table(["fine model", "without", *KINDS[1:]], lines)}}


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=4)
