"""Steps that know no model yet: ``pk.GAM.options(steps_per_draw=5)``."""

from functools import cached_property

import pymc as pm

from pymc_kameleon.model.pymc_internals import CompoundStep
from pymc_kameleon.step.options import check_names


class UnboundStep(CompoundStep):
    """A sampler and its options, for the model of whoever samples.

    ``pk.sample`` binds it to its model, and leaves it as it is, so that it serves again.
    ``pm.sample`` takes it for a CompoundStep. It asks first for `vars`, inside the model's context:
    there the only step is made.

    Parameters
    ----------
    sampler : subclass of KameleonStep
    chosen : list of variables or names, a single one, or None
    options : dict

    Raises
    ------
    TypeError
        For an option that the sampler does not have.
    """

    def __init__(self, sampler, chosen, options):
        check_names(sampler, options)
        self.sampler, self.chosen, self.options = sampler, chosen, options

    def __repr__(self):
        """Show how it was made."""
        given = ({} if self.chosen is None else {"vars": self.chosen}) | self.options
        arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"{self.sampler.__name__}.options({arguments})"

    def bound_to(self, model, left=None):
        """Return the step of a model; it moves the variables `left` if none were chosen."""
        chosen = left if self.chosen is None else self.chosen
        return self.sampler(chosen, **{"model": model, **self.options})

    @cached_property
    def methods(self):
        """The step of the first model that asks for it."""
        try:
            model = pm.modelcontext(self.options.get("model"))
        except TypeError:
            raise TypeError(
                f"{self!r} is not bound to a model yet. Sample inside its context, `with model:`, "
                "or give it as an option, model=model."
            ) from None
        return [self.bound_to(model)]

    @property
    def stats_dtypes(self):
        """The step's."""
        return self.methods[0].stats_dtypes

    @property
    def stats_dtypes_shapes(self):
        """The step's, under their own names."""
        return self.methods[0].stats_dtypes_shapes

    def setup_chain(self, rng, tune, draws):
        """Give the step the generator itself, so that it draws as it would alone."""
        self.methods[0].setup_chain(rng, tune, draws)
