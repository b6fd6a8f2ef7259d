"""The compiled emulator and its reverse derivative, against the formula in plain numpy."""

import numpy as np
import pytest

from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.emulator.gaussian_process import (
    Emulator,
    Scratch,
    Structure,
    emulate,
    pull_back,
)

M = 9
STRUCTURE = Structure.of(
    [(3, 2), (1, 5), (2, 1)],
    [(0, 0, 0, 0), (1, 3, 2, 0), (0, 4, 7, 0), (2, 7, 9, 1), (1, 9, 10, 1)],
)
"""The first two boxes are applied twice, between each other."""

P, Q = 10, 15


def places(box):
    """Return the slices of a box in arrays of inputs, outputs and squares."""
    p, q = STRUCTURE.boxes[:, 0], STRUCTURE.boxes[:, 1]
    starts = [sum(sizes[:box]) for sizes in (p, q, p * p)]
    ends = [sum(sizes[: box + 1]) for sizes in (p, q, p * p)]
    return [slice(start, end) for start, end in zip(starts, ends, strict=True)]


RANKS = [0, 0, 0], [0, 3, 1]
"""Without a basis, and with one for the second and the third box."""


def arbitrary(n, rank, log_inputs=0, log_outputs=0, seed=1):
    """Return an emulator of `n` points of each box; what is not to be read is NaN."""
    rng, sizes = np.random.default_rng(seed), STRUCTURE.sizes(M)
    emulator = allocate(
        Emulator,
        sizes,
        n=n,
        log_inputs=log_inputs,
        log_outputs=log_outputs,
        u=np.nan,
        weights=np.nan,
        rank=rank,
        basis=np.nan,
        centre=0.3 * rng.standard_normal(sizes["inputs"]),
        transform=rng.standard_normal(sizes["squares"]),
        slopes=rng.standard_normal(sizes["slopes"]),
        mean=rng.standard_normal(sizes["outputs"]),
    )
    for array in (emulator.u, emulator.weights):
        by_column = array.reshape(-1, M)
        for box in range(len(STRUCTURE.boxes)):
            inputs, outputs, _ = places(box)
            rows = outputs if array is emulator.weights else inputs
            shape = by_column[rows, : emulator.n[box]].shape
            by_column[rows, : emulator.n[box]] = rng.standard_normal(shape)
    for box, r in enumerate(rank):
        basis_of(emulator, box)[:r] = rng.standard_normal((r, STRUCTURE.boxes[box, 1]))
    return emulator


def basis_of(emulator, box):
    """Return the places (M / 2, q) of a box's basis."""
    outputs = places(box)[1]
    own = emulator.basis[M // 2 * outputs.start : M // 2 * outputs.stop]
    return own.reshape(M // 2, STRUCTURE.boxes[box, 1])


def by_hand(emulator, box, x):
    """Return the outputs of a box at x, term by term."""
    inputs, outputs, squares = places(box)
    p, n = len(x), emulator.n[box]
    g = np.where(emulator.log_inputs[inputs], np.log(np.abs(x)), x) - emulator.centre[inputs]
    u = emulator.transform[squares].reshape(p, p) @ g
    points = emulator.u.reshape(-1, M)[inputs]
    start = sum(p * q for p, q in STRUCTURE.boxes[:box])
    r, q = emulator.rank[box], outputs.stop - outputs.start
    tau = np.zeros(r or q)
    for j in range(tau.size if n > 0 else 0):
        tau[j] = np.sum(emulator.slopes[start + j * p : start + (j + 1) * p] * u)
        for i in range(n):
            alpha = emulator.weights.reshape(-1, M)[outputs][j, i]
            tau[j] += alpha / (1 + np.sum((u - points[:, i]) ** 2) / 4) ** 2
    t = emulator.mean[outputs] + (tau @ basis_of(emulator, box)[:r] if r > 0 else tau)
    return np.where(emulator.log_outputs[outputs], np.exp(t), t)


def room():
    """Return scratch that is not to be read before it is written."""
    scratch = allocate(Scratch, STRUCTURE.sizes(M))
    for array in scratch:
        array[:] = np.nan
    return scratch


def inputs(seed=3):
    return np.exp(0.4 * np.random.default_rng(seed).standard_normal(P))


LOGS = {
    "none": (0, 0),
    "inputs": (1, 0),
    "outputs": (0, 1),
    "some": (np.arange(6) % 2, np.arange(8) % 2),
}


@pytest.mark.parametrize("logs", LOGS)
@pytest.mark.parametrize("n", [[M, M, M], [5, 0, 1]])
@pytest.mark.parametrize("rank", RANKS)
def test_outputs(rank, n, logs):
    emulator, x, y = arbitrary(n, rank, *LOGS[logs]), inputs(), np.full(Q, np.nan)
    scratch, left = room(), 0
    for k, (box, at_x, at_y, _) in enumerate(STRUCTURE.applications):
        p, q = STRUCTURE.boxes[box]
        emulate(STRUCTURE, emulator, k, x, y, scratch)
        expected = by_hand(emulator, box, x[at_x : at_x + p])
        np.testing.assert_allclose(y[at_y : at_y + q], expected, rtol=1e-11)
        left += q
        assert np.isnan(y).sum() == Q - left  # nothing else is written
    if n[1] == 0:
        mean = emulator.mean[places(1)[1]]
        np.testing.assert_allclose(
            y[2:7], np.where(emulator.log_outputs[places(1)[1]], np.exp(mean), mean)
        )


@pytest.mark.slow
@pytest.mark.parametrize("logs", LOGS)
@pytest.mark.parametrize("n", [[M, M, M], [5, 0, 1]])
@pytest.mark.parametrize("rank", RANKS)
def test_the_derivative_back(rank, n, logs):
    """Of Σ b_j y_j against differences; all outputs first, as in a model, and then all back."""
    emulator, x, y = arbitrary(n, rank, *LOGS[logs]), inputs(), np.zeros(Q)
    y_bar, x_bar = np.random.default_rng(4).standard_normal(Q), np.full(P, np.nan)
    scratch = room()
    applications = STRUCTURE.applications
    for k in range(len(applications)):
        emulate(STRUCTURE, emulator, k, x, y, scratch)
    for _ in range(2):  # it leaves all that it needs as it was
        for k in reversed(range(len(applications))):
            pull_back(STRUCTURE, emulator, k, x, y, y_bar, x_bar, scratch)
    expected, h = np.zeros(P), 1e-5
    for box, at_x, at_y, _ in applications:
        p, q = STRUCTURE.boxes[box]
        here, weights = x[at_x : at_x + p], y_bar[at_y : at_y + q]
        for a, step in enumerate(h * np.eye(p)):
            up, down = by_hand(emulator, box, here + step), by_hand(emulator, box, here - step)
            expected[at_x + a] = weights @ (up - down) / (2 * h)
    np.testing.assert_allclose(x_bar, expected, rtol=1e-6, atol=1e-8)
    if n[1] == 0:
        assert x_bar[3] == 0 == x_bar[9]


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_there_is_no_logarithm_of_what_is_not_positive(value):
    x, y = inputs(), np.zeros(Q)
    x[1] = value
    emulate(STRUCTURE, arbitrary(M, RANKS[0], 1, 0), 0, x, y, room())
    assert np.isnan(y[:2]).all()
    emulate(STRUCTURE, arbitrary(M, RANKS[0], 0, 1), 0, x, y, room())
    assert np.isfinite(y[:2]).all()


def test_the_structure_says_where_all_is():
    sizes = STRUCTURE.sizes(M)
    assert [sizes[name] for name in ("inputs", "outputs", "squares")] == [6, 8, 14]
    assert sizes["applied inputs"] == P
    for box in range(3):
        found = STRUCTURE.input_places, STRUCTURE.output_places, STRUCTURE.square_places
        assert [place[box] for place in found] == [place.start for place in places(box)]
