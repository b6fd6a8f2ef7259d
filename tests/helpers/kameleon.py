"""Targets of the tests of KAM and its relatives, and what these report and redraw."""

from functools import cache
from typing import NamedTuple

import numpy as np
import pymc as pm
from models import normal_model
from runs import driven
from scipy.stats import norm


def banana(x):
    return -0.5 * (x[0] ** 2 / 9 + (x[1] - 0.3 * (x[0] ** 2 - 9)) ** 2)


@cache
def banana_model():
    with pm.Model() as model:
        pm.Potential("p", banana(pm.Flat("x", shape=2)))
    return model


@cache
def line_model():
    with pm.Model() as model:
        pm.Normal("x", [5.0], 0.01)
    return model


class Target(NamedTuple):
    """A log-density in numpy, the same in PyMC, and a start."""

    log_density: object
    build: object
    start: np.ndarray


PRECISION = np.array([[4.0, -1.8, 0.0], [-1.8, 1.0, 0.3], [0.0, 0.3, 100.0]])

TARGETS = {
    "banana": Target(banana, banana_model, np.array([1.0, -2.0])),
    "normal": Target(
        lambda x: -0.5 * x @ PRECISION @ x,
        cache(lambda: normal_model(PRECISION)),
        np.array([0.5, 1.5, -0.1]),
    ),
    "line": Target(lambda x: norm.logpdf(x[0], 5, 0.01), line_model, np.array([5.02])),
}


def start_chain(sampler, name, n_tune, n=1, seed=1, **arguments):
    """Return a step of one transition per draw, at the start of a chain."""
    step = sampler(model=TARGETS[name].build(), steps_per_draw=1, **arguments)
    step.setup_chain(np.random.default_rng(seed), n_tune, n)
    return step


@cache
def _tuned(sampler, name, tune, arguments):
    step = start_chain(sampler, name, tune, **dict(arguments))
    driven(step, tune, TARGETS[name].start)
    step.stop_tuning()
    return step, step.sampling_state


def tuned(sampler, name, tune=1500, **arguments):
    """Return a step of one transition per draw, as it is after tuning."""
    step, after_tuning = _tuned(sampler, name, tune, tuple(arguments.items()))
    step.sampling_state = after_tuning
    return step


def compare_by_hand(step, chain, name, n, seed=7):
    """Make n transitions, and compare them with those of the slow chain; return statistics, and α.

    They begin where tuning began, so that the state has to derive everything from a new position.
    """
    target = TARGETS[name]
    step.rng = np.random.default_rng(seed)
    positions, stats, _ = driven(step, n, target.start)
    expected, alphas = chain.follow(
        target.log_density, positions, target.start, np.random.default_rng(seed)
    )
    np.testing.assert_allclose(positions, expected, rtol=1e-8, atol=1e-10)
    moved = np.any(expected != [target.start, *positions[:-1]], axis=1)
    np.testing.assert_array_equal(stats["accept_share"], moved)
    # A rejection that is seen early reports 0, one that is not at least α.
    reported = stats["accept_prob"]
    assert (reported <= 1).all()
    assert ((reported == 0) | (reported >= alphas * (1 - 1e-7))).all()
    return stats, alphas


def redraws(kept):
    """Transitions after which there is a new z."""
    z = [p.subsample.z for p in kept]
    return [t for t in range(1, len(z)) if not np.array_equal(z[t], z[t - 1])]


def z_score(difference):
    return difference.mean() / (difference.std() / np.sqrt(len(difference)))
