"""The exact-invariance harness: does a frozen transition keep an exact sample of the target exact?

Draw from the exact target, apply the frozen transition to each draw, and compare with another exact
sample: two-sample Kolmogorov-Smirnov tests of each coordinate and some functions of them, with a
Bonferroni correction. A sampler enters as its PyMC step, so its whole path is tested.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pymc as pm
from scipy import stats


class Target(NamedTuple):
    """A target with an exact sampler.

    Attributes
    ----------
    build : () -> pm.Model
        A model with one free variable.
    sample : (rng, n) -> (n, d)
        Exact draws of its value variable, thus on the unconstrained scale.
    """

    build: Callable[[], pm.Model]
    sample: Callable


def _normal():
    with pm.Model() as model:
        pm.MvNormal("x", np.zeros(3), cov=COVARIANCE)
    return model


COVARIANCE = np.array([[1.0, 1.8, 0.0], [1.8, 4.0, 0.02], [0.0, 0.02, 0.01]])


def _banana():
    with pm.Model() as model:
        x = pm.Normal("x", 0, [2.0, 1.0])
        pm.Potential("bend", (x[1] ** 2 - (x[1] - 0.5 * (x[0] ** 2 - 4)) ** 2) / 2)
    return model


def _sample_banana(rng, n):
    x = rng.standard_normal((n, 2)) * [2, 1]
    x[:, 1] += 0.5 * (x[:, 0] ** 2 - 4)
    return x


def _bimodal():
    with pm.Model() as model:
        pm.NormalMixture("x", [0.3, 0.7], [-2, 2], sigma=[0.7, 1.0], shape=2)
    return model


def _sample_bimodal(rng, n):
    right = rng.random((n, 2)) < 0.7
    return np.where(right, 2.0, -2.0) + np.where(right, 1.0, 0.7) * rng.standard_normal((n, 2))


def _bounded():
    with pm.Model() as model:
        pm.Gamma("x", 2, 3, shape=2)
    return model


def _one_dimension():
    with pm.Model() as model:
        pm.StudentT("x", 5)
    return model


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
