"""Evaluations of black boxes: what a result keeps of them, and what a run takes up of these.

A Dataset has a row for each evaluation of the log-density, and of each box its inputs and outputs,
for all its applications. Rows that a run has itself taken up have no log-density; of these there
are as many to a row as a box has applications.

Symbols: as in learning.py.
"""

import json
import logging
from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_kameleon.approximation.records import (
    EVALUATION,
    MOST_REUSED,
    OF_BEFORE,
    some_of_each,
    thinned,
)
from pymc_kameleon.core.conventions import NUMBERS_PER_PART
from pymc_kameleon.findings.words import counted
from pymc_kameleon.samplers.emulator.fit import Hyper
from pymc_kameleon.samplers.emulator.learning import (
    VARIANTS,
    Evaluations,
    curvatures,
    evaluations_of,
)
from pymc_kameleon.step.learned import COORDINATE

_log = logging.getLogger("pymc_kameleon")

COARSE = "coarse"
"""Attribute `level` of Datasets that coarse models have made."""

RELATIVE, OF_SPREAD = 1e-5, 1e-6
"""Differences of outputs that count as none: relative, and to their standard deviation."""

# ---- what a result keeps ------------------------------------------------------------------------


def dataset_of(step, states, numbers, kept):
    """Return the evaluations that chains of these numbers have made; `kept` is of their draws."""
    parts = [evaluations_of([state]) for state in states]
    parts += [_of_draws(moves) for moves in kept if "inputs" in moves]
    own = Evaluations(*map(np.concatenate, zip(*parts, strict=True)))
    lengths = np.array([len(part.z) for part in parts])
    of_boxes, before = _by_box(step, own), states[0].tuning.reused
    n_before = max(of_box.n_packed(before) for of_box in of_boxes)
    (n, d), unknown = own.z.shape, np.full(n_before, np.nan)
    numbers = [*numbers, *numbers][: len(parts)]
    per_row = {
        "z": np.concatenate([np.full((n_before, d), np.nan), own.z]),
        "logp": np.concatenate([unknown, own.logp]),
        "of_chain": np.repeat([OF_BEFORE, *numbers], [n_before, *lengths]),
        "tuning": np.repeat([True, False], [n_before + lengths[: len(states)].sum(),
                                            lengths[len(states) :].sum()]),
    }  # fmt: skip
    rows = thinned(n_before + n, 8 * (d + 2 + own.x.shape[1] + own.y.shape[1]))
    arrays = {k: ((EVALUATION, COORDINATE)[: v.ndim], v[rows]) for k, v in per_row.items()}
    coords = {COORDINATE: step.layout.coordinates()}
    curvature = _curvature(step, states[0], own)
    described = []
    for of_box in of_boxes:
        label, x, y = of_box.label, *of_box.packed(before, n_before)
        application, given, returned = (f"{label}_{k}" for k in ("application", "input", "output"))
        x, y = np.concatenate([x, of_box.x])[rows], np.concatenate([y, of_box.y])[rows]
        arrays[f"{label}_inputs"] = (EVALUATION, application, given), x
        arrays[f"{label}_outputs"] = (EVALUATION, application, returned), y
        arrays[f"{label}_curvature"] = returned, of_box.mean(curvature)
        coords[given] = list(of_box.box.inputs)
        described.append(of_box.described(states[0].tuning.choices))
    shapes = json.dumps(step.log_density.simulators.shapes)
    attrs = {"boxes": json.dumps(described), "shapes": shapes, "n_evaluations": n}
    return xr.Dataset(arrays, coords, attrs)


def _curvature(step, state, own):
    """Return −∂²log π/∂y² (Q,) at the best evaluation, ones if there is none."""
    if not np.isfinite(own.logp).any():
        return np.ones(own.y.shape[1])
    log_density = step.log_density.copy()
    if state.point is not None:
        log_density.point[:] = state.point  # where variables of other steps are
    with np.errstate(all="ignore"):
        return curvatures(log_density, own)


def _of_draws(moves):
    """Return the Evaluations of what is kept of draws."""
    parts = [moves[name].values for name in ("end", "end_logp", "end_log_s", "inputs", "outputs")]
    return Evaluations(*parts)[~np.isnan(parts[3]).all(axis=1)]


class _OfBox(NamedTuple):
    """The part of evaluations that is of one box."""

    b: int
    label: str
    box: object
    outputs: list  # places in y of each application
    x: np.ndarray  # (n, A, p)
    y: np.ndarray  # (n, A, q)

    def mean(self, curvature):
        """Return a mean over applications of what (Q,) is of all outputs."""
        return np.mean([curvature[part] for part in self.outputs], axis=0)

    def packed(self, reused, n):
        """Return calls that were taken up, in n rows of all applications, as NaN if too few."""
        p, q, a = self.box.p, self.box.q, len(self.outputs)
        rows = reused[reused[:, 0] == self.b] if reused.size else np.zeros((0, 1 + p + q))
        padded = np.full((n * a, p + q), np.nan)
        padded[: len(rows)] = rows[:, 1 : 1 + p + q]
        padded = padded.reshape(n, a, p + q)
        return padded[..., :p], padded[..., p:]

    def n_packed(self, reused):
        """Return how many rows that takes."""
        n = np.count_nonzero(reused[:, 0] == self.b) if reused.size else 0
        return -(-n // len(self.outputs))

    def described(self, choices):
        """Return by what the box is recognised, and how it was fitted."""
        box, b = self.box, self.b
        return {
            "label": self.label,
            "name": box.name,
            "inputs": int(box.p),
            "outputs": int(box.q),
            "takes_coordinates": box.takes_coordinates,
            "variant": int(choices.variant[b]),
            "scores": choices.scores[b].tolist(),
            "hyper": np.nan_to_num(choices.hyper[b], nan=-1).astype(int).tolist(),
        }


def _by_box(step, own):
    """Return an _OfBox for each box."""
    simulators, found = step.log_density.simulators, []
    for b, (box, label) in enumerate(zip(simulators.boxes, labels(simulators), strict=True)):
        of_box = simulators.applications[simulators.applications[:, 0] == b]
        inputs = [slice(x, x + box.p) for _, x, _, _ in of_box]
        outputs = [slice(y, y + box.q) for _, _, y, _ in of_box]
        x = np.stack([own.x[:, part] for part in inputs], axis=1)
        y = np.stack([own.y[:, part] for part in outputs], axis=1)
        found.append(_OfBox(b, label, box, outputs, x, y))
    return found


def labels(simulators):
    """Return what boxes are called in a result: by their names, numbered if they are not unique."""
    names = [box.name for box in simulators.boxes]
    nth = [names[: b + 1].count(name) for b, name in enumerate(names)]
    return [name if k == 1 else f"{name}_{k}" for name, k in zip(names, nth, strict=True)]


# ---- what is read of it -------------------------------------------------------------------------


class Calls(NamedTuple):
    """Calls of one box in a result, one row for each application of each evaluation."""

    described: dict
    names: list  # of inputs
    x: np.ndarray  # (n, p)
    y: np.ndarray  # (n, q)
    logp: np.ndarray  # (n,), NaN if unknown
    tuning: np.ndarray  # (n,) bool
    curvature: np.ndarray  # (q,), of -log π in the outputs
    d: int  # dimension of the model


def calls_in(data):
    """Return the Calls of each box in a Dataset of evaluations; raise a ValueError without any."""
    if "boxes" not in data.attrs:
        raise ValueError(
            "The result has log-densities, and not what black boxes have returned: pk.sample keeps "
            "that of pk.EmulatorMetropolis alone."
        )
    found = []
    for described in json.loads(data.attrs["boxes"]):
        label = described["label"]
        x, y = data[f"{label}_inputs"], data[f"{label}_outputs"]
        a = x.sizes[f"{label}_application"]
        x, y = (values.values.reshape(-1, values.shape[2]) for values in (x, y))
        there = np.isfinite(x).all(axis=1)
        found.append(
            Calls(
                described,
                data[f"{label}_input"].values.tolist(),
                x[there],
                y[there],
                np.repeat(data["logp"].values, a)[there],
                np.repeat(data["tuning"].values.astype(bool), a)[there],
                data[f"{label}_curvature"].values,
                data.sizes[COORDINATE],
            )
        )
    return found


def shapes_in(data):
    """Return the shapes of outputs, of each call in the graph, as Simulators have them."""
    if "shapes" not in data.attrs:
        raise ValueError(
            "The result lacks the shapes of what black boxes return, as it is of an older version. "
            "pk.sample(reuse=dt) makes one that does, from its evaluations."
        )
    return json.loads(data.attrs["shapes"])


# ---- what a run takes up ------------------------------------------------------------------------


class Reused(NamedTuple):
    """What a step takes up of earlier runs."""

    rows: np.ndarray  # (n, 1 + most p + q): number of the box, B more if coarse; inputs, outputs
    hyper: np.ndarray  # (B, 4, 5), as in Choices
    scores: np.ndarray  # (B, 4, 2)
    n_calls: int = 0  # of all boxes, to see that they are the same


def nothing_reused(n_boxes, widest=1):
    """Return what a step takes up without earlier runs."""
    hyper = np.full((n_boxes, len(VARIANTS), len(Hyper._fields)), np.nan)
    return Reused(np.zeros((0, widest)), hyper, np.zeros((n_boxes, len(VARIANTS), 2)))


def reused_by(step, datasets):
    """Return the Reused of Datasets of evaluations; a ValueError says why they are of no use."""
    simulators = step.log_density.simulators
    datasets, coarse = (
        [data for data in datasets if (data.attrs.get("level") == COARSE) == is_coarse]
        for is_coarse in (False, True)
    )
    known = [calls for data in datasets for calls in calls_in(data)]
    widest = 1 + int(simulators.sizes.sum(axis=1).max())
    reused = nothing_reused(len(simulators.boxes), widest)
    parts, n_calls = [], 0
    for data in coarse:
        for b, calls in enumerate(calls_in(data)):
            parts.append(_packed(len(simulators.boxes) + b, _chosen([calls]), widest))
    for b, (box, label) in enumerate(zip(simulators.boxes, labels(simulators), strict=True)):
        found = _calls_of(box, label, known)
        if not found:
            continue
        rows = _chosen(found)
        if len(rows.x) == 0:
            continue
        n_calls += _check_calls(step.log_density, b, box, rows)
        parts.append(_packed(b, rows, widest))
        hyper = np.array(found[-1].described["hyper"], float)
        if hyper.shape == reused.hyper[b].shape:  # older versions have other choices
            reused.hyper[b] = np.where(hyper < 0, np.nan, hyper)
        reused.scores[b] = found[-1].described["scores"]
    if datasets and not any((rows[:, 0] < len(simulators.boxes)).any() for rows in parts):
        names = sorted({f"`{calls.described['name']}`" for calls in known})
        own = ", ".join(f"`{box.name}`" for box in simulators.boxes)
        raise ValueError(
            f"evaluations are of {', '.join(names)}, and this model calls {own}: there is nothing "
            "to take up. Functions are recognised by their names."
        )
    return reused._replace(rows=np.concatenate(parts), n_calls=n_calls)


def _packed(number, calls, widest):
    """Return the rows of Calls of a box, as in a Reused."""
    (n, p), q = calls.x.shape, calls.y.shape[1]
    rows = np.full((n, widest), np.nan)
    rows[:, 0], rows[:, 1 : 1 + p], rows[:, 1 + p : 1 + p + q] = number, calls.x, calls.y
    return rows


def _calls_of(box, label, known):
    """Return the Calls of a box, those of the same label."""
    found = [calls for calls in known if calls.described["label"] == label]
    for calls in found:
        p, q = calls.described["inputs"], calls.described["outputs"]
        if (p, q) != (box.p, box.q):
            raise ValueError(
                f"evaluations of `{box.name}` have {counted(p, 'input')} "
                f"({', '.join(calls.names)}) and {counted(q, 'output')}, and in this model it has "
                f"{counted(box.p, 'input')} ({', '.join(box.inputs)}) and "
                f"{counted(box.q, 'output')}. They are of use where both are the same."
            )
    return found


def _chosen(found):
    """Return the calls to take up, the best one first."""
    columns = [np.concatenate([calls[k] for calls in found]) for k in range(2, 6)]
    x, y, logp, tuning = columns
    _, first = np.unique(x, axis=0, return_index=True)
    rows = np.sort(first[np.isfinite(y[first]).all(axis=1)])
    if len(rows) == 0:
        return found[0]._replace(x=x[:0], y=y[:0], logp=logp[:0], tuning=tuning[:0])
    best = rows[np.argmax(np.nan_to_num(logp[rows], nan=-np.inf))]
    most = min(MOST_REUSED, NUMBERS_PER_PART // (x.shape[1] + y.shape[1] + 1))
    if len(rows) > most:  # those of tuning first, which are far from each other
        rows = rows[some_of_each(tuning[rows], most)]
    rows = np.concatenate([[best], rows[rows != best]])
    return found[0]._replace(x=x[rows], y=y[rows], logp=logp[rows], tuning=tuning[rows])


def _check_calls(log_density, b, box, rows):
    """Raise a ValueError if a box returns something else than it did; return how often it ran."""
    places = np.unique([0, len(rows.x) // 2])
    _log.info(
        "Calling `%s` %s at inputs of evaluations that are reused, to see that it is the same. "
        "n_logp does not count this.",
        box.name,
        "once" if len(places) == 1 else "twice",
    )
    now, before = log_density.called_at(b, rows.x[places]), rows.y[places]
    allowed = OF_SPREAD * rows.y.std(axis=0) + RELATIVE * np.abs(before)
    off = ~(np.abs(now - before) <= allowed)
    for x, old, new, differs in zip(rows.x[places], before, now, off, strict=True):
        if differs.any():
            k = int(np.argmax(differs))
            given = ", ".join(f"{name} = {v:.6g}" for name, v in zip(box.inputs, x, strict=True))
            raise ValueError(
                f"`{box.name}` is not what it was in evaluations: at {given} its output {k} was "
                f"{old[k]:.8g}, and is {new[k]:.8g} now; {np.count_nonzero(differs)} of "
                f"{counted(len(differs), 'output')} differ. Leave them out of reuse, or take those "
                "of this function."
            )
    return len(places)
