"""How EmulatorMetropolis fits its emulators, in Python, while tuning.

Symbols: as in density.py; Δ how far a log-density is below the best, but for what is usual.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import floats, integers
from pymc_kameleon.samplers.approximation import learning
from pymc_kameleon.samplers.approximation.learning import drops
from pymc_kameleon.samplers.emulator import fit

VARIANTS = (False, False), (False, True), (True, False), (True, True)
"""Of inputs and outputs, whether logarithms are taken where they can be."""

LEAST_SCORE, LARGEST_LOGP_ERROR, MEMORY, SAME_SCORE, FAR_WORSE = 1e-3, 20.0, 0.5, 1.2, 3.0
"""Errors in log-density below and above which no difference counts, for a variant's score; the
weight of earlier ones; the ratio up to which scores are the same; and from which one is given up.
"""

CURVATURE_STEP, N_PROBES = 1e-4, 8
"""Finite differences of the log-density in outputs, relative to these, and how many."""


class Choices(NamedTuple):
    """What earlier fits have found."""

    hyper: floats("boxes", 4, 5)  # of each variant; NaN before there is one
    scores: floats("boxes", 4, 2)  # sum of errors, in log-density, at points unknown to it; weights
    variant: integers("boxes")  # the one in use
    widening: floats(1)  # r, relative to where good points are
    n_full: integers(1)  # evaluations when hyperparameters were last chosen among all


class Evaluations(NamedTuple):
    """Calls of all black boxes, one row for each evaluation of the log-density."""

    z: np.ndarray  # (n, d)
    logp: np.ndarray  # (n,)
    log_s: np.ndarray  # (n,), NaN unless a move by the emulator proposed it
    x: np.ndarray  # (n, P)
    y: np.ndarray  # (n, Q)

    @classmethod
    def of(cls, evaluated, structure):
        """Return the same evaluations, with what a fit has noted split up."""
        n_inputs = structure.sizes(1)["applied inputs"]
        *known, noted = evaluated
        return cls(*known, noted[:, :n_inputs], noted[:, n_inputs:])

    def __getitem__(self, rows):
        return Evaluations(*(part[rows] for part in self))


def evaluations_of(chains):
    """Return the Evaluations of chains."""
    return Evaluations.of(learning.evaluations_of(chains), chains[0].parameters.s.structure)


# ---- emulators ----------------------------------------------------------------------------------


def with_images(known, emulated, log_density):
    """Return Evaluations with their images, where black boxes return the same."""
    mirrors, parts = emulated.mirrors, [known]
    maps = group_of(mirrors.maps[: mirrors.n_same[0]], len(mirrors.maps))
    for matrix in maps if len(known.z) else ():
        z = known.z @ matrix.T
        points = whole_points(log_density, z)
        x, logp = log_density.inputs_at(points, known.y), log_density.logp_given(points, known.y)
        images = Evaluations(z, logp, np.full(len(z), np.nan), x, known.y)
        parts.append(images[(x != known.x).any(axis=1)])
    return Evaluations(*map(np.concatenate, zip(*parts, strict=True)))


def group_of(maps, most):
    """Return products of maps (d, d), each once, without the identity, at most so many."""
    found = list(maps)
    for one in found:  # which grows
        for other in maps:
            product = other @ one
            known = [np.eye(len(product)), *found]
            if len(found) < most and not any(np.array_equal(product, g) for g in known):
                found.append(product)
    return found


def mean_errors(scores, variants):
    """Return the mean errors of variants so far, infinite of those that have none."""
    n = {k: scores[k, 1] for k in variants}
    return {k: max(scores[k, 0] / n[k], LEAST_SCORE) if n[k] > 0 else np.inf for k in variants}


def contenders(scores, variants):
    """Return the variants that may be the best one: others are not fitted any more."""
    errors = mean_errors(scores, variants)
    limit = FAR_WORSE * min(errors.values())
    return [k for k in variants if errors[k] <= limit]


def best_variant(scores, fits):
    """Return the variant of the least mean error; of about as good ones, by leave-one-out error."""
    errors = mean_errors(scores, fits)
    limit = SAME_SCORE * min(errors.values())
    return min((k for k in fits if errors[k] <= limit), key=lambda k: fits[k].error)


def unpredicted(density, log_density, known, n):
    """Return the median error of the last n outputs, in units of noise.

    It is relative to how far they are from the outputs of the best point, so that no scale of the
    noise changes it.
    """
    weights = np.sqrt(curvatures(log_density, known))
    y, best = known.y[-n:], known.y[np.argmax(np.nan_to_num(known.logp, nan=-np.inf))]
    predicted = density.emulate(known.x[-n:])
    errors, changes = (np.linalg.norm(weights * (y - z), axis=1) for z in (predicted, best))
    return np.nanmedian(errors / changes) if np.isfinite(errors / changes).any() else 0.0


def whole_points(log_density, z):
    """Return points (k, n) of own coordinates z (k, d), with the other variables as they are."""
    return np.column_stack([z, np.tile(log_density.point[z.shape[1] :], (len(z), 1))])


def curvatures(log_density, known):
    """Return −∂²log π/∂y² (Q,) at the best point; the squared slope where that vanishes.

    All outputs change at once, by random signs, which has the right mean.
    """
    best = np.argmax(np.where(np.isfinite(known.logp), known.logp, -np.inf))
    y, rng = known.y[best], np.random.default_rng(0)
    step = CURVATURE_STEP * np.maximum(np.abs(y), 1e-3 * np.abs(y).max(initial=1e-300))
    signs = rng.choice([-1.0, 1.0], (N_PROBES, y.size))
    ends = np.concatenate([y + signs * step, y - signs * step, y[None]])
    points = np.repeat(whole_points(log_density, known.z[best][None]), len(ends), axis=0)
    slopes, _ = log_density.gradients_given(points, ends)
    changes = signs * (slopes[N_PROBES : 2 * N_PROBES] - slopes[:N_PROBES])
    curvature = np.nan_to_num(changes.mean(axis=0) / (2 * step), posinf=0.0, neginf=0.0)
    square = np.nan_to_num(slopes[-1]) ** 2
    return np.where(np.abs(curvature) > 1e-6 * square, np.abs(curvature), square)


def misfit(log_density, known):
    """Return χ² of the best point's outputs, against those that fit best, and their number."""
    best = np.argmax(np.where(np.isfinite(known.logp), known.logp, -np.inf))
    point = whole_points(log_density, known.z[best][None])
    slopes, _ = log_density.gradients_given(point, known.y[best][None])
    curvature, slopes = curvatures(log_density, known), np.nan_to_num(slopes[0])
    counts = curvature > 0
    return np.sum(slopes[counts] ** 2 / curvature[counts]), np.count_nonzero(counts)


class BoxCalls:
    """What one black box was given and has returned, by application; earlier runs' calls first.

    `fine` are those that are not of its coarse model.
    """

    def __init__(self, structure, b, known, drop, curvature, d, most, earlier):
        p, q = structure.boxes[b]
        of_box = structure.applications[structure.applications[:, 0] == b]
        self.inputs = [slice(x, x + p) for _, x, _, _ in of_box]
        self.outputs = [slice(y, y + q) for _, _, y, _ in of_box]
        self.b, self.known, self.d, self.most = b, known, d, most
        x, y, logp, fine = earlier
        self.n_earlier = len(x)
        drop_of_earlier = drops(np.append(logp, known.logp), d)[: len(x)]
        self.drop = np.concatenate([drop_of_earlier, np.repeat(drop, len(of_box))])
        self.x = np.concatenate([x, _rows_of(known.x, self.inputs)])
        self.y = np.concatenate([y, _rows_of(known.y, self.outputs)])
        self.fine = np.append(fine, np.ones(len(self.x) - len(x), bool))
        self.curvature = np.mean([curvature[part] for part in self.outputs], axis=0)
        self.variants = [
            VARIANTS.index(pair) for pair in fit.variants_of(self.x, self.y, self.drop, d, most)
        ]

    def fit(self, k, hyper, look, rows=None):
        """Return a Fit of the k-th variant, to all or to some of the evaluations."""
        chosen = slice(None)
        if rows is not None:
            own = np.repeat(rows, len(self.inputs))
            chosen = np.concatenate([np.ones(self.n_earlier, bool), own])
        return fit.fit_box(
            self.x[chosen],
            self.y[chosen],
            self.drop[chosen],
            self.d,
            self.curvature,
            VARIANTS[k],
            hyper,
            self.most,
            look,
            self.fine[chosen],
        )

    def predicted(self, fitted, rows):
        """Return y (k, Q) of evaluations `rows`, with this box emulated and others as they are."""
        y = self.known.y[rows].copy()
        for inputs, outputs in zip(self.inputs, self.outputs, strict=True):
            y[:, outputs] = fitted.predict(self.known.x[rows][:, inputs])
        return y


def _rows_of(values, parts):
    stacked = np.stack([values[:, part] for part in parts], axis=1)
    return stacked.reshape(-1, stacked.shape[2])


def earlier_calls(reused, structure, b, log_density, known):
    """Return x (n, p), y (n, q), log π (n,) and which are fine, of a box's calls before this run.

    log π is that of the best evaluation with the outputs of one application replaced, at its
    highest.
    """
    p, q = structure.boxes[b]
    coarse = len(structure.boxes) + b
    rows = reused[np.isin(reused[:, 0], [b, coarse])] if reused.size else reused
    if len(rows) == 0:
        return np.zeros((0, p)), np.zeros((0, q)), np.zeros(0), np.zeros(0, bool)
    x, y = rows[:, 1 : 1 + p], rows[:, 1 + p : 1 + p + q]
    best = np.argmax(np.where(np.isfinite(known.logp), known.logp, -np.inf))
    points = np.repeat(whole_points(log_density, known.z[best][None]), len(rows), axis=0)
    logp = np.full(len(rows), -np.inf)
    for _, _, place, _ in structure.applications[structure.applications[:, 0] == b]:
        outputs = np.tile(known.y[best], (len(rows), 1))
        outputs[:, place : place + q] = y
        logp = np.fmax(logp, log_density.logp_given(points, outputs))
    return x, y, logp, rows[:, 0] == b


def score(box, choices, log_density, is_new):
    """Let the variants be scored by their errors, in log-density, at points they do not know."""
    known = box.known
    rows = np.flatnonzero(is_new & np.isfinite(known.y).all(axis=1) & np.isfinite(known.logp))
    if len(rows) == 0:
        return
    points = whole_points(log_density, known.z[rows])
    truth = log_density.logp_given(points, known.y[rows])
    weights = 1 / (1 + (drops(known.logp, box.d)[rows] / box.d) ** 2)
    for k in contenders(choices.scores[box.b], box.variants):
        hyper, scores = unpacked(choices.hyper[box.b, k]), choices.scores[box.b, k]
        fitted = None if hyper is None else box.fit(k, hyper, "none", ~is_new)
        if fitted is None:
            continue
        errors = np.abs(log_density.logp_given(points, box.predicted(fitted, rows)) - truth)
        errors = np.where(
            np.isfinite(errors), np.minimum(errors, LARGEST_LOGP_ERROR), LARGEST_LOGP_ERROR
        )
        scores[:] = MEMORY * scores + [weights @ errors, weights.sum()]


def unpacked(hyper):
    """Return what an array of numbers stands for; None for NaN."""
    return None if np.isnan(hyper[0]) else fit.Hyper(*map(int, hyper))
