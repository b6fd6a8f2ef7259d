"""The PyMC step that every sampler derives from."""

import logging
import time
import warnings
from contextlib import contextmanager
from dataclasses import field
from numbers import Integral, Real
from threading import Timer
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from pymc.blocking import DictToArrayBijection, RaveledVars
from pymc.exceptions import SamplingError
from pymc.step_methods.arraystep import ArrayStepShared
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_value_vars_from_user_vars
from rich.progress import TextColumn
from rich.table import Column

from pymc_kameleon.core.chain import (
    ACCEPT_PROB,
    ACCEPT_SHARE,
    CURRENT,
    LOGP,
    MOVED,
    N_LOGP,
    N_STATS,
    SCALING,
    STALE,
    Kernel,
    compile_draw,
)
from pymc_kameleon.core.jit import specialise
from pymc_kameleon.core.scaling import coordinate_scales, default_target_accept
from pymc_kameleon.logp import ModelLogp

_log = logging.getLogger("pymc_kameleon")

DEFAULT_TUNE = 1000
"""Draws of tuning when the step is used without a driver, as in pm.sample."""

SLOW_LOGP = 1e-3
"""Seconds for one logp evaluation from which the user is told what a draw costs."""


@dataclass_state
class KameleonState(StepMethodState):
    """All that a chain needs to go on bit for bit."""

    configuration: dict = field(metadata={"frozen": True})
    tune: bool
    point: np.ndarray | None
    data: bytes
    state: Any
    parameters: Any
    tuning: Any


class KameleonStep(ArrayStepShared):
    """A sampler whose draw is many compiled transitions.

    A subclass sets `name` and `kernel`, allocates its arrays in `_allocate`, and names statistics
    of its own in `own_stats`. Everything that concerns PyMC is here.

    Attributes
    ----------
    name : str
        In lower case, for the progress bar.
    kernel : Kernel
        The compiled functions that define the sampler.
    own_stats : tuple of str
        Statistics besides those of every sampler.
    settings : dict
        The sampler's own options, which a saved state must share.
    scale_free : bool
        Whether `_allocate` wants to know the coordinates' scales around the start.
    """

    name: ClassVar[str]
    kernel: ClassVar[Kernel]
    own_stats: ClassVar[tuple[str, ...]] = ()
    scale_free: ClassVar[bool] = True
    settings: ClassVar[dict] = {}
    default_blocked = True
    _state_class = KameleonState

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls._draw = staticmethod(compile_draw(cls.kernel))
        cls.stats_dtypes_shapes = {
            "accept_prob": (np.float64, []),
            "accept_share": (np.float64, []),
            "n_logp": (np.int64, []),
            "scaling": (np.float64, []),
            **{name: (np.float64, []) for name in cls.own_stats},
        }

    def __init__(
        self,
        vars=None,
        *,
        steps_per_draw=None,
        target_accept=None,
        model=None,
        rng=None,
        initial_point=None,
        compile_kwargs=None,
        blocked=True,
    ):
        if not blocked:
            raise ValueError(
                f"{type(self).__name__} moves its variables together; blocked=False is impossible."
            )
        self.model = pm.modelcontext(model)
        own = self._own_variables(vars)
        point = self.model.initial_point() if initial_point is None else initial_point
        self._initial_point = {name: np.asarray(value) for name, value in point.items()}
        self._d = d = sum(self._initial_point[var.name].size for var in own)
        if steps_per_draw is None:
            steps_per_draw = max(10, d)
        if target_accept is None:
            target_accept = default_target_accept(d)
        self.steps_per_draw = checked_integer("steps_per_draw", steps_per_draw, at_least=1)
        self.target_accept = checked_number("target_accept", target_accept, 0, 1)
        self.configuration = {
            "sampler": type(self).__name__,
            "d": d,
            "steps_per_draw": self.steps_per_draw,
            "target_accept": self.target_accept,
            **self.settings,
        }
        super().__init__(own, {}, blocked=blocked, rng=rng)
        if len(own) == len(self.model.value_vars):
            self.stats_dtypes_shapes = self.stats_dtypes_shapes | {"model_logp": (np.float64, [])}
            self.stats_dtypes = [{k: dtype for k, (dtype, _) in self.stats_dtypes_shapes.items()}]
        self._logp = ModelLogp(self.model, own, self._initial_point, compile_kwargs or {})
        self.setup_chain(self.rng, DEFAULT_TUNE, draws=0)
        self._load()
        self._say_if_slow()

    def __repr__(self):
        """Show the sampler and its variables."""
        names = ", ".join(self.var_names)
        return f"{type(self).__name__}([{names}], steps_per_draw={self.steps_per_draw})"

    # ---- what a sampler provides ----------------------------------------------------------------

    def _allocate(self, scales, n_tune):
        """Return fresh (state, parameters, tuning, work) for a chain that tunes n_tune transitions.

        `scales` (d,) are the coordinates' scales: ones, or a guess from around the chain's start.
        `tuning` has a field `n`, which is n_tune.
        """
        raise NotImplementedError

    # ---- a chain --------------------------------------------------------------------------------

    def setup_chain(self, rng, tune, draws):
        """Start afresh: PyMC calls it before each chain, with the draws of tuning and after."""
        super().setup_chain(rng, tune, draws)
        self.tune = tune > 0
        self.point = None
        self._logp.read_data()
        self.data = self._logp.digest
        self._fill(np.ones(self._d), tune * self.steps_per_draw)

    def _fill(self, scales, n_tune):
        self.state, self.parameters, self.tuning, self._work = self._allocate(scales, n_tune)

    def step(self, point):
        """Make one draw."""
        q0 = DictToArrayBijection.map({var.name: point[var.name] for var in self._logp.value_vars})
        own, stats = self.astep(q0)
        return point | DictToArrayBijection.rmap(own), stats

    def astep(self, q0):
        """Make one draw from the raveled point: this step's variables first, then all others."""
        status = self._what_changed(q0.data)
        n_scouting = self._scout(q0.data) if self.point is None and self.tune else 0
        self._logp.point[:] = q0.data
        if status == MOVED:
            self.state.x[:] = q0.data[: self._d]
        stats = np.empty(N_STATS + len(self.own_stats))
        if not self._run(*self._arguments(status, stats)):
            raise SamplingError(self._explain_start(q0))
        stats[N_LOGP] += n_scouting
        own = self.state.x.copy()
        # What comes back has the precision of the variables, which may be less than ours.
        self.point = np.concatenate([own.astype(q0.data.dtype), q0.data[self._d :]])
        return RaveledVars(own, q0.point_map_info[: len(self.vars)]), [self._named(stats)]

    def _scout(self, q):
        """Learn the scales of the coordinates before a chain's first draw; return what it cost."""
        if not (self.scale_free and np.isfinite(self._logp(q))):
            return 0
        scales, n_logp = coordinate_scales(
            lambda x: self._logp(np.concatenate([x, q[self._d :]])), q[: self._d]
        )
        self._fill(scales, self.tuning.n)
        return n_logp + 1

    def _what_changed(self, q):
        """Compare with the end of the last draw, so that what still holds is not computed again."""
        self._logp.follow_data()
        new_data = self.data != self._logp.digest
        self.data = self._logp.digest
        if self.point is None or not np.array_equal(q[: self._d], self.point[: self._d]):
            return MOVED
        return STALE if new_data or not np.array_equal(q, self.point) else CURRENT

    def _arguments(self, status, stats):
        return (
            self._logp.target,
            self.state,
            self.parameters,
            self.tuning,
            self._work,
            self.rng,
            self.steps_per_draw,
            self.tune,
            status,
            stats,
        )

    def _named(self, stats):
        named = {
            "accept_prob": stats[ACCEPT_PROB],
            "accept_share": stats[ACCEPT_SHARE],
            "n_logp": int(stats[N_LOGP]),
            "scaling": stats[SCALING],
            **dict(zip(self.own_stats, stats[N_STATS:], strict=True)),
        }
        if "model_logp" in self.stats_dtypes_shapes:
            named["model_logp"] = stats[LOGP]
        return named

    # ---- construction ---------------------------------------------------------------------------

    def _own_variables(self, vars):
        """Return the value variables to sample; raise if that is impossible."""
        if vars is None:
            own = list(self.model.continuous_value_vars)
            if not own:
                names = [var.name for var in self.model.value_vars]
                raise ValueError(
                    f"{type(self).__name__} samples continuous variables, and the model has none; "
                    f"its free variables {names} are discrete. Leave them to PyMC's own steps."
                )
            return own
        own = get_value_vars_from_user_vars(vars, self.model)
        if len(set(own)) < len(own):
            raise ValueError(f"A variable is named twice: {[var.name for var in own]}.")
        discrete = [var.name for var in own if var not in self.model.continuous_value_vars]
        if discrete:
            raise ValueError(
                f"{type(self).__name__} samples continuous variables, but {discrete} are discrete. "
                "Leave them out: pm.sample assigns a step of its own to what is left."
            )
        return own

    def _load(self):
        """Load the compiled transitions, or compile them."""
        arguments = self._arguments(CURRENT, np.empty(N_STATS + len(self.own_stats)))
        name = type(self).__name__
        with say_if_slow(f"Compiling the transitions of {name}, once per machine and version"):
            self._run = specialise(self._draw, *arguments)

    def _say_if_slow(self):
        """Tell the user once what a draw costs if the likelihood is expensive."""
        x = DictToArrayBijection.map(
            {var.name: self._initial_point[var.name] for var in self._logp.value_vars}
        ).data

        def evaluate():
            start = time.perf_counter()
            self._logp(x)
            return time.perf_counter() - start

        try:
            seconds = evaluate()
            if seconds < 1:  # a first call may have to warm up
                seconds = min(seconds, evaluate(), evaluate())
        except Exception:  # a bad point is reported where a chain starts
            return
        if seconds > SLOW_LOGP:
            n = self.steps_per_draw
            advice = " With steps_per_draw=1 draws are cheaper, and more correlated." * (n > 1)
            _log.info(
                "One logp evaluation takes %.3g ms, a draw of %s %.3g ms (steps_per_draw=%d).%s",
                1e3 * seconds,
                type(self).__name__,
                1e3 * seconds * n,
                n,
                advice,
            )

    def _explain_start(self, q0):
        point = DictToArrayBijection.rmap(q0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTensor, of black-box Ops
            terms = {name: float(logp) for name, logp in self.model.point_logps(point).items()}
        bad = {name: logp for name, logp in terms.items() if not np.isfinite(logp)}
        return (
            f"{type(self).__name__} cannot start: the log-density is not finite at the current "
            f"point.\nTerms that are not finite: {bad or terms}\nPoint: {point}\n"
            "Give initial values inside the support (pm.sample(initvals=...)), or check these "
            "variables' parameters and data."
        )

    def __getstate__(self):
        """Drop machine code: it does not travel to another process."""
        return {k: v for k, v in self.__dict__.items() if k != "_run"}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._load()

    # ---- progress bar ---------------------------------------------------------------------------

    @classmethod
    def _progressbar_config(cls, n_chains=1):
        fields = {f"{cls.name}_accept": "accept", f"{cls.name}_scale": "scale"}
        columns = [
            TextColumn(
                f"{{task.fields[{key}]:0.2g}}",
                table_column=Column(f"{cls.__name__} {title}", ratio=1),
            )
            for key, title in fields.items()
        ]
        return columns, {key: [0.0] * n_chains for key in fields}

    @classmethod
    def _make_progressbar_update_functions(cls):
        def update_stats(stats):
            return {
                f"{cls.name}_accept": stats["accept_prob"],
                f"{cls.name}_scale": stats["scaling"],
            }

        return (update_stats,)


def checked_integer(name, value, at_least):
    """Return an option as int; raise a ValueError unless it is an integer that is large enough."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"{name} must be an integer from {at_least} on, not {value!r}.")
    return int(value)


def checked_number(name, value, low, high):
    """Return an option as float; raise a ValueError unless it lies between `low` and `high`."""
    if isinstance(value, bool) or not isinstance(value, Real) or not low < value < high:
        raise ValueError(f"{name} must be a number between {low} and {high}, not {value!r}.")
    return float(value)


@contextmanager
def say_if_slow(message, seconds=0.5):
    """Log `message` if what happens inside takes more than a moment."""
    timer = Timer(seconds, _log.info, [message])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
