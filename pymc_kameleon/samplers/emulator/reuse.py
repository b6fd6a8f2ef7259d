"""What a run takes up of earlier ones: calls of a simulator, whatever data and priors it had."""

import logging
from typing import NamedTuple

import numpy as np

from pymc_kameleon.samplers.emulator.evaluations import calls_in, labels
from pymc_kameleon.samplers.emulator.fit import Hyper
from pymc_kameleon.samplers.emulator.learning import VARIANTS
from pymc_kameleon.samplers.surrogate.evaluations import some_of_each
from pymc_kameleon.step.messages import counted

_log = logging.getLogger("pymc_kameleon")

MOST_REUSED, MOST_REUSED_BYTES = 2000, 2**24
"""Calls of a box that a chain takes up, at most. Those of tuning, which are far from each other, go
first, to half of these; of more, some that are evenly spaced."""

N_CHECKED = 2
"""Calls of a box that are made again, to see whether it is the same."""

RELATIVE, OF_SPREAD = 1e-5, 1e-6
"""Differences of outputs that count as none: relative, and to their standard deviation."""


class Reused(NamedTuple):
    """What a step takes up of earlier runs."""

    rows: np.ndarray  # (n, 1 + most p + q): number of the box, its inputs and outputs
    hyper: np.ndarray  # (B, 4, 4), as in Choices
    scores: np.ndarray  # (B, 4, 2)
    n_calls: int = 0  # of all boxes, to see that they are the same


def nothing_reused(n_boxes, widest=1):
    """Return what a step takes up without earlier runs."""
    hyper = np.full((n_boxes, len(VARIANTS), len(Hyper._fields)), np.nan)
    return Reused(np.zeros((0, widest)), hyper, np.zeros((n_boxes, len(VARIANTS), 2)))


def reused_by(step, datasets):
    """Return what a step takes up of Datasets of evaluations, a Reused.

    A ValueError says that none is of its boxes, or that one has other inputs or outputs.
    """
    simulators = step.log_density.simulators
    known = [calls for data in datasets for calls in calls_in(data)]
    widest = 1 + int(simulators.sizes.sum(axis=1).max())
    reused = nothing_reused(len(simulators.boxes), widest)
    parts, n_calls = [], 0
    for b, (box, label) in enumerate(zip(simulators.boxes, labels(simulators), strict=True)):
        found = _calls_of(box, label, known)
        if not found:
            continue
        rows = _chosen(found)
        if len(rows.x) == 0:
            continue
        n_calls += _check_calls(step.log_density, b, box, rows)
        whole = np.full((len(rows.x), widest), np.nan)
        whole[:, 0], whole[:, 1 : 1 + box.p] = b, rows.x
        whole[:, 1 + box.p : 1 + box.p + box.q] = rows.y
        parts.append(whole)
        hyper = np.array(found[-1].described["hyper"], float)
        reused.hyper[b] = np.where(hyper < 0, np.nan, hyper)
        reused.scores[b] = found[-1].described["scores"]
    if not parts:
        names = sorted({f"`{calls.described['name']}`" for calls in known})
        own = ", ".join(f"`{box.name}`" for box in simulators.boxes)
        raise ValueError(
            f"evaluations are of {', '.join(names)}, and this model calls {own}: there is nothing "
            "to take up. Functions are recognised by their names."
        )
    return reused._replace(rows=np.concatenate(parts), n_calls=n_calls)


def _calls_of(box, label, known):
    """Return the Calls of a box: of one with the same constants, or else of the same label."""
    named = [calls for calls in known if calls.described["name"] == box.name]
    exact = [calls for calls in named if calls.described["constants"] == box.digest]
    found = exact or [calls for calls in named if calls.described["label"] == label]
    for calls in found:
        p, q = calls.described["inputs"], calls.described["outputs"]
        if (p, q) != (box.p, box.q):
            raise ValueError(
                f"evaluations of `{box.name}` have {counted(p, 'input')} "
                f"({', '.join(calls.names)}) and {counted(q, 'output')}, and in this model it has "
                f"{counted(box.p, 'input')} ({', '.join(box.inputs)}) and "
                f"{counted(box.q, 'output')}. They are of use where both are the same."
            )
    if found and not exact:
        _log.info("`%s` had other constants, or data, in what is reused of it.", box.name)
    codes = {calls.described["code"] for calls in found}
    if box.no_code and found:
        _log.info(
            "Whether the code of `%s` has changed cannot be told, as %s", box.name, box.no_code
        )
    elif codes - {box.code}:
        _log.info("The code of `%s` has changed since, or what it refers to.", box.name)
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
    most = min(MOST_REUSED, MOST_REUSED_BYTES // (8 * (x.shape[1] + y.shape[1] + 1)))
    if len(rows) > most:
        rows = rows[some_of_each(tuning[rows], most)]
    rows = np.concatenate([[best], rows[rows != best]])
    return found[0]._replace(x=x[rows], y=y[rows], logp=logp[rows], tuning=tuning[rows])


def _check_calls(log_density, b, box, rows):
    """Raise a ValueError if a box returns something else than it did; return how often it ran."""
    places = np.unique([0, len(rows.x) // 2])[:N_CHECKED]
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
                f"{counted(len(differs), 'output')} differ. Leave evaluations out, or take those "
                "of this function."
            )
    return len(places)
