"""The fit of a box: against a slow version, on simulators, and on what is degenerate."""

import numpy as np
import pytest

from pymc_kameleon.approximation.linalg import squared_distances
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.emulator import fit as fits
from pymc_kameleon.samplers.emulator.fit import Hyper, fit_box, nearness, variants_of
from pymc_kameleon.samplers.emulator.gaussian_process import Emulator, Scratch, Structure, emulate

D = 3


def curves(x):
    """Return 6 positive outputs, of which one is constant, of 3 positive inputs."""
    times = np.array([0.2, 0.5, 1.0, 2.0, 4.0])
    a, b, c = x[:, :1], x[:, 1:2], x[:, 2:]
    y = a * np.exp(-b * times) + 0.1 * c
    return np.column_stack([y, np.full(len(x), 2.0)])


def points(n, seed=1, spread=0.3):
    """Return inputs, the first third scattered more widely, outputs, Δ and W²."""
    rng = np.random.default_rng(seed)
    width = np.where(np.arange(n) < n // 3, 3 * spread, spread)
    z = width[:, None] * rng.standard_normal((n, 3))
    x = np.exp(z)
    return x, curves(x), np.maximum(0, 20 * np.sum(z * z, axis=1) - 2 * D - 5), np.full(6, 400.0)


class Slow:
    """An emulator from its definition, by loops, with the inverse of K and differences."""

    def __init__(self, x, y, drop, curvature, logs, hyper, directions=None):
        self.logs, n = logs, len(x)
        self.log_inputs = np.array([logs[0]] * 3)
        self.log_outputs = np.array([logs[1]] * 5 + [False])
        omega = 1 / (1 + (drop / D) ** 2)
        omega[np.argsort(drop, kind="stable")[: 2 * D + 2]] = 1
        g, t = self.g(x), self.t_of(y)
        self.centre, self.mean = (np.average(rows, axis=0, weights=omega) for rows in (g, t))
        sd = np.sqrt(np.average((g - self.centre) ** 2, axis=0, weights=omega))
        self.scaling = np.diag(1 / sd)
        self.hyper, self.v = hyper, np.array([self.of(row) for row in x])
        self.moves = np.eye(3)
        if directions is not None:
            good = np.argsort(drop, kind="stable")[:25]
            slope = y[np.argmin(drop)] if logs[1] else np.ones(6)
            w = np.sqrt(curvature) * np.where(self.log_outputs, slope, 1)
            moves = sum(self._squared_slopes(directions, row, w) for row in x[good])
            values, vectors = np.linalg.eigh(moves)
            values = np.maximum(values / values[-1], 0) ** 0.7
            self.moves = vectors @ np.diag(values) @ vectors.T
        self.noise = hyper.value("noise") * (1 + (drop / (2 * D)) ** 2)
        self.k = np.array([[self.kernel(a, b) for b in self.v] for a in self.v])
        self.k += np.diag(self.noise)
        self.t = t
        self.alpha = np.linalg.inv(self.k) @ (t - self.mean)
        assert self.alpha.shape == (n, 6)

    def g(self, x):
        return np.log(x) if self.logs[0] else x

    def t_of(self, y):
        """Return outputs, or their logarithms: other outputs need not be positive."""
        return np.log(y, where=np.broadcast_to(self.log_outputs, y.shape), out=y.copy())

    def of(self, x):
        return self.scaling @ (self.g(x) - self.centre)

    def kernel(self, a, b):
        s, floor = self.hyper.value("rate"), self.hyper.value("floor")
        metric = (self.moves + floor * np.eye(3)) / (1 + floor)
        product, difference = a @ metric @ b, a - b
        linear = self.hyper.value("linear") * product
        return 100 + linear + (1 + s**2 * difference @ metric @ difference / 4) ** -2

    def predict(self, x):
        t = self.mean + [self.kernel(self.of(x), v) for v in self.v] @ self.alpha
        return np.where(self.log_outputs, np.exp(t), t)

    def errors_without_each(self, w):
        """Return errors of fits without a point, all else being the same."""
        errors = []
        for i in range(len(self.v)):
            rest = np.arange(len(self.v)) != i
            alpha = np.linalg.solve(self.k[np.ix_(rest, rest)], (self.t - self.mean)[rest])
            t = self.mean + (self.k[i, rest]) @ alpha
            errors.append(np.sqrt(np.sum((w * (t - self.t[i])) ** 2)))
        return np.array(errors)

    def _squared_slopes(self, other, x, w, h=1e-5):
        """Return JᵀW²J of another emulator, by differences in v."""
        back, slopes = np.linalg.inv(self.scaling), []
        for step in h * np.eye(3):
            up, down = (self.g(x) + sign * back @ step for sign in (1, -1))
            ends = [other(np.exp(g) if self.logs[0] else g) for g in (up, down)]
            ends = [self.t_of(y) for y in ends]
            slopes.append(w * (ends[0] - ends[1]) / (2 * h))
        return np.array(slopes) @ np.array(slopes).T


LOGS = [(False, False), (True, False), (False, True), (True, True)]


@pytest.mark.slow
@pytest.mark.parametrize("logs", LOGS)
@pytest.mark.parametrize("far", [0.0, 1e3])
def test_against_a_slow_version(logs, far):
    """Also where few points are good: the best ones count fully, whatever they are."""
    x, y, drop, curvature = points(30)
    drop = drop + far * np.arange(30.0)
    start, every = Hyper(floor=6), np.ones(len(x), bool)
    problem = fits._Problem(x, y, drop, every, D, curvature, logs)
    first = problem.fit(start)
    slow = Slow(x, y, drop, curvature, logs, start)
    new = np.exp(0.3 * np.random.default_rng(2).standard_normal((5, 3)))
    np.testing.assert_allclose(first.predict(new), [slow.predict(v) for v in new], rtol=1e-7)

    problem.take_directions(first)
    hyper = Hyper(rate=10, linear=5, noise=5, floor=6)
    slow = Slow(x, y, drop, curvature, logs, hyper, directions=slow.predict)
    found, expected = problem.fit(hyper), [slow.predict(v) for v in new]
    np.testing.assert_allclose(found.predict(new), expected, rtol=1e-6)
    best = y[np.argmin(drop)]
    w = np.sqrt(curvature) * np.where(slow.log_outputs, best, 1)
    errors = problem.errors(hyper)
    np.testing.assert_allclose(errors, slow.errors_without_each(w), rtol=1e-4, atol=1e-7)
    assert not np.allclose(errors, problem.errors(start), rtol=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("logs", LOGS)
def test_what_is_written_is_what_is_compiled(logs):
    x, y, drop, curvature = points(40)
    fit = fit_box(x, y, drop, D, curvature, logs)
    structure = Structure.of([(1, 2), (3, 6)], [(1, 0, 0, 0)])
    sizes = structure.sizes(50)
    emulator, scratch = allocate(Emulator, sizes), allocate(Scratch, sizes)
    other = fit_box(x[:, :1], y[:, :2], drop, D, curvature[:2])
    for _ in range(2):  # over itself, too
        fit.write(structure, emulator, 1)
        other.write(structure, emulator, 0)
    for row in points(5, seed=3)[0]:
        out = np.zeros(6)
        emulate(structure, emulator, 0, row, out, scratch)
        [expected], u = fit.predict(row[None]), fit.transformed(row[None])
        near = nearness(squared_distances(u, fit.u))
        terms = np.abs(fit.mean + u @ fit.slopes.T) + near**2 @ np.abs(fit.weights)
        slope = np.where(fit.log_outputs, expected, 1)
        assert (np.abs(out - expected) < 1e-12 * slope * terms[0]).all()  # they cancel


@pytest.mark.slow
@pytest.mark.parametrize("logs", LOGS)
def test_many_outputs_have_few_directions(logs):
    """Those of a curve at 300 times; and with noise of their own they have as many as points."""
    x, _, drop, _ = points(60)
    times, rng = np.linspace(0, 3, 300), np.random.default_rng(8)
    curves = x[:, :1] / (x[:, 1:2] + np.exp(-x[:, 2:] * times))
    structure, curvature = Structure.of([(3, 300)], [(0, 0, 0, 0)]), np.full(300, 1e3)
    emulator, scratch = (allocate(kind, structure.sizes(60)) for kind in (Emulator, Scratch))

    def write(y):
        fit = fit_box(x, y, drop, D, curvature, logs)
        fit.write(structure, emulator, 0)
        return fit

    def error(fit):
        """In units of noise, where a fit is: of logarithms by the outputs of the best point."""
        squares, out = [], np.zeros(300)
        for row in x:
            emulate(structure, emulator, 0, row, out, scratch)
            whole = fit.predict(row[None])[0]
            off = np.log(out / whole) if logs[1] else out - whole
            squares.append(np.sum((off * fit.per_noise) ** 2))
        return np.sqrt(fit.omega @ squares)

    fit = write(curves)
    assert 3 < emulator.rank[0] < 20
    assert error(fit) < fits.LEAST_ERROR * (1 + 1e-6)
    fit = write(curves * np.exp(0.1 * rng.standard_normal(curves.shape)))
    assert emulator.rank[0] == 0
    assert error(fit) < 1e-6


@pytest.mark.parametrize("logs", LOGS)
def test_derivatives(logs):
    x, y, drop, curvature = points(40)
    fit, here, h = fit_box(x, y, drop, D, curvature, logs), np.array([[1.1, 0.9, 1.2]]), 1e-4
    found, expected = fit.derivatives(here)[0], np.zeros((6, 3))
    for k, step in enumerate(h * np.eye(3)):
        if logs[0]:
            ends = [fit.predict(here * np.exp(sign * step)) for sign in (1, -1)]
        else:
            ends = [fit.predict(here + sign * step) for sign in (1, -1)]
        ends = [np.where(fit.log_outputs, np.log(end), end)[0] for end in ends]
        expected[:, k] = (ends[0] - ends[1]) / (2 * h)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("logs", LOGS)
def test_it_predicts(logs):
    """To a fraction of the noise, as it says itself; and a fit to shuffled outputs does not."""
    x, y, drop, curvature = points(60)
    new, truth, *_ = points(200, seed=5)
    good = np.abs(np.log(new)).max(axis=1) < 0.6

    def error(fit):
        errors = (fit.predict(new[good]) - truth[good]) * np.sqrt(curvature)
        return np.sqrt(np.mean(np.sum(errors**2, axis=1)))

    fit = fit_box(x, y, drop, D, curvature, logs)
    assert error(fit) < 0.5
    assert fit.error < 0.2
    shuffled = y[np.random.default_rng(6).permutation(60)]
    spoilt = fit_box(x, shuffled, drop, D, curvature, logs)
    assert error(spoilt) > 1
    assert spoilt.error > 1


def test_few_directions_of_many_inputs():
    """Outputs that depend on 2 of 20 inputs, as a box learns from their derivatives.

    A fifth of the error, ± a seventh: so a mean of four is less than half.
    """
    found, alike = np.transpose([errors_by_directions(seed) for seed in range(4)])
    assert np.mean(found / alike) < 0.5


def errors_by_directions(seed):
    """Return the error of a fit, and of one by which all directions are the same."""
    rng, n = np.random.default_rng(seed), 120
    x, new = rng.standard_normal((n, 20)), rng.standard_normal((200, 20))
    two = np.linalg.qr(rng.standard_normal((20, 2)))[0]

    def outputs(x):
        return np.column_stack([np.sin(1.5 * x @ two[:, 0]), np.tanh(x @ two).sum(axis=1)])

    def error(fit):
        return np.sqrt(np.mean((fit.predict(new) - outputs(new)) ** 2))

    fit = fit_box(x, outputs(x), np.zeros(n), 20, np.ones(2))
    for _ in range(3):
        fit = fit_box(x, outputs(x), np.zeros(n), 20, np.ones(2), start=fit.hyper)
    problem = fits._Problem(
        x, outputs(x), np.zeros(n), np.ones(n, bool), 20, np.ones(2), (False, False)
    )
    hyper, _ = problem.choose(Hyper(), fits.ALL_STEPS, n_rounds=3)
    return error(fit), error(problem.fit(hyper))


def test_the_choice_begins_at_the_last_one():
    x, y, drop, curvature = points(60)
    first = fit_box(x, y, drop, D, curvature)
    again = fit_box(x, y, drop, D, curvature, start=first.hyper)
    assert max(abs(a - b) for a, b in zip(first.hyper, again.hyper, strict=True)) <= 1
    far = Hyper(0, 0, 8, 0)
    none, near, anew = (
        fit_box(x, y, drop, D, curvature, start=far, look=look) for look in ("none", "next", "all")
    )
    assert none.hyper == far
    assert all(abs(a - b) <= 1 for a, b in zip(near.hyper, far, strict=True))
    assert anew.error < 0.5 * near.error


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("logs", LOGS)
def test_units_do_not_matter(scale, logs):
    x, y, drop, curvature = points(40)
    new = points(10, seed=8)[0]
    units = np.array([scale, 1.0, 1 / scale])
    first, second = (
        fit_box(x * a, y * b, drop, D, curvature / b**2, logs) for a, b in ((1, 1), (units, scale))
    )
    # Of choices that are as good, rounding may take another: they differ by less than they are off,
    # but where both extrapolate.
    off = (second.predict(new * units) / scale - first.predict(new)) * np.sqrt(curvature)
    assert np.sqrt(np.median(np.sum(off**2, axis=1))) < max(first.error, 1e-3)
    assert second.error == pytest.approx(first.error, rel=0.5)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_few_points(n):
    x, y, drop, curvature = points(n)
    fit = fit_box(x, y, drop, D, curvature, (True, True))
    assert np.isfinite(fit.predict(x)).all()
    if n == 1:
        np.testing.assert_allclose(fit.predict(2 * x), y)
    one = fit_box(x[:, :1], y[:, :1], drop, 1, curvature[:1])
    assert one.predict(x[:, :1]).shape == (n, 1)


def test_points_that_are_the_same():
    x, y, drop, curvature = points(20)
    often = np.repeat(np.arange(20), 4)
    fit = fit_box(x[often], y[often], drop[often], D, curvature)
    np.testing.assert_allclose(fit.predict(x[drop == 0]), y[drop == 0], atol=0.05)
    alone = fit_box(x[[0] * 9], y[[0] * 9], drop[[0] * 9], D, curvature, (True, True))
    np.testing.assert_allclose(alone.predict(x), np.tile(y[0], (20, 1)))


def test_what_does_not_vary():
    x, y, drop, curvature = points(40)
    wide = np.column_stack([x, np.full(40, 7.0), np.zeros(40)])
    fit, expected = (fit_box(v, y, drop, D, curvature) for v in (wide, x))
    np.testing.assert_array_equal(fit.transform[:, 3:], 0)
    moved = wide + np.array([0, 0, 0, 1, -1])
    np.testing.assert_allclose(fit.predict(moved), expected.predict(x), atol=expected.error / 20)
    np.testing.assert_array_equal(fit.predict(moved)[:, 5], 2.0)
    np.testing.assert_array_equal(fit.weights[:, 5], 0.0)


def test_curvature_that_says_nothing():
    """None, none known, or negative: outputs count by how they vary."""
    x, y, drop, _ = points(40)
    first, *others = (
        fit_box(x, y, drop, D, np.full(6, value)).predict(x) for value in (0, np.nan, -1)
    )
    for other in others:
        np.testing.assert_array_equal(first, other)
    np.testing.assert_allclose(first[drop == 0], y[drop == 0], atol=0.05)


def test_rows():
    """Those that failed are left out, then the best are taken, and the newest of equals."""
    x, y, drop = np.arange(8.0)[:, None], np.ones((8, 1)), np.array([5.0, 0, 0, 3, 0, 0, 9, 0])
    y[7], x[1] = np.nan, np.inf
    for m, expected in ((2, [4, 5]), (3, [2, 4, 5]), (4, [2, 3, 4, 5]), (9, [0, 2, 3, 4, 5, 6])):
        np.testing.assert_array_equal(fits._rows(x, y, drop, m)[0][:, 0], expected)
    assert fit_box(x, np.full((8, 1), np.nan), drop, 1, np.ones(1)) is None


def test_far_points_do_not_spoil_the_fit():
    x, y, drop, curvature = points(60)
    far_x = np.concatenate([x, [[1e3, 1e-3, 50.0], [1e-3, 10, 1e5]]])
    far_y = np.concatenate([y, curves(far_x[-2:])])
    far_drop = np.concatenate([drop, [1e5, 1e200]])
    for logs in LOGS:
        fit = fit_box(far_x, far_y, far_drop, D, curvature, logs)
        good = drop == 0
        np.testing.assert_allclose(fit.predict(x[good]), y[good], atol=0.03)


def test_variants():
    x, y, drop, _ = points(20)
    assert variants_of(x, y, drop, D) == [
        (False, False),
        (False, True),
        (True, False),
        (True, True),
    ]
    assert variants_of(-x, y, drop, D) == [(False, False), (False, True)]
    assert variants_of(x, 100 + y / y.max(), drop, D) == [(False, False), (True, False)]
    y[3], x[4] = -np.inf, np.nan  # rows that failed do not count
    assert len(variants_of(x, y, drop, D)) == 4
    x[5], far = -x[5], drop.copy()
    far[5] = 2 * drop.max()
    assert len(variants_of(x, y, far, D)) == 2
    assert len(variants_of(x, y, far, D, m=15)) == 4  # it is not among the best
    assert variants_of(x, np.full_like(y, np.nan), drop, D) == [(False, False)]
    np.testing.assert_array_equal(fits.have_logarithms(points(20)[1]), [True] * 5 + [False])


def test_there_is_no_logarithm_of_what_is_not_positive():
    x, y, drop, curvature = points(20)
    zero = np.array([[1.0, 0.0, 1.0]])
    assert np.isnan(fit_box(x, y, drop, D, curvature, (True, False)).predict(zero)).all()
    assert np.isfinite(fit_box(x, y, drop, D, curvature, (False, True)).predict(zero)).all()


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_squares_neither_underflow_nor_overflow(unit):
    columns = unit * np.array([[1.0, 5.0], [3.0, 5.0]])
    mean, sd = fits.scales(columns, np.array([0.5, 0.5]))
    np.testing.assert_allclose(mean, [2 * unit, 5 * unit])
    np.testing.assert_allclose(sd, [unit, 0.0])
