"""How large a subsample does KAM need? Accuracy and cost against m; the paper leaves it open.

    python kam_subsample.py [--chains 20] [--output FILE]

Some ten minutes on two cores. B(0.1, 100) and the flower in 8 dimensions, KAM with the settings and
the protocol of figure 5 of Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton, "Kernel
adaptive Metropolis-Hastings", ICML 2014, but for m, which is 1000 there. Seconds are those of the
sampling after the burn-in, in the fastest chain: others may have had to share their core.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from kam_figure5 import CORES, ITERATIONS, KAM, build, run_chain
from kam_targets import TARGETS, deviations

OUTPUT = Path(__file__).resolve().parents[2] / "docs" / "images" / "kam_subsample.png"
NAMES = {"B(0.1, 100)": "tab:red", "F(10, 6, 6, 1)": "tab:blue"}
"""The targets, and their colours."""
SIZES = np.array([50, 100, 200, 500, 1000, 2000])


def measure(name, m, seed):
    """Return acceptance, mean deviation of the quantiles in %, and seconds of one chain."""
    step = build(name, KAM, n_subsample=m)
    x, acceptance, seconds = run_chain(step, name, seed)
    deviation = 100 * np.abs(deviations(TARGETS[name].level(x))).mean()
    return acceptance, deviation, seconds * ITERATIONS[name] / 2


def main():
    """Print a table, and draw accuracy against m and against seconds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--chains", type=int, default=20)
    parser.add_argument("--output", default=OUTPUT, help="docs/images/kam_subsample.png by default")
    options = parser.parse_args()
    seeds = range(options.chains)

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
    print(f"{options.chains} chains; deviation of the quantiles in %, mean over chains")
    print(f"{'target':<16}{'m':>6}{'acceptance':>12}{'deviation':>15}{'median':>8}{'seconds':>9}")
    with ProcessPoolExecutor(CORES) as pool:
        for name, colour in NAMES.items():
            rows = []
            for m in SIZES.tolist():
                jobs = [(name, m, seed) for seed in seeds]
                chains = list(pool.map(measure, *zip(*jobs, strict=True)))
                acceptance, deviation, seconds = np.array(chains).T
                error = deviation.std(ddof=1) / np.sqrt(len(deviation))
                rows.append((deviation.mean(), error, np.median(deviation), seconds.min()))
                print(
                    f"{name:<16}{m:>6}{acceptance.mean():>12.3f}"
                    f"{f'{deviation.mean():.2f} ({error:.2f})':>15}{np.median(deviation):>8.2f}"
                    f"{seconds.min():>9.2f}",
                    flush=True,
                )
            mean, error, median, seconds = np.array(rows).T
            for axis, x in zip(axes, (SIZES, seconds), strict=True):
                axis.errorbar(x, mean, error, color=colour, capsize=2, marker="o", label=name)
                axis.plot(x, median, color=colour, ls=":")
    axes[0].set(xlabel="m, points in the subsample", ylabel="deviation of the quantiles in %")
    axes[1].set(xlabel="seconds of sampling, fastest chain")
    axes[0].set(xscale="log", ylim=(0, None))
    axes[0].set_xticks(SIZES, [str(m) for m in SIZES])
    axes[0].minorticks_off()
    axes[1].set(xlim=(0, None))
    axes[0].plot([], [], color="grey", ls=":", label="median chain")
    axes[0].legend(frameon=False)
    figure.savefig(options.output, dpi=100)
    print(f"{Path(options.output).name} written")


if __name__ == "__main__":
    main()
