"""Does a step keep what PyMC and its users rely on? Checks that any step passes or fails.

For authors of steps, ours or others::

    from pymc_kameleon.testing import check_step

    check_step(MyStep)

``checks`` has them one by one, for pytest::

    @pytest.mark.parametrize("check", pymc_kameleon.testing.checks, ids=str)
    def test_my_step(check):
        check(MyStep)

They look at how a step behaves in PyMC, not at whether its draws come from the posterior.
"""

import multiprocessing
import pickle
import warnings
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from unittest import SkipTest

import numpy as np
import pandas as pd
import pymc as pm

from pymc_kameleon.host import progress_bar_of, quiet_logging

__all__ = ["binary", "categorical", "check_step", "checks", "continuous", "report"]

TUNE, DRAWS = 120, 30
"""Draws of the chains that are made by hand. PyMC's Metropolis tunes every hundred draws."""

FIXED = ("scaling", "step_size", "step_size_bar", "lambda")
"""Statistics that say what tuning decided, wherever a step has them."""

# ---- models -------------------------------------------------------------------------------------


def continuous():
    """Make a vector, and a scalar that is sampled on a log scale."""
    return [pm.Normal("vector", [1.0, -1.0]), pm.HalfNormal("scalar")]


def binary():
    """Make a vector and a scalar that are 0 or 1."""
    return [pm.Bernoulli("vector", [0.3, 0.6]), pm.Bernoulli("scalar", 0.5)]


def categorical():
    """Make a vector and a scalar of three categories."""
    p = [0.2, 0.3, 0.5]
    return [pm.Categorical("vector", p, shape=2), pm.Categorical("scalar", p)]


@cache
def _model(variables, others):
    """Return a model, and those of its variables that the step moves.

    The others are "level", on which they depend, and "count", which is independent of all.
    """
    with pm.Model() as model:
        level = pm.Normal("level") if others else 0.0
        own = variables()
        if others:
            pm.Poisson("count", 3)
        pm.Normal("observed", level + sum(variable.sum() for variable in own), observed=1.0)
    return model, own


class _Subject:
    """What is checked: how the step is made, and for which variables."""

    def __init__(self, make, variables):
        self._make, self._variables = make, variables

    def step(self, others=False):
        """Return a new step and its model."""
        model, own = _model(self._variables, others)
        with model:
            return self._make(own), model

    def chain(self, **options):
        """Return the draws of a new step."""
        step, model = self.step(others="change" in options)
        return _chain(step, model.initial_point(), **options)


# ---- chains -------------------------------------------------------------------------------------


def _chain(step, point, tune=TUNE, draws=DRAWS, seed=1, **options):
    """Make a chain as PyMC's worker processes do; return point and statistics of each draw."""
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    return _go_on(step, point, tune, range(tune + draws), **options)


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
    defaults = {
        "draws": 20,
        "tune": 20,
        "chains": 2,
        "cores": 1,
        "random_seed": 1,
        "progressbar": False,
        "compute_convergence_checks": False,
    }
    with quiet_logging(True), redirect_stdout(StringIO()):
        return pm.sample(step=step, model=model, **defaults | options)


def _methods(step):
    """Return the steps of a step: PyMC makes several where each variable has one of its own."""
    return getattr(step, "methods", [step])


# ---- comparisons --------------------------------------------------------------------------------


def _expect(met, expected, seen):
    if not met:
        raise AssertionError(f"expected {expected}; saw {seen}")


def _equal(one, other):
    one = np.asarray(one)
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _repeats(name):
    """Return whether a statistic has to be the same again: a time has not."""
    return name != "warning" and not any(word in name for word in ("time", "perf_counter"))


def _numbers(draw):
    """Return by name all that the seed decides."""
    point, stats = draw
    return point | {
        f"{name} of its statistics": value
        for row in stats
        for name, value in row.items()
        if _repeats(name)
    }


def _expect_same(found, expected, what):
    """Compare draws with those that they should be."""
    for i, (draw, other) in enumerate(zip(found, expected, strict=True)):
        seen = _numbers(draw)
        for name, value in _numbers(other).items():
            _expect(
                _equal(seen[name], value), f"{value} as {name} in draw {i} {what}", seen[name]
            )


def _expect_same_result(found, expected, what):
    """Compare the posterior and statistics of two results of pm.sample."""
    for group in ("posterior", "sample_stats"):
        for name in filter(_repeats, expected[group].data_vars):
            same = _equal(found[group][name], expected[group][name])
            _expect(same, f"the same {name} of the {group} {what}", "others")


def _expect_fixed(history):
    """Compare what tuning decided at the beginning and the end of draws after it."""
    for name in FIXED:
        values = [[row[name] for row in stats if name in row] for _, stats in history]
        _expect(values[0] == values[-1], f"{name} to stay at {values[0]}", values[-1])


# ---- checks -------------------------------------------------------------------------------------


class Check:
    """A check: call it with what makes a step, and perhaps with its variables.

    It raises what goes wrong, AssertionError where something is not as expected; and
    `unittest.SkipTest`, which pytest knows, where it cannot be run.
    """

    def __init__(self, function):
        self._function = function
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, make, variables=continuous):
        """Check a step; the arguments are those of `check_step`."""
        self._function(_Subject(make, variables))

    def __str__(self):
        return self.__name__


@Check
def statistics(subject):
    """The user loses statistics, or the run ends with an error, after the last draw at the worst.

    PyMC makes room for what a step declares in `stats_dtypes_shapes`, and fills it draw by draw.
    """
    step, model = subject.step()
    methods = _methods(step)
    unused = {"model_logp"} if len(methods) > 1 else set()  # which PyMC takes away
    for _, stats in _chain(step, model.initial_point()):
        _expect(len(stats) == len(methods), "a dictionary of statistics", stats)
        for method, row in zip(methods, stats, strict=True):
            kinds = method.stats_dtypes_shapes
            always = {name for name, (_, shape) in kinds.items() if shape is not None}
            _expect(set(row) <= set(kinds), f"only what is declared, {sorted(kinds)}", sorted(row))
            _expect(always - unused <= set(row), f"all that is declared, {always}", sorted(row))
            for name in always & set(row):
                _expect_kind(name, np.asarray(row[name]), *kinds[name])
    _sample(step, model)


def _expect_kind(name, value, dtype, shape):
    fits = value.ndim == len(shape) and all(
        n in (None, m) for n, m in zip(shape, value.shape, strict=True)
    )
    _expect(fits, f"{name} of shape {shape}, as declared", value.shape)
    dtype = np.dtype(dtype)
    _expect(dtype.kind in "biuf", f"{name} declared as a number, or with the shape None", dtype)
    cast = np.can_cast(value.dtype, dtype, "same_kind")
    _expect(cast, f"{name} of type {dtype}, as declared", value.dtype)


@Check
def point(subject):
    """The user gets draws of one variable under the name of another, or of wrong types.

    PyMC records a point by the order of its names; and it may still be reading the point that it
    gave to the step, which therefore must not change.
    """
    step, model = subject.step(others=True)
    own = {var.name for var in step.vars}
    before = model.initial_point()
    step.setup_chain(np.random.default_rng(1), 0, DRAWS)
    step.stop_tuning()
    for _ in range(DRAWS):
        given = _copy(before)
        after, _ = step.step(given)
        _expect(list(after) == list(before), f"a point of {list(before)}", list(after))
        for name, value in before.items():
            _expect(_equal(given[name], value), f"{name} left as given, {value}", given[name])
            new = np.asarray(after[name])
            kind, expected = (new.dtype, new.shape), (value.dtype, value.shape)
            _expect(kind == expected, f"{name} of type and shape {expected}", kind)
            kept = name in own or _equal(new, value)
            _expect(kept, f"{name}, which is of another step, left at {value}", new)
        before = _copy(after)


@Check
def state(subject):
    """The user cannot go on from a saved state, and each chain depends on the one before.

    All that a chain needs to go on has to be in `sampling_state`, which has to survive pickle.
    """
    step, model = subject.step()
    step.setup_chain(np.random.default_rng(1), TUNE, DRAWS)
    now, history, saved = model.initial_point(), [], []
    cuts = (0, 7, TUNE - 10, TUNE + 5, TUNE + DRAWS)
    for begin, end in zip(cuts, cuts[1:], strict=False):
        saved.append((begin, now, pickle.dumps(step.sampling_state)))
        history += _go_on(step, now, TUNE, range(begin, end))
        now = history[-1][0]
    for begin, now, pickled in saved:
        fresh, _ = subject.step()
        fresh.sampling_state = pickle.loads(pickled)
        found = _go_on(fresh, now, TUNE, range(begin, TUNE + DRAWS))
        _expect_same(found, history[begin:], f"after the state of draw {begin}, by a new step")


@Check
def reuse(subject):
    """The user who samples twice with one step gets other draws the second time, or no tuning.

    `setup_chain` has to forget the chain before: in worker processes PyMC calls nothing else.
    """
    used, model = subject.step()
    start = model.initial_point()
    _chain(used, start, seed=2)
    _expect_same(_chain(used, start), subject.chain(), "of a second chain, as of a new step")


@Check
def tune_zero(subject):
    """The user who asks for no tuning gets an error, a chain that stands still, or NaN."""
    history = subject.chain(tune=0)
    positions = np.array([np.concatenate([*map(np.ravel, point.values())]) for point, _ in history])
    _expect(np.isfinite(positions).all(), "finite draws", positions)
    _expect(np.ptp(positions, axis=0).any(), f"moves in {DRAWS} draws", positions[0])
    _expect_fixed(history)


@Check
def tuning_ends(subject):
    """The user's draws come from another distribution than the posterior.

    After `stop_tuning` nothing may adapt. This is as much as the statistics named in `FIXED` tell.
    """
    _expect_fixed(subject.chain()[TUNE:])


@Check
def follows_others(subject):
    """The user's draws are wrong wherever another step moves the other variables."""
    still, led, tossed = (
        subject.chain(tune=0, change=change)
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
        if name not in ("level", "count")
    )


@Check
def beside(subject):
    """The user cannot have NUTS and a discrete step for the variables that this step leaves."""
    step, model = subject.step(others=True)
    posterior = _sample([step], model)["posterior"]
    for variable in model.free_RVs:
        draws = posterior[variable.name].values
        _expect(np.ptp(draws, axis=1).any(), f"{variable.name} to move", draws[:, 0])


@Check
def progress_bar(subject):
    """The user's run ends with an error of the progress bar, or its columns stay empty."""
    step, model = subject.step()
    fields, updates = progress_bar_of(step, n_chains=2)
    for name, values in fields.items():
        _expect(len(values) == 2, f"a value of {name} for each of 2 chains", values)
    for _, stats in _chain(step, model.initial_point(), tune=5, draws=5):
        _expect(len(stats) == len(updates), "an update of the bar for each step", len(updates))
        for update, row in zip(updates, stats, strict=True):
            shown = set(update(row)) - {"failing"}
            _expect(shown <= set(fields), f"updates of the columns {sorted(fields)}", shown)
    for progressbar in ("split+stats", "combined+stats"):
        _sample(step, model, progressbar=progressbar)


@Check
def workers(subject):
    """The user's run ends with an error on another system, or its draws depend on the cores.

    PyMC forks where it can; macOS, Windows and Python 3.14 begin processes afresh, to which the
    step travels by cloudpickle.
    """
    step, model = subject.step()
    many = {}
    for method in multiprocessing.get_all_start_methods():  # which leave this step as it is
        try:
            many[method] = _sample(step, model, cores=2, mp_ctx=method)
        except Exception as error:
            error.add_note(f"Processes were begun by {method}.")
            raise
    one = _sample(step, model)
    for method, found in many.items():
        _expect_same_result(found, one, f"of processes begun by {method} as of one process")


@Check
def zarr_trace(subject):
    """The user cannot keep draws on disk while they are made.

    PyMC's trace writes all statistics and the step's `sampling_state`.
    """
    try:
        trace = pm.backends.ZarrTrace()
    except RuntimeError:
        raise SkipTest("PyMC finds no zarr that it can use: it needs a version below 3") from None
    step, model = subject.step()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyMC 6.4 cannot convert it
        _sample(step, model, trace=trace, return_inferencedata=False)
    fresh, _ = subject.step()
    fresh.sampling_state = trace.root["_sampling_state/sampling_state"][0]
    for name, draws in _sample(subject.step()[0], model)["posterior"].data_vars.items():
        same = _equal(trace.posterior[name][:], draws)
        _expect(same, f"the draws of {name} that are made without the trace", "others")


@Check
def representation(subject):
    """The user cannot tell steps apart where they are printed: in notebooks, logs and messages."""
    step, _ = subject.step()
    for method in _methods(step):
        text = repr(method)
        names = [type(method).__name__, *(var.name for var in method.vars)]
        named = all(name.removesuffix("_log__") in text for name in names)
        _expect(named and " at 0x" not in text, f"repr to show {names} and no address", text)


checks = tuple(check for check in list(globals().values()) if isinstance(check, Check))
"""All checks; each is called with the same arguments as `check_step`."""


# ---- all together -------------------------------------------------------------------------------


def check_step(make, variables=continuous):
    """Run all checks on a step.

    Parameters
    ----------
    make : callable
        Called in the context of a model with the list of variables to move, it returns a new step;
        the step's class, or ``lambda vars: MyStep(vars, option=3)``.
    variables : callable, optional
        Called in the context of a model, it makes these variables and returns them in a list:
        `continuous`, `binary`, `categorical`, or a function of your own. It makes none
        that are called "level", "count" or "observed".

    Raises
    ------
    ExceptionGroup
        Of what each check that fails has raised.
    """
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


def report(steps, variables=continuous):
    """Run all checks on several steps, and compare.

    Parameters
    ----------
    steps : dict
        A name, and what makes the step, for each.
    variables : callable, optional
        As for `check_step`.

    Returns
    -------
    pandas.DataFrame
        A row for each check, a column for each step: "passes", "fails: why", or "not run: why".
    """
    return pd.DataFrame(
        {
            name: {str(check): _outcome(check, make, variables) for check in checks}
            for name, make in steps.items()
        }
    )


def _outcome(check, make, variables):
    try:
        check(make, variables)
    except SkipTest as reason:
        return f"not run: {reason}"
    except AssertionError as error:
        return f"fails: {error}"
    except Exception as error:
        return f"fails: {type(error).__name__}: {error}"
    return "passes"
