"""What a run of `pk.sample` begins with: a job, states of chains, and room for draws.

A new run and one that goes on differ in where these come from: a `NewRun` or a `ResumedRun`.
"""

from dataclasses import dataclass

from pymc_kameleon.result.columns import Columns, check_names
from pymc_kameleon.result.memory import Memory
from pymc_kameleon.result.state import identity
from pymc_kameleon.result.store import Store, new_store
from pymc_kameleon.sampling.chain_of_run import Chain
from pymc_kameleon.sampling.settings import Settings
from pymc_kameleon.step.job import Job


@dataclass
class Prepared:
    """A run before its first draw."""

    job: Job
    chains: list
    record: object  # Memory or Store, where draws go
    settings: Settings
    identity: dict  # what steps and data were, as attributes
    seconds: float  # what it took before
    before: int  # draws after tuning that it had
    n_checks: int  # evaluations of the log-density before it, which no draw counts

    def attributes(self, draws=None):
        """Return by what `resume` goes on; the run may have ended with fewer draws."""
        return self.settings.but(draws=draws).attributes() | self.identity


def prepare(origin, store):
    """Return the run of a NewRun or ResumedRun before its first draw; `store` is a new Path."""
    try:
        return _prepared(origin, store)
    except BaseException:
        origin.release()
        raise


def _prepared(origin, store):
    steps, keeps_warmup = origin.steps, origin.settings.keeps_warmup
    outputs = steps[0].outputs(origin.settings.var_names)
    columns = Columns(outputs, steps, keeps_warmup, *origin.labels(outputs))
    check_names(steps[0].model, columns, origin.numbers)
    at_once = origin.settings.max_concurrent
    job = Job(steps, outputs, keeps_warmup, at_once)
    states, settings = origin.begin(job)
    _compile_learning(steps, states)
    numbered = enumerate(zip(origin.numbers, states, strict=True))
    chains = [Chain(row, number, state, steps) for row, (number, state) in numbered]
    before = origin.seconds, origin.before, origin.n_checks
    run = Prepared(job, chains, None, settings, identity(job), *before)
    run.record = _record(origin, store, columns, job, states, settings, run.attributes())
    return run


def _record(origin, store, columns, job, states, settings, attributes):
    """Return where draws go, with those of an earlier run, and with the first states."""
    plan = attributes | {"draws_kept": -1}  # until it has ended
    monitors = [state.monitor for state in states]
    room = max(settings.most_draws, *(max(own.draws, own.done - own.tune) for own in monitors))
    steps = job.copies()
    if origin.lock is not None:
        record = Store(origin.path, origin.lock, steps, columns, origin.numbers)
        return record.extend(monitors[0].tune, room, plan, states)
    if store is None:
        record = Memory(columns, origin.numbers)
    else:
        record = new_store(store, steps, columns, origin.numbers)
    try:
        record.create(monitors[0].tune, room, plan, states)
        origin.put_draws_into(record)
        for row, state in enumerate(states):
            record.save(row, state)
        record.flush()
    except BaseException:
        record.discard()
        raise
    return record


def _compile_learning(steps, states):
    """Compile now what chains that learn together would wait for later."""
    tunes = any(state.monitor.done < state.monitor.tune for state in states)
    if tunes and len(states) > 1:
        for step in steps:
            if step.pool_tuning:
                step.compile_learning()
