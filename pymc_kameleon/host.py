"""All that we take from inside PyMC, and PyMC's log and progress bar as we use them.

PyMC may move or change these parts in any minor version. The rest of the package knows what
``import pymc as pm`` offers, and this file.
"""

import logging
import time
from contextlib import contextmanager, nullcontext, suppress
from weakref import ref

from pymc.backends.arviz import coords_and_dims_for_inferencedata, find_constants, find_observations
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.exceptions import SamplingError
from pymc.initial_point import make_initial_point_fn, make_initial_point_fns_per_chain
from pymc.progress_bar import MCMCProgressBarManager
from pymc.progress_bar.rich_progress import RichProgressBackend
from pymc.sampling.mcmc import _quiet_logging as quiet_logging
from pymc.sampling.parallel import Draw, _initialize_multiprocessing_context
from pymc.stats.convergence import SamplerWarning, WarningType, log_warnings, run_convergence_checks
from pymc.stats.convergence import logger as warnings_logger
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.arraystep import ArrayStepShared
from pymc.step_methods.compound import BlockedStep, Competence, CompoundStep, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import (
    get_default_varnames,
    get_random_generator,
    get_untransformed_name,
    is_transformed_name,
)
from rich.progress import ProgressColumn
from rich.table import Column
from rich.text import Text

__all__ = [
    "STEP_METHODS",
    "ArrayStepShared",
    "BlockedStep",
    "Competence",
    "CompoundStep",
    "Draw",
    "DrawStats",
    "FlatRV",
    "HalfFlatRV",
    "Progress",
    "SamplerWarning",
    "SamplingError",
    "StepMethodState",
    "WarningType",
    "coords_and_dims_for_inferencedata",
    "dataclass_state",
    "find_constants",
    "find_observations",
    "get_default_varnames",
    "get_random_generator",
    "log_warnings",
    "make_initial_point_fn",
    "make_initial_point_fns_per_chain",
    "multiprocessing_context",
    "natural_name",
    "progress_columns",
    "progress_update",
    "quiet_logging",
    "run_convergence_checks",
]


def natural_name(name):
    """Return the model's name of a variable that is sampled on another scale: s for s_log__."""
    return get_untransformed_name(name) if is_transformed_name(name) else name


def multiprocessing_context(compile_kwargs):
    """Return how processes are begun, as pm.sample decides."""
    return _initialize_multiprocessing_context(None, mode=compile_kwargs.get("mode"), quiet=True)


# ---- log ----------------------------------------------------------------------------------------


def _effective_level():
    """Return the level of our logger: PyMC's, unless it has its own and PyMC is not quiet."""
    level = logging.getLogger("pymc").getEffectiveLevel()
    return level if level > logging.CRITICAL else _log.level or level


class ToPyMC(logging.Handler):
    """Hands messages to PyMC's handlers, unless the root logger's see them anyway."""

    def emit(self, record):
        """Show a message, once."""
        if not logging.root.handlers:
            logging.getLogger("pymc").handle(record)


_log = logging.getLogger("pymc_kameleon")
_log.getEffectiveLevel = _effective_level
_log.addHandler(ToPyMC())


class Problems(str):
    """What a chain warns of, for the logger that PyMC hands it to.

    Attributes
    ----------
    heading : str
        Which step says it.
    problems : list of str
    """

    @classmethod
    def of(cls, heading, problems):
        """Put them together."""
        self = cls(" ".join([heading, *problems]))
        self.heading, self.problems = heading, problems
        return self


class OncePerRun(logging.Filter):
    """Drops what another chain of the same run of ``pm.sample`` has warned of already.

    PyMC logs the warnings of all chains in the parent process. A run is there as long as its bar,
    which alone holds what a step made to update it.
    """

    def __init__(self):
        super().__init__()
        self._bar, self._said = lambda: None, set()

    def begin(self, bar):
        """Begin a run, as long as the function `bar` is there."""
        warnings_logger.addFilter(self)
        self._bar, self._said = ref(bar), set()

    def filter(self, record):
        """Keep the problems that are new."""
        if not isinstance(record.msg, Problems) or self._bar() is None:
            return True
        heading, problems = record.msg.heading, record.msg.problems
        new = [problem for problem in problems if (heading, problem) not in self._said]
        self._said.update((heading, problem) for problem in new)
        record.msg = Problems.of(heading, new)
        return bool(new)


_once_per_run = OncePerRun()


# ---- progress bar -------------------------------------------------------------------------------


class DrawStats(dict):
    """Statistics of a draw, all of which PyMC records.

    Attributes
    ----------
    mean_accept : float
    stuck : bool
        For the progress bar, which is in another process where chains are.
    """


class Number(ProgressColumn):
    """A column of the progress bar: a field of the same name."""

    def __init__(self, title):
        super().__init__(Column(Text(title), ratio=1))  # brackets are no markup
        self._field = title

    def render(self, task):
        """Show two digits."""
        return Text(f"{task.fields[self._field]:0.2g}")


def progress_columns(titles, n_chains):
    """Return what PyMC asks of a step for its bar: columns, and what is in them at first."""
    return [Number(title) for title in titles], {title: [0.0] * n_chains for title in titles}


def progress_update(titles):
    """Return the function that puts the statistics of a draw, DrawStats, into the columns.

    PyMC asks for it when a run begins, and holds it until the run ends.
    """
    accept, scale = titles

    def update_stats(stats):
        return {
            accept: stats.mean_accept,
            scale: float(stats["scaling"]),
            "failing": stats.stuck,
        }

    _once_per_run.begin(update_stats)
    return update_stats


class Progress(MCMCProgressBarManager):
    """PyMC's progress bar, for chains that make many draws between two looks at them.

    If it raises, it is given up, and says so in the log: no draw is lost for it.
    """

    def __init__(self, chains, progressbar, progressbar_theme=None):
        steps, begun = chains[0].steps, chains[0].begun
        tune = chains[0].n_tune
        draws = chains[0].total - begun - tune
        step = steps[0] if len(steps) == 1 else CompoundStep(steps)
        super().__init__(step, len(chains), draws, tune, progressbar, progressbar_theme)
        self._shown, self._begun = [0] * len(chains), time.perf_counter()

    def __enter__(self):
        """Show it."""
        with self._or_give_up():
            super().__enter__()
        return self

    def __exit__(self, *error):
        """Leave it as it is."""
        with self._or_give_up():
            super().__exit__(*error)

    def show(self, chain):
        """Show how far a chain is."""
        done = chain.done - chain.begun
        if self._show_progress and chain.last_stats is not None and done > self._shown[chain.row]:
            with self._or_give_up():
                self._show(chain, done)

    @contextmanager
    def _or_give_up(self):
        try:
            yield
        except Exception as error:
            backend, self._backend, self._show_progress = self._backend, nullcontext(), False
            with suppress(Exception):  # it may have left the terminal in disorder
                backend.__exit__(None, None, None)
            _log.warning("The progress bar fails (%r) and is given up. Sampling goes on.", error)

    def _show(self, chain, done):
        advance = done - self._shown[chain.row]
        self._shown[chain.row] = done
        bar, count = chain.row, done
        if self.combined_progress:
            bar, count = 0, sum(self._shown)
        failing, fields = self._extract_stats(chain.last_stats)
        fields["draw"] = count - self._tune_total if count > self._tune_total else count
        is_last = count == self.total_draws
        if is_last and isinstance(self._backend, RichProgressBackend):
            # It computes no speed at the end, when a short run is shown for the first time.
            seconds = time.perf_counter() - self._begun if self.combined_progress else chain.seconds
            fields |= {"sampling_speed": count / seconds, "speed_unit": "draws/s"}
        self._backend.update(
            task_id=bar,
            advance=advance,
            failing=failing,
            stats=fields,
            is_last=is_last,
            total=self.total_draws,
        )
