"""Problems that several benchmarks have: models, what is known of their posteriors, their starts.

``CASES`` has all of them by name. Of a posterior are known the means of all x_k and x_k², on the
unconstrained scale: exactly, by exact draws, or by a long run, which is made once and kept in a
folder for temporary files.
"""

import sys
import tempfile
from collections.abc import Callable
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from benchmark import CHAINS, both, ess_of_means, joined, quiet, sample
from kam_targets import Banana
from posteriors import POSTERIORS, recursion
from quickstart import GUESS, PELTS, YEARS
from quickstart import build_model as lotka_volterra

import pymc_kameleon as pk

FOLDER = Path(tempfile.gettempdir()) / "kameleon-references"
LONG = 100_000
"""Draws of each chain of a reference."""
ENOUGH = 5
"""A reference is worth so many times the effective draws that it measures, or marked."""

# ---- a case, as all samplers see it -------------------------------------------------------------


class Case(NamedTuple):
    """How a model is built, how its moments are known, and how far its starts are dispersed."""

    build: Callable
    known: Callable = lambda problem: from_draws(long_run(problem))
    jitter: float = 1.0


class Problem:
    """The model of a case, whose value variables, raveled in its order, are x (d,)."""

    def __init__(self, name, case=None):
        self.name, self.case = name, CASES[name] if case is None else case
        self.model = self.case.build()
        self.initial = self.model.initial_point()
        self.centre = np.concatenate([value.ravel() for value in self.initial.values()])
        self.d = self.centre.size

    def graph(self):
        """Return x and the log-density as symbols."""
        by_name = {value.name: value for value in self.model.value_vars}
        values = [by_name[name] for name in self.initial]
        [logp], x = pm.pytensorf.join_nonshared_inputs(self.initial, [self.model.logp()], values)
        return x, logp

    @cached_property
    def _logp(self):
        x, logp = self.graph()
        function = pm.pytensorf.compile([x], logp)
        function.trust_input = True  # checks of the argument take as long as a cheap log-density
        return function

    def logp(self, x):
        """Return the log-density at x, -inf for NaN."""
        value = float(self._logp(x))
        return value if value < np.inf else -np.inf

    def unraveled(self, x):
        """Return values by name."""
        ends = np.cumsum([value.size for value in self.initial.values()])[:-1]
        pairs = zip(self.initial.items(), np.split(x, ends), strict=True)
        return {name: part.reshape(value.shape) for (name, value), part in pairs}

    def coordinates(self, posterior):
        """Return the draws (chains, n, d) of a dataset, or arrays, with the value variables."""
        return joined(posterior[name] for name in self.initial)

    def starts(self, n, seed, jitter=None):
        """Return n dispersed points (n, d) where the log-density is finite."""
        jitter = self.case.jitter if jitter is None else jitter
        rng, found = np.random.default_rng(seed), []
        while len(found) < n:
            x = self.centre + jitter * rng.uniform(-1, 1, self.d)
            if self.logp(x) > -np.inf:
                found.append(x)
        return np.array(found)

    @cached_property
    def _natural(self):
        variables = self.model.replace_rvs_by_values(self.model.free_RVs)
        return self.model.compile_fn(variables, inputs=self.model.value_vars, point_fn=True)

    def initvals(self, seed, jitter=None):
        """Return the starts of a run, as PyMC takes them: values by name, not transformed."""
        names = [rv.name for rv in self.model.free_RVs]
        points = [self._natural(self.unraveled(x)) for x in self.starts(CHAINS, seed, jitter)]
        return [dict(zip(names, values, strict=True)) for values in points]


@lru_cache(1)
def problem_of(name, case=None):
    """Return a problem; the last one is kept, as compiling takes long."""
    return Problem(name, case)


# ---- what is known ------------------------------------------------------------------------------


class Moments(NamedTuple):
    """What is known of the x_k and x_k², in this order: each array is (2d,).

    `ess` says how well: as well as by so many independent draws.
    """

    mean: np.ndarray
    sd: np.ndarray
    ess: np.ndarray

    def worth(self, runs):
        """Return effective draws of the worst and the median quantity, of runs' Estimates."""
        errors = np.array([(one.mean - self.mean) / self.sd for one in runs])
        mcse = np.array([np.hypot(one.mcse / self.sd, self.ess**-0.5) for one in runs])
        effective, z = 1 / np.mean(errors**2, axis=0), np.sqrt(np.mean((errors / mcse) ** 2))
        shown = np.argsort(effective)[[0, self.mean.size // 2]]
        return {
            "worst": round(float(effective.min()), 1),
            "median": round(float(np.median(effective)), 1),
            "worst_quantity": int(shown[0]),
            "z": None if np.isnan(z) else round(float(z), 2),
            "too_short": bool(np.any(self.ess[shown] < ENOUGH * effective[shown])),
        }


def exact(mean, second, fourth):
    """Return the Moments from those of x about 0, each (d,)."""
    sd = np.sqrt(np.concatenate([second - mean**2, fourth - second**2]))
    return Moments(np.concatenate([mean, second]), sd, np.full(2 * mean.size, np.inf))


def from_draws(x):
    """Return the moments of draws (chains, n, d)."""
    sampled = both(x)
    return Moments(sampled.mean(axis=(0, 1)), sampled.std(axis=(0, 1)), ess_of_means(sampled))


def known_moments(problem):
    """Return the moments of a problem, from the folder if it has them.

    Its files are named after values of the log-density, so that none outlives its model, and
    problems that differ in their starts share one.
    """
    values = [problem.logp(x) for x in problem.starts(3, seed=0, jitter=0.1)]
    digest = sha256(" ".join(f"{value:.6g}" for value in values).encode()).hexdigest()[:16]
    return Moments(**kept(digest, lambda: problem.case.known(problem)._asdict()))


def known_quantiles(problem, draws=40_000):
    """Return mean, sd and 5, 50 and 95 % quantiles q (3, d), of draws of each chain."""

    def computed():
        if problem.name == "banana":
            x = BANANA.draw(np.random.default_rng(1), 10 * draws)
        else:
            x = long_run(problem, draws).reshape(-1, problem.d)
        q = np.quantile(x, (0.05, 0.5, 0.95), axis=0)
        return {"mean": x.mean(axis=0), "sd": x.std(axis=0), "q": q}

    return kept(f"quantiles of {problem.name}", computed)


def kept(name, compute):
    """Return arrays by name of a file, if it is there, or else compute and keep them."""
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        np.savez(path, **compute())
    return dict(np.load(path))


def long_run(problem, draws=LONG):
    """Return draws (chains, n, d) from starts near the initial point.

    They are those of a random walk, which moves in tails and funnels where gradients mislead.
    """
    step = pk.GAM(model=problem.model, steps_per_draw=20)
    starts = problem.initvals(seed=1, jitter=0.1)
    options = {"initvals": starts, "random_seed": 1, "compute_convergence_checks": True}
    with quiet() as told:
        dt = sample(step, draws, tune=5000, **options)
    for record in told:
        print(f"reference of {problem.name}: {record.getMessage()}", file=sys.stderr)
    return problem.coordinates(dt["posterior"])


# ---- regressions, a hidden Markov model, shapes -------------------------------------------------


def flat(predictors, y):
    """Build a linear regression with flat priors."""
    with pm.Model() as model:
        b, sigma = pm.Flat("b", shape=predictors.shape[1]), pm.HalfFlat("sigma", initval=1)
        pm.Normal("y", pm.math.dot(predictors, b), sigma, observed=y)
    return model


def with_ones(*columns):
    """Return columns (n, k) with an intercept."""
    return np.column_stack([np.ones(len(columns[0])), *columns])


def leaves():
    """Log weights of shrubs by the logs of five measures of their size, which correlate."""
    rng = np.random.default_rng(20)
    size = rng.normal(0, 0.45, 46)
    logs = [mean + slope * size + rng.normal(0, 0.2, 46) for mean, slope in MEASURES]
    predictors = with_ones(*logs)
    return flat(predictors, predictors @ [4.8, 0.4, 1.1, 0.4, 0.1, 0.1] + rng.normal(0, 0.33, 46))


MEASURES = ((0.1, 1), (-0.2, 1), (0.3, 1), (0.2, 0.9), (-0.8, 2))


def votes():
    """How voters see themselves on a scale of seven, by eight predictors as they were coded."""
    rng, n = np.random.default_rng(21), 550
    education, income = rng.integers(1, 5, n), rng.integers(1, 6, n)
    age = rng.integers(18, 90, n)
    groups = [(low <= age) & (age < high) for low, high in ((30, 45), (45, 65), (65, 99))]
    others = [rng.random(n) < 0.1, rng.integers(1, 8, n), rng.random(n) < 0.55]
    predictors = with_ones(others[1], others[0], *groups, education, others[2], income)
    b = [1.8, 0.5, -1.1, -0.2, -0.1, 0.2, 0.3, -0.1, 0.16]
    return flat(predictors, predictors @ b + rng.normal(0, 1.9, n))


def precise():
    """Return a regression on large numbers, which knows all coefficients to 1e-3 or better."""
    rng, n = np.random.default_rng(22), 1200
    height, male = rng.normal(67, 4, n), rng.random(n) < 0.4
    predictors = with_ones(height, male, height * male, rng.normal(0, 1, n))
    return flat(predictors, predictors @ [5.8, 0.06, 0.3, -0.01, 0.2] + rng.normal(0, 0.001, n))


def hidden_markov(n=200):
    """Return a hidden Markov model of two states, with normal emissions."""
    rng, state, y = np.random.default_rng(23), 0, np.zeros(n)
    for t in range(n):
        state = int(rng.random() < (0.1, 0.85)[state])
        y[t] = rng.normal((3, 9)[state], (1, 2)[state])
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        stay = pm.Beta("stay", 2, 2, shape=2)
        mu = pm.Normal("mu", [3, 10], 3, shape=2, transform=ordered, initval=[3, 10])
        sigma = pm.HalfNormal("sigma", 3, shape=2)
        emissions = pm.logp(pm.Normal.dist(mu, sigma), y[:, None])
        moves = pt.log(pt.stack([stay, 1 - stay], axis=1))
        moves = pt.stack([moves[0], moves[1][::-1]])

        def forward(emission, before, moves):
            return emission + pt.logaddexp(before[0] + moves[0], before[1] + moves[1])

        after = recursion(forward, emissions, np.log([0.5, 0.5]), moves)
        pm.Potential("y", pt.logaddexp(after[-1, 0], after[-1, 1]))
    return model


def transforms():
    """Return independent blocks with all kinds of transforms, one of them with heavy tails."""
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        pm.Uniform("interval", -1, 3)
        pm.Beta("odds", 2, 5)
        pm.Dirichlet("simplex", [2.0, 3.0, 4.0])
        pm.Normal("ordered", 0, 2, shape=3, transform=ordered, initval=[-1, 0, 1])
        pm.HalfNormal("half", 2)
        pm.Gamma("gamma", 3, 0.5)
        pm.LKJCholeskyCov("factor", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1), compute_corr=False)
        pm.MvStudentT("tails", 5, mu=np.zeros(2), scale=np.array([[1, 0.8], [0.8, 1]]))
    return model


BANANA = Banana(0.03)


def banana_moments(problem):
    """Return the moments of exact draws."""
    rng = np.random.default_rng(1)
    return from_draws(BANANA.draw(rng, CHAINS * LONG).reshape(CHAINS, LONG, -1))


def funnel(d=10):
    """Return Neal's funnel."""
    with pm.Model() as model:
        v = pm.Normal("v", 0, 3)
        pm.Normal("x", 0, pt.exp(v / 2), shape=d - 1)
    return model


def funnel_moments(problem):
    """Return the moments, in which draws would err, as sd(x²) is dominated by rare ones."""
    n = problem.d - 1
    second = np.array([9, *np.full(n, np.exp(4.5))])
    return exact(np.zeros(problem.d), second, np.array([3 * 9**2, *np.full(n, 3 * np.exp(18))]))


def centred_moments(problem):
    """Return the moments of a run of the schools that are not centred, transformed."""
    x = long_run(Problem("schools"))
    mu, log_tau, z = np.split(x, [1, 2], axis=2)
    return from_draws(np.concatenate([mu, log_tau, mu + np.exp(log_tau) * z], axis=2))


# ---- hares and lynxes ---------------------------------------------------------------------------


def hare_lynx():
    """Return the model of the quickstart, which starts at the published estimates.

    PyMC's own initial point has another period, and modes of its own around it.
    """
    model = lotka_volterra()
    for name, value in (GUESS | {"initial": PELTS[0]}).items():
        model.set_initval(model[name], np.array(value))
    return model


def hare_lynx_twin():
    """Return the problem with a solver that is compiled."""
    with mock.patch("quickstart.populations", solved_by_runge_kutta):
        return Problem("hare-lynx 0.1")


def hare_lynx_moments(problem):
    """Return the moments of a run near the known mode, with a solver that is compiled."""
    return from_draws(long_run(hare_lynx_twin(), LONG // 4))


def solved_by_runge_kutta(rates, initial, steps=5):
    """Return what quickstart.solve does, to some 1e-4: logs of both populations by year, (n, 2)."""
    h = 1 / steps

    def growth(y, rates):
        alpha, beta, gamma, delta = (rates[k] for k in range(4))
        return pt.stack([alpha - beta * pt.exp(y[1]), delta * pt.exp(y[0]) - gamma])

    def step(y, rates):
        k1 = growth(y, rates)
        k2 = growth(y + h / 2 * k1, rates)
        k3 = growth(y + h / 2 * k2, rates)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + growth(y + h * k3, rates))

    start, n = pt.log(initial), steps * (len(YEARS) - 1)
    y = pytensor.scan(
        step, outputs_info=start, non_sequences=rates, n_steps=n, return_updates=False
    )
    return pt.concatenate([start[None], y[steps - 1 :: steps]])


# ---- all problems ------------------------------------------------------------------------------

CASES = {
    "AR5": Case(POSTERIORS["autoregression"]),
    "interaction": Case(POSTERIORS["interaction"]),
    "log regression": Case(leaves),
    "flat priors": Case(votes),
    "precise": Case(precise),
    "26 coefficients": Case(POSTERIORS["correlated"]),
    "GARCH": Case(POSTERIORS["GARCH"]),
    "hidden Markov": Case(hidden_markov),
    "mixture": Case(POSTERIORS["two components"]),
    "schools": Case(POSTERIORS["schools"]),
    "centred schools": Case(POSTERIORS["centred schools"], centred_moments),
    "latent process": Case(POSTERIORS["latent process"]),
    "transforms": Case(transforms),
    "banana": Case(BANANA.model, banana_moments),
    "funnel": Case(funnel, funnel_moments),
    "hare-lynx 0.1": Case(hare_lynx, hare_lynx_moments, jitter=0.1),
    "hare-lynx": Case(hare_lynx, hare_lynx_moments),
}

NAMES = {
    "AR5": "AR(5)",
    "interaction": "regression with interaction",
    "flat priors": "regression, flat priors",
    "precise": "regression, standard deviations below 1e-3",
    "26 coefficients": "26 correlated coefficients",
    "GARCH": "GARCH(1,1)",
    "hidden Markov": "hidden Markov model",
    "mixture": "mixture of two",
    "schools": "eight schools, non-centred",
    "centred schools": "eight schools, centred",
    "latent process": "Gaussian process, Poisson",
    "transforms": "every transform, heavy tails",
    "banana": "banana, B = 0.03",
    "funnel": "Neal's funnel",
    "hare-lynx 0.1": "hares and lynxes, starts ±0.1",
    "hare-lynx": "hares and lynxes, starts ±1",
}
"""As the pages call the cases."""
