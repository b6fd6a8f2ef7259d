"""What adaptation of CMTM's scales is worth, in four dimensions; and what early rejection saves.

    python cmtm_adaptation.py [--full]

Yang, Levi, Craiu & Rosenthal, "Adaptive component-wise multiple-try Metropolis sampling", JCGS 28,
2019: twenty tries, with scales 2⁻¹⁰ … 2⁹ at first, 10 000 sweeps, half of them discarded. One
minute: 8 chains; `--full`, 40 chains and four minutes. Prototype: an implementation that came
before this package. Three variants:

1. none: the scales stay as they are.
2. stops: adaptation in the half that is discarded, as the package does by default.
3. goes on: as in the paper, ever less, within |x| < 10⁶ and scales from 10⁻⁶ to 10⁶.

Autocorrelation times (ACT) are draws per effective draw, by ArviZ for means.
"""

import argparse

import numpy as np
from cmtm_targets import (
    BANANA,
    LARGE,
    MEDIUM,
    SMALL,
    SWEEPS,
    autocorrelation_times,
    run_chain,
    squared_jump,
    with_error,
)

import pymc_kameleon as pk

FIRST = 2.0 ** np.arange(-10, 10)
"""The scales σ_1 … σ_20 at first."""

VARIANTS = {
    "none": {"adapt_every": None},
    "stops": {},
    "goes on": {
        "keep_adapting": True,
        "region": {"x": (-1e6, 1e6)},
        "scale_bounds": (1e-6, 1e6),
    },
}

ACT = {
    "none": {"paper": [41.96, 41.25, 1.64, 1.64], "prototype": [41.6, 40.7, 1.75, 1.68]},
    "goes on": {"paper": [22.55, 22.46, 1.43, 1.00], "prototype": [23.9, 23.5, 1.3, 0.7]},
}
JUMP = {"none": [6.20, 6.62, 6.62, 7.07], "goes on": [8.88, 10.15, 10.04, 10.76]}
"""The paper's least, median, mean and largest over its chains; the prototype has 6.62 and 9.96."""

RANGES = [(4, 8), (4, 8), (2, 4), (0.12, 0.50)]
"""The paper's final σ_1 and σ_20 of each coordinate, with adaptation."""

SELECTED = np.zeros((4, 20))
"""The paper's frequencies without adaptation; it has 0 for the first five tries."""
SELECTED[:, 5:] = [
    [0, 0, 0, 0, 0.01, 0.05, 0.14, 0.26, 0.24, 0.14, 0.09, 0.04, 0.02, 0.01, 0],
    [0, 0, 0, 0, 0.01, 0.06, 0.14, 0.26, 0.25, 0.14, 0.07, 0.04, 0.02, 0.01, 0],
    [0, 0, 0.02, 0.06, 0.20, 0.24, 0.20, 0.13, 0.08, 0.03, 0.02, 0.01, 0.01, 0, 0],
    [0.04, 0.12, 0.24, 0.26, 0.17, 0.08, 0.04, 0.02, 0.01, 0, 0, 0, 0, 0, 0],
]

ACCEPTED = np.full((4, 20), np.nan)
"""The paper's acceptance without adaptation, of tries that were selected."""
ACCEPTED[0, 6:] = [0.5, 0, 0.17, 0.49, 0.54, 0.57, 0.51, 0.48, 0.46, 0.41, 0.4, 0.45, 0.47, 0.33]
ACCEPTED[1, 7:] = [0, 0.43, 0.38, 0.45, 0.52, 0.49, 0.45, 0.45, 0.48, 0.35, 0.31, 0.24, 0.45]
ACCEPTED[2, 5:] = (
    [1, 0.5, 0.42, 0.53, 0.58, 0.49, 0.52, 0.49, 0.47, 0.48, 0.48, 0.5, 0.45, 0.35, 0.61]
)  # fmt: skip
ACCEPTED[3, 3:19] = (
    [0.17, 0.52, 0.44, 0.52, 0.5, 0.47, 0.47, 0.44, 0.45, 0.37, 0.41, 0.33, 0.33, 0.43, 0.38, 0]
)  # fmt: skip


def run_variants(n_chains):
    """Run the chains of each variant."""
    runs = {}
    for name, options in VARIANTS.items():
        step = pk.CMTM(model=MEDIUM.model(), n_tries=20, scales=FIRST, **options)
        runs[name] = [run_chain(step, MEDIUM, seed) for seed in range(n_chains)]
    return runs


def print_times(runs):
    """Print autocorrelation times and squared jumps."""
    head = "".join(f"{f'ACT of x{i}':>15}" for i in "₁₂₃₄")
    print(f"\n{'adaptation':<22}{head}{'squared jump':>15}{'least':>8}{'median':>8}{'largest':>9}")
    for name, chains in runs.items():
        for source, times in ACT.get(name, {}).items():
            cells = "".join(f"{time:>15.2f}" for time in times)
            least, median, mean, largest = JUMP[name]
            jumps = f"{mean:>15.2f}{least:>8.2f}{median:>8.2f}{largest:>9.2f}"
            print(f"{f'{name}, {source}':<22}{cells}{jumps if source == 'paper' else ''}")
        times = np.array([autocorrelation_times(chain) for chain in chains]).T
        jumps = [squared_jump(chain) for chain in chains]
        cells = "".join(f"{with_error(row):>15}" for row in times)
        print(
            f"{f'{name}, ours':<22}{cells}{with_error(jumps):>15}{min(jumps):>8.2f}"
            f"{np.median(jumps):>8.2f}{max(jumps):>9.2f}"
        )


def print_scales(runs):
    """Print the scales at the end: median over chains, and all between which they are."""
    print(f"\n{'scales at the end':<22}{'paper':>14}{'σ₁':>8}{'least, largest':>18}", end="")
    print(f"{'σ₂₀':>8}{'least, largest':>18}")
    for name in ("stops", "goes on"):
        for k in range(4):
            cells = f"{RANGES[k][0]:>7g} … {RANGES[k][1]:<5g}"
            for which in ("smallest", "largest"):
                final = [chain.statistics[f"cmtm_{which}_scale"][-1, k] for chain in runs[name]]
                between = f"{min(final):.3g}, {max(final):.3g}"
                cells += f"{np.median(final):>8.3g}{between:>18}"
            print(f"{f'{name}, x{"₁₂₃₄"[k]}':<22}{cells}")


def frequencies(chains):
    """Return how often tries were selected, and accepted if selected, in all chains, (2, d, m)."""
    selected, accepted = (
        np.mean([chain.statistics[f"cmtm_{name}"].mean(axis=0) for chain in chains], axis=0)
        for name in ("selected", "accepted")
    )
    with np.errstate(invalid="ignore"):
        return selected, accepted / selected


def print_frequencies(runs):
    """Print selection and acceptance of each try without adaptation, and their ranges with it."""
    heads = [f"{f'x{i}, paper':>12}{'ours':>6}" for i in "₁₂₃₄"]
    measured = frequencies(runs["none"])
    titles = ["selected", "accepted"]
    for title, paper, ours in zip(titles, (SELECTED, ACCEPTED), measured, strict=True):
        print(f"\n{title:<10}{''.join(heads)}")
        for j in range(20):
            cells = [f"{paper[k, j]:>12.2f}{ours[k, j]:>6.2f}" for k in range(4)]
            print(f"{f'2^{j - 10}':<10}{''.join(cells)}".replace("nan", "  -"))
    print(
        "\nwith adaptation, least and largest over tries; the paper's are 0.04 … 0.06, 0.53 … 0.66"
    )
    for name in ("stops", "goes on"):
        for title, values in zip(titles, frequencies(runs[name]), strict=True):
            cells = "".join(f"{row.min():>9.3f} … {row.max():.3f}" for row in values)
            print(f"{f'{name}, {title}':<22}{cells}")


def print_savings():
    """Print evaluations per sweep as shares of (2m−1)d."""
    print("\nevaluations per sweep, as a share of (2m − 1)d; one chain each")
    targets = {"d = 2": SMALL, "d = 4": MEDIUM, "d = 20": LARGE, "banana": BANANA}
    print(f"{'m':<5}" + "".join(f"{name:>9}" for name in targets))
    for m in (3, 5, 10, 20):
        shares = []
        for target in targets.values():
            scales = np.geomspace(0.5, 8, m)
            step = pk.CMTM(model=target.model(), n_tries=m, scales=scales)
            chain = run_chain(step, target, seed=1)
            shares.append(chain.statistics["n_logp"].mean() / ((2 * m - 1) * target.d))
        print(f"{m:<5}" + "".join(f"{share:>9.3f}" for share in shares), flush=True)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="40 chains instead of 8")
    n_chains = 40 if parser.parse_args().full else 8
    print(f"{n_chains} chains of {SWEEPS:,} sweeps, half discarded; means over chains (errors).")
    runs = run_variants(n_chains)
    print_times(runs)
    print_scales(runs)
    print_frequencies(runs)
    print("\nevaluations per sweep with the first scales 2⁻¹⁰ … 2⁹; the most possible is 156:")
    for name, chains in runs.items():
        n_logp = [chain.statistics["n_logp"].mean() for chain in chains]
        print(f"{name:<10}{with_error(n_logp)}")
    print_savings()


if __name__ == "__main__":
    main()
