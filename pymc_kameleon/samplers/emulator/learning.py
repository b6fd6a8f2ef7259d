"""How EmulatorMetropolis learns: emulators, the chain on s, shares; in Python, while tuning.

Symbols: as in density.py; Δ how far a log-density is below the best, but for what is usual; w = π/s
at the ends of moves.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.chain import (
    FIRST_LENGTHS,
    LAST_LENGTHS,
    MEMORY_OF_SHAPE,
    NEXT_LENGTHS,
    learn_chain,
)
from pymc_kameleon.approximation.linalg import linear_algebra, whitened
from pymc_kameleon.core.arrays import copy_arrays, floats, integers
from pymc_kameleon.samplers.emulator import fit
from pymc_kameleon.samplers.emulator.inner_chain import EmulatedDensity
from pymc_kameleon.samplers.surrogate import learning as surrogate

VARIANTS = (False, False), (False, True), (True, False), (True, True)
"""Of inputs and outputs, whether logarithms are taken where they can be."""

USUAL_DROP = 2, 5
"""Times d, and plus: so far below the best a draw of the posterior may be."""

LEAST_SCORE, LARGEST_LOGP_ERROR, MEMORY, SAME_SCORE, FAR_WORSE = 1e-3, 20.0, 0.5, 1.2, 3.0
"""Errors in log-density below and above which no difference counts, for a variant's score; the
weight of earlier ones; the ratio up to which scores are the same; and from which one is given up.
"""

CURVATURE_STEP, N_PROBES = 1e-4, 8
"""Finite differences of the log-density in outputs, relative to these, and how many."""

N_TAIL, TAIL_FACTORS, TAIL_DROP = 64, (1.2, 2.0), 12.0
"""Points in tails that are thought of; how far from the mean they are, relative to draws; how far
log s may be below its median there."""

FAR_TOO_HIGH = -5.0
"""Median of log w below which s is high where nothing is known."""

EMULATED_SHARE, OTHER_SHARES, NU = 0.85, (0.6, 0.4, 0.0, 0.0), 5.0
"""Share of moves by the emulator; of all others, of walks and reference moves; and the degrees of
freedom of the t which these go by."""


LEAST_WORTH, ENOUGH_JUDGED, LEAST_EMULATED = 0.3, 40, 0.05
"""Worth of a move by the emulator below which it does not predict, by so many moves (2 would be
independent draws); and the share of such moves then, at least."""


class Choices(NamedTuple):
    """What earlier fits have found."""

    hyper: floats("boxes", 4, 4)  # of each variant; NaN before there is one
    scores: floats("boxes", 4, 2)  # sum of errors, in log-density, at points unknown to it; weights
    variant: integers("boxes")  # the one in use
    widening: floats(1)  # r, relative to where good points are
    share: floats(1)  # effective share of the weights π/s of the newest moves
    n_judged: integers(1)  # moves by the emulator that it was judged by
    n_full: integers(1)  # evaluations when hyperparameters were last chosen among all
    climbs: integers(2)  # on the way, and of these to the best mode; 0 if one was enough
    looked: integers(1)  # whether mirror images of the best place were looked at


class Evaluations(NamedTuple):
    """Calls of all black boxes, one row for each evaluation of the log-density."""

    z: np.ndarray  # (n, d)
    logp: np.ndarray  # (n,)
    log_s: np.ndarray  # (n,), NaN unless a move by the emulator proposed it
    x: np.ndarray  # (n, P)
    y: np.ndarray  # (n, Q)

    @classmethod
    def of_rows(cls, rows, d, n_inputs):
        """Return those of rows of z, log π, log s, x and y."""
        ends = np.cumsum([d, 1, 1, n_inputs])
        z, logp, log_s, x, y = np.split(rows, ends, axis=1)
        return cls(z, logp[:, 0], log_s[:, 0], x, y)

    def __getitem__(self, rows):
        return Evaluations(*(part[rows] for part in self))


def evaluations_of(chains, newest=False):
    """Return the Evaluations of chains, or those since the last fit."""
    parts = []
    for chain in chains:
        rows, n = chain.tuning.evaluated, int(chain.tuning.n_evaluated[0])
        since = int(chain.tuning.n_learned[0]) if newest else 0
        kept = min(n - since, len(rows))
        parts.append(rows[np.arange(n - kept, n) % len(rows)])
    first = chains[0]
    rows = np.concatenate(parts)
    return Evaluations.of_rows(rows, first.state.x.size, first.state.inputs.size)


def note(step, z, logp, y):
    """Add an evaluation at z (d,), with outputs y (Q,), to those that a step has made."""
    tuning = step.tuning
    x = step.log_density.inputs_at(whole_points(step.log_density, z[None]), y[None])[0]
    row = np.concatenate([z, [logp, np.nan], x, y])
    tuning.evaluated[tuning.n_evaluated[0] % len(tuning.evaluated)] = row
    tuning.n_evaluated[0] += 1


def best_of(step):
    """Return the best point that a step has evaluated, with finite outputs, and its log-density."""
    known = evaluations_of([step])
    usable = np.isfinite(known.logp) & np.isfinite(known.y).all(axis=1)
    best = np.argmax(np.where(usable, known.logp, -np.inf))
    return known.z[best], known.logp[best]


def learn_emulator(chains, rng, is_last=False, modes=()):
    """Let chains fit emulators to what all have evaluated, and learn the shape of s.

    Chains on s begin at `modes` (k, d), or at the states. Return draws of s.
    """
    first = chains[0]
    with linear_algebra().limit(limits=1), np.errstate(all="ignore"):
        fit_emulators(chains)
        density = EmulatedDensity(first.log_density.target(rng), first.parameters.emulated)
        lengths = LAST_LENGTHS if is_last else NEXT_LENGTHS
        known, choices = evaluations_of(chains), first.tuning.choices
        starts = modes if len(modes) else np.array([chain.state.x for chain in chains])
        places = learn_shape(density, choices, known, starts, lengths, rng)
    for chain in chains[1:]:
        copy_arrays(first.parameters, chain.parameters, ("emulated",))
        copy_arrays(first.tuning, chain.tuning, ("choices",))
    return places


def learn_from(chains, rng):
    """Let chains learn what all have evaluated, and how often to move by the emulator."""
    first = chains[0]
    is_last = first.monitor.done >= first.monitor.tune - 1
    judge(first.tuning.choices, evaluations_of(chains, newest=True))
    draws = learn_emulator(chains, rng, is_last)
    take_shares(chains, rng)
    for chain in chains:
        chain.parameters.n_others[0] = len(chain.state.others) if is_last else 0
    if not is_last:
        look_into_tails(chains, draws, rng)


def look_into_tails(chains, draws, rng):
    """Let each chain evaluate a point in a tail next, and stay where it is.

    Where s is too low a chain would be stuck later. The points are draws of s, moved away from its
    mean.
    """
    first = chains[0]
    emulated = first.parameters.emulated
    density = EmulatedDensity(first.log_density.target(rng), emulated)
    some = density.nearest_image(draws[rng.integers(len(draws), size=N_TAIL)])
    z = emulated.mean + rng.uniform(*TAIL_FACTORS, (N_TAIL, 1)) * (some - emulated.mean)
    (log_s, _), (usual, _) = density.values(z), density.values(some)
    likely = z[log_s > np.median(usual) - TAIL_DROP]
    for chain, point in zip(chains, likely, strict=False):
        parameters = chain.parameters
        parameters.n_looks[0] = 1
        parameters.looks[0] = whitened(point[None], parameters.mean, parameters.factor)[0]


def take_shares(chains, rng=None):
    """Settle how often moves are by the emulator; if that is poor, learn a surrogate as well."""
    choices, worth = chains[0].tuning.choices, sum(chain.tuning.worth for chain in chains)
    doubtful = choices.n_judged[0] >= ENOUGH_JUDGED
    share = EMULATED_SHARE
    if doubtful and surrogate.mean_worth(worth)[-1] < LEAST_WORTH:
        share = share_by_worth(worth)
        if rng is not None:
            surrogate.learn_from(chains, rng)
    else:
        for chain in chains:
            take_shape(chain)
            chain.tuning.worth[:] /= 2
    for chain in chains:
        chain.parameters.emulated_share[0] = share


def share_by_worth(worth):
    """Return the share of moves by the emulator, by sums and numbers (5, 2) of α|v − u|²/d."""
    e = surrogate.mean_worth(worth) ** surrogate.SHARPNESS
    return np.clip(e[-1] / e.sum(), LEAST_EMULATED, EMULATED_SHARE)


def judge(choices, new):
    """See how far log s was off at the newest ends of moves, and let s end nearer or farther."""
    log_w = (new.logp - new.log_s)[~np.isnan(new.log_s)]
    if len(log_w) == 0:
        return
    log_w = np.where(np.isfinite(log_w), log_w, -np.inf)
    w = np.exp(log_w - log_w.max()) if np.isfinite(log_w.max()) else np.zeros(len(log_w))
    choices.share[0] = max(w.sum() ** 2 / max(len(w) * np.square(w).sum(), 1e-300), 1e-3)
    choices.n_judged[0] += len(w)
    farther = np.median(log_w) > FAR_TOO_HIGH
    choices.widening[0] = np.clip(choices.widening[0] * (1.5 if farther else 0.5), 1.0, 8.0)


def take_shape(chain):
    """Let walks and reference moves go by the shape of s, too."""
    parameters = chain.parameters
    parameters.mean[:] = parameters.emulated.mean
    parameters.factor[:] = parameters.emulated.factor
    parameters.shares[:], parameters.surrogate.nu[0] = OTHER_SHARES, NU
    parameters.n_looks[0] = 0


# ---- emulators ----------------------------------------------------------------------------------


def fit_emulators(chains, newest=0):
    """Fit the emulator of each box to all that chains have evaluated, or to so many, the newest."""
    first = chains[0]
    choices, emulated, d = first.tuning.choices, first.parameters.emulated, first.state.x.size
    known, new = evaluations_of(chains)[-newest:], evaluations_of(chains, newest=True)
    drop = drops(known.logp, d)
    if not (np.isfinite(drop) & np.isfinite(known.y).all(axis=1)).any():
        return
    reused = first.tuning.reused
    n = len(known.z) + len(reused)
    look = "all" if n >= 2 * choices.n_full[0] else "next"
    if look == "all":
        choices.n_full[0] = n
    known, new = (with_images(part, emulated, first.log_density) for part in (known, new))
    drop, curvature = drops(known.logp, d), curvatures(first.log_density, known)
    is_new = np.isin(known.z[:, 0], new.z[:, 0])
    for b in range(len(emulated.structure.boxes)):
        earlier = earlier_calls(reused, emulated.structure, b, first.log_density, known)
        box = BoxCalls(emulated.structure, b, known, drop, curvature, d, first.most_points, earlier)
        if is_new.any() and not is_new.all():
            score(box, choices, first.log_density, is_new)
        likely = contenders(choices.scores[b], box.variants)
        fits = {k: box.fit(k, unpacked(choices.hyper[b, k]), look) for k in likely}
        fits = {k: fitted for k, fitted in fits.items() if fitted is not None}
        for k, fitted in fits.items():
            choices.hyper[b, k] = fitted.hyper
        if fits:
            choices.variant[b] = best_variant(choices.scores[b], fits)
            fits[int(choices.variant[b])].write(emulated.structure, emulated.emulator, b)
    for chain in chains:
        chain.tuning.n_learned[0] = chain.tuning.n_evaluated[0]


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


def drops(logp, d):
    """Return Δ of log-densities (n,), infinite where they are not finite."""
    logp = np.where(np.isfinite(logp), logp, -np.inf)
    return np.maximum(0, logp.max() - logp - USUAL_DROP[0] * d - USUAL_DROP[1])


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
    """What one black box was given and has returned, by application; earlier runs' calls first."""

    def __init__(self, structure, b, known, drop, curvature, d, most, earlier):
        p, q = structure.boxes[b]
        of_box = structure.applications[structure.applications[:, 0] == b]
        self.inputs = [slice(x, x + p) for _, x, _, _ in of_box]
        self.outputs = [slice(y, y + q) for _, _, y, _ in of_box]
        self.b, self.known, self.d, self.most = b, known, d, most
        x, y, logp = earlier
        self.n_earlier = len(x)
        drop_of_earlier = drops(np.append(logp, known.logp), d)[: len(x)]
        self.drop = np.concatenate([drop_of_earlier, np.repeat(drop, len(of_box))])
        self.x = np.concatenate([x, _rows_of(known.x, self.inputs)])
        self.y = np.concatenate([y, _rows_of(known.y, self.outputs)])
        self.curvature = np.mean([curvature[part] for part in self.outputs], axis=0)
        self.variants = [VARIANTS.index(pair) for pair in fit.variants_of(self.x, self.y)]

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
    """Return x (n, p), y (n, q) and log π (n,) of calls of a box that were taken up.

    log π is that of the best evaluation with the outputs of one application replaced, at its
    highest.
    """
    p, q = structure.boxes[b]
    rows = reused[reused[:, 0] == b] if reused.size else reused
    if len(rows) == 0:
        return np.zeros((0, p)), np.zeros((0, q)), np.zeros(0)
    x, y = rows[:, 1 : 1 + p], rows[:, 1 + p : 1 + p + q]
    best = np.argmax(np.where(np.isfinite(known.logp), known.logp, -np.inf))
    points = np.repeat(whole_points(log_density, known.z[best][None]), len(rows), axis=0)
    logp = np.full(len(rows), -np.inf)
    for _, _, place, _ in structure.applications[structure.applications[:, 0] == b]:
        outputs = np.tile(known.y[best], (len(rows), 1))
        outputs[:, place : place + q] = y
        logp = np.fmax(logp, log_density.logp_given(points, outputs))
    return x, y, logp


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


# ---- the chain on s -----------------------------------------------------------------------------


def learn_shape(density, choices, known, starts, lengths, rng):
    """Learn the shape of s and the chain on it, and where s is to end; return draws of s."""
    emulated, d = density.emulated, starts.shape[1]
    is_first = choices.share[0] == 0
    if is_first and emulated.mirrors.n_maps[0] > 0:
        log_s, _ = density.values(starts)
        emulated.mean[:] = starts[np.argmax(log_s > -np.inf)]  # one of the modes
    memory = 0 if is_first else MEMORY_OF_SHAPE
    sample = learn_chain(density, starts, FIRST_LENGTHS if is_first else lengths, memory, rng)
    good = density.nearest_image(known.z[drops(known.logp, d) == 0])
    distances = np.linalg.norm(density.u_of(good), axis=1)
    emulated.radius[0] = choices.widening[0] * max(np.quantile(distances, 0.9), np.sqrt(d))
    return sample
