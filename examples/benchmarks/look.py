"""How often a look for other modes finds them, and what it says of those it may miss.

    python examples/benchmarks/look.py
    python examples/benchmarks/look.py --share

One mode of each of these mixtures at random is known, as a chain has found it. Four chains look for
the others, each by the evaluations that it has with default arguments.

With --share one chain looks, without a prior and with one, and says which share of such starts may
end elsewhere. The truth is by further starts, of each of which the end is known: where BFGS leads.
It is elsewhere if the log-density falls by 2 on the line to all modes that were found. What was
said holds if the truth is not larger by more than two standard errors.

The tables are typed in docs/modes.md.
"""

from functools import partial

import numpy as np
from benchmark import main, table
from scipy.optimize import minimize

from pymc_kameleon.approximation.drops import NEAR, NEGLIGIBLE, drop
from pymc_kameleon.approximation.modes import Mode
from pymc_kameleon.step.warm_start.look import Look, evaluations_of_look

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
N_MIXTURES, SEEDS, CHAINS, DRAWS, N_STARTS = 6, 3, 4, 2000, 150


def plan(options):
    """Yield what is to be run."""
    for i, case in enumerate(CASES):
        what = dict(zip(TITLES, case, strict=False))
        yield what, partial(measure_share if options.share else measure, i, case)


def add_options(parser):
    """Add the options of this script."""
    parser.add_argument("--share", action="store_true", help="what is said of modes not found")


TITLES = ("d", "modes", "apart", "sds", "ν", "mass found", "all found", "evaluations")
OF_SHARE = (*TITLES[:5], "said", "true", "holds")


def measure(i, case):
    """Return what is found, on average."""
    runs = [run(case, (i, k), s) for k in range(N_MIXTURES) for s in range(SEEDS)]
    mass, every, n = np.mean(runs, axis=0)
    return {"mass found": f"{mass:.2f}", "all found": f"{every:.2f}", "evaluations": round(n)}


def measure_share(i, case):
    """Return which share of starts may end elsewhere, the true one, and how often that holds."""
    runs = [share(case, (i, k), proper) for k in range(N_MIXTURES) for proper in (False, True)]
    said, true = np.transpose(runs)
    error = np.sqrt(said * (1 - said) / N_STARTS)
    holds = np.count_nonzero(true <= said + 2 * error)
    means = {"said": f"{said.mean():.3f}", "true": f"{true.mean():.3f}"}
    return means | {"holds": f"{holds} of {len(runs)}"}


def tables(rows):
    """Return the table."""
    titles = OF_SHARE if "holds" in rows[0] else TITLES
    lines = [[ranged(row[title]) for title in titles] for row in rows]
    return {"modes.md": {"shares" if titles is OF_SHARE else "looks": table(titles, lines)}}


def ranged(value):
    """Write a value, or the ends of a range."""
    return "{} to {}".format(*value) if isinstance(value, tuple) else value


def run(case, seed, run_seed):
    """Return the mass found, whether that is all, and evaluations for each chain."""
    weights, means, factors, log_density = mixture(*case, np.random.default_rng([*seed, 1]))
    found, counts = {0}, []
    for chain in range(CHAINS):
        look, values = look_of(means, factors, log_density, [*seed, run_seed, chain])
        look.go()
        found |= {nearest(mode.mean, means, factors) for mode in look.seen.modes}
        counts.append(len(values))
    return weights[list(found)].sum(), len(found) == len(means), np.mean(counts)


def look_of(means, factors, log_density, seed, prior=None):
    """Return a Look for what is not the first mode, and the values that it will evaluate."""
    values = []

    def logp(x):
        values.append(log_density(x))
        return values[-1]

    home, rng = Mode(means[0], factors[0], log_density(means[0])), np.random.default_rng(seed)
    return Look(logp, home, *evaluations_of_look(DRAWS, len(means[0])), rng, prior), values


def share(case, seed, proper):
    """Return which share of starts a look thinks to end elsewhere, and which does."""
    _, means, factors, log_density = mixture(*case, np.random.default_rng([*seed, 1]))
    prior = draws_of_prior(means, factors, 300, [*seed, 2]) if proper else None
    look, _ = look_of(means, factors, log_density, [*seed, 3, proper], prior)
    look.go()
    known, said = list(look.known), look.seen.searches.share_elsewhere
    high = max(mode.logp for mode in known) - drop(case[0], NEGLIGIBLE)
    look.search.left = np.inf
    look.unseen = list(draws_of_prior(means, factors, 6 * N_STARTS, [*seed, 4])) if proper else []
    ends = [end_of(look, log_density) for _ in range(N_STARTS)]
    elsewhere = [
        (log_density(x) > high or not look.is_any_low) and is_apart(x, known, log_density)
        for x in ends
        if x is not None
    ]
    return said, np.sum(elsewhere) / N_STARTS


def draws_of_prior(means, factors, n, seed):
    """Return draws (n, d) of a normal that is as wide as the mixture."""
    width = means.std(axis=0) + 3 * np.mean(np.linalg.norm(factors, axis=2), axis=0)
    z = np.random.default_rng(seed).standard_normal((n, means.shape[1]))
    return means.mean(axis=0) + width * z


def end_of(look, log_density):
    """Return where the next start of a look leads (d,), None if to what it knows."""
    with np.errstate(all="ignore"):
        x, _, _, is_as_known = look.start()
        return None if is_as_known else minimize(lambda z: -log_density(z), x, method="BFGS").x


def is_apart(x, known, log_density):
    """Whether the log-density falls on the line from x (d,) to each known Mode."""
    for mode in known:
        on_line = [log_density(x + t * (mode.mean - x)) for t in np.linspace(0, 1, 21)]
        if min(on_line) > min(on_line[0], on_line[-1]) - drop(1, NEAR):
            return False
    return True


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

    return weights, np.array(means), np.array(factors), log_density


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
    main(None, plan, tables, add_options=add_options)
