"""What SurrogateMetropolis proposes by its surrogate: the inner chain on s.

Symbols: as in metropolis.py.
"""

import numpy as np

from pymc_kameleon.approximation.modes import Modes
from pymc_kameleon.core.arrays import extended, floats, integers
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.metropolis import log_uniform
from pymc_kameleon.core.scaling import best_scale
from pymc_kameleon.samplers.approximation import moves
from pymc_kameleon.samplers.approximation.moves import log_t, reference_from, walk_from
from pymc_kameleon.samplers.surrogate.density import Surrogate, log_surrogate
from pymc_kameleon.samplers.surrogate.learning import MOST_LOOKS

Parameters = extended(
    "Parameters",
    moves.Parameters,
    shares=floats(4),  # probabilities of the kinds of moves
    n_inner=integers(1),  # M
    power=floats(1),  # β of a wide move
    surrogate=Surrogate,
    modes=Modes,
    error=floats(1),  # of the surrogate, left out; NaN before there is one
    looks=floats(MOST_LOOKS, "d"),  # points u to be evaluated while tuning, the last one next
    n_looks=integers(1),
)


@jit
def inner_proposal(parameters, v, w, rng):
    """Propose a step of the inner chain from v; return whether it is a draw of t."""
    if rng.random() < 0.5:
        reference_from(v, parameters.surrogate.nu[0], 0.5 * np.pi, w, rng)
        return True
    walk_from(v, best_scale(v.size), w, rng)
    return False


@jit
def inner_chain(parameters, work, log_s, power, rng):
    """Move work.v by M Metropolis steps on s^β, where s is `log_s`; return log s at their end."""
    surrogate = parameters.surrogate
    for _ in range(parameters.n_inner[0]):
        log_ratio = -power * log_s
        if inner_proposal(parameters, work.v, work.w, rng):
            log_ratio += log_t(work.v, surrogate.nu[0]) - log_t(work.w, surrogate.nu[0])
        log_s_w = log_surrogate(surrogate, work.w, work.distances)
        if log_uniform(rng) < log_ratio + power * log_s_w:
            copy(work.w, work.v)
            log_s = log_s_w
    return log_s
