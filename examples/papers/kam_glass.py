"""Figures 3 and 4 of the KAM paper: hyperparameters of a Gaussian process classifier of UCI Glass.

    python kam_glass.py                   10 chains of 10 000 iterations each; an hour
    python kam_glass.py --full --json FILE    of 100 000, and the paper's benchmark; some 16 hours
    python kam_glass.py --picture         draws figure 4; figure 3 is drawn with the benchmark

Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton, "Kernel adaptive Metropolis-Hastings",
ICML 2014, section 5.1. Window glass or not, 214 pieces, nine features; θ_d = log ℓ_d², d = 1 … 9,
and the marginal likelihood p(y|θ) is estimated from 100 importance samples (gp_classification.py).
Chains start at θ = 0; a fifth of the iterations are burn-in, after which nothing adapts; every 20th
state is kept. What the paper does not say is as in its authors' published run: features that are
whitened, a prior N(0, 5 I), a ridge of 1e-3.

Each run is kept in a store, so an interrupted script, started again, goes on where it was.

The benchmark is a long run. Distance: of a chain's mean from the benchmark's. MMD: maximum mean
discrepancy to it with the kernel (1 + ⟨θ, θ'⟩)³, thus of all moments up to the third; it is that of
the states as they are, so a perfect sample does not have 0 either. Both over iterations, mean over
chains and standard error. The two halves of the benchmark show how exact it is by itself.

The data are glass.csv in the folder of `--data`, or of the environment variable KAMELEON_DATA: a
header, nine features, the type of glass 1 … 7, and a last column that is 1 for types 1 to 4.
"""

import re
from functools import cache, partial
from itertools import combinations_with_replacement
from math import factorial
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from common import benchmark, pictures
from gad_targets import add_data_option, read
from gp_classification import LogMarginalLikelihood

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
LOOKS = (0.3, 0.5, 1)
"""Shares of the iterations after which to look at the MMD."""
D, EVERY = 9, 20

PAPER = {"whiten": False, "gamma": 0.2, "n_subsample": 1000, "target_accept": 0.234}
SAMPLERS = {
    "SM": (pk.baselines.RWM, {"scaling": 2.38 / np.sqrt(D), "tune_scaling": False}),
    "AM-FS": (pk.baselines.AM, {"target_accept": 0.234}),
    "AM-LS": (pk.GAM, {"target_accept": 0.234}),
    "KAM, as in the paper": (pk.KAM, PAPER),
    "KAM, default arguments": (pk.KAM, {"target_accept": 0.234}),
}
"""The estimates have so little noise that the usual acceptance is as good as ever."""

COLOURS = ["#999999", "#0072B2", "#009E73", "#D55E00", "#E69F00"]


def add_options(parser):
    """Add the options of this script."""
    add_data_option(parser)
    parser.add_argument("--full", action="store_true", help="the paper's numbers of iterations")
    parser.add_argument("--runs", default="kam_glass_runs", type=Path, help="folder of the stores")
    parser.add_argument("--cores", type=int, help="chains at a time")


def plan(options):
    """Yield the samplers."""
    n = 100_000 if options.full else 10_000
    for name in SAMPLERS:
        yield {"sampler": name}, partial(measure, name, n, options)


def measure(name, n, options):
    """Return the row of a sampler: n iterations of each chain, of which a fifth is burn-in."""
    cls, arguments = SAMPLERS[name]
    alone = {"pool_tuning": False} if cls.learns != "alone" else {}
    step = cls(
        model=build(options.data), pseudo_marginal=True, steps_per_draw=EVERY, **alone, **arguments
    )
    path = options.runs / f"{re.sub(r'\W', '_', name)}-{options.seeds}-{n}.zarr"
    dt = run(step, path, n, options.seeds, options.cores, seed=1)
    long = benchmark_of(options.data, options.full, options.runs, options.cores)
    features = cubic_features(long).mean(axis=(0, 1)), long.mean(axis=(0, 1))
    return summary(dt, n, *discrepancies(dt["posterior"]["theta"].values, *features))


# ---- the model ----------------------------------------------------------------------------------


def load(folder):
    """Return the whitened features (214, 9), and y = 1 for window glass, -1 for other."""
    if folder is None:
        raise SystemExit("Give the folder of glass.csv by --data, or KAMELEON_DATA.")
    columns, labels = read(Path(folder) / "glass.csv")
    features = columns[:, :D] - columns[:, :D].mean(axis=0)
    factor = np.linalg.cholesky(np.cov(features.T))
    return np.linalg.solve(factor, features.T).T, np.where(labels == 1, 1.0, -1.0)


@cache
def build(folder):
    """Return the model of θ."""
    x, y = load(folder)
    with pm.Model() as model:
        theta = pm.Normal("theta", sigma=np.sqrt(5), shape=D)
        likelihood = LogMarginalLikelihood(n_samples=100)
        pm.Potential("likelihood", likelihood(theta, x, y, pk.noise_seed()))
    return model


# ---- runs ---------------------------------------------------------------------------------------


def run(step, path, n, chains, cores, seed, start=0.0):
    """Return a run of n iterations, of which a fifth is burn-in; begin it or go on with it."""
    tune = n // 5 // EVERY
    draws = n // EVERY - tune
    options = {"step": step, "model": step.model, "cores": cores}
    options |= {"compute_convergence_checks": False}
    if path.exists():
        dt = pk.resume(path, **options)
    else:
        path.parent.mkdir(exist_ok=True)
        initvals = None if start is None else {"theta": np.full(D, start)}
        options |= {"initvals": initvals, "random_seed": seed}
        dt = pk.sample(draws, tune=tune, chains=chains, store=path, **options)
    if "posterior" not in dt or dt["posterior"]["theta"].shape[:2] != (chains, draws):
        raise SystemExit("Interrupted. When it is started again, it goes on.")
    return dt


@cache
def benchmark_of(folder, full, runs, cores):
    """Return draws (chains, draws, 9) of a long run, and draw them; the paper's is of 30 walks."""
    kind, options, n, chains = pk.GAM, {"target_accept": 0.234}, 30_000, 6
    if full:
        kind, options, n, chains = pk.baselines.RWM, {}, 500_000, 30
    step = kind(model=build(folder), pseudo_marginal=True, steps_per_draw=EVERY, **options)
    dt = run(step, runs / f"benchmark-{n}.zarr", n, chains, cores, seed=2, start=None)
    theta = dt["posterior"]["theta"].values
    show_benchmark(theta)
    draw_projection(theta)
    return theta


# ---- measures -----------------------------------------------------------------------------------


def cubic_features(theta):
    """Return φ(θ) (..., 220) with ⟨φ(θ), φ(θ')⟩ = (1 + ⟨θ, θ'⟩)³."""
    extended = np.concatenate([np.ones((*theta.shape[:-1], 1)), theta], axis=-1)
    features = []
    for places in combinations_with_replacement(range(D + 1), 3):
        repeats = np.prod([factorial(places.count(i)) for i in set(places)])
        features.append(np.sqrt(6 / repeats) * np.prod(extended[..., places], axis=-1))
    return np.stack(features, axis=-1)


def discrepancies(theta, features, mean):
    """Return distance of means and MMD (chains, draws) of the draws up to each."""
    so_far = np.arange(1, theta.shape[1] + 1)[:, None]
    means = theta.cumsum(axis=1) / so_far
    embeddings = cubic_features(theta).cumsum(axis=1) / so_far
    return np.linalg.norm(means - mean, axis=2), np.linalg.norm(embeddings - features, axis=2)


def show_benchmark(theta):
    """Print how exact it is, by what its halves differ."""
    halves = np.array_split(theta, 2)
    mean, mmd = (
        np.linalg.norm(np.subtract(*(f(half).mean(axis=(0, 1)) for half in halves))) / 2
        for f in (lambda x: x, cubic_features)
    )
    ess = min(az.ess(theta[:, :, d]) for d in range(D))
    rhat = max(az.rhat(theta[:, :, d]) for d in range(D))
    print(f"Benchmark: {theta.shape[0]} chains, {theta.shape[1]} states of each")
    print(f"least ESS {ess:.0f}, largest R-hat {rhat:.3f}; its own error of the mean is about")
    print(f"{mean:.2f}, in terms of the MMD {mmd:.0f} (half of what its halves differ by)\n")


def summary(dt, n, distance, mmd):
    """Return acceptance, variance of the log-estimate, ESS, and the chains' discrepancies."""
    theta, stats = dt["posterior"]["theta"].values, dt["sample_stats"]
    found = {
        "accepted": stats["accept_share"].values.mean(),
        "v": stats["log_estimate_var"].values[:, -1].mean(),
        "ess": np.mean([min(az.ess(chain[None, :, d]) for d in range(D)) for chain in theta]),
    }
    found = {name: round(float(value), 4) for name, value in found.items()}
    found["distance"] = distance[:, -1].round(3).tolist()
    looks = [round(share * n) for share in LOOKS]
    ends = [mmd[:, (look - n // 5) // EVERY - 1].round(2).tolist() for look in looks]
    return found | {"mmd": dict(zip(map(str, looks), ends, strict=True))}


def tables(rows):
    """Return the tables of the page: the ends, and how much larger KAM's MMD is than others'."""
    *_, end = looks = list(rows[0]["mmd"])
    lines = []
    for row in rows:
        cells = [row["sampler"], f"{row['accepted']:.2f}", f"{row['v']:.3f}", f"{row['ess']:.0f}"]
        for values, digits in ((row["distance"], 2), (row["mmd"][end], 0)):
            cells.append(benchmark.with_error(values, digits))
        lines.append(cells)
    lines = benchmark.table(["", "accepted", "v", "ESS", "distance of means", "MMD"], lines)
    mmd = {row["sampler"]: row["mmd"] for row in rows}
    kams, others = [name for name in mmd if "KAM" in name], ["AM-LS", "AM-FS", "SM"]
    more = []
    for kam in kams:
        for look in looks:
            pairs = [(mmd[kam][look], mmd[other][look]) for other in others]
            cells = [f"{standardised(*pair):z.1f}".replace("-", "−") for pair in pairs]
            more.append([kam, benchmark.spaced(int(look)), *cells])
    more = benchmark.table(["", "after", *others], more)
    return {benchmark.paper("kam"): {"glass": lines, "differences on glass": more}}


def standardised(a, b):
    """Return the difference of two means over chains, in its standard errors."""
    return (np.mean(a) - np.mean(b)) / np.hypot(error(a), error(b))


def error(values):
    """Return the standard error over chains (n, ...)."""
    return np.std(values, axis=0, ddof=1) / np.sqrt(len(values))


# ---- pictures -----------------------------------------------------------------------------------


def draw_projection(theta):
    """Draw figure 3: dimensions 2 and 7 of the benchmark."""
    states = theta.reshape(-1, D)
    states = states[:: max(1, len(states) // 8000)]
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    axes.plot(states[:, 1], states[:, 6], ".", markersize=1.5, alpha=0.4, color=COLOURS[1])
    axes.set(xlabel="θ₂", ylabel="θ₇", title="Logarithms of squared length scales")
    pictures.save(figure, "kam_figure3.png", shaded=True)


def draw(rows):
    """Draw figure 4: the MMD over iterations, and the distance of means in the end."""
    size = {"figsize": (9, 3.8), "layout": "constrained", "width_ratios": (2, 1)}
    figure, (left, right) = plt.subplots(1, 2, **size)
    for i, (row, colour, marker) in enumerate(zip(rows, COLOURS, "osD^v", strict=True)):
        looks, values = np.array([*map(int, row["mmd"])]), np.array([*row["mmd"].values()])
        style = {"color": colour, "marker": marker, "capsize": 3}
        apart = 1 + 0.015 * (i - 2)  # so that bars are not upon each other
        left.errorbar(
            looks * apart, values.mean(axis=1), error(values.T), label=row["sampler"], **style
        )
        right.errorbar(np.mean(row["distance"]), i, xerr=error(row["distance"]), **style)
    left.set(xlabel="iterations", ylabel="MMD", xscale="log", yscale="log")
    left.set_xticks(looks, [benchmark.spaced(int(look)) for look in looks])
    left.set_yticks([30, 50, 100], ["30", "50", "100"])
    left.minorticks_off()
    left.grid(alpha=0.3)
    right.set(xlabel="distance of means", ylim=(len(rows) - 0.5, -0.5), yticks=[])
    right.set(xlim=(0, None), title=f"after {benchmark.spaced(int(looks[-1]))}")
    right.grid(alpha=0.3)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=len(rows))
    pictures.save(figure, "kam_figure4.png", shaded=True)


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, seeds=10, draw=draw, add_options=add_options)
