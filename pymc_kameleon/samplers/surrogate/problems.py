"""What SurrogateMetropolis warns of: size, few evaluations, lost chains, cost and worth."""

from pymc_kameleon.core.quadratic import n_coefficients
from pymc_kameleon.samplers.surrogate.archive import ENOUGH_MOVES
from pymc_kameleon.samplers.surrogate.effort import MOST_CENTRES
from pymc_kameleon.samplers.surrogate.learning import GOOD, NEWS, PAYS, SLOW, mean_worth
from pymc_kameleon.step.messages import in_words
from pymc_kameleon.step.warm_start.approach import evaluations_for_own_search


def explain_size(d):
    """Warn if there are more coordinates than a surrogate can learn all correlations of."""
    if n_coefficients(d) <= MOST_CENTRES:
        return ""
    return (
        f"a quadratic in {d} coordinates has {n_coefficients(d)} coefficients, and the surrogate "
        f"is fitted to {MOST_CENTRES} points at most, so it may be poor. For so many use pk.GAM, "
        "or with a gradient NUTS or pk.GadMALA."
    )


def explain_budget(followed, d):
    """Warn if a chain has begun where another one had come, without a look at the way."""
    if not followed:
        return ""
    return (
        "it has too few evaluations to search for the posterior itself, so it began where the "
        "first chain had arrived. R-hat then says nothing about other modes. With tune + draws "
        f"of {evaluations_for_own_search(d)} each chain searches for itself."
    )


def explain_lost(lost):
    """Warn if a chain was moved."""
    if lost == 0:
        return ""
    return (
        "its start led to a place with a log mass some "
        f"{lost:.0f} lower than where another chain arrived, so it was moved there before it was "
        "tuned. The starts were then not independent. If several modes may matter, use "
        "pk.CyclicalKAM; otherwise there is nothing to do."
    )


def explain_cost(is_expensive, seconds):
    """Warn if evaluations that count as cheap take long."""
    if is_expensive or not seconds > SLOW:
        return ""
    return (
        f"an evaluation of the log-density takes {in_words(seconds)}, but counts as cheap because "
        "it is compiled. pk.SurrogateMetropolis(expensive=True) gets more from each."
    )


def explain_worth(worth):
    """Warn if moves by the surrogate go hardly farther than those of a walk."""
    walk, _, surrogate, _ = mean_worth(worth)
    if worth[2, 1] < ENOUGH_MOVES or surrogate > min(PAYS * walk, GOOD):
        return ""
    return (
        f"moves by the surrogate are hardly better than a random walk here: in tuning their mean "
        f"squared jump was {surrogate:.2g}, a walk's {walk:.2g} (2 would be independent draws). "
        "Tune longer, or use NUTS or pk.GadMALA if there is a gradient."
    )


def explain_news(news):
    """Warn if the last part of tuning found much that the surrogate did not know."""
    if news < NEWS:
        return ""
    return (
        f"until the end of tuning the surrogate was too low where some {news:.0%} of the posterior "
        "is. There may be more where no chain has been, and a chain may be stuck for long where "
        "it seldom comes. Tune longer, or use NUTS or pk.GadMALA if there is a gradient."
    )
