"""Log masses of modes by chains, where the curvature at a maximum tells nothing."""

import numpy as np
import pytest
from scipy.special import gammaln
from slow_chain import SlowChain

from pymc_kameleon.approximation.chain import Approximation, Chain, mode_at
from pymc_kameleon.core.arrays import allocate

D, NU = 12, 5


class OfT(Approximation):
    """A t density of ν degrees of freedom with this scale, 1 at its maximum, and more far away."""

    def __init__(self, scale, beyond=np.inf):
        factor = scale * np.eye(D)
        chain = allocate(Chain, {"d": D}, factor=factor, leap=0.3, most_leaps=8, n_inner=1)
        super().__init__(None, chain, None, None)
        self.scale, self.beyond = scale, beyond

    def values(self, z):
        square = np.sum((z / self.scale) ** 2, axis=1)
        log_s = -(NU + D) / 2 * np.log1p(square / NU)
        slopes = -(NU + D) / (NU + square)[:, None] * z / self.scale**2
        return np.where(z[:, 0] > self.beyond, 50.0, log_s), slopes

    def chains(self, z, n, rng):
        def log_s(u):
            [value], [slope] = self.values(self.z_of(u)[None])
            return value, slope @ self.chain.factor

        slow = SlowChain(self.chain._replace(most_leaps=[int(self.chain.most_leaps[0])]), log_s)
        u, places, accept_prob = list(self.u_of(z)), [], []
        for _ in range(n):
            u, own = zip(*(slow.transition(one, rng) for one in u), strict=True)
            places.append(self.z_of(np.array(u)))
            accept_prob.append(own)
        return np.array(places), None, np.array(accept_prob)


EXACT = gammaln(NU / 2) - gammaln((NU + D) / 2) + D / 2 * np.log(NU * np.pi)
"""Log of the integral, where the scale is 1."""

BY_CURVATURE = D / 2 * np.log(2 * np.pi * NU / (NU + D))
"""The same of a normal with the curvature at the maximum."""


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_of_a_t_density(seed):
    """By chains its error is a third of that by the curvature at the maximum, or less."""
    rng = np.random.default_rng(seed)
    found = mode_at(OfT(0.1), np.zeros(D), 0.1 * np.eye(D), rng).mass - D * np.log(0.1)
    found += D / 2 * np.log(2 * np.pi)  # the constant
    assert abs(found - EXACT) < 1.5
    assert abs(BY_CURVATURE - EXACT) > 3


def test_draws_that_have_left_the_mode_count_as_its_maximum():
    """Where s is high by mistake, far from all that was evaluated."""
    rng = np.random.default_rng(2)
    assert mode_at(OfT(1.0, beyond=1.0), np.zeros(D), np.eye(D), rng).mass < 1.5 * D
