"""``pk.diagnose``: whether a result can be used, by its draws, and by what its run has found."""

from functools import partial

import numpy as np
from arviz_stats import diagnose as arviz_diagnose

from pymc_kameleon.analysis.doubts import doubts
from pymc_kameleon.analysis.draws_of_result import Draws, side_by_side
from pymc_kameleon.analysis.expectation import averages_of
from pymc_kameleon.analysis.limits_of_r_hat import judged_r_hat
from pymc_kameleon.analysis.mode_occupancy import modes_apart
from pymc_kameleon.analysis.trust import (
    high_errors,
    high_r_hat,
    long_tails,
    poor_approximations,
    slow_chains,
)
from pymc_kameleon.findings.diagnosis import Diagnosis, diagnosis_in
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.findings.registry import OF_DRAWS
from pymc_kameleon.findings.words import chains_named, counted
from pymc_kameleon.model.advice import what_may_help
from pymc_kameleon.model.layout import elements
from pymc_kameleon.result.opening import draws_in, opened, statistics_in
from pymc_kameleon.result.origin import model_of
from pymc_kameleon.result.superchains import superchains_of
from pymc_kameleon.step.groups import FINDINGS

LOW_BFMI = 0.3
"""E-BFMI below which NUTS may miss tails, as in ArviZ."""

LEAST_DRAWS = 4
"""Draws of each chain from which R-hat and ESS are defined."""


def diagnose(dt, model=None, *, return_diagnostics=False):
    """Tell whether a result can be used: what its run has found, and what its draws show.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample`` or ``pm.sample``, or the path of a file or store of one.
    model : pm.Model, optional
        By default the one that this process has sampled. Without it all real variables are looked
        at, and draws are not compared with the prior.
    return_diagnostics : bool, optional
        Return what ``arviz.diagnose`` returns, too: a dict.

    Returns
    -------
    Diagnosis, or Diagnosis and dict
        Printed it is the verdict, and all findings; in a notebook a table.

    Raises
    ------
    ValueError
        If there are no draws.

    Notes
    -----
    R-hat, errors of means and standard deviations, divergences, E-BFMI, tree depth, tails, modes
    whose weights are not known, modes without draws, and agreement with the prior are looked at.
    Errors are those of corrected averages, as in ``pk.summary``. The verdict is ``"usable"`` if all
    findings are notes, ``"check"`` if there is a caution, and ``"not usable"`` if there is a
    problem. docs/diagnose.md lists all of them.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample()
    >>> pk.diagnose(dt)
    """
    dt = opened(dt, model)
    posterior = draws_in(dt, "judge")
    evaluates = model is not None
    found, known = findings_of_draws(dt, model or model_of(posterior), evaluates)
    summary = known
    if FINDINGS in getattr(dt, "children", ()):
        of_run = diagnosis_in(dt[FINDINGS].to_dataset())
        found += [one for one in of_run.findings if one.code not in OF_DRAWS]
        made = of_run.summary.partition(". ")[0].rstrip(".")
        summary = f"{made}. {known}"
    diagnosis = Diagnosis(found, summary)
    if not return_diagnostics:
        return diagnosis
    _, diagnostics = arviz_diagnose(dt, show_diagnostics=False, return_diagnostics=True)
    return diagnosis, diagnostics


def findings_of_draws(dt, model=None, evaluates=False):
    """Return what the draws of a result show, and how well means are known, in words.

    Where a correction by gradients lacks some, it has them evaluated if that is asked for.
    """
    posterior = dt["posterior"].to_dataset()
    names = _parameters(posterior, model)
    if posterior.sizes["draw"] < LEAST_DRAWS or not names:
        return [] if posterior.sizes["draw"] else [finding("no_draws")], ""
    found = _of_statistics(statistics_in(dt))
    if model is not None:
        found += doubts(dt, model)
    values = side_by_side(posterior[names].transpose("chain", "draw", ...))
    if (np.ptp(values, axis=(0, 1)) == 0).all():
        return [*found, finding("constant_draws")], ""
    draws = Draws(dt, model, evaluates)
    at = partial(draws.at, function=side_by_side, names=names)
    of = averages_of(draws, values, at if draws.can_correct(names) == names else None)
    labels = [one for name in names for one in elements(name, posterior[name][0, 0].shape)]
    both = [f"{what} of {name}" for what in ("mean", "standard deviation") for name in labels]
    disagree = high_r_hat(labels, *judged_r_hat(values, of.r_hat, superchains_of(posterior)))
    imprecise = high_errors(both, np.tile(of.sd, 2), np.concatenate([of.mcse, of.mcse_sd]))
    found += disagree + (imprecise or slow_chains(labels, values)) + long_tails(labels, values)
    found += poor_approximations(draws.corrections)
    if disagree or imprecise:
        apart = modes_apart(dt, names)
        found += apart or (what_may_help(model) if disagree and model else [])
    return found, _known(labels, of)


def _known(labels, of):
    """Return in words how well the worst mean is known, "" if that is not known."""
    errors = np.divide(of.mcse, of.sd, where=of.sd > 0, out=np.zeros_like(of.sd))
    if np.isnan(errors).any():
        return ""
    worst = errors.argmax()
    what = f"The worst of {counted(len(labels), 'mean')}" if len(labels) > 1 else "The mean"
    return f"{what} is known to {errors[worst]:.2g} posterior sd ({labels[worst]})."


def _parameters(posterior, model):
    """Return the variables to look at: the parameters that are kept, or all real variables."""
    if model is None:
        return [name for name, own in posterior.items() if own.dtype.kind == "f"]
    return [rv.name for rv in model.free_RVs if rv.name in posterior]


def _of_statistics(statistics):
    """Tell of divergences, of trees that were too deep, and of low energies."""
    found = []
    if "diverging" in statistics and (n := int(statistics["diverging"].sum())):
        found.append(finding("divergences", n=n))
    deep = "reached_max_treedepth"
    if deep in statistics and (n := int(statistics[deep].sum())):
        found.append(finding("deep_trees", n=n))
    if "energy" in statistics:
        energy = statistics["energy"].transpose("chain", "draw")
        with np.errstate(all="ignore"):  # of what does not vary
            bfmi = np.square(np.diff(energy, axis=1)).mean(axis=1) / energy.values.var(axis=1)
        if (low := energy["chain"].values[bfmi < LOW_BFMI]).size:
            n = len(energy["chain"])
            found.append(finding("low_energy", bfmi=bfmi.min(), chains=chains_named(list(low), n)))
    return found
