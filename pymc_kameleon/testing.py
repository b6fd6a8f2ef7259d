"""Does a step keep what PyMC and its users rely on? Checks that any step passes or fails.

For authors of steps, ours or others: ``check_step(MyStep)``, or one of ``checks`` at a time. They
look at how a step behaves in PyMC, not at whether its draws come from the posterior.
"""

import multiprocessing
import pickle
import warnings
from contextlib import redirect_stdout
from functools import cache, partial
from io import StringIO
from itertools import pairwise, product
from unittest import SkipTest

import numpy as np
import pymc as pm

from pymc_kameleon.model.pymc_internals import (
    BlockedStep,
    CompoundStep,
    natural_name,
    progress_bar_of,
    quiet_logging,
)

__all__ = ["binary", "check_step", "checks", "continuous"]

TUNE, DRAWS = 120, 30
"""Draws of the chains that are made by hand. PyMC's Metropolis tunes every hundred draws."""

UNTUNED = 300
"""Draws without tuning, as a step that is sound may then reject for long."""

DECIDED = ("scaling", "step_size", "step_size_bar", "lambda")
"""Statistics that say what tuning decided, wherever a step has them."""

OTHERS = ("level", "count")
"""Variables that a step leaves to others: all depend on "level", and none on "count"."""


def continuous():
    """Make a vector, and a scalar that is sampled on a log scale."""
    return [pm.Normal("vector", [1.0, -1.0]), pm.HalfNormal("scalar")]


def binary():
    """Make a vector and a scalar that are 0 or 1."""
    return [pm.Bernoulli("vector", [0.3, 0.6]), pm.Bernoulli("scalar", 0.5)]


@cache
def _model(variables, others):
    """Return a model, perhaps with `OTHERS`, and those of its variables that the step moves."""
    with pm.Model() as model:
        level = pm.Normal("level") if others else 0.0
        own = variables()
        if others:
            pm.Poisson("count", 3)
        # Elements count by place, as the sum of a simplex would tell nothing.
        told = sum(variable.flatten().cumsum().sum() for variable in own)
        pm.Normal("observed", level + told, observed=1.0)
    return model, own


def _new(make, variables, others=False):
    """Return a new step and its model."""
    model, own = _model(variables, others)
    with model:
        step = make(own)
    if not isinstance(step, BlockedStep | CompoundStep):
        raise TypeError(f"make must return a step of PyMC, such as pk.GAM(vars), not {step!r}.")
    return step, model


def _chain(step, model, tune=TUNE, draws=DRAWS, seed=1, **options):
    """Make a chain as PyMC's worker processes do; return point and statistics of each draw."""
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    return _go_on(step, model.initial_point(), tune, range(tune + draws), **options)


def _go_on(step, point, tune, places, change=lambda i: {}):
    """Make these draws of a chain; before draw i, other steps `change` some variables."""
    history = []
    for i in places:
        if i == tune:
            step.stop_tuning()
        point, stats = step.step(_copy(point | change(i)))
        history.append((_copy(point), stats))
    return history


def _copy(point):
    return {name: np.array(value) for name, value in point.items()}


def _sample(step, model, **options):
    """Run pm.sample small and silent."""
    small = {"draws": 20, "tune": 20, "chains": 2, "cores": 1, "random_seed": 1}
    silent = {"progressbar": False, "compute_convergence_checks": False}
    with quiet_logging(True), redirect_stdout(StringIO()):
        return pm.sample(step=step, model=model, **small | silent | options)


def _expect(met, expected, seen):
    if not met:
        raise AssertionError(f"expected {expected}; saw {seen}")


def _equal(one, other):
    one = np.asarray(one)
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _repeats(name):
    """Return whether a statistic has to be the same again: a time has not."""
    return name != "warning" and not any(word in name for word in ("time", "perf_counter"))


def _expect_same(found, expected, what):
    """Compare draws with those that they should be: points, and each step's statistics."""
    for i, (draw, other) in enumerate(zip(found, expected, strict=True)):
        for seen, wanted in zip([draw[0], *draw[1]], [other[0], *other[1]], strict=True):
            for name in filter(_repeats, wanted):
                same = _equal(seen[name], wanted[name])
                _expect(same, f"{name} = {wanted[name]} in draw {i} {what}", seen[name])


def _expect_fixed(history):
    """Compare what tuning decided at the beginning and the end of draws after it."""
    for name in DECIDED:
        values = [[row[name] for row in stats if name in row] for _, stats in history]
        _expect(values[0] == values[-1], f"{name} to stay at {values[0]}", values[-1])


# ---- checks -------------------------------------------------------------------------------------


class Check:
    """A check, called as `check_step` is; it raises what goes wrong, or `unittest.SkipTest`."""

    def __init__(self, function):
        self._function, self.__doc__ = function, function.__doc__

    def __call__(self, make, variables=continuous):
        """Check a step."""
        self._function(partial(_new, make, variables))

    def __repr__(self):
        return self._function.__name__


@Check
def statistics(new):
    """Emit the statistics that are declared, or users lose some, or the whole run at its end."""
    step, model = new()
    methods = getattr(step, "methods", [step])
    unused = {"model_logp"} if len(methods) > 1 else set()  # which PyMC takes away
    for _, stats in _chain(step, model):
        _expect(len(stats) == len(methods), "a dictionary of statistics", stats)
        for method, row in zip(methods, stats, strict=True):
            kinds = method.stats_dtypes_shapes
            always = {name for name, (_, shape) in kinds.items() if shape is not None}
            _expect(set(row) <= set(kinds), f"only what is declared, {sorted(kinds)}", sorted(row))
            emitted = always - unused <= set(row)
            _expect(emitted, f"all that is declared, {sorted(always)}", sorted(row))
            for name in always & set(row):
                _expect_kind(name, np.asarray(row[name]), *kinds[name])
    _sample(*new())


def _expect_kind(name, value, dtype, shape):
    lengths = zip(shape, value.shape, strict=False)
    fits = value.ndim == len(shape) and all(n in (None, m) for n, m in lengths)
    _expect(fits, f"{name} of shape {shape}, as declared", value.shape)
    number = np.dtype(dtype).kind in "biuf"
    _expect(number, f"{name} declared as a number, or with the shape None", dtype)
    cast = np.can_cast(value.dtype, dtype, "same_kind")
    _expect(cast, f"{name} of type {np.dtype(dtype)}, as declared", value.dtype)


@Check
def point(new):
    """Change only what is one's own, or users get draws of a variable under the name of another."""
    step, model = new(others=True)
    before = model.initial_point()
    step.setup_chain(np.random.default_rng(1), DRAWS, 0)
    for _ in range(DRAWS):
        given = _copy(before)
        after, _ = step.step(given)
        # PyMC records a point by its order, and may still be reading the one that it gave.
        _expect(list(after) == list(before), f"a point of {list(before)}", list(after))
        for name, value in before.items():
            _expect(_equal(given[name], value), f"{name} left as given, {value}", given[name])
            moved = np.asarray(after[name])
            kind, expected = (moved.dtype, moved.shape), (value.dtype, value.shape)
            _expect(kind == expected, f"{name} of type and shape {expected}", kind)
            kept = name not in OTHERS or _equal(moved, value)
            _expect(kept, f"{name}, which is of another step, left at {value}", moved)
        before = _copy(after)


@Check
def state(new):
    """Have all in `sampling_state`, or chains depend on each other, and users cannot go on."""
    step, model = new()
    step.setup_chain(np.random.default_rng(1), TUNE, DRAWS)
    now, history, saved = model.initial_point(), [], []
    cuts = (0, 7, TUNE - 10, TUNE + 5, TUNE + DRAWS)
    for begin, end in pairwise(cuts):
        saved.append((begin, now, pickle.dumps(step.sampling_state)))
        history += _go_on(step, now, TUNE, range(begin, end))
        now = history[-1][0]
    for begin, now, pickled in saved:
        fresh, _ = new()
        fresh.sampling_state = pickle.loads(pickled)
        found = _go_on(fresh, now, TUNE, range(begin, TUNE + DRAWS))
        _expect_same(found, history[begin:], f"after the state of draw {begin}, by a new step")


@Check
def reuse(new):
    """Forget the last chain, or users who sample again get other draws, or no tuning."""
    used, model = new()
    _chain(used, model, seed=2)
    # In worker processes PyMC calls nothing but setup_chain before a chain.
    _expect_same(_chain(used, model), _chain(*new()), "of a second chain, as of a new step")


@Check
def tune_zero(new):
    """Work without tuning, or users of ``tune=0`` get errors, chains that stand still, or bias."""
    history = _chain(*new(), tune=0, draws=UNTUNED)
    positions = np.array([np.concatenate([*map(np.ravel, point.values())]) for point, _ in history])
    _expect(np.isfinite(positions).all(), "finite draws", positions)
    _expect(np.ptp(positions, axis=0).any(), f"moves in {UNTUNED} draws", positions[0])
    _expect_fixed(history)


@Check
def tuning_ends(new):
    """Adapt nothing after tuning, as far as `DECIDED` tells, or users get draws with a bias."""
    _expect_fixed(_chain(*new())[TUNE:])


@Check
def follows_others(new):
    """See what other steps moved, or users get wrong draws without any sign of it."""
    still, led, tossed = (
        _chain(*new(others=True), tune=0, draws=UNTUNED, change=change)
        for change in (
            lambda i: {},
            lambda i: {"level": np.array(4.0)},
            lambda i: {"count": np.array(300 if i % 2 else 3)},
        )
    )
    _expect(not _agree(led, still), "other draws where level is 4 instead of 0", "the same ones")
    expected = "the same draws while count jumps, of which they are independent"
    _expect(_agree(tossed, still), expected, "others, as of a log-density that is out of date")


def _agree(one, other):
    """Return whether draws are the same but for rounding, apart from the variables of others."""
    return all(
        np.allclose(a[name], b[name], rtol=1e-6)
        for (a, _), (b, _) in zip(one, other, strict=True)
        for name in a
        if name not in OTHERS
    )


@Check
def beside(new):
    """Work beside NUTS and a discrete step, or users cannot sample models that need them."""
    step, model = new(others=True)
    for own, other in product(getattr(step, "methods", [step]), (pm.NUTS, pm.Metropolis)):
        kinds = [dict(method.stats_dtypes_shapes) for method in (own, other)]
        for name in kinds[0].keys() & kinds[1]:
            mine, theirs = (kind[name][0] for kind in kinds)
            of = f"{name} of type {theirs}, as that of {other.__name__} is, or another name"
            _expect(mine == theirs, of, mine)
    posterior = _sample([step], model)["posterior"]
    for variable in model.free_RVs:
        draws = posterior[variable.name].values
        _expect(np.ptp(draws, axis=1).any(), f"{variable.name} to move", draws[:, 0])


@Check
def progress_bar(new):
    """Fill the columns of the progress bar, or users see errors, or numbers that stand still."""
    step, model = new()
    fields, updates = progress_bar_of(step, n_chains=2)
    for name, values in fields.items():
        _expect(len(values) == 2, f"a value of {name} for each of 2 chains", values)
    for _, stats in _chain(step, model, tune=5, draws=5):
        _expect(len(stats) == len(updates), "an update of the bar for each step", len(updates))
        shown = {name for update, row in zip(updates, stats, strict=True) for name in update(row)}
        _expect(set(fields) <= shown, f"updates of all columns, {sorted(fields)}", sorted(shown))
    for progressbar in ("split+stats", "combined+stats"):
        _sample(step, model, progressbar=progressbar)


@Check
def fork(new):
    """Draw the same in forked processes, or users of ``cores`` get none, or others than alone."""
    _compare_processes(new, "fork")


@Check
def forkserver(new):
    """Draw the same in processes of a server, as from Python 3.14 on, or users get none there."""
    _compare_processes(new, "forkserver")


@Check
def spawn(new):
    """Draw the same in new processes, or users get none, or others, on macOS and Windows."""
    _compare_processes(new, "spawn")


def _compare_processes(new, method):
    if method not in multiprocessing.get_all_start_methods():
        raise SkipTest(f"this system has no {method}")
    step, model = new()
    found = _sample(step, model, cores=2, mp_ctx=method)  # which leaves the step as it is
    one = _sample(step, model)
    for group in ("posterior", "sample_stats"):
        for name in filter(_repeats, one[group].data_vars):
            same = _equal(found[group][name], one[group][name])
            _expect(same, f"the {name} of one process", f"others in processes by {method}")


@Check
def zarr_trace(new):
    """Fit into PyMC's Zarr trace, or users cannot keep draws on disk while they are made."""
    step, model = new()
    try:
        trace = pm.backends.ZarrTrace()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PyMC 6.4 cannot convert it
            _sample(step, model, trace=trace, return_inferencedata=False)
    except RuntimeError as error:
        if any(cause in str(error) for cause in ("install zarr", "Pickle.decode is disabled")):
            raise SkipTest(f"PyMC cannot use zarr here: {error}") from None
        raise
    for name, draws in _sample(*new())["posterior"].data_vars.items():
        same = _equal(trace.posterior[name][:], draws)
        _expect(same, f"the draws of {name} that are made without the trace", "others")


@Check
def representation(new):
    """Show name and variables as `repr`, or users cannot tell steps apart in notebooks and logs."""
    step, _ = new()
    for method in getattr(step, "methods", [step]):
        text = repr(method)
        names = [type(method).__name__, *(natural_name(var.name) for var in method.vars)]
        named = all(name in text for name in names)
        _expect(named and " at 0x" not in text, f"repr to show {names} and no address", text)


checks = tuple(check for check in list(globals().values()) if isinstance(check, Check))
"""All checks; each is called with the same arguments as `check_step`."""


def check_step(make, variables=continuous):
    """Run all checks on a step.

    Parameters
    ----------
    make : callable
        Called in the context of a model with the list of variables to move, it returns a new step;
        the step's class, or ``lambda vars: MyStep(vars, option=3)``.
    variables : callable, optional
        Called in the context of a model, it makes these variables and returns them in a list:
        `continuous`, `binary`, or a function of your own, which makes none that are called
        "level", "count" or "observed".

    Raises
    ------
    ExceptionGroup
        Of what each check that fails has raised.
    Exception
        Whatever `make` or `variables` raise: then nothing is checked.

    Examples
    --------
    >>> check_step(pk.GAM)  # doctest: +SKIP
    >>> check_step(lambda vars: pk.GAM(vars, steps_per_draw=1))  # doctest: +SKIP
    """
    try:
        _new(make, variables)
    except Exception as error:
        error.add_note("The step could not be made, so that nothing was checked.")
        raise
    failed = {}
    for check in checks:
        try:
            check(make, variables)
        except SkipTest:
            continue
        except Exception as error:
            error.add_note(f"Check {check}: {check.__doc__}")
            failed[str(check)] = error
    if failed:
        said = f"The step fails {len(failed)} of {len(checks)} checks: {', '.join(failed)}."
        raise ExceptionGroup(said, list(failed.values()))
