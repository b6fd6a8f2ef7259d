"""``pk.evidence`` and ``pk.compare_models``: which model the data favour, by draws of each."""

import logging
import threading
import time
from contextlib import nullcontext, suppress
from math import ceil
from types import SimpleNamespace
from uuid import uuid4

import numpy as np

from pymc_kameleon.analysis.evidence.comparison import checked_prior, table_of
from pymc_kameleon.analysis.evidence.draws import EvidenceDraws
from pymc_kameleon.analysis.evidence.estimate import estimate
from pymc_kameleon.analysis.evidence.result import Evidence, checked
from pymc_kameleon.model.functions import ModelLogp
from pymc_kameleon.model.gathering import Gathering
from pymc_kameleon.model.layout import Layout
from pymc_kameleon.model.watch import DEFAULT_RULE
from pymc_kameleon.result.opening import opened
from pymc_kameleon.sampling.sample import check_executor, default_cores
from pymc_kameleon.sampling.worker_process import Failed, Lacks
from pymc_kameleon.sampling.workers import Workers
from pymc_kameleon.step.messages import grouped
from pymc_kameleon.step.options import checked_integer

_log = logging.getLogger("pymc_kameleon")

WITH_SURROGATE, MOST_BY_DEFAULT = 200, 4000
"""New points by default, with a surrogate; and of others, which are as many as draws, at most."""

LEAST_NEW, MOST_DRAWS = 50, 20_000
"""New points at least; and draws that are bridged at most. More would only take arithmetic."""

CHECKED = 3
"""Draws at which the model is compared with the one that was sampled."""

TASKS_PER_CORE, MOST_THREADS = 8, 64
"""Tasks that evaluations are divided into; and threads whose calls of `pk.batched` are gathered."""

MOST_ATTEMPTS = 3
"""Times that evaluations are begun if their worker dies."""


def evidence(dt, model=None, evaluations=None, random_seed=None, *, cores=None, executor=None):
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
    evaluations : int, optional
        New points at which the log-density is evaluated, 50 at least. By default 200 for draws of
        SurrogateMetropolis, and for others as many as there are draws, from 200 to 4000. Three more
        are at draws, to see that the model is the one that was sampled. If the result does not have
        the log-densities of its draws, as many of these are evaluated, too, about.
    random_seed : int or numpy.random.Generator, optional
        For the same answer again.
    cores : int, optional
        How many evaluations are made at a time if the model calls Python, as a black box: by
        default as many as there are processors, at most 4.
    executor : concurrent.futures.Executor or callable, optional
        Where they are made instead, as in ``pk.sample``.

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
    check_executor(executor)
    if cores is not None:
        checked_integer("cores", cores, at_least=1)
    if evaluations is not None:
        checked_integer("evaluations", evaluations, at_least=LEAST_NEW)
    draws = EvidenceDraws(opened(dt), model)
    if evaluations is None:
        n_draws = draws.x.shape[0] * draws.x.shape[1]
        usual = int(np.clip(n_draws, WITH_SURROGATE, MOST_BY_DEFAULT))
        evaluations = WITH_SURROGATE if draws.surrogates is not None else usual
    draws.thin(MOST_DRAWS if draws.logp is not None else evaluations)
    rng = np.random.default_rng(random_seed)
    density = Density(draws.model, draws.region)
    with Evaluating(density, cores, executor, rng) as evaluate:
        logp = _logp_at_draws(draws, evaluate, rng)
        found = estimate(draws.x, logp, draws.surrogates, evaluate, evaluations, rng)
    method = "bridge to the surrogate" if draws.surrogates is not None else "bridges by halves"
    own = found.log_z, found.standard_error, method, found.overlap, found.ess
    return checked(Evidence(*map(_plain, own), evaluate.n), draws, found.contradiction)


def _plain(value):
    return value if isinstance(value, str) else float(value)


def _logp_at_draws(draws, evaluate, rng):
    """Return the log-densities (chains, draws) at draws, as known, or evaluated."""
    flat = draws.x.reshape(-1, draws.x.shape[2])
    if draws.logp is None:
        _log.info("Evaluating the log-density at %s draws.", grouped(len(flat)))
        return evaluate(flat).reshape(draws.x.shape[:2])
    if not draws.is_estimate:
        some = rng.choice(len(flat), CHECKED, replace=False)
        draws.check(some, evaluate(flat[some]))
    return draws.logp


def compare_models(results, prior=None, **options):
    """Compare models of the same data by their evidences.

    Parameters
    ----------
    results : dict
        A result of each model, by name, as ``pk.evidence`` takes it; or what that has returned.
    prior : dict, optional
        Prior probabilities of the models, or odds. By default all are as probable.
    **options
        Others of ``pk.evidence``, as `evaluations` and `random_seed`.

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
        As ``pk.evidence``; or for `prior` with other names, or numbers that are not positive.

    Examples
    --------
    >>> table = pk.compare_models({"sir": dt_sir, "seir": dt_seir})  # doctest: +SKIP
    """
    if not isinstance(results, dict) or not results:
        raise ValueError(f"results must be a dict, {{'a': dt_a, 'b': dt_b}}, not {results!r}.")
    checked_prior(prior, results)
    evidences = {}
    for name, own in results.items():
        try:
            evidences[name] = own if isinstance(own, Evidence) else evidence(own, **options)
        except ValueError as error:
            error.add_note(f"in the model {name!r}")
            raise
    return table_of(evidences, prior)


# ---- evaluations --------------------------------------------------------------------------------


class Density:
    """A model's log-density, as a job of workers; -inf beyond a region."""

    rule = DEFAULT_RULE

    def __init__(self, model, region):
        point = model.initial_point()
        own = list(model.value_vars)
        region = Layout(model, own, point).region_array(region)
        self.log_density = ModelLogp(model, own, point, {}, region)
        self._start = Layout(model, own, point).raveled(point)
        self.compile_kwargs, self.token = {}, uuid4().hex
        self._make_ready()

    def _make_ready(self):
        self.turns = threading.Lock() if self.holds_gil else nullcontext()

    @property
    def holds_gil(self):
        """Whether Python is called."""
        return self.log_density.holds_gil

    @property
    def seconds_per_logp(self):
        """How long an evaluation takes, which takes one."""
        begun = time.perf_counter()
        with suppress(Exception):
            self.evaluate_once()
        return time.perf_counter() - begun

    def evaluate_once(self):
        """Evaluate the log-density at the model's initial point."""
        _log_density(self.log_density.copy(), self._start, 0)

    @property
    def batched(self):
        """Black boxes of `pk.batched` that are called, a set."""
        return self.log_density.batched

    @property
    def can_gather(self):
        """Whether threads can call them."""
        return bool(self.batched) and self.log_density.in_numba

    def gather(self):
        """Let tasks of several threads call them together; return the Gathering."""
        self.turns = Gathering(self.batched)
        return self.turns

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k != "turns"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._make_ready()


def log_densities(job, points, seeds):
    """Return the log-density (n,) at points (n, d); of an estimate, new ones, by their seeds."""
    with job.turns:
        logp = job.log_density.copy()
        return np.array([_log_density(logp, *own) for own in zip(points, seeds, strict=True)])


def _log_density(logp, x, seed):
    logp.rng = np.random.default_rng(seed) if logp.is_estimate else None
    try:
        return logp(x)
    except Exception as error:
        error.add_note(f"at {x.tolist()}, a point that pk.evidence evaluates{logp.advice(error)}")
        raise


class Evaluating:
    """Evaluates many points at once, wherever there are workers.

    Attributes
    ----------
    n : int
        Evaluations so far.
    """

    def __init__(self, density, cores, executor, rng):
        self._job, self._rng, self.n = density, rng, 0
        self._at_a_time = default_cores() if cores is None else cores
        if density.can_gather:
            self._at_a_time = MOST_THREADS
        elif not density.holds_gil:
            self._at_a_time = 1
        self._alone = executor is not None or density.can_gather
        self._workers = Workers(density, self._at_a_time, executor)

    def __enter__(self):
        self._workers.__enter__()
        return self

    def __exit__(self, *error):
        self._workers.__exit__(*error)

    def __call__(self, x):
        """Return the log-density (n,) at points x (n, d)."""
        self.n += len(x)
        size = 1 if self._alone else ceil(len(x) / (TASKS_PER_CORE * self._at_a_time))
        parts = [slice(first, first + size) for first in range(0, len(x), size)]
        seeds = self._rng.integers(2**63, size=len(x))
        tasks = [
            SimpleNamespace(arguments=(log_densities, x[own], seeds[own]), attempts=0, found=None)
            for own in parts
        ]
        left, under_way = list(tasks), {}
        while left or under_way:
            most = self._workers.at_once or len(tasks)
            while left and len(under_way) < most:
                task = left.pop(0)
                under_way[self._workers.submit(*task.arguments)] = task
            for future in self._workers.wait([*under_way], 0.1):
                self._take(future, under_way.pop(future), under_way, left)
            self._workers.check_processes()
        return np.concatenate([task.found for task in tasks])

    def _take(self, future, task, under_way, left):
        """Take the result of a task, or let it be done again if its worker died."""
        try:
            found = future.result()
        except Exception as error:  # not of the task itself
            self._workers.note_error(error)
            task.attempts += 1
            if task.attempts == MOST_ATTEMPTS:
                raise
            left.append(task)
            return
        if isinstance(found, Failed):
            raise found.error
        if isinstance(found, Lacks):
            under_way[self._workers.submit(*task.arguments, lacks=found)] = task
        else:
            task.found = found
