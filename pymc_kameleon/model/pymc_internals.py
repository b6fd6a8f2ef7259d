"""All that we take from inside PyMC, and PyMC's log as we use it.

PyMC may move or change these parts in any minor version. A part that only a feature needs may be
missing, which is told where the feature is used.
"""

import logging
from importlib import import_module
from importlib.metadata import version
from weakref import ref

from rich.progress import ProgressColumn
from rich.table import Column
from rich.text import Text

PYMC = f"PyMC {version('pymc')}"
"""What there is of it."""

try:
    from pymc.exceptions import SamplingError
    from pymc.stats.convergence import SamplerWarning, WarningType
    from pymc.stats.convergence import logger as warnings_logger
    from pymc.step_methods.arraystep import ArrayStepShared
    from pymc.step_methods.compound import BlockedStep, CompoundStep, StepMethodState
    from pymc.step_methods.state import dataclass_state
    from pymc.util import (
        get_default_varnames,
        get_random_generator,
        get_state_from_generator,
        get_untransformed_name,
        is_transformed_name,
        random_generator_from_state,
    )
except ImportError as error:
    raise ImportError(
        f"pymc_kameleon does not know {PYMC} yet, which lacks a part that all "
        f"samplers need: {error}. Install an older PyMC, from 6.3 on."
    ) from error


class Missing:
    """Stands for a part that this PyMC does not have, and says which feature needs it if used."""

    def __init__(self, part, feature):
        self._said = f"{PYMC} has no {part}, which is needed for {feature}."

    def _tell(self, *arguments, **options):
        raise ImportError(self._said)

    __call__ = __getattr__ = __instancecheck__ = __or__ = __ror__ = _tell


def part(feature, module, name):
    """Return a part of PyMC that a feature needs; else what says so when used."""
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError):
        return Missing(f"{module}.{name}", feature)


_FEATURE = "data and coordinates in results"
coords_and_dims_for_inferencedata = part(
    _FEATURE, "pymc.backends.arviz", "coords_and_dims_for_inferencedata"
)
find_constants = part(_FEATURE, "pymc.backends.arviz", "find_constants")
find_observations = part(_FEATURE, "pymc.backends.arviz", "find_observations")

_FEATURE = "starting points"
make_initial_point_fn = part(_FEATURE, "pymc.initial_point", "make_initial_point_fn")
make_initial_point_fns_per_chain = part(
    _FEATURE, "pymc.initial_point", "make_initial_point_fns_per_chain"
)

_FEATURE = "dispersed starts and the evidence"
FlatRV = part(_FEATURE, "pymc.distributions.continuous", "FlatRV")
HalfFlatRV = part(_FEATURE, "pymc.distributions.continuous", "HalfFlatRV")
CircularTransform = part("the evidence", "pymc.logprob.transforms", "CircularTransform")
MinibatchRandomVariable = part(
    "the evidence", "pymc.variational.minibatch_rv", "MinibatchRandomVariable"
)

_FEATURE = "the progress bar"
default_progress_theme = part(_FEATURE, "pymc.progress_bar", "default_progress_theme")
MarkerProgressBar = part(_FEATURE, "pymc.progress_bar.rich_progress", "MarkerProgressBar")

Draw = part("callback", "pymc.sampling.parallel", "Draw")
_initialize_multiprocessing_context = part(
    "worker processes", "pymc.sampling.parallel", "_initialize_multiprocessing_context"
)
quiet_logging = part("quiet", "pymc.sampling.mcmc", "_quiet_logging")


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
    """The `problems` of a chain, a list, for PyMC's logger; its `heading` says which step."""

    @classmethod
    def of(cls, heading, problems):
        """Join the problems of a step."""
        self = cls(" ".join([heading, *problems]))
        self.heading, self.problems = heading, problems
        return self


class OncePerRun(logging.Filter):
    """Drops what another chain of the same run, as long as its bar is there, has warned of."""

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
    """Statistics of a draw, all recorded; `mean_accept` and `stuck` are for the progress bar."""


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
    """Return the function that puts the statistics of a draw, DrawStats, into the columns."""
    accept, scale = titles

    def update_stats(stats):
        return {
            accept: stats.mean_accept,
            scale: float(stats["scaling"]),
            "failing": stats.stuck,
        }

    _once_per_run.begin(update_stats)
    return update_stats
