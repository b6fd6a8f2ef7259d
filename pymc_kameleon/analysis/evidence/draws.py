"""What the evidence needs of a result: unconstrained positions, and log-densities there."""

import numpy as np
import pymc as pm
import xarray as xr

from pymc_kameleon.analysis.batches import LEAST_DRAWS
from pymc_kameleon.analysis.unconstrained_draws import (
    NotMapped,
    on_unconstrained_scale,
    variables_lacking,
)
from pymc_kameleon.findings.finding import say
from pymc_kameleon.findings.words import some
from pymc_kameleon.model.layout import Layout, split_name
from pymc_kameleon.model.noise import NOISE_SEED, REPEATABLE
from pymc_kameleon.model.pymc_internals import (
    CircularTransform,
    FlatRV,
    HalfFlatRV,
    MinibatchRandomVariable,
)
from pymc_kameleon.result.opening import known_logp, learned_in, statistics_in
from pymc_kameleon.result.origin import model_of
from pymc_kameleon.result.steps import restrictions, variables_in_order
from pymc_kameleon.samplers.surrogate.moves import parameters_of
from pymc_kameleon.step.groups import (
    EMULATOR_MOVES,
    LEARNED_GROUP,
    STATE_GROUP,
    SURROGATE_MOVES,
)

LEAST_OF_CHAIN = 8
"""Draws of each chain below which nothing is told: four of a half have an ESS."""

CHECKED = 3
"""Draws at which the model is compared with the one that was sampled."""


class EvidenceDraws:
    """Draws of a result, for the evidence of its model.

    `x` (chains, draws, d) has the `variables` in the order of the step; `logp` the log-densities
    there, as the sampler has found them, or None; `surrogates` the Parameters of each chain, or
    None; `restricted` where steps were restricted to, by value variable.
    """

    def __init__(self, dt, model):
        if not isinstance(dt, xr.DataTree) or "posterior" not in dt.children:
            raise ValueError(
                "The evidence needs a whole result, a DataTree with the group posterior, as "
                "pk.sample and pm.sample return it."
            )
        self.posterior = dt["posterior"].to_dataset()
        if not {"chain", "draw"} <= set(self.posterior.dims):
            raise ValueError("The draws need the dimensions chain and draw.")
        self.model = _model_for(self.posterior, model)
        check_model(self.model)
        chains, draws = self.posterior.sizes["chain"], self.posterior.sizes["draw"]
        if chains * draws < LEAST_DRAWS or draws < LEAST_OF_CHAIN:
            raise ValueError(
                f"{chains} chains of {draws} draws are too few for the evidence: let there be "
                f"{LEAST_DRAWS} at least, and {LEAST_OF_CHAIN} of each chain, by a larger draws= "
                "or max_evaluations= of pk.sample, or by pk.resume."
            )
        self.logp = known_logp(dt)
        run = dt[STATE_GROUP].attrs if STATE_GROUP in dt.children else {}
        self.variables, self.restricted = variables_in_order(self.model, run), restrictions(run)
        if missing := variables_lacking(self.posterior, self.model):
            raise ValueError(
                f"The result has no draws of {some(missing)}: all free variables have to be there."
            )
        try:
            x, _, point = on_unconstrained_scale(self.posterior, self.model)
        except NotMapped as error:
            raise ValueError(f"The evidence cannot be found: {error}.") from None
        layout = Layout(self.model, self.variables, point)
        self.x = x[..., layout.places]
        names = np.array([split_name(own)[0] for own in layout.coordinates()])
        if self.is_estimate and self.logp is None:
            raise ValueError(
                "The log-density is an estimate, and the result does not have those that the draws "
                "were accepted with, sample_stats['lp']. Let pk.sample make the draws."
            )
        if (same := np.ptp(self.x, axis=(0, 1)) == 0).any():
            raise ValueError(f"{some([*dict.fromkeys(names[same])])} is the same in all draws.")
        self.surrogates = _surrogates(dt, self.posterior)
        self.is_expensive = self.surrogates is not None or EMULATOR_MOVES in dt.children
        stats = statistics_in(dt)
        self.n_diverging = int(stats["diverging"].sum()) if "diverging" in stats else 0

    @property
    def is_estimate(self):
        """Whether the log-density is only estimated."""
        return NOISE_SEED in self.model.named_vars

    def thin(self, most):
        """Keep at most so many draws, evenly spaced, or a few more."""
        step = -(-self.x.shape[0] * self.x.shape[1] // most)
        self.x = self.x[:, ::step]
        self.posterior = self.posterior.isel(draw=slice(None, None, step))
        self.logp = None if self.logp is None else self.logp[:, ::step]

    def check(self, at, logp):
        """Raise a ValueError unless log-densities at some draws, by flat numbers, are as known."""
        known = self.logp.ravel()[at]
        if np.allclose(logp, -known, REPEATABLE, REPEATABLE):  # NumPyro's potential energy
            self.logp = -self.logp
            return
        if not np.allclose(logp, known, REPEATABLE, REPEATABLE):
            worst = np.argmax(np.abs(logp - known))
            raise ValueError(
                "This is not the model that was sampled, or its data have changed: at a draw where "
                f"the result says that the log-density is {known[worst]:.6g}, it is "
                f"{logp[worst]:.6g}. If several steps of pm.sample have moved the variables, leave "
                "out what one of them says: dt.drop_nodes('sample_stats')."
            )


def _model_for(posterior, model):
    if model is not None:
        if not isinstance(model, pm.Model):
            raise ValueError(f"model must be a pm.Model, not {model!r}.")
        return model
    known = model_of(posterior) or pm.Model.get_context(error_if_none=False)
    if known is None:
        raise ValueError("The evidence needs the model: pass model=..., or call it in its context.")
    return known


def check_model(model):
    """Raise a ValueError for a model that has no evidence, or whose draws do not tell it."""
    if not model.value_vars:
        raise ValueError("The model has no free variables: its evidence is its log-density.")
    if discrete := [var.name for var in model.discrete_value_vars]:
        raise ValueError(
            f"{some(discrete)} is discrete, and the evidence is an integral: sum over it in the "
            "model, as pm.Mixture does."
        )
    transforms = model.rvs_to_transforms
    angles = [rv.name for rv in model.free_RVs if isinstance(transforms[rv], CircularTransform)]
    if angles:
        raise ValueError(
            f"{some(angles)} is an angle, whose density never falls off: for the evidence, give it "
            "bounds, as pm.Uniform('angle', -np.pi, np.pi)."
        )
    flat = _flat(model)
    if flat and not model.potentials:
        raise ValueError(
            f"The prior of {some(flat)} is improper: it has an arbitrary constant, and so has the "
            "evidence. Give it a proper prior, as pm.Normal."
        )


def say_what_counts(model, restricted):
    """Log what the evidence depends on besides priors and data, as regions by variable."""
    if restricted:
        say("evidence_of_region", names=some([*restricted]))
    if flat := _flat(model):
        say("evidence_of_flat_prior", names=some(flat))
    if scaled := _names_of(model.observed_RVs, MinibatchRandomVariable):
        say("evidence_of_minibatch", names=some(scaled))
    if potentials := [own.name for own in model.potentials]:
        say("evidence_of_potentials", names=some(potentials))


def _names_of(variables, kinds):
    return [rv.name for rv in variables if isinstance(rv.owner.op, kinds)]


def _flat(model):
    return _names_of(model.free_RVs, FlatRV | HalfFlatRV)


def _surrogates(dt, posterior):
    """Return the Parameters of each chain with a surrogate that has kernels; None without."""
    if not {SURROGATE_MOVES, LEARNED_GROUP} <= set(dt.children):
        return None
    learned, chains = learned_in(dt), posterior["chain"].values
    if "n_centres" not in learned or not np.isin(chains, learned["chain"]).all():
        return None
    own = learned.sel(chain=chains)
    if own["surrogate_error"].isnull().any() or (own["n_centres"] == 0).any():
        return None
    return [parameters_of(own.sel(chain=chain)) for chain in chains]
