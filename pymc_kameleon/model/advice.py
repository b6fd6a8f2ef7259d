"""What may help where a model is hard to sample, in words."""

from pymc_kameleon.model.functions import has_gradient

HIERARCHY = (
    "If the model is a hierarchy, write it the other way: centred, theta ~ N(mu, tau), is right "
    "where the data say much about each theta, and non-centred, theta = mu + tau * z with "
    "z ~ N(0, 1), where they say little."
)
NUTS = "The log-density has a gradient: try NUTS, which pm.sample() takes."


def what_may_help(model):
    """Return what to try if the chains of a model do not agree, some sentences or ``""``."""
    advice = [HIERARCHY] if len(model.free_RVs) > 1 else []
    return " ".join([*advice, NUTS] if has_gradient(model) else advice)
