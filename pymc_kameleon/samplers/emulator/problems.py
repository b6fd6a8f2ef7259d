"""What EmulatorMetropolis says: what is emulated, and where that does not come to predict."""

import logging
from itertools import compress

import numpy as np

from pymc_kameleon.approximation.modes import shares_in
from pymc_kameleon.samplers.approximation.moves import BY_S, mean_worth
from pymc_kameleon.step.messages import counted, some

_log = logging.getLogger("pymc_kameleon")

LEAST_WORTH = 0.3
"""Worth of a move by the emulator below which it does not predict; 2 would be independent draws."""


def say_what_is_emulated(log_density, initial_point):
    """Log the black boxes of a SimulatorLogp, and the sizes of their inputs and outputs."""
    simulators = log_density.simulators
    for b, box in enumerate(simulators.boxes):
        n_vary = log_density.n_varying(b, initial_point)
        n_calls = (simulators.applications[:, 0] == b).sum()
        _log.info(
            "Emulating `%s` (%s%s; %s)%s.",
            box.name,
            counted(box.p, "input"),
            "" if n_vary == box.p else f", of which {n_vary} vary",
            counted(box.q, "output"),
            f", {n_calls} times in each evaluation" if n_calls > 1 else "",
        )


def explain_mirrors(mirrors, names):
    """Say what can be exchanged, or reversed, where modes mirror one another."""
    changes = [in_words(one, names) for one in mirrors.maps[: mirrors.n_same[0]]]
    if not changes:
        return ""
    return (
        f"EmulatorMetropolis: modes of the posterior mirror one another, as {some(changes)}. "
        "Chains may go to all of them. If one is enough, let the prior say which: order the "
        "parameters (`pm.distributions.transforms.ordered`), or give them a sign."
    )


def explain_no_look(has_looked):
    """Say that mirror images were not looked at."""
    if has_looked:
        return ""
    return (
        "EmulatorMetropolis: no evaluations were left to see whether modes of the posterior mirror "
        "one another, as parameters may change places, or a sign. R-hat does not show that. Raise "
        "max_evaluations, or tune longer."
    )


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


def explain_worth(worth, names):
    """Warn if moves by the emulator lead hardly anywhere."""
    own = mean_worth(worth)[BY_S]
    if own > LEAST_WORTH or worth[BY_S, 1] == 0:
        return ""
    return (
        f"the emulator of {some(names)} does not come to predict: the mean squared jump of its "
        f"moves was {own:.2g} at the end of tuning (2 would be independent draws). So other moves "
        "do most of the work: walks, and draws of a t density. If outputs jump, are chaotic, or "
        "NaN in much of the space, let the black box return something smoother. If it is smooth, "
        "tune longer, or raise max_evaluations if you have set it."
    )


def explain_modes(modes):
    """Say between which modes chains go, by the mixture that they jump by."""
    if len(shares := shares_in(modes)) == 0:
        return ""
    listed = ", ".join(f"{100 * share:.0f} %" for share in shares)
    return (
        f"EmulatorMetropolis: chains go between {len(shares)} modes, with about {listed} of the "
        "mass when they were found."
    )
