"""Draws of the surrogate itself, as a group of the result, and how close they are."""

import logging

import numpy as np
import xarray as xr

from pymc_kameleon.model.black_boxes import dependent_on_black_boxes
from pymc_kameleon.model.functions import ModelOutputs
from pymc_kameleon.result.tree import attributes_of
from pymc_kameleon.samplers.surrogate.moves import certificate, draws_of_surrogate, moves_of
from pymc_kameleon.samplers.surrogate.second import with_second_surrogates
from pymc_kameleon.step.groups import LEARNED_GROUP, SURROGATE_GROUP, SURROGATE_MOVES
from pymc_kameleon.step.messages import counted

_log = logging.getLogger("pymc_kameleon")

CLOSE_SHARE, LEAST_CERTIFIED = 0.8, 40
"""Share of effective weights below which the log warns, and moves below which that share is not
known."""


def add_surrogate_posterior(tree, job, columns, n):
    """Add n draws of each chain's surrogate to a result, and say how close it is.

    Without draws to begin from, or moves by a surrogate, there are none, which is said.
    """
    kept = tree[SURROGATE_MOVES].to_dataset() if SURROGATE_MOVES in tree.children else None
    if kept is None or kept["accept_prob"].isnull().all():
        _log.warning(
            "There is no %s, as the surrogate has made no move after tuning. Tune and draw longer.",
            SURROGATE_GROUP,
        )
        return
    moves, all_learned = with_second_surrogates(moves_of(kept, tree[LEARNED_GROUP].to_dataset()))
    model, places = job.steps[0].model, job.steps[0].layout.places
    like = columns.like("posterior", kept["chain"].values)
    boxes = dependent_on_black_boxes(model)
    for name in boxes.keys() & like.keys():
        _log.info(
            "%s has no %s: computing that would call %s.",
            SURROGATE_GROUP,
            name,
            " and ".join(boxes[name]),
        )
    names = [name for name in like if name not in boxes]
    outputs = job.outputs
    if len(names) < len(like):
        outputs = ModelOutputs(model, names, model.initial_point(), {})
    chains = []
    for parameters, start in zip(
        moves.parameters, kept["start"].transpose("chain", "draw", ...).values, strict=True
    ):
        points = np.empty((n, len(places)))
        points[:, places] = draws_of_surrogate(parameters, start, n)
        chains.append(outputs.named(outputs.rows(points)))
    arrays = {name: (like[name].dims, np.stack([own[name] for own in chains])) for name in names}
    close, numbers = certificate(moves), {"draw": np.arange(n)}
    attributes = attributes_of(job.steps) | {"n_moves": len(moves.row)} | close._asdict()
    attributes["approximate"] = "draws of the surrogate, not of the posterior"
    attributes["learned_from_other_chains"] = int(all_learned)
    coords = like[names].drop_vars("draw").coords
    found = xr.Dataset(arrays, coords, attributes).assign_coords(numbers)
    tree[SURROGATE_GROUP] = xr.DataTree(found)
    _say_how_close(close, len(moves.row), n * len(chains))


def _say_how_close(close, n_moves, n_draws):
    if close.ess_share >= CLOSE_SHARE and n_moves >= LEAST_CERTIFIED:
        _log.info(
            "%s: %s, approximate (%s).", SURROGATE_GROUP, counted(n_draws, "draw"), close.in_words()
        )
        return
    _log.warning(
        "The draws in %s may be far from the posterior (%s, by %s). Tune longer for a better "
        "surrogate; those in posterior, and averages by pk.summary, are exact all the same.",
        SURROGATE_GROUP,
        close.in_words(),
        counted(n_moves, "move"),
    )
