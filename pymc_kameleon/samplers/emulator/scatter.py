"""How much the outputs of a box scatter about any smooth function: a solver's tolerance, or noise.

An emulator is chosen by how it predicts, and does not tell small noise from what it has not learned
yet. So its hyperparameters are chosen anew here, by the marginal likelihood of all outputs, each
with a variance that is profiled out. Then errors of points that are left out are noise by the share
τ has in their variance.

Source: Rasmussen & Williams (2006), sections 5.4.1 and 5.4.2. Symbols: as in fit.py.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from pymc_kameleon.approximation.linalg import factorised, linear_algebra
from pymc_kameleon.samplers.approximation.learning import drops
from pymc_kameleon.samplers.emulator.fit import (
    ALL_STEPS,
    LEVELS,
    N_SEARCHED,
    N_TURNS,
    Hyper,
    problem_of,
)
from pymc_kameleon.samplers.emulator.learning import VARIANTS

NOISES = tuple(10.0**k for k in range(-11, 0))
"""Values of τ: also less than an emulator has, down to where rounding begins."""


class Scatter(NamedTuple):
    """What outputs of a box scatter by."""

    sd: np.ndarray  # (q,), where the posterior is
    spread: np.ndarray  # (q,), their standard deviations there
    share: float  # of the noise in the variance of what is left out

    @property
    def is_sure(self):
        """Whether noise is most of the errors, and more than an emulator always allows for.

        In 18 runs of nine smooth simulators it was not.
        """
        least = np.sqrt(min(LEVELS["noise"])) * np.median(self.spread)
        return bool(self.share > 0.5 and np.median(self.sd) > least)


def scatter_of(calls):
    """Return the Scatter of the Calls of a box; None if too little is known."""
    variant = calls.described["variant"]
    hyper = np.array(calls.described["hyper"][variant])
    drop = drops(calls.logp, calls.d)
    if (hyper < 0).any() or np.count_nonzero(drop == 0) < 2:
        return None
    hyper = Hyper(*map(int, hyper))
    with linear_algebra().limit(limits=1), np.errstate(all="ignore"):
        own = calls.x, calls.y, drop, calls.d, calls.curvature
        problem, y = problem_of(*own, VARIANTS[variant], N_SEARCHED)
        for _ in range(N_TURNS):
            problem.take_directions(problem.fit(hyper))
        hyper, noise = _most_likely(problem, [hyper, Hyper()])
        factor, noise = _factor(problem, hyper, noise), NOISES[noise] * problem.noise
        inverse = lapack.dtrtri(factor, lower=1)[0]
        variance = 1 / np.einsum("ij,ij->j", inverse, inverse)
        errors = lapack.dpotrs(factor, problem.targets, lower=1)[0] * variance[:, None]
        errors *= problem.scale * np.where(problem.log_outputs, y, 1.0)
        good, share = problem.drop == 0, noise / variance
        sd = np.sqrt(np.mean((share[:, None] * errors**2)[good], axis=0))
        return Scatter(sd, y[good].std(axis=0), float(share[good].mean()))


def _factor(problem, hyper, noise):
    """Return the Cholesky factor of K with another noise, a place in NOISES."""
    k = problem.covariance(hyper)
    k[np.diag_indices(len(k))] += (NOISES[noise] - hyper.value("noise")) * problem.noise
    return factorised(k)


def _most_likely(problem, starts):
    """Return the choice of most marginal likelihood, and the place of its noise.

    Parts of the starts are changed in turn.
    """
    targets, scores = problem.targets[:, problem.scale > 0], {}
    (n, q), names = targets.shape, ("rate", "linear", "floor")
    levels = {name: len(LEVELS[name]) for name in names}

    def score(choice):
        if choice not in scores:
            factor = _factor(problem, *choice)
            fits = np.sum(lapack.dtrtrs(factor, targets, lower=1)[0] ** 2, axis=0)
            scores[choice] = -n / 2 * np.log(fits).sum() - q * np.log(np.diag(factor)).sum()
        return scores[choice]

    def highest(choice):
        last = None
        while choice != last:
            last = hyper, noise = choice
            places = [noise + step for step in ALL_STEPS]
            own = [(hyper, place) for place in places if 0 <= place < len(NOISES)]
            choice = max([choice, *own], key=score)
            for name in names:
                hyper, noise = choice
                places = [getattr(hyper, name) + step for step in ALL_STEPS]
                inside = [place for place in places if 0 <= place < levels[name]]
                own = [(hyper._replace(**{name: place}), noise) for place in inside]
                choice = max([choice, *own], key=score)
        return choice

    first = [(hyper, np.searchsorted(NOISES, 0.9 * hyper.value("noise"))) for hyper in starts]
    return max(map(highest, first), key=score)
