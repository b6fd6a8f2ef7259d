"""What a run knows beforehand, where its black boxes have coarse models: a run with these."""

import logging

import numpy as np

from pymc_kameleon.core.conventions import CHAINS
from pymc_kameleon.findings.words import counted
from pymc_kameleon.model.black_box import Function
from pymc_kameleon.model.black_boxes import names_of
from pymc_kameleon.samplers.emulator.evaluations import COARSE
from pymc_kameleon.samplers.emulator.metropolis import EmulatorMetropolis, coarse_twin
from pymc_kameleon.step.groups import EVALUATIONS, FINDINGS

_log = logging.getLogger("pymc_kameleon")

N_COARSE = 300
"""Evaluations with the coarse models: two thirds of the points that an emulator is fitted to."""


def coarse_evaluations(steps, sample, random_seed, initvals, cores):
    """Return the Datasets of evaluations with coarse models: one, or none without such models.

    `sample` is `pk.sample`, which makes them.
    """
    [step, *others] = steps
    boxes = [op for op in step.log_density.users_ops if isinstance(op, Function)]
    able = [op for op in boxes if op.coarse is not None]
    if not able:
        return []
    why = ""
    if others or not isinstance(step, EmulatorMetropolis):
        why = "as that takes EmulatorMetropolis, for all variables"
    elif len(able) < len(boxes):
        lacking = names_of([op for op in boxes if op.coarse is None])
        why = f"as {lacking} has none: if it is cheap, let it be its own coarse model"
    if why:
        _log.info(f"The coarse model of {names_of(able)} is not used, {why}.")
        return []
    coarse = names_of([op.coarse for op in able])
    _log.info(
        f"Looking for the posterior with {coarse} in the place of {names_of(able)}: {N_COARSE} "
        "evaluations, which n_logp does not count."
    )
    seed = random_seed.spawn(1)[0] if isinstance(random_seed, np.random.Generator) else random_seed
    starts = initvals[:CHAINS] if isinstance(initvals, list | tuple) else initvals
    try:
        twin = coarse_twin(step)
        _check_sizes(step, twin)
        dt = sample(
            step=twin,
            max_evaluations=N_COARSE,
            chains=CHAINS if starts is initvals else len(starts),
            var_names=[var.name for var in step.model.free_RVs],
            initvals=starts,
            random_seed=seed,
            cores=cores,
            quiet=True,
            compute_convergence_checks=False,
            model=step.model,
        )
    except Exception as error:
        error.add_note(f"Raised where the coarse model {coarse} stands in for {names_of(able)}.")
        raise
    if "ended_early" in dt[FINDINGS]["code"]:  # by Ctrl-C, which is meant for the whole run
        raise KeyboardInterrupt
    return [dt[EVALUATIONS].to_dataset().assign_attrs(level=COARSE)]


def _check_sizes(step, twin):
    """Raise a ValueError unless coarse models return as many numbers as the black boxes."""
    pairs = zip(step.log_density.simulators.boxes, twin.log_density.simulators.boxes, strict=True)
    for box, coarse in pairs:
        if (box.p, box.q) != (coarse.p, coarse.q):
            raise ValueError(
                f"`{coarse.name}` returns {counted(coarse.q, 'number')}, and `{box.name}` {box.q}. "
                "Let a coarse model take and return the same."
            )
