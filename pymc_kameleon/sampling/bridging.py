"""An evidence from draws, by evaluations that are made wherever there are workers."""

import logging
import threading
from contextlib import nullcontext

import numpy as np

from pymc_kameleon.analysis.evidence.draws import CHECKED
from pymc_kameleon.analysis.evidence.estimate import estimate
from pymc_kameleon.analysis.evidence.result import Evidence, checked
from pymc_kameleon.approximation.records import MOST_ROWS
from pymc_kameleon.findings.finding import say
from pymc_kameleon.findings.words import counted, grouped
from pymc_kameleon.model.functions import ModelLogp
from pymc_kameleon.model.layout import Layout
from pymc_kameleon.model.watch import FAILED, Watch
from pymc_kameleon.sampling.workers import POLL_INTERVAL, Failed, Workers

_log = logging.getLogger("pymc_kameleon")

MOST_THREADS = 64
"""Evaluations that are made at a time, where that costs nothing and nobody says how many."""


def evidence_by(draws, evaluate, n, rng):
    """Return the Evidence that EvidenceDraws tell, by n new points; ValueError of another model."""
    draws.thin(MOST_ROWS if draws.logp is not None else n)
    logp = _logp_at_draws(draws, evaluate, rng)
    found = estimate(draws.x, logp, draws.surrogates, evaluate, n, rng)
    method = "bridge to the surrogate" if draws.surrogates is not None else "bridges by halves"
    own = map(float, (found.log_z, found.standard_error, found.overlap, found.ess))
    log_z, standard_error, overlap, ess = own
    evidence = Evidence(log_z, standard_error, method, overlap, ess, evaluate.n)
    return checked(evidence, draws, found.contradiction)


def _logp_at_draws(draws, evaluate, rng):
    """Return the log-densities (chains, draws) at draws, as known, or evaluated."""
    flat = draws.x.reshape(-1, draws.x.shape[2])
    if draws.logp is None:
        _log.info(f"Evaluating the log-density at {grouped(len(flat))} draws.")
        return evaluate(flat).reshape(draws.x.shape[:2])
    if not draws.is_estimate:  # see that this is the model that was sampled
        some = rng.choice(len(flat), CHECKED, replace=False)
        draws.check(some, evaluate(flat[some]))
    return draws.logp


# ---- evaluations --------------------------------------------------------------------------------


class Density:
    """A model's log-density, as a job of workers.

    `variables` are all value variables, in the order of the coordinates. Outside the regions in
    `restricted`, which steps were restricted to, it is -inf.
    """

    def __init__(self, model, variables, restricted):
        point, self.compile_kwargs = model.initial_point(), {}
        layout = Layout(model, variables, point)
        region = layout.region_array(restricted)
        logp = ModelLogp(model, variables, point, self.compile_kwargs, region)
        self.log_density = logp.compiled()
        self._make_ready()

    def _make_ready(self):
        self.turns = threading.Lock() if self.holds_gil else nullcontext()

    def __getattr__(self, name):
        """Have what the log-density has, as Workers ask for it."""
        return getattr(self.__dict__["log_density"], name)

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k != "turns"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._make_ready()


def log_densities(job, points, seeds):
    """Return log-densities (n,) at points (n, d), of an estimate by their seeds, and the watch."""
    with job.turns:
        logp = job.log_density.copy()
        logp.watch.turn(-1)
        found = [_log_density(logp, *own) for own in zip(points, seeds, strict=True)]
    return np.array(found), logp.watch


def _log_density(logp, x, seed):
    logp.rng = np.random.default_rng(seed) if logp.is_estimate else None
    try:
        return logp(x)
    except Exception as error:
        error.add_note(f"at {x.tolist()}, a point that pk.evidence evaluates{logp.advice(error)}")
        raise


class Evaluating:
    """Evaluates many points at once, wherever there are Workers; `n` counts them."""

    def __init__(self, density, cores, evaluators, rng):
        self._rng, self.n = rng, 0
        most = evaluators.size if evaluators is not None else 0
        self._workers = Workers(density, most or MOST_THREADS, cores, evaluators)
        self._watch = Watch.fresh(density.log_density.point.size)

    def __enter__(self):
        self._workers.__enter__()
        return self

    def __exit__(self, kind, *error):
        if kind is KeyboardInterrupt:
            self._workers.abandon()
        self._workers.__exit__(kind, *error)
        self._say_what_was_rejected()

    def __call__(self, x):
        """Return the log-density (n,) at points x (n, d)."""
        self.n += len(x)
        seeds = self._rng.integers(2**63, size=len(x))
        found, under_way = np.full(len(x), np.nan), {}
        share = max(1, len(x) // (4 * self._workers.at_once))  # points of a task
        tasks = [slice(i, i + share) for i in range(0, len(x), share)]
        while tasks or under_way:
            while tasks and len(under_way) < self._workers.at_once:
                rows = tasks.pop()
                under_way[self._workers.submit(log_densities, x[rows], seeds[rows])] = rows
            for future in self._workers.wait([*under_way], POLL_INTERVAL):
                rows, outcome = under_way.pop(future), future.result()
                if isinstance(outcome, Failed):
                    raise outcome.error
                found[rows], watch = outcome
                if watch.counts.size:
                    self._watch.add(watch)
        return found

    def _say_what_was_rejected(self):
        if n := int(self._watch.n_rejected.sum()):
            say(
                "evidence_of_rejections",
                evaluations=counted(n, "evaluation"),
                place=self._watch.points[FAILED].tolist(),
                error=self._watch.error[0],
            )
