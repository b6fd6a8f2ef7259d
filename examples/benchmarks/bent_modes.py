"""Evidence where modes are bent: whether proposals are normalised, and whether stated errors hold.

    python examples/benchmarks/bent_modes.py [--samplers NUTS] [--seeds 8]

Each mode is a bent normal: z₁ = x₁ − side and z₂ = x₂ − 2(z₁² − 1) are normal, and so are all other
coordinates. Sides are 8 apart, and all modes have the same mass. log Z = 0.

* proposals: of exact draws in two dimensions, after they have learned once from new points, as a
  bridge may let them. Their integral is taken on a fine grid.
* evidence: ``pk.evidence`` with its defaults, of 4 chains: of SurrogateMetropolis with 2000
  evaluations in all, so that chains do not look for other modes, and with 8000; and of NUTS with
  1000 draws after 1000 of tuning, from PyMC's jittered starts.
"""

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import each, grouped, main, sample, sample_by_pymc, table
from scipy.special import logsumexp

import pymc_kameleon as pk
from pymc_kameleon.analysis.evidence import proposals

FILE = Path(__file__).with_suffix(".json")
SIDES = {1: [0.0], 2: [-4.0, 4.0], 3: [-8.0, 0.0, 8.0]}
DIMENSIONS = 2, 3, 5
PROPOSAL_SEEDS = 20


def plan(options):
    """Yield what is to be run."""
    yield from each(integral, what=["proposal"], modes=SIDES, seed=range(PROPOSAL_SEEDS))
    seeds = range(options.seeds)
    yield from each(
        evidence, what=["evidence"], d=DIMENSIONS, modes=SIDES, sampler=DRAWS, seed=seeds
    )


# ---- proposals ----------------------------------------------------------------------------------


def integral(modes, seed):
    """Return the integral of a proposal that has learned."""
    rng, sides, draws = np.random.default_rng(seed), np.array(SIDES[modes]), 1600
    mode = rng.integers(len(sides), size=draws)
    x = rng.standard_normal((draws, 2))
    x[:, 1] += 2 * (x[:, 0] ** 2 - 1)
    x[:, 0] += sides[mode]
    proposal = proposals.fitted(x, log_density(x, sides), mode, rng)
    y = proposal.draws(100, rng)
    proposal = proposal.refitted(y, log_density(y, sides))
    first, second = np.arange(-25, 25, 0.1), np.arange(-30, 100, 0.2)
    points = np.stack(np.meshgrid(first, second, indexing="ij"), axis=-1).reshape(-1, 2)
    return {"integral": float(np.exp(proposal.log_density(points)).sum() * 0.1 * 0.2)}


def log_density(x, sides):
    """Return the log-density at points (n, d)."""
    logs = []
    for side in sides:
        z = x[:, 0] - side
        bend = x[:, 1] - 2 * (z**2 - 1)
        logs.append(-(z**2 + bend**2 + np.sum(x[:, 2:] ** 2, axis=1)) / 2)
    return logsumexp(logs, axis=0) - np.log(len(sides)) - x.shape[1] / 2 * np.log(2 * np.pi)


# ---- evidence -----------------------------------------------------------------------------------


def evidence(d, modes, sampler, seed):
    """Return the error of log Z, what was stated, and whether there was a warning."""
    model = model_of(d, SIDES[modes])
    found = pk.evidence(DRAWS[sampler](model, seed), model, random_seed=seed, cores=1)
    row = {"error": found.log_evidence, "standard_error": found.standard_error}
    row = {key: value if np.isfinite(value) else None for key, value in row.items()}  # for JSON
    return row | {"overlap": found.overlap, "told": bool(found.warning)}


def model_of(d, sides):
    """Return a model whose prior and potential are bent modes, normalised."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 10, shape=d)
        logs = []
        for side in sides:
            z = x[0] - side
            bend = x[1] - 2 * (z**2 - 1)
            logs.append(-(z**2 + bend**2 + pt.sum(x[2:] ** 2)) / 2)
        wanted = pt.logsumexp(pt.stack(logs)) - np.log(len(sides)) - d / 2 * np.log(2 * np.pi)
        pm.Potential("modes", wanted - pt.sum(pm.logp(pm.Normal.dist(0, 10, shape=d), x)))
    return model


def of_surrogates(evaluations, model, seed):
    """Return a result of SurrogateMetropolis."""
    step = pk.SurrogateMetropolis(model=model, expensive=True)
    return sample(step, max_evaluations=evaluations, random_seed=seed)


def of_nuts(model, seed):
    """Return a result of PyMC's NUTS."""
    own = {"nuts_sampler": "pymc", "compute_convergence_checks": True}
    return sample_by_pymc(1000, tune=1000, model=model, random_seed=seed, **own)


DRAWS = {
    "SurrogateMetropolis, 2000": partial(of_surrogates, 2000),
    "SurrogateMetropolis, 8000": partial(of_surrogates, 8000),
    "NUTS": of_nuts,
}


# ---- tables -------------------------------------------------------------------------------------


def tables(rows):
    """Return the tables of the page."""
    of_proposals, of_evidence = grouped(rows, "what", "modes"), grouped(rows, *PLACE)
    integrals = {
        modes: [row["integral"] for row in of_proposals["proposal", modes]] for modes in SIDES
    }
    proposed = [
        [modes, len(own), f"{min(own):.3f}", f"{max(own):.3f}"] for modes, own in integrals.items()
    ]
    lines = [
        [*place, len(of_evidence[place]), *cells(of_evidence[place])]
        for place in product(DRAWS, SIDES, DIMENSIONS)
    ]
    titles = ["modes", "seeds", "smallest integral", "largest integral"]
    heading = ["draws of", "modes", "d", "runs", "told", "worst z of the others", "median error"]
    return {
        "evidence.md": {"bent_proposals": table(titles, proposed), "bent": table(heading, lines)}
    }


PLACE = "sampler", "modes", "d"


def cells(rows):
    """Return what a table says of runs."""
    silent = [row for row in rows if not row["told"]]
    if not silent:
        return [len(rows), None, None]
    error, stated = np.array([[row["error"], row["standard_error"]] for row in silent]).T
    worst, median = np.abs(error / stated).max(), np.median(np.abs(error))
    return [len(rows) - len(silent), f"{worst:.1f}", f"{median:.4f}"]


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=8)
