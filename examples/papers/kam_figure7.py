"""Figure 7 of the KAM paper: how mean and median converge on the strongly twisted banana.

    python kam_figure7.py [--output DIRECTORY]

About two minutes on two cores. Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton, "Kernel
adaptive Metropolis-Hastings", ICML 2014, appendix B. B(0.1, 100) in 8 dimensions, 40 000 iterations
after 40 000 of burn-in, as in figure 5; the bars are 80 % confidence intervals of the mean over
chains.
"""

import matplotlib.pyplot as plt
import numpy as np
from common import benchmark, pictures
from kam_figure5 import KAM, build, run_chain
from kam_targets import LEVELS, TARGETS, deviations
from scipy import stats

TARGET, N_CHAINS = "B(0.1, 100)", 20
SAMPLERS = {
    "SM": "black",
    "AM-FS, never stops, t^-1/2": "tab:orange",
    "AM-LS, never stops, t^-1/2": "tab:brown",
    "AM-LS, stops, 1/t": "tab:blue",
    KAM: "tab:red",
}
"""And their colours."""
CHECKPOINTS = np.arange(4000, 40_001, 4000)
"""Iterations after the burn-in at which to look."""
MEDIAN = list(LEVELS).index(0.5)


def measure(sampler, seed):
    """Return |mean| and the deviation of the 0.5-quantile in %, at all checkpoints of one chain."""
    step = build(TARGET, sampler)
    x, _ = run_chain(step, TARGET, seed)
    level = TARGETS[TARGET].level(x)
    ends = CHECKPOINTS // step.steps_per_draw
    norms = [np.linalg.norm(x[:end].mean(axis=0)) for end in ends]
    shares = [100 * abs(deviations(level[:end])[MEDIAN]) for end in ends]
    return norms, shares


def interval(chains):
    """Return mean over chains (first axis), and half the width of its 80 % interval."""
    n = len(chains)
    return chains.mean(axis=0), stats.t.ppf(0.9, n - 1) * chains.std(axis=0, ddof=1) / np.sqrt(n)


def main():
    """Run the chains, and draw the picture."""
    directory = pictures.folder(__doc__)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    for i, (sampler, colour) in enumerate(SAMPLERS.items()):
        chains = np.array(benchmark.in_processes(measure, sampler, seeds=range(N_CHAINS)))
        means, widths = interval(chains)
        for axis, mean, width in zip(axes, means, widths, strict=True):
            x = (CHECKPOINTS + 150 * (i - 2)) / 1000
            style = {"color": colour, "lw": 1.5, "elinewidth": 1, "capsize": 2}
            axis.errorbar(x, mean, width, label=sampler, **style)
    axes[0].set(ylabel="norm of the estimated mean; exact: 0")
    axes[1].set(ylabel="deviation of the 0.5-quantile in %, exact: 0")
    for axis in axes:
        axis.set(xlabel="thousands of iterations after the burn-in", ylim=(0, None))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    pictures.save(figure, "kam_figure7.png", directory)


if __name__ == "__main__":
    main()
