"""Making draws with steps: both drivers, pm.sample's and pk.sample's, come here.

Between the draws of a call nothing happens in Python. What can be done only there is done before
them: the warm start before the first draw of a chain, and learning where that is due.
"""

import numpy as np

from pymc_kameleon.core.chain import (
    AT_STEP,
    COMMON,
    CURRENT,
    DRAWS_MADE,
    MOVED,
    N_PROGRESS,
    STALE_DERIVED,
    STALE_LOGP,
    Block,
    compile_draws,
)
from pymc_kameleon.core.jit import specialise
from pymc_kameleon.core.target import Outputs
from pymc_kameleon.model.noise import NOISE_STATISTIC, estimate_variance, explain_moved
from pymc_kameleon.model.pymc_internals import SamplingError
from pymc_kameleon.model.starts import RETRIES
from pymc_kameleon.model.watch import LOOKS
from pymc_kameleon.step.messages import say_if_compiling
from pymc_kameleon.step.problems import explain_start

NO_OUTPUTS = Outputs.none()
"""Where none are wanted."""


class CannotStart(Exception):
    """The step number k cannot start at `q` (n,), in its own order.

    The reason is found where the run was begun, as that compiles.
    `failure` is what the evaluation there has done, if it was rejected for that.
    """

    def __init__(self, k, q, failure=""):
        super().__init__(k, q, failure)

    def explained(self, steps):
        """Return the error that the user sees."""
        k, q, failure = self.args
        error = SamplingError(explain_start(steps[k], q, failure))
        error.__notes__ = getattr(self, "__notes__", [])
        return error


def compiled_run(steps):
    """Return the compiled function that makes draws with the steps in turn."""
    for step in steps:
        _check_gradient(step)
    names = " and ".join(type(step).__name__ for step in steps)
    with say_if_compiling(f"the transitions of {names}"):
        blocks = tuple(block(step, CURRENT, step.statistics.empty(1)) for step in steps)
        point, progress = np.zeros(blocks[0].places.size), np.zeros(N_PROGRESS, np.int64)
        run = compile_draws(tuple(step.algorithm for step in steps))
        return specialise(run, blocks, point, NO_OUTPUTS, progress)


def make_draws(run, steps, point, n, outputs=NO_OUTPUTS, progress=None):
    """Make n draws of a chain, with each of its steps in turn; return the statistics of each step.

    `run` is from `compiled_run`. The chain's `point` (n_values,), in the model's order, moves
    along. `outputs` are what to compute of each draw, and where to put it. `progress` (N_PROGRESS,)
    tells draws made, and the step at work, if there is an exception: CannotStart if the log-density
    of a step is not finite.
    """
    progress = np.zeros(N_PROGRESS, np.int64) if progress is None else progress
    progress[:] = 0
    counts = [step.log_density.count[0] for step in steps]
    stats, blocks = [step.statistics.empty(n) for step in steps], ()
    for step, own in zip(steps, stats, strict=True):
        progress[AT_STEP] = len(blocks)
        status = _begin(step, point[step.layout.places])
        blocks += (block(step, status, own),)
    if not run(blocks, point, outputs, progress):
        k = int(progress[AT_STEP])
        q, failure = point[steps[k].layout.places], steps[k].log_density.failure
        # A start may have been NaN by chance: it is tried once more, as nothing has moved yet.
        if failure or progress.any() or not run(blocks, point, outputs, progress):
            raise CannotStart(k, q, failure)
        steps[0].watch.compare(q, np.nan, 0.0)
    for step, own, count in zip(steps, stats, counts, strict=True):
        _conclude(step, point[step.layout.places], own, count)
    return stats


def where(error, steps, point, begun, progress):
    """Say in which draw, or when before the first one, and where, an exception was raised.

    And what helps, if that is known.
    """
    draw, tune = begun + int(progress[DRAWS_MADE]), steps[0].monitor.tune
    advice = ""
    if progress[AT_STEP] < len(steps):
        step = steps[progress[AT_STEP]]
        values = step.layout.unraveled(step.log_density.evaluated_at)
        if not isinstance(error, CannotStart | SamplingError):
            advice = step.log_density.advice(error)
        if step.search.is_under_way:
            k = np.count_nonzero(~np.isnan(step.trail[:, 0])) + 1
            when = f"evaluation {k} of the search for the posterior, before the first draw"
            return f"{when}, at {values}{advice}"
    else:
        values = steps[0].layout.unraveled(point[steps[0].layout.places])
    when = f"draw {draw} of tuning" if draw < tune else f"draw {draw - tune}"
    return f"{when}, at {values}{advice}"


def _begin(step, q):
    """Get a step ready for draws from `q` (n,), in its own order; return what still holds there.

    CURRENT, STALE_LOGP, STALE_DERIVED or MOVED, as far as its own coordinates and the data tell:
    compiled code sees itself that others moved. An estimate is kept as long as the data are.
    """
    logp, d = step.log_density, step.layout.d
    status = what_changed(step, q)
    logp.rng, first = step.rng, step.point is None
    if first:
        known = arrive(step, q)
    else:  # compiled code compares, to see which of the others moved
        logp.point[d:] = step.point[d:]
        if step.pseudo_marginal and status == MOVED:
            raise SamplingError(explain_moved(step))
    if status == MOVED:
        step.state.x[:] = q[:d]
    if first and known:
        status = STALE_DERIVED
    if step.learns != "together" and learning_is_due(step):
        logp.point[:] = q
        step.learn([step])
        step.monitor.learned = step.monitor.done
    if step.pseudo_marginal and step.monitor.done == step.monitor.tune:
        step.monitor.noise = estimate_variance(logp, q)
    if step.monitor.done - step.monitor.tune in draws_of_looks(step):
        step.watch.look_again(logp)
    if step.monitor.learned == step.monitor.done:  # what is derived from parameters is out of date
        brings_logp = step.search.follows and step.layout.covers_all  # if it was moved
        stays = step.pseudo_marginal or brings_logp or np.array_equal(step.state.x, q[:d])
        return status | STALE_DERIVED if stays else MOVED
    return status


def arrive(step, q, asks=False):
    """Move `q` (n,), in the step's own order, to where the posterior is, before the first draw.

    Return whether the state's log-density is the one there. If it `asks`, it raises `Wanted`
    instead of evaluating the log-density.
    """
    logp, d = step.log_density, step.layout.d
    if step.monitor.arrived:
        q[:d], logp.point[:] = step.state.x, q
        logp.count[0] += np.count_nonzero(~np.isnan(step.trail[:, 0]))  # of the first draw
        return False
    if step.tune and step.jitters and np.array_equal(q[:d], step._common_start):
        _jump(step, q)
    logp.point[:], logp.rng = q, step.rng
    at_common_start = np.array_equal(q[:d], step._common_start)
    step.monitor.common_start = at_common_start and not step.search.is_one_of_many
    known = bool(step.tune and step.search.begin(q, asks))
    step.state.x[:], step.monitor.arrived = q[:d], True
    return known


def _jump(step, q):
    """Move the step's own coordinates of `q` (n,) away, to where a chain can start.

    As PyMC does for NUTS; if no such point is found, nothing moves.
    """
    d, logp = step.layout.d, step.log_density
    start = q[:d].copy()
    for _ in range(RETRIES):
        q[:d] = start + step.rng.uniform(-1, 1, d)
        step.layout.round(q)
        if np.isfinite(logp(q)) and np.isfinite(logp.gradient).all():
            return
    q[:d] = start


def draws_of_looks(step):
    """Return after how many draws after tuning a chain is to evaluate a point once more."""
    logp = step.log_density
    return LOOKS if logp.looks_again and not logp.is_estimate else ()


def learning_is_due(step):
    """Whether a step is to learn in Python before its next draw."""
    monitor = step.monitor
    return step.tune and monitor.learned != monitor.done and monitor.done in step.pauses()


def learn_together(steps, points):
    """Let the same step of all chains learn, where that is due; `points` (n,) are the chains'."""
    if not (steps[0].learns != "alone" and learning_is_due(steps[0])):
        return
    for step, point in zip(steps, points, strict=True):
        step.log_density.follow_data()
        step.log_density.point[:] = point[step.layout.places]
        step.log_density.rng = step.rng
    counts = [step.log_density.count[0] for step in steps]
    steps[0].learn(steps)
    for step, count in zip(steps, counts, strict=True):
        step.monitor.learned = step.monitor.done
        step.monitor.uncounted += int(step.log_density.count[0] - count)


def what_changed(step, q):
    """Return what holds of a step's state at `q` (n,), if no other variable moved."""
    step.log_density.follow_data()
    new_data, step.data = step.data != step.log_density.digest, step.log_density.digest
    if new_data:
        step.watch.forget()
    d = step.layout.d
    if step.point is None or not np.array_equal(q[:d], step.point[:d]):
        return MOVED
    if new_data:
        return MOVED if step.derivatives else STALE_LOGP  # the state holds the gradient too
    return CURRENT


def block(step, status, rows):
    """Return a step's part of draws, whose statistics are written into `rows`."""
    row, stats = step._buffer
    step.log_density.evaluated_at = step.log_density.point  # from here on, compiled code evaluates
    step.log_density.count[1] = 0
    return Block(
        step.log_density.target(step.rng),
        step.state,
        step.parameters,
        step.tuning,
        step._work,
        step.rng,
        step.layout.places,
        step.steps_per_draw,
        step.tune or (step.keep_adapting and step.tuning.n > 0),
        status,
        stats,
        row,
        rows,
    )


def _conclude(step, q, rows, count):
    """Take notice of draws that ended at `q` (n,), before which there were `count` evaluations."""
    elsewhere = step.log_density.count[0] - count - rows[:, COMMON.n_logp].sum()
    elsewhere += step.monitor.uncounted
    rows[0, COMMON.n_logp] += elsewhere
    step.monitor.uncounted, begins = 0, step.point is None
    step.monitor.count(int(elsewhere) if begins else 0, int(rows[:, COMMON.n_logp].sum()))
    step.monitor.infinite += int(step.log_density.count[1])
    step.monitor.follow(rows[:, COMMON.accept_prob], rows[:, COMMON.accept_share])
    if step.pseudo_marginal and step.monitor.done > step.monitor.tune:
        step.statistics.named(rows)[NOISE_STATISTIC][:] = step.monitor.noise
    d = step.layout.d
    step.point = np.concatenate([q[:d], step.log_density.point[d:]])
    step.trail[:] = np.nan


def _check_gradient(step):
    """Raise a TypeError if the sampler would take the gradient from where it is not."""
    name, d = type(step).__name__, step.layout.d
    held = getattr(step.state, "gradient", None)
    if held is not None and not step.derivatives:
        raise TypeError(
            f"The State of {name} has a gradient, but {name}.derivatives is 0, so that none is "
            "computed. Set derivatives = 1."
        )
    if step.derivatives and (held is None or held.shape != (d,)):
        raise TypeError(
            f"{name}.derivatives is {step.derivatives}, so that its State must have a field "
            f"`gradient` of shape (d,), here ({d},): there the gradient at x is written when a "
            "chain starts, or other variables move. That at a proposal is in target.gradient."
        )
