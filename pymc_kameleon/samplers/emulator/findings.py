"""What EmulatorMetropolis tells: what is emulated, and where that does not predict."""

from itertools import compress

import numpy as np

from pymc_kameleon.findings.finding import finding
from pymc_kameleon.findings.words import some
from pymc_kameleon.samplers.approximation.moves import BY_S, mean_worth

LEAST_WORTH = 0.3
"""Worth of a move by the emulator below which it does not predict; 2 would be independent draws."""


def of_mirrors(mirrors, names):
    """Tell what can be exchanged, or reversed, where modes mirror one another."""
    changes = [in_words(one, names) for one in mirrors.maps[: mirrors.n_same[0]]]
    return finding("mirrored_modes", changes=some(changes)) if changes else None


def in_words(matrix, names):
    """Return what a map (d, d) does to coordinates of these names."""
    moves = (matrix != np.eye(len(matrix))).any(axis=1)
    is_reversed = moves & (matrix.sum(axis=1) == -1)
    changes = {"change places": moves & ~is_reversed, "be reversed": is_reversed}
    return ", and ".join(
        f"{' and '.join(compress(names, own))} can {what}"
        for what, own in changes.items()
        if own.any()
    )


def of_efficiency(worth, boxes):
    """Tell if moves by the emulator lead hardly anywhere."""
    own = mean_worth(worth)[BY_S]
    if own > LEAST_WORTH or worth[BY_S, 1] == 0:
        return None
    return finding("poor_emulator", boxes=some(boxes), efficiency=own)
