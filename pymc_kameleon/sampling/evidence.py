"""``pk.evidence`` and ``pk.compare_models``: which model the data favour, by draws of each."""

import numpy as np
import xarray as xr

from pymc_kameleon.analysis.evidence.comparison import (
    checked_prior,
    differing_data,
    table_of,
)
from pymc_kameleon.analysis.evidence.draws import EvidenceDraws, say_what_counts
from pymc_kameleon.analysis.evidence.estimate import LEAST_PILOT
from pymc_kameleon.analysis.evidence.result import Evidence
from pymc_kameleon.approximation.records import MANY_DRAWS
from pymc_kameleon.findings.finding import said, say
from pymc_kameleon.model.evaluators import calling_elsewhere
from pymc_kameleon.result.opening import opened
from pymc_kameleon.sampling.bridging import Density, Evaluating, evidence_by
from pymc_kameleon.sampling.workers import evaluators_of
from pymc_kameleon.step.options import checked_integer

WITH_SURROGATE = 200
"""New points by default, if evaluations are expensive."""


def evidence(dt, model=None, n_evaluations=None, random_seed=None, *, cores=None, executor=None):
    """Estimate the evidence of a model: the log marginal likelihood of its data.

    That is log Z, with Z the integral of prior times likelihood over all parameters: the density of
    the data, given the model alone. It is found by bridge sampling between the draws and a density
    that is near the posterior. With SurrogateMetropolis that is its surrogate. For draws of other
    samplers, of ``pm.sample`` too, one half of the draws makes a surrogate to which the other half
    is bridged, and the other way round. docs/evidence.md explains it.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample`` or ``pm.sample``, or the path of a file or store of one, with
        draws of all free variables.
    model : pm.Model, optional
        By default the one that this process has sampled, or that of the context.
    n_evaluations : int, optional
        New points at which the log-density is evaluated, 50 at least. By default 200 for draws of
        SurrogateMetropolis and EmulatorMetropolis. For others as many as there are draws, from
        200 to 4000. Three more are at draws, to see that the model is the one that was sampled.
        If the result does not have the log-densities of its draws, about as many of these are
        evaluated as well.
    random_seed : int or numpy.random.Generator, optional
        For the same answer again.
    cores : int, optional
        How many evaluations are made at a time if the model calls Python, as a black box: by
        default as many as there are processors, at most 4.
    executor : concurrent.futures.Executor or callable, optional
        What calls black boxes, as in ``pk.sample``.

    Returns
    -------
    Evidence

    Raises
    ------
    ValueError
        If a prior is improper, or a variable discrete; if draws are too few, or lack variables; or
        if this is not the model that was sampled.

    Notes
    -----
    The constants of a ``pm.Potential`` count, too. The log warns if draws and the density have
    little in common, if chains disagree, or do not tell the weights of several modes.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.SurrogateMetropolis())
    >>> pk.evidence(dt)  # doctest: +SKIP
    """
    if cores is not None:
        checked_integer("cores", cores, at_least=1)
    if n_evaluations is not None:
        checked_integer("n_evaluations", n_evaluations, at_least=LEAST_PILOT)
    dt = opened(dt, model)
    draws = EvidenceDraws(dt, model)
    say_what_counts(draws.model, draws.restricted)
    if n_evaluations is None:
        n_draws = draws.x.shape[0] * draws.x.shape[1]
        usual = int(np.clip(n_draws, WITH_SURROGATE, MANY_DRAWS))
        n_evaluations = WITH_SURROGATE if draws.is_expensive else usual
    rng = np.random.default_rng(random_seed)
    with evaluators_of(executor) as evaluators:
        with calling_elsewhere(evaluators):
            density = Density(draws.model, draws.variables, draws.restricted)
        with Evaluating(density, cores, evaluators, rng) as evaluate:
            found = evidence_by(draws, evaluate, n_evaluations, rng)
    said(found.findings)
    return found


def compare_models(results, prior=None, **options):
    """Compare models of the same data by their evidences.

    Parameters
    ----------
    results : dict
        A result of each model, by name, as ``pk.evidence`` takes it without its model; or what that
        has returned.
        The log warns if their observed data differ, as evidences of different data cannot be
        compared.
    prior : dict, optional
        Prior probabilities of the models, or odds. By default all are as probable.
    **options
        Others of ``pk.evidence``, as `n_evaluations` and `random_seed`.

    Returns
    -------
    DataFrame
        A row for each model, the one with the largest evidence first: ``log_evidence`` and its
        ``standard_error``; ``log_bayes_factor``, the difference to the first one, and
        ``log_bayes_factor_error``; the posterior ``probability`` and ``probability_error``, what
        the errors of the evidences leave open; and ``evaluations``. A model whose evidence is not
        known has NaN, and then so has each probability. ``pk.plot_evidence`` draws it.

    Raises
    ------
    ValueError
        As ``pk.evidence``; or for a `prior` with other names, or numbers that are not positive.

    Examples
    --------
    >>> table = pk.compare_models({"sir": dt_sir, "seir": dt_seir})  # doctest: +SKIP
    """
    if not isinstance(results, dict) or not results:
        what = "an empty one" if isinstance(results, dict) else type(results).__name__
        raise ValueError(f"results must be a dict, {{'a': dt_a, 'b': dt_b}}, not {what}.")
    checked_prior(prior, results)
    results = {name: opened(own) for name, own in results.items()}
    trees = {name: own for name, own in results.items() if isinstance(own, xr.DataTree)}
    if differing := differing_data(trees):
        first, second = map(repr, differing)
        say("other_data", first=first, second=second)
    evidences = {}
    for name, own in results.items():
        try:
            evidences[name] = own if isinstance(own, Evidence) else evidence(own, **options)
        except ValueError as error:
            error.add_note(f"in the model {name!r}")
            raise
    return table_of(evidences, prior)
