"""All that we take from inside PyMC, and PyMC's log as we use it.

PyMC may move or change these parts in any minor version.
"""

import logging
from importlib.metadata import version

from rich.progress import ProgressColumn
from rich.table import Column
from rich.text import Text

try:
    from pymc.backends.arviz import (
        coords_and_dims_for_inferencedata,
        find_constants,
        find_observations,
    )
    from pymc.distributions.continuous import FlatRV, HalfFlatRV
    from pymc.exceptions import SamplingError
    from pymc.initial_point import make_initial_point_fn, make_initial_point_fns_per_chain
    from pymc.logprob.transforms import CircularTransform
    from pymc.progress_bar import default_progress_theme
    from pymc.progress_bar.marimo_progress import MarimoProgressBackend, in_marimo_notebook
    from pymc.progress_bar.rich_progress import MarkerProgressBar
    from pymc.sampling.mcmc import _quiet_logging as quiet_logging
    from pymc.sampling.parallel import Draw, _initialize_multiprocessing_context
    from pymc.stats.convergence import SamplerWarning, WarningType
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
    from pymc.variational.minibatch_rv import MinibatchRandomVariable
except ImportError as error:
    raise ImportError(
        f"pymc_kameleon does not know PyMC {version('pymc')} yet, which lacks a part that it "
        f"needs: {error}. Install an older PyMC, from 6.3 on."
    ) from error


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


def progress_bar_of(step, n_chains):
    """Return a step's fields of the bar, and the functions that make them of statistics."""
    _, fields = step._progressbar_config(n_chains)
    return fields, step._make_progressbar_update_functions()


def progress_update(titles):
    """Return the function that puts the statistics of a draw, DrawStats, into the columns."""
    accept, scale = titles

    def update_stats(stats):
        return {
            accept: stats.mean_accept,
            scale: float(stats["scaling"]),
            "failing": stats.stuck,
        }

    return update_stats
