"""Simulation-based calibration: every sampler, tuning included, on many data sets of three models.

Draw parameters from the prior, and data given these; sample the posterior given the data. The ranks
of the parameters among the draws are uniform over many such data sets if the sampler is right, and
has arrived and mixed [1, 2]. So is the rank of their log-likelihood, which sees errors that leave
each parameter as wide as it should be [3].

Each data set needs a run of its own, 3444 in all, so chains are made by the function that makes the
draws of `pk.sample`, without what is around it; that is here for chains that learn together.

[1] Cook, Gelman & Rubin (2006). [2] Talts et al. (2018). [3] Modrák et al. (2023).
"""

from collections.abc import Callable
from functools import cache
from itertools import pairwise, product
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytest
from boxed import SAMPLERS, BoxedEmulator
from runs import sample
from scipy import stats
from test_invariance import SMALL, LocalKAM

import pymc_kameleon as pk
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.metropolis import accept
from pymc_kameleon.samplers.gradient import mala
from pymc_kameleon.step.make_draws import make_draws

pytestmark = pytest.mark.slow

KEPT, THIN = 20, 10
"""Draws whose ranks count, and one of how many: as far apart that they hardly correlate."""


class Generative(NamedTuple):
    """A model, and what its data come from.

    Attributes
    ----------
    build : () -> pm.Model
        Its data are "data".
    simulate : (rng) -> (d,), (n,)
        Parameters, in the order of the model's free variables, and data.
    log_likelihood : (data, parameters (d, m)) -> (m,)
    """

    build: Callable
    simulate: Callable
    log_likelihood: Callable


# ---- a hierarchy --------------------------------------------------------------------------------


@cache
def _hierarchy():
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 2), pm.Gamma("tau", 4, 4)
        theta = pm.Normal("theta", mu, tau, shape=5)
        pm.Normal("y", theta, 0.5, observed=pm.Data("data", np.zeros(5)))
    return model


def _simulate_hierarchy(rng):
    mu, tau = rng.normal(0, 2), rng.gamma(4, 1 / 4)
    theta = rng.normal(mu, tau, 5)
    return np.array([mu, tau, *theta]), rng.normal(theta, 0.5)


def _log_likelihood_of_hierarchy(y, parameters):
    return stats.norm.logpdf(y[:, None], parameters[2:], 0.5).sum(axis=0)


# ---- bounded parameters -------------------------------------------------------------------------


@cache
def _bounded():
    with pm.Model() as model:
        share, rate = pm.Beta("share", 2, 2), pm.Gamma("rate", 2, 0.2)
        factors = [share, 1 - share, 1.0, pm.Uniform("factor", 1, 4)]
        data = pm.Data("data", np.zeros(4))
        pm.Poisson("y", rate * pm.math.stack(factors), observed=data)
    return model


def _rates(parameters):
    share, rate, factor = parameters
    return rate * np.array([share, 1 - share, np.ones_like(share), factor])


def _simulate_bounded(rng):
    parameters = np.array([rng.beta(2, 2), rng.gamma(2, 5), rng.uniform(1, 4)])
    return parameters, rng.poisson(_rates(parameters)).astype(float)


def _log_likelihood_of_bounded(y, parameters):
    return stats.poisson.logpmf(y[:, None], _rates(parameters)).sum(axis=0)


# ---- a mixture, whose components are in order ---------------------------------------------------


@cache
def _mixture():
    with pm.Model() as model:
        low, gap, share = pm.Normal("low"), pm.Gamma("gap", 8, 2), pm.Beta("share", 3, 3)
        shares, means = pm.math.stack([share, 1 - share]), pm.math.stack([low, low + gap])
        pm.NormalMixture("y", shares, means, 1, observed=pm.Data("data", np.zeros(20)))
    return model


def _simulate_mixture(rng):
    low, gap, share = rng.normal(), rng.gamma(8, 1 / 2), rng.beta(3, 3)
    means = np.where(rng.random(20) < share, low, low + gap)
    return np.array([low, gap, share]), rng.normal(means, 1)


def _log_likelihood_of_mixture(y, parameters):
    low, gap, share = parameters
    one, other = (stats.norm.pdf(y[:, None], mean) for mean in (low, low + gap))
    return np.log(share * one + (1 - share) * other).sum(axis=0)


MODELS = {
    "hierarchy": Generative(_hierarchy, _simulate_hierarchy, _log_likelihood_of_hierarchy),
    "bounded": Generative(_bounded, _simulate_bounded, _log_likelihood_of_bounded),
    "mixture": Generative(_mixture, _simulate_mixture, _log_likelihood_of_mixture),
}

# ---- ranks --------------------------------------------------------------------------------------


def chain(step, rng, tune):
    """Tune and draw from a jittered start; return natural values (KEPT, d)."""
    n, outputs = KEPT * THIN, step.outputs([rv.name for rv in step.model.free_RVs])
    step.setup_chain(rng, tune, n)
    point, rows = step._common_start.copy(), np.empty((n, outputs.n))
    stops = sorted({0, tune, *(pause for pause in step.pauses() if pause < tune)})
    for done, stop in pairwise(stops):
        make_draws(step._run, [step], point, stop - done)
    step.stop_tuning()
    make_draws(step._run, [step], point, n, outputs.into(rows))
    return rows[THIN - 1 :: THIN]


def chains_together(step, rng, tune):
    """Do the same by pk.sample; of each of four chains a quarter is returned."""
    dt = sample(step, tune=tune, draws=KEPT * THIN // 4, chains=4, random_seed=rng)
    values = [dt["posterior"][rv.name].values[:, THIN - 1 :: THIN] for rv in step.model.free_RVs]
    return np.column_stack([value.reshape(KEPT, -1) for value in values])


def scores(step, generative, tune, replicates, draws=chain):
    """Return z (replicates, d + 1), of which each column is standard normal if all is right.

    They are normal quantiles of the ranks of the d parameters and of their log-likelihood.
    """
    found = []
    for k in range(replicates):
        rng = np.random.default_rng([1, k])
        truth, data = generative.simulate(rng)
        pm.set_data({"data": data}, model=step.model)
        every = np.vstack([truth, draws(step, rng, tune)]).T
        every = np.vstack([every, generative.log_likelihood(data, every)])
        below = (every[:, 1:] < every[:, :1]).sum(axis=1)
        equal = (every[:, 1:] == every[:, :1]).sum(axis=1)
        ranks = below + rng.uniform(size=len(every)) * (1 + equal)
        found.append(stats.norm.ppf(ranks / (KEPT + 1)))
    return np.array(found)


def p_value(z):
    """Return the least p-value of location, spread and shape of all columns, times their number."""
    n, squares = len(z), (z**2).sum(axis=0)
    location = stats.norm.sf(np.abs(z.sum(axis=0)) / n**0.5)
    spread = np.minimum(stats.chi2.cdf(squares, n), stats.chi2.sf(squares, n))
    shape = [stats.kstest(column, "norm").pvalue for column in z.T]
    return np.min([2 * location, 2 * spread, shape]) * 3 * z.shape[1]


class Runs(NamedTuple):
    """How many data sets there are, how long a chain tunes, and the arguments of the step."""

    arguments: dict = MappingProxyType({})
    tune: int = 200
    replicates: int = 80


ROWS = (
    {cls: Runs() for cls in SAMPLERS}
    | {cls: Runs(arguments) for cls, arguments in SMALL.items()}
    | {
        pk.baselines.RWM: Runs({"steps_per_draw": 30}),
        pk.CMH: Runs({"steps_per_draw": 20}),
        pk.baselines.MALA: Runs({"steps_per_draw": 20}),
        pk.SurrogateMetropolis: Runs(tune=40, replicates=40),  # whose tuning is dear
        BoxedEmulator: Runs(SMALL[BoxedEmulator], tune=100, replicates=28),
    }
)
"""For samplers that are not meant for such models, draws of more transitions."""

CASES = list(product(ROWS, MODELS))
LEVEL = 1e-3 / len(CASES)
"""Of each case, so that one in a thousand choices of seeds has a false alarm."""


@pytest.mark.parametrize(("sampler", "name"), CASES)
def test_ranks_are_uniform(sampler, name):
    arguments, tune, replicates = ROWS[sampler]
    step = sampler(model=MODELS[name].build(), **arguments)
    assert p_value(scores(step, MODELS[name], tune, replicates)) > LEVEL


def test_ranks_are_uniform_if_chains_learn_together():
    step = pk.GAM(model=MODELS["hierarchy"].build())
    assert p_value(scores(step, MODELS["hierarchy"], 100, 40, chains_together)) > LEVEL


# ---- broken twins -------------------------------------------------------------------------------


@jit
def uncorrected_transition(target, state, parameters, work, rng):
    """MALA without its Hastings factor."""
    scale = np.exp(parameters.log_scale[0])
    for i in range(state.x.size):
        work.h[i] = rng.standard_normal() + 0.5 * scale * state.u[i]
        work.y[i] = state.x[i]
    logp_y = mala.leapfrog(target, parameters.factor, scale, 1, work)
    accept_prob, accepted = accept(target, state, work.y, logp_y, 0.0, rng)
    if accepted:
        copy(work.uy, state.u)
    return accept_prob, accepted


class UncorrectedMALA(pk.baselines.MALA):
    name = "uncorrected"
    algorithm = pk.baselines.MALA.algorithm._replace(transition=uncorrected_transition)


RESTLESS = {"keep_adapting": True, "learning_rate": 0.5}
"""The covariance is for ever that of the last few states."""


@pytest.mark.parametrize(
    ("sampler", "runs", "name"),
    [
        (UncorrectedMALA, ROWS[pk.baselines.MALA], "hierarchy"),
        (LocalKAM, ROWS[pk.KAM], "bounded"),
        (pk.baselines.AM, Runs(RESTLESS), "mixture"),
    ],
)
def test_ranks_of_broken_twins_are_not(sampler, runs, name):
    step = sampler(model=MODELS[name].build(), **runs.arguments)
    assert p_value(scores(step, MODELS[name], runs.tune, runs.replicates)) < LEVEL
