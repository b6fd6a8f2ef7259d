"""How much tuning suffices, alone and together: the tables of docs/adaptation.md.

    python examples/benchmarks/pooling.py    a quarter of an hour

Transitions of tuning of each chain until the ESS per transition is 80 % of its final value; three
runs from dispersed starts for each length.
"""

from pathlib import Path
from statistics import median

import benchmark
import numpy as np
from posteriors import POSTERIORS

FILE = Path(__file__).with_suffix(".json")
SEEDS = (0, 1, 2)
WALKS = ("GAM", "AM", "RBAM", "RAM", "Barker", "KAM", "PCAKAM")
SAMPLERS = {
    "regression 10": (*WALKS, "CyclicalKAM", "GadMALA", "GadRWM", "CMTM"),
    "dose response": (*WALKS, "GadMALA"),
    "correlated": ("GAM", "GadMALA"),
}
COLUMNS = {"alone": (benchmark.CHAINS, False), "4 chains": (4, True), "8 chains": (8, True)}
"""Chains, and whether they learn together."""
LONG, LONGEST, ENOUGH = 12_800, 50_000, 0.8
"""Transitions of tuning to begin with, those after which there is hardly more to learn, and the
share of the ESS after these that is enough."""
MORE = f"> {benchmark.spaced(LONG)}"


def plan(options):
    """Yield what is to be run."""
    for case, samplers in SAMPLERS.items():
        yield from benchmark.each(measure, case=[case], sampler=samplers)


def measure(case, sampler):
    """Return the final ESS per transition, and the tuning that suffices unless it is > LONG."""
    kind, model = benchmark.sampler_class(sampler), POSTERIORS[case]()
    step, alone = kind(model=model), kind(model=model)
    if kind.learns_together:
        alone = kind(model=model, pool_tuning=False)
    final = rate(alone, benchmark.CHAINS, LONGEST)
    enough = {}
    for title, (chains, pool) in COLUMNS.items():
        if step.learns_together or not pool:
            n = shortest(step if pool else alone, chains, ENOUGH * final)
        if n < np.inf:
            enough[title] = round(n)
    return {"final": round(float(final), 5)} | enough


def shortest(step, chains, enough):
    """Return the tuning from which on the rates are enough, inf if LONG is too short.

    From LONG it is halved until they are not; of the last two, and one in between, logarithms are
    interpolated.
    """
    n, good = LONG, None
    while (found := rate(step, chains, n)) >= enough:
        if n < 20:
            return n
        n, good = n // 2, found
    if good is None:
        return np.inf
    lengths = np.array([n, n * 2**0.5, 2 * n])
    rates = [found, rate(step, chains, round(lengths[1])), good]
    k = 0 if rates[1] >= enough else 1
    part = slice(k, k + 2)
    return np.exp(np.interp(enough, rates[part], np.log(lengths[part])))


def rate(step, chains, n_tune, draws=3000):
    """Return the ESS per transition of what was learned: of chains the mean, of seeds the median.

    That of each chain by itself, frozen, without its first draws, which may be on the way.
    """
    tune, rates = -(-n_tune // step.steps_per_draw), []
    for seed in SEEDS:
        dt = benchmark.sample(step, draws, tune=tune, chains=chains, random_seed=seed)
        x = benchmark.parameters(step.model, dt)[:, draws // 5 :]
        rates.append(np.mean([ess_of(chain) for chain in x]) / step.steps_per_draw)
    return median(rates)


def ess_of(x):
    """Return the least ESS of the draws (n, d) of a chain and of their squares, over n."""
    if (np.ptp(x, axis=0) == 0).any():  # ArviZ takes what never moved for independent
        return 0.0
    return benchmark.least_ess(benchmark.with_squares(x[None])) / len(x)


def tables(rows):
    """Return the tables of the page."""
    titles, found = ["sampler", *COLUMNS], {}
    for case, own in benchmark.grouped(rows, "case").items():
        lines = []
        for row in own:
            unit = ", in sweeps" if row["sampler"] == "CMTM" else ""
            cells = [
                benchmark.three_digits(row[title]) if title in row else MORE for title in COLUMNS
            ]
            lines.append([row["sampler"] + unit, *cells])
        found[case] = benchmark.table(titles, lines)
    return {"adaptation.md": found}


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables)
