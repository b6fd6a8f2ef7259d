"""The cyclical KAM paper: its targets, its samplers' settings, and how a chain is run.

Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis", sections 4.1 to 4.3 and tables 1 to 3. The
targets are mixtures of normals (mixtures.py). The other scripts import this file;
tests/whole/test_paper_targets.py checks the targets on exact draws.
"""

import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from common import benchmark
from mixtures import Mixture

import pymc_kameleon as pk

# ---- targets ------------------------------------------------------------------------------------


def normal(mean, bins):
    """Return one normal with unit variances, whose chains start at 0."""
    return Mixture((1,), (mean,), ((1,) * len(mean),), (0,) * len(mean), bins)


def two_modes(weight=0.5):
    """A.1, whose modes at (-8, 0) and (8, 0) have variances 0.5 and 2; the weight of the first."""
    variances = ((0.5, 0.5), (2, 2))
    return Mixture((weight, 1 - weight), ((-8, 0), (8, 0)), variances, (-8, 0), (-14, 14, 112))


def five_modes():
    """A.2, five normals that overlap, farther and farther out and wider and wider."""
    i = np.arange(1, 6)
    means, variances = (tuple((x, x) for x in own) for own in (2.5 * (i - 1), np.sqrt(i)))
    return Mixture((0.2,) * 5, means, variances, start=(0, 0), bins=(-6, 18, 96))


def lattice(d=32):
    """A.3, 5 modes in each coordinate; the paper prints the mean 15 twice, and -15 is meant."""
    means = tuple((mean,) for mean in (-30, -15, 0, 15, 30))
    return Mixture((0.2,) * 5, means, ((15,),) * 5, (0,) * d, bins=(-45, 45, 90), copies=d)


TARGETS = {"A.1": two_modes(), "A.2": five_modes(), "A.3": lattice()}
"""As in the paper."""

# ---- samplers -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sampler:
    """A class of steps, the share of the evaluations that tunes it, and its arguments."""

    kind: type
    tuned: float = 0.2
    options: dict = field(default_factory=dict)


RATE = pk.samplers.Decay(1, 1, 0.75)
"""The paper's η_t = (1+t)^-3/4."""
KERNEL = pk.samplers.kernels.Matern(4, 2.0)
PUBLISHED = "cKAM, γ₀ = 20"
EXACT = "CyclicalKAM"


def published(cycle_length=1000, beta=0.4, n_subsample=50, start=20, kernel=KERNEL):
    """Return cKAM as in tables 1 to 3, with γ_t = start ((10+t)/10)^-1/2, which are silent on γ."""
    options = {
        "cycle_length": cycle_length,
        "beta": beta,
        "n_subsample": n_subsample,
        "gamma": pk.samplers.Decay(start, 10, 0.5),
        "kernel": kernel,
    }
    return Sampler(pk.baselines.PublishedCyclicalKAM, 0, options)


def samplers(walk, n_kam, **cyclical):
    """Return the samplers of an experiment, by RW's ν, KAM's m, and arguments of `published`."""
    kam = {"whiten": False, "gamma": 0.2, "n_subsample": n_kam, "kernel": KERNEL}
    return {
        "RW": Sampler(pk.baselines.RWM, 0, {"scaling": walk}),
        "AM": Sampler(pk.baselines.AM),
        "RBAM": Sampler(pk.baselines.RBAM),
        "GAM": Sampler(pk.GAM),
        "KAM": Sampler(pk.KAM, options=kam),
        "cKAM, γ₀ = 10": published(**cyclical, start=10),
        PUBLISHED: published(**cyclical),
        EXACT: Sampler(pk.CyclicalKAM),
    }


def never_stops(kind, learning_rate):
    """Return AM, RBAM or GAM as in the paper: with its learning rate, and adapting all the time."""
    return Sampler(kind, options={"learning_rate": learning_rate, "keep_adapting": True})


SAMPLERS = {
    "A.1": samplers(np.sqrt(15), 30),
    "A.2": samplers(np.sqrt(15), 30),
    "A.3": samplers(2.38 / np.sqrt(32), 100, cycle_length=8000, beta=0.6, n_subsample=100)
    | {
        "RW, ν = 1.6": Sampler(pk.baselines.RWM, 0, {"scaling": 1.6}),
        EXACT: Sampler(pk.CyclicalKAM, options={"beta": 0.6}),
        "AM, never stops": never_stops(pk.baselines.AM, 0.01),
        "RBAM, never stops": never_stops(pk.baselines.RBAM, 0.001),
        "GAM, never stops": never_stops(pk.GAM, RATE),
    },
}

COLOURS = {
    "RW": "black",
    "RW, ν = 1.6": "0.6",
    "AM": "#E69F00",
    "RBAM": "0.35",
    "GAM": "#009E73",
    "KAM": "#0072B2",
    "cKAM, γ₀ = 10": "#56B4E9",
    PUBLISHED: "#CC79A7",
    EXACT: "#D55E00",
}
"""Of the samplers that are drawn, from the palette of Okabe and Ito."""

# ---- chains -------------------------------------------------------------------------------------

EVALUATIONS = {"A.1": 200_000, "A.2": 100_000, "A.3": 40_000}


class Chain(NamedTuple):
    """A chain after tuning, or all of one that is not tuned."""

    x: np.ndarray  # (n, d), draws
    seconds: float  # of all, tuning included, compilation not


@lru_cache
def build(target, sampler, every):
    """Build a step, and run it briefly, so that everything is compiled."""
    step = sampler.kind(model=target.model(), steps_per_draw=every, **sampler.options)
    for _ in drive(step, target, 2000 // every, 100, 0):
        pass
    return step


def drive(step, target, tune, draws, seed):
    """Generate the draws of a chain from the paper's start, and their statistics."""
    start = {"x": np.array(target.start, float)}
    for point, statistics in benchmark.driven(step, start, tune, draws, seed):
        yield point["x"], statistics


def run_chain(target, sampler, evaluations, seed, every=1):
    """Run a chain until it has used so many evaluations, and keep one state in `every`."""
    step = build(target, sampler, every)
    tune = int(sampler.tuned * evaluations) // every
    used, kept = 0, []
    start = time.perf_counter()
    for i, (x, statistics) in enumerate(drive(step, target, tune, evaluations // every, seed)):
        used += statistics["n_logp"]
        if used > evaluations:
            break
        if i >= tune:
            kept.append(x)
    return Chain(np.array(kept), time.perf_counter() - start)
