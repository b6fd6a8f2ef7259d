"""``pk.identifiability``: what the data tell of each parameter, and of which combinations nothing.

Symbols: z the parameters on the unconstrained scale, u = (z − m)/s with m and s the median and half
of the middle 68 % of the prior; C and R the covariances of u over the posterior and over the prior.

A combination v·u whose variance over the posterior is λ times that over the prior solves the
generalised eigenproblem C v = λ R v. Where λ is 1 the data tell nothing of it (Spantini et al.,
SIAM Journal on Scientific Computing 37, 2015, A2451). Where it is 1 of a combination, but not of
its parameters while the others are held fixed, these are on a ridge.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from arviz_stats import psense_summary
from pytensor.compile import Mode
from scipy.linalg import eigh

from pymc_kameleon.analysis.diagnose import FEWEST_DRAWS
from pymc_kameleon.analysis.simulator_inputs import N_DRAWS
from pymc_kameleon.analysis.unconstrained_draws import (
    NotMapped,
    on_unconstrained_scale,
    transformed,
    variables_lacking,
)
from pymc_kameleon.findings.finding import finding, said
from pymc_kameleon.findings.words import some
from pymc_kameleon.model.black_boxes import black_boxes
from pymc_kameleon.model.pymc_internals import natural_name
from pymc_kameleon.result.opening import draws_in, known_logp, opened

SHOWN = 5
"""Combinations that are shown, those of which least is known; and parameters named of each."""

FELT = 0.9
"""Standard deviation, relative to the prior's, above which the data tell next to nothing: a datum
that is as wide as the prior leaves 0.7, and one twice as wide 0.9."""

IN_A_COMBINATION = 0.3
"""Weight in a combination, relative to the largest one, from which a parameter is named."""


class Identifiability(NamedTuple):
    """What the data tell of parameters, as tables of pandas.

    Attributes
    ----------
    parameters : DataFrame
        A row for each coordinate of the unconstrained scale. `narrowed` is its posterior standard
        deviation relative to the prior's, `given_others` the same if all others were known, and
        `tied_to` the parameter with which it is correlated most, by `correlation`.
    combinations : DataFrame
        A row for each of the combinations of which the data tell least, with `narrowed` as above,
        and the `combination` in units of the prior.
    sensitivity : DataFrame
        By ``az.psense_summary``: how much power-scaling the prior and the likelihood moves each
        variable; empty if the result does not have the log-density at its draws.
    """

    parameters: pd.DataFrame
    combinations: pd.DataFrame
    sensitivity: pd.DataFrame

    def __repr__(self):
        """Show all tables."""
        tables = [table for table in self if not table.empty]
        return "\n\n".join(table.to_string(float_format="{:.2f}".format) for table in tables)


def identifiability(dt, model=None, *, random_seed=None):
    """Tell how far the data have narrowed the prior, of each parameter and of combinations.

    No evaluation of the likelihood is made.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample``, or of another sampler.
    model : pm.Model, optional
        The model, or that of the context. Its prior is drawn from.
    random_seed : int or Generator, optional
        Of the draws of the prior.

    Returns
    -------
    Identifiability
        Tables ``parameters``, ``combinations`` and ``sensitivity``.

    Raises
    ------
    ValueError
        If a parameter has no proper prior, calls a black box, or lacks draws.

    Notes
    -----
    It logs a caution for a combination of which the data tell next to nothing, and a note if there
    is no table of sensitivities. See docs/identifiability.md.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample()
    ...     table = pk.identifiability(dt)
    """
    model, dt = pm.modelcontext(model), opened(dt, model)
    posterior = draws_in(dt, "compare with the prior")
    if missing := variables_lacking(posterior, model):
        raise ValueError(f"The result has no draws of {some(missing)}: is it of another model?")
    if posterior.sizes["draw"] < FEWEST_DRAWS:
        raise ValueError(f"Chains need {FEWEST_DRAWS} draws at least, for their covariance.")
    try:
        x, layout, _ = on_unconstrained_scale(posterior, model)
    except NotMapped as error:
        raise ValueError(
            f"The parameters are not known on the unconstrained scale: {error}."
        ) from None
    names = layout.coordinates()
    of_prior = _prior(model, random_seed)
    if x.shape[2] != of_prior.shape[1]:
        raise ValueError(
            f"The draws have {x.shape[2]} parameters on the unconstrained scale, and the model "
            f"{of_prior.shape[1]}: is it another model?"
        )
    low, middle, high = np.quantile(of_prior, [0.16, 0.5, 0.84], axis=0)
    scale = (high - low) / 2
    u, of_prior = ((own - middle) / scale for own in (x, of_prior))
    covariance, prior = _covariance(u), _correlations(of_prior)
    combinations, alone = _combinations(u, prior, names)
    found = Identifiability(
        _parameters(covariance, names), combinations, _sensitivity(dt, posterior, model)
    )
    said(_doubts(found, alone))
    return found


def _prior(model, seed):
    """Return draws of the prior (n, d) on the unconstrained scale."""
    if calling := [rv.name for rv in model.free_RVs if black_boxes([rv])]:
        raise ValueError(f"The prior of {some(calling)} calls a black box, which would take calls.")
    try:
        mode = Mode("py", None)  # compiling takes longer than such draws
        drawn = pm.draw(model.free_RVs, draws=N_DRAWS, mode=mode, random_seed=seed)
    except NotImplementedError as error:
        raise ValueError(
            f"Some parameter has no proper prior to compare with ({error}). Give it one."
        ) from None
    natural = {rv: own[None] for rv, own in zip(model.free_RVs, drawn, strict=True)}
    columns = [own[0].reshape(N_DRAWS, -1) for own in transformed(natural, model).values()]
    return np.concatenate(columns, axis=1)


def _correlations(u):
    """Return the correlations (d, d) of draws, by ranks, as priors may have heavy tails."""
    ranks = np.argsort(np.argsort(u, axis=0), axis=0)
    return np.atleast_2d(2 * np.sin(np.pi / 6 * np.corrcoef(ranks, rowvar=False)))


def _parameters(covariance, names):
    """Return the table of parameters."""
    sd = np.sqrt(np.diag(covariance))
    alone = np.diag(np.linalg.pinv(covariance)) ** -0.5
    correlations = covariance / np.outer(sd, sd) - np.eye(len(sd))
    most = np.abs(correlations).argmax(axis=1)
    columns = {"narrowed": sd, "given_others": np.minimum(alone, sd)}
    if len(names) > 1:
        columns["tied_to"] = [names[k] for k in most]
        columns["correlation"] = correlations[np.arange(len(most)), most]
    return pd.DataFrame(columns, index=names)


def _covariance(u):
    """Return the covariance (d, d) of draws u (chains, n, d)."""
    return np.atleast_2d(np.cov(u.reshape(-1, u.shape[2]), rowvar=False, bias=True))


def _combinations(u, prior, names):
    """Return the table of combinations, and which of these are single parameters.

    How wide each is, is measured on one half of the draws where the other half says which it is:
    the widest combination of few draws is too wide in these.
    """
    _, vectors = eigh(_covariance(u), prior)
    halves = [_covariance(half) for half in np.array_split(u, 2, axis=1)]
    values = np.zeros(len(names))
    for own, other in (halves, halves[::-1]):
        _, of_half = eigh(own, prior)
        values += np.einsum("ik,ij,jk->k", of_half, other, of_half) / 2
    order = np.argsort(-values)[:SHOWN]
    rows, alone = [], []
    for k in order:
        v = vectors[:, k] / np.abs(vectors[:, k]).max()
        largest = np.argsort(-np.abs(v))[:SHOWN]
        named = [j for j in largest if abs(v[j]) >= IN_A_COMBINATION]
        v *= np.sign(v[named[0]])
        words = " ".join(f"{v[j]:+.2f} {names[j]}" for j in named)
        rows.append({"narrowed": np.sqrt(max(values[k], 0.0)), "combination": words})
        alone.append(len(named) == 1)
    return pd.DataFrame(rows), alone


def _sensitivity(dt, posterior, model):
    """Return the table of power-scaling, empty without log-densities at the draws."""
    logp = known_logp(dt, ("lp", "logp"))
    if logp is None:
        return pd.DataFrame()
    prior = log_priors(posterior, model)
    groups = {"posterior": posterior[[rv.name for rv in model.free_RVs]]}
    for name, values in (("log_prior", prior), ("log_likelihood", logp - prior)):
        groups[name] = xr.Dataset(
            {name: (("chain", "draw"), values)}, posterior[["chain", "draw"]].coords
        )
    return psense_summary(xr.DataTree.from_dict(groups))


def log_priors(posterior, model):
    """Return log-densities of the prior at the draws (chain, draw), on the unconstrained scale."""
    x, layout, _ = on_unconstrained_scale(posterior, model)
    function = model.compile_fn(
        model.logp(vars=model.free_RVs), inputs=model.value_vars, point_fn=True
    )
    rows = x.reshape(-1, x.shape[2])
    return np.array([function(layout.unraveled(row)) for row in rows]).reshape(x.shape[:2])


def _doubts(found, alone):
    """Return what there is to tell: the combination of which least is known, if next to nothing."""
    says = []
    worst = found.combinations.iloc[0]
    if worst["narrowed"] > FELT:
        if alone[0]:
            name = worst["combination"].split()[1]
            says.append(
                finding("unidentified_parameter", name=natural_name(name), ratio=worst["narrowed"])
            )
        else:
            words = worst["combination"]
            says.append(finding("unidentified_combination", words=words, ratio=worst["narrowed"]))
    if found.sensitivity.empty:
        says.append(finding("no_power_scaling"))
    return says
