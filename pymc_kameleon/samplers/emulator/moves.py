"""What EmulatorMetropolis has kept of its moves, by which averages are corrected.

Symbols: as in metropolis.py; w = π/s, at the ends of moves.
"""

from typing import NamedTuple

import numpy as np


class EmulatorMoves(NamedTuple):
    """The moves by the emulator of all chains, in the order of chains and draws."""

    row: np.ndarray  # which chain made them
    draw: np.ndarray  # for which of its draws
    start: np.ndarray  # (n, d), where they began, unconstrained
    end: np.ndarray  # (n, d), what they proposed
    log_w: np.ndarray  # log π/s there
    accept_prob: np.ndarray  # α
    stops: np.ndarray  # (n, R, d), of the inner chain; the end is one of them, drawn beforehand


def emulator_moves_of(kept):
    """Return the EmulatorMoves of a dataset of a result, of those whose stops were kept."""

    def of(name):
        return kept[name].transpose("chain", "draw", ...).values

    stops = of("others")
    were_kept = np.isfinite(stops).all(axis=(2, 3))
    row, draw = np.nonzero(~np.isnan(of("end_log_s")) & were_kept)
    log_w = of("end_logp")[row, draw] - of("end_log_s")[row, draw]
    own = (of(name)[row, draw] for name in ("start", "end"))
    return EmulatorMoves(row, draw, *own, log_w, of("accept_prob")[row, draw], stops[row, draw])
