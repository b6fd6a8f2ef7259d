"""Draws of the surrogate or emulator itself, as a group of the result, and how close they are."""

import logging

import numpy as np
import xarray as xr

from pymc_kameleon.model.black_boxes import dependent_on_black_boxes
from pymc_kameleon.model.functions import ModelOutputs
from pymc_kameleon.result.tree import attributes_of
from pymc_kameleon.samplers.emulator.moves import emulator_moves_of
from pymc_kameleon.samplers.surrogate.moves import certificate, draws_of_surrogate, moves_of
from pymc_kameleon.samplers.surrogate.second import with_second_surrogates
from pymc_kameleon.step.groups import APPROXIMATIONS, EMULATOR_MOVES, LEARNED_GROUP, SURROGATE_GROUP
from pymc_kameleon.step.messages import counted

_log = logging.getLogger("pymc_kameleon")

CLOSE_SHARE, LEAST_CERTIFIED = 0.8, 40
"""Share of effective weights below which the log warns, and moves below which that share is not
known."""


def add_surrogate_posterior(tree, job, columns, n):
    """Add n draws of each chain's surrogate, or emulator, to a result, and say how close it is.

    Without draws to begin from, or moves by it, there are none, which is said. Of an emulator there
    may be fewer.
    """
    group = job.steps[0].kept_group
    what = APPROXIMATIONS[group]
    kept = tree[group].to_dataset() if group in tree.children else None
    if kept is None or kept["accept_prob"].isnull().all():
        _say_there_are_none(what)
        return
    if group == EMULATOR_MOVES:
        moves, all_learned = emulator_moves_of(kept), False
        drawn = _kept_stops(moves, kept.sizes["chain"], n)
        if len(drawn[0]) == 0:
            _say_there_are_none(what)
            return
    else:
        learned = tree[LEARNED_GROUP].to_dataset()
        moves, all_learned = with_second_surrogates(moves_of(kept, learned))
        starts = kept["start"].transpose("chain", "draw", ...).values
        pairs = zip(moves.parameters, starts, strict=True)
        drawn = [draws_of_surrogate(parameters, start, n) for parameters, start in pairs]
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
    for own in drawn:
        points = np.empty((len(own), len(places)))
        points[:, places] = own
        chains.append(outputs.named(outputs.rows(points)))
    arrays = {name: (like[name].dims, np.stack([own[name] for own in chains])) for name in names}
    close, numbers = certificate(moves), {"draw": np.arange(len(drawn[0]))}
    attributes = attributes_of(job.steps) | {"n_moves": len(moves.row)} | close._asdict()
    attributes["approximate"] = f"draws of the {what}, not of the posterior"
    attributes["learned_from_other_chains"] = int(all_learned)
    coords = like[names].drop_vars("draw").coords
    found = xr.Dataset(arrays, coords, attributes).assign_coords(numbers)
    tree[SURROGATE_GROUP] = xr.DataTree(found)
    _say_how_close(close, what, len(moves.row), len(drawn[0]) * len(chains))


def _say_there_are_none(what):
    _log.warning(
        "There is no %s, as the %s has made no move after tuning. Tune and draw longer.",
        SURROGATE_GROUP,
        what,
    )


def _kept_stops(moves, n_chains, n):
    """Return n stops (n, d) of each chain's moves, evenly; fewer if there are less."""
    stops = [moves.stops[moves.row == row] for row in range(n_chains)]
    stops = [own.reshape(-1, own.shape[2]) for own in stops]
    fewest = min(map(len, stops))
    if 0 < fewest < n:
        _log.info(
            "%s has %d draws of each chain, not %d: an emulator has %d for each of its moves.",
            SURROGATE_GROUP,
            fewest,
            n,
            moves.stops.shape[1],
        )
    places = np.arange(min(n, fewest))
    return [own[places * len(own) // max(len(places), 1)] for own in stops]


def _say_how_close(close, what, n_moves, n_draws):
    if close.ess_share >= CLOSE_SHARE and n_moves >= LEAST_CERTIFIED:
        _log.info(
            "%s: %s, approximate (%s).", SURROGATE_GROUP, counted(n_draws, "draw"), close.in_words()
        )
        return
    _log.warning(
        "The draws in %s may be far from the posterior (%s, by %s). Tune longer for a better %s; "
        "those in posterior are exact all the same.",
        SURROGATE_GROUP,
        close.in_words(),
        counted(n_moves, "move"),
        what,
    )
