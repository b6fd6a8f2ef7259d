"""Tables 1 to 6: effective sample sizes on Neal's normal and six logistic regressions.

    python gad_tables.py [--full] [--targets NAME …] [--samplers NAME …] [--data DIRECTORY]

Titsias & Dellaportas, "Gradient-based adaptive Markov chain Monte Carlo", NeurIPS 2019. 20 000
iterations of adaptation and 20 000 that are kept, one transition each, from x₀ ~ N(0, I); ESS by
the paper's estimator, least, median and largest over the coordinates. Fifty minutes:
3 chains. `--full`: 10 chains and some 15 hours. Data as in gad_targets.py; those that are missing
are left out. Of Ripley's, Pima, heart and German credit we do not have the paper's tables.

- AM is the paper's recursion on L with its rate 0.001/(1 + t/4000), but with λ = 2.38²/d, and it
  first learns a start for L, while the paper begins with 0.1/√d I. The paper's accepts 0.26
  everywhere, so its scale must have been tuned: that is GAM here, with the same rate.
- HMC and NUTS are PyMC's, with unit masses as in the paper, and tuned to an acceptance of 0.7. HMC
  makes a fixed number of leapfrog steps, which PyMC's does not: a subclass sets the length of the
  path. Their step sizes are jittered by 15 %. "NUTS, PyMC's" is as users have it: it learns masses.
  NUTS has 500 iterations of burn-in, as in the paper.
- Without `--full` HMC and NUTS make one chain, marked with *. Where that took too long it is
  shorter, and its ESS and seconds are scaled up to 20 000 draws: marked with **.
- `fisher` is this package's default, which is not in the paper.

Seconds are CPU seconds of tuning and draws, on one thread if OMP_NUM_THREADS=1, step by step from
Python as in `pm.sample`, which costs some 60 µs per draw; "compiled" are those without Python's
share. The paper's are of MATLAB on another machine: compare what is between samplers.
"""

import argparse
import logging
import time
import warnings
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pymc as pm
from gad_targets import (
    DRAWS,
    NEAL,
    SHAPES,
    TUNE,
    NoData,
    add_data_option,
    compiled_seconds,
    effective_sizes,
    load,
    run_chain,
    with_error,
)

import pymc_kameleon as pk

PAPER = {
    "neal": {
        "gadMALAf": (8.7, 0.556, (1413.4, 1987.4, 2580.8), (161.70, 15.07)),
        "gadMALAe": (10.0, 0.541, (922.2, 2006.3, 2691.1), (92.34, 7.11)),
        "gadRWM": (7.0, 0.254, (27.5, 66.9, 126.9), (3.95, 0.66)),
        "AM": (2.3, 0.257, (8.7, 48.6, 829.1), (3.71, 0.87)),
        "RWM": (2.2, 0.261, (2.9, 8.4, 2547.6), (1.31, 0.06)),
        "MALA": (3.1, 0.530, (2.9, 10.0, 12489.2), (0.95, 0.03)),
        "HMC-20": (49.7, 0.694, (306.1, 1537.8, 19732.4), (6.17, 3.35)),
        "NUTS": (360.5, 0.7, (18479.6, 20000.0, 20000.0), (51.28, 1.64)),
    },
    "caravan": {
        "gadMALAf": (23.1, 0.621, (228.1, 750.3, 1114.7), (9.94, 2.64)),
        "gadMALAe": (95.1, 0.494, (66.6, 508.3, 1442.7), (0.70, 0.16)),
        "gadRWM": (22.6, 0.234, (5.3, 34.3, 104.5), (0.23, 0.06)),
        "AM": (20.0, 0.257, (3.2, 11.8, 62.5), (0.16, 0.01)),
        "RWM": (15.3, 0.242, (3.0, 9.3, 52.5), (0.20, 0.03)),
        "MALA": (22.8, 0.543, (4.4, 28.3, 326.0), (0.19, 0.05)),
        "HMC-10": (225.5, 0.711, (248.3, 2415.7, 19778.7), (1.10, 0.12)),
        "NUTS": (1412.1, 0.7, (7469.5, 20000.0, 20000.0), (5.29, 0.38)),
    },
    "australian": {
        "gadMALAf": (8.1, 0.569, (3485.9, 4262.9, 4784.0), (443.97, 76.13)),
        "gadMALAe": (13.5, 0.540, (3034.9, 4234.3, 4836.3), (227.61, 29.87)),
        "gadRWM": (7.7, 0.253, (288.0, 423.0, 515.0), (38.68, 9.53)),
        "AM": (4.4, 0.261, (310.9, 410.1, 507.2), (70.21, 6.23)),
        "RWM": (3.4, 0.252, (31.3, 312.6, 495.2), (9.16, 3.12)),
        "MALA": (7.0, 0.524, (138.4, 2388.1, 3818.8), (20.22, 5.14)),
        "HMC-5": (37.0, 0.700, (1048.1, 3510.3, 14809.7), (28.06, 11.69)),
        "NUTS": (41.3, 0.7, (2995.2, 20000.0, 20000.0), (72.86, 7.31)),
    },
}
"""Seconds, acceptance, ESS (least, median, largest), least ESS per second and its deviation over
chains. Tables 1 and 2; of HMC they have the best, and NUTS accepts more than 0.7."""

# ---- samplers -----------------------------------------------------------------------------------


class FixedHMC(pm.HamiltonianMC):
    """HMC with a fixed number of leapfrog steps: the path is as long as they are."""

    def __init__(self, *arguments, n_steps, **options):
        super().__init__(*arguments, max_steps=n_steps, **options)
        self.n_steps = n_steps

    def _hamiltonian_step(self, start, p0, step_size):
        self.path_length = (self.n_steps + 0.5) * step_size
        return super()._hamiltonian_step(start, p0, step_size)


@dataclass(frozen=True, eq=False)
class Sampler:
    """A step and its options.

    Parameters
    ----------
    kind : type
        Its class.
    options : dict, optional
        Arguments of the class.
    tune : int, optional
        Iterations of tuning.
    unit_masses : bool, optional
        Of HMC and NUTS.
    """

    kind: type
    options: dict = field(default_factory=dict)
    tune: int = TUNE
    unit_masses: bool = False

    @property
    def is_pymc(self):
        """Whether it is PyMC's."""
        return not issubclass(self.kind, pk.step.KameleonStep)


RATE = pk.Decay(0.001, 4000, 1)
"""The paper's 0.001/(1 + t/4000) for AM."""
WALK = {"target_accept": 0.25, "steps_per_draw": 1}
PUBLISHED = {"adaptation": "published"}

SAMPLERS = {
    "gadMALAf": Sampler(pk.GadMALA, PUBLISHED),
    "gadMALAe": Sampler(pk.GadMALA, PUBLISHED | {"gradient": "exact"}),
    "gadRWM": Sampler(pk.GadRWM, PUBLISHED | WALK),
    "fisher, K = 1": Sampler(pk.GadMALA, {"n_leapfrog": 1}),
    "fisher": Sampler(pk.GadMALA),
    "AM": Sampler(pk.AM, WALK | {"update": "cholesky", "learning_rate": RATE}),
    "GAM": Sampler(pk.GAM, WALK | {"learning_rate": RATE}),
    "RWM": Sampler(pk.RWM, WALK),
    "MALA": Sampler(pk.MALA, {"target_accept": 0.55}),
    "HMC-5": Sampler(FixedHMC, {"n_steps": 5, "target_accept": 0.7}, unit_masses=True),
    "HMC-10": Sampler(FixedHMC, {"n_steps": 10, "target_accept": 0.7}, unit_masses=True),
    "HMC-20": Sampler(FixedHMC, {"n_steps": 20, "target_accept": 0.7}, unit_masses=True),
    "NUTS": Sampler(pm.NUTS, {"target_accept": 0.7}, tune=500, unit_masses=True),
    "NUTS, PyMC's": Sampler(pm.NUTS, tune=500),
}

REDUCED = {
    ("caravan", "HMC-5"): (2000, 2000),
    ("caravan", "HMC-10"): (2000, 2000),
    ("caravan", "HMC-20"): (1000, 1000),
    ("caravan", "NUTS"): (500, 500),
    ("caravan", "NUTS, PyMC's"): (500, 1000),
    ("neal", "NUTS"): (500, 2000),
    ("german", "HMC-20"): (5000, 5000),
}
"""Tuning and draws where the paper's would take too long; not with `--full`."""

# ---- chains -------------------------------------------------------------------------------------


class Result(NamedTuple):
    """What a sampler's chains gave; ESS and seconds as if it were the paper's number of draws.

    Attributes
    ----------
    ess : (chains, 3) float64
        Least, median and largest over the coordinates.
    seconds, acceptance : (chains,) float64
    compiled : float
        CPU seconds without Python's share.
    mark : str
        * for one chain, ** for a short one.
    """

    ess: np.ndarray
    seconds: np.ndarray
    acceptance: np.ndarray
    compiled: float
    mark: str


def measure(name, target, label, full):
    """Run a sampler's chains."""
    sampler = SAMPLERS[label]
    tune, draws, n_chains, mark = sampler.tune, DRAWS, 10 if full else 3, ""
    if sampler.is_pymc and not full:
        n_chains, mark = 1, "*"
        if (name, label) in REDUCED:
            tune, draws = REDUCED[name, label]
            mark = "**"
    compiled = np.nan
    if sampler.is_pymc:
        rows = [run_pymc(sampler, target, seed, tune, draws) for seed in range(n_chains)]
    else:
        step = sampler.kind(model=target.model(), **sampler.options)
        rows = [run_chain(step, target.d, seed, tune, draws)[:3] for seed in range(n_chains)]
        compiled = compiled_seconds(step, target.d)
    x, acceptance, seconds = zip(*rows, strict=True)
    ess = np.array([effective_sizes(one) for one in x]) * (DRAWS / draws)
    summary = np.stack([ess.min(axis=1), np.median(ess, axis=1), ess.max(axis=1)], axis=1)
    longer = (sampler.tune + DRAWS) / (tune + draws)
    return Result(summary, longer * np.array(seconds), np.array(acceptance), compiled, mark)


def run_pymc(sampler, target, seed, tune, draws):
    """Return the draws of a chain of PyMC's HMC or NUTS, its acceptance, and its seconds."""
    masses = {"scaling": np.ones(target.d), "is_cov": True} if sampler.unit_masses else {}
    start = {"x": np.random.default_rng(seed).normal(size=target.d)}
    with target.model():
        step = sampler.kind(**masses, **sampler.options)
        begin = time.process_time()
        trace = pm.sample(
            draws=draws,
            tune=tune,
            chains=1,
            cores=1,
            step=step,
            initvals=start,
            random_seed=seed,
            progressbar=False,
            compute_convergence_checks=False,
        )
        seconds = time.process_time() - begin
    statistics = trace["sample_stats"]
    which = "acceptance_rate" if "acceptance_rate" in statistics else "accept"
    return trace["posterior"]["x"].values[0], float(statistics[which].mean()), seconds


# ---- the tables ---------------------------------------------------------------------------------


def print_head(name, target):
    """Print the head of a table."""
    print(f"\n{name}, d = {target.d}")
    print(f"{'':<16}{'s':>7}{'compiled':>9}{'accepted':>9}", end="")
    print("".join(f"{title:>15}" for title in ("least ESS", "median", "largest", "least / s")))


def print_row(label, result):
    """Print means over chains, and standard errors."""
    cells = [with_error(column) for column in result.ess.T]
    cells.append(with_error(result.ess[:, 0] / result.seconds, 1))
    compiled = "" if np.isnan(result.compiled) else f"{result.compiled:.2f}"
    print(f"{label + result.mark:<16}{result.seconds.mean():>7.1f}{compiled:>9}", end="")
    print(
        f"{result.acceptance.mean():>9.3f}" + "".join(f"{cell:>15}" for cell in cells), flush=True
    )


def print_paper(seconds, acceptance, ess, per_second):
    """Print the paper's row; its deviation over ten chains becomes a standard error."""
    print(f"{'  paper':<16}{seconds:>7.1f}{'':>9}{acceptance:>9.3f}", end="")
    print("".join(f"{size:>15.0f}" for size in ess), end="")
    error = per_second[1] / np.sqrt(10)
    print(f"{f'{per_second[0]:.1f} ({error:.1f})':>15}", flush=True)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="10 chains, and PyMC's at full length")
    targets = ["neal", *SHAPES]
    parser.add_argument("--targets", nargs="+", choices=targets, default=targets)
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    add_data_option(parser)
    options = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    print("Means over chains (standard errors). * one chain; ** and a short one, scaled up.")
    for name in options.targets:
        try:
            target = NEAL if name == "neal" else load(name, options.data)
        except NoData as reason:
            print(f"\n{reason}")
            continue
        print_head(name, target)
        for label in options.samplers:
            print_row(label, measure(name, target, label, options.full))
            if label in PAPER.get(name, {}):
                print_paper(*PAPER[name][label])


if __name__ == "__main__":
    main()
