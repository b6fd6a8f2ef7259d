"""Calls of black boxes in the graph of a model's log-density: which they are, and of what inputs.

Shapes and values near the initial point are those of `start`, as in simulators.py, with symbols.
"""

from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Apply, Op
from pytensor.graph.replace import clone_replace
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.type import TensorType

from pymc_kameleon.model.black_box_calls import is_black_box
from pymc_kameleon.model.black_boxes import boxes_of_user, has_numba_version, name_of
from pymc_kameleon.model.layout import elements

UNNAMED = "input "
"""What inputs without a name are called, followed by their place."""


REPEATED = 3
"""Inputs for each distinct one, beyond which as many coordinates are taken instead. Below, it is
worth more that calls of the same function share an emulator."""


class NotEmulated(ValueError):
    """Why a model's black boxes cannot be emulated, after `n_trials` evaluations of it."""

    n_trials = 0


def boxes_called(graph, value_vars):
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


class Box(NamedTuple):
    """A black box with certain constants."""

    name: str
    p: int
    q: int
    inputs: tuple  # p names: of variables and coordinates where they are one, or "input 3"
    takes_coordinates: bool  # whether its inputs are coordinates of z, instead of its own

    @property
    def n_named(self):
        """How many inputs are variables or coordinates."""
        return sum(not name.startswith(UNNAMED) for name in self.inputs)


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
        return sum(self.sizes(start))

    def sizes(self, start):
        """Return how many numbers each input has in one row."""
        return [_size(self.core_shape(var, start)) for var in self.inputs]

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

        Inputs that equal others count once, unless they are many: a parameter that is repeated for
        each trial would be an input for each.
        """
        mixed = any(not v.dtype.startswith("float") for v in self.variables)
        if self.level or self._batch_ndim or mixed:
            return self
        n_distinct = start.n_distinct(self)
        are_repeated = self.p(start) > REPEATED * n_distinct
        if n_distinct < 2 - are_repeated:
            return self
        found = start.coordinates(self)
        is_better = len(found) < n_distinct + are_repeated
        return self._replace(coordinates=found) if is_better else self

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

    def box(self, start):
        """Return the Box that it applies."""
        if self.coordinates:
            variables = dict(self.coordinates)
            shapes = {var: np.shape(start.point[var.name]) for var in variables}
            names = [elements(var.name, shapes[var])[i] for var, i in self.coordinates]
        else:
            names = start.names(self)
        return Box(self.name, self.p(start), self.q(start), tuple(names), bool(self.coordinates))

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


def _without_padding(var):
    """Return what Blockwise has given further dimensions on the left."""
    op = var.owner and var.owner.op
    if isinstance(op, DimShuffle) and op.is_left_expand_dims:
        return var.owner.inputs[0]
    return var


def _size(shape):
    return int(np.prod(shape, dtype=int))
