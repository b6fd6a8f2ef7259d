"""The PyMC step that every sampler derives from."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pymc as pm

from pymc_kameleon.approximation.rounds import no_rounds
from pymc_kameleon.approximation.searches import Searches
from pymc_kameleon.core.arrays import copied
from pymc_kameleon.core.chain import N_PROGRESS, Algorithm
from pymc_kameleon.core.compiler import one_thread_compiles
from pymc_kameleon.core.jit import leaf_types
from pymc_kameleon.core.scaling import default_target_accept
from pymc_kameleon.findings.finding import said
from pymc_kameleon.findings.registry import NOTE
from pymc_kameleon.model import noise
from pymc_kameleon.model.black_box_calls import taking_notes
from pymc_kameleon.model.functions import ModelLogp, ModelOutputs
from pymc_kameleon.model.layout import Layout, checked_point, own_variables
from pymc_kameleon.model.pymc_internals import (
    ArrayStepShared,
    DrawStats,
    SamplerWarning,
    StepMethodState,
    dataclass_state,
    get_random_generator,
    get_state_from_generator,
    natural_name,
    progress_columns,
    progress_update,
    random_generator_from_state,
)
from pymc_kameleon.model.starts import prior_draws
from pymc_kameleon.model.watch import Watch
from pymc_kameleon.step.draw_costs import say_what_a_draw_costs, seconds_per_logp
from pymc_kameleon.step.groups import Keeps
from pymc_kameleon.step.initial_search import InitialSearch, NoSearch
from pymc_kameleon.step.make_draws import (
    CannotStart,
    compiled_run,
    make_draws,
    where,
)
from pymc_kameleon.step.monitor import ChainMonitor
from pymc_kameleon.step.options import (
    check_names,
    checked_bool,
    checked_integer,
    checked_number,
    docstring_with_common_options,
    options_unknown_to,
    signature_with_common_options,
)
from pymc_kameleon.step.problems import closing_warning
from pymc_kameleon.step.statistics import NoStats, Statistics
from pymc_kameleon.step.unbound import UnboundStep
from pymc_kameleon.step.warm_start.search import Guide

WARM_START_PATIENCE = 5.0
"""Seconds after which a chain of `pk.sample` tells how far its warm start is."""

DEFAULT_DRAWS = 1000
"""Draws of tuning, and of those after it, if nobody says how many: as of pm.sample."""


@dataclass_state
class KameleonState(StepMethodState):
    """All that a chain needs to go on bit for bit."""

    configuration: dict = field(metadata={"frozen": True})
    tune: bool
    point: np.ndarray | None
    data: bytes
    trail: np.ndarray
    rounds: np.ndarray
    other_mode: np.ndarray
    guide: Guide
    state: Any
    parameters: Any
    tuning: Any
    monitor: ChainMonitor
    watch: Watch


@dataclass(frozen=True)
class OfRun:
    """What a run of `pk.sample` tells a step; the defaults are those of ``pm.sample``."""

    max_concurrent: int = 1  # evaluations that it may have under way
    known_before: Any = None  # what the chains reuse of earlier runs, from `reused`
    patience: float = math.inf  # seconds after which a search tells how far it is


OWN_FIELDS = [f.name for f in fields(KameleonState) if f.name not in ("var_names", "rng")]


class KameleonStep(ArrayStepShared):
    """A sampler whose draw is many compiled transitions.

    A subclass sets `name` and `algorithm`, allocates its arrays in `_allocate`, and declares
    statistics of its own in `stats`. What PyMC sees of it is here.
    """

    name: ClassVar[str]  # in lower case, for the progress bar
    algorithm: ClassVar[Algorithm]  # the compiled functions that define the sampler
    # Declares statistics besides those of every sampler, as State declares arrays: ``floats(1)`` is
    # a number, sizes are d and `settings`. A field `kept` is another NamedTuple: what `pk.sample`
    # keeps of draws after tuning, to correct averages, of a step that moves all variables.
    stats: type = NoStats
    settings: Mapping = MappingProxyType({})  # its own options, which a saved state must share

    # The search for the posterior, before the first draw; each step has one, `search`
    initial_search: ClassVar[type[InitialSearch]] = InitialSearch

    # What users see
    lacks: ClassVar[frozenset] = frozenset()  # `target_accept` and `keep_adapting`, if no options
    needs_exact_logp: ClassVar[str] = ""  # why the log-density cannot be an estimate, if so
    # The covariance of a normal proposal around the chain's point, if it has one:
    # ``(learned, x, options) -> covariance``, of a Dataset, x (d,), and the options given.
    proposal: ClassVar[Callable | None] = None

    # Derivatives of the log-density that it uses, 2 for products with the Hessian. With 1 or 2 its
    # State has a field `gradient`.
    derivatives: ClassVar[int] = 0

    # Who learns between draws: each chain "alone", all of a run "together", or "both", if `learn`
    # takes all chains, and waits for them, but is of use to one without others, too
    learns: ClassVar[str] = "alone"

    # What results and stores keep
    keeps: Keeps = Keeps()  # where `kept` of its statistics is in a result
    lengths_of_run: ClassVar[frozenset] = frozenset()  # fields whose length depends on the run
    _state_class = KameleonState

    default_target_accept = staticmethod(default_target_accept)
    default_steps_per_draw = staticmethod(lambda d: max(10, d))

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if cls.derivatives:
            cls.needs_exact_logp = "it uses the gradient, and that of an estimate is another one"
        if not hasattr(cls.stats, "_fields"):
            raise TypeError(
                f"Declare the statistics of {cls.__name__} as a NamedTuple, as class Stats with "
                "fields like bandwidth: floats(1), and set stats = Stats."
            )
        cls.__signature__ = signature_with_common_options(cls, KameleonStep)
        cls.__doc__ = cls.__doc__ and docstring_with_common_options(cls)

    def __init__(
        self,
        vars=None,
        *,
        steps_per_draw=None,
        target_accept=None,
        keep_adapting=False,
        region=None,
        jitter=True,
        pool_tuning=True,
        pseudo_marginal=False,
        model=None,
        rng=None,
        initial_point=None,
        compile_kwargs=None,
        blocked=True,
        **unknown,
    ):
        name = type(self).__name__
        given = {
            "target_accept": (target_accept, None),
            "keep_adapting": (keep_adapting, False),
            "pool_tuning": (pool_tuning, True),
            "pseudo_marginal": (pseudo_marginal, False),
            "blocked": (blocked, True),  # which PyMC passes
        }
        for option in options_unknown_to(type(self)):
            value, default = given[option]
            unknown |= {} if value is default else {option: value}
        check_names(type(self), unknown)
        self.model = pm.modelcontext(model)
        own = own_variables(name, vars, self.model)
        with one_thread_compiles:
            common_start = self.model.initial_point()
        point = common_start if initial_point is None else initial_point
        self._initial_point = checked_point(point, self.model)
        self.layout = Layout(self.model, own, self._initial_point)
        self._d = d = self.layout.d
        if d == 0:
            raise ValueError(
                f"{name} has nothing to move: {[*self.layout.shapes]} have no elements."
            )
        if steps_per_draw is None:
            steps_per_draw = self.default_steps_per_draw(d)
        self.steps_per_draw = checked_integer("steps_per_draw", steps_per_draw, at_least=1)
        self.pseudo_marginal = checked_bool("pseudo_marginal", pseudo_marginal)
        self.search = (NoSearch if pseudo_marginal else self.initial_search)(self)
        if pseudo_marginal:
            noise.check_sampler(self)
            self.default_target_accept = noise.target_accept
        if target_accept is None:
            target_accept = self.default_target_accept(d)
        self.target_accept = checked_number("target_accept", target_accept, 0, 1)
        self.keep_adapting = checked_bool("keep_adapting", keep_adapting)
        self.pool_tuning = checked_bool("pool_tuning", pool_tuning)
        self.jitters = checked_bool("jitter", jitter)
        region = self.layout.region_array({} if region is None else region)
        super().__init__(own, {}, blocked=blocked, rng=rng)
        self._compile_kwargs = {} if compile_kwargs is None else compile_kwargs
        with one_thread_compiles:
            self.log_density = self._make_log_density(own, region)
        self.statistics = Statistics(self)
        self.stats_dtypes_shapes, self.stats_dtypes = stats_of_pymc(self.statistics)
        self._buffer = self.statistics.buffer()
        noise.check_model(self)
        self.configuration = {
            "sampler": name,
            "d": d,
            "steps_per_draw": self.steps_per_draw,
            "target_accept": self.target_accept,
            "keep_adapting": self.keep_adapting,
            "region": region,
            "pool_tuning": self.pool_tuning,
            "pseudo_marginal": self.pseudo_marginal,
            **self.settings,
        }
        self._common_start = np.concatenate([np.ravel(common_start[var.name]) for var in own])
        self._outputs, self.of_run = None, OfRun()
        self._prior_draws = []  # none yet, which all copies share
        self.setup_chain(self.rng, DEFAULT_DRAWS, draws=0)
        self._compile()
        self._load()
        start = self.layout.raveled(self._initial_point)
        values, before = [], self.log_density.count[0]
        with taking_notes(start) as notes:
            self.seconds_per_logp = seconds_per_logp(
                self.log_density, start[self.layout.places], values
            )
        noise.say_if_noisy(self, values)
        self._known_at_start = notes.at(start)
        # Evaluations when it was made, of which the user was not told yet
        self.n_trials = int(self.log_density.count[0] - before) + self.log_density.n_trials

    def __repr__(self):
        """Show the sampler and its variables."""
        names = ", ".join(self.var_names)
        return f"{type(self).__name__}([{names}], steps_per_draw={self.steps_per_draw})"

    @classmethod
    def options(cls, vars=None, **options):
        """Return the sampler with these options, for any model.

        Parameters
        ----------
        vars : list of variables or their names, or a single one, optional
        **options
            As for the sampler itself.

        Returns
        -------
        UnboundStep
            ``pk.sample`` and ``pm.sample`` take it as they take a step.

        Raises
        ------
        TypeError
            For an option that the sampler does not have.

        Examples
        --------
        >>> step = pk.GAM.options(steps_per_draw=5)
        >>> with model:
        ...     dt = pk.sample(step=step)
        """
        return UnboundStep(cls, vars, options)

    # ---- what a sampler provides ----------------------------------------------------------------

    def _allocate(self, scales, n_tune):
        """Return fresh (state, parameters, tuning, work) for a chain that tunes n_tune transitions.

        `scales` (d,) are the coordinates' scales: ones, or what the way to the posterior showed.
        `tuning` has a field `n`, which is n_tune.
        """
        raise NotImplementedError

    def _make_log_density(self, own, region):
        """Return the ModelLogp of value variables `own`, which may be in `region` (2, d).

        It need not be compiled yet.
        """
        return ModelLogp(
            self.model, own, self._initial_point, self._compile_kwargs, region, self.derivatives
        )

    def _compile(self):
        """Compile the log-density."""
        with one_thread_compiles:
            self.log_density.compiled()

    def _stat_name(self, field):
        """Return what one of the sampler's own statistics is called in a result."""
        return field

    def pauses(self):
        """Return the draws of tuning before which learning in Python, `learn`, is due."""
        return ()

    @classmethod
    def learn(cls, chains):
        """Learn in Python, between two draws of tuning, what the next transitions need.

        `chains` are the steps of all chains that learn together, each with its `state`,
        `parameters`, `tuning`, `rng` and `log_density`. What is learned is written into the arrays.
        """

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

    def _learned_factor(self):
        """Return the factor (d, d) of the covariance that is learned, None if there is none."""

    def _findings(self):
        """Return what else there is to tell of the chain at its end: a list of Findings."""
        return []

    def evaluations(self, states, numbers, kept):
        """Return a Dataset of what chains have evaluated, None if they do not remember it.

        `states` are those of this step in the chains of these `numbers`, and `kept` the Datasets of
        what each chain has kept of its draws, empty if that is nothing.
        """

    def reused(self, datasets):
        """Return what the step takes up of the evaluations of earlier runs, None if it cannot.

        A ValueError says why these Datasets are of no use.
        """

    def _learned(self):
        """Return what tuning decided, for people: a Quantity of learned.py for each name."""
        return {}

    # ---- a chain --------------------------------------------------------------------------------

    def setup_chain(self, rng, tune, draws):
        """Start afresh: PyMC calls it before each chain, with the draws of tuning and after."""
        self.rng = get_random_generator(rng, copy=False)
        self.tune = tune > 0
        self.monitor = ChainMonitor(tune, draws, longest_way=self.search.longest_way)
        self.point = None
        self.trail = self.search.no_trail()
        self.rounds = no_rounds(len(self.trail) if self.search.searches else 0)
        self.other_mode = np.full(1 + self._d, np.nan)
        self.log_density.read_data()
        self.log_density.begin_watch()
        self.data = self.log_density.digest
        self._fill(np.ones(self._d), tune * self.steps_per_draw)
        self.guide = self.search.no_guide()

    def leave(self):
        """Return the state of a chain, which keeps the arrays: another chain brings its own."""
        own = {name: getattr(self, name) for name in OWN_FIELDS}
        rng = get_state_from_generator(self.rng)
        return KameleonState(var_names=[v.name for v in self.vars], rng=rng, **own)

    def take_up(self, state):
        """Go on with a chain, whose state is left as it is; as by `sampling_state`, but at once."""
        for name in OWN_FIELDS:
            setattr(self, name, copied(getattr(state, name)))
        self.monitor = replace(state.monitor)
        self.rng = random_generator_from_state(state.rng)

    @property
    def watch(self):
        """What the chain has seen of its log-density."""
        return self.log_density.watch

    @watch.setter
    def watch(self, watch):
        """Go on with what was seen."""
        self.log_density.watch = watch

    def _fill(self, scales, n_tune):
        arrays = self._allocate(scales, n_tune)
        if len(arrays) != 4 or not hasattr(arrays[2], "n"):
            raise TypeError(
                f"_allocate of {type(self).__name__} must return (state, parameters, tuning, "
                "work), of which tuning has a field n, the number of tuning transitions."
            )
        types = leaf_types(arrays)
        self._types = getattr(self, "_types", types)
        for leaf, expected in self._types.items():
            if types.get(leaf) != expected:  # machine code does not look
                raise TypeError(
                    f"_allocate of {type(self).__name__} must return the same types each time: "
                    f"{leaf} was {expected}, and is {types.get(leaf)} now."
                )
        self.state, self.parameters, self.tuning, self._work = arrays

    @property
    def prior(self):
        """Draws (n, d) of the prior, None if there are none: computed once in a process."""
        if not self._prior_draws:
            self._prior_draws.append(prior_draws(self.model, self.layout))
        return self._prior_draws[0]

    @property
    def searches(self):
        """The Searches for the posterior that are known to have ended."""
        follow = self.search.follows and self.search.has_few_evaluations
        are_all = follow and self.monitor.number >= 0
        return Searches(self.monitor.searches, self.monitor.ends, are_all=are_all)

    def note_other_mode(self, other):
        """Note that OtherMode of the posterior which is felt most; None if none was found."""
        if other is not None:
            self.other_mode[:] = other.mass, *other.at

    def _use_warm_start(self, found):
        """Start from what the warm start has found, a WarmStart."""

    def step(self, point):
        """Make one draw."""
        x, stats = self.astep(self.layout.raveled(point))
        return point | self.layout.unraveled(x), stats

    def astep(self, q0):
        """Make one draw from the point `q0` (n,) of a chain; return coordinates and statistics."""
        progress, begun = np.zeros(N_PROGRESS, np.int64), self.monitor.done
        try:
            [rows] = make_draws(self._run, [self], q0, 1, progress=progress)
        except CannotStart as error:
            raise error.explained([self]) from None
        except Exception as error:
            error.add_note(f"Raised in {where(error, [self], q0, begun, progress)}")
            raise
        self.layout.round(self.point)
        draw_stats = self.last_draw(rows)
        draw_stats["warning"] = None
        if self.monitor.finished:
            draw_stats["warning"] = closing_warning(self)
            notes = [one for one in self._findings() if one.severity == NOTE]
            said(replace(one, source=type(self).__name__) for one in notes)
        return self.state.x, [draw_stats]

    def for_chain(self):
        """Return a copy for one of several chains of `pk.sample`, which gives them their starts."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.log_density, twin.jitters = self.log_density.copy(), False
        twin.search = type(self.search)(twin)
        twin.of_run = replace(self.of_run, patience=WARM_START_PATIENCE)
        twin._buffer = self.statistics.buffer()
        return twin

    def outputs(self, names):
        """Return what computes these variables of the model from a chain's point.

        It is compiled again only for other names or shapes, so that resuming is quick.
        """
        if self._outputs is None or not self._outputs.fits(names):
            given = names, self._initial_point, self._compile_kwargs, self._known_at_start
            with one_thread_compiles:
                self._outputs = ModelOutputs(self.model, *given)
        return self._outputs

    def _load(self):
        """Load the compiled transitions, or compile them."""
        self._run = compiled_run([self])

    def __getstate__(self):
        """Drop machine code, and a search under way: they do not travel to another process."""
        dropped = "_run", "_outputs", "_buffer", "search"
        own = {k: v for k, v in self.__dict__.items() if k not in dropped}
        return own | {"search": type(self.search)}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.search, self._outputs = self.search(self), None
        self._buffer = self.statistics.buffer()
        self._load()

    # ---- statistics -----------------------------------------------------------------------------

    def last_draw(self, rows):
        """Return the statistics of the last of draws."""
        named = self.statistics.named(rows[-1:])
        draw_stats = DrawStats({name: values[0] for name, values in named.items()})
        draw_stats.mean_accept = self.monitor.mean_accept
        draw_stats.stuck = self.monitor.is_stuck(self.steps_per_draw)
        return draw_stats

    # ---- progress bar ---------------------------------------------------------------------------

    def _progressbar_config(self, n_chains=1):
        """Return what PyMC asks for once per run, before the first draw, with or without a bar."""
        say_what_a_draw_costs(self)
        return progress_columns(_progress_titles(self), n_chains)

    def _make_progressbar_update_functions(self):
        return (progress_update(_progress_titles(self)),)


def stats_of_pymc(statistics):
    """Return the statistics as PyMC wants them: types and shapes by name, and types alone."""
    kinds = statistics.kinds.items()
    shapes = {name: (dtype, [*shape]) for name, (shape, dtype) in kinds}
    # PyMC's own stats_dtypes leave the shape out; its trace then has no room for arrays.
    dtypes = {name: np.dtype((dtype, shape)) for name, (shape, dtype) in kinds}
    warning = {"warning": SamplerWarning}
    return shapes | {"warning": (SamplerWarning, None)}, [dtypes | warning]


def _progress_titles(step):
    """Return the titles of a step's columns, which no other step of the run has."""
    first, *others = map(natural_name, step.var_names)
    where = "" if step.layout.covers_all else f" {first}{', …' if others else ''}"
    return [f"{type(step).__name__} {what}{where}" for what in ("accept", "scale")]


def samplers(cls=KameleonStep):
    """Return all samplers that are loaded, those of other packages too."""
    children = [sampler for child in cls.__subclasses__() for sampler in samplers(child)]
    is_one = hasattr(cls, "name") and not cls.__name__.startswith("_")
    return [cls, *children] if is_one and cls is not KameleonStep else children
