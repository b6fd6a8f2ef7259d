"""Models that several tests use."""

import pymc as pm


def normal_model(precision):
    """Build a model without matrix products, which take PyTensor seconds to compile."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=len(precision))
        pm.Potential("p", -0.5 * (x[:, None] * precision * x).sum())
    return model
