"""What samplers share whose proposal takes the covariance of the posterior.

Symbols: μ_k and Σ_k the mean and covariance that chain k has learned, W the mean of Σ_k, B the
covariance of μ_k.
"""

import numpy as np

from pymc_kameleon.approximation.modes import Mode
from pymc_kameleon.step.base import KameleonStep
from pymc_kameleon.step.pooling import in_the_same_place

COLLAPSED = 1e-150
"""Standard deviation below which a chain has lost its shape: the square is next to no number."""


class LearnedShape(KameleonStep):
    """A sampler that learns a covariance, by core/shape.py; the chains of a run pool it."""

    learns = "together"

    def _shape(self):
        """Return the Shape and the ShapeTuning that are learned, or None."""
        return self.parameters, self.tuning.shape

    def _learned_factor(self):
        return None if self._shape() is None else self._shape()[1].moments.factor

    def _use_warm_start(self, found):
        if self._shape() is not None:
            shape, tuning = self._shape()
            tuning.moments.mean[:] = found.x
            tuning.moments.factor[:] = shape.factor[:] = found.factor

    def pauses(self):
        """Return the draws of tuning before which the chains pool their covariances."""
        if self._shape() is None:
            return []
        n, moments = self.tuning.n, self._shape()[1].moments
        times = [moments.n_seed]
        while 2 * times[-1] <= moments.n_fast:
            times.append(2 * times[-1])
        times += [n * i // 16 for i in range(9, 16)]
        return sorted({-(-t // self.steps_per_draw) for t in times})

    @classmethod
    def learn(cls, chains):
        """Pool the means and covariances of chains in the same place."""
        learning = [chain for chain in in_the_same_place(chains) if chain._shape()]
        every = [chain._shape()[1].moments for chain in learning]
        several = any(chain.monitor.ends > 1 for chain in learning)
        for group in _by_mode(every) if several else [every]:
            pool_moments(group)


def _by_mode(every):
    """Return groups of moments that are of the same mode as the first one; collapsed are of any."""
    groups = []
    for moments in sorted(every, key=_has_collapsed):
        own = Mode(moments.mean, moments.factor, 0.0)
        for mode, group in groups:
            if _has_collapsed(moments) or mode.is_same(own):
                group.append(moments)
                break
        else:
            groups.append((own, [moments]))
    return [group for _, group in groups]


def _has_collapsed(moments):
    return not np.diag(moments.factor).min() > COLLAPSED  # it may be NaN


def pool_moments(chains):
    """Give all chains W + B, B at most W in each direction, but for chains whose Σ collapsed."""
    known = [moments for moments in chains if not _has_collapsed(moments)]
    if len(chains) < 2 or not known:
        return
    means = np.array([moments.mean for moments in known])
    within = np.mean([moments.factor @ moments.factor.T for moments in known], axis=0)
    factor = np.linalg.cholesky(within)
    u = np.linalg.solve(factor, (means - means.mean(axis=0)).T)
    values, vectors = np.linalg.eigh(u @ u.T / len(known))
    between = (vectors * np.clip(values, 0.0, 1.0)) @ vectors.T
    pooled = factor @ np.linalg.cholesky(np.eye(len(factor)) + between)
    for moments in chains:
        moments.mean[:] = means.mean(axis=0)
        moments.factor[:] = pooled
