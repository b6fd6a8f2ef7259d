"""``pk.sample``: whole chains in compiled code, on every processor, stored, and resumable."""

import logging
from datetime import timedelta
from pathlib import Path

import numpy as np
import pymc as pm

from pymc_kameleon.core.conventions import CHAINS
from pymc_kameleon.findings.words import counted
from pymc_kameleon.model.black_box import Function
from pymc_kameleon.model.evaluators import calling_elsewhere
from pymc_kameleon.model.pymc_internals import natural_name, quiet_logging
from pymc_kameleon.result.opening import as_path, as_saved, evaluations_given
from pymc_kameleon.samplers.choice import steps_of_run
from pymc_kameleon.sampling.budget import NOTHING_SETTLED, evaluations_left, outputs_that_call
from pymc_kameleon.sampling.coarse import coarse_evaluations
from pymc_kameleon.sampling.limits import Limits
from pymc_kameleon.sampling.outcome import COMPUTED_GROUPS, Finish
from pymc_kameleon.sampling.prepared import NewRun, names_to_keep, prepare
from pymc_kameleon.sampling.progress import Progress
from pymc_kameleon.sampling.resumed_run import ResumedRun
from pymc_kameleon.sampling.run import Run
from pymc_kameleon.sampling.settings import (
    MOST_DRAWS,
    Settings,
    chains_of_few,
    share_of_each,
)
from pymc_kameleon.sampling.workers import Workers, evaluators_of
from pymc_kameleon.step.base import DEFAULT_DRAWS
from pymc_kameleon.step.draw_costs import most_evaluations, take_trials, what_a_run_costs
from pymc_kameleon.step.options import checked_bool, checked_integer, checked_number

_log = logging.getLogger("pymc_kameleon")

IDATA_KWARGS = ("coords", "dims", "include_transformed", *COMPUTED_GROUPS)  # its keys


def sample(
    draws=None,
    *,
    tune=None,
    chains=None,
    cores=None,
    random_seed=None,
    progressbar=True,
    quiet=False,
    step=None,
    var_names=None,
    initvals=None,
    discard_tuned_samples=True,
    compute_convergence_checks=True,
    idata_kwargs=None,
    callback=None,
    max_concurrent=None,
    max_evaluations=None,
    max_time=None,
    target_ess=None,
    executor=None,
    store=None,
    reuse=None,
    model=None,
):
    """Draw samples from the posterior: like ``pm.sample``, but whole chains run compiled.

    There is no Python between two draws, so a draw costs hardly more than its transitions. With one
    step, the draws are those of ``pm.sample`` with the same starts and seed, unless chains learn
    from one another. They do not depend on cores or interruptions, nor, with the same
    `max_concurrent`, on the executor.

    Parameters
    ----------
    draws : int, optional
        Draws of each chain after tuning, 1000 by default. With `target_ess` or `max_evaluations`
        this is a limit, by default 100 000. 0 only tunes; ``pk.resume`` draws later.
    tune : int, optional
        Draws of tuning; 1000, as in ``pm.sample``, or the most with `max_evaluations`.
    chains : int, optional
        4 on every machine, so that results are the same everywhere. Of fewer `max_evaluations` than
        70 + 5 d 2, if the others follow the first one, as those of SurrogateMetropolis do.
    cores : int, optional
        How much is done at a time; by default as much as there are processors, at most 4. Chains
        advance in threads, or in processes if the model calls Python, which only one thread can do
        at a time.
    random_seed : int, sequence of int, or numpy.random.Generator, optional
        For reproducible starts and draws.
    progressbar : bool or str, optional
        As in ``pm.sample``: True, False, "combined", "split", "combined+stats" or "split+stats".
        Without a terminal, the log has a line now and then. See docs/sampling.md.
    quiet : bool, optional
        Show no progress, and log nothing, not even warnings.
    step : step of pymc_kameleon, or list of them, optional
        Together they move all variables of the model, in turn. Also a class, ``pk.GAM``, its name,
        ``"gam"``, or a step that is not bound to a model, ``pk.GAM.options(steps_per_draw=5)``. By
        default GadMALA if the log-density has a gradient; EmulatorMetropolis if it calls a black
        box that can be emulated; otherwise SurrogateMetropolis. GAM if there are more than 40
        coordinates without a gradient or 1000 with one, or if the log-density is only estimated.
    var_names : list of str, optional
        What to keep; all free variables and deterministics by default.
    initvals : dict, list of dict, or "prior", optional
        Starts. By default they are dispersed, like those of ``pk.initvals(chains)``. Values by name
        are as in ``pm.sample``. "prior" draws each start from the prior. See docs/starts.md.
    discard_tuned_samples : bool, optional
        False keeps the draws of tuning, as group ``warmup_posterior``. Their statistics,
        ``warmup_sample_stats``, are always kept.
    compute_convergence_checks : bool, optional
        Look at R-hat and ESS, as ``pm.sample`` does.
    idata_kwargs : dict, optional
        ``coords``, ``dims``, ``include_transformed``, ``log_likelihood`` and ``log_prior``, as in
        ``pm.to_inference_data``.
    callback : callable, optional
        Called as ``callback(run, draw)`` after each advance of a chain, about ten times a second or
        with each draw. `draw` has the fields of PyMC's; ``run.inspect()`` returns what there is by
        now, and ``run.stop()`` ends the run. Raising KeyboardInterrupt also stops it.
    max_concurrent : int, optional
        How many evaluations of the log-density may be under way at a time; by default 1, or with an
        `executor`, for EmulatorMetropolis and SurrogateMetropolis, the number of its workers. There
        are as many chains, at least 4, unless `chains` says otherwise. The draws depend on this
        number and the seed, not on the workers. See docs/executors.md.
    max_evaluations : int, optional
        Evaluations of the log-density that all chains may make together, those for starts, for the
        search for the posterior and for tuning included; there will never be more. The rest makes
        draws, the same number in each chain. `tune` and `draws` need not be given. See
        docs/sampling.md.
    max_time : float or timedelta, optional
        Seconds after which to stop, tuning included; the draws that are being made are finished.
    target_ess : float, optional
        Stop when bulk and tail ESS of every parameter, of all chains together, have reached this,
        and R-hat is at most 1.01. This is checked after fixed numbers of draws, while the chains go
        on, so that the result is reproducible.
    executor : concurrent.futures.Executor or callable, optional
        What calls the black boxes of the model, instead of `cores`: for example a
        ``ProcessPoolExecutor``, or of a Dask cluster ``client.get_executor()``. It is not shut
        down. A callable returns one, and is called again if that breaks. See docs/executors.md.
    store : str or path, optional
        A new Zarr store, ``"run.zarr"``, to which draws, statistics and states are appended while
        the chains run. A process that dies loses some seconds, or the draws that are being made;
        ``pk.resume("run.zarr")`` goes on. The result reads its draws from there when they are
        needed.
    reuse : DataTree, path, or list of these, optional
        Results of earlier runs, whose evaluations are not made again. EmulatorMetropolis takes up
        its own, even of another model with the same black box, which is recognised by its name and
        its numbers of inputs and outputs. Two are made again to see that they are the same. See
        docs/emulator.md.
    model : pm.Model, optional
        Taken from the context by default.

    Returns
    -------
    DataTree
        As ``pm.sample`` returns it: ``posterior``, ``sample_stats``, ``observed_data`` and so on.
        ``learned`` has what tuning decided, by chain; ``findings`` what ``pk.diagnose`` shows;
        ``sampling_state`` what ``pk.resume`` needs.

    Raises
    ------
    ValueError
        For variables that no step moves, steps of other packages, impossible options, or `reuse` of
        another function; if no start has a finite log-density, if `max_evaluations` are too few, or
        if the `store` exists.
    SamplingError
        If a chain cannot start where `initvals` says, as its log-density is not finite there.
    KeyboardInterrupt
        On Ctrl-C before the first draw. After that, what there is, is returned with a warning. A
        second Ctrl-C does not wait for the draws that are being made.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.GAM(), random_seed=1)
    """
    with evaluators_of(executor) as evaluators:
        with quiet_logging(checked_bool("quiet", quiet)), calling_elsewhere(evaluators):
            model, idata_kwargs = pm.modelcontext(model), _checked_idata_kwargs(idata_kwargs)
            checked_bool("discard_tuned_samples", discard_tuned_samples)
            _check_counts(
                cores=cores, max_evaluations=max_evaluations, max_concurrent=max_concurrent
            )
            ends = _limits(callback, max_time, target_ess)
            store = None if store is None else as_path("store", store)
            steps = steps_of_run(step, model)
            follow = all(one.search.follows for one in steps)
            has_calls = any(isinstance(op, Function) for op in steps[0].log_density.users_ops)
            n = evaluators.size if evaluators and has_calls else 0
            if n > 1 and max_concurrent is None and follow:
                max_concurrent = n
                _log.info(
                    f"max_concurrent={n}, because the executor has so many workers. Pass it to "
                    "have the same draws with others."
                )
            is_open = target_ess is not None or max_evaluations is not None
            most = MOST_DRAWS if is_open else DEFAULT_DRAWS
            if max_evaluations and follow and max_concurrent is None and chains is None:
                chains = chains_of_few(max_evaluations, sum(one.layout.d for one in steps))
            if max_concurrent is not None:
                chains = max(CHAINS, max_concurrent) if chains is None else chains
                if follow:
                    usual = share_of_each(chains)
                    tune = usual if tune is None and not is_open else tune
                    most = MOST_DRAWS if is_open else usual
            settings = Settings.checked(
                draws=most if draws is None else draws,
                tune=tune,
                chains=chains,
                max_concurrent=max_concurrent,
                keeps_warmup=not discard_tuned_samples,
                max_evaluations=max_evaluations,
                settled=None if max_evaluations is None else NOTHING_SETTLED,
                var_names=names_to_keep(model, var_names, idata_kwargs),
            )
            known = evaluations_given(reuse)
            known += coarse_evaluations(steps, sample, random_seed, initvals, cores)
            run = _run_of(
                NewRun(steps, settings, random_seed, initvals, idata_kwargs, known, store),
                Finish(model, idata_kwargs, compute_convergence_checks, quiet, store),
                *(ends, cores, evaluators, progressbar),
            )
        return run.to_its_end()


def resume(
    result,
    draws=None,
    *,
    step=None,
    cores=None,
    progressbar=True,
    quiet=False,
    compute_convergence_checks=True,
    idata_kwargs=None,
    callback=None,
    max_evaluations=None,
    max_time=None,
    target_ess=None,
    executor=None,
    store=None,
    model=None,
):
    """Go on with a run of ``pk.sample``, in tuning or after it, as if it had never stopped.

    The draws are the same to the last bit. What `sample` has settled, as its variables and its
    seed, remains.

    Parameters
    ----------
    result : DataTree or path
        A result of ``pk.sample`` or of this function, or the path of a store, or of a file that a
        result was saved to. The new result has the old draws and the new ones, and so has a store;
        a file is not written.
    draws : int, optional
        How many to add to each chain. By default those that are left; a run that has made all makes
        1000 more, but none in a store, so that a script can be started again.
    step : step of pymc_kameleon, or list of them, optional
        The same as before. By default they are made again from what the result has kept.
    max_evaluations : int, optional
        Evaluations of the log-density that all chains may make from now on. By default a run that
        was limited goes on with what is left.
    store : str or path, optional
        A new store, if `result` is not one itself.
    cores, progressbar, quiet, compute_convergence_checks, callback, max_time, target_ess, executor
        As of ``pk.sample``.
    idata_kwargs : dict, optional
        ``log_likelihood`` and ``log_prior``, as of ``pk.sample``.
    model : pm.Model, optional
        The same as before, taken from the context by default.

    Returns
    -------
    DataTree
        As of ``pk.sample``.

    Raises
    ------
    ValueError
        If it is no result of ``pk.sample``, of another model, data or step, or was thinned or put
        in another order; or if there are no evaluations left.
    SamplingError, KeyboardInterrupt
        As of ``pk.sample``.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.GAM())
    ...     dt = pk.resume(dt, draws=500)  # the same chains, 500 draws longer
    """
    with evaluators_of(executor) as evaluators:
        with quiet_logging(checked_bool("quiet", quiet)), calling_elsewhere(evaluators):
            model, idata_kwargs = pm.modelcontext(model), _checked_idata_kwargs(idata_kwargs)
            if settled := [key for key in idata_kwargs if key not in COMPUTED_GROUPS]:
                raise ValueError(f"idata_kwargs: {', '.join(settled)} cannot change in a run.")
            _check_counts(cores=cores, draws=draws, max_evaluations=max_evaluations)
            ends = _limits(callback, max_time, target_ess)
            store, result = None if store is None else as_path("store", store), as_saved(result)
            if isinstance(result, Path) and store not in (None, result):
                raise ValueError(f"A run goes on in its own store, {result}: leave out store=.")
            steps = None if step is None else steps_of_run(step, model)
            is_open = target_ess is not None or max_evaluations is not None
            most = MOST_DRAWS if is_open else DEFAULT_DRAWS
            until_enough, place = target_ess is not None, result if store is None else store
            run = _run_of(
                ResumedRun(model, result, steps, draws, most, until_enough, max_evaluations, store),
                Finish(model, idata_kwargs, compute_convergence_checks, quiet, place),
                *(ends, cores, evaluators, progressbar),
            )
        return run.to_its_end()


def _run_of(origin, finish, limits, cores, evaluators, progressbar):
    """Return the Run that goes on from an origin, and tell what it will do and cost."""
    prepared = prepare(origin)
    try:
        job, chains = prepared.job, prepared.chains
        kept = [rv.name for rv in finish.model.free_RVs if rv.name in job.outputs.variables]
        if limits.target_ess is not None and not kept:
            raise ValueError("target_ess needs parameters to look at, which var_names leaves out.")
        limits.parameters = kept
        finish.prepare(kept)
        most = max(len(chains), prepared.settings.max_concurrent)
        workers = Workers(job, most, cores, evaluators)
        left = _say_what_begins(prepared, workers, limits, finish.computed)
        before = take_trials(job.steps) + prepared.origin.n_checks
        if job.holds_gil and left is None:  # a limited run has counted them
            finish.n_before = before
        progress = Progress(chains, not finish.quiet and progressbar, left)
        return Run(prepared, workers, progress, limits, finish)
    except BaseException:
        prepared.record.discard()
        raise


def _say_what_begins(prepared, workers, limits, computed):
    """Tell the user where chains run, which step moves what, and what it costs.

    Returns the evaluations that are left, None if they are not limited.
    """
    job, chains = prepared.job, prepared.chains
    moved = [
        f"{type(step).__name__}: [{', '.join(map(natural_name, step.var_names))}]"
        f"{step.log_density.emulates}"
        for step in job.steps
    ]
    parts = [workers.described(counted(len(chains), "chain")), "; ".join(moved)]
    left = evaluations_left(prepared, computed)
    if left is not None or limits.target_ess is None:  # else draws are the most, and say little
        draws = sum(chain.total - chain.begun for chain in chains)
        most = draws * most_evaluations(job.steps) if left is None else left
        cost = what_a_run_costs(job.steps, most, workers.evaluations_at_once)
        parts.append(f"{cost}, and the search" if cost and left is None else cost)
    _log.info(". ".join(filter(None, parts)) + ".")
    if job.holds_gil and (names := outputs_that_call(job.outputs)):
        _log.info(
            f"{', '.join(names)}: black boxes are called again for each draw, which n_logp does "
            "not count. Leave out what you do not need by var_names."
        )
    return left


# ---- arguments ----------------------------------------------------------------------------------


def _checked_idata_kwargs(idata_kwargs):
    idata_kwargs = {} if idata_kwargs is None else dict(idata_kwargs)
    unknown = [name for name in idata_kwargs if name not in IDATA_KWARGS]
    if unknown:
        raise ValueError(f"idata_kwargs takes {', '.join(IDATA_KWARGS)}, not {unknown}.")
    return idata_kwargs


def _check_counts(**given):
    """Raise a ValueError if optional numbers are given that are none, or below 1."""
    for name, value in given.items():
        if value is not None:
            checked_integer(name, value, at_least=1)


def _limits(callback, max_time, target_ess):
    """Return when a run is to end before its last draw."""
    if target_ess is not None:
        checked_number("target_ess", target_ess, 0, np.inf)
    if not (callback is None or callable(callback)):
        raise ValueError(f"callback must be a function of a run and a draw, not {callback!r}.")
    if isinstance(max_time, timedelta):
        max_time = max_time.total_seconds()
    if max_time is not None:
        max_time = checked_number("max_time", max_time, 0, np.inf)
    return Limits(callback, max_time, target_ess, [])
