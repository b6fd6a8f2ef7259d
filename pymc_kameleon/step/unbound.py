"""Steps that know no model yet: ``pk.GAM.options(steps_per_draw=5)``."""

import pymc as pm

from pymc_kameleon.model.pymc_internals import BlockedStep
from pymc_kameleon.step.options import check_names


class UnboundStep(BlockedStep):
    """A sampler and its options, for the model of whoever samples.

    ``pk.sample`` binds it to its model, and leaves it as it is, so that it serves again.
    ``pm.sample`` asks first for `vars`, inside the model's context: there it becomes the step.

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

    def __new__(cls, *arguments, **options):
        """Make it without a model, which PyMC's own steps need."""
        return object.__new__(cls)

    def __init__(self, sampler, chosen, options):
        check_names(sampler, options)
        self.sampler, self.chosen, self.options = sampler, chosen, options

    def __getnewargs_ex__(self):
        """Travel without a model."""
        return (), {}

    def __repr__(self):
        """Show how it was made."""
        given = ({} if self.chosen is None else {"vars": self.chosen}) | self.options
        arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
        return f"{self.sampler.__name__}.options({arguments})"

    def bound_to(self, model, left=None):
        """Return the step of a model; it moves the variables `left` if none were chosen."""
        chosen = left if self.chosen is None else self.chosen
        return self.sampler(chosen, **{"model": model, **self.options})

    @property
    def vars(self):
        """The variables of the step that this is from now on."""
        try:
            model = pm.modelcontext(self.options.get("model"))
        except TypeError:
            raise TypeError(
                f"{self!r} is not bound to a model yet. Sample inside its context, `with model:`, "
                "or give it as an option, model=model."
            ) from None
        step = self.bound_to(model)
        self.__class__, self.__dict__ = type(step), step.__dict__
        return self.vars

    def step(self, point):
        """Refuse to make a draw: whoever makes one asks for `vars` before."""
        raise TypeError(f"{self!r} is not bound to a model yet.")
