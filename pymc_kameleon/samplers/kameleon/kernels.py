"""Kernels k(x, z) of KAM and its relatives: ``pk.KAM(kernel=pk.samplers.kernels.Matern(4))``."""

from dataclasses import dataclass
from numbers import Real

import numpy as np
from scipy import special

from pymc_kameleon.samplers.kameleon.rkhs import GAUSSIAN, LINEAR, MATERN, Kernel
from pymc_kameleon.step.options import checked_number

TABLE_SIZE = 2048  # intervals of the table of a Matérn kernel


@dataclass(frozen=True)
class Gaussian:
    r"""Gaussian kernel, :math:`k(x, z) = \exp(-|x - z|^2 / 2\sigma^2)` [KAM, section 4.3].

    Parameters
    ----------
    bandwidth : float or "median", optional
        σ, in the sampler's coordinates (whitened, by default). "median" is half the median distance
        between points of the subsample z. Too small a bandwidth prevents mixing; too large a one
        merely gives adaptive Metropolis.

    Raises
    ------
    ValueError
        For another bandwidth.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.KAM(kernel=pk.samplers.kernels.Gaussian(1.5)))
    """

    bandwidth: float | str = "median"

    def __post_init__(self):
        check_bandwidth(self.bandwidth)

    def compiled(self):
        """Return the kernel as compiled code takes it."""
        return Kernel(GAUSSIAN, np.inf, 0.0, np.zeros((1, 2)), start(self.bandwidth))


@dataclass(frozen=True)
class Matern:
    r"""Matérn kernel, with rougher weights than the Gaussian, which is its limit.

    .. math:: k(x, z) = \frac{2^{1-v}}{\Gamma(v)} u^v K_v(u), \qquad u = \sqrt{2v}\, |x - z|/\ell

    Parameters
    ----------
    order : float, optional
        v, from 1.5 to 30: the kernel has to be differentiable. 4 as in [cKAM].
    bandwidth : float or "median", optional
        ℓ; as for :class:`.Gaussian`.

    Raises
    ------
    ValueError
        For another order or bandwidth.

    Notes
    -----
    [KAM], section 4.3, scales the argument without √(2v). Bessel functions come from a table with
    cubic interpolation, whose error is below 1e-10 for orders from 2 on, and 1e-7 for others.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.KAM(kernel=pk.samplers.kernels.Matern(4)))
    """

    order: float = 4
    bandwidth: float | str = "median"

    def __post_init__(self):
        check_bandwidth(self.bandwidth)
        if not (isinstance(self.order, Real) and 1.5 <= self.order <= 30):
            raise ValueError(f"order must be a number from 1.5 to 30, not {self.order!r}.")

    def compiled(self):
        """Return the kernel as compiled code takes it."""
        v = float(self.order)
        reach = np.sqrt(40 + 6 * v)
        root = np.linspace(0, reach, TABLE_SIZE + 1)
        table = np.stack(matern(v - 1, root), axis=1)
        return Kernel(MATERN, v, reach, table, start(self.bandwidth))


@dataclass(frozen=True)
class Linear:
    r"""Linear kernel, :math:`k(x, z) = x^\top z` [KAM, section 4.3].

    KAM is then an adaptive Metropolis walk with an isotropic part. It has no bandwidth.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.KAM(kernel=pk.samplers.kernels.Linear()))
    """

    bandwidth = 1.0

    def compiled(self):
        """Return the kernel as compiled code takes it."""
        return Kernel(LINEAR, np.inf, 0.0, np.zeros((1, 2)), start(self.bandwidth))


def start(bandwidth):
    """Return the bandwidth as an array; NaN if it is to be learned."""
    return np.full(1, np.nan if bandwidth == "median" else float(bandwidth))


def check_bandwidth(bandwidth):
    """Raise a ValueError unless it is "median" or a positive number."""
    if isinstance(bandwidth, str) and bandwidth != "median":
        raise ValueError(f'bandwidth must be a number or "median", not {bandwidth!r}.')
    if not isinstance(bandwidth, str):
        checked_number("bandwidth", bandwidth, 0, np.inf)


def matern(a, root):
    """Return M_a(u) = 2^{1−a}/Γ(a) u^a K_a(u) and its derivative by √u, at √u = `root`."""
    u = root[1:] ** 2
    unit = 2 ** (1 - a) / special.gamma(a) * u**a
    value = np.r_[1, unit * special.kv(a, u)]
    slope = np.r_[0, -2 * root[1:] * unit * special.kv(a - 1, u)]
    return value, slope


def covariance_from(kernel, z, x):
    """Return S(x) (d, d) of points z (d, m), where it need not be quick.

    As `rkhs.kernel_covariance` writes it; `kernel` is what compiled code takes.
    """
    towards, sigma, order = z - x[:, None], kernel.bandwidth[0], kernel.order
    r2, weights = np.sum(towards**2, axis=0), np.ones(z.shape[1])
    if kernel.family == GAUSSIAN:
        weights = np.exp(-r2 / (2 * sigma**2)) / sigma**2
    elif kernel.family == MATERN:
        root = np.sqrt(np.sqrt(2 * order * r2) / sigma)
        values, _ = matern(order - 1, np.r_[0, np.maximum(root, 1e-9)])
        weights = values[1:] * order / (order - 1) / sigma**2
    v = 2 * weights * towards
    v -= v.mean(axis=1, keepdims=True)
    return v @ v.T
