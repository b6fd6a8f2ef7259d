"""Black boxes cut out of a model's log-density, so that an emulator can take their place.

Between the parameters and a simulator, and between its outputs and the log-density, everything is
known, with its gradient. So the graph is cut at the simulator's inputs and outputs.

Symbols: z all value variables raveled, x (P,) the inputs of all calls of black boxes that depend on
z, y (Q,) their outputs. The cut gives x(z, y), as a black box may feed another one, and log π(z,
y), which is the model's log-density where y is what the black boxes return.

A *box* is a black box with certain constants, which do not depend on z. Each *application* of it
takes the next p numbers of x and the next q of y; ``pt.vectorize`` makes one for each row.
"""

from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import NullTypeGradError
from pytensor.graph import Constant, FunctionGraph
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import TensorType

from pymc_kameleon.model.black_boxes import black_boxes
from pymc_kameleon.model.entry_points import python_function
from pymc_kameleon.model.layout import elements
from pymc_kameleon.model.noise import NOISE_SEED
from pymc_kameleon.model.python_calls import WrongReturn
from pymc_kameleon.model.remote import NotHere
from pymc_kameleon.model.simulator_calls import UNNAMED, NotEmulated, boxes_called

MOST_TRIALS, AROUND = 10, 1.0
"""Points at which black boxes are called until they do not raise, at most; how far these are from
the initial one in each coordinate, about."""


class Simulators(NamedTuple):
    """The boxes of a model, and where each application has its inputs and outputs."""

    boxes: tuple  # of Box
    sizes: np.ndarray  # (B, 2) int64: p and q of each box
    applications: np.ndarray  # (A, 4) int64: box, offset in x, offset in y, level
    shapes: tuple  # of the outputs that are used, of each call in the graph

    @property
    def p(self):
        """Length of x."""
        return int(self.sizes[self.applications[:, 0], 0].sum())

    @property
    def q(self):
        """Length of y."""
        return int(self.sizes[self.applications[:, 0], 1].sum())


class Cut(NamedTuple):
    """A log-density, cut at its black boxes; graphs of value and shared variables, and of `y`."""

    simulators: Simulators
    whole: list  # the log-density, and y as the black boxes return it
    y: pt.TensorVariable
    x: pt.TensorVariable
    density: pt.TensorVariable  # log π(z, y)
    start: np.ndarray  # y at the initial point, or near it
    n_trials: int  # calls of all black boxes that this took
    alone: list  # of each box: a vector of p inputs, and what it returns of them, (q,)


def cut_of(model, logp, own, initial_point, shapes=None):
    """Return the Cut of a model's log-density, called near its start, or raise NotEmulated.

    With the `shapes` of Simulators that were found before, nothing is called.
    """
    graph, calls = _graph_and_calls(model, logp, own)
    start = _Start(model, calls, initial_point, shapes)
    calls = [call.with_coordinates(start) for call in calls]
    simulators, alone = _table(calls, start)
    y = pt.vector("y", shape=(simulators.q,), dtype="float64")
    replacements, end = {}, 0
    for call in calls:
        begin, end = end, end + call.n_rows(start) * call.q(start)
        replacements |= call.cut_outputs(y[begin:end], start)
    x = pt.concatenate([call.x(start) for call in calls])
    density, x = clone_replace([graph.outputs[0], x], replacements, rebuild_strict=False)
    whole = [graph.outputs[0], pt.concatenate([call.y(start) for call in calls])]
    at_start = np.concatenate([call.y_at(start) for call in calls])
    return Cut(simulators, whole, y, x, density, at_start, start.n_trials, alone)


def _graph_and_calls(model, logp, own):
    graph = _merged(logp)
    if any(var.name == NOISE_SEED for var in graph.inputs):
        raise NotEmulated("The log-density is an estimate, which no emulator can predict.")
    calls = boxes_called(graph, model.value_vars)
    if not any(call.depends_on(own) for call in calls):
        raise NotEmulated(_why_none(logp, calls, own))
    for call in calls:
        if _is_linear_in(graph.outputs[0], call.outputs):
            raise NotEmulated(returns_loglikelihood(call.name))
    return graph, calls


def _is_linear_in(logp, outputs):
    """Whether the gradient of the log-density shows that it is linear in all of these outputs."""
    try:
        slopes = pt.grad(logp, outputs, disconnected_inputs="ignore")
    except (NotImplementedError, NullTypeGradError):
        return False
    slopes = rewrite_graph(slopes, include=("canonicalize",))
    seen, left = set(), list(slopes)
    while left:
        var = left.pop()
        seen.add(var)
        if var.owner is not None and not isinstance(var.owner.op, Shape | Shape_i):
            left += [other for other in var.owner.inputs if other not in seen]
    return not set(outputs) & seen


def returns_loglikelihood(name):
    """Return why an Op of this name is not emulated."""
    return (
        f"`{name}` returns the log-likelihood. An emulator predicts better what that is computed "
        "from: let it return its predictions, and compare them with the data in the model."
    )


def _merged(logp):
    """Return a graph in which what is computed twice, a black box too, is computed once."""
    inputs = [var for var in graph_inputs([logp]) if not isinstance(var, Constant)]
    graph = FunctionGraph(inputs, [logp], copy_inputs=False, copy_orphans=False)
    rewrite_graph(graph, include=("canonicalize",))
    MergeOptimizer().rewrite(graph)
    return graph


def _why_none(logp, calls, own):
    if calls:
        names = ", ".join(sorted({f"`{call.name}`" for call in calls}))
        return f"{names} does not depend on {', '.join(var.name for var in own)}."
    called = black_boxes([logp])
    if called:
        names = ", ".join(f"`{name}`" for name in called)
        return f"{names} is no function of the user's that depends on parameters."
    return "The log-density calls no black box."


def _table(calls, start):
    """Return the Simulators, and the graphs of each box alone."""
    numbers, boxes, alone, applications, at = {}, [], [], [], [0, 0]
    for call in calls:
        for row in range(call.n_rows(start)):
            key = call.key(row, start)
            b = numbers.setdefault(key, len(boxes))
            if b == len(boxes):
                boxes.append(call.box(start))
                alone.append(call.alone(row, start))
            elif row == 0:
                boxes[b] = max(boxes[b], call.box(start), key=lambda box: box.n_named)
            box = boxes[b]
            applications.append([b, *at, call.level])
            at = [at[0] + box.p, at[1] + box.q]
    sizes = np.array([[box.p, box.q] for box in boxes], np.int64)
    shapes = tuple(tuple(start.shape(var) for var in call.outputs) for call in calls)
    return Simulators(tuple(boxes), sizes, np.array(applications, np.int64), shapes), alone


# ---- what is found by evaluation ----------------------------------------------------------------


class _Start:
    """Values of calls at the initial point or near it, after `n_trials` calls of black boxes.

    Outputs are 1 if their `shapes` are known.
    """

    def __init__(self, model, calls, point, shapes=None):
        self.point, self._model, self.n_trials = point, model, 0
        outputs = [var for call in calls for var in (*call.node.inputs, *call.outputs)]
        if shapes is None:
            found = self._values(outputs, calls)
        else:
            used = [var for call in calls for var in call.outputs]
            known = [shape for own in shapes for shape in own]
            ones = [np.ones(shape, var.dtype) for var, shape in zip(used, known, strict=True)]
            ones = {var: pt.constant(one) for var, one in zip(used, ones, strict=True)}
            given = clone_replace(outputs, ones, rebuild_strict=False)
            found = python_function(model, given)(point)
        self.values = {var: np.asarray(v) for var, v in zip(outputs, found, strict=True)}
        # Inputs that depend on no other black box, and what has a name, are known anywhere.
        self._first = [var for call in calls if not call.level for var in call.inputs]
        named = [var for var in model.unobserved_value_vars if _has_value(var)]
        named.sort(key=lambda var: var in model.value_vars)  # natural scales go first
        self._named = {var.name: var for var in named}
        self._inputs = python_function(model, [*self._first, *self._named.values()])
        rng = np.random.default_rng(0)  # a model is cut in the same way each time
        self._looks = [self._near(rng, 0.1) for _ in range(2)]
        self._seen = [self._inputs(look) for look in self._looks]

    def _values(self, outputs, calls):
        compute, rng, errors = python_function(self._model, outputs), np.random.default_rng(0), []
        for self.n_trials in range(1, MOST_TRIALS + 1):
            try:
                return compute(self._near(rng, AROUND) if errors else self.point)
            except (WrongReturn, NotHere):  # as at any other point
                raise
            except Exception as error:
                errors.append(error)
        names = ", ".join(sorted({f"`{call.name}`" for call in calls}))
        refusal = NotEmulated(
            f"{names} raised {type(errors[0]).__name__} at the model's initial point, and at "
            f"{MOST_TRIALS - 1} points around it, where the shapes of outputs were looked for: "
            f"{str(errors[0]).strip().partition(chr(10))[0]}"
        )
        refusal.n_trials = self.n_trials
        raise refusal from errors[0]

    def _near(self, rng, sd):
        near = dict(self.point)
        for var in self._model.continuous_value_vars:
            value = np.asarray(self.point[var.name])
            near[var.name] = (value + sd * rng.normal(size=value.shape)).astype(value.dtype)
        return near

    def shape(self, var):
        """Return the shape of an input or output."""
        return self.values[var].shape

    def _of(self, call, seen):
        """Return a call's inputs (p,) among those that were seen."""
        return np.concatenate(
            [np.ravel(seen[self._first.index(var)]) for var in call.inputs], dtype=np.float64
        )

    def n_distinct(self, call):
        """Return how many inputs vary, those that are equal counted once."""
        both = np.array([self._of(call, seen) for seen in self._seen]).T
        return len(np.unique(both[both[:, 0] != both[:, 1]], axis=0))

    def coordinates(self, call):
        """Return the coordinates that a call's inputs depend on, as (variable, place)."""
        here, found = self._of(call, self._seen[0]), []
        for var in call.variables:
            for i in range(self.point[var.name].size):
                moved = self._looks[0] | {var.name: np.array(self._looks[0][var.name])}
                moved[var.name].flat[i] = self._looks[1][var.name].flat[i]
                there = self._of(call, self._inputs(moved))
                if not np.array_equal(there, here):
                    found.append((var, i))
        return tuple(found)

    def names(self, call):
        """Return the names of a call's inputs, of its first row."""
        sizes = call.sizes(self)
        unnamed = [f"{UNNAMED}{k}" for k in range(sum(sizes))]
        if call.level:
            return unnamed
        known = {}
        seen = [values[len(self._first) :] for values in self._seen]
        for name, *values in zip(self._named, *seen, strict=True):
            shape = np.shape(values[0])
            for element, *pair in zip(elements(name, shape), *map(np.ravel, values), strict=True):
                known.setdefault(tuple(map(float, pair)), element)
        firsts = []
        for seen in self._seen:
            parts = [seen[self._first.index(var)] for var in call.inputs]
            parts = [np.ravel(part)[:size] for part, size in zip(parts, sizes, strict=True)]
            firsts.append(np.concatenate(parts))
        pairs = zip(*firsts, unnamed, strict=True)
        return [known.get((float(a), float(b)), name) for a, b, name in pairs]


def _has_value(var):
    """Whether a named variable is numbers that no black box computes."""
    is_real = isinstance(var.type, TensorType) and var.dtype.startswith("float")
    return is_real and not black_boxes([var])
