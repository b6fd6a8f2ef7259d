"""How often a look for other modes finds them: mixtures at random.

    python examples/benchmarks/look.py

One mode of each mixture is known, as a chain has found it. Four chains look for the others, each by
the evaluations that it has with default arguments. The table is typed in docs/modes.md.
"""

from functools import partial

import numpy as np
from benchmark import main, table

from pymc_kameleon.approximation.modes import Mode
from pymc_kameleon.step.warm_start.look import evaluations_of_look, look_for_modes

CASES = [
    # d, modes, distance over the mean standard deviation in its direction, scales, ν of t's
    (2, 2, (8, 15), (0.5, 2), np.inf),
    (2, 6, (6, 15), (0.5, 2), np.inf),
    (3, 2, (8, 15), (0.2, 3), np.inf),
    (3, 2, (40, 50), (0.5, 2), np.inf),
    (3, 3, (8, 20), (0.5, 2), np.inf),
    (3, 3, (10, 30), (0.5, 2), 5.0),
    (4, 4, (8, 20), (0.5, 2), np.inf),
    (5, 2, (8, 25), (0.5, 2), np.inf),
    (6, 4, (10, 20), (0.5, 2), np.inf),
    (8, 2, (8, 20), (0.5, 2), np.inf),
]
N_MIXTURES, SEEDS, CHAINS, DRAWS = 6, 3, 4, 2000


def plan(options):
    """Yield what is to be run."""
    for i, case in enumerate(CASES):
        yield dict(zip(TITLES, case, strict=False)), partial(measure, i, case)


TITLES = ("d", "modes", "apart", "sds", "ν", "mass found", "all found", "evaluations")


def measure(i, case):
    """Return what is found, on average."""
    runs = [run(case, (i, k), s) for k in range(N_MIXTURES) for s in range(SEEDS)]
    mass, every, n = np.mean(runs, axis=0)
    return {"mass found": f"{mass:.2f}", "all found": f"{every:.2f}", "evaluations": round(n)}


def tables(rows):
    """Return the table."""
    lines = [[ranged(row[title]) for title in TITLES] for row in rows]
    return {"modes.md": {"looks": table(TITLES, lines)}}


def ranged(value):
    """Write a value, or the ends of a range."""
    return "{} to {}".format(*value) if isinstance(value, tuple) else value


def run(case, seed, run_seed):
    """Return the mass found, whether that is all, and evaluations for each chain."""
    weights, means, factors, log_density = mixture(*case, np.random.default_rng([*seed, 1]))
    found, counts = {0}, []
    home = Mode(means[0], factors[0], log_density(means[0]))
    for chain in range(CHAINS):
        values = []

        def logp(x, values=values):
            values.append(log_density(x))
            return values[-1]

        rng = np.random.default_rng([*seed, run_seed, chain])
        new = look_for_modes(logp, home, *evaluations_of_look(DRAWS, len(means[0])), rng).modes
        found |= {nearest(mode.mean, means, factors) for mode in new}
        counts.append(len(values))
    return weights[list(found)].sum(), len(found) == len(means), np.mean(counts)


def mixture(d, modes, apart, scales, nu, rng):
    """Return weights, means, factors and the log-density of a mixture."""
    factors = [factor(d, scales, rng) for _ in range(modes)]
    means = [np.zeros(d)]
    while len(means) < modes:
        z = rng.standard_normal(d)
        z /= np.linalg.norm(z)
        width = np.mean([np.linalg.norm(z @ factors[k]) for k in (0, len(means))])
        new = means[rng.integers(len(means))] + rng.uniform(*apart) * width * z
        if all(np.linalg.norm(new - mean) > apart[0] * width / 2 for mean in means):
            means.append(new)
    weights = rng.dirichlet(np.full(modes, 4.0))

    def log_density(x):
        logs = []
        for w, mean, own in zip(weights, means, factors, strict=True):
            u = np.linalg.solve(own, x - mean)
            fall = u @ u / 2 if np.isinf(nu) else (nu + d) / 2 * np.log1p(u @ u / nu)
            logs.append(np.log(w) - np.log(np.diag(own)).sum() - fall)
        return np.logaddexp.reduce(logs)

    return weights, np.array(means), factors, log_density


def factor(d, scales, rng):
    """Return the factor of a covariance."""
    a = rng.standard_normal((d, d)) / np.sqrt(d)
    scale = np.exp(rng.uniform(*np.log(scales)))
    return scale * np.linalg.cholesky(a @ a.T + 0.3 * np.eye(d))


def nearest(x, means, factors):
    """Return in which mode x is."""
    away = [np.linalg.solve(own, x - mean) for mean, own in zip(means, factors, strict=True)]
    return int(np.argmin(np.linalg.norm(away, axis=1)))


if __name__ == "__main__":
    main(None, plan, tables)
