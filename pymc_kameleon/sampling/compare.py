"""``pk.compare_samplers``: several samplers on the user's own model, and which to use there."""

import logging
from collections import Counter
from collections.abc import Iterable
from contextlib import contextmanager
from importlib.util import find_spec
from logging.handlers import BufferingHandler
from time import perf_counter

import numpy as np
import pandas as pd
import pymc as pm
from arviz_stats.base import array_stats
from scipy.stats import norm

from pymc_kameleon.analysis.diagnose import diagnosed
from pymc_kameleon.analysis.draws_of_result import side_by_side
from pymc_kameleon.analysis.limits_of_r_hat import LEAST_ESS, SELDOM, high_r_hats
from pymc_kameleon.findings.finding import say
from pymc_kameleon.findings.registry import NOTE
from pymc_kameleon.model.functions import has_gradient
from pymc_kameleon.model.layout import elements
from pymc_kameleon.model.noise import NOISE_SEED
from pymc_kameleon.model.pymc_internals import (
    BlockedStep,
    CompoundStep,
)
from pymc_kameleon.model.starts import initvals as dispersed
from pymc_kameleon.samplers.choice import as_unbound, bound_steps, default_step, listed
from pymc_kameleon.samplers.kameleon.kam import KAM
from pymc_kameleon.samplers.random_walk.adaptive import GAM
from pymc_kameleon.samplers.surrogate.metropolis import SurrogateMetropolis
from pymc_kameleon.sampling.sample import sample
from pymc_kameleon.sampling.workers import default_cores
from pymc_kameleon.step.base import KameleonStep
from pymc_kameleon.step.groups import WARMUP_STATS
from pymc_kameleon.step.options import checked_integer
from pymc_kameleon.step.unbound import UnboundStep

_log = logging.getLogger("pymc_kameleon")

NUTS = {"nuts": "pymc", "nutpie": "nutpie"}
"""What pm.sample calls each kind of NUTS."""

TWO_EACH = (pm.Metropolis, pm.DEMetropolis, pm.DEMetropolisZ)
"""Steps of PyMC that evaluate the log-density at both points of a draw."""

NOT_STEPS = (pm.sample, pm.sample_smc, sample)
"""Functions that might be taken for one that makes a step."""

ACCEPTANCE = ("accept_prob", "acceptance_rate", "mean_tree_accept", "accepted")  # the first counts

NUMBERS = (
    *("ess_bulk", "ess_tail", "r_hat", "ess_per_second", "ess_per_evaluation"),
    *("acceptance", "evaluations", "seconds", "compile_seconds", "disagreement"),
)  # columns of numbers


def compare_samplers(
    steps=None,
    model=None,
    *,
    draws=1000,
    tune=1000,
    chains=4,
    cores=None,
    random_seed=None,
    initvals=None,
    progressbar=False,
):
    """Run several samplers on a model, and tell which of them to use there.

    All begin at the same points, with the same seed, and make as many draws. Ours run in
    ``pk.sample`` if they move all variables, and otherwise in ``pm.sample``, as all others do.

    Parameters
    ----------
    steps : list, or dict of label -> step, optional
        A step is one of these:

        * one of ours, as ``pk.sample`` takes it: a class, its name, with ``.options()``, or made;
        * a step of PyMC, a class or made;
        * a function without arguments that makes one, or a list of several, and is called in the
          model's context;
        * ``"nuts"``, which is what ``pm.sample`` does by default without nutpie;
        * ``"nutpie"``.

        By default these are what ``pk.sample`` takes for this model, GAM, SurrogateMetropolis, and
        NUTS if there is a gradient. If the log-density is only estimated, they are GAM and KAM.
    model : pm.Model, optional
        Taken from the context by default.
    draws, tune, chains : int
        How many draws, draws of tuning and chains each step makes. There are at least two chains.
    cores : int, optional
        How many chains of a step advance at a time: by default as many as there are processors, at
        most 4. ``pm.sample`` alone would take half of them.
    random_seed : int, sequence of int, or numpy.random.Generator, optional
        For reproducible starts and draws.
    initvals : list of dict, optional
        Starts, by default those of ``pk.initvals(chains)``. nutpie has its own.
    progressbar : bool or str
        Whether each run shows one, as for ``pk.sample``.

    Returns
    -------
    DataFrame
        A row for each step, of which the first is recommended. Those that are ``ok`` come first,
        then the others, and in both groups those with more ESS per second. docs/compare.md
        explains the columns. A step that fails has its exception in ``warnings``. The draws are in
        ``attrs["results"]``, by label, and ``attrs["limit"]`` is the largest ``disagreement``
        that may be chance.

    Raises
    ------
    ValueError
        For what is no step, a label that comes twice, or impossible numbers.
    ImportError
        For ``"nutpie"`` without that package.

    Examples
    --------
    >>> with model:
    ...     table = pk.compare_samplers(["GAM", pk.KAM.options(gamma=0.1), "nuts"])
    >>> best = table.index[0]
    """
    model = pm.modelcontext(model)
    checked_integer("draws", draws, at_least=4)
    checked_integer("tune", tune, at_least=0)
    checked_integer("chains", chains, at_least=2)  # one agrees with itself
    cores = default_cores() if cores is None else checked_integer("cores", cores, at_least=1)
    steps = _labelled(_default_steps(model) if steps is None else steps)
    seed = int(np.random.default_rng(random_seed).integers(2**31))
    options = {
        "draws": draws,
        "tune": tune,
        "chains": chains,
        "cores": cores,
        "random_seed": seed,
        "progressbar": progressbar,
        "compute_convergence_checks": False,
        "initvals": dispersed(chains, seed, model=model) if initvals is None else initvals,
    }
    results, rows = _Results(), {}
    for i, (label, step) in enumerate(steps.items()):
        _log.info(f"Comparing samplers, {i + 1} of {len(steps)}: {label}")
        rows[label] = {"ok": False, "where": ""}
        with _captured() as said, model:
            try:
                results[label], found = _sampled(step, model, options)
                rows[label] |= found
                judged = diagnosed(results[label], model).findings
                said += [str(one) for one in judged if one.severity != NOTE]
            except Exception as error:  # the others go on
                said.append(f"{type(error).__name__}: {error}")
        rows[label]["warnings"] = " ".join(dict.fromkeys(said))
    limit = _judge(rows, results, [rv.name for rv in model.free_RVs]) if results else np.nan
    columns = ["ok", *NUMBERS, "where", "warnings"]
    table = pd.DataFrame(list(rows.values()), index=list(rows), columns=columns)
    table = table.astype(dict.fromkeys(NUMBERS, float))
    if not results:
        say("all_steps_failed")
    elif not table["ok"].any():
        say("no_step_to_recommend")
    table = table.sort_values(["ok", "ess_per_second"], ascending=False, kind="stable")
    table.attrs = {"results": results, "limit": limit}
    return table


class _Results(dict):
    """Results by label, which copies of a table share, as pandas copies its attributes."""

    __eq__, __hash__ = object.__eq__, object.__hash__

    def __deepcopy__(self, memo):
        return self


# ---- which steps --------------------------------------------------------------------------------


def _default_steps(model):
    if NOISE_SEED in model.named_vars:
        return {s.__name__: s.options(pseudo_marginal=True) for s in (GAM, KAM)}
    others = [GAM, SurrogateMetropolis]
    with _captured():
        chosen = [] if model.discrete_value_vars else [default_step(model)]
    chosen = [type(s) if isinstance(s, KameleonStep) else s for s in chosen]
    return [*dict.fromkeys(chosen + others), *(["nuts"] if has_gradient(model) else [])]


def _labelled(steps):
    """Return {label: step}; raise an error for what is none."""
    if isinstance(steps, str) or not isinstance(steps, Iterable):
        raise ValueError(f"steps must be a list, as [pk.GAM, 'nuts'], or a dict, not {steps!r}.")
    pairs = list(steps.items()) if isinstance(steps, dict) else [(_name(s), s) for s in steps]
    if not pairs:
        raise ValueError("steps is empty: name some, as [pk.GAM, 'nuts'].")
    twice = [label for label, n in Counter(label for label, _ in pairs).items() if n > 1]
    if twice:
        raise ValueError(f"Several steps are called {twice}: give a dict, {{label: step}}.")
    return {label: _checked(step) for label, step in pairs}


def _name(step):
    if isinstance(step, str | UnboundStep):
        return str(step)
    return getattr(step, "__name__", type(step).__name__)


def _checked(step):
    """Return a step as it will be made; raise an error for what is none."""
    if step is pm.NUTS:
        step = "nuts"
    if isinstance(step, str):
        if step.lower() == "nutpie" and find_spec("nutpie") is None:
            raise ImportError('The step "nutpie" needs the package nutpie, which is not installed.')
        return step.lower() if step.lower() in NUTS else as_unbound(step, more=NUTS)
    if any(step is run for run in NOT_STEPS):
        raise ValueError(
            f"{_name(step)} is not a step: it makes a whole run. compare_samplers makes the runs "
            "itself, with steps such as pk.GAM, or 'nuts'. pm.sample_smc has no step that it could "
            "take."
        )
    is_class = isinstance(step, type)
    is_step = issubclass(step if is_class else type(step), BlockedStep | CompoundStep)
    if not is_step and (is_class or not callable(step)):
        raise ValueError(
            f"{step!r} is not a step. compare_samplers takes steps of pymc_kameleon and their "
            'names, steps of PyMC, functions that make them, "nuts" and "nutpie".'
        )
    return step


# ---- a run --------------------------------------------------------------------------------------


def _sampled(step, model, options):
    """Return the result of a step, and the part of its row that is not about its draws."""
    begun = perf_counter()
    methods = [] if isinstance(step, str) else _methods(step, model)
    if not methods and not has_gradient(model):
        raise ValueError(f"{step} needs a gradient, which the log-density does not have.")
    if _all_ours(methods) and _all_moved(methods, model):
        tree = sample(step=methods, **options)
    elif methods:
        tree = pm.sample(step=methods, discard_tuned_samples=False, **options)
    else:
        own = {"initvals": None} if step == "nutpie" else {}
        nuts = {"nuts_sampler": NUTS[step], "discard_tuned_samples": False}
        tree = pm.sample(**options | nuts | own)
    seconds = tree["posterior"].attrs["sampling_time"]
    stats = tree["sample_stats"]
    acceptance = [float(stats[name].mean()) for name in ACCEPTANCE if name in stats]
    return tree, {
        "acceptance": acceptance[0] if acceptance else np.nan,
        "evaluations": _evaluations(tree, methods, model),
        "seconds": seconds,
        "compile_seconds": perf_counter() - begun - seconds,
    }


def _methods(step, model):
    """Return the steps that one of those to compare consists of, in the model's context."""
    own = listed(step() if callable(step) else step)
    if others := [each for each in own if not isinstance(each, BlockedStep | CompoundStep)]:
        raise ValueError(f"The function has to return a step, or a list of some, not {others}.")
    unbound = all(isinstance(each, KameleonStep | UnboundStep) for each in own)
    return bound_steps(own, model) if unbound else own


def _all_ours(methods):
    return bool(methods) and all(isinstance(own, KameleonStep) for own in methods)


def _all_moved(methods, model):
    return {var for own in methods for var in own.vars} == set(model.value_vars)


def _evaluations(tree, methods, model):
    """Return evaluations of the log-density by all chains, with tuning; NaN if not known."""
    if model.discrete_value_vars or (methods and not _all_moved(methods, model)):
        return np.nan
    groups = [tree[name] for name in (WARMUP_STATS, "sample_stats") if name in tree]
    if methods and all(isinstance(own, TWO_EACH) for own in methods):
        return 2 * len(methods) * sum(g.sizes["chain"] * g.sizes["draw"] for g in groups)
    if _all_ours(methods):
        return sum(float(g["n_logp"].sum()) for g in groups)
    nuts = not methods or (len(methods) == 1 and isinstance(methods[0], pm.NUTS))
    return sum(float(g["n_steps"].sum()) for g in groups) if nuts else np.nan


@contextmanager
def _captured():
    """Hide all messages; at the end put the warnings among them into the list that it yields."""
    said, handler = [], BufferingHandler(10_000)
    handler.setLevel(logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("pymc_kameleon", "pymc")]
    before = [(logger, logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
    try:
        yield said
    finally:
        for logger, handlers, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate
        others = (record for record in handler.buffer if not hasattr(record, "findings"))
        said += [record.getMessage() for record in others]


# ---- what the draws say -------------------------------------------------------------------------


def _judge(rows, results, names):
    """Put into the rows what the draws say of parameters; return the limit of disagreement.

    A step is judged by the others that have converged: it is as far from them as from the lower
    median of them, which is near only if it is one of a majority.
    """
    parameters = {label: tree["posterior"].to_dataset()[names] for label, tree in results.items()}
    draws = {k: side_by_side(own.transpose("chain", "draw", ...)) for k, own in parameters.items()}
    varies = np.any([np.ptp(x, axis=(0, 1)) > 0 for x in draws.values()], axis=0)
    varies |= not varies.any()  # what never varies anywhere is no parameter
    first = next(iter(parameters.values())).isel(chain=0, draw=0)
    every = [element for name in names for element in elements(name, first[name].shape)]
    own = np.array(every)[varies]
    where = [f"{what} of {name}" for what in ("mean", "spread") for name in own]
    centre = np.median([np.median(x, axis=(0, 1)) for x in draws.values()], axis=0)
    means, errors = {}, {}
    for label, x in draws.items():
        values = np.concatenate([x, (x - centre) ** 2], axis=2)[..., np.tile(varies, 2)]
        bulk, tail, r_hat, converged, errors[label] = _diagnostics(values)
        means[label], least, row = values.mean(axis=(0, 1)), min(bulk, tail), rows[label]
        row |= {"ess_bulk": bulk, "ess_tail": tail, "r_hat": r_hat}
        row["ess_per_second"] = least / row["seconds"]
        row["ess_per_evaluation"] = least / row["evaluations"]
        row["ok"] = bool(converged and least >= LEAST_ESS)
    limit, judges = norm.isf(SELDOM / (2 * len(where))), [k for k in draws if rows[k]["ok"]]
    for label in draws:
        apart = sorted(
            _furthest(means[label] - means[k], np.hypot(errors[label], errors[k]), where)
            for k in judges
            if k != label
        )
        if apart:
            z, at = apart[(len(apart) - 1) // 2]
            rows[label] |= {"disagreement": z, "where": at, "ok": rows[label]["ok"] and z <= limit}
    return limit


def _diagnostics(values):
    """Return the least bulk and tail ESS, the largest R-hat, if it is good, and all MCSE (q,)."""
    moves = np.ptp(values, axis=1).any(axis=0)  # ArviZ has an ESS for what never moves
    axes = {"chain_axis": 0, "draw_axis": 1}
    with np.errstate(all="ignore"):
        bulk = array_stats.ess(values, **axes, method="bulk")
        tail = array_stats.ess(values, **axes, method="tail", prob=(0.05, 0.95))
        mcse = array_stats.mcse(values, **axes, method="mean")
        r_hat = np.where(moves, array_stats.rhat(values, **axes), np.inf)
    bulk, tail = (np.where(moves, np.nan_to_num(ess), 0.0).min() for ess in (bulk, tail))
    r_hat = np.nan_to_num(r_hat, nan=np.inf, posinf=np.inf)
    converged = not high_r_hats(values, r_hat).any()
    return bulk, tail, r_hat.max(), converged, np.nan_to_num(mcse)


def _furthest(difference, error, where):
    """Return the largest difference in standard errors, and what it is of."""
    with np.errstate(all="ignore"):
        z = np.nan_to_num(np.abs(difference / error), nan=0.0, posinf=np.inf)
    return float(z.max()), where[z.argmax()]
