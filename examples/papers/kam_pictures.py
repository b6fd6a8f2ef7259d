"""Pictures of KAM's proposals: figures 1, 2 and 6 of its paper, and directions of PCAKAM.

    python kam_pictures.py [--output DIRECTORY]

Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton, "Kernel adaptive Metropolis-Hastings",
ICML 2014. All targets are in two dimensions here. A chain tunes, unwhitened and with γ = 0.2 as in
the paper; the proposals are computed from its parameters. The paper does not say with which scales
its pictures were drawn. In two dimensions those that give the usual acceptance of 0.234 span half a
target and show nothing, so here the chain is tuned to 0.7, with a bandwidth of 3.
"""

import logging
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
from common import benchmark, pictures
from kam_targets import Banana, Flower

import pymc_kameleon as pk

SETTINGS = {
    "whiten": False,
    "gamma": 0.2,
    "n_subsample": 300,
    "kernel": pk.samplers.kernels.Gaussian(bandwidth=3),
    "target_accept": 0.7,
}
TUNE = 60_000
SEED = 3

BANANA = Banana(0.03, d=2)
FLOWER = Flower(d=2)
RING = Flower(amplitude=0.0, d=2)
BOX = {BANANA: (-25, 25, -8, 16), FLOWER: (-19, 19, -18, 22), RING: (-15, 15, -15, 17)}
"""What is shown: x₁ and x₂ from, to."""

CONTOUR = np.sqrt(-2 * np.log(1 - 0.95))
"""Radius of the circle that has 95 % of a standard normal in two dimensions."""


@dataclass
class Proposal:
    """KAM's proposal, computed from the parameters of a tuned step that does not whiten."""

    z: np.ndarray  # (m, d)
    sigma: float  # the bandwidth
    gamma: float
    nu: float

    @classmethod
    def tuned(cls, target):
        """Tune a chain on a target."""
        p = tune(pk.KAM(model=target.model(), **SETTINGS), target).parameters
        return cls.learned(p.subsample, p.nu0[0] * np.exp(p.log_rho[0]))

    @classmethod
    def learned(cls, subsample, nu=np.nan):
        """Take over what a step has learned."""
        z, gamma = subsample.z[:, : subsample.m[0]].T, np.exp(subsample.shape.log_scale[0])
        return cls(z, subsample.kernel.bandwidth[0], gamma, nu)

    def kernel(self, x, z):
        """Return k between all points x (n, d) and z (m, d), as (n, m)."""
        squares = np.sum((x[:, None] - z) ** 2, axis=-1)
        return np.exp(-squares / (2 * self.sigma**2))

    def features(self, x):
        """Return M H, (d, m), at a point x."""
        pull = 2 * self.kernel(x[None], self.z)[0] / self.sigma**2 * (self.z - x).T
        return pull - pull.mean(axis=1, keepdims=True)

    def covariance(self, x):
        """R(x) = γ²I + ν²M H Mᵀ."""
        features = self.features(x)
        return self.gamma**2 * np.eye(x.size) + self.nu**2 * features @ features.T

    def surface(self, x, y, beta):
        """g(x) = k(x, x) − 2k(x, y) − 2Σβ_i[k(x, z_i) − μ_z(x)] at points x (n, d)."""
        k = self.kernel(x, self.z)
        centred = k - k.mean(axis=1, keepdims=True)
        return 1 - 2 * self.kernel(x, y[None])[:, 0] - 2 * centred @ beta


def tune(step, target):
    """Tune a step by hand, from a point of its target."""
    start = {"x": target.draw(np.random.default_rng(SEED), 1)[0]}
    for _ in benchmark.driven(step, start, TUNE, 0, SEED):
        pass
    return step


def ridge(target, n):
    """Return n points along the curve on which the density is largest, (n, 2)."""
    if isinstance(target, Banana):
        x1 = np.linspace(-20, 20, n)
        return np.stack([x1, target.b * (x1**2 - target.v)], axis=1)
    theta = np.linspace(-np.pi, np.pi, n, endpoint=False)
    return target.curve(theta)[:, None] * np.stack([np.cos(theta), np.sin(theta)], axis=1)


# ---- parts of a picture -------------------------------------------------------------------------


def grid(target, n=300):
    """Return points (n², 2) that fill the target's box, row by row."""
    left, right, bottom, top = BOX[target]
    x1, x2 = np.meshgrid(np.linspace(left, right, n), np.linspace(bottom, top, n))
    return np.stack([x1.ravel(), x2.ravel()], axis=1)


def show_values(axis, target, values, **options):
    """Show the values at the points of `grid` as colours."""
    n = int(np.sqrt(values.size))
    axis.imshow(values.reshape(n, n), extent=BOX[target], origin="lower", aspect="equal", **options)
    left, right, bottom, top = BOX[target]
    axis.set(xlim=(left, right), ylim=(bottom, top), xlabel="$x_1$", ylabel="$x_2$")


def show_target(axis, target, z):
    """Show the density, and z upon it."""
    density = np.exp(target.log_density(grid(target)))
    show_values(axis, target, density, cmap="Greys", vmax=1.6)
    axis.plot(*z.T, ".", color=pictures.BLUE, ms=3, alpha=0.7, label="earlier draws, z")


def show_contour(axis, proposal, x, **options):
    """Draw the ellipse that has 95 % of the proposal from x."""
    angle = np.linspace(0, 2 * np.pi, 100)
    circle = CONTOUR * np.stack([np.cos(angle), np.sin(angle)])
    ellipse = x[:, None] + np.linalg.cholesky(proposal.covariance(x)) @ circle
    axis.plot(*ellipse, color=pictures.RED, **options)


# ---- the pictures -------------------------------------------------------------------------------


def draw_figure1(directory):
    """Draw g for two samples of β, and for each what a step down from y gives."""
    proposal, rng = Proposal.tuned(BANANA), np.random.default_rng(SEED)
    y = np.array([8.0, BANANA.b * (8.0**2 - BANANA.v)])
    figure, axes = plt.subplots(2, 1, figsize=(8, 8.4), layout="constrained", sharex=True)
    for axis in axes:
        beta = proposal.nu * rng.normal(size=len(proposal.z))
        values = proposal.surface(grid(BANANA), y, beta)
        limit = np.abs(values - 1).max()
        limits = {"vmin": 1 - limit, "vmax": 1 + limit}
        show_values(axis, BANANA, values, cmap="RdBu_r", alpha=0.8, **limits)
        axis.contour(
            values.reshape(300, 300), 14, extent=BOX[BANANA], colors="0.35", linewidths=0.5
        )
        axis.plot(*proposal.z.T, ".", color="black", ms=2, alpha=0.6, label="subsample z")
        step = proposal.features(y) @ beta
        cloud = y + step + proposal.gamma * rng.normal(size=(40, 2))
        axis.plot(*cloud.T, ".", color="gold", ms=5, mec="black", mew=0.4, label="proposals")
        axis.plot([y[0], y[0] + step[0]], [y[1], y[1] + step[1]], color="black", lw=1.5)
        axis.plot(*y, "*", color="white", ms=12, mec="black", label="y")
        show_contour(axis, proposal, y, lw=1.5, label="95 % of proposals, over all β")
        axis.legend(loc="upper center", ncols=4, fontsize=8)
    axes[0].set(title="g for two samples of β (blue is low), and the step −∇g(y)", xlabel="")
    pictures.save(figure, "kam_figure1.png", directory)


def draw_figure2(directory):
    """Draw contours of proposals on the banana."""
    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    draw_contours(axis, BANANA, 7)
    axis.set_title("Kernel adaptive Metropolis on a banana, B(0.03, 100)")
    pictures.save(figure, "kam_figure2.png", directory, shaded=True)


def draw_figure6(directory):
    """Draw contours of proposals on flower and ring."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.9), layout="constrained")
    draw_contours(axes[0], FLOWER, 24)
    draw_contours(axes[1], RING, 10)
    axes[0].set_title("KAM on the flower: 95 % of the proposals")
    axes[1].set_title("and on the ring")
    pictures.save(figure, "kam_figure6.png", directory, shaded=True)


def draw_contours(axis, target, n):
    """Draw the proposals from n points."""
    proposal = Proposal.tuned(target)
    show_target(axis, target, proposal.z)
    for i, x in enumerate(ridge(target, n)):
        show_contour(axis, proposal, x, lw=1.3, label="95 % of proposals" if i == 0 else None)
        axis.plot(*x, "+", color=pictures.RED, ms=6, label="from here" if i == 0 else None)
    axis.legend(loc="upper center", ncols=3, fontsize=8, columnspacing=1)


def draw_directions(directory):
    """Draw the leading directions of PCAKAM on the banana, as they are scaled after tuning."""
    step = pk.PCAKAM(model=BANANA.model(), whiten=False, gamma=0.2, n_subsample=300)
    p = tune(step, BANANA).parameters
    m, proposal = p.subsample.m[0], Proposal.learned(p.subsample)
    figure, axes = plt.subplots(
        2, 2, figsize=(9, 5.2), layout="constrained", sharex=True, sharey=True
    )
    for j, axis in enumerate(axes.flat):
        show_target(axis, BANANA, proposal.z)
        axis.set(title=f"$j = {j + 1}$")
        nu = np.exp(p.log_nu0[j] + p.log_rho[j])
        for x in ridge(BANANA, 13):
            w = nu * proposal.features(x) @ p.directions[j, :m]
            axis.plot(*np.stack([x - w, x + w], axis=1), color=pictures.RED, lw=1.5)
            axis.plot(*x, ".", color=pictures.RED, ms=5)
        axis.label_outer()
    figure.suptitle("PCAKAM on B(0.03, 100): $x ± ν_j w_j(x)$, the leading directions")
    pictures.save(figure, "pca_kam_directions.png", directory, shaded=True)


def main():
    """Draw all pictures."""
    directory = pictures.folder(__doc__)
    logging.getLogger("pymc_kameleon").setLevel(logging.WARNING)
    for draw in (draw_figure1, draw_figure2, draw_figure6, draw_directions):
        draw(directory)


if __name__ == "__main__":
    main()
