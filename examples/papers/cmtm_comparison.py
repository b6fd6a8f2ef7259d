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
N_DOTS = 2000


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


def draw_banana(directory, results):
    """Draw x₁ and x₂ of one chain of CMH and of CMTM on the density."""
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained", sharey=True)
    left, right, bottom, top = -35, 35, -10, 5
    x1, x2 = np.meshgrid(np.linspace(left, right, 300), np.linspace(bottom, top, 300))
    straight = x2 - BANANA.b * (x1**2 - BANANA.v)
    density = np.exp(-(x1**2 / BANANA.v + straight**2) / 2)
    for axis, sampler in zip(axes, ("CMH, tuned", "CMTM, adaptive"), strict=True):
        axis.imshow(
            density, extent=(left, right, bottom, top), origin="lower", cmap="Greys", aspect="auto"
        )
        x = results[sampler].x[0, :: DRAWS // N_DOTS]
        axis.plot(x[:, 0], x[:, 1], ".", color=COLOURS[sampler], ms=2, alpha=0.6)
        axis.set(title=sampler, xlabel="$x_1$", xlim=(left, right), ylim=(bottom, top))
    axes[0].set(ylabel="$x_2$")
    save(figure, directory, "cmtm_banana.png")


def draw_mixture(directory, results):
    """Draw the ESS of each coordinate, the same per second, and per evaluation."""
    figure, axes = plt.subplots(3, 1, figsize=(9, 8), layout="constrained", sharex=True)
    titles = [f"ESS of {DRAWS} draws", "ESS per CPU second", "ESS per 1000 evaluations"]
    place = np.arange(1, LARGE.d + 1)
    for i, (sampler, result) in enumerate(results.items()):
        at, colour = place + 0.14 * (i - 2.5), COLOURS[sampler]
        per_draw = result.ess / DRAWS
        values = [result.ess, per_draw / result.seconds, 1000 * per_draw / result.evaluations]
        for axis, heights in zip(axes, values, strict=True):
            axis.bar(at, heights, 0.14, color=colour, label=sampler)
    for axis, title in zip(axes, titles, strict=True):
        axis.set(yscale="log", ylabel=title)
    axes[-1].set(xlabel="coordinate", xlim=(0.4, LARGE.d + 0.6))
    axes[-1].set_xticks(place)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    save(figure, directory, "cmtm_mixture20.png")


def main():
    """Print the tables, and draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="40 chains instead of 8")
    parser.add_argument("--plot-dir", default=IMAGES, help="docs/images by default")
    parser.add_argument("--target", choices=TARGETS, help="only this one")
    options = parser.parse_args()
    n_chains = 40 if options.full else 8
    print(
        f"{n_chains} chains of {SWEEPS:,} sweeps, half discarded; standard errors in parentheses."
    )
    pictures = {"banana": draw_banana, "mixture": draw_mixture}
    for name in [options.target] if options.target else TARGETS:
        results = {sampler: measure(name, sampler, n_chains) for sampler in SAMPLERS}
        print_table(name, results)
        print_truth(name, results)
        pictures[name](options.plot_dir, results)


if __name__ == "__main__":
    main()
