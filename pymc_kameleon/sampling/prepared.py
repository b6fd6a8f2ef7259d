"""What a run of `pk.sample` begins with: a job, states of chains, and room for draws."""

import json
from dataclasses import dataclass

from pymc_kameleon.result.memory import Memory
from pymc_kameleon.result.steps import describe
from pymc_kameleon.result.store import Store, locked, refuse_existing
from pymc_kameleon.sampling.chain_of_run import Chain
from pymc_kameleon.step.groups import AHEAD, BEHIND
from pymc_kameleon.step.job import Job


@dataclass
class Prepared:
    """A run before its first draw.

    Attributes
    ----------
    job : Job
    chains : list of Chain
    record : Memory or Store
        Where draws go.
    attributes : dict
        What the run is asked for, as `resume` needs to know it.
    seconds : float
        What it took before.
    before : int
        Draws after tuning that it had.
    """

    job: Job
    chains: list
    record: object
    attributes: dict
    seconds: float = 0.0
    before: int = 0


def room_for_draws(store, job, columns, numbers, tune, draws, attributes, states, saved=None):
    """Return where draws go, with those of an earlier run, and with the first states."""
    if store is None:
        record = Memory(columns, numbers, tune, draws)
        _fill(record, states, saved)
        return record
    refuse_existing(store)
    lock = locked(store)
    try:
        refuse_existing(store)  # another run may have made it while this one waited for the lock
    except ValueError:
        lock.release()
        raise
    record = Store(store, lock, job.steps, columns, numbers)
    try:
        record.create(tune, draws, attributes, states)
        _fill(record, states, saved)
    except BaseException:
        record.discard()
        raise
    return record


def _fill(record, states, saved):
    """Keep the draws of an earlier run, if there is one, and the states that chains begin with."""
    if saved is not None:
        _take_over(record, saved)
    for row, state in enumerate(states):
        record.save(row, state)
    record.flush()


def _take_over(record, saved):
    """Keep the draws of an earlier run."""
    for group, variables in record.columns.groups.items():
        for part in (group, AHEAD + group, BEHIND + group):
            if part in saved.draws:
                found = saved.draws[part]
                start = int(found["draw"].values[0])
                rows = [saved.numbers.index(number) for number in found["chain"].values]
                for name in variables:
                    for row, values in zip(rows, found[name].values, strict=True):
                        record.put(row, start, group, name, values)


def attributes_of_run(steps, names, outputs, draws, pool_tuning, keeps_warmup, surrogate_draws):
    """Return what a run is asked for, as `resume` needs to know it."""
    return {
        "steps": json.dumps([describe(step) for step in steps]),
        "var_names": json.dumps(names),
        "data": outputs.digest.hex(),
        "draws": draws,
        "pool_tuning": int(pool_tuning),
        "keeps_warmup": int(keeps_warmup),
        "surrogate_draws": surrogate_draws,
        "draws_kept": -1,  # until it has ended
    }


def chains_from(numbers, states, steps):
    """Return the chains that begin with these states."""
    pairs = zip(numbers, states, strict=True)
    return [Chain(row, number, state, steps) for row, (number, state) in enumerate(pairs)]
