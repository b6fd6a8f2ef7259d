"""Black boxes cut out of a model's log-density, so that an emulator can take their place.

A model has ``mu = simulator(theta)`` in its likelihood. Between the parameters and the simulator,
and between its outputs and the log-density, everything is known, with its gradient. So the graph
is cut at the simulator's inputs and outputs.

Symbols: z all value variables raveled, x (P,) the inputs of all calls of black boxes that depend on
z, y (Q,) their outputs. The cut gives x(z, y), as a black box may feed another one, and
log π(z, y), which is the model's log-density where y is what the black boxes return.

A *box* is a black box with certain constants: numbers, data, and integers that do not depend on z.
It may be applied several times, and each *application* takes the next p numbers of x and the next q
of y. What ``pt.vectorize`` has made of a black box has an application for each of its rows.
"""

from hashlib import sha256
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.compile import Mode, SharedVariable
from pytensor.gradient import NullTypeGradError
from pytensor.graph import Apply, Constant, FunctionGraph, Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.basic import MergeOptimizer
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import TensorType

from pymc_kameleon.model.black_box_calls import is_black_box
from pymc_kameleon.model.black_boxes import (
    black_boxes,
    boxes_of_user,
    code_of,
    has_numba_version,
    name_of,
)
from pymc_kameleon.model.entry_points import black_box_ops_silent
from pymc_kameleon.model.layout import elements
from pymc_kameleon.model.noise import NOISE_SEED

LOOK_SEED = 0
"""Of the points at which inputs are compared: a model is cut in the same way each time."""


MOST_TRIALS, AROUND = 10, 1.0
"""Points at which black boxes are called until they do not raise, at most; how far these are from
the initial one in each coordinate, about."""

UNNAMED = "input "
"""What inputs without a name are called, followed by their place."""


class NotEmulated(ValueError):
    """Why a model's black boxes cannot be emulated, a sentence for the user.

    Attributes
    ----------
    n_trials : int
        How often the model was evaluated to find that out.
    """

    n_trials = 0


class Box(NamedTuple):
    """A black box with certain constants."""

    name: str
    p: int
    q: int
    inputs: tuple  # p names: of variables and coordinates where they are one, or "input 3"
    takes_coordinates: bool  # whether its inputs are coordinates of z, instead of its own
    ingredients: tuple  # what its constants are made of: bytes, and shared variables
    code: str  # fingerprint of what it computes by, "" if there is none
    no_code: str  # why

    @property
    def digest(self):
        """Fingerprint of the constants, with the data that the model has now."""
        digest = sha256()
        for part in self.ingredients:
            digest.update(part if isinstance(part, bytes) else _bytes(part.get_value(borrow=True)))
        return digest.hexdigest()


class Simulators(NamedTuple):
    """The boxes of a model, and where each application has its inputs and outputs."""

    boxes: tuple  # of Box
    sizes: np.ndarray  # (B, 2) int64: p and q of each box
    applications: np.ndarray  # (A, 4) int64: box, offset in x, offset in y, level

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


def simulators_of(model, own, initial_point):
    """Return the Simulators of a model, which is called at its initial point, or near it.

    Parameters
    ----------
    model : pm.Model
    own : list of value variables
        Those that a step moves.
    initial_point : dict
        Values of all value variables.

    Raises
    ------
    NotEmulated
        If there are none, or not all of them can be emulated.
    """
    return cut_of(model, model.logp(), own, initial_point).simulators


def cut_of(model, logp, own, initial_point):
    """Return the Cut of a model's log-density; other arguments as of `simulators_of`."""
    graph, calls = _graph_and_calls(model, logp, own)
    start = _Start(model, calls, initial_point)
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
    calls = _calls(graph, model.value_vars)
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
    """Return a graph in which what is computed twice, a black box too, is computed once.

    PyMC has brought parts of it into PyTensor's canonical form, but not what potentials depend on.
    """
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


# ---- calls of black boxes in the graph ----------------------------------------------------------


class Call(NamedTuple):
    """An Apply node of a black box, or of the Blockwise of one, which has a row for each call."""

    node: Apply
    op: Op  # the user's
    varying: tuple  # places of inputs that depend on value variables
    used: tuple  # places of outputs that the log-density depends on, in this call or another one
    level: int  # 0, or one more than that of the highest black box which feeds it
    variables: tuple  # value variables that it depends on
    coordinates: tuple = ()  # (variable, place in it raveled) of those that are its inputs

    @property
    def name(self):
        """What the user calls the black box."""
        return name_of(self.op)

    def depends_on(self, own):
        """Whether it depends on one of these value variables."""
        return any(var in self.variables for var in own)

    @property
    def _batch_ndim(self):
        return self.node.op.batch_ndim(self.node) if self.op is not self.node.op else 0

    def batch(self, start):
        """Return the shape of its rows."""
        return start.shape(self.node.outputs[self.used[0]])[: self._batch_ndim]

    def n_rows(self, start):
        """Return how often the black box is applied."""
        return int(np.prod(self.batch(start), dtype=int))

    def core_shape(self, var, start):
        """Return the shape that an input or output has in one row."""
        return start.shape(var)[self._batch_ndim :]

    @property
    def inputs(self):
        """Inputs that depend on value variables."""
        return [self.node.inputs[i] for i in self.varying]

    @property
    def outputs(self):
        """Outputs that are used."""
        return [self.node.outputs[i] for i in self.used]

    def p(self, start):
        """Return the number of its inputs in one row."""
        if self.coordinates:
            return len(self.coordinates)
        return sum(_size(self.core_shape(var, start)) for var in self.inputs)

    def q(self, start):
        """Return the number of its outputs in one row."""
        return sum(_size(self.core_shape(var, start)) for var in self.outputs)

    def x(self, start):
        """Return its inputs, raveled row by row."""
        if self.coordinates:
            return pt.stack([var.ravel()[i].astype("float64") for var, i in self.coordinates])
        batch, parts = self.batch(start), []
        for var in self.inputs:
            whole = pt.broadcast_to(var, (*batch, *self.core_shape(var, start)))
            parts.append(whole.astype("float64").reshape((self.n_rows(start), -1)))
        return pt.concatenate(parts, axis=1).ravel()

    def y(self, start):
        """Return its outputs, raveled row by row."""
        rows = self.n_rows(start)
        parts = [var.astype("float64").reshape((rows, -1)) for var in self.outputs]
        return pt.concatenate(parts, axis=1).ravel()

    def y_at(self, start):
        """Return the values of its outputs there."""
        rows = self.n_rows(start)
        values = [start.values[var].astype(np.float64).reshape(rows, -1) for var in self.outputs]
        return np.concatenate(values, axis=1).ravel()

    def cut_outputs(self, y, start):
        """Map each output to its part of `y`."""
        rows, replacements, end = y.reshape((self.n_rows(start), self.q(start))), {}, 0
        for var in self.outputs:
            begin, end = end, end + _size(self.core_shape(var, start))
            part = rows[:, begin:end].reshape(start.shape(var)).astype(var.dtype)
            replacements[var] = var.type.filter_variable(part)
        return replacements

    def with_coordinates(self, start):
        """Return it with coordinates of z as inputs, if these are fewer than its own.

        Of a field on a grid, say, computed from some coefficients. Inputs that are always the same
        as another one, or constant, do not count.
        """
        mixed = any(not v.dtype.startswith("float") for v in self.variables)
        if self.level or self._batch_ndim or mixed or start.n_distinct(self) < 2:
            return self
        found = start.coordinates(self)
        return self._replace(coordinates=found) if len(found) < start.n_distinct(self) else self

    def key(self, row, start):
        """Return what calls of the same box, in this row, have in common."""
        if self.coordinates:
            return id(self.node)
        constants = tuple(
            (id(_without_padding(var)), self._own_row(var, row, start))
            for i, var in enumerate(self.node.inputs)
            if i not in self.varying
        )
        shapes = tuple(self.core_shape(var, start) for var in (*self.node.inputs, *self.outputs))
        return self.op, self.varying, constants, shapes

    def _own_row(self, var, row, start):
        """Return which part of a constant a row takes."""
        lengths = start.shape(var)[: self._batch_ndim]
        place = np.unravel_index(row, self.batch(start)) if lengths else ()
        return tuple(int(i) for i, length in zip(place, lengths, strict=True) if length > 1)

    def box(self, row, start):
        """Return the Box that it applies in this row."""
        constants = [v for i, v in enumerate(self.node.inputs) if i not in self.varying]
        made_of = [repr(self._own_row(var, row, start)).encode() for var in constants]
        graphs = self.node.inputs if self.coordinates else map(_without_padding, constants)
        for var in graphs:
            made_of += _ingredients(var)
        if self.coordinates:
            variables = dict(self.coordinates)
            shapes = {var: np.shape(start.point[var.name]) for var in variables}
            names = [elements(var.name, shapes[var])[i] for var, i in self.coordinates]
        else:
            names = start.names(self)
        sizes = self.p(start), self.q(start)
        takes_coordinates, made_of = bool(self.coordinates), tuple(made_of)
        return Box(self.name, *sizes, tuple(names), takes_coordinates, made_of, *code_of(self.op))

    def alone(self, row, start):
        """Return a vector of its p inputs in a row, and its outputs there, raveled."""
        x = pt.vector("x", shape=(self.p(start),), dtype="float64")
        if self.coordinates:
            outputs = clone_replace(self.outputs, self._with_coordinates_at(x, start))
        else:
            node = self.op.make_node(*self._inputs_of_row(x, row, start))
            outputs = [node.outputs[i] for i in self.used]
        return x, pt.concatenate([var.ravel().astype("float64") for var in outputs])

    def _with_coordinates_at(self, x, start):
        """Map value variables to their initial values, but for coordinates at x."""
        replacements = {}
        for var in self.variables:
            value = np.asarray(start.point[var.name])
            flat = pt.constant(value.ravel())
            for k, (own, i) in enumerate(self.coordinates):
                if own is var:
                    flat = pt.set_subtensor(flat[i], x[k].astype(flat.dtype))
            replacements[var] = var.type.filter_variable(flat.reshape(value.shape))
        return replacements

    def _inputs_of_row(self, x, row, start):
        """Return the inputs of the user's Op in a row, of which those that vary are x."""
        inputs, end = [], 0
        for i, var in enumerate(self.node.inputs):
            shape = self.core_shape(var, start)
            if i in self.varying:
                begin, end = end, end + _size(shape)
                inputs.append(x[begin:end].reshape(shape).astype(var.dtype))
            elif self._batch_ndim:
                lengths = start.shape(var)[: self._batch_ndim]
                places = np.unravel_index(row, self.batch(start))
                where = zip(places, lengths, strict=True)
                inputs.append(var[tuple(int(k) if n > 1 else 0 for k, n in where)])
            else:
                inputs.append(var)
        return inputs


def _calls(graph, value_vars):
    """Return the Calls whose inputs depend on value variables, in an order of evaluation."""
    depends = {var: {var} for var in value_vars}  # variable -> value variables that it depends on
    level, found = {}, []
    for node in graph.toposort():
        before = set().union(*(depends.get(var, ()) for var in node.inputs))
        if not before or isinstance(node.op, Shape | Shape_i):
            continue
        own = max((level.get(var, 0) for var in node.inputs), default=0)
        op = _user_op(node)
        varying = tuple(i for i, var in enumerate(node.inputs) if depends.get(var))
        if op is not None:
            _check_inputs(name_of(op), [node.inputs[i] for i in varying])
            variables = tuple(var for var in value_vars if var in before)
            found.append(Call(node, op, varying, (), own, variables))
            own += 1
        for var in node.outputs:
            depends[var], level[var] = before, own
    used = {}
    for call in found:
        places = [i for i, var in enumerate(call.node.outputs) if graph.clients.get(var)]
        used.setdefault(call.op, set()).update(places)
    calls = [call._replace(used=tuple(sorted(used[call.op]))) for call in found]
    for call in calls:
        for var in call.outputs:
            if not var.dtype.startswith("float"):
                raise NotEmulated(
                    f"`{call.name}` returns numbers of type {var.dtype}, and an emulator predicts "
                    "real ones. Let it return floats."
                )
    return sorted(calls, key=lambda call: call.level)


def _user_op(node):
    """Return the user's Op that a node calls through Python, or None."""
    names = boxes_of_user(node.op)
    if not names:
        return None
    if hasattr(node.op, "inner_outputs"):
        raise NotEmulated(
            f"`{names[0]}` is called in a loop of PyTensor's, where its outputs cannot be "
            "replaced. Let one call compute all that the loop does."
        )
    if is_black_box(node):
        return node.op
    core = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    arrays = (*node.inputs, *node.outputs)
    is_dense = all(isinstance(var.type, TensorType) for var in arrays)
    if not is_dense or core is node.op or has_numba_version(core):
        raise NotEmulated(f"`{names[0]}` is no function from dense arrays to dense arrays.")
    return core


def _check_inputs(name, inputs):
    for var in inputs:
        if not var.dtype.startswith("float"):
            raise NotEmulated(
                f"`{name}` takes numbers of type {var.dtype} that depend on parameters, and an "
                "emulator goes by real ones. Let it take floats."
            )


def _without_padding(var):
    """Return what Blockwise has given further dimensions on the left."""
    op = var.owner and var.owner.op
    if isinstance(op, DimShuffle) and op.is_left_expand_dims:
        return var.owner.inputs[0]
    return var


def _ingredients(var):
    """Return what a variable is made of: values, what is computed from them, shared variables."""
    parts = []
    for part in ancestors([var]):
        if isinstance(part, SharedVariable):
            parts.append(part)
        elif isinstance(part, Constant):
            parts.append(_bytes(part.data))
        elif part.owner is not None:
            parts.append(str(part.owner.op).encode())
    return parts


def _bytes(value):
    value = np.asarray(value)
    return repr((value.dtype.str, value.shape)).encode() + np.ascontiguousarray(value).tobytes()


def _size(shape):
    return int(np.prod(shape, dtype=int))


def _n_named(box):
    return sum(not name.startswith(UNNAMED) for name in box.inputs)


def _table(calls, start):
    """Return the Simulators, and the graphs of each box alone."""
    numbers, boxes, alone, applications, at = {}, [], [], [], [0, 0]
    for call in calls:
        for row in range(call.n_rows(start)):
            key = call.key(row, start)
            b = numbers.setdefault(key, len(boxes))
            if b == len(boxes):
                boxes.append(call.box(row, start))
                alone.append(call.alone(row, start))
            elif row == 0:
                boxes[b] = max(boxes[b], call.box(row, start), key=_n_named)
            box = boxes[b]
            applications.append([b, *at, call.level])
            at = [at[0] + box.p, at[1] + box.q]
    sizes = np.array([[box.p, box.q] for box in boxes], np.int64)
    return Simulators(tuple(boxes), sizes, np.array(applications, np.int64)), alone


# ---- what is found by evaluation ----------------------------------------------------------------


class _Start:
    """Values of calls at the initial point, where black boxes are called once, and near it.

    Where they raise, they are called at points around it.

    Attributes
    ----------
    values : dict
        Of all inputs, and of used outputs, where nothing was raised.
    point : dict
        The initial point.
    n_trials : int
        How often black boxes were called.
    """

    def __init__(self, model, calls, point):
        self.point, self._model, self.n_trials = point, model, 0
        outputs = [var for call in calls for var in (*call.node.inputs, *call.outputs)]
        found = self._values(outputs, calls)
        self.values = {var: np.asarray(v) for var, v in zip(outputs, found, strict=True)}
        # Inputs that depend on no other black box, and what has a name, are known anywhere.
        self._first = [var for call in calls if not call.level for var in call.inputs]
        named = [var for var in model.unobserved_value_vars if _has_value(var)]
        named.sort(key=lambda var: var in model.value_vars)  # natural scales go first
        self._named = {var.name: var for var in named}
        self._inputs = self._function([*self._first, *self._named.values()])
        rng = np.random.default_rng(LOOK_SEED)
        self._looks = [self._near(rng, 0.1) for _ in range(2)]
        self._seen = [self._inputs(look) for look in self._looks]

    def _function(self, outputs):
        with self._model, black_box_ops_silent():
            return self._model.compile_fn(
                outputs,
                inputs=self._model.value_vars,
                point_fn=True,
                mode=Mode("py", "fast_compile"),
                on_unused_input="ignore",
            )

    def _values(self, outputs, calls):
        compute, rng, errors = self._function(outputs), np.random.default_rng(LOOK_SEED), []
        for self.n_trials in range(1, MOST_TRIALS + 1):
            try:
                return compute(self._near(rng, AROUND) if errors else self.point)
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
        sizes = [_size(call.core_shape(var, self)) for var in call.inputs]
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
