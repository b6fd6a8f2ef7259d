"""The PyMC step that every sampler derives from."""

import inspect
import logging
import math
import time
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral, Real
from threading import Timer
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from rich.progress import ProgressColumn
from rich.table import Column
from rich.text import Text

from pymc_kameleon.core.chain import (
    ACCEPT_PROB,
    ACCEPT_SHARE,
    CURRENT,
    LOGP,
    MOVED,
    N_LOGP,
    N_PROGRESS,
    N_STATS,
    SCALING,
    STALE,
    Algorithm,
    Block,
    compile_draws,
)
from pymc_kameleon.core.errors import explained
from pymc_kameleon.core.jit import leaf_types, specialise
from pymc_kameleon.core.scaling import coordinate_scales, default_target_accept
from pymc_kameleon.core.schedules import Decay
from pymc_kameleon.core.target import Outputs
from pymc_kameleon.host import (
    ArrayStepShared,
    DictToArrayBijection,
    RaveledVars,
    SamplerWarning,
    SamplingError,
    StepMethodState,
    WarningType,
    dataclass_state,
    get_value_vars_from_user_vars,
    natural_name,
)
from pymc_kameleon.logp import ModelLogp, ModelOutputs

_log = logging.getLogger("pymc_kameleon")

DEFAULT_TUNE = 1000
"""Draws of tuning when the step is used without a driver, as in pm.sample."""

SLOW_LOGP = 1e-3
"""Seconds for one logp evaluation from which the user is told what a draw costs."""


STUCK_SHARE, STUCK_TRANSITIONS = 0.1, 100
"""A run of rejections is reported if it is longer than this share of the draws, and this number."""

NO_OUTPUTS = Outputs(0, np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 0)))

COMMON_PARAMETERS = {
    "steps_per_draw": """
steps_per_draw : int, optional
    Transitions per draw, max(10, d) by default: neighbouring states of a random walk hardly
    differ, and compiled transitions cost little. It multiplies the number of logp evaluations:
    where one takes milliseconds, ``steps_per_draw=1`` makes a draw cheap.""",
    "target_accept": """
target_accept : float, optional
    Acceptance rate that the scale is tuned to; .234, or .44 in one dimension, which are best
    for a random walk on normal targets.""",
    "keep_adapting": """
keep_adapting : bool, optional
    Go on adapting after tuning, ever less. The chain is then no Markov chain any more: it still
    converges to the posterior under conditions on it (see docs/adaptation.md), but the draws
    are not exact from the first one on, as they are by default.""",
    "region": """
region : dict, optional
    Least and largest value of some variables, ``{"x": (-10, 10)}``, each of them a number or
    of the variable's shape. Proposals outside are rejected without an evaluation, so the
    posterior is restricted to this box. A transformed variable is named and bounded as it is
    sampled: ``{"sigma_log__": (-5, 5)}``.""",
    "model": """
model : pm.Model, optional
    Taken from the context by default.""",
    "rng": """
rng : int or numpy.random.Generator, optional
    Only for use outside ``pm.sample``, which gives each chain its own.""",
    "initial_point": """
initial_point : dict, optional
    Gives the shapes of the variables; ``model.initial_point()`` by default.""",
    "compile_kwargs": """
compile_kwargs : dict, optional
    Passed to PyTensor. A mode that does not use numba makes the sampler slower.""",
    "blocked": """
blocked : bool, optional
    Only True is possible: the variables are moved together.""",
}
"""What the docstring of a sampler says at ``{common parameters}``, but for what it says itself."""

COMMON_RAISES = """
Raises
------
ValueError
    For discrete variables, a model without continuous ones, or an impossible option."""


@dataclass
class Watch:
    """What a chain has seen, for its warnings.

    Attributes
    ----------
    tune, draws : int
        Draws of tuning and after it, as PyMC announced them.
    done : int
        Draws made.
    common_start : bool
        Whether the chain began at the model's initial point.
    accepted : bool
        Whether any proposal was accepted after tuning.
    run, longest : int
        Draws after tuning without an accepted proposal: now, and at most in a row.
    accept_sum : float
        Sum of the draws' acceptance probabilities; it starts anew when tuning has ended.
    """

    tune: int
    draws: int
    done: int = 0
    common_start: bool = False
    accepted: bool = False
    run: int = 0
    longest: int = 0
    accept_sum: float = 0.0

    def add(self, accept_probs):
        """Add the acceptance probabilities of draws that `follow` has not seen yet."""
        sums = accept_probs.copy()
        if self.done != self.tune:
            sums[0] += self.accept_sum
        self.accept_sum = float(sums.cumsum()[-1])  # one by one, so equal in any portions

    @property
    def mean_accept(self):
        """Mean acceptance probability of the draws: after tuning, once there are some."""
        return self.accept_sum / (self.done - self.tune if self.done > self.tune else self.done)

    def follow(self, accept_shares):
        """Take notice of draws, which are all of tuning or all after it."""
        n = len(accept_shares)
        self.done += n
        if self.done <= self.tune:
            return
        moves, before = accept_shares.nonzero()[0], self.run
        if moves.size == 0:
            self.run += n
        else:
            self.accepted, self.run = True, n - 1 - int(moves[-1])
            if n > 1:
                ends = np.concatenate(([-1 - before], moves))
                self.longest = max(self.longest, int((ends[1:] - ends[:-1]).max()) - 1)
        self.longest = max(self.longest, self.run)

    @property
    def finished(self):
        """Whether that was the last draw."""
        return self.done == self.tune + self.draws


class DrawStats(dict):
    """Statistics of a draw, all of which PyMC records.

    Attributes
    ----------
    mean_accept : float
    stuck : bool
        For the progress bar, which is in another process where chains are.
    """


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
    watch: Watch


class KameleonStep(ArrayStepShared):
    """A sampler whose draw is many compiled transitions.

    A subclass sets `name` and `algorithm`, allocates its arrays in `_allocate`, and names
    statistics of its own in `own_stats`. Everything that concerns PyMC is here.

    Attributes
    ----------
    name : str
        In lower case, for the progress bar.
    algorithm : Algorithm
        The compiled functions that define the sampler.
    own_stats : tuple of str
        Statistics besides those of every sampler, each a number; see `_own_stats`.
    settings : mapping
        The sampler's own options, which a saved state must share; its `__init__` sets them.
    scale_free : bool
        Whether `_allocate` wants to know the coordinates' scales around the start.
    tunes_acceptance : bool
        Whether `target_accept` is an option.
    derivatives : int
        How many derivatives of the log-density it uses; 2 for products with the Hessian. With 1 or
        2 its State has a field `gradient`.
    """

    name: ClassVar[str]
    algorithm: ClassVar[Algorithm]
    own_stats: ClassVar[tuple[str, ...]] = ()
    scale_free: ClassVar[bool] = True
    tunes_acceptance: ClassVar[bool] = True
    derivatives: ClassVar[int] = 0
    settings: Mapping = MappingProxyType({})
    default_target_accept = staticmethod(default_target_accept)
    default_steps_per_draw = staticmethod(lambda d: max(10, d))
    default_blocked = True
    _state_class = KameleonState

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.__signature__ = _signature_with_common_options(cls)
        cls.__doc__ = cls.__doc__ and _docstring_with_common_options(cls)
        cls.stats_dtypes_shapes = _stats_dtypes_shapes(dict.fromkeys(cls.own_stats, ()))

    def __init__(
        self,
        vars=None,
        *,
        steps_per_draw=None,
        target_accept=None,
        keep_adapting=False,
        region=None,
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
        if target_accept is not None and not self.tunes_acceptance:
            raise TypeError(f"{type(self).__name__} has no target_accept.")
        self.model = pm.modelcontext(model)
        own = self._own_variables(vars)
        common_start = self.model.initial_point()
        point = common_start if initial_point is None else initial_point
        self._initial_point = {name: np.asarray(value) for name, value in point.items()}
        self._d = d = sum(self._initial_point[var.name].size for var in own)
        if steps_per_draw is None:
            steps_per_draw = self.default_steps_per_draw(d)
        if target_accept is None:
            target_accept = self.default_target_accept(d)
        self.steps_per_draw = checked_integer("steps_per_draw", steps_per_draw, at_least=1)
        self.target_accept = checked_number("target_accept", target_accept, 0, 1)
        self.keep_adapting = checked_bool("keep_adapting", keep_adapting)
        region = self._region_array(own, {} if region is None else region)
        self.configuration = {
            "sampler": type(self).__name__,
            "d": d,
            "steps_per_draw": self.steps_per_draw,
            "target_accept": self.target_accept,
            "keep_adapting": self.keep_adapting,
            "region": region,
            **self.settings,
        }
        super().__init__(own, {}, blocked=blocked, rng=rng)
        self._stat_shapes = self._own_stats()
        covers_all = len(own) == len(self.model.value_vars)
        shapes = self._stat_shapes | ({"model_logp": ()} if covers_all else {})
        self.stats_dtypes_shapes = _stats_dtypes_shapes(shapes)
        # PyMC's own stats_dtypes leave the shape out; its trace then has no room for arrays.
        dtypes = {
            k: np.dtype((v[0], tuple(v[1] or ()))) for k, v in self.stats_dtypes_shapes.items()
        }
        self.stats_dtypes = [dtypes | {"warning": SamplerWarning}]
        self._compile_kwargs = {} if compile_kwargs is None else compile_kwargs
        self._logp = ModelLogp(
            self.model, own, self._initial_point, self._compile_kwargs, region, self.derivatives
        )
        self._common_start = self._raveled(common_start).data[:d]
        ends = np.cumsum([self.size_of(var) for var in own])
        self._low_precision = [
            (slice(end - self.size_of(var), end), var.dtype)
            for var, end in zip(own, ends, strict=True)
            if var.dtype != "float64"
        ]
        self.places = np.arange(self._logp.point.size)
        self._outputs = None
        self.setup_chain(self.rng, DEFAULT_TUNE, draws=0)
        self._check_gradient()
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

    def _own_stats(self):
        """Return names and shapes of the sampler's own statistics; () is a number."""
        return dict.fromkeys(self.own_stats, ())

    def pauses(self):
        """Return the draws of tuning before which `_pause` is due."""
        return ()

    def _pause(self):
        """Learn in Python, between two draws of tuning."""

    def _largest_n_logp(self):
        """Return how many evaluations a transition may take."""
        return 1

    def _needed_tuning(self):
        """Return the number of tuning transitions below which a chain warns."""
        return max(100, 20 * self._d)

    def _tuned_scales(self):
        """Return the scales that are tuned, as (what it is, its log, bounds of that).

        A chain that ends with one of them at its bound warns.
        """
        return []

    def _problems(self):
        """Return what else is wrong with the parameters at the end of a chain, and the cure."""
        return []

    # ---- a chain --------------------------------------------------------------------------------

    def setup_chain(self, rng, tune, draws):
        """Start afresh: PyMC calls it before each chain, with the draws of tuning and after."""
        super().setup_chain(rng, tune, draws)
        self.tune = tune > 0
        self.watch = Watch(tune, draws)
        self.point = None
        self._logp.read_data()
        self.data = self._logp.digest
        self._fill(np.ones(self._d), tune * self.steps_per_draw)

    def _fill(self, scales, n_tune):
        arrays = self._allocate(scales, n_tune)
        types = leaf_types(arrays)
        self._types = getattr(self, "_types", types)
        for leaf, expected in self._types.items():
            if types.get(leaf) != expected:  # machine code does not look
                raise TypeError(
                    f"_allocate of {type(self).__name__} must return the same types each time: "
                    f"{leaf} was {expected}, and is {types.get(leaf)} now."
                )
        self.state, self.parameters, self.tuning, self._work = arrays

    def step(self, point):
        """Make one draw."""
        own, stats = self.astep(self._raveled(point))
        return point | DictToArrayBijection.rmap(own), stats

    def _raveled(self, point):
        return DictToArrayBijection.map(
            {var.name: point[var.name] for var in self._logp.value_vars}
        )

    def unraveled(self, q):
        """Return values by name of the raveled point `q` (n,), this step's variables first."""
        info = self._raveled(self._initial_point).point_map_info
        return DictToArrayBijection.rmap(RaveledVars(q, info))

    def astep(self, q0):
        """Make one draw from the raveled point: this step's variables first, then all others."""
        q = q0.data.astype(np.float64)
        stats = self.empty_stats(1)
        block = self.block(self.begin(q), stats)
        if not self._run((block,), q, NO_OUTPUTS, np.zeros(N_PROGRESS, np.int64)):
            raise SamplingError(self.explain_start(q))
        self.conclude(self._rounded(q), stats)
        draw_stats = self.last_draw(stats)
        draw_stats["warning"] = self.warning() if self.watch.finished else None
        own = RaveledVars(self.state.x.copy(), q0.point_map_info[: len(self.vars)])
        return own, [draw_stats]

    def _rounded(self, q):
        """Return the raveled point with the precision of its variables, as PyMC hands it on."""
        for places, dtype in self._low_precision:
            q[places] = q[places].astype(dtype)
        return q

    def begin(self, q):
        """Get ready for draws from the raveled point `q` (n,), and return what still holds there.

        Scouts before the first draw, and pauses where that is due: what can be done only in
        Python. Both drivers call it.
        """
        self._n_logp = self._logp.count[0]
        status = self._what_changed(q)
        pausing = self.tune and self.watch.done in self.pauses()
        if self.point is None or pausing:
            self._logp.point[:] = q
        else:  # compiled code compares, to see which of the others moved
            self._logp.point[self._d :] = self.point[self._d :]
        if self.point is None:
            self.watch.common_start = np.array_equal(q[: self._d], self._common_start)
            if self.tune:
                self._scout(q)
        if pausing:
            self._pause()
        if status == MOVED:
            self.state.x[:] = q[: self._d]
        return MOVED if pausing else status

    def block(self, status, stats):
        """Return this step's part of draws, whose statistics are written into `stats`."""
        return Block(
            self._logp.target,
            self.state,
            self.parameters,
            self.tuning,
            self._work,
            self.rng,
            self.places,
            self.steps_per_draw,
            self.tune or (self.keep_adapting and self.tuning.n > 0),
            status,
            stats,
        )

    def conclude(self, q, stats):
        """Take notice of draws: of the point `q` (n,) that is handed on, and their statistics."""
        stats[0, N_LOGP] += self._logp.count[0] - self._n_logp - stats[:, N_LOGP].sum()
        self.watch.add(stats[:, ACCEPT_PROB])
        self.watch.follow(stats[:, ACCEPT_SHARE])
        self.point = np.concatenate([q[: self._d], self._logp.point[self._d :]])

    def _scout(self, q):
        """Learn the scales of the coordinates before a chain's first draw."""
        if self.scale_free and np.isfinite(self._logp(q)):
            scales = coordinate_scales(
                lambda x: self._logp(np.concatenate([x, q[self._d :]])), q[: self._d]
            )
            self._fill(scales, self.tuning.n)

    def _what_changed(self, q):
        """Return what holds of the state at `q`, if no other variable moved."""
        self._logp.follow_data()
        new_data = self.data != self._logp.digest
        self.data = self._logp.digest
        if self.point is None or not np.array_equal(q[: self._d], self.point[: self._d]):
            return MOVED
        if new_data:
            return MOVED if self.derivatives else STALE  # the state holds the gradient too
        return CURRENT

    def empty_stats(self, draws):
        """Return room for the statistics of draws, one row for each."""
        own = sum(math.prod(shape) for shape in self._stat_shapes.values())
        return np.empty((draws, N_STATS + own))

    def named(self, stats):
        """Return the statistics of draws by name, each of shape (draws, ...)."""
        named = {
            "accept_prob": stats[:, ACCEPT_PROB],
            "accept_share": stats[:, ACCEPT_SHARE],
            "n_logp": stats[:, N_LOGP].astype(np.int64),
            "scaling": stats[:, SCALING],
        }
        start = N_STATS
        for name, shape in self._stat_shapes.items():
            stop = start + math.prod(shape)
            named[name] = stats[:, start:stop].reshape(len(stats), *shape)
            start = stop
        if "model_logp" in self.stats_dtypes_shapes:
            named["model_logp"] = stats[:, LOGP]
        return named

    def last_draw(self, stats):
        """Return the statistics of the last of draws."""
        named = self.named(stats[-1:])
        draw_stats = DrawStats({name: values[0] for name, values in named.items()})
        draw_stats.mean_accept, draw_stats.stuck = self.watch.mean_accept, self._is_stuck()
        return draw_stats

    # ---- for pk.sample --------------------------------------------------------------------------

    def for_chain(self, places):
        """Return a copy to be set up for one of several chains that run at the same time.

        `places` (n,) int64 is where its variables are in the point of the chain.
        """
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._logp = self._logp.copy()
        twin.places = places
        return twin

    @property
    def value_vars(self):
        """All value variables of the model, in the order of the raveled point."""
        return self._logp.value_vars

    @property
    def holds_gil(self):
        """Whether the log-density calls Python."""
        return self._logp.holds_gil

    def log_density(self, q):
        """Log-density at the raveled point `q` (n,); -inf outside the region."""
        return self._logp(q)

    def last_evaluated(self, in_python):
        """Return values by name where the log-density was evaluated last, there or compiled."""
        return self.unraveled(self._logp.asked if in_python else self._logp.point)

    def outputs(self, names):
        """Return what computes these variables of the model from a raveled point.

        It is compiled again only for other names or shapes, so that resuming is quick.
        """
        if self._outputs is None or not self._outputs.fits(names):
            self._outputs = ModelOutputs(
                self.model, names, self._initial_point, self._compile_kwargs
            )
        return self._outputs

    def kept_stats(self):
        """Return types and shapes of the statistics that a result keeps."""
        return {k: v for k, v in self.stats_dtypes_shapes.items() if k != "warning"}

    def size_of(self, var):
        """Return how many numbers a value variable of the model is."""
        return self._initial_point[var.name].size

    def shapes(self):
        """Return the shapes of the step's own variables, by name."""
        return {name: self._initial_point[name].shape for name in self.var_names}

    # ---- warnings -------------------------------------------------------------------------------

    def _coordinates(self):
        """Return the names of the coordinates, x[0] and so on."""
        return [
            name + (str(list(index)) if shape else "")
            for name, shape in self.shapes().items()
            for index in np.ndindex(shape)
        ]

    def warning(self):
        """Return what a chain has to say at its end, or None."""
        problems = [*self._chain_problems(), *self._problems()]
        if self.tuning.n > 0:
            problems += [_explain_bound(*scale) for scale in self._tuned_scales()]
        problems = [problem for problem in problems if problem]
        if not problems:
            return None
        heading = f"{type(self).__name__}([{', '.join(self.var_names)}]):"
        return SamplerWarning(WarningType.BAD_PARAMS, " ".join([heading, *problems]), "warn")

    def _is_stuck(self):
        """Return whether the chain did not move for long, after tuning."""
        longest = self.watch.longest
        long_enough = longest * self.steps_per_draw >= STUCK_TRANSITIONS
        return long_enough and longest > STUCK_SHARE * self.watch.draws

    def _chain_problems(self):
        watch, problems = self.watch, []
        if watch.common_start:
            problems.append(
                "the chain started at the model's initial point, and so may all others; R-hat "
                "cannot see what none of them visits. Pass initvals=pk.initvals(chains)."
            )
        needed = self._needed_tuning()
        if self.tuning.n < needed:
            problems.append(
                f"only {self.tuning.n} transitions of tuning; at least {needed} are needed to "
                "learn anything. Raise tune, or steps_per_draw."
            )
        if watch.draws > 0 and not watch.accepted:
            problems.append(
                "no proposal was accepted after tuning, so all draws are equal, although ArviZ "
                "reports them as independent. Tune longer, start elsewhere, or rescale."
            )
        elif self._is_stuck():
            problems.append(
                f"the chain was stuck for {watch.longest} draws in a row "
                f"({watch.longest * self.steps_per_draw} transitions). "
                "Look there for a narrow part of the posterior; tune longer, or reparametrise."
            )
        return problems

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

    def _region_array(self, own, region):
        """Return least and largest value of each coordinate, (2, d)."""
        names = [var.name for var in own]
        if not isinstance(region, dict):
            raise ValueError(f"region must be a dict of names and (low, high), not {region!r}.")
        strangers = [name for name in region if name not in names]
        if strangers:
            raise ValueError(
                f"region names {strangers}; the variables sampled here are {names}. A transformed "
                "variable is bounded on the scale that it is sampled on."
            )
        bounds = np.empty((2, self._d))
        start = 0
        for name in names:
            shape = self._initial_point[name].shape
            stop = start + int(np.prod(shape, dtype=int))
            try:
                low, high = region.get(name, (-np.inf, np.inf))
                for side, value in zip(bounds, (low, high), strict=True):
                    side[start:stop] = np.broadcast_to(np.asarray(value, float), shape).ravel()
            except (TypeError, ValueError):
                raise ValueError(
                    f"region[{name!r}] must be a pair (low, high), each a number or of shape "
                    f"{shape}, not {region[name]!r}."
                ) from None
            start = stop
        if not np.all(bounds[0] < bounds[1]):
            raise ValueError(f"region must have low < high everywhere, not {region}.")
        return bounds

    def _check_gradient(self):
        """Raise a TypeError if the sampler would take the gradient from where it is not."""
        name, held = type(self).__name__, getattr(self.state, "gradient", None)
        if held is not None and not self.derivatives:
            raise TypeError(
                f"The State of {name} has a gradient, but {name}.derivatives is 0, so that none is "
                "computed. Set derivatives = 1."
            )
        if self.derivatives and (held is None or held.shape != (self._d,)):
            raise TypeError(
                f"{name}.derivatives is {self.derivatives}, so that its State must have a field "
                f"`gradient` of shape (d,), here ({self._d},): there the gradient at x is written "
                "when a chain starts, or other variables move. That at a proposal is in "
                "target.gradient."
            )
        if "gradient" in _field_names(self._work):
            raise TypeError(
                f"The Work of {name} has a field `gradient`, which nobody fills. The gradient at a "
                "proposal is in target.gradient, that at x in state.gradient. Read it there, or "
                "give a copy for `adapt` another name."
            )

    def _load(self):
        """Load the compiled transitions, or compile them."""
        self._run = compiled_run([self])

    def _say_if_slow(self):
        """Tell the user once what a draw costs if the likelihood is expensive."""
        x = self._raveled(self._initial_point).data

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
                1e3 * seconds * n * self._largest_n_logp(),
                n,
                advice,
            )

    def explain_start(self, q):
        """Return why no draw can be made from the raveled point `q` (n,)."""
        point = self.unraveled(q)
        if np.isfinite(q).all() and not self._logp.inside(q):
            return (
                f"{type(self).__name__} cannot start: the current point is outside region.\n"
                f"Point: {point}\nGive initial values inside (pm.sample(initvals=...))."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTensor, of black-box Ops
            terms = {name: float(logp) for name, logp in self.model.point_logps(point).items()}
        bad = {name: logp for name, logp in terms.items() if not np.isfinite(logp)}
        blunt = ~np.isfinite(self._logp.gradient)
        if not bad and blunt.any():
            names = [name for name, b in zip(self._coordinates(), blunt, strict=True) if b]
            return (
                f"{type(self).__name__} cannot start: the gradient of the log-density is not "
                f"finite at the current point, with respect to {some(names)}.\nPoint: {point}\n"
                "Give other initial values (pm.sample(initvals=...)), or use pk.GAM."
            )
        return (
            f"{type(self).__name__} cannot start: the log-density is not finite at the current "
            f"point.\nTerms that are not finite: {bad or terms}\nPoint: {point}\n"
            "Give initial values inside the support (pm.sample(initvals=...)), or check these "
            "variables' parameters and data."
        )

    def __getstate__(self):
        """Drop machine code: it does not travel to another process."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_run", "_outputs")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._outputs = None
        self._load()

    # ---- progress bar ---------------------------------------------------------------------------

    def _progress_titles(self):
        """Return the titles of the columns, which no other step of the run has."""
        first, *others = map(natural_name, self.var_names)
        alone = len(self.vars) == len(self.model.value_vars)
        where = "" if alone else f" {first}{', …' if others else ''}"
        return [f"{type(self).__name__} {what}{where}" for what in ("accept", "scale")]

    def _progressbar_config(self, n_chains=1):
        titles = self._progress_titles()
        return [Number(title) for title in titles], {title: [0.0] * n_chains for title in titles}

    def _make_progressbar_update_functions(self):
        accept, scale = self._progress_titles()

        def update_stats(stats):
            return {
                accept: stats.mean_accept,
                scale: float(stats["scaling"]),
                "failing": stats.stuck,
            }

        return (update_stats,)


class Number(ProgressColumn):
    """A column of the progress bar: a field of the same name."""

    def __init__(self, title):
        super().__init__(Column(Text(title), ratio=1))  # brackets are no markup
        self._field = title

    def render(self, task):
        """Show two digits."""
        return Text(f"{task.fields[self._field]:0.2g}")


def compiled_run(steps):
    """Return the compiled function that makes draws with the steps in turn."""
    blocks = tuple(step.block(CURRENT, step.empty_stats(1)) for step in steps)
    point, progress = np.zeros(blocks[0].places.size), np.zeros(N_PROGRESS, np.int64)
    what = f"transitions of {' and '.join(type(step).__name__ for step in steps)}"
    slow = say_if_slow(f"Compiling the {what}, once per machine and version")
    with slow, explained(f"The {what}"):
        run = compile_draws(tuple(step.algorithm for step in steps))
        return specialise(run, blocks, point, NO_OUTPUTS, progress)


def _explain_bound(label, log_scale, bounds):
    """Return a warning if a log scale is at one of its bounds, to 1 % of their distance."""
    low, high = bounds
    margin = 0.01 * (high - low)
    if low + margin < log_scale < high - margin:
        return ""
    side = "lower" if log_scale <= low + margin else "upper"
    return (
        f"{label} ended at its {side} bound, {np.exp(log_scale):.3g}, so the target acceptance was "
        "not reached. Start nearer to where the posterior is, rescale, or widen scale_bounds."
    )


def _field_names(values):
    """Return the names of all fields of a named tuple, and of those that it holds."""
    inner = [_field_names(value) for value in values if hasattr(value, "_fields")]
    return set(values._fields).union(*inner)


def some(names):
    """List at most three names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")


def _stats_dtypes_shapes(own_shapes):
    """Return types and shapes of the statistics of every sampler, and of its own."""
    return {
        "accept_prob": (np.float64, []),
        "accept_share": (np.float64, []),
        "n_logp": (np.int64, []),
        "scaling": (np.float64, []),
        "warning": (SamplerWarning, None),
        **{name: (np.float64, list(shape)) for name, shape in own_shapes.items()},
    }


def _signature_with_common_options(cls):
    """Return the signature of a sampler's class, with the options of every sampler."""
    own, common = (inspect.signature(c.__init__).parameters for c in (cls, KameleonStep))
    merged = {name: p for name, p in own.items() if p.kind is not p.VAR_KEYWORD} | common
    unused = {"self"} if cls.tunes_acceptance else {"self", "target_accept"}
    return inspect.Signature([p for name, p in merged.items() if name not in unused])


def _docstring_with_common_options(cls):
    """Return the docstring of a sampler's class, with the options that it does not describe."""
    own = inspect.cleandoc(cls.__doc__)  # Python 3.13 dedents docstrings, 3.12 does not
    common = [
        text.lstrip()
        for name, text in COMMON_PARAMETERS.items()
        if name in cls.__signature__.parameters and f"\n{name} : " not in own
    ]
    text = "\n".join([*common, COMMON_RAISES])
    return own.replace("{common parameters}", text)


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


def checked_bool(name, value):
    """Return an option as bool; raise a ValueError unless it is one."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, not {value!r}.")
    return bool(value)


def checked_choice(name, value, choices):
    """Return an option; raise a ValueError unless it is one of `choices`."""
    if not isinstance(value, str | None) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}.")
    return value


def checked_schedule(name, value):
    """Return a number or a Decay as a Decay of floats; raise a ValueError if it is impossible."""
    if not isinstance(value, Decay):
        return Decay(checked_number(name, value, 0, np.inf), 1.0, 0.0)
    return Decay(
        checked_number(f"{name}.start", value.start, 0, np.inf),
        checked_number(f"{name}.delay", value.delay, 0, np.inf),
        0.0 if value.power == 0 else checked_number(f"{name}.power", value.power, 0, np.inf),
    )


def checked_scale_bounds(bounds):
    """Return logs of (low, high) as an array, or None; raise a ValueError unless low < high."""
    if bounds is None:
        return None
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise ValueError(f"scale_bounds must be a pair (low, high), not {bounds!r}.")
    low, high = (checked_number("scale_bounds", bound, 0, np.inf) for bound in bounds)
    if not low < high:
        raise ValueError(f"scale_bounds must have low < high, not {bounds!r}.")
    return np.log([low, high])


def checked_scaling(scaling, bounds):
    """Return settings of a sampler with one scale: logs of its bounds, equal if it is fixed."""
    log_bounds = checked_scale_bounds(bounds)
    if scaling is not None:
        if bounds is not None:
            raise ValueError("Give scaling, which is fixed, or scale_bounds; not both.")
        log_bounds = np.log(np.full(2, checked_number("scaling", scaling, 0, np.inf)))
    return {"scale_bounds": log_bounds, "fixed": scaling is not None}


@contextmanager
def say_if_slow(message, seconds=0.5):
    """Log `message` if what happens inside takes more than a moment."""
    timer = Timer(seconds, _log.info, [message])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
