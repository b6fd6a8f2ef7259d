"""What SurrogateMetropolis tells: chains that were moved, and what its moves are worth."""

import math

from pymc_kameleon.core.conventions import FEW
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.model.functions import has_gradient
from pymc_kameleon.samplers.approximation.moves import mean_worth
from pymc_kameleon.samplers.surrogate.learning import GOOD, NEWS, PAYS


def of_move(lost):
    """Tell of a chain that was moved, as its log mass was less than another's by `lost`."""
    return finding("moved_chain", power=f"{lost / math.log(10):.0f}") if lost > 0 else None


def of_efficiency(worth, others, has_modes=False):
    """Tell if moves by the surrogate go hardly farther than those of a walk."""
    walk, reference, surrogate, _ = mean_worth(worth)
    best = max(surrogate, reference) if has_modes else surrogate
    if worth[2, 1] < FEW or best > min(PAYS * walk, GOOD):
        return None
    return finding("poor_surrogate", surrogate=surrogate, walk=walk, others=others)


def of_missed_mass(share, others):
    """Tell if the last part of tuning found a share of mass that the surrogate did not know."""
    return finding("surrogate_too_low", share=100 * share, others=others) if share >= NEWS else None


def other_samplers(model):
    """Name samplers to use where the surrogate is poor."""
    return "NUTS or pk.GAM" if has_gradient(model) else "pk.GAM"
