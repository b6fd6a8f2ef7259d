"""A chain's progress as a pure function: ``advance(job, state, n) -> (state, portion)``.

A job is the model and its steps, and travels to each worker once. All else that a chain needs is
its state. So threads, processes, clusters, checkpoints, resuming, and workers that die are one
thing: which states have come back.
"""

import threading
import time
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.chain import COMMON, N_PROGRESS
from pymc_kameleon.findings.words import grouped
from pymc_kameleon.model.black_box_calls import taking_notes
from pymc_kameleon.model.gathering import out_of_turn
from pymc_kameleon.model.watch import LOOKING_CHAINS
from pymc_kameleon.step.make_draws import (
    arrive,
    compiled_run,
    draws_of_looks,
    learn_together,
    make_draws,
    where,
)
from pymc_kameleon.step.warm_start.search import OutOfTime, Wanted


@dataclass
class ChainState:
    """All that a chain needs to go on, to the last bit, wherever it does."""

    point: np.ndarray  # all value variables, raveled in the model's order
    steps: list  # the KameleonState of each step
    noted: tuple = ()  # what black boxes have returned at the point, which no file needs to hold

    @property
    def monitor(self):
        """What the chain has seen; of the draws made, that of any step is right."""
        return self.steps[0].monitor

    @property
    def evaluations(self):
        """Evaluations of the log-density that it has made."""
        return self.search.evaluations + sum(own.monitor.evaluations for own in self.steps)

    @property
    def checks(self):
        """Evaluations by which runs that go on were compared with what they were."""
        return sum(own.monitor.checks for own in self.steps)

    @property
    def search(self):
        """How far it is on its way to the posterior; without evaluations before and after that."""
        trails = [own.trail[:, 0] for own in self.steps]
        values = [trail[~np.isnan(trail)] for trail in trails]
        most = sum(trail.size for trail, own in zip(trails, values, strict=True) if own.size)
        values = np.concatenate(values)
        return SearchSoFar(values.size, most, float(values.max(initial=-np.inf)))


class SearchSoFar(NamedTuple):
    """How far a chain is on its way to the posterior, or several are."""

    evaluations: int = 0
    most: int = 0  # evaluations that it may take
    logp: float = -np.inf  # the best log-density so far

    @classmethod
    def of_all(cls, searches):
        """Return how far several chains are, all together, or none."""
        if not searches:
            return cls()
        evaluations, most, logp = zip(*searches, strict=True)
        return cls(sum(evaluations), sum(most), max(logp))

    def in_words(self):
        """Return it as text."""
        return (
            f"looking for the posterior: {grouped(self.evaluations)} of at most "
            f"{grouped(self.most)} evaluations, log-density {self.logp:.1f}"
        )


class Portion(NamedTuple):
    """The draws that an advance makes."""

    outputs: np.ndarray  # (n, outputs), what is kept of each draw; without columns if nothing is
    stats: list  # of each step, the statistics (n, ...)
    last: list  # DrawStats of each step, for the progress bar; None if there are no draws yet
    n_logp: int  # evaluations of the log-density
    seconds: float
    n_calls: int = 0  # of black boxes for the outputs, besides those of the log-density


class Job:
    """The model and its steps, compiled: what all chains of a run share.

    `outputs` are kept of each draw, while tuning only if it `keeps_warmup`. Evaluations `at_once`
    may be under way, by which searches choose points.
    """

    def __init__(self, steps, outputs, keeps_warmup, at_once=1):
        self.steps, self.outputs, self.keeps_warmup = steps, outputs, keeps_warmup
        self.at_once = at_once
        self._make_ready()

    def _make_ready(self):
        self.run = out_of_turn(compiled_run(self.steps))
        self._idle = []
        # What Python computes is not safe in several threads of a process.
        self.turns = threading.Lock() if self.holds_gil else nullcontext()

    @property
    def _functions(self):
        return self.outputs, *(step.log_density for step in self.steps)

    @property
    def compile_kwargs(self):
        """Options of PyTensor's compiler."""
        return self.steps[0]._compile_kwargs

    @property
    def holds_gil(self):
        """Whether Python is called, so that threads wait for each other."""
        return any(functions.holds_gil for functions in self._functions)

    @property
    def has_timeout(self):
        """Whether calls of some black box may be stopped."""
        return any(step.log_density.has_timeout for step in self.steps)

    @property
    def users_ops(self):
        """The user's Ops that are called through Python, a set."""
        return set().union(*(functions.users_ops for functions in self._functions))

    @property
    def batched(self):
        """Batched black boxes that are called, a set."""
        return set().union(*(functions.batched for functions in self._functions))

    @property
    def in_numba(self):
        """Whether tasks can be in threads: PyTensor's own functions share what they compute in."""
        return all(functions.in_numba for functions in self._functions)

    def width(self, tuning):
        """Return the number of outputs of a draw."""
        return self.outputs.n if self.keeps_warmup or not tuning else 0

    def copies(self):
        """Return copies of the steps for a chain."""
        copies = [step.for_chain() for step in self.steps]
        for step in copies:
            step.of_run = replace(step.of_run, max_concurrent=self.at_once)
        return copies

    def n_looks(self, begun, tune, total, chains):
        """Return how often chains evaluate a point again, from their draw `begun` to `total`."""
        draws = [n for step in self.copies() for n in draws_of_looks(step)]
        return min(LOOKING_CHAINS, chains) * sum(begun <= tune + n < total for n in draws)

    def steps_at(self, state):
        """Return copies of the steps, which are where a chain is."""
        return put_at(self.idle_steps(), state)

    def idle_steps(self):
        """Return copies of the steps that nobody uses."""
        try:
            return self._idle.pop()
        except IndexError:
            steps = self.copies()
            for step in steps:
                step.setup_chain(0, tune=0, draws=0)
            return steps

    def give_back(self, steps):
        """Let others use copies of the steps from now on."""
        self._idle.append(steps)

    def leave(self, steps, point, noted=()):
        """Return the state of a chain, whose steps others may use from now on."""
        state = ChainState(point, [step.leave() for step in steps], noted)
        self.give_back(steps)
        return state

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k not in ("run", "_idle", "turns")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._make_ready()


def put_at(steps, state):
    """Put steps where a chain is, and return them."""
    for step, own in zip(steps, state.steps, strict=True):
        step.take_up(own)
    return steps


def advance(job, state, n):
    """Make n draws of a chain, which are all of tuning or all after it.

    Return its new ChainState, and a Portion, which is empty while the warm start takes longer than
    `WARM_START_PATIENCE`. CannotStart says that a log-density is not finite where the chain is.
    """
    start = time.perf_counter()
    with job.turns, taking_notes(state.point, state.noted, job.outputs.recalls) as notes:
        steps, point = job.steps_at(state), state.point.copy()
        monitor = steps[0].monitor
        rows = np.empty((n, job.width(tuning=monitor.done < monitor.tune)))
        progress, begun = np.zeros(N_PROGRESS, np.int64), monitor.done
        try:
            stats = make_draws(job.run, steps, point, n, job.outputs.into(rows), progress)
        except OutOfTime:
            return _still_searching(job, state, steps, start)
        except BaseException as error:
            error.add_note(where(error, steps, point, begun, progress))
            raise
        if monitor.done == monitor.tune:
            for step in steps:
                step.stop_tuning()
        last = [step.last_draw(own) for step, own in zip(steps, stats, strict=True)]
        n_logp = int(sum(own[:, COMMON.n_logp].sum() for own in stats)) - state.search.evaluations
        new = job.leave(steps, point, notes.at(point))
    seconds = time.perf_counter() - start
    return new, Portion(rows, stats, last, n_logp, seconds, len(notes.missing))


def _still_searching(job, state, steps, start):
    """Return a chain that has no draws yet, but more evaluations of its warm start."""
    trails, watches = [step.trail.copy() for step in steps], [deepcopy(s.watch) for s in steps]
    job.give_back(steps)
    seen = zip(state.steps, trails, watches, strict=True)
    own = [replace(own, trail=trail, watch=watch) for own, trail, watch in seen]
    new = ChainState(state.point, own, state.noted)
    n_logp = new.search.evaluations - state.search.evaluations
    rows = np.empty((0, job.width(tuning=True)))
    stats = [step.statistics.empty(0) for step in steps]
    return new, Portion(rows, stats, None, n_logp, time.perf_counter() - start)


# ---- the way to the posterior, by evaluations that are made many at a time ---------------------


class Asked(NamedTuple):
    """Points where a chain has to know the log-density, to go on to the posterior."""

    k: int  # the step whose way it is
    points: np.ndarray  # (n, n_values), in the step's own order


def ask(job, steps, state):
    """Return a chain before its first draw where its way has led, and an Asked; None if arrived.

    Nothing is evaluated. The steps are idle, and nobody else uses them, so that their search goes
    on.
    """
    with job.turns:
        own = state.steps.copy()
        for k, step in enumerate(put_at(steps, state)):
            if not step.search.searches:  # it has no way, and may look at its start
                continue
            q = state.point[step.layout.places]
            try:
                arrive(step, q, asks=True)
            except Wanted as wanted:
                others = np.tile(q[step.layout.d :], (len(wanted.points), 1))
                asked = Asked(k, np.column_stack([wanted.points, others]))
                return replace(state, steps=own), asked
            own[k] = step.sampling_state
        return replace(state, steps=own), None


def evaluate(job, k, q):
    """Return a trail's row of a step's log-density at q, its watch, and the evaluations made."""
    with job.turns:
        steps = job.idle_steps()
        logp = steps[k].log_density
        logp.begin_watch()
        logp.watch.turn(-1)
        logp.count[0], logp.rng = 0, None
        try:
            row = np.array([logp(q), *logp.gradient[: steps[k].search.n_noted]])
        except BaseException as error:
            error.add_note(f"at {steps[k].layout.unraveled(q)}{logp.advice(error)}")
            raise
        job.give_back(steps)
    return row, logp.watch, int(logp.count[0])


def told(state, k, row, seen, n):
    """Return the state of a chain that gets what `evaluate` has returned, next on its trail."""
    own, steps = state.steps[k], state.steps.copy()
    trail, watch = own.trail.copy(), deepcopy(own.watch)
    trail[np.count_nonzero(~np.isnan(trail[:, 0]))] = row
    watch.add(seen)
    monitor = replace(own.monitor, uncounted=own.monitor.uncounted + n - 1)
    steps[k] = replace(own, trail=trail, watch=watch, monitor=monitor)
    return replace(state, steps=steps)


def learn(job, states):
    """Let the steps of all chains learn together; return the chains' states after that."""
    with job.turns:
        chains = [job.steps_at(state) for state in states]
        for k in range(len(job.steps)):
            points = [state.point for state in states]
            out_of_turn(learn_together)([chain[k] for chain in chains], points)
        pairs = zip(chains, states, strict=True)
        return [job.leave(chain, state.point, state.noted) for chain, state in pairs]
