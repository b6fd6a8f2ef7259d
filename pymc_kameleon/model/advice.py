"""What may help where a model is hard to sample, in words."""

from pytensor.graph.traversal import ancestors

from pymc_kameleon.model.functions import has_gradient

HIERARCHY = (
    "If the model is a hierarchy, write it the other way: centred, theta ~ N(mu, tau), is right "
    "where the data say much about each theta, and non-centred, theta = mu + tau * z with "
    "z ~ N(0, 1), where they say little."
)
NUTS = "The log-density has a gradient: try NUTS, which pm.sample() takes."


def may_be_hierarchy(model):
    """Whether one variable depends on another, or several numbers may share a scale."""
    free = set(model.free_RVs)
    depends = any(free & set(ancestors(rv.owner.inputs)) for rv in free)
    return depends or (len(free) > 1 and any(rv.ndim > 0 for rv in free))


def what_may_help(model):
    """Return what to try if the chains of a model do not agree, some sentences or ``""``."""
    advice = [HIERARCHY] if may_be_hierarchy(model) else []
    return " ".join([*advice, NUTS] if has_gradient(model) else advice)
