"""Which steps make a run: as the user names them, or the ones that we choose."""

import logging
from difflib import get_close_matches

from pymc_kameleon.model.functions import has_gradient
from pymc_kameleon.model.noise import NOISE_SEED
from pymc_kameleon.model.pymc_internals import CompoundStep
from pymc_kameleon.model.simulator_calls import NotEmulated
from pymc_kameleon.samplers.emulator.metropolis import EmulatorMetropolis
from pymc_kameleon.samplers.gradient.fisher_rule import MOST_DENSE
from pymc_kameleon.samplers.gradient.gad import GadMALA
from pymc_kameleon.samplers.random_walk.adaptive import GAM
from pymc_kameleon.samplers.surrogate.fit import MOST_FOR_SURROGATE
from pymc_kameleon.samplers.surrogate.metropolis import SurrogateMetropolis
from pymc_kameleon.step.base import KameleonStep, samplers
from pymc_kameleon.step.unbound import UnboundStep

_log = logging.getLogger("pymc_kameleon")


def bound_steps(step, model):
    """Return the steps that a user means, bound to a model; None chooses.

    In a list, one unbound step may leave its variables open, and takes what is left. Anything else,
    or several steps that would take all variables, is a ValueError.
    """
    given = [as_unbound(each) for each in listed(default_step(model) if step is None else step)]
    undecided = [each for each in given if isinstance(each, UnboundStep) and each.chosen is None]
    if len(undecided) > 1:
        raise ValueError(
            f"{' and '.join(map(repr, undecided))} would each take all variables. Name the "
            f"variables of all but one, as in {undecided[0].sampler.__name__}.options(vars=[...])."
        )
    steps = [
        each.bound_to(model) if isinstance(each, UnboundStep) and each not in undecided else each
        for each in given
    ]
    if undecided and len(steps) > 1:
        i = steps.index(undecided[0])
        moved = [var for each in steps if each is not steps[i] for var in each.vars]
        left = [var for var in model.continuous_value_vars if var not in moved]
        if not left:
            raise ValueError(f"{steps[i]!r} has nothing to move: others move all variables.")
        steps[i] = steps[i].bound_to(model, left)
    elif undecided:
        steps = [undecided[0].bound_to(model)]
    return steps


def steps_of_run(step, model):
    """Return the steps that a user means, which move each variable of the model once."""
    steps = bound_steps(step, model)
    check_whole(steps, model)
    return steps


def check_whole(steps, model):
    """Raise a ValueError unless each variable of the model is moved by one of the steps."""
    for each in steps:
        if each.model is not model:
            raise ValueError(f"{each!r} was made for another model.")
    moved = [var for each in steps for var in each.vars]
    left = [var.name for var in model.value_vars if var not in moved]
    if left:
        raise ValueError(
            f"No step moves {left}. pk.sample needs steps of pymc_kameleon for all variables, "
            "which have to be continuous; pm.sample(step=...) leaves others to PyMC's own steps."
        )
    twice = sorted({var.name for var in moved if moved.count(var) > 1})
    if twice:
        raise ValueError(f"{twice} are moved by two steps. Leave each variable to one.")


def listed(step):
    """Return the steps of a list, of a CompoundStep, or a single one, as a list."""
    if isinstance(step, CompoundStep) and not isinstance(step, UnboundStep):
        step = step.methods
    return list(step) if isinstance(step, list | tuple) else [step]


def as_unbound(step, more=()):
    """Return a class or a name as an unbound step; `more` are names that an error lists, too."""
    if isinstance(step, str):
        known = {cls.__name__.lower(): cls for cls in samplers()}
        if step.lower() not in known:
            near = get_close_matches(step.lower(), known, n=1)
            hint = f" Did you mean {known[near[0]].__name__!r}?" if near else ""
            names = ", ".join([*sorted(cls.__name__ for cls in known.values()), *more])
            raise ValueError(f"There is no sampler {step!r}.{hint} There are {names}.")
        return known[step.lower()].options()
    if isinstance(step, type) and issubclass(step, KameleonStep):
        return step.options()
    if not isinstance(step, KameleonStep | UnboundStep):
        raise ValueError(
            f"pk.sample needs a step of pymc_kameleon, such as step=pk.GAM(), and got {step!r}. "
            "Other steps run in pm.sample, alone or beside ours."
        )
    return step


def default_step(model):
    """Return the sampler that suits a model, or its step if that had to be made; log why."""
    others = [var.name for var in model.value_vars if var not in model.continuous_value_vars]
    if others:
        raise ValueError(
            f"No step of pymc_kameleon moves {others}, which are discrete. "
            "pm.sample(step=pk.GAM()) leaves them to PyMC's own steps."
        )
    if NOISE_SEED in model.named_vars:
        _log.info(
            "Sampling with GAM(pseudo_marginal=True), as the log-density is only estimated; "
            "step=pk.KAM.options(pseudo_marginal=True) chooses another."
        )
        return GAM.options(pseudo_marginal=True)
    start = model.initial_point()
    d = sum(start[var.name].size for var in model.continuous_value_vars)
    more = " With a gradient NUTS is the usual choice: pm.sample() takes it."
    step, n_trials = None, 0
    if not has_gradient(model):
        why, more = "as the log-density has no gradient", ""
        sampler = SurrogateMetropolis if d <= MOST_FOR_SURROGATE else GAM
        try:
            step = EmulatorMetropolis(model=model)
            sampler, why = EmulatorMetropolis, "as the log-density calls a black box"
        except NotEmulated as error:
            more, n_trials = f" {error}", error.n_trials
    elif d > MOST_DENSE:
        sampler, why = GAM, f"as there are {d} coordinates, more than {MOST_DENSE}"
    else:
        sampler, why = GadMALA, "as the log-density has a gradient"
    other = "pk.KAM" if sampler is GAM else "pk.GAM"
    _log.info(f"Sampling with {sampler.__name__}, {why}; step={other} chooses another.{more}")
    if n_trials > 0:
        step = sampler(model=model)
        step.n_trials += n_trials
    return sampler if step is None else step
