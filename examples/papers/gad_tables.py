"""Tables 1 to 6: effective sample sizes on Neal's normal and six logistic regressions.

    python gad_tables.py [--full --json FILE] [--cases NAME …] [--samplers NAME …]
        [--data DIRECTORY]

Titsias & Dellaportas, "Gradient-based adaptive Markov chain Monte Carlo", NeurIPS 2019. 20 000
iterations of adaptation and 20 000 that are kept, one transition each, from x₀ ~ N(0, I); ESS by
the paper's estimator, least, median and largest over the coordinates. 3 chains, and 10 of the
paper's samplers on Neal's normal and Australian credit: half an hour of CPU time without NUTS on
Caravan, which was not run. `--full`: 10 of all, some 15 hours. Data as in gad_targets.py; those
that are missing are left out. Of Ripley's, Pima, heart and German credit we do not have the paper's
tables.

- AM is the paper's recursion on L with its rate 0.001/(1 + t/4000), but with λ = 2.38²/d, and it
  first learns a start for L, while the paper begins with 0.1/√d I. The paper's accepts 0.26
  everywhere, so its scale must have been tuned: that is GAM here, with the same rate.
- HMC and NUTS are PyMC's, with unit masses as in the paper, and tuned to an acceptance of 0.7. HMC
  makes a fixed number of leapfrog steps, which PyMC's does not: a subclass sets the length of the
  path. Their step sizes are jittered by 15 %. "NUTS, PyMC's" is as users have it: it learns masses.
  NUTS has 500 iterations of burn-in, as in the paper.
- Without `--full` HMC and NUTS make one chain. Where that took too long it is shorter, and its ESS
  and seconds are scaled up to 20 000 draws: marked with **.
- The default is this package's, which is not in the paper.

Seconds are CPU seconds of tuning and draws, on one thread if OMP_NUM_THREADS=1, step by step from
Python as in `pm.sample`, which costs some 60 µs per draw; "compiled" are those without Python's
share. The paper's are of MATLAB on another machine: compare what is between samplers.
"""

import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
from common import benchmark
from gad_targets import (
    DRAWS,
    NEAL,
    TUNE,
    NoData,
    add_data_option,
    compiled_seconds,
    effective_sizes,
    load,
    run_chain,
)

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")

PAPER = {
    "neal": {
        "gadMALAf": ("0.556", (1413.4, 1987.4, 2580.8), 161.70),
        "gadMALAe": ("0.541", (922.2, 2006.3, 2691.1), 92.34),
        "gadRWM": ("0.254", (27.5, 66.9, 126.9), 3.95),
        "AM": ("0.257", (8.7, 48.6, 829.1), 3.71),
        "RWM": ("0.261", (2.9, 8.4, 2547.6), 1.31),
        "MALA": ("0.530", (2.9, 10.0, 12489.2), 0.95),
        "HMC-20": ("0.694", (306.1, 1537.8, 19732.4), 6.17),
        "NUTS": ("> 0.7", (18479.6, 20000.0, 20000.0), 51.28),
    },
    "caravan": {
        "gadMALAf": ("0.621", (228.1, 750.3, 1114.7), 9.94),
        "gadMALAe": ("0.494", (66.6, 508.3, 1442.7), 0.70),
        "gadRWM": ("0.234", (5.3, 34.3, 104.5), 0.23),
        "AM": ("0.257", (3.2, 11.8, 62.5), 0.16),
        "RWM": ("0.242", (3.0, 9.3, 52.5), 0.20),
        "MALA": ("0.543", (4.4, 28.3, 326.0), 0.19),
        "HMC-10": ("0.711", (248.3, 2415.7, 19778.7), 1.10),
        "NUTS": ("> 0.7", (7469.5, 20000.0, 20000.0), 5.29),
    },
    "australian": {
        "gadMALAf": ("0.569", (3485.9, 4262.9, 4784.0), 443.97),
        "gadMALAe": ("0.540", (3034.9, 4234.3, 4836.3), 227.61),
        "gadRWM": ("0.253", (288.0, 423.0, 515.0), 38.68),
        "AM": ("0.261", (310.9, 410.1, 507.2), 70.21),
        "RWM": ("0.252", (31.3, 312.6, 495.2), 9.16),
        "MALA": ("0.524", (138.4, 2388.1, 3818.8), 20.22),
        "HMC-5": ("0.700", (1048.1, 3510.3, 14809.7), 28.06),
        "NUTS": ("> 0.7", (2995.2, 20000.0, 20000.0), 72.86),
    },
}
"""Acceptance, ESS (least, median, largest) and least ESS per second of tables 1 and 2: means over
ten chains. Of HMC they have the best."""

TARGETS = {
    "neal": "Neal's normal",
    "australian": "Australian credit",
    "caravan": "Caravan",
    "ripley": "Ripley's",
    "pima": "Pima",
    "heart": "heart",
    "german": "German credit",
}

# ---- samplers -----------------------------------------------------------------------------------


class FixedHMC(pm.HamiltonianMC):
    """HMC with a fixed number of leapfrog steps: the path is as long as they are."""

    def __init__(self, *arguments, n_steps, **options):
        super().__init__(*arguments, max_steps=n_steps, **options)
        self.n_steps = n_steps

    def _hamiltonian_step(self, start, p0, step_size):
        self.path_length = (self.n_steps + 0.5) * step_size
        return super()._hamiltonian_step(start, p0, step_size)


class Sampler(NamedTuple):
    """A class of steps and its arguments; iterations of tuning; unit masses of HMC and NUTS."""

    kind: type
    options: dict = {}  # noqa: RUF012, as nobody changes it
    tune: int = TUNE
    unit_masses: bool = False

    @property
    def is_pymc(self):
        """Whether it is PyMC's."""
        return not issubclass(self.kind, pk.step.KameleonStep)


RATE = pk.samplers.Decay(0.001, 4000, 1)
"""The paper's 0.001/(1 + t/4000) for AM."""
WALK = {"target_accept": 0.25, "steps_per_draw": 1}
PUBLISHED = {"adaptation": "published"}

SAMPLERS = {
    "gadMALAf": Sampler(pk.GadMALA, PUBLISHED),
    "gadMALAe": Sampler(pk.GadMALA, PUBLISHED | {"gradient": "exact"}),
    "gadRWM": Sampler(pk.GadRWM, PUBLISHED | WALK),
    "default, K = 1": Sampler(pk.GadMALA, {"n_leapfrog": 1}),
    "default": Sampler(pk.GadMALA),
    "AM": Sampler(pk.baselines.AM, WALK | {"learning_rate": RATE}),
    "GAM": Sampler(pk.GAM, WALK | {"learning_rate": RATE}),
    "RWM": Sampler(pk.baselines.RWM, WALK),
    "MALA": Sampler(pk.baselines.MALA, {"target_accept": 0.55}),
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

TEN = {(name, label) for name in ("neal", "australian") for label in list(SAMPLERS)[:3]}
"""Of these there are ten chains."""

# ---- chains -------------------------------------------------------------------------------------


def plan(options):
    """Yield the samplers on each target whose data are here."""
    for name in options.cases or TARGETS:
        try:
            target = NEAL if name == "neal" else load(name, options.data)
        except NoData as reason:
            print(reason)
            continue
        for label in SAMPLERS:
            what = {"target": name, "sampler": label}
            yield what, partial(measure, name, target, label, options.full)


def measure(name, target, label, full):
    """Run a sampler's chains, and return their row."""
    sampler = SAMPLERS[label]
    tune, draws, n_chains = sampler.tune, DRAWS, 10 if full or (name, label) in TEN else 3
    if sampler.is_pymc and not full:
        tune, draws = REDUCED.get((name, label), (tune, draws))
        n_chains = 1
    compiled = None
    if sampler.is_pymc:
        chains = [run_pymc(sampler, target, seed, tune, draws) for seed in range(n_chains)]
    else:
        step = sampler.kind(model=target.model(), **sampler.options)
        chains = [run_chain(step, target.d, seed, tune, draws)[:3] for seed in range(n_chains)]
        compiled = round(compiled_seconds(step, target.d), 3)
    x, acceptance, seconds = zip(*chains, strict=True)
    ess = np.array([effective_sizes(one) for one in x]) * (DRAWS / draws)
    longer = (sampler.tune + DRAWS) / (tune + draws)
    return {
        "draws": draws,
        "ess": np.quantile(ess, [0, 0.5, 1], axis=1).round(1).tolist(),
        "seconds": (longer * np.array(seconds)).round(2).tolist(),
        "compiled": compiled,
        "acceptance": round(float(np.mean(acceptance)), 4),
    }


def run_pymc(sampler, target, seed, tune, draws):
    """Return the draws of a chain of PyMC's HMC or NUTS, its acceptance, and its seconds."""
    masses = {"scaling": np.ones(target.d), "is_cov": True} if sampler.unit_masses else {}
    start = {"x": np.random.default_rng(seed).normal(size=target.d)}
    with target.model():
        step = sampler.kind(**masses, **sampler.options)
        begin = time.process_time()
        own = {"chains": 1, "step": step, "initvals": start, "random_seed": seed}
        trace = benchmark.sample_by_pymc(draws, tune=tune, **own)
        seconds = time.process_time() - begin
    statistics = trace["sample_stats"]
    which = "acceptance_rate" if "acceptance_rate" in statistics else "accept"
    return trace["posterior"]["x"].values[0], float(statistics[which].mean()), seconds


# ---- the tables ---------------------------------------------------------------------------------


def title(row):
    """Return a sampler's name, and two stars if its chain was short."""
    return row["sampler"] + (r" \*\*" if row["draws"] < DRAWS else "")


def rates(row):
    """Return the least ESS per second of each chain."""
    return np.divide(row["ess"][0], row["seconds"])


def number(*values):
    """Return the mean of some chains' values, and its standard error if there are several."""
    mean = np.mean(values)
    if len(values) > 1:
        return benchmark.with_error(values, digits=1 if mean < 20 else 0)
    return f"{mean:.1f}" if mean < 20 else benchmark.spaced(round(mean))


def tables(rows):
    """Return the tables of the page: of the paper's two data sets, of four more, and of NUTS."""
    by_place = {key: own[0] for key, own in benchmark.grouped(rows, "target", "sampler").items()}
    found = {}
    for name in TARGETS:
        own = [by_place[name, label] for label in SAMPLERS if (name, label) in by_place]
        if own and name in PAPER:
            found |= {f"{name}, ESS": ess_table(own), f"{name}, rates": rate_table(own)}
        elif own:
            found[name] = short_table(own)
    return {benchmark.paper("gad"): found | {"gadMALAf and NUTS": nuts_table(by_place)}}


def paper(row):
    """Return the paper's cells beside a row: acceptance, ESS, rate."""
    if row["sampler"] not in PAPER[row["target"]]:
        return "", [""] * 3, ""
    accepted, ess, rate = PAPER[row["target"]][row["sampler"]]
    return accepted, [number(one) for one in ess], number(rate)


def ess_table(rows):
    """Return the lines of a table of ESS, beside the paper's."""
    titles = ["ESS", "paper: least", "median", "largest", "ours: least", "median", "largest"]
    ours = [[number(*ess) for ess in row["ess"]] for row in rows]
    cells = [[title(row), *paper(row)[1], *own] for row, own in zip(rows, ours, strict=True)]
    return benchmark.table(titles, cells)


def rate_table(rows):
    """Return the lines of a table of acceptance, rates and seconds, beside the paper's."""
    titles = ["rates", "accepted, paper", "ours", "rate, paper", "ours", "CPU s", "compiled, s"]
    cells = []
    for row in rows:
        accepted, _, rate = paper(row)
        own = [accepted, f"{row['acceptance']:.3f}", rate, number(*rates(row))]
        compiled = f"{row['compiled']:.2f}" if row["compiled"] else ""
        cells.append([title(row), *own, number(np.mean(row["seconds"])), compiled])
    return benchmark.table(titles, cells)


def short_table(rows):
    """Return the lines of a table without the paper's."""
    figures = [[*row["ess"], rates(row)] for row in rows]
    cells = [
        [title(row), *[number(*chains) for chains in own]]
        for row, own in zip(rows, figures, strict=True)
    ]
    return benchmark.table(["sampler", "ESS: least", "median", "largest", "rate"], cells)


def nuts_table(by_place):
    """Return the lines of the table of least ESS per second, with two digits."""
    titles = ["", "PyMC's NUTS", "gadMALAf", "gadMALAf, without Python's share of each draw"]
    cells = []
    for name, title_of_target in TARGETS.items():
        if {(name, "NUTS, PyMC's"), (name, "gadMALAf")} <= by_place.keys():
            gad = by_place[name, "gadMALAf"]
            compiled = np.divide(gad["ess"][0], gad["compiled"])
            values = [rates(by_place[name, "NUTS, PyMC's"]), rates(gad), compiled]
            means = [float(f"{np.mean(value):.2g}") for value in values]
            cells.append([title_of_target, *[benchmark.spaced(round(mean)) for mean in means]])
    return benchmark.table(titles, cells)


def add_options(parser):
    """Add the options of this script."""
    add_data_option(parser)
    parser.add_argument("--full", action="store_true", help="10 chains, and PyMC's at full length")


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, add_options=add_options)
