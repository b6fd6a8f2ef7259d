"""The surrogate, compiled and in numpy, against its formula."""

import numpy as np
import pytest
import reference

from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.approximation.moves import log_t
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.density import Surrogate, log_surrogate

D, M = 3, 8


def arbitrary(is_quadratic, n, seed=1):
    """Return a surrogate of n centres; what is not to be read is NaN."""
    rng = np.random.default_rng(seed)
    quadratic = np.zeros((D, D))
    quadratic[np.tril_indices(D)] = 0.3 * rng.standard_normal(6)
    rates = rng.uniform(0.2, 2, D)
    centres, weights = np.full((D, M), np.nan), np.full(M, np.nan)
    centres[:, :n], weights[:n] = rng.standard_normal((D, n)), 2 * rng.standard_normal(n)
    return allocate(
        Surrogate,
        {"d": D, "m": M},
        nu=5.0,
        is_quadratic=is_quadratic,
        constant=0.7,
        linear=rng.standard_normal(D) if is_quadratic else np.nan,
        quadratic=quadratic if is_quadratic else np.nan,
        bounds=[-2.0, 3.0],
        n=n,
        centres=centres,
        weights=weights,
        rates=rates,
    )


@pytest.mark.parametrize("n", [0, 5, M])
@pytest.mark.parametrize("is_quadratic", [False, True])
def test_log_surrogate(is_quadratic, n):
    surrogate = arbitrary(is_quadratic, n)
    sizes = np.repeat([0.0, 0.5, 3.0, 1e3], 10)
    u = sizes[:, None] * np.random.default_rng(2).standard_normal((40, D))
    by_hand = reference.Surrogate(surrogate)
    expected = np.array([by_hand.log_s(v) for v in u])
    scratch = np.full(M, np.nan)
    compiled = [log_surrogate(surrogate, v, scratch) for v in u]
    np.testing.assert_allclose(compiled, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(fit.values(surrogate, u), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("constant", "expected"), [(-9.0, -2.0), (0.5, 0.5), (9.0, 3.0)])
def test_the_surrogate_is_not_far_from_the_t_density(constant, expected):
    surrogate = arbitrary(False, 0)
    surrogate.constant[0] = constant
    u = np.array([0.4, -3.0, 20.0])
    base = log_t(u, surrogate.nu[0])
    assert log_surrogate(surrogate, u, np.zeros(M)) - base == pytest.approx(expected, rel=1e-12)
    assert fit.values(surrogate, u[None])[0] - base == pytest.approx(expected, rel=1e-12)


def test_far_out_it_falls_as_the_t_density_does():
    """Whatever the quadratic: both ways, up and down, and both in compiled code and in numpy."""
    surrogate = arbitrary(True, M)
    for sign, bound in ((-1, -2.0), (1, 3.0)):
        surrogate.quadratic[:] = sign * np.eye(D)
        for size in (1e3, 1e100):
            u = np.full(D, size)
            base = log_t(u, surrogate.nu[0])
            for found in (
                log_surrogate(surrogate, u, np.zeros(M)),
                fit.values(surrogate, u[None])[0],
            ):
                assert found - base == pytest.approx(bound, rel=1e-9)
