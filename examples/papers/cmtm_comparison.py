"""CMTM against CMH, fixed and adaptive: the banana, and the mixture in twenty dimensions.

    python cmtm_comparison.py [--full] [--target banana|mixture] [--plot-dir DIRECTORY]

Yang, Levi, Craiu & Rosenthal, "Adaptive component-wise multiple-try Metropolis sampling", JCGS 28,
2019; of these experiments the slides have pictures only. 10 000 sweeps, half of them discarded.
Two minutes: 8 chains; `--full`, 40 chains and a quarter of an hour.

CMTM has five tries, with scales 0.1, 0.2, 0.4, 0.8, 1.6 at first, as in the paper on the banana;
for the mixture it does not say. CMH with fixed scales, which it does not give, has σ = 1
everywhere. `CMTM, wide` has fixed scales from 0.1 to 16. `CMTM, default` is the package's, which
chooses its first scales, and makes single tries where these cost less.
Adaptation ends with the half that is discarded. Effective sample sizes (ESS) are of a chain, but
ArviZ has them from all together (for means): a chain that does not leave a mode of the mixture
would look good by itself. Errors are by jackknife over chains. Per CPU second and per 1000
evaluations is of the draws that are kept; a sweep's seconds are those of compiled code. If
evaluations take long, ESS per evaluation is what counts.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
from cmtm_targets import BANANA, LARGE, SWEEPS, run_chain, seconds_per_sweep, with_error
from kam_pictures import save

import pymc_kameleon as pk

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
DRAWS = SWEEPS // 2
FIRST = [0.1, 0.2, 0.4, 0.8, 1.6]
WIDE = np.geomspace(0.1, 16, 5)

SAMPLERS = {
    "CMH, σ = 1": (pk.CMH, {"scales": 1.0}),
    "CMH, tuned": (pk.CMH, {}),
    "CMTM, fixed": (pk.CMTM, {"scales": FIRST, "adapt_every": None}),
    "CMTM, wide": (pk.CMTM, {"scales": WIDE, "adapt_every": None}),
    "CMTM, adaptive": (pk.CMTM, {"scales": FIRST}),
    "CMTM, default": (pk.CMTM, {}),
}
COLOURS = dict(
    zip(
        SAMPLERS,
        ("0.5", "tab:blue", "tab:orange", "tab:olive", "tab:red", "tab:purple"),
        strict=True,
    )
)
TARGETS = {"banana": BANANA, "mixture": LARGE}
SHOWN = {
    "banana": {
        "x₁": lambda ess: ess[0],
        "x₂": lambda ess: ess[1],
        "rest, median": lambda ess: np.median(ess[2:]),
    },
    "mixture": {
        "least": np.min,
        "median": np.median,
        "largest": np.max,
        "x₆": lambda ess: ess[5],
    },
}
"""Which effective sample sizes of (d,) are in the tables."""

SIDES = ("smallest", "largest")


class Result(NamedTuple):
    """What the chains of a sampler gave.

    Attributes
    ----------
    x : (chains, n, d) float64
        Draws.
    ess : (d,) float64
        Effective draws of a chain.
    without : (chains, d) float64
        The same if one chain is left out.
    seconds, evaluations : float
        Of a sweep.
    widths : (chains, d) float64 or None
        Of CMTM, largest scale by least at the end.
    """

    x: np.ndarray
    ess: np.ndarray
    without: np.ndarray
    seconds: float
    evaluations: float
    widths: np.ndarray | None


def measure(name, sampler, n_chains):
    """Run the chains of a sampler."""
    target, (kind, options) = TARGETS[name], SAMPLERS[sampler]
    step = kind(model=target.model(), **options)
    chains = [run_chain(step, target, seed) for seed in range(n_chains)]
    x = np.array([chain.x[1:] for chain in chains])
    return Result(
        x,
        effective_sizes(x),
        np.array([effective_sizes(np.delete(x, i, axis=0)) for i in range(n_chains)]),
        seconds_per_sweep(kind, target, **options),
        np.mean([chain.statistics["n_logp"].mean() for chain in chains]),
        np.array([ladder_widths(chain) for chain in chains]) if kind is pk.CMTM else None,
    )


def ladder_widths(chain):
    """Return CMTM's largest scale by its least at the end, (d,)."""
    smallest, largest = (chain.statistics[f"cmtm_{name}_scale"][-1] for name in SIDES)
    return largest / smallest


def effective_sizes(x):
    """Effective draws of one chain, (d,), for the means of chains x (chains, n, d)."""
    return np.array([az.ess(x[:, :, k], method="mean") for k in range(x.shape[2])]) / len(x)


def jackknifed(result, summary, factor, digits):
    """Format a summary of the effective sizes, times a factor, and its standard error."""
    n = len(result.without)
    values = np.array([summary(ess) for ess in result.without])
    error = np.sqrt((n - 1) * values.var())
    return f"{factor * summary(result.ess):.{digits}f} ({factor * error:.{digits}f})"


def print_table(name, results):
    """Print effective sample sizes: of all draws, per second and per 1000 evaluations."""
    columns = SHOWN[name]
    print(f"\n{name}\n{'sampler':<16}{'':<10}" + "".join(f"{column:>18}" for column in columns))
    for sampler, result in results.items():
        rows = {
            "ESS": (1, 0),
            "per s": (1 / (DRAWS * result.seconds), 0),
            "per 1000": (1000 / (DRAWS * result.evaluations), 2),
        }
        for label, (factor, digits) in rows.items():
            cells = [jackknifed(result, value, factor, digits) for value in columns.values()]
            title = sampler if label == "ESS" else ""
            print(f"{title:<16}{label:<10}" + "".join(f"{cell:>18}" for cell in cells))
        cells = [f"{DRAWS / value(result.ess):.1f}" for value in columns.values()]
        print(f"{'':<16}{'ACT':<10}" + "".join(f"{cell:>18}" for cell in cells))
        cost = f"{1e6 * result.seconds:.1f} µs and {result.evaluations:.0f} evaluations per sweep"
        if result.widths is not None:
            cost += f"; σ₅/σ₁ {np.median(result.widths):.1f} (median)"
        print(f"{'':<16}{cost}", flush=True)


def print_truth(name, results):
    """Print estimates of what is known: an ESS says nothing of where a chain was not."""
    if name == "banana":
        estimates = {"E x₁² = 100": lambda x: np.mean(x[:, 0] ** 2)}
    else:
        estimates = {
            "first mode, exact 0.5": lambda x: LARGE.first_mode(x).mean(),
            "passages between modes": lambda x: np.sum(np.diff(LARGE.first_mode(x) > 0.5)),
        }
    print(f"\n{'sampler':<16}" + "".join(f"{column:>26}" for column in estimates))
    for sampler, result in results.items():
        cells = [with_error([f(x) for x in result.x], 3) for f in estimates.values()]
        print(f"{sampler:<16}" + "".join(f"{cell:>26}" for cell in cells))


def draw_mixture(directory, results):
    """Draw the ESS of all coordinates, of the draws and per evaluation, a row for each sampler."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
    for i, (sampler, result) in enumerate(results.items()):
        per_evaluation = 1000 * result.ess / (DRAWS * result.evaluations)
        for axis, values in zip(axes, (result.ess, per_evaluation), strict=True):
            axis.plot(values, np.full(LARGE.d, i), "o", color=COLOURS[sampler], ms=6, alpha=0.4)
            axis.plot(np.median(values), i, "|", color="black", ms=16, mew=2)
    for axis, title in zip(
        axes, (f"ESS of {DRAWS} draws", "ESS per 1000 evaluations"), strict=True
    ):
        axis.set(xscale="log", xlabel=title)
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(results)), list(results))
    axes[0].set(ylim=(len(results) - 0.5, -0.5))
    save(figure, directory, "cmtm_mixture20.png")


def main():
    """Print the tables, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="40 chains instead of 8")
    parser.add_argument("--plot-dir", default=IMAGES, help="docs/images by default")
    parser.add_argument("--target", choices=TARGETS, help="only this one")
    options = parser.parse_args()
    n_chains = 40 if options.full else 8
    print(
        f"{n_chains} chains of {SWEEPS:,} sweeps, half discarded; standard errors in parentheses."
    )
    for name in [options.target] if options.target else TARGETS:
        results = {sampler: measure(name, sampler, n_chains) for sampler in SAMPLERS}
        print_table(name, results)
        print_truth(name, results)
        if name == "mixture":
            draw_mixture(options.plot_dir, results)


if __name__ == "__main__":
    main()
