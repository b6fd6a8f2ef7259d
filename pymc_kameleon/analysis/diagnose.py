"""``pk.diagnose``: whether a result can be used, by its draws, and by what its run has found."""

import numpy as np
import xarray as xr
from arviz_stats import diagnose as arviz_diagnose

from pymc_kameleon.analysis.doubts import doubts
from pymc_kameleon.analysis.draws_of_result import Draws, not_finite, side_by_side
from pymc_kameleon.analysis.expectation import averages_of
from pymc_kameleon.analysis.limits_of_r_hat import high_r_hats
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
from pymc_kameleon.findings.registry import BY_MODEL, OF_DRAWS
from pymc_kameleon.findings.words import chains_named, counted, grouped, some
from pymc_kameleon.model.advice import what_may_help
from pymc_kameleon.model.layout import elements
from pymc_kameleon.result.opening import draws_in, opened, statistics_in
from pymc_kameleon.result.origin import model_of
from pymc_kameleon.samplers.emulator.evaluations import calls_in
from pymc_kameleon.samplers.emulator.scatter import scatter_of
from pymc_kameleon.step.groups import EVALUATIONS, FINDINGS

LOW_BFMI = 0.3
"""E-BFMI below which NUTS may miss tails, as in ArviZ."""

FEWEST_DRAWS = 4
"""Draws of each chain from which ArviZ defines R-hat and ESS."""


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
    diagnosis = diagnosed(dt, model, evaluates=model is not None)
    if not return_diagnostics:
        return diagnosis
    _, diagnostics = arviz_diagnose(dt, show_diagnostics=False, return_diagnostics=True)
    return diagnosis, diagnostics


def diagnosed(dt, model, evaluates=False):
    """Return the Diagnosis of a result that is opened; `evaluates` as of `findings_of_draws`."""
    posterior = draws_in(dt, "judge")
    if "posterior" not in getattr(dt, "children", ()):
        dt = xr.DataTree.from_dict({"posterior": posterior})
    model = model or model_of(posterior)
    found, known = findings_of_draws(dt, model, evaluates)
    if FINDINGS in dt.children:
        of_run = diagnosis_in(dt[FINDINGS].to_dataset()).findings
        judged = OF_DRAWS if model is not None else OF_DRAWS - BY_MODEL
        found += [one for one in of_run if one.code not in judged]
    n, chains = posterior.sizes["draw"], counted(posterior.sizes["chain"], "chain")
    return Diagnosis(found, f"{grouped(n)} draws of {chains}. {known}".rstrip())


def findings_of_draws(dt, model=None, evaluates=False):
    """Return what the draws of a result show, and how well means are known, in words.

    Where a correction by gradients lacks some, it has them evaluated if that is asked for.
    """
    posterior = dt["posterior"].to_dataset().transpose("chain", "draw", ...)
    names, n = _parameters(posterior, model), posterior.sizes["draw"]
    if n == 0:
        return [finding("no_draws")], ""
    if n < FEWEST_DRAWS or not names:
        why = f"each chain has {counted(n, 'draw')}" if names else "no parameter was kept"
        return [finding("not_judged", why=why)], ""
    statistics = statistics_in(dt)
    found = _of_statistics(statistics) + (doubts(dt, model) if model is not None else [])
    if posterior.sizes["chain"] == 1:
        found.append(finding("one_chain"))
    found += [one for name in names for one in not_finite(name, posterior[name].values)]
    values = side_by_side(posterior[names])
    labels = [one for name in names for one in elements(name, posterior[name][0, 0].shape)]
    fine = np.flatnonzero(np.isfinite(values).all(axis=(0, 1)))
    values, labels = values[..., fine], [labels[k] for k in fine]
    if not labels:
        return found, ""
    equal = [labels[k] for k in np.flatnonzero(np.ptp(values, axis=(0, 1)) == 0)]
    if equal and (model is not None or len(equal) == len(labels)):
        found.append(finding("constant_draws", names=some(equal)))
    draws = Draws(dt, model, evaluates)

    def at(x):
        return draws.at(x, side_by_side, names)[:, fine]

    of = averages_of(draws, values, at if draws.can_correct(names) == names else None)
    both = [f"{what} of {name}" for what in ("mean", "sd") for name in labels]
    disagree = high_r_hat(labels, of.r_hat, high_r_hats(values, of.r_hat))
    imprecise = high_errors(both, np.tile(of.sd, 2), np.concatenate([of.mcse, of.mcse_sd]))
    found += disagree
    if disagree or imprecise:
        advice = what_may_help(model) if disagree and model else []
        by_nuts = "diverging" in statistics
        advice = [one for one in advice if not (by_nuts and one.code == "has_gradient")]
        found += modes_apart(dt, names) or advice
    found += (imprecise or slow_chains(labels, values)) + long_tails(labels, values)
    found += poor_approximations(draws.corrections) + _rough_outputs(dt)
    return found, _known(labels, of)


def _rough_outputs(dt):
    """Tell of black boxes that were emulated, and are not smooth."""
    if EVALUATIONS not in dt.children or "boxes" not in dt[EVALUATIONS].attrs:
        return []
    found = []
    for calls in calls_in(dt[EVALUATIONS].to_dataset()):
        scatter = scatter_of(calls)
        if scatter is not None and scatter.is_sure:
            size, spread = np.median(scatter.sd), np.median(scatter.spread)
            name = f"`{calls.described['name']}`"
            found.append(finding("rough_outputs", box=name, size=size, spread=spread))
    return found


def _known(labels, of):
    """Return in words how well the worst mean is known, "" if that is not known."""
    with np.errstate(all="ignore"):  # of what does not vary
        errors = of.mcse / of.sd
    if np.isnan(errors).all():
        return ""
    worst = np.nanargmax(errors)
    what = f"The worst of {counted(len(labels), 'mean')}" if len(labels) > 1 else "The mean"
    return f"{what} is known to {errors[worst]:.2g} posterior sd ({labels[worst]})."


def _parameters(posterior, model):
    """Return the variables to look at: the parameters that are kept, or all real variables."""
    if model is None:
        return [name for name, own in posterior.items() if own.dtype.kind in "iuf"]
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
