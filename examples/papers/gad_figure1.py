"""Figure 1: what GadRWM learns in two dimensions, and GadMALA in 51.

    python gad_figure1.py [--picture]

Titsias & Dellaportas, "Gradient-based adaptive Markov chain Monte Carlo", NeurIPS 2019. The paper's
adaptation, from L = 0.1/√d I:

1. two dimensions, correlation 0.99: GadRWM, η = 5e-4, 20 000 iterations, target acceptance 0.25 and
   0.4. The learned LLᵀ has the target's shape, and a size that goes with the acceptance. β is what
   that takes; the paper has 7.4 and 2.2. β goes up and down as long as L lags behind it, so the
   script also has it for twenty chains, and after ten times as many iterations.
2. 51 values of a Gaussian process: GadMALA, η = 1e-3, 200 000 iterations. On a normal target the
   best LLᵀ is a multiple of Σ; both are drawn as correlations, and the scales below them.

A minute.
"""

from functools import cache, partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from common import benchmark, pictures
from gad_targets import PAIR, gaussian_process
from kam_pictures import CONTOUR

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
PAPER_BETAS = {0.25: 7.4, 0.4: 2.2}
"""By target acceptance; of one chain each."""
LENGTHS = (20_000, 200_000)
N_CHAINS = 20


def adapt(step, d, seed, n):
    """Adapt a step for n iterations from N(0, I); return L and β at the end."""
    rng = np.random.default_rng(seed)
    start = {"x": rng.normal(size=d)}
    for _ in benchmark.driven(step, start, n // step.steps_per_draw, 0, rng):
        pass
    return np.tril(step.parameters.factor), step.tuning.objective.beta[0]


@cache
def walk(target_accept):
    """Return GadRWM of the first panels."""
    return pk.GadRWM(
        model=PAIR.model(),
        adaptation="published",
        learning_rate=5e-4,
        target_accept=target_accept,
        steps_per_draw=1000,
    )


def plan(options):
    """Yield what is to be run."""
    for target_accept in PAPER_BETAS:
        for n in LENGTHS:
            what = {"target_accept": target_accept, "iterations": n}
            yield what, partial(learn_pair, target_accept, n)


def learn_pair(target_accept, n):
    """Return β and the size of LLᵀ of all chains."""
    step = walk(target_accept)
    ends = [adapt(step, 2, seed, n) for seed in range(N_CHAINS)]
    sizes = [np.prod(np.diag(factor)) for factor, _ in ends]
    betas = np.array([beta for _, beta in ends])
    return {
        "beta": betas.round(4).tolist(),
        "deviation": round(float(betas.std(ddof=1)), 4),
        "size": (sizes / np.sqrt(np.linalg.det(PAIR.covariance))).round(4).tolist(),
        "correlation": [round(float(correlations(f @ f.T)[0, 1]), 5) for f, _ in ends],
    }


def tables(rows):
    """Return the table of the page."""
    by_place = {(row["target_accept"], row["iterations"]): row for row in rows}
    titles = ["target acceptance", "paper's β", "20 000 iterations", "deviation", "size"]
    titles += ["200 000 iterations", "size"]
    cells = []
    for target_accept, theirs in PAPER_BETAS.items():
        first, last = (by_place[target_accept, n] for n in LENGTHS)
        betas, sizes = (
            [benchmark.with_error(row[k], 2) for row in (first, last)] for k in ("beta", "size")
        )
        deviation = f"{first['deviation']:.2f}"
        cells.append([target_accept, theirs, betas[0], deviation, sizes[0], betas[1], sizes[1]])
    return {benchmark.paper("gad"): {"final β": benchmark.table(titles, cells)}}


def learn_process(target):
    """Learn the 51-dimensional covariance, and return LLᵀ."""
    step = pk.GadMALA(
        model=target.model(), adaptation="published", learning_rate=1e-3, steps_per_draw=1000
    )
    factor, _ = adapt(step, target.d, seed=0, n=200_000)
    return factor @ factor.T


def correlations(covariance):
    """Return correlations."""
    scales = np.sqrt(np.diag(covariance))
    return covariance / np.outer(scales, scales)


def draw(rows):
    """Draw the four panels, and the scales, of chains that are run anew."""
    factors = {target: adapt(walk(target), 2, 0, LENGTHS[0]) for target in PAPER_BETAS}
    target = gaussian_process()
    learned = learn_process(target)
    figure = plt.figure(figsize=(11.5, 6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1, 2.4))
    for axis, (target_accept, (factor, beta)) in zip(
        left.subplots(2, 1, sharex=True, sharey=True), factors.items(), strict=True
    ):
        show_ellipse(axis, np.linalg.cholesky(PAIR.covariance), pictures.RED, "target")
        show_ellipse(axis, factor, pictures.BLUE, "$LL^⊤$")
        axis.set(title=f"acceptance {target_accept:g}: β = {beta:.1f}", ylabel="$x_2$")
        axis.set(aspect="equal", xlim=(-4.8, 4.8), ylim=(-4.8, 4.8))
    axis.set(xlabel="$x_1$")
    axis.legend(frameon=False, loc="upper left")
    axes = right.subplots(2, 2, height_ratios=(1.7, 1))
    names = {"target": target.covariance, "learned, $LL^⊤$": learned}
    for axis, (name, covariance) in zip(axes[0], names.items(), strict=True):
        shown = axis.imshow(correlations(covariance), vmin=0, vmax=1, cmap="viridis")
        axis.set(title=f"correlations, {name}")
    right.colorbar(shown, ax=axes[0], shrink=0.9)
    axes[1, 0].plot(
        np.sqrt(np.diag(target.covariance)), color=pictures.RED, ls="--", label="target"
    )
    axes[1, 0].plot(np.sqrt(np.diag(learned)), color=pictures.BLUE, label="learned")
    axes[1, 0].set(title="standard deviations", xlabel="coordinate", ylim=(0, None))
    axes[1, 0].legend(frameon=False, loc="lower right")
    axes[1, 1].semilogy(np.linalg.eigvalsh(target.covariance)[::-1], color=pictures.RED, ls="--")
    axes[1, 1].semilogy(np.linalg.eigvalsh(learned)[::-1], color=pictures.BLUE)
    axes[1, 1].set(title="eigenvalues", xlabel="rank")
    pictures.save(figure, "gad_figure1.png")


def show_ellipse(axis, factor, colour, label):
    """Draw the ellipse that has 95 % of N(0, LLᵀ)."""
    angle = np.linspace(0, 2 * np.pi, 200)
    axis.plot(*(CONTOUR * factor @ [np.cos(angle), np.sin(angle)]), color=colour, label=label)


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, draw=draw)
