"""The exact-invariance harness: does a frozen transition keep an exact sample of the target exact?

Draw from the exact target, apply the frozen transition to each draw, and compare with another exact
sample: two-sample Kolmogorov-Smirnov tests of each coordinate and some functions of them, with a
Bonferroni correction. A sampler enters as its PyMC step, so its whole path is tested.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pymc as pm
from scipy import stats

from pymc_kameleon.core.chain import MOVED, N_PROGRESS
from pymc_kameleon.step.job import ChainState, Job, advance
from pymc_kameleon.step.make_draws import NO_OUTPUTS, block, make_draws


class Target(NamedTuple):
    """A target with an exact sampler.

    Attributes
    ----------
    build : () -> pm.Model
        A model with one free variable, but for PAIR; the same for all steps.
    sample : (rng, n) -> (n, d)
        Exact draws of its value variable, thus on the unconstrained scale.
    """

    build: Callable[[], pm.Model]
    sample: Callable


@cache
def _normal():
    with pm.Model() as model:
        pm.MvNormal("x", np.zeros(3), cov=COVARIANCE)
    return model


COVARIANCE = np.array([[1.0, 1.8, 0.0], [1.8, 4.0, 0.02], [0.0, 0.02, 0.01]])


@cache
def _banana():
    with pm.Model() as model:
        x = pm.Normal("x", 0, [2.0, 1.0])
        pm.Potential("bend", (x[1] ** 2 - (x[1] - 0.5 * (x[0] ** 2 - 4)) ** 2) / 2)
    return model


def _sample_banana(rng, n):
    x = rng.standard_normal((n, 2)) * [2, 1]
    x[:, 1] += 0.5 * (x[:, 0] ** 2 - 4)
    return x


def log_banana(x):
    """Its log density at points (..., 2)."""
    return -0.5 * (x[..., 0] ** 2 / 4 + (x[..., 1] - 0.5 * (x[..., 0] ** 2 - 4)) ** 2)


@cache
def _bimodal():
    with pm.Model() as model:
        pm.NormalMixture("x", [0.3, 0.7], [-2, 2], sigma=[0.7, 1.0], shape=2)
    return model


def _sample_bimodal(rng, n):
    right = rng.random((n, 2)) < 0.7
    return np.where(right, 2.0, -2.0) + np.where(right, 1.0, 0.7) * rng.standard_normal((n, 2))


@cache
def _bounded():
    with pm.Model() as model:
        pm.Gamma("x", 2, 3, shape=2)
    return model


@cache
def _one_dimension():
    with pm.Model() as model:
        pm.StudentT("x", 5)
    return model


class Mixture:
    """A target that is a mixture of normals, which are far apart or not.

    Parameters
    ----------
    weights : (k,)
    means : (k, d)
    covariances : (k, d, d) or numbers
    """

    def __init__(self, weights, means, covariances):
        self.weights, self.means = np.array(weights), np.array(means, float)
        k, d = self.means.shape
        covariances = [c * np.eye(d) if np.ndim(c) == 0 else c for c in covariances]
        self.factors = np.linalg.cholesky(covariances)
        self.precisions = np.linalg.inv(covariances)
        self.log_heights = np.log(weights) + np.linalg.slogdet(self.precisions)[1] / 2
        assert len(covariances) == k
        self.model = None

    @property
    def modes(self):
        """Mean and factor of each component."""
        return list(zip(self.means, self.factors, strict=True))

    def _log_density(self, x, logsumexp):
        """Without matrix products, which take PyTensor seconds to compile."""
        v = x - self.means
        squares = (v[:, :, None] * self.precisions * v[:, None, :]).sum(axis=(1, 2))
        return logsumexp(self.log_heights - squares / 2)

    def log_density(self, x):
        return self._log_density(x, np.logaddexp.reduce)

    def build(self):
        """Once for all steps."""
        if self.model is None:
            with pm.Model() as self.model:
                x = pm.Flat("x", shape=self.means.shape[1])
                pm.Potential("p", self._log_density(x, pm.math.logsumexp))
        return self.model

    def sample(self, rng, n):
        which = rng.choice(len(self.weights), n, p=self.weights)
        xi = rng.standard_normal((n, self.means.shape[1], 1))
        return self.means[which] + (self.factors[which] @ xi)[:, :, 0]


@cache
def _pair():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", 0.9 * x, 0.4)
    return model


def _sample_pair(rng, n):
    x = rng.standard_normal((n, 2)) * [1, 0.4]
    x[:, 1] += 0.9 * x[:, 0]
    return x


PAIR = Target(_pair, _sample_pair)
"""Of two variables, for two steps."""

TARGETS = {
    "normal": Target(
        _normal, lambda rng, n: rng.multivariate_normal(np.zeros(3), COVARIANCE, n, method="svd")
    ),
    "banana": Target(_banana, _sample_banana),
    "bimodal": Target(_bimodal, _sample_bimodal),
    "bounded": Target(_bounded, lambda rng, n: np.log(rng.gamma(2, 1 / 3, (n, 2)))),
    "one dimension": Target(_one_dimension, lambda rng, n: rng.standard_t(5, (n, 1))),
}


def tuned(step, target, tune=200, seed=1):
    """Return `step` after `tune` draws of tuning from an exact start: its parameters are frozen."""
    rng = np.random.default_rng(seed)
    step.setup_chain(rng, tune, 1)
    point = _point(step, target.sample(rng, 1)[0])
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    return step


def moved(step, x):
    """Apply one draw of `step` to each row of x, an exact sample."""
    return np.array([step.step(_point(step, row))[0][step.var_names[0]].ravel() for row in x])


def moved_fast(step, x):
    """Do what `moved` does, without the step's overhead for each draw."""
    own, result = block(step, MOVED, step.statistics.empty(1)), x.copy()
    progress = np.zeros(N_PROGRESS, np.int64)
    for row in result:
        step.state.x[:] = row
        assert step._run((own,), row, NO_OUTPUTS, progress)
    return result


def moved_by_driver(steps, x, tune=200, draws=3, seed=1):
    """Tune from the first row, and then make `draws` draws from each, as pk.sample does.

    So what is kept is what pk.sample keeps; all draws of a row are made by one compiled call.
    """
    outputs = steps[0].outputs([var.name for var in steps[0].model.value_vars])
    job, own = Job(steps, outputs, keeps_warmup=False), [step.for_chain() for step in steps]
    for k, step in enumerate(own):
        step.setup_chain(np.random.default_rng([seed, k]), tune, draws * len(x))
    state = ChainState(x[0].copy(), [step.sampling_state for step in own])
    while state.monitor.done < tune:
        stops = [*(pause for step in own for pause in step.pauses()), tune]
        n = min(stop for stop in stops if stop > state.monitor.done) - state.monitor.done
        state, _ = advance(job, state, n)
    own, rows = job.steps_at(state), np.empty((draws, outputs.n))
    last = []
    for row in x:
        make_draws(job.run, own, row.copy(), draws, outputs.into(rows))
        kept = outputs.named(rows).values()
        last.append(np.concatenate([values[-1].ravel() for values in kept]))
    return np.array(last)


def invariance_p_value(transform, target, n=20_000, seed=2):
    """Least p-value, times the number of tests, that `transform` keeps exact draws exact."""
    rng = np.random.default_rng(seed)
    one, other = features(transform(target.sample(rng, n))), features(target.sample(rng, n))
    p_values = [stats.ks_2samp(a, b).pvalue for a, b in zip(one.T, other.T, strict=True)]
    return min(p_values) * len(p_values)


def features(x):
    """Coordinates, their squares about the origin summed, and products of neighbours."""
    columns = [x, (x**2).sum(axis=1, keepdims=True), x[:, 1:] * x[:, :-1]]
    return np.concatenate(columns, axis=1)


def _point(step, x):
    (variable,) = step.vars
    return {variable.name: np.array(x, float).reshape(variable.type.shape)}
