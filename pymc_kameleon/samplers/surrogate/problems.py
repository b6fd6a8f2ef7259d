"""What SurrogateMetropolis warns of: few evaluations, lost chains, and what its moves are worth."""

import logging
import math

from pymc_kameleon.approximation.modes import shares_in
from pymc_kameleon.model.functions import has_gradient
from pymc_kameleon.samplers.approximation.moves import mean_worth
from pymc_kameleon.samplers.surrogate.archive import ENOUGH_MOVES
from pymc_kameleon.samplers.surrogate.learning import GOOD, NEWS, PAYS

_log = logging.getLogger("pymc_kameleon")

MANY = 20
"""Parameters from which GAM may be better where the surrogate is poor."""


def say_modes(modes):
    """Log that there are several modes, if so, and what shares reference moves give them."""
    if len(shares := shares_in(modes)) > 1:
        _log.info(
            "pk.sample found %d modes of the posterior, or arms of a curved one, with about %s %% "
            "of it where tuning ended. Some moves go from any to any. There may be more.",
            len(shares),
            ", ".join(f"{100 * share:.0f}" for share in shares),
        )


def say_search_failed(n, is_spent):
    """Log that the process has not found the posterior by n evaluations; warn if none is left."""
    if is_spent:
        _log.warning(
            "SurrogateMetropolis: a Gaussian process that chose %d points has not found the "
            "posterior, and max_evaluations leaves none to look on. Averages may be far off, by "
            "more than their standard errors. Raise max_evaluations, or start nearer.",
            n,
        )
        return
    _log.info(
        "SurrogateMetropolis: a Gaussian process that chose %d points has not found the posterior; "
        "going on by line searches and BFGS.",
        n,
    )


def explain_lost(lost):
    """Warn if a chain was moved."""
    if lost == 0:
        return ""
    return (
        "its start led to a place with almost no posterior mass, about "
        f"1e-{lost / math.log(10):.0f} of what is where another chain arrived. So it was moved "
        "there before tuning, and its draws can be used like those of the others. But R-hat "
        "cannot show a mode from which chains are moved: if there may be several, use "
        "pk.CyclicalKAM."
    )


def explain_worth(worth, d, model, has_modes=False):
    """Warn if moves by the surrogate go hardly farther than those of a walk."""
    walk, reference, surrogate, _ = mean_worth(worth)
    best = max(surrogate, reference) if has_modes else surrogate
    if worth[2, 1] < ENOUGH_MOVES or best > min(PAYS * walk, GOOD):
        return ""
    return (
        f"moves by the surrogate are hardly better than a random walk here: in tuning their mean "
        f"squared jump was {surrogate:.2g}, a walk's {walk:.2g} (2 would be independent draws). "
        f"{_what_to_try(d, model)}"
    )


def explain_news(news, d, model):
    """Warn if the last part of tuning found much that the surrogate did not know."""
    if news < NEWS:
        return ""
    return (
        f"until the end of tuning the surrogate was too low where about {news:.0%} of the "
        "posterior is. There may be more where no chain has been, and a chain may be stuck for "
        f"long where it seldom comes. {_what_to_try(d, model)}"
    )


def _what_to_try(d, model):
    """Return what to do where the surrogate is poor: also that there is a gradient, if there is."""
    others = ["NUTS"] * has_gradient(model) + ["pk.GAM"] * (d >= MANY)
    instead = f", or use {' or '.join(others)}" if others else ""
    return (
        f"Tune longer{instead}; or try another parametrisation: write a hierarchy centred, or "
        "non-centred."
    )
