"""Evaluations of black boxes, as a result keeps them.

A Dataset has a row for each evaluation of the log-density, and of each box its inputs and outputs,
for all its applications. Rows that a run has itself taken up have no log-density; of these there
are as many to a row as a box has applications.

Symbols: as in learning.py.
"""

import json
from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_kameleon.samplers.emulator.learning import Evaluations, curvatures, evaluations_of
from pymc_kameleon.samplers.surrogate.evaluations import EVALUATION, OF_BEFORE, thinned
from pymc_kameleon.step.learned import COORDINATE

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
    return xr.Dataset(arrays, coords, {"boxes": json.dumps(described), "n_evaluations": n})


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
            "constants": box.digest,
            "code": box.code,
            "no_code": box.no_code,
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
