"""A PyMC model's log-density and gradient, compiled with one signature for every model."""

import logging
import math
import re
import warnings
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import ClassVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc import compile as pymc_compile
from pytensor.compile import Mode, SharedVariable
from pytensor.gradient import NullTypeGradError
from pytensor.graph import FunctionGraph
from pytensor.graph.basic import equal_computations
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import apply_ancestors, graph_inputs
from pytensor.link.numba.dispatch.basic import numba_funcify
from pytensor.tensor.basic import Split

from pymc_kameleon.core.rows import Rows
from pymc_kameleon.core.target import N_SEEDS, Outputs, Target, address_array, function_address
from pymc_kameleon.findings.finding import say
from pymc_kameleon.model.black_box import Batched, Function
from pymc_kameleon.model.black_box_calls import (
    Noted,
    Recalled,
    taking_notes,
    users_own,
    with_black_boxes,
)
from pymc_kameleon.model.black_boxes import (
    has_numba_version,
    is_of_user,
    ops_of,
    wraps_function,
)
from pymc_kameleon.model.entry_points import (
    black_box_ops_silent,
    checked_ops,
    in_numba,
    logp_and_vector_entry,
    logp_entry,
    python_function,
    python_ops,
    vector_entry,
)
from pymc_kameleon.model.noise import NOISE_SEED
from pymc_kameleon.model.python_calls import advice
from pymc_kameleon.model.watch import Watch, Watched

_log = logging.getLogger("pymc_kameleon")


class Compiled:
    """A PyTensor function of (x, data, shapes), perhaps of v too, as machine code.

    `entry_for` returns its `entry` point with `LOGP_SIGNATURE`, whose `address` is for compiled
    code. `checked_ops` are what numba calls through Python; then `holds_gil` is true.
    """

    def __init__(self, function, entry_for):
        function.trust_input = True
        self.function, self._entry_for = function, entry_for
        self._make_entry()
        self.holds_gil = bool(self.python_ops) or not in_numba(function)

    @property
    def python_ops(self):
        """Names of what runs through Python, each with its Ops, a dict of lists."""
        return python_ops(self.function)

    def _make_entry(self):
        self.checked_ops = checked_ops(self.function)
        with warnings.catch_warnings():  # numba, of large data; then it is compiled by each process
            warnings.filterwarnings("ignore", "Cannot cache compiled function")
            self.entry = self._entry_for(self.function)
        self.address = function_address(self.entry)

    def __getstate__(self):
        """Let the compiled graph travel, so that a worker computes the same to the last bit."""
        left = "entry", "address", "checked_ops"
        state = {k: v for k, v in self.__dict__.items() if k not in left}
        return {"said": Said([*self.python_ops])} | state  # read before the graph is

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._make_entry()


class Said:
    """Names of Ops that are known to run through Python: PyTensor no longer warns of them."""

    def __init__(self, names):
        self.names = names
        for name in names:
            warning = re.escape(f"Numba will use object mode to run {name}'s")
            warnings.filterwarnings("ignore", warning, UserWarning)

    def __reduce__(self):
        return Said, (self.names,)


_known = WeakKeyDictionary()
"""What was compiled for each model, as (what it depends on, results, compiled functions)."""

_said_of = WeakKeyDictionary()
"""The Ops of each model that are known to run through Python, by their names."""

_data_in_use = WeakValueDictionary()
"""Raveled data by fingerprint, so that all steps and chains share them."""


class ModelFunctions:
    """Functions of a model's value variables, compiled with one signature for every model.

    All value variables are raveled into one vector, discrete ones included; all shared variables
    (``pm.Data``) into another. So the compiled functions have the same type for every model, and
    new data need no new compilation. Another step for an unchanged model takes them over.
    `functions`, a list of Compiled, compute `results`.
    """

    what: ClassVar[str]
    kind_of_box: ClassVar[type]

    def __init__(self, value_vars, initial_point, results):
        self.value_vars = value_vars
        self.shapes = [initial_point[var.name].shape for var in value_vars]
        self.shared = _shared_variables(results, self.what)
        self.results = results
        self.read_data()

    @property
    def holds_gil(self):
        """Whether Python is called, so that threads wait for each other."""
        return any(function.holds_gil for function in self.functions)

    @property
    def batched(self):
        """Batched black boxes that it calls, a set."""
        return {op for op in self.users_ops if isinstance(op, Batched)}

    @property
    def users_ops(self):
        """The user's Ops that it calls through Python, a set."""
        graphs = [function.function.maker.fgraph.outputs for function in self.functions]
        ops = {users_own(op) for graph in graphs for op in ops_of(graph)}
        return {op for op in ops if is_of_user(op) and not has_numba_version(op)}

    @property
    def in_numba(self):
        """Whether all of it is machine code, whatever that calls."""
        return all(in_numba(function.function) for function in self.functions)

    def advice(self, error):
        """Return what helps against an exception of a likelihood that Python is called for."""
        ops = [op for function in self.functions for op in function.checked_ops]
        return advice(error, ops) if self.holds_gil else ""

    def follow_data(self):
        """Read the shared variables again if one was set since the last time."""
        if any(
            var.get_value(borrow=True) is not value
            for var, value in zip(self.shared, self._seen, strict=True)
        ):
            self.read_data()

    def read_data(self):
        """Read the shared variables, in case one was set or changed in place."""
        self._seen = [var.get_value(borrow=True) for var in self.shared]
        values = [np.asarray(value) for value in self._seen]
        self.digest = _fingerprint(values)
        self._data = _data_in_use.get(self.digest)
        if self._data is None:
            for var, value in zip(self.shared, values, strict=True):
                _check_exact(var, value, self.what)
            self._data = np.concatenate([np.zeros(0), *(value.ravel() for value in values)])
            _data_in_use[self.digest] = self._data
        self._shapes = np.array([n for value in values for n in value.shape], np.int64)

    def _compile_once(self, model, depends_on, make_graphs, compile_kwargs):
        """Set `functions`: those of an earlier step if what they depend on has not changed since.

        `make_graphs` returns (further inputs, outputs, entry_for) of each.
        """
        depends_on = (type(self), self.value_vars, self.shapes, depends_on, _surroundings())
        depends_on += (dict(compile_kwargs), _constants(self.results))
        known = _known.setdefault(model, [])
        for same, results, functions in known:
            if _equal(same, depends_on) and equal_computations(self.results, results):
                self.functions = functions
                return
        self.functions = [self._compile(model, *graph, compile_kwargs) for graph in make_graphs()]
        _say_what_is_python(model, self.functions)
        known.append((depends_on, self.results, self.functions))

    def _compile(self, model, inputs, outputs, entry_for, compile_kwargs):
        """Compile a function, with numba if that is possible."""
        x = pt.vector("x", shape=(_size(self.shapes),), dtype="float64")
        data = pt.vector("data", dtype="float64")
        shapes = pt.vector("shapes", dtype="int64")
        dynamic, start = [], 0
        for var in self.shared:
            dynamic.append(shapes[start : start + var.type.ndim])
            start += var.type.ndim
        replacements = _slices(self.value_vars, x, self.shapes)
        replacements |= _slices(self.shared, data, dynamic)

        def compiled(**kwargs):
            raveled = clone_replace(outputs, replacements, rebuild_strict=False)
            raveled = with_black_boxes(self.kind_of_box, raveled, x[self._order(model)])
            raveled = _with_slices(raveled)
            return pymc_compile(
                [x, data, shapes, *inputs],
                [result.astype("float64") for result in raveled],
                on_unused_input="ignore",
                **kwargs,
            )

        with model, black_box_ops_silent():  # PyTensor may look at the model
            function = compiled(**compile_kwargs)
            try:
                return Compiled(function, entry_for)
            except Exception as error:  # numba and PyTensor raise many kinds
                first_line = str(error).strip().partition("\n")[0]
                say("runs_in_python", what=self.what, error=first_line)
            in_python = compile_kwargs | {"mode": Mode("cvm", "fast_run")}
            return Compiled(compiled(**in_python), entry_for)

    def _order(self, model):
        """Return where the numbers of a chain's point, in the model's order, are in the vector."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        parts = np.split(np.arange(ends[-1]), ends[:-1])
        place = dict(zip(self.value_vars, parts, strict=True))
        return np.concatenate([place[var] for var in model.value_vars])

    def __getstate__(self):
        """Leave the graphs behind: they are compiled."""
        left = "results", "_seen", "_to_compile"
        return {k: v for k, v in self.__dict__.items() if k not in left}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.read_data()


def _say_what_is_python(model, functions):
    """Log what runs through Python, once for each model."""
    ops = {name: own for f in functions for name, own in f.python_ops.items()}
    said = _said_of.setdefault(model, set())
    for name in sorted(ops.keys() - said):
        op = users_own(ops[name][0]) if ops[name] else None
        if op is None or not wraps_function(op):  # what wraps a function is meant to be called
            _log.info(f"`{name}` has no numba version: it is called through Python.")
    said.update(ops)
    Said([*ops])


class ModelLogp(ModelFunctions):
    """The log-density of a model, for a step, whose `own` variables come first; see `compiled`.

    Outside the `region` (2, d) of these it is -inf. With `derivatives` it has the gradient too;
    with 2, products with the Hessian. The transitions evaluate it at `point` (n,); the last time,
    it was `evaluated_at` (n,), where its `gradient` was written, (d,) or (0,), and its `failure` is
    text if it was rejected. `count` (2,) has evaluations, and of those in compiled code that were
    +inf. The Generator `rng` of the chain draws the seed of an estimate, which else stays as it is.
    """

    what, kind_of_box, n_trials = "The model's log-density", Noted, 0
    emulates = ""  # which black boxes of it are emulated, in words
    rejects_errors = False  # of any kind, beside what black boxes say of theirs

    def __init__(self, model, own, initial_point, compile_kwargs, region, derivatives=0):
        logp = model.logp()
        gradient_size = region.shape[1] if derivatives else 0
        self._begin(model, own, initial_point, logp, region, gradient_size)

        def graphs():
            if not derivatives:
                return [([], [logp], logp_entry)]
            gradient = _gradient(logp, own)
            functions = [([], [logp, gradient], logp_and_vector_entry)]
            if derivatives > 1:
                v = pt.vector("v", shape=self.gradient.shape, dtype="float64")
                product = _gradient(pt.dot(gradient, v), own)
                functions.append(([v], [product], vector_entry))
            return functions

        self._to_compile = model, (own, derivatives), graphs, compile_kwargs

    def compiled(self):
        """Compile it, unless an earlier step's holds; return it."""
        if not self.functions:
            self._compile_once(*self._to_compile)
            self.begin_watch()
        return self

    def _begin(self, model, own, initial_point, logp, region, gradient_size):
        value_vars = [*own, *(var for var in model.value_vars if var not in own)]
        super().__init__(value_vars, initial_point, [logp])
        self.region, self.rng, self.functions = region, None, []
        self._allocate(gradient_size)
        self.begin_watch()

    def _compile(self, model, inputs, outputs, entry_for, compile_kwargs):
        compiled = super()._compile(model, inputs, outputs, entry_for, compile_kwargs)
        is_density = entry_for in (logp_entry, logp_and_vector_entry)
        return Watched(compiled) if is_density and compiled.holds_gil else compiled

    def _allocate(self, gradient_size):
        self.point = self.evaluated_at = np.zeros(_size(self.shapes))
        self.count = np.zeros(2, np.int64)
        self.gradient = np.zeros(gradient_size)

    @property
    def is_watched(self):
        """Whether each evaluation is seen by Python."""
        return isinstance(next(iter(self.functions), None), Watched)

    @cached_property
    def _on_failure(self):
        return [op.on_failure for op in self.users_ops if isinstance(op, Function)]

    @property
    def looks_again(self):
        """Whether points are evaluated again, to see whether it repeats itself."""
        return self.is_watched and all(own.check_repeatable for own in self._on_failure)

    @property
    def has_timeout(self):
        """Whether calls of some black box may be stopped."""
        return any(own.timeout is not None for own in self._on_failure)

    def begin_watch(self):
        """Forget what was seen of it."""
        self.watch, self.failure = Watch.fresh(self.point.size if self.is_watched else 0), ""

    def copy(self):
        """Return the same function with arrays of its own, for another chain."""
        twin = object.__new__(type(self))  # copy.copy would compile anew
        twin.__dict__.update(self.__dict__)
        twin.rng = None
        twin._allocate(self.gradient.size)
        twin.begin_watch()
        twin._own_seed()
        return twin

    def read_data(self):
        """Read the shared variables, in case one was set or changed in place."""
        super().read_data()
        self._own_seed()

    def _own_seed(self):
        """Give the seed of an estimate a place of its own: other chains share the other data."""
        self.seed = np.zeros(0)
        place = 0
        for var in self.shared:
            if var.name == NOISE_SEED:
                self._data = self._data.copy()
                self.seed = self._data[place : place + 1]
                self.seed[:] = 0.0
            place += var.get_value(borrow=True).size

    @property
    def is_estimate(self):
        """Whether it depends on a seed."""
        return self.seed.size > 0

    def target(self, rng):
        """Return what the compiled transitions call, with the chain's Generator, in this thread."""
        if self.is_watched:
            self.functions[0].watch_for(self)
        address, *others = [function.address for function in self.functions] or [0]
        return Target(
            address,
            self.point,
            self._data,
            self._shapes,
            self.region,
            self.count,
            self.gradient,
            address_array(others),
            self.seed,
            rng,
        )

    def __call__(self, x):
        """Log-density at the raveled point `x`, from Python; NaN and +inf count as -inf."""
        if not self.inside(x):
            self.gradient[:] = np.nan  # that of another point must not be taken for it
            return -np.inf
        self.count[0] += 1
        if self.rng is not None:
            self.seed[:] = N_SEEDS * self.rng.random(self.seed.size)
        self.evaluated_at = x = np.ascontiguousarray(x, np.float64)
        if self.is_watched:
            self.functions[0].watch_for(self)
        logp = self.functions[0].entry(x, self._data, self._shapes, self.gradient)
        return logp if logp < np.inf else -np.inf

    def inside(self, x):
        """Whether the raveled point lies in the region."""
        own = x[: self.region.shape[1]]
        return bool(np.all((self.region[0] <= own) & (own <= self.region[1])))


class ModelOutputs(ModelFunctions):
    """What is kept of each draw: free variables on their natural scale, and deterministics.

    `names` are some of the model's ``unobserved_value_vars``, and `known` Notes of the initial
    point. It `recalls` if it depends on black boxes, of whose calls notes should be taken.
    `own_calls` are those that it has to make for each draw, and `looped` black boxes in loops,
    which are not noted.
    """

    what, kind_of_box = "What is kept of each draw", Recalled

    def __init__(self, model, names, initial_point, compile_kwargs, known=()):
        every = {var.name: var for var in model.unobserved_value_vars}
        results = [every[name] for name in names]
        super().__init__(model.value_vars, initial_point, results)
        for name, result in zip(names, results, strict=True):
            if result.dtype.startswith("complex"):
                raise ValueError(
                    f"{name} is complex, and cannot be kept: leave it out by var_names."
                )
        shapes = self._at_start(model, names, results, initial_point, known)
        self.variables = {
            name: (tuple(int(length) for length in shape), np.dtype(result.dtype))
            for name, shape, result in zip(names, shapes, results, strict=True)
        }
        self._rows = Rows(self.variables)
        self.n = self._rows.end
        together = pt.concatenate([np.zeros(0), *(result.ravel() for result in results)])
        unused = pt.vector("v", dtype="float64")
        graphs = [([unused], [together], vector_entry)]
        self._compile_once(model, names, lambda: graphs, compile_kwargs)
        self.looped = [
            name
            for name, ops in self.functions[0].python_ops.items()
            if any(is_of_user(op) and op is users_own(op) for op in ops)
        ]

    def _at_start(self, model, names, results, initial_point, known):
        """Return the shapes there; set `recalls` and `own_calls`."""
        point = pt.concatenate([var.ravel().astype("float64") for var in model.value_vars])
        results = with_black_boxes(Recalled, results, point)
        boxes = [node for node in apply_ancestors(results) if isinstance(node.op, Recalled)]
        self.recalls = bool(boxes)
        start = np.concatenate([np.ravel(initial_point[var.name]) for var in model.value_vars])
        with taking_notes(start.astype(np.float64), known) as notes:
            try:
                shapes = python_function(model, [r.shape for r in results])(initial_point)
            except Exception as error:
                error.add_note(
                    f"At the model's initial point, {initial_point}, where the shapes of what is "
                    "kept are found. Give it another one (initval=... of its variables), at which "
                    "the likelihood raises nothing."
                )
                raise
            if known:
                outputs = [out for box in boxes for out in box.outputs]
                with suppress(Exception):  # of a start that is no good
                    python_function(model, outputs)(initial_point)
        self.own_calls = {
            str(missing): [
                name
                for name, result in zip(names, results, strict=True)
                if any(node.op is missing for node in apply_ancestors([result]))
            ]
            for missing in notes.missing
        }
        return shapes

    def fits(self, names):
        """Read the data again; return whether it computes these names, and shapes are the same."""
        before = self._shapes
        self.read_data()
        return list(self.variables) == list(names) and np.array_equal(before, self._shapes)

    def into(self, rows):
        """Return what compiled code needs to write the outputs of draws into `rows`."""
        return Outputs(self.functions[0].address, self._data, self._shapes, rows)

    def rows(self, points):
        """Return the outputs at points (m, n), raveled, (m, outputs)."""
        rows = np.zeros((len(points), self.n))
        for point, row in zip(np.ascontiguousarray(points), rows, strict=True):
            self.functions[0].entry(point, self._data, self._shapes, row)
        return rows

    def at(self, point):
        """Return the outputs at a chain's point (n,), by name."""
        return {name: values[0] for name, values in self.named(self.rows(point[None])).items()}

    def named(self, rows):
        """Return the outputs of draws by name, each of shape (draws, ...)."""
        return self._rows.named(rows)


def _size(shapes):
    return sum(math.prod(shape) for shape in shapes)


def _gradient(scalar, own):
    """Return the gradient with respect to the step's own variables, raveled."""
    try:
        parts = pt.grad(scalar, own, disconnected_inputs="ignore")
    except (NotImplementedError, NullTypeGradError) as error:
        raise ValueError(
            "The model's log-density has no gradient, which this sampler needs. pk.GAM and pk.KAM "
            f"need none. PyTensor says: {str(error).strip().partition(chr(10))[0]}"
        ) from error
    return pt.concatenate([part.ravel() for part in parts])


def has_gradient(model):
    """Whether PyTensor has the gradient of a model's log-density."""
    try:
        _gradient(model.logp(), model.continuous_value_vars)
    except ValueError:
        return False
    return True


def _shared_variables(results, what):
    shared = [var for var in graph_inputs(results) if isinstance(var, SharedVariable)]
    for var in shared:
        value = var.get_value(borrow=True)
        if isinstance(value, np.random.Generator):
            raise ValueError(
                f"{what} depends on random numbers (pm.Minibatch?). So it is noisy, and the "
                "sampler would not converge to the posterior."
            )
        if np.asarray(value).dtype.kind not in "biuf":
            raise ValueError(
                f"{what} depends on the shared variable {var.name or var!r} of type {var.type}, "
                "which is not a dense numerical array. Make it a constant, or dense."
            )
    return shared


def _fingerprint(arrays):
    digest = sha256()
    for array in arrays:
        digest.update(repr((array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array))
    return digest.digest()


def _slices(variables, vector, shapes):
    """Map each variable to its part of `vector`."""
    replacements, start = {}, 0
    for var, shape in zip(variables, shapes, strict=True):
        size = pt.prod(shape, dtype="int64") if isinstance(shape, pt.TensorVariable) else None
        if size is None:
            size = int(np.prod(shape, dtype=int))
        part = vector[start : start + size].reshape(shape, ndim=var.type.ndim).astype(var.dtype)
        replacements[var] = var.type.filter_variable(part)
        start = start + size
    return replacements


def _with_slices(results):
    """Return `results` with slices in place of Split, which numba needs 5 s to compile."""
    graph = FunctionGraph(outputs=results, clone=False)
    for node in graph.toposort():
        if isinstance(node.op, Split):
            (whole, sizes), end, before = node.inputs, 0, (slice(None),) * node.op.axis
            for k, part in enumerate(node.outputs):
                start, end = end, end + sizes[k]
                new = part.type.filter_variable(whole[(*before, slice(start, end))])
                graph.replace(part, new, import_missing=True)
    return graph.outputs


def _equal(a, b):
    try:
        return bool(a == b)
    except ValueError:  # options that are arrays
        return False


def _constants(results):
    """Return a digest of the graph's constants: PyTensor does not copy them, so they may change."""
    data = [getattr(var, "data", None) for var in graph_inputs(results)]
    return _fingerprint(v for v in data if isinstance(v, np.ndarray) and v.dtype.kind in "biufc")


def _surroundings():
    """Return what else PyTensor's compiler goes by: its configuration, and Ops that numba knows."""
    flags = ("mode", "linker", "optimizer", "optimizer_including", "optimizer_excluding")
    values = tuple(str(getattr(pytensor.config, flag)) for flag in flags)
    return (*values, pytensor.config.numba__fastmath, len(numba_funcify.registry))


def _check_exact(var, value, what):
    if value.dtype.kind in "iu" and value.size and (value.max() > 2**53 or value.min() < -(2**53)):
        raise ValueError(
            f"{what} depends on {var.name or var!r}, which has integers beyond 2**53. They would "
            "be rounded. Make it a constant of the model, or smaller."
        )
