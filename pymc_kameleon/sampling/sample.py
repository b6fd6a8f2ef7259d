"""``pk.sample``: whole chains in compiled code, on every processor, stored, and resumable."""

import logging
import os
from concurrent.futures import Executor
from datetime import timedelta
from pathlib import Path

import numpy as np
import pymc as pm

from pymc_kameleon.analysis.evidence.draws import say_what_counts
from pymc_kameleon.analysis.evidence.result import is_known, n_evaluated
from pymc_kameleon.model.pymc_internals import natural_name, quiet_logging
from pymc_kameleon.result.opening import as_path, as_saved, evaluations_given
from pymc_kameleon.result.steps import restrictions, variables_in_order
from pymc_kameleon.samplers.choice import steps_of_run
from pymc_kameleon.sampling.bridging import Density
from pymc_kameleon.sampling.budget import NOTHING_SETTLED, check_not_tiny, evaluations_left
from pymc_kameleon.sampling.evidence_of_run import EvidenceOfRun
from pymc_kameleon.sampling.limits import Limits
from pymc_kameleon.sampling.new_run import NewRun, names_to_keep
from pymc_kameleon.sampling.outcome import Finish
from pymc_kameleon.sampling.prepared import prepare
from pymc_kameleon.sampling.progress import Progress
from pymc_kameleon.sampling.resumed_run import ResumedRun
from pymc_kameleon.sampling.run import Run
from pymc_kameleon.sampling.run_costs import (
    say_what_a_run_costs,
    say_what_at_once_is_for,
    say_what_evaluations_cost,
    say_what_more_workers_do,
    say_what_n_logp_leaves_out,
)
from pymc_kameleon.sampling.settings import (
    BY_DEFAULT,
    DEFAULT_DRAWS,
    FEW_CHAINS,
    LEAST_NEW,
    MOST_DRAWS,
    Settings,
    chains_at_once,
    chains_of_few,
    share_of_each,
)
from pymc_kameleon.sampling.workers import Workers
from pymc_kameleon.step.messages import counted, grouped
from pymc_kameleon.step.options import checked_bool, checked_integer, checked_number

_log = logging.getLogger("pymc_kameleon")

MOST_CORES = 4
"""Chains that advance at a time by default, at most."""

COMPUTED_GROUPS = {
    "log_likelihood": pm.stats.compute_log_likelihood,
    "log_prior": pm.stats.compute_log_prior,
}  # at the end of a run, if `idata_kwargs` asks for them
IDATA_KWARGS = ("coords", "dims", "include_transformed", *COMPUTED_GROUPS)  # its keys


def default_cores():
    """Return how many chains advance at a time by default: one per processor, at most 4."""
    return min(MOST_CORES, os.cpu_count() or 1)


def sample(
    draws=None,
    *,
    tune=None,
    chains=None,
    cores=None,
    random_seed=None,
    progressbar=True,
    progressbar_theme=None,
    quiet=False,
    step=None,
    var_names=None,
    initvals=None,
    pool_tuning=None,
    discard_tuned_samples=True,
    compute_convergence_checks=True,
    keep_warning_stat=False,
    idata_kwargs=None,
    callback=None,
    evaluations_at_once=None,
    max_evaluations=None,
    max_time=None,
    target_ess=None,
    executor=None,
    store=None,
    resume=None,
    evaluations=None,
    keep_evaluations=None,
    surrogate_draws=None,
    evidence=None,
    on_error=None,
    evaluation_timeout=None,
    check_repeatable=None,
    blocking=True,
    compile_kwargs=None,
    model=None,
):
    """Draw samples from the posterior: like ``pm.sample``, but whole chains run compiled.

    There is no Python between two draws, so a draw costs hardly more than its transitions. With one
    step, the draws are those of ``pm.sample`` with the same starts and seed, unless chains learn
    from one another. They do not depend on cores, executor, or interruptions.

    Parameters
    ----------
    draws : int, optional
        Draws of each chain after tuning; 1000 by default, or what is left of a run that is resumed.
        A run that has ended makes 1000 more, but none in a store, so that a script can be started
        again. With `target_ess` or `max_evaluations` this is a limit, by default 100 000. 0 only
        tunes; `resume` draws later.
    tune : int, optional
        Draws of tuning; 1000, as in ``pm.sample``, or the most with `max_evaluations`.
    chains : int, optional
        4 on every machine, so that results are the same everywhere. Of fewer `max_evaluations` than
        70 + 5 d 2, if the others follow the first one, as those of SurrogateMetropolis do.
    cores : int, optional
        How many chains advance at a time; by default as many as there are processors, at most 4.
        They do so in threads, or in processes if the model calls Python, which only one thread can
        do at a time.
    random_seed : int, sequence of int, or numpy.random.Generator, optional
        For reproducible starts and draws.
    progressbar : bool or str, optional
        As in ``pm.sample``: True, False, "combined", "split", "combined+stats" or "split+stats".
        It shows the mean acceptance of tuning, and then of the draws. A chain that was stuck for
        long after tuning is red. Above are the elapsed time, the time left, and how far chains are
        that search for the posterior. If an evaluation takes more than a millisecond, evaluations
        made and to go are there as well. Without a terminal, the log has the same in a line after
        ten seconds, then each minute. If the bar itself fails, sampling goes on without it.
    progressbar_theme : rich.theme.Theme or str, optional
        Colours, as in ``pm.sample``; in a marimo notebook a style sheet.
    quiet : bool, optional
        Show no progress, and log nothing, not even warnings.
    step : step of pymc_kameleon, or list of them, optional
        Together they move all variables of the model, in turn. Also a class, ``pk.GAM``, its name,
        ``"gam"``, or a step that is not bound to a model, ``pk.GAM.options(steps_per_draw=5)``. By
        default GadMALA if the log-density has a gradient, though NUTS, in ``pm.sample``, is the
        usual choice there; EmulatorMetropolis if it calls a black box that can be emulated;
        otherwise SurrogateMetropolis. GAM if there are more than 40 coordinates without a gradient
        or 1000 with one, or if the log-density is only estimated.
    var_names : list of str, optional
        What to keep; all free variables and deterministics by default.
    initvals : dict, list of dict, DataTree, path, or {"prior", "map"}, optional
        Starts. By default they are dispersed, like those of ``pk.initvals(chains)``: the model's
        initial point, jittered on the unconstrained scale. Values by name are as in ``pm.sample``,
        including what ``pm.find_MAP`` returns. With a result of any sampler, or its path, the
        chains start from its last draws; if it has fewer chains, from draws spread over it. "prior"
        draws each start from the prior. "map" jitters the chains about the posterior's mode, which
        ``pm.find_MAP`` finds, or without a gradient at most 60 d evaluations of the log-density,
        for d parameters. See docs/starts.md.
    pool_tuning : bool, optional
        Whether the chains learn from one another while they tune, True by default: see
        docs/adaptation.md. With False each learns alone, as in ``pm.sample``.
    discard_tuned_samples : bool, optional
        False keeps the draws of tuning, as group ``warmup_posterior``. Their statistics,
        ``warmup_sample_stats``, are always kept.
    compute_convergence_checks : bool, optional
        Look at R-hat and ESS, as ``pm.sample`` does.
    keep_warning_stat : bool, optional
        Also keep warnings as the statistic ``warning``, an object, which files cannot hold.
    idata_kwargs : dict, optional
        ``coords``, ``dims``, ``include_transformed``, ``log_likelihood`` and ``log_prior``, as in
        ``pm.to_inference_data``.
    callback : callable, optional
        Called as ``callback(run, draw)`` after each advance of a chain, about ten times a second or
        with each draw: `run` can ``inspect()`` and ``stop()``, `draw` has the fields of PyMC's.
        Raising KeyboardInterrupt also stops the run.
    evaluations_at_once : int, optional
        How many evaluations of the log-density may be under way at a time. There are as many
        chains, at least 4, unless `chains` says otherwise. With EmulatorMetropolis and
        SurrogateMetropolis the search for the posterior makes as many at a time, and by default all
        chains together make the draws and the tuning of four. The draws depend on this number and
        the seed; the number of workers, by `cores` or `executor`, only changes the time. By default
        1, and four chains. See docs/executors.md.
    max_evaluations : int, optional
        Evaluations of the log-density that all chains may make together; there will never be more.
        They include those for starts, for the search for the posterior, for tuning, and those that
        check whether it repeats itself; if it calls Python, also those before the run. The run
        divides them: the search takes at most half of them, or four fifths where a Gaussian process
        makes it. Then the chains tune, and the rest makes draws, the same number in each chain.
        `tune` and `draws` need not be given. With `resume` these are evaluations from now on; by
        default a run that was limited goes on with what is left. See docs/sampling.md.
    max_time : float or timedelta, optional
        Seconds after which to stop, tuning included; the draws that are being made are finished.
    target_ess : float, optional
        Stop when bulk and tail ESS of every parameter, of all chains together, have reached this,
        and R-hat is at most 1.01. This is checked after fixed numbers of draws, while the chains go
        on, so that the result is reproducible.
    executor : concurrent.futures.Executor or callable, optional
        Where the chains advance, instead of `cores`: for example a ``ProcessPoolExecutor``, or of
        a Dask cluster ``client.get_executor()``. It is not shut down. A callable returns one, and
        is called again if that breaks. See docs/executors.md.
    store : str or path, optional
        A Zarr store, ``"run.zarr"``, to which draws, statistics and states are appended while the
        chains run. A process that dies loses some seconds, or the draws that are being made. The
        result reads its draws from there when they are needed.
    resume : DataTree or path, optional
        A result of this function, or the path of a store, or of a file that a result was saved to.
        Its chains go on, in tuning or after it, to the last bit as if they had never stopped. The
        result has the old draws and the new ones, and so has a store; a file is not written. If a
        step is passed, it must be the same.
    evaluations : DataTree, path, or list of these, optional
        Results of earlier runs, whose evaluations are not made again. EmulatorMetropolis takes up
        its own, even of another model with the same black box: with other data, other priors,
        another noise model, or more subjects. The box is recognised by its name and its numbers of
        inputs and outputs. The log says if its code or constants have changed, and it is called
        twice to see that it returns the same. See docs/emulator.md. SurrogateMetropolis takes up
        those of the same expensive log-density, if it moves all variables. Two are made again to
        see that it is the same. See docs/surrogate.md.
    keep_evaluations : bool, optional
        Whether the result has the group ``evaluations``: where the log-density was evaluated, and
        its values. SurrogateMetropolis has it if evaluations are expensive, and EmulatorMetropolis
        always, with inputs and outputs of black boxes. These are the evaluations of the search and
        of tuning, of which each chain remembers the last 3000 or fewer, and the last one of each
        draw; at most 20 000 and 128 MiB. True by default. A run that is resumed does what it did
        before.
    surrogate_draws : int, optional
        How many draws of its surrogate to make for each chain at the end. It needs a step
        SurrogateMetropolis or EmulatorMetropolis that moves all variables. The latter has a limited
        number for each of its moves, of the emulated posterior. The draws are in the group
        ``surrogate_posterior``, for plots; for averages use ``pk.summary``. They are approximate,
        and take no evaluation of the log-density; deterministics that depend on a black box are
        left out. The group's attributes say how close the surrogate is, and the log warns if it is
        not. By default none, or as many as a resumed run had. See docs/estimates.md.
    evidence : bool or int, optional
        Find the evidence at the end, the log marginal likelihood: see docs/evidence.md. Its
        evaluations are made where the chains were, and a run that is resumed makes those that are
        left. ``pk.evidence(dt)`` then has it at once, and the log says it. True takes as many new
        points as ``pk.evidence``: 200 for SurrogateMetropolis and EmulatorMetropolis, for others
        as many as draws, from 200 to 4000; with `max_evaluations` a tenth of these, from 200 to
        4000. A number, from 50 on, takes that many. Three more are at draws. With
        `max_evaluations` they are among these, and the draws get the rest. A run that ends early,
        as by `max_time`, has none. False by default; a run that is resumed does what it did before.
    on_error : {"raise", "reject"}, optional
        What to do about an exception of a likelihood that is called through Python. "raise" stops
        the run, as exceptions may be mistakes, and is the default. With "reject" the point counts
        as impossible, and the log says at the end how often, with the first point and exception.
        MemoryError, Ctrl-C, and results of another type than declared always stop the run. A run
        that is resumed does what it did before, unless this says otherwise.
    evaluation_timeout : float, optional
        Seconds that an evaluation of such a likelihood may take. A slower one is stopped, as soon
        as it is in Python code, and rejected and reported like an exception. Choose many times the
        usual duration: a limit that cuts where the posterior is changes it. Chains then run in
        processes of their own. By default none, or that of a resumed run.
    check_repeatable : bool, optional
        Whether the first four chains evaluate such a likelihood once more at a point where they
        were: when tuning ends, and 100, 1000 … draws later. `n_logp` counts it, and the log warns
        if the value differs. True by default, or as in a run that is resumed.
    blocking : bool, optional
        False samples in the background, and returns a `Run` with ``wait(timeout)``, ``inspect()``
        and ``stop()``.
    compile_kwargs : dict, optional
        For steps that are made here; others have their own.
    model : pm.Model, optional
        Taken from the context by default.

    Returns
    -------
    DataTree
        As ``pm.sample`` returns it: ``posterior``, ``sample_stats``, ``observed_data`` and so on.
        ``learned`` has what tuning decided, by chain; ``sampling_state`` what `resume` needs.

    Raises
    ------
    ValueError
        For variables that no step moves, steps of other packages, impossible options, `evaluations`
        of another function or log-density, `evidence` of a model that has none, or of fewer than
        100 draws, a result as `initvals` that lacks variables or has other
        labels, if no start has a finite log-density, if `max_evaluations` are too few for chains to
        begin, or if `resume` is of another model or step.
    SamplingError
        If a chain cannot start where `initvals` says, as its log-density is not finite there.
    KeyboardInterrupt
        On Ctrl-C before the first draw. After that, what there is, is returned with a warning. A
        second Ctrl-C does not wait for the draws that are being made.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.GAM(), random_seed=1)
    ...     dt = pk.sample(resume=dt, draws=500)  # the same chains, 500 draws longer
    """
    for name, value in {
        "quiet": quiet,
        "discard_tuned_samples": discard_tuned_samples,
        "blocking": blocking,
        "keep_warning_stat": keep_warning_stat,
    }.items():
        checked_bool(name, value)
    with quiet_logging(quiet):
        model = pm.modelcontext(model)
        idata_kwargs = _checked_idata_kwargs(idata_kwargs)
        if cores is not None and executor is not None:
            _log.info("cores=%s is not used: the chains advance where executor says.", cores)
        if cores is not None:
            checked_integer("cores", cores, at_least=1)
        if target_ess is not None:
            checked_number("target_ess", target_ess, 0, np.inf)
        if not (callback is None or callable(callback)):
            raise ValueError(f"callback must be a function of a run and a draw, not {callback!r}.")
        check_executor(executor)
        seconds = _seconds(max_time)
        if max_evaluations is not None:
            checked_integer("max_evaluations", max_evaluations, at_least=1)
        if evaluations_at_once is not None:
            checked_integer("evaluations_at_once", evaluations_at_once, at_least=1)
        is_open = target_ess is not None or max_evaluations is not None
        most = MOST_DRAWS if is_open else DEFAULT_DRAWS
        if draws is not None:
            checked_integer("draws", draws, at_least=0 if resume is None else 1)
        if resume is None and max_evaluations is not None:
            lengths = Settings.checked(chains=chains or FEW_CHAINS, tune=tune)
            check_not_tiny(max_evaluations, lengths.chains, lengths.tune)
        store = None if store is None else as_path("store", store)
        resume = as_saved(resume)
        if step is not None or resume is None:
            step = steps_of_run(step, model, compile_kwargs)
        changes = {
            "surrogate_draws": surrogate_draws,
            "evidence": _new_points(evidence),
            "on_error": on_error,
            "evaluation_timeout": evaluation_timeout,
            "check_repeatable": check_repeatable,
        }
        if resume is None:
            follow = all(one.follows for one in step)
            if max_evaluations and follow and evaluations_at_once is None and chains is None:
                chains = chains_of_few(max_evaluations, sum(one.layout.d for one in step))
            if evaluations_at_once is not None:
                chains = chains_at_once(evaluations_at_once) if chains is None else chains
                if follow:
                    usual = share_of_each(chains)
                    tune = usual if tune is None and not is_open else tune
                    most = MOST_DRAWS if is_open else usual
            settings = Settings.checked(
                draws=most if draws is None else draws,
                tune=tune,
                chains=chains,
                evaluations_at_once=evaluations_at_once,
                pool_tuning=pool_tuning,
                keeps_warmup=not discard_tuned_samples,
                keep_evaluations=keep_evaluations,
                max_evaluations=max_evaluations,
                settled=None if max_evaluations is None else NOTHING_SETTLED,
                **changes,
                var_names=names_to_keep(model, var_names, idata_kwargs),
            )
            known = evaluations_given(evaluations)
            origin = NewRun(step, settings, random_seed, initvals, idata_kwargs, known)
        else:
            _check_unsettled(
                tune=tune,
                chains=chains,
                evaluations_at_once=evaluations_at_once,
                random_seed=random_seed,
                var_names=var_names,
                initvals=initvals,
                pool_tuning=pool_tuning,
                evaluations=evaluations,
                keep_evaluations=keep_evaluations,
                **{k: v for k, v in idata_kwargs.items() if k not in COMPUTED_GROUPS},
            )
            if isinstance(resume, Path) and store not in (None, resume):
                raise ValueError(
                    f"A run that is resumed from a store goes on in it, {resume}: leave out store=."
                )
            until_enough = target_ess is not None
            origin = ResumedRun(
                *(model, resume, step, draws, changes, most, until_enough, max_evaluations)
            )
        prepared = prepare(origin, store)
        try:
            job, all_chains = prepared.job, prepared.chains
            at_once = max(len(all_chains), prepared.settings.evaluations_at_once)
            if cores is None:
                cores = at_once if job.can_gather else default_cores()
            workers = Workers(job, min(cores, at_once), executor)
            _say_what_begins(workers, job, len(all_chains))
            say_what_at_once_is_for(job)
            if executor is not None:
                say_what_more_workers_do(job, len(all_chains), executor)
            computed = _computed(idata_kwargs, model, job.outputs)
            left = evaluations_left(prepared, computed)
            if left is not None:
                left = left if max_evaluations is None else max_evaluations
                say_what_evaluations_cost(
                    job, left, len(all_chains), workers.at_once, workers.gathers
                )
            elif target_ess is None:  # otherwise draws are the most, and say little
                first = all_chains[0]
                n, point = first.total - first.begun, first.state.point
                scouting = sum(chain.begun == 0 < chain.tune for chain in all_chains)
                pools = prepared.settings.pool_tuning and len(all_chains) > 1
                looks = job.n_looks(first.begun, first.tune, first.total, len(all_chains))
                say_what_a_run_costs(
                    *(job.steps, len(all_chains), n, workers.at_once, point),
                    *(scouting, pools, looks, workers.gathers),
                )
            kept = sum(chain.n_kept(job.keeps_warmup) for chain in all_chains)
            say_what_n_logp_leaves_out(job, prepared.n_checks, kept, computed)
            run = Run(
                prepared,
                workers,
                Progress(
                    *(all_chains, False if quiet else progressbar, progressbar_theme, left),
                    prepared.settings.evaluations_at_once,
                    prepared.settings.for_evidence,
                ),
                Limits(callback, seconds, target_ess, _parameters(model, job.outputs, target_ess)),
                Finish(
                    model,
                    computed,
                    compute_convergence_checks and bool(_kept_parameters(model, job.outputs)),
                    keep_warning_stat,
                    quiet,
                    store if store is not None else resume,
                ),
                _evidence(prepared, model, cores, executor),
            )
        except BaseException:
            prepared.record.discard()
            raise
    if not blocking:
        return run.in_background()
    return run.to_its_end()


# ---- arguments ----------------------------------------------------------------------------------


def _checked_idata_kwargs(idata_kwargs):
    idata_kwargs = {} if idata_kwargs is None else dict(idata_kwargs)
    unknown = [name for name in idata_kwargs if name not in IDATA_KWARGS]
    if unknown:
        raise ValueError(f"idata_kwargs takes {', '.join(IDATA_KWARGS)}, not {unknown}.")
    return idata_kwargs


def _new_points(evidence):
    """Return how many new points the evidence is to take, None if that is not said."""
    if evidence is None or isinstance(evidence, bool):
        return None if evidence is None else BY_DEFAULT * evidence
    return checked_integer("evidence", evidence, LEAST_NEW)


def _evidence(prepared, model, cores, executor):
    """Return the EvidenceOfRun of a run, and tell what it counts; None if it is not wanted."""
    settings, steps = prepared.settings, prepared.job.steps
    if not settings.evidence:
        return None
    restricted = restrictions(prepared.identity)
    say_what_counts(model, restricted)
    made = 0 if prepared.evidence is None else n_evaluated(prepared.evidence)
    if prepared.evidence is None or not is_known(prepared.evidence):
        _log.info(
            "The evidence takes at most %s%s evaluations, after the draws.",
            grouped(settings.for_evidence - made),
            " more" if made else "",
        )
    variables = variables_in_order(model, prepared.identity)
    density = Density(model, variables, restricted, settings.rule, steps[0]._compile_kwargs)
    return EvidenceOfRun(density, settings.evidence, cores, executor, prepared.evidence)


def _computed(idata_kwargs, model, outputs):
    """Return what to compute at the end: group -> (function, names of variables or None)."""
    variables = {"log_likelihood": model.observed_RVs, "log_prior": model.free_RVs}
    computed = {}
    for group, function in COMPUTED_GROUPS.items():
        if not (chosen := idata_kwargs.get(group)):
            continue
        known = [rv.name for rv in variables[group]]
        if chosen is not True and not set(chosen) <= set(known):
            raise ValueError(f"idata_kwargs: {group} must be True, or some of {known}.")
        if left := [rv.name for rv in model.free_RVs if rv.name not in outputs.variables]:
            raise ValueError(f"idata_kwargs: {group} needs {left}, which var_names leaves out.")
        computed[group] = function, None if chosen is True else chosen
    return computed


def _check_unsettled(**settled):
    """Raise a ValueError if something is given that `resume` settles."""
    for name, value in settled.items():
        if value is not None:
            raise ValueError(f"{name} is settled by resume: do not pass it.")


def check_executor(executor):
    """Raise a ValueError for what is no executor."""
    if executor is None or isinstance(executor, Executor):
        return
    if hasattr(executor, "get_executor"):
        raise ValueError("executor takes what the Dask client gives: client.get_executor().")
    if not callable(executor):
        raise ValueError(
            "executor must be a concurrent.futures.Executor, or a callable that returns one, not "
            f"{executor!r}."
        )


def _seconds(max_time):
    if max_time is None:
        return None
    if isinstance(max_time, timedelta):
        max_time = max_time.total_seconds()
    return checked_number("max_time", max_time, 0, np.inf)


def _kept_parameters(model, outputs):
    return [rv.name for rv in model.free_RVs if rv.name in outputs.variables]


def _parameters(model, outputs, target_ess):
    """Return the parameters whose ESS is looked at; raise a ValueError if there are none."""
    kept = _kept_parameters(model, outputs)
    if target_ess is not None and not kept:
        raise ValueError("target_ess needs parameters to look at, which var_names leaves out.")
    return kept


def _say_what_begins(workers, job, n_chains):
    """Tell the user where the chains run, and which step moves what."""
    _log.info(workers.described(counted(n_chains, "chain")))
    if workers.why_not_together:
        _log.info(workers.why_not_together)
    for step in job.steps:
        _log.info("%s: [%s]", type(step).__name__, ", ".join(map(natural_name, step.var_names)))
