"""An evidence from draws, by evaluations that are made wherever there are workers."""

import logging
import threading
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from types import SimpleNamespace
from uuid import uuid4

import numpy as np
from scipy.spatial import KDTree

from pymc_kameleon.analysis.evidence.draws import CHECKED
from pymc_kameleon.analysis.evidence.estimate import estimate
from pymc_kameleon.analysis.evidence.result import Evidence, checked, overlap_of_noise
from pymc_kameleon.model.functions import ModelLogp
from pymc_kameleon.model.gathering import Gathering
from pymc_kameleon.model.layout import Layout
from pymc_kameleon.model.watch import FAILED, Watch
from pymc_kameleon.sampling.worker_process import Failed, Lacks
from pymc_kameleon.sampling.workers import Workers
from pymc_kameleon.step.messages import counted, grouped

_log = logging.getLogger("pymc_kameleon")

MOST_DRAWS = 20_000
"""Draws that are bridged at most. More would only take arithmetic."""

MOST_THREADS = 64
"""Threads whose calls of batched black boxes are gathered, if nobody says how many."""

TASK_SECONDS, POLL_INTERVAL = 0.05, 0.1
"""Time that a task should take; and between two looks at what is done."""

SAME, ROUNDING = 1e-8, 1e-12
"""Standard deviations, and share of their size, by which points may differ that are the same."""

MOST_ATTEMPTS = 3
"""Times that evaluations are begun if their worker dies."""


def evidence_by(draws, evaluate, n, rng):
    """Return the Evidence that draws tell, by n new points; ValueError of another model.

    Parameters
    ----------
    draws : EvidenceDraws
    evaluate : Evaluating
    n : int
    rng : numpy.random.Generator
    """
    draws.thin(MOST_DRAWS if draws.logp is not None else n)
    logp = _logp_at_draws(draws, evaluate, rng)
    low, high = draws.turn

    def log_density(x):
        within = ((low <= x) & (x < high)).all(axis=1)
        found = np.full(len(x), -np.inf)
        found[within] = evaluate(x[within])
        return found

    found = estimate(draws.x, logp, draws.surrogates, log_density, n, rng)
    method = "bridge to the surrogate" if draws.surrogates is not None else "bridges by halves"
    if draws.noise is not None and np.isfinite(draws.noise):
        method += (
            f" of estimates with variance {draws.noise:.2g}, which allow an overlap of "
            f"{overlap_of_noise(draws.noise):.2f}"
        )
    own = map(float, (found.log_z, found.standard_error, found.overlap, found.ess))
    log_z, standard_error, overlap, ess = own
    evidence = Evidence(log_z, standard_error, method, overlap, ess, evaluate.n)
    return checked(evidence, draws, found.contradiction)


def _logp_at_draws(draws, evaluate, rng):
    """Return the log-densities (chains, draws) at draws, as known, or evaluated."""
    flat = draws.x.reshape(-1, draws.x.shape[2])
    if draws.logp is None:
        _log.info("Evaluating the log-density at %s draws.", grouped(len(flat)))
        return evaluate(flat).reshape(draws.x.shape[:2])
    check_at_draws(draws, evaluate, rng)
    return draws.logp


def check_at_draws(draws, evaluate, rng):
    """Raise a ValueError if some draws tell that another model was sampled, where they can."""
    if draws.logp is not None and not draws.is_estimate:
        flat = draws.x.reshape(-1, draws.x.shape[2])
        some = rng.choice(len(flat), CHECKED, replace=False)
        draws.check(some, evaluate(flat[some]))


# ---- evaluations --------------------------------------------------------------------------------


class Density:
    """A model's log-density, as a job of workers; -inf beyond a region.

    Parameters
    ----------
    model : pm.Model
    variables : list of value variables
        All of it, in the order of the coordinates.
    restricted : dict
        Where steps were restricted to, by value variable.
    rule : Rule
        What is done about evaluations that fail.
    compile_kwargs : dict, optional
    """

    def __init__(self, model, variables, restricted, rule, compile_kwargs=None):
        point, self.compile_kwargs = model.initial_point(), compile_kwargs or {}
        layout = Layout(model, variables, point)
        self._start, region = layout.raveled(point)[layout.places], layout.region_array(restricted)
        self.log_density = ModelLogp(model, variables, point, self.compile_kwargs, region)
        self.log_density.rule = self.rule = replace(rule, looks_again=False, doubts=False)
        self.coordinates, self.token = layout.coordinates(), uuid4().hex
        self._make_ready()

    def _make_ready(self):
        self.turns = threading.Lock() if self.holds_gil else nullcontext()

    @property
    def holds_gil(self):
        """Whether Python is called."""
        return self.log_density.holds_gil

    @property
    def is_watched(self):
        """Whether each evaluation is seen by Python."""
        return self.log_density.is_watched

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
        """Batched black boxes that are called, a set."""
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
    """Return the log-density (n,) at points (n, d); of an estimate, new ones, by their seeds.

    And what was seen of them, and their seconds.
    """
    start = time.perf_counter()
    with job.turns:
        logp = job.log_density.copy()
        logp.watch.turn(-1)
        found = [_log_density(logp, *own) for own in zip(points, seeds, strict=True)]
    return np.array(found), logp.watch, time.perf_counter() - start


def _log_density(logp, x, seed):
    logp.rng = np.random.default_rng(seed) if logp.is_estimate else None
    try:
        return logp(x)
    except Exception as error:
        error.add_note(f"at {x.tolist()}, a point that pk.evidence evaluates{logp.advice(error)}")
        raise


class Known:
    """Log-densities (m,) at points (m, d), which are found again if these differ by rounding."""

    def __init__(self, x, logp):
        size = np.maximum(np.abs(x).max(axis=0), np.finfo(float).tiny)
        self._logp, self._unit = logp, SAME * x.std(axis=0) + ROUNDING * size
        self._tree, self._unasked = KDTree(x / self._unit), np.ones(len(x), bool)

    @property
    def n_unasked(self):
        """Points that nobody has asked for yet."""
        return int(self._unasked.sum())

    def logp_at(self, x):
        """Return log-densities (n,) at points (n, d), NaN where they are not known."""
        rows = self._tree.query(x / self._unit, distance_upper_bound=1)[1]
        self._unasked[rows[rows < len(self._logp)]] = False
        return np.append(self._logp, np.nan)[rows]


class Stopped(Exception):
    """Somebody does not want more evaluations."""


class Evaluating:
    """Evaluates many points at once, wherever there are workers.

    Parameters
    ----------
    density : Density
    cores : int or None
        How many evaluations to make at a time, if no executor is given.
    executor : concurrent.futures.Executor, callable or None
    rng : numpy.random.Generator
        Of the seeds of estimates.
    known : (x, logp), optional
        Points (m, d) that were evaluated before, and log-densities (m,) there.

    Attributes
    ----------
    n : int
        Evaluations so far, known ones too.
    """

    def __init__(self, density, cores, executor, rng, known=None):
        self._job, self._rng, self.n = density, rng, 0
        if cores is None and density.can_gather:
            cores = MOST_THREADS
        self._workers = Workers(density, cores, executor)
        self._one_by_one = executor is not None or self._workers.gathers
        self._known, self._seconds = Known(*known) if known is not None else None, np.inf
        self._watch = Watch.fresh(density.log_density.point.size)

    def __enter__(self):
        self._workers.__enter__()
        return self

    def __exit__(self, kind, *error):
        if kind is KeyboardInterrupt:
            self._workers.abandon()
        self._workers.__exit__(kind, *error)
        self._say_what_was_rejected()

    def interruptible(self):
        """Return a context in which Ctrl-C may interrupt."""
        return nullcontext()

    def look(self, x, logp):
        """Be told of points (n, d) that were evaluated, or of none, now and then.

        Returns whether to go on.
        """
        return True

    def __call__(self, x):
        """Return the log-density (n,) at points x (n, d); raise Stopped if that is not wanted.

        Raises a ValueError if points that are known are others than those that come first.
        """
        self.n += len(x)
        seeds = self._rng.integers(2**63, size=len(x))
        found = np.full(len(x), np.nan) if self._known is None else self._known.logp_at(x)
        left, under_way, goes_on = [*np.flatnonzero(np.isnan(found))], {}, True
        n_others = 0 if self._known is None else self._known.n_unasked
        if left and n_others:
            raise ValueError(
                f"{counted(n_others, 'evaluation')} for it were at other points than those that "
                "follow from the draws here: another machine, or version, rounds otherwise. "
                "Go on where it began, or let it begin anew, by another number of new points, "
                "evidence=..., or by pk.evidence."
            )
        while left or under_way:
            while left and len(under_way) < (self._workers.at_once or len(x)):
                rows, left = self._next(left)
                task = SimpleNamespace(rows=rows, arguments=(log_densities, x[rows], seeds[rows]))
                task.attempts = 0
                with self.interruptible():
                    under_way[self._workers.submit(*task.arguments)] = task
            with self.interruptible():
                done = self._workers.wait([*under_way], POLL_INTERVAL)
            self._workers.check_processes()
            rows = []
            for future in done:
                task = under_way.pop(future)
                if future.cancelled():
                    continue
                outcome = self._outcome(future, task)
                if isinstance(outcome, tuple):
                    found[task.rows] = outcome[0]
                    rows += task.rows
                else:
                    under_way[outcome] = task
            if not self.look(x[rows], found[rows]) and goes_on:
                goes_on, left = False, []
                for future in under_way:
                    future.cancel()
        if not goes_on:
            raise Stopped
        return found

    def _next(self, left):
        """Return the points of a task, and those that are left after it, by their numbers."""
        share = -(-len(left) // (self._workers.at_once or 1))
        n = 1 if self._one_by_one else min(share, max(1, int(TASK_SECONDS / self._seconds)))
        return left[:n], left[n:]

    def _outcome(self, future, task):
        """Return what a task has found, or the future of another attempt if its worker died."""
        try:
            outcome = future.result()
        except Exception as error:  # not of the task itself
            self._workers.note_error(error)
            task.attempts += 1
            if task.attempts == MOST_ATTEMPTS:
                raise
            return self._workers.submit(*task.arguments)
        if isinstance(outcome, Failed):
            raise outcome.error
        if isinstance(outcome, Lacks):
            return self._workers.submit(*task.arguments, lacks=outcome)
        if self._watch.counts.size and outcome[1].counts.size:
            self._watch.add(outcome[1])
        self._seconds = max(outcome[2] / len(task.rows), 1e-9)
        return outcome

    def _say_what_was_rejected(self):
        if n := int(self._watch.n_rejected.sum()):
            _log.warning(
                "%s for the evidence failed, or took too long, and counted as impossible points. "
                "The first was at %s, where the likelihood %s.",
                counted(n, "evaluation"),
                self._watch.points[FAILED].tolist(),
                self._watch.error[0],
            )
