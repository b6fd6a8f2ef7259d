"""What may help where a model is hard to sample, in words."""

from pytensor.graph.traversal import ancestors

from pymc_kameleon.model.functions import has_gradient

LOCATION_SCALE = {
    **dict.fromkeys(("normal", "multivariate_normal"), "location + scale * z, z ~ N(0, 1)"),
    "lognormal": "exp(location + scale * z), z ~ N(0, 1)",
    **dict.fromkeys(
        ("t", "multivariate_studentt", "laplace", "logistic", "cauchy", "gumbel"),
        "location + scale * z, with location 0 and scale 1 in the prior of z",
    ),
}
"""How variables with these distributions, by PyTensor's names, are written without centring."""


def what_may_help(model):
    """Return what to try if the chains of a model do not agree, some sentences or ``""``."""
    advice = [another_parametrisation(model)]
    if has_gradient(model):
        advice.append("The log-density has a gradient: try NUTS, which pm.sample() takes.")
    return " ".join(filter(None, advice))


def another_parametrisation(model):
    """Return how a hierarchy may be written better; ``""`` if there is one variable only."""
    if len(model.free_RVs) < 2:
        return ""
    for name, parents, other in centred(model):
        return (
            f"{name} is written centred: its prior depends on {', '.join(parents)}. That is right "
            f"where the data say much about each element of {name}. Where they say little, write "
            f"{name} = {other}."
        )
    return (
        "If the model is a hierarchy, write it the other way: centred, theta ~ N(mu, tau), is "
        "right where the data say much about each theta, and non-centred, theta = mu + tau * z "
        "with z ~ N(0, 1), where they say little."
    )


def centred(model):
    """Return the free variables whose location or scale depends on other free variables.

    Returns
    -------
    list of (str, list of str, str)
        Their names, those of the variables that they depend on, and how they are written otherwise.
    """
    free, found = model.free_RVs, []
    for rv in free:
        above = set(ancestors(rv.owner.inputs, blockers=free))
        parents = [other.name for other in free if other in above]
        kind = getattr(rv.owner.op, "name", None)
        if parents and kind in LOCATION_SCALE:
            found.append((rv.name, parents, LOCATION_SCALE[kind]))
    return found
