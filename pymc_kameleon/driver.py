"""``pk.sample``: whole chains in compiled code, in threads, and resumable."""

import logging
import os
import signal
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress

import numpy as np
import pymc as pm
from threadpoolctl import threadpool_limits

from pymc_kameleon.choice import bound_steps
from pymc_kameleon.core.chain import AT_STEP, DRAWS_MADE, N_PROGRESS
from pymc_kameleon.draws import CannotStart, compiled_run, make_draws
from pymc_kameleon.host import (
    Progress,
    get_default_varnames,
    get_random_generator,
    log_warnings,
    make_initial_point_fns_per_chain,
    natural_name,
    quiet_logging,
    run_convergence_checks,
)
from pymc_kameleon.initvals import finite_point, jittered
from pymc_kameleon.monitor import closing_warning
from pymc_kameleon.options import checked_bool, checked_integer
from pymc_kameleon.results import Draws, data_tree, joined
from pymc_kameleon.resume import (
    LEARNED,
    STATE,
    check_same_density,
    check_same_outputs,
    steps_and_names,
    unpack,
)

_log = logging.getLogger("pymc_kameleon")

TUNE, CHAINS, MOST_CORES = 1000, 4, 4
"""Defaults."""

REFRESH = 0.1
"""Seconds that a call of compiled code should take, and between two looks at the chains."""

MOST_NUMBERS = 200_000
"""What a call of compiled code may leave in its buffers."""

COMPUTED = {
    "log_likelihood": pm.stats.compute_log_likelihood,
    "log_prior": pm.stats.compute_log_prior,
}
IDATA_KWARGS = ("coords", "dims", "include_transformed", *COMPUTED)


def sample(
    draws=1000,
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
    resume=None,
    model=None,
):
    """Draw samples from the posterior: as ``pm.sample``, but whole chains run compiled.

    There is no Python between two draws, so that a draw costs what its transitions cost, and chains
    run in threads of one process. With one step, the draws are those of ``pm.sample`` with the same
    starts and seed.

    Parameters
    ----------
    draws : int
        Draws of each chain after tuning. 0 only tunes; `resume` draws later.
    tune : int, optional
        Draws of tuning; 1000, as in ``pm.sample``.
    chains : int, optional
        4 on every machine, so that results are the same everywhere.
    cores : int, optional
        Threads; as many as there are processors, at most 4. Further chains wait for a thread. The
        draws do not depend on it.
    random_seed : int, sequence of int, or numpy.random.Generator, optional
        For reproducible starts and draws.
    progressbar : bool or str, optional
        As in ``pm.sample``: True, False, "combined", "split", "combined+stats" or "split+stats".
        The acceptance shown is a mean: of tuning, and then of the draws after it. A chain that was
        stuck for long after tuning is red. If the bar itself fails, sampling goes on without it.
    quiet : bool, optional
        Show no progress, and log nothing, warnings neither.
    step : step of pymc_kameleon, or list of them, optional
        Together they move all variables of the model, in turn. A class, ``pk.GAM``, a name,
        ``"gam"``, and ``pk.GAM.options(steps_per_draw=5)`` do as well. By default ``pk.GadMALA`` if
        there is a gradient, and at most 1000 coordinates, otherwise ``pk.GAM``.
    var_names : list of str, optional
        What to keep; all free variables and deterministics by default.
    initvals : dict, or list of dict, optional
        Starts, as in ``pm.sample``. By default they are dispersed as by ``pk.initvals(chains)``:
        the model's initial point, jittered on the unconstrained scale.
    discard_tuned_samples : bool, optional
        False keeps the draws of tuning, as groups ``warmup_posterior`` and
        ``warmup_sample_stats``.
    compute_convergence_checks : bool, optional
        Look at R-hat and ESS, as ``pm.sample`` does.
    idata_kwargs : dict, optional
        ``coords``, ``dims``, ``include_transformed``, ``log_likelihood`` and ``log_prior``, as of
        ``pm.to_inference_data``.
    resume : DataTree, optional
        A result of this function, perhaps from a file: its chains go on with what they have
        learned, and never tune again. The result has the old draws and the new ones; 500 and then
        500 draws are 1000 draws to the last bit. A step may be passed too; it must be the same.
    model : pm.Model, optional
        Taken from the context by default.

    Returns
    -------
    DataTree
        As ``pm.sample`` returns it: ``posterior``, ``sample_stats``, ``observed_data`` and so on.
        ``learned`` has what tuning decided, by chain, as the sampler's ``Parameters``;
        ``sampling_state`` what `resume` needs.

    Raises
    ------
    ValueError
        For variables that no step moves, steps of other packages, impossible options, if no start
        has a finite log-density, or if `resume` is of another model or step.
    SamplingError
        If a chain cannot start where `initvals` says, as its log-density is not finite there.
    KeyboardInterrupt
        On Ctrl-C while all chains are still tuning. After that, what there is, is returned with a
        warning.
    """
    checked_bool("quiet", quiet)
    checked_bool("discard_tuned_samples", discard_tuned_samples)
    tree = None
    try:
        with quiet_logging(quiet):
            model = pm.modelcontext(model)
            idata_kwargs = _checked_idata_kwargs(idata_kwargs)
            checked_integer("draws", draws, at_least=0 if resume is None else 1)
            if cores is None:
                cores = min(MOST_CORES, os.cpu_count() or 1)
            checked_integer("cores", cores, at_least=1)
            if resume is None:
                steps = _checked_steps(step, model)
                names = _names_to_keep(model, var_names, idata_kwargs)
                all_chains = _new_chains(model, steps, chains, tune, draws, random_seed, initvals)
            else:
                _check_unsettled(
                    tune=tune,
                    chains=chains,
                    random_seed=random_seed,
                    var_names=var_names,
                    initvals=initvals,
                    **{k: v for k, v in idata_kwargs.items() if k not in COMPUTED},
                )
                steps = None if step is None else _checked_steps(step, model)
                steps, names = steps_and_names(resume, steps, model)
                _checked_steps(steps, model)
                all_chains = _resumed_chains(model, steps, draws, resume)

            outputs, n = steps[0].outputs(names), len(all_chains)
            if resume is not None:
                check_same_outputs(resume, outputs, model)
            kept = Draws(n, draws, outputs, steps)
            warmup = Draws(n, 0 if discard_tuned_samples else all_chains[0].n_tune, outputs, steps)
            run = compiled_run(steps)
            for chain in all_chains:
                chain.equip(run, outputs, kept, warmup)
            cores = _useful_cores(cores, steps, outputs, n)
            progress = Progress(all_chains, False if quiet else progressbar)
            with _ctrl_c_sets(threading.Event()) as stop:
                seconds = _run(all_chains, cores, progress, stop)
                whole = all(chain.done == chain.total for chain in all_chains)
                good_chains = all_chains if whole else _longest(all_chains)
                _say_what_was_done(good_chains, seconds)
                new = data_tree(model, good_chains, kept, warmup, seconds, idata_kwargs)
                tree = new if resume is None else joined(resume, new)

            for name, compute in COMPUTED.items():
                if idata_kwargs.get(name):
                    chosen = None if idata_kwargs[name] is True else idata_kwargs[name]
                    tree = compute(tree, var_names=chosen, model=model, progressbar=False)
            has_parameters = any(rv.name in names for rv in model.free_RVs)
            if compute_convergence_checks and has_parameters and "posterior" in tree.children:
                log_warnings(run_convergence_checks(tree, model))
            return tree
    except KeyboardInterrupt:
        if tree is None:
            raise
        if not quiet:
            _log.warning("Interrupted after sampling: convergence may not have been checked.")
    return tree


# ---- arguments ----------------------------------------------------------------------------------


def _checked_steps(step, model):
    """Return the steps as a list; raise a ValueError unless each variable is moved by one."""
    steps = bound_steps(step, model)
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
    return steps


def _checked_idata_kwargs(idata_kwargs):
    idata_kwargs = {} if idata_kwargs is None else dict(idata_kwargs)
    strangers = [name for name in idata_kwargs if name not in IDATA_KWARGS]
    if strangers:
        raise ValueError(f"idata_kwargs takes {', '.join(IDATA_KWARGS)}, not {strangers}.")
    return idata_kwargs


def _names_to_keep(model, var_names, idata_kwargs):
    """Return the names of what is kept of each draw, in PyMC's order."""
    every = [var.name for var in model.unobserved_value_vars]
    if var_names is None:
        return get_default_varnames(every, idata_kwargs.get("include_transformed", False))
    unknown = [name for name in var_names if name not in every]
    if unknown or len(var_names) == 0:
        raise ValueError(f"var_names must be some of {every}, not {unknown}.")
    return [name for name in every if name in var_names]


def _check_unsettled(**settled):
    """Raise a ValueError if something is given that `resume` settles."""
    for name, value in settled.items():
        if value is not None:
            raise ValueError(f"{name} is settled by resume: do not pass it.")


def _useful_cores(cores, steps, outputs, n_chains):
    """Return how many threads can work at a time, and tell the user about them."""
    cores, densities = min(cores, n_chains), [step.log_density for step in steps]
    if cores > 1 and any(part.holds_gil for part in (outputs, *densities)):
        _log.warning(
            "The model calls Python, which only one thread can do at a time: the chains run one "
            "after another. pm.sample(step=..., cores=%s) runs them in processes.",
            cores,
        )
        cores = 1
    _log.info("Threaded sampling (%s in %s)", _count(n_chains, "chain"), _count(cores, "thread"))
    for step in steps:
        _log.info("%s: [%s]", type(step).__name__, ", ".join(map(natural_name, step.var_names)))
    return cores


def _count(n, what):
    return f"{n:_d} {what}{'s' * (n != 1)}"


# ---- chains -------------------------------------------------------------------------------------


class Chain:
    """One chain: its own copies of the steps, and the point that they move.

    Parameters
    ----------
    row, number : int
        In the arrays of draws, and in the result.
    steps : list of KameleonStep
        Set up for this chain alone.
    point : (n,) float64
        All value variables, raveled in the model's order.
    """

    def __init__(self, row, number, steps, point):
        self.row, self.number, self.steps, self.point = row, number, steps, point
        monitor = steps[0].monitor
        self.tune, self.total = monitor.tune, monitor.tune + monitor.draws
        self.begun, self._first_kept = monitor.done, max(monitor.done, self.tune)
        self.last_stats, self.seconds = None, 0.0
        self._progress = np.zeros(N_PROGRESS, np.int64)

    def equip(self, run, outputs, kept, warmup):
        """Take the compiled function, what to compute of each draw, and where to put it."""
        self._run, self._outputs, self._kept, self._warmup = run, outputs, kept, warmup
        width = outputs.n + sum(step.empty_stats(1).size for step in self.steps)
        self._n, self._most = 1, max(1, MOST_NUMBERS // width)

    @property
    def done(self):
        """Draws made, of tuning too."""
        return self.steps[0].monitor.done

    @property
    def made(self):
        """Draws made after tuning, in this run."""
        return max(0, self.done - self._first_kept)

    @property
    def n_tune(self):
        """Draws of tuning, in this run."""
        return self._first_kept - self.begun

    def advance(self):
        """Make some draws, as many as take about REFRESH seconds."""
        start = time.perf_counter()
        pauses = [pause for step in self.steps for pause in step.pauses()]
        end = min(stop for stop in (*pauses, self.tune, self.total) if stop > self.done)
        n = min(self._n, end - self.done)
        try:
            self._make(n)
        except Exception as error:
            error.add_note(self._where())
            raise
        if self.done == self.tune:
            for step in self.steps:
                step.stop_tuning()
        seconds = time.perf_counter() - start
        self.seconds += seconds
        self._n = int(np.clip(n * REFRESH / seconds, 1, min(4 * n, self._most)))

    def _make(self, n):
        """Make n draws, between which nothing happens in Python, and keep them."""
        self._start, tuning = self.done, self.done < self.tune
        draws, start = (self._warmup, self.done) if tuning else (self._kept, self.made)
        rows = np.empty((n, self._outputs.n if draws.draws else 0))
        outputs = self._outputs.into(rows)
        stats = make_draws(self._run, self.steps, self.point, n, outputs, self._progress)
        named = [step.named(own) for step, own in zip(self.steps, stats, strict=True)]
        if draws.draws:
            draws.write(self.row, start, self._outputs.named(rows), named)
        self.last_stats = [step.last_draw(own) for step, own in zip(self.steps, stats, strict=True)]

    def _where(self):
        """Say where the chain is, for what was raised there."""
        i = self._start + self._progress[DRAWS_MADE]
        draw = f"draw {i} of tuning" if i < self.tune else f"draw {i - self.tune}"
        at_step = self._progress[AT_STEP]
        if at_step < len(self.steps):
            step = self.steps[at_step]
            point = step.layout.unraveled(step.log_density.asked)
        else:
            layout = self.steps[0].layout
            point = layout.unraveled(self.point[layout.places])
        return f"In chain {self.number}, {draw}, at {point}"


def _new_chains(model, steps, chains, tune, draws, random_seed, initvals):
    """Set up chains as pm.sample does, so that they draw the same."""
    n_chains = checked_integer("chains", CHAINS if chains is None else chains, at_least=1)
    tune = checked_integer("tune", TUNE if tune is None else tune, at_least=0)
    if draws + tune == 0:
        raise ValueError("draws and tune are 0: there is nothing to do.")
    rngs = get_random_generator(random_seed).spawn(n_chains)
    points = _starts(model, steps, [rng.integers(2**30) for rng in rngs], initvals)
    chains = []
    for row, (rng, point) in enumerate(zip(rngs, points, strict=True)):
        own = _copies(steps)
        step_rngs = rng.spawn(len(own)) if len(own) > 1 else [rng]
        for step, step_rng in zip(own, step_rngs, strict=True):
            step.setup_chain(step_rng, tune, draws)
        chains.append(Chain(row, row, own, steps[0].layout.raveled(point)))
    return chains


def _starts(model, steps, seeds, initvals):
    """Return a point on the unconstrained scale for each chain."""
    if initvals is None:
        copies = _copies(steps)

        def logp(point):
            """Be -inf outside the region of any step."""
            q = steps[0].layout.raveled(point)
            try:
                return min(step.log_density(q[step.layout.places]) for step in copies)
            except Exception as error:
                error.add_note(f"In chain {len(points)}, looking for a start, at {point}")
                raise

        draw, points = jittered(model), []
        for seed in seeds:
            points.append(finite_point(draw, logp, np.random.default_rng(seed), "jitter"))
        return points
    functions = make_initial_point_fns_per_chain(
        model=model, overrides=initvals, jitter_rvs=set(), chains=len(seeds)
    )
    points = [function(seed) for function, seed in zip(functions, seeds, strict=True)]
    for step in steps:
        for name, shape in step.layout.shapes.items():
            for point in points:
                if np.shape(point[name]) != shape:
                    raise ValueError(
                        f"The start of {name} has shape {np.shape(point[name])}, not {shape}."
                    )
    return points


def _resumed_chains(model, steps, draws, result):
    """Set up chains to go on where those of an earlier result stopped."""
    learned, states = (result[name].to_dataset() for name in (LEARNED, STATE))
    if "chain" not in states.dims:
        raise ValueError("resume has no dimension chain. Select one as dt.isel(chain=[0]).")
    chains = []
    for row, number in enumerate(states["chain"].values.tolist()):
        own = _copies(steps)
        unpack(own, learned.isel(chain=row), states.isel(chain=row))
        point = np.zeros(own[0].layout.places.size)
        for step in own:
            step.monitor.draws = step.monitor.done - step.monitor.tune + draws
            point[step.layout.places[: step.state.x.size]] = step.state.x
        check_same_density(own[-1], point)
        chains.append(Chain(row, number, own, point))
    return chains


def _copies(steps):
    """Return copies of the steps, for one chain, whose start is given."""
    copies = [step.for_chain() for step in steps]
    for copy in copies:
        copy.jitters = False
    return copies


# ---- threads ------------------------------------------------------------------------------------


@contextmanager
def _ctrl_c_sets(event):
    """Let Ctrl-C set `event`, where it would raise KeyboardInterrupt in the midst of anything."""
    usual = signal.getsignal(signal.SIGINT)
    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        yield event  # KeyboardInterrupt does not come
        return

    def set_event(*arguments):
        try:
            usual(*arguments)
        except KeyboardInterrupt:
            event.set()

    signal.signal(signal.SIGINT, set_event)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, usual)


def _run(chains, cores, progress, stop):
    """Run the chains to their ends, or until `stop` is set; return how many seconds it took."""

    def run(chain):
        try:
            while chain.done < chain.total and not stop.is_set():
                chain.advance()
        except BaseException:
            stop.set()
            raise

    start, futures = time.time(), []
    with (
        suppress(KeyboardInterrupt),  # of the progress bar, if anything: it stops the chains
        threadpool_limits(1),  # LAPACK inside the model: its own threads would fight with ours
        progress,
        ThreadPoolExecutor(cores) as pool,
    ):
        try:
            running = futures = [pool.submit(run, chain) for chain in chains]
            while running and not stop.is_set():
                running = wait(running, REFRESH).not_done
                for chain in chains:
                    progress.show(chain)
            if running:
                _log.info("Stopping after the draws that are being made.")
        finally:
            stop.set()
    for future in futures:
        try:
            future.result()
        except CannotStart as error:
            raise error.explained() from None
    return time.time() - start


def _longest(chains):
    """Return the chains of an interrupted run that give the most draws, as PyMC does."""
    lengths = sorted((chain.made for chain in chains), reverse=True)
    draws = [length * (i + 1) for i, length in enumerate(lengths)]
    if not any(draws):
        raise KeyboardInterrupt("There are no draws after tuning.")
    length = lengths[int(np.argmax(draws))]
    chosen = [chain for chain in chains if chain.made >= length]
    for chain in chosen:
        for step in chain.steps:
            step.monitor.draws = step.monitor.done - step.monitor.tune
    _log.warning(
        "Sampling was interrupted. The result has %s draws of %s; pk.sample(resume=...) goes on.",
        f"{length:_d}",
        _count(len(chosen), "chain"),
    )
    return chosen


def _say_what_was_done(chains, seconds):
    """Log what the chains have to say at their end, and how long it took."""
    speakers = defaultdict(list)
    for chain in chains:
        for step in chain.steps:
            warning = closing_warning(step)
            if warning is not None:
                speakers[warning.message].append(chain.number)
    for message, numbers in speakers.items():
        which = f"Chain{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
        _log.warning("%s: %s", which, message)
    n, tune, length = len(chains), chains[0].n_tune, min(chain.made for chain in chains)
    _log.info(
        "Sampling %s for %s tune and %s draw iterations (%s + %s draws total) took %.0f seconds.",
        _count(n, "chain"),
        *(f"{number:_d}" for number in (tune, length, n * tune, n * length)),
        seconds,
    )
