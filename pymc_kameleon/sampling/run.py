"""A run of `pk.sample`: chains that advance wherever there is a worker, until enough is drawn."""

import logging
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from pymc_kameleon.analysis.batches import LEAST_DRAWS
from pymc_kameleon.findings.diagnosis import Diagnosis
from pymc_kameleon.findings.finding import finding, say
from pymc_kameleon.findings.words import counted
from pymc_kameleon.model.evaluators import MOST_DEATHS
from pymc_kameleon.model.pymc_internals import Draw, SamplingError, quiet_logging
from pymc_kameleon.result.superchains import superchains
from pymc_kameleon.result.tree import data_tree
from pymc_kameleon.sampling.budget import (
    ALL_SETTLED,
    NOTHING_SETTLED,
    TUNING_SETTLED,
    Budget,
    what_evaluations_were_for,
)
from pymc_kameleon.sampling.chain_of_run import FirstWay
from pymc_kameleon.sampling.ctrl_c import CtrlC
from pymc_kameleon.sampling.limits import has_enough, next_look
from pymc_kameleon.sampling.outcome import (
    longest,
    of_chains,
    of_end,
    of_rejections,
    what_was_made,
)
from pymc_kameleon.sampling.workers import POLL_INTERVAL, Failed, do_task
from pymc_kameleon.step.job import advance, learn
from pymc_kameleon.step.make_draws import CannotStart, draws_of_looks
from pymc_kameleon.step.problems import pool_searches
from pymc_kameleon.step.warm_start.search import turned

_log = logging.getLogger("pymc_kameleon")


class Run:
    """A run of `pk.sample`, as its `callback` gets it."""

    def __init__(self, prepared, workers, progress, limits, finish):
        self._prepared, self._workers, self._progress = prepared, workers, progress
        self._limits, self._finish = limits, finish
        self._record, self._job, self._chains = prepared.record, prepared.job, prepared.chains
        job, chains = self._job, self._chains
        self._budget = Budget.of(job, prepared.settings)
        self._width = job.outputs.n + sum(step.statistics.width for step in job.steps)
        follow = any(step.pool_tuning and step.search.follows for step in job.steps)
        self._follow = follow and len(chains) > 1
        self._find_pauses()
        self._way = FirstWay(job, chains[0]) if self._searches_at_once(chains[0]) else None
        self._data = self._digests()
        self._stop = threading.Event()
        self._error, self._length, self._why, self._disk_failed = None, None, None, False
        self._look, self._begun, self._seconds = LEAST_DRAWS, None, 0.0
        while self._look < prepared.origin.before:
            self._look = next_look(self._look)

    def _find_pauses(self):
        """Find the draws before which Python has to see chains, and those where they learn."""
        tune, several = self._chains[0].tune, len(self._chains) > 1
        example = self._job.steps_at(self._chains[0].state)
        self._pauses = {pause for step in example for pause in step.pauses()}
        self._pauses |= {tune + n for step in example for n in draws_of_looks(step)}
        if self._settled == NOTHING_SETTLED:
            self._pauses.add(1)
        together = [several and step.pool_tuning and step.learns != "alone" for step in example]
        self._learning_draws = [
            {pause for pause in step.pauses() if pause < tune} if learns else set()
            for step, learns in zip(example, together, strict=True)
        ]
        self._job.give_back(example)

    # ---- what its user sees ---------------------------------------------------------------------

    def __repr__(self):
        """Say how far it is."""
        done, total = (sum(getattr(c, name) for c in self._chains) for name in ("done", "total"))
        return f"<Run of {len(self._chains)} chains: {done} of {total} draws>"

    def inspect(self):
        """Return what there is by now, a DataTree; sampling goes on."""
        with self._on_disk():
            self._record.flush()
        chains, length = longest(self._chains)
        return self._tree(chains, length).copy(deep=True)

    def stop(self):
        """Stop after the draws that are being made; ``pk.resume`` goes on."""
        self._end("stopped")

    # ---- how it runs ----------------------------------------------------------------------------

    def to_its_end(self):
        """Run, and return the result, a DataTree."""
        tree = None
        try:
            with quiet_logging(self._finish.quiet), CtrlC(self._interrupted) as ctrl_c:
                self._drive(ctrl_c)
                tree = self._ended()
            self._finish.conclude(tree, self._findings, self._made)
        except KeyboardInterrupt:
            if tree is None:
                raise
            if not self._finish.quiet:
                say("unchecked")
            self._finish.keep(tree, Diagnosis(self._findings, f"{self._made}.", is_checked=False))
        return tree

    def _interrupted(self):
        if not self._stop.is_set():
            _log.info(
                "Stopping after the draws that are being made; press Ctrl-C again not to wait."
            )
        self._end("interrupted")

    def _drive(self, ctrl_c):
        """Let the chains advance to their ends, or until something says that it is enough."""
        self._ctrl_c, self._begun = ctrl_c, time.perf_counter()
        with suppress(KeyboardInterrupt):
            try:
                with self._workers, self._progress:
                    self._draw()
            except Exception as error:
                self._error = self._error or error
            finally:
                self._seconds = time.perf_counter() - self._begun

    def _draw(self):
        try:
            while self._goes_on():
                with self._ctrl_c.interruptible():
                    self._submit()
                self._take_results()
                self._look_at_limits()
                if self._why == "interrupted" and self._workers.has_no_workers():
                    self._workers.abandon()
                    break
        except KeyboardInterrupt:  # the second one, or the likelihood's own
            self._end("interrupted")
            self._workers.abandon()

    def _goes_on(self):
        if any(chain.future is not None for chain in self._chains):
            return True
        if self._way is not None and self._way.under_way:
            return True
        if self._stop.is_set():
            return False
        return any(chain.can_advance for chain in self._chains) or self._is_lengthened()

    def _end(self, why):
        self._why = self._why or why
        self._stop.set()

    def _submit(self):
        """Submit what can be done: the chains that are behind go first."""
        if self._stop.is_set():
            return
        if self._way is not None:
            if self._way.goes_on():
                for evaluation in self._way.next_ones(self._workers.at_once):
                    evaluation.future = self._workers.submit(*evaluation.task)
                return
            self._way = None
            self._lead()
            self._save(self._chains[0])
        self._submit_chains()
        while not self._stop.is_set() and self._learn_or_settle():
            self._submit_chains()

    def _submit_chains(self):
        ready = self._ready
        busy = sum(chain.future is not None for chain in self._chains)
        suspects = [chain for chain in ready if chain.failures]
        # Suspects go alone, as one that kills its worker may kill others with it.
        free = max(0, (1 if suspects else self._workers.at_once) - busy)
        for chain in sorted(suspects or ready, key=lambda chain: chain.done)[:free]:
            n = chain.next_portion(self._pauses)
            chain.future = self._workers.submit(advance, self._guided(chain), n)

    @property
    def _ready(self):
        """Chains that can advance now."""
        return [
            chain
            for chain in self._chains
            if chain.can_advance
            and not self._has_to_learn(chain)
            and not self._lacks_guide(chain)
            and not self._is_unsettled(chain)
        ]

    def _learn_or_settle(self):
        """Do what all chains wait for, if they do; return whether that was so."""
        waiting = [chain for chain in self._chains if chain.can_advance]
        if any(chain.future is not None for chain in self._chains) or self._ready or not waiting:
            return False
        if all(map(self._is_unsettled, waiting)):
            self._settle(waiting)
        else:
            self._learn_together(waiting)
        return True

    def _has_to_learn(self, chain):
        return any(
            chain.done in draws and own.monitor.learned != chain.done
            for draws, own in zip(self._learning_draws, chain.state.steps, strict=True)
        )

    def _searches_at_once(self, first):
        """Whether evaluations of the first chain's way are made many at a time."""
        begins = first.done == 0 < first.tune and not first.has_arrived
        leads = self._follow or (len(self._chains) == 1 and self._job.steps[0].search.follows)
        return leads and self._job.at_once > 1 and begins

    @property
    def _settled(self):
        return self._prepared.settings.settled

    def _is_unsettled(self, chain):
        """Whether a chain has come to where it is settled how many draws it makes."""
        if self._settled == NOTHING_SETTLED:
            return chain.done >= 1
        return self._settled < ALL_SETTLED and chain.done >= chain.tune

    def _settle(self, going):
        """Settle how many draws the chains make that go on, as all have come so far."""
        settings, tune = self._prepared.settings, going[0].tune
        if self._settled == NOTHING_SETTLED:
            states = [chain.state for chain in self._chains]
            tune = min(tune, self._budget.tuning_after_ways(states, len(going)))  # there is room
            settings = settings.but(tune=tune, settled=TUNING_SETTLED)
            self._make(settings, tune, going[0].total - going[0].tune)
        else:
            draws = max(0, self._draws_to_the_end(going))
            settings = settings.but(draws=draws, settled=ALL_SETTLED)
            self._make(settings, tune, draws)

    def _is_lengthened(self):
        """Whether chains that have made their draws make more, as evaluations are left."""
        going = [chain for chain in self._chains if not chain.lost]
        if self._budget is None or not going:
            return False
        tune, draws = going[0].tune, self._draws_to_the_end(going)
        if draws <= min(chain.made for chain in going):
            return False
        self._make(self._prepared.settings.but(draws=draws), tune, draws)
        return True

    def _draws_to_the_end(self, going):
        states, own = ([chain.state for chain in chains] for chains in (self._chains, going))
        return self._budget.draws_to_the_end(states, own, going[0].tune)

    def _make(self, settings, tune, draws):
        """Let all chains make so many draws, of tuning and after it, as is settled now."""
        self._prepared.settings = settings
        with self._on_disk():
            self._record.settle(tune, draws, self._prepared.attributes())
        for chain in self._chains:
            chain.settle(tune, draws)
            self._save(chain)
        self._find_pauses()

    def _lacks_guide(self, chain):
        """Whether a chain has to wait until the first one has found the posterior."""
        first = self._chains[0]
        begins = chain is not first and chain.done == 0 < chain.tune
        return self._follow and begins and not first.has_arrived and not first.lost

    def _lead(self):
        """Let others begin where the first one is, if its way has led to nothing that guides them.

        Their own starts may be impossible: nobody has looked.
        """
        first, steps = self._chains[0].state, self._job.steps
        if not all(s.search.follows for s in steps) or all(
            own.guide.is_known for own in first.steps
        ):
            return
        point = first.point.copy()
        for step, own in zip(steps, first.steps, strict=True):
            if own.monitor.arrived:
                point[step.layout.places[: step.layout.d]] = own.state.x
        for chain in self._chains[1:]:
            if chain.done == 0 and not chain.is_on_its_way:
                chain.state = replace(chain.state, point=point.copy())
                self._save(chain)

    def _guided(self, chain):
        """Return the state of a chain; one that begins gets the guide of the first one.

        What it has evaluated without one, when the first one was lost, is of another way.
        """
        if not self._follow or chain.done > 0 or chain.is_on_its_way:
            return chain.state
        guides = [first.guide for first in self._chains[0].state.steps]
        if self._job.at_once > 1 and chain is not self._chains[0]:
            k = superchains(len(self._chains))[chain.row]
            pairs = zip(self._job.steps, guides, strict=True)
            guides = [turned(guide, k) if step.search.follows else guide for step, guide in pairs]
        pairs = zip(chain.state.steps, guides, strict=True)
        steps = [replace(own, guide=guide) for own, guide in pairs]
        return replace(chain.state, steps=steps)

    # ---- what chains learn together, which is done here, as it evaluates nothing ----------------

    def _learn_together(self, waiting):
        """Let the chains learn together that have come to where that is due.

        These are all, but for one that was given up when the others went on: it is behind.
        """
        first = min(chain.done for chain in waiting)
        chains = [chain for chain in waiting if chain.done == first]
        outcome = do_task(self._job, learn, [chain.state for chain in chains])
        if isinstance(outcome, Failed):
            outcome.error.add_note("While the chains learned together.")
            self._fail(outcome.error)
            return
        for chain, state in zip(chains, outcome, strict=True):
            chain.state = state
            self._record.save(chain.row, state)
        with self._on_disk():  # all or none, as those that have not would learn again later
            self._record.flush_if_due()

    # ---- what comes back ------------------------------------------------------------------------

    def _take_results(self):
        futures = [chain.future for chain in self._chains if chain.future is not None]
        evaluations = [] if self._way is None else self._way.under_way
        futures += [evaluation.future for evaluation in evaluations]
        with self._ctrl_c.interruptible():
            done = self._workers.wait(futures, POLL_INTERVAL)
        taken = [chain for chain in self._chains if chain.future in done]
        for chain in taken:
            self._take(chain, chain, self._keep)
        for evaluation in evaluations:
            if evaluation.future in done:
                self._take(evaluation, self._chains[0], self._keep_evaluation)
        for chain in taken or self._chains[:1]:
            self._progress.show(chain)

    def _take(self, task, chain, keep):
        """Take what came of a task of a chain: its advance, or an evaluation of its way."""
        future, task.future = task.future, None
        try:
            outcome = future.result()
        except KeyboardInterrupt:  # the run ends, but others finish what they are doing
            self._end("interrupted")
        except Exception as error:  # of its worker
            self._workers.note_error(error)
            self._worker_died(task, chain, error)
        else:
            if isinstance(outcome, Failed):
                when = "" if task is chain else f"{self._way.where(task)}, "
                self._fail(_in_chain(chain, outcome.error, when))
            else:
                keep(task, *outcome)

    def _keep_evaluation(self, evaluation, *found):
        self._way.take(evaluation, found)
        self._save(self._chains[0])

    def _keep(self, chain, state, portion):
        tuning = chain.done < chain.tune
        start = chain.done if tuning else chain.made
        chain.take(state, portion, self._workers.seconds, self._width)
        self._record.write(chain.row, start, portion, tuning)
        self._save(chain)
        if self._limits.callback is not None and portion.last is not None:
            self._call_back(chain, tuning)

    def _save(self, chain):
        self._record.save(chain.row, chain.state)
        with self._on_disk():
            self._record.flush_if_due()

    @contextmanager
    def _on_disk(self):
        """Write to a store; end the run if that fails."""
        try:
            yield
        except OSError as error:
            if not self._disk_failed:
                _log.error(
                    f"The store cannot be written ({error}). Sampling stops; the result has what "
                    "is in memory, too."
                )
            self._disk_failed = True
            self._end("disk")

    def _call_back(self, chain, tuning):
        i, layout = chain.done - 1, chain.steps[0].layout
        point = layout.unraveled(chain.state.point[layout.places])
        draw = Draw(chain.number, chain.done == chain.total, i, tuning, chain.last_stats, point)
        try:
            with self._ctrl_c.interruptible():
                self._limits.callback(self, draw)
        except KeyboardInterrupt:
            self._end("interrupted")
        except Exception as error:
            error.add_note(f"In the callback, after draw {draw.draw_idx} of chain {draw.chain}.")
            self._fail(error)

    def _worker_died(self, task, chain, error):
        task.failures += 1
        chain.shorten_advances()
        if task.failures <= MOST_DEATHS:
            say("worker_died", chain=chain.number, error=repr(error))
            return
        chain.lost = True
        if task is not chain:
            self._way = None
            self._lead()
        _log.error(
            f"Chain {chain.number} is given up at draw {chain.done}, as {task.failures} workers "
            f"died of it in a row ({error!r}). Look for parameter values at which the likelihood "
            "takes too much memory, or crashes."
        )

    def _fail(self, error):
        self._error = self._error or error
        self._stop.set()

    # ---- when it is enough ----------------------------------------------------------------------

    def _look_at_limits(self):
        most = self._limits.max_time
        is_up = most is not None and time.perf_counter() - self._begun > most
        if is_up and not self._stop.is_set():
            self._end("max_time")
        if self._limits.target_ess is not None and self._error is None:
            self._look_at_ess()

    def _look_at_ess(self):
        """See at fixed draws whether these are enough, so that the result does not vary."""
        chains = [chain for chain in self._chains if not chain.lost]
        made = min((chain.made for chain in chains), default=0)
        most = self._chains[0].total - self._chains[0].tune
        while self._length is None and 0 < (look := min(self._look, most)) <= made:
            rows = [chain.row for chain in chains]
            draws = self._record.dataset("posterior", rows, 0, look)[self._limits.parameters]
            if has_enough(draws, self._limits.target_ess):
                self._length = look
                self._end("target_ess")
            if look == most:
                return
            self._look = next_look(look)

    # ---- the result -----------------------------------------------------------------------------

    def _ended(self):
        """Return the result of a run that has ended, a DataTree; raise what was raised."""
        try:
            chains, length = self._chains_and_length()
            if self._error is not None:
                self._raise(chains, length)
            tree = self._assembled(chains, length)
        except BaseException:
            if any(chain.evaluations > 0 for chain in self._chains):
                with self._on_disk():
                    self._record.flush()  # how far ways have come
                self._record.close()
            else:
                self._record.discard()
            raise
        self._record.close()
        return tree

    def _chains_and_length(self):
        if self._length is not None:
            return [chain for chain in self._chains if chain.made >= self._length], self._length
        if all(chain.done >= chain.total for chain in self._chains):
            return self._chains, self._chains[0].total - self._chains[0].tune
        return longest([chain for chain in self._chains if not chain.lost] or self._chains)

    def _raise(self, chains, length):
        error = self._error
        if isinstance(error, CannotStart):
            error = error.explained(self._job.steps)
        elif not hasattr(error, "result"):
            begun = any(c.evaluations > 0 for c in self._chains)
            try:
                error.result = self._assembled(chains, length, silent=True)
            except Exception as another:  # as MemoryError, if the likelihood has taken it all
                error.add_note(f"The draws until then could not be put together: {another!r}")
            else:
                how = self._finish.how_to_go_on if begun else "pk.resume(...)"
                error.add_note(
                    "What was made until then is in the attribute `result` of this exception; "
                    f"{how} goes on from there."
                )
        raise error from error.__cause__

    def _assembled(self, chains, length, silent=False):
        """Return the DataTree, and log what there is to say."""
        if not any(chain.done > chain.begun for chain in self._chains):
            if all(chain.lost for chain in self._chains):
                raise SamplingError("There are no draws: workers died in every chain.")
            if self._why == "interrupted":
                evaluated = any(chain.evaluations > 0 for chain in self._chains)
                is_stored = evaluated and isinstance(self._finish.store, Path)
                how = f" {self._finish.how_to_go_on} goes on." if is_stored else ""
                raise KeyboardInterrupt(f"There are no draws.{how}")
        whole = self._why is None and len(chains) == len(self._chains)
        if not whole:
            for chain in chains:
                for step in chain.state.steps:
                    step.monitor.draws = max(0, step.monitor.done - step.monitor.tune)
        if not silent:
            self._find(chains, length)
        with self._on_disk():
            self._record.flush()
        tree = self._tree(chains, length)
        if not self._disk_failed:
            with self._on_disk():
                self._record.finish(tree, max(chain.made for chain in self._chains))
        return tree

    def _tree(self, chains, length):
        return data_tree(
            self._job,
            self._chains,
            chains,
            length,
            self._record,
            self._prepared.attributes(length if self._length else None),
            self._seconds + self._prepared.origin.seconds,
        )

    def _digests(self):
        """Return those of the data that the steps of chains have seen."""
        return [own.data for chain in self._chains for own in chain.state.steps]

    def _find(self, chains, length):
        """See what there is to tell of the run and its chains."""
        left = [chain.number for chain in self._chains if chain not in chains]
        until_enough = self._limits.target_ess is not None
        found = of_end(self._why, until_enough, chains, length, left, self._finish.how_to_go_on)
        if self._digests() != self._data:
            found.append(finding("changed_data"))
        ended = [(chain, self._job.steps_at(chain.state)) for chain in chains]
        pool_searches([steps for _, steps in ended])
        found += of_chains(ended) + of_rejections(ended)
        if n := sum(chain.n_calls for chain in self._chains):
            found.append(finding("uncounted_calls", calls=counted(n, "call")))
        if self._budget is not None:
            states = [chain.state for chain in self._chains]
            evaluations = what_evaluations_were_for(self._prepared.settings, states)
        else:
            n, before = sum(chain.evaluations for chain in self._chains), self._finish.n_before
            evaluations = counted(n + before, "evaluation")
            evaluations += f" ({before} before the run)" if before else ""
        self._findings, self._made = found, what_was_made(ended, self._seconds, evaluations)


def _in_chain(chain, error, when=""):
    """Return an exception whose last note says when and where it was raised, and in which chain."""
    *others, where = getattr(error, "__notes__", [""])
    error.__notes__ = [*others, f"In chain {chain.number}, {when}{where}"]
    return error
