"""The cyclical KAM paper: its targets, its samplers' settings, and how a chain is run.

Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis", sections 4.1 to 4.3 and tables 1 to 3. The
targets are mixtures of normals, each with a PyMC model, a log-density, an exact sampler, and the
symmetric Kullback-Leibler divergence between draws and truth.

The other scripts import this file. Run, it checks the targets on exact draws:

    python ckam_targets.py
"""

import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import special, stats

import pymc_kameleon as pk

# ---- targets ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mixture:
    """Σ w_k N(μ_k, v_k I), once or for several blocks of coordinates independently.

    Parameters
    ----------
    weights : tuple of float
        w_k.
    means : tuple of tuple of float
        μ_k.
    variances : tuple of float
        v_k.
    start : tuple of float
        Where the paper's chains start.
    bins : (float, float, int)
        From, to, and number of the bins of every coordinate; the outer ones are open.
    copies : int, optional
        Blocks of coordinates.
    """

    weights: tuple
    means: tuple
    variances: tuple
    start: tuple
    bins: tuple
    copies: int = 1

    @property
    def d(self):
        """Dimension."""
        return len(self.start)

    def log_terms(self, blocks):
        """Return log w_k N(x; μ_k, v_k I) up to a constant; blocks (…, 1, d) become (…, K)."""
        means, variances = np.array(self.means), np.array(self.variances)
        constants = np.log(self.weights) - means.shape[1] / 2 * np.log(variances)
        return constants - ((blocks - means) ** 2).sum(axis=-1) / (2 * variances)

    def log_density(self, x):
        """Log-density at points (n, d), up to a constant."""
        terms = self.log_terms(np.reshape(x, (len(x), self.copies, 1, -1)))
        return special.logsumexp(terms, axis=-1).sum(axis=-1)

    def symbolic_log_density(self, x):
        """Log-density of a PyTensor vector, up to a constant."""
        terms = self.log_terms(x.reshape((self.copies, 1, self.d // self.copies)))
        return pt.sum(pt.logsumexp(terms, axis=-1))

    def model(self):
        """Return it as a PyMC model, with one variable x."""
        with pm.Model() as model:
            x = pm.Flat("x", shape=self.d)
            pm.Potential("mixture", self.symbolic_log_density(x))
        return model

    def draw(self, rng, n):
        """Draw n exact points (n, d)."""
        k = rng.choice(len(self.weights), (n, self.copies), p=self.weights)
        noise = rng.normal(size=(n, self.copies, self.d // self.copies))
        x = np.array(self.means)[k] + np.sqrt(self.variances)[k][..., None] * noise
        return x.reshape(n, self.d)

    def marginal(self, x):
        """Density of the first coordinate at points (n,)."""
        means = np.array(self.means)[:, 0]
        return stats.norm.pdf(x[:, None], means, np.sqrt(self.variances)) @ self.weights

    def bin_probabilities(self):
        """Exact probabilities of the bins, (d, B)."""
        means = np.tile(np.array(self.means), self.copies).T[..., None]
        scales = np.sqrt(self.variances)[:, None]
        inner = np.linspace(*self.bins[:2], self.bins[2] + 1)[1:-1]
        below = self.weights @ stats.norm.cdf(inner, means, scales)
        above = self.weights @ stats.norm.sf(inner, means, scales)
        from_below = np.diff(below, prepend=0.0, append=1.0)
        from_above = -np.diff(above, prepend=1.0, append=0.0)
        # Differences of numbers near 1 would be 0 far out.
        return np.where(np.cumsum(from_below, axis=1) < 0.5, from_below, from_above)

    def symmetric_kl(self, x):
        """Return Σ_b (p_b − q_b) log(p_b/q_b), mean over coordinates.

        Parameters
        ----------
        x : (N, d) float64
            Draws. Of B bins one with n_b draws has q_b = (n_b + 1/2)/(N + B/2).
        """
        low, high, n_bins = self.bins
        p = self.bin_probabilities()
        places = ((x - low) * (n_bins / (high - low))).clip(0, n_bins - 1).astype(int)
        places += n_bins * np.arange(self.d)
        counts = np.bincount(places.ravel(), minlength=p.size).reshape(p.shape)
        q = (counts + 0.5) / (len(x) + n_bins / 2)
        return np.sum((p - q) * np.log(p / q), axis=1).mean()


def two_modes(weight=0.5):
    """A.1, whose modes at (-8, 0) and (8, 0) have variances 0.5 and 2; the weight of the first."""
    return Mixture(
        (weight, 1 - weight), ((-8, 0), (8, 0)), (0.5, 2), start=(-8, 0), bins=(-14, 14, 112)
    )


def five_modes():
    """A.2, five normals that overlap, farther and farther out and wider and wider."""
    i = np.arange(1, 6)
    means = tuple((2.5 * (k - 1),) * 2 for k in i)
    return Mixture((0.2,) * 5, means, tuple(np.sqrt(i)), start=(0, 0), bins=(-6, 18, 96))


def lattice(d=32):
    """A.3, 5 modes in each coordinate; the paper prints the mean 15 twice, and -15 is meant."""
    means = tuple((mean,) for mean in (-30, -15, 0, 15, 30))
    return Mixture((0.2,) * 5, means, (15,) * 5, start=(0,) * d, bins=(-45, 45, 90), copies=d)


TARGETS = {"A.1": two_modes(), "A.2": five_modes(), "A.3": lattice()}
"""As in the paper."""

# ---- samplers -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sampler:
    """A step, and how long it is tuned.

    Parameters
    ----------
    kind : type
        Its class.
    tuned : float, optional
        Share of the evaluations that tuning takes.
    options : dict, optional
        Arguments of the class.
    """

    kind: type
    tuned: float = 0.2
    options: dict = field(default_factory=dict)


RATE = pk.samplers.Decay(1, 1, 0.75)
"""The paper's η_t = (1+t)^-3/4, in GAM, KAM and cKAM."""
KERNEL = pk.samplers.kernels.Matern(4, 2.0)
PUBLISHED = "cKAM, γ₀ = 20"
EXACT = "CyclicalKAM"


def published(cycle_length=1000, beta=0.4, n_subsample=50, d=2, start=20, kernel=KERNEL):
    """Return cKAM as in tables 1 to 3, with γ_t = start ((10+t)/10)^-1/2, which are silent on γ."""
    options = {
        "cycle_length": cycle_length,
        "beta": beta,
        "n_subsample": n_subsample,
        "nu": 2 * 2.38 / np.sqrt(d),
        "gamma": pk.samplers.Decay(start, 10, 0.5),
        "learning_rate": RATE,
        "kernel": kernel,
    }
    return Sampler(pk.baselines.PublishedCyclicalKAM, 0, options)


def samplers(walk, n_kam, **cyclical):
    """Return the samplers of an experiment.

    Parameters
    ----------
    walk : float
        RW's scale ν.
    n_kam : int
        KAM's m.
    **cyclical
        Arguments of `published`.
    """
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
    "A.3": samplers(2.38 / np.sqrt(32), 100, cycle_length=8000, beta=0.6, n_subsample=100, d=32)
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
    """A chain after tuning, or all of one that is not tuned.

    Attributes
    ----------
    x : (n, d) float64
        Draws.
    evaluations : (n,) int64
        Evaluations of the log-density up to each draw, tuning included.
    seconds : (n,) float64
        Time up to each draw, tuning included, compilation not.
    """

    x: np.ndarray
    evaluations: np.ndarray
    seconds: np.ndarray


@lru_cache
def build(target, sampler, every):
    """Build a step, and run it briefly, so that everything is compiled."""
    step = sampler.kind(model=target.model(), steps_per_draw=every, **sampler.options)
    for _ in drive(step, target, 2000 // every, 100, 0):
        pass
    return step


def drive(step, target, tune, draws, seed):
    """Generate the draws of a chain from the paper's start, and their statistics."""
    point = {"x": np.array(target.start, float)}
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    for i in range(tune + draws):
        if i == tune:
            step.stop_tuning()
        point, [statistics] = step.step(point)
        yield point["x"], statistics


def run_chain(target, sampler, evaluations, seed, every=1):
    """Run a chain until it has used so many evaluations, and keep one state in `every`."""
    step = build(target, sampler, every)
    tune = int(sampler.tuned * evaluations) // every
    used, rows = 0, []
    start = time.perf_counter()
    for i, (x, statistics) in enumerate(drive(step, target, tune, evaluations // every, seed)):
        used += statistics["n_logp"]
        if used > evaluations:
            break
        if i >= tune:
            rows.append((x, used, time.perf_counter() - start))
    return Chain(*map(np.array, zip(*rows, strict=True)))


def main():
    """Print what exact draws give: symmetric KL, and whether model and log-density agree."""
    n = 100_000
    print(f"{n:,} exact draws: N × KL should be near the number of bins, less 1; in A.1 above it,")
    print("for in many of its bins no draws are expected, and half a one is counted.\n")
    print(f"{'target':<8}{'bins':>5}{'N × KL':>8}{'model - log-density':>22}")
    for name, target in TARGETS.items():
        x = target.draw(np.random.default_rng(1), n)
        logp = target.model().compile_logp()
        difference = max(abs(logp({"x": row}) - target.log_density(row[None])[0]) for row in x[:99])
        print(f"{name:<8}{target.bins[2]:>5}{n * target.symmetric_kl(x):>8.1f}{difference:>22.0e}")


if __name__ == "__main__":
    main()
