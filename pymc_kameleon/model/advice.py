"""What may help where a model is hard to sample."""

from pytensor.graph.traversal import ancestors

from pymc_kameleon.findings.finding import finding
from pymc_kameleon.model.functions import has_gradient


def may_be_hierarchy(model):
    """Whether one variable depends on another, or several numbers may share a scale."""
    free = set(model.free_RVs)
    depends = any(free & set(ancestors(rv.owner.inputs)) for rv in free)
    return depends or (len(free) > 1 and any(rv.ndim > 0 for rv in free))


def what_may_help(model):
    """Return what to try if the chains of a model do not agree: Findings."""
    codes = {"hierarchy": may_be_hierarchy(model), "has_gradient": has_gradient(model)}
    return [finding(code) for code, is_so in codes.items() if is_so]
