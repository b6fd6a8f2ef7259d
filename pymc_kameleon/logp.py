"""A PyMC model's log-density and gradient, compiled with one signature for every model."""

import logging
import math
import re
import warnings
from contextlib import contextmanager
from hashlib import sha256
from typing import ClassVar

import numba
import numpy as np
import pytensor.tensor as pt
from pymc import compile as pymc_compile
from pytensor.compile import Mode, SharedVariable
from pytensor.gradient import NullTypeGradError
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs

from pymc_kameleon.core import linalg
from pymc_kameleon.core.target import LOGP_SIGNATURE, Outputs, Target, function_address

_log = logging.getLogger("pymc_kameleon")


class ModelFunctions:
    """Functions of a model's value variables, compiled with one signature for every model.

    All value variables are raveled into one vector, discrete ones included; all shared variables
    (``pm.Data``) into another. So the compiled functions have the same type for every model, and
    new data need no new compilation.

    Parameters
    ----------
    value_vars : list
        All value variables, in the order of the vector.
    initial_point : dict
        Gives their shapes.
    results : list of pytensor variables
        What is computed from them.

    Attributes
    ----------
    shapes : list of tuple
        Of the value variables.
    digest : bytes
        Fingerprint of the data.
    holds_gil : bool
        Whether Python is called, so that threads wait for each other.
    """

    what: ClassVar[str]

    def __init__(self, value_vars, initial_point, results):
        self.value_vars = value_vars
        self.shapes = [initial_point[var.name].shape for var in value_vars]
        self.shared = _shared_variables(results, self.what)
        self.holds_gil = False
        self.read_data()

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
        self._data = np.concatenate([np.zeros(0), *(value.ravel() for value in values)])
        shapes = [length for value in values for length in value.shape]
        self._shapes = np.array(shapes, np.int64)
        self.digest = sha256(self._data.tobytes() + self._shapes.tobytes()).digest()

    def _compile(self, model, graphs, compile_kwargs):
        """Compile functions, each of (further inputs, results), with numba if that is possible."""
        x = pt.vector("x", shape=(_size(self.shapes),), dtype="float64")
        data = pt.vector("data", dtype="float64")
        shapes = pt.vector("shapes", dtype="int64")
        dynamic, start = [], 0
        for var in self.shared:
            dynamic.append(shapes[start : start + var.type.ndim])
            start += var.type.ndim
        replacements = _slices(self.value_vars, x, self.shapes)
        replacements |= _slices(self.shared, data, dynamic)

        def compile_graph(inputs, results, **kwargs):
            raveled = clone_replace(results, replacements, rebuild_strict=False)
            results = [result.astype("float64") for result in raveled]
            inputs = [x, data, shapes, *inputs]
            with model, black_box_ops_named() as names:
                function = pymc_compile(inputs, results, on_unused_input="ignore", **kwargs)
            self.holds_gil |= bool(names) or not hasattr(function.vm, "jit_fn")
            function.trust_input = True
            return function

        self._functions = [compile_graph(*graph, **compile_kwargs) for graph in graphs]
        try:
            self._make_callable()
        except Exception as error:  # numba and PyTensor raise many kinds
            _log.warning(
                "%s runs through Python, which is slower: %s",
                self.what,
                str(error).strip().partition("\n")[0],
            )
            in_python = compile_kwargs | {"mode": Mode("cvm", "fast_run")}
            self._functions = [compile_graph(*graph, **in_python) for graph in graphs]
            self._make_callable()

    def _make_callable(self):
        """Wrap the PyTensor functions so that compiled code can call them."""
        with warnings.catch_warnings():  # numba, of large data; it is not PyTensor's to be cached
            warnings.filterwarnings("ignore", "Cannot cache compiled function")
            self._wrap_functions()


class ModelLogp(ModelFunctions):
    """The log-density of a model, for the transitions of one step.

    Parameters
    ----------
    model : pm.Model
    own : list of value variables
        Those that the step moves; they come first in the vector.
    initial_point : dict
        Gives the shapes of the value variables.
    compile_kwargs : dict
        Passed to ``pymc.pytensorf.compile``.
    region : (2, d) float64
        Where the step's own variables may be; elsewhere the log-density is -inf.
    derivatives : int
        1 to have the gradient too, 2 for products with the Hessian.

    Attributes
    ----------
    point : (n,) float64
        Where the transitions evaluate it.
    asked : (n,) float64
        Where Python evaluated it last.
    count : (1,) int64
        Number of evaluations, here and in compiled code.
    gradient : (d,) or (0,) float64
        Gradient with respect to the step's own variables, where it was evaluated last.
    """

    what = "The model's log-density"

    def __init__(self, model, own, initial_point, compile_kwargs, region, derivatives=0):
        logp = model.logp()
        value_vars = [*own, *(var for var in model.value_vars if var not in own)]
        super().__init__(value_vars, initial_point, [logp])
        self.region = region
        self._allocate(gradient_size=region.shape[1] if derivatives else 0)
        graphs = [([], [logp])]
        if derivatives:
            gradient = _gradient(logp, own)
            graphs[0][1].append(gradient)
        if derivatives > 1:
            v = pt.vector("v", shape=self.gradient.shape, dtype="float64")
            graphs.append(([v], [_gradient(pt.dot(gradient, v), own)]))
        self._compile(model, graphs, compile_kwargs)

    def _allocate(self, gradient_size):
        self.point = self.asked = np.zeros(_size(self.shapes))
        self.count = np.zeros(1, np.int64)
        self.gradient = np.zeros(gradient_size)

    def copy(self):
        """Return the same function with arrays of its own, for another chain."""
        twin = object.__new__(ModelLogp)  # copy.copy would compile anew
        twin.__dict__.update(self.__dict__)
        twin._allocate(self.gradient.size)
        return twin

    @property
    def target(self):
        """What the compiled transitions call."""
        return Target(
            self._address,
            self.point,
            self._data,
            self._shapes,
            self.region,
            self.count,
            self.gradient,
            self._curvature_address,
        )

    def __call__(self, x):
        """Log-density at the raveled point `x`, from Python; NaN and +inf count as -inf."""
        if not self.inside(x):
            return -np.inf
        self.count[0] += 1
        self.asked = x = np.ascontiguousarray(x, np.float64)
        logp = self._logp(x, self._data, self._shapes, self.gradient)
        return logp if logp < np.inf else -np.inf

    def inside(self, x):
        """Whether the raveled point lies in the region."""
        own = x[: self.region.shape[1]]
        return bool(np.all((self.region[0] <= own) & (own <= self.region[1])))

    def __getstate__(self):
        """Let the compiled graph travel, so that a worker computes the same to the last bit."""
        machine_code = ("_logp", "_address", "_curvature", "_curvature_address")
        return {k: v for k, v in self.__dict__.items() if k not in (*machine_code, "_seen")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.read_data()
        self._make_callable()

    def _wrap_functions(self):
        function, *curvature = self._functions
        if not hasattr(function.vm, "jit_fn"):
            self._logp = _python_logp(function)
        elif self.gradient.size:
            self._logp = _numba_logp_and_gradient(function.vm.jit_fn)
        else:
            self._logp = _numba_logp(function.vm.jit_fn)
        self._address = function_address(self._logp)
        self._curvature, self._curvature_address = None, 0
        if curvature:
            self._curvature = _vector_function(*curvature)
            self._curvature_address = function_address(self._curvature)


class ModelOutputs(ModelFunctions):
    """What is kept of each draw: free variables on their natural scale, and deterministics.

    Parameters
    ----------
    model : pm.Model
    names : list of str
        Of some of its ``unobserved_value_vars``.
    initial_point : dict
        Where their shapes are computed.
    compile_kwargs : dict
        Passed to ``pymc.pytensorf.compile``.
    """

    what = "What is kept of each draw"

    def __init__(self, model, names, initial_point, compile_kwargs):
        known = {var.name: var for var in model.unobserved_value_vars}
        results = [known[name] for name in names]
        super().__init__(model.value_vars, initial_point, results)
        for name, result in zip(names, results, strict=True):
            if result.dtype.startswith("complex"):
                raise ValueError(f"{name} is complex, which cannot be kept: leave it to var_names.")
        shapes = model.compile_fn(
            [result.shape for result in results],
            inputs=model.value_vars,
            point_fn=True,
            mode=Mode("py", "fast_compile"),
            on_unused_input="ignore",
        )(initial_point)
        self.variables = {
            name: (tuple(int(length) for length in shape), np.dtype(result.dtype))
            for name, shape, result in zip(names, shapes, results, strict=True)
        }
        self.n = _size(shape for shape, _ in self.variables.values())
        together = pt.concatenate([np.zeros(0), *(result.ravel() for result in results)])
        unused = pt.vector("v", dtype="float64")
        self._compile(model, [([unused], [together])], compile_kwargs)

    def _wrap_functions(self):
        self._write = _vector_function(*self._functions)
        self._address = function_address(self._write)

    def fits(self, names):
        """Read the data again; return whether it computes these names, and shapes are the same."""
        before = self._shapes
        self.read_data()
        return list(self.variables) == list(names) and np.array_equal(before, self._shapes)

    def into(self, rows):
        """Return what compiled code needs to write the outputs of draws into `rows`."""
        return Outputs(self._address, self._data, self._shapes, rows)

    def named(self, rows):
        """Return the outputs of draws by name, each of shape (draws, ...)."""
        named, start = {}, 0
        for name, (shape, dtype) in self.variables.items():
            stop = start + math.prod(shape)
            named[name] = rows[:, start:stop].reshape(len(rows), *shape).astype(dtype, copy=False)
            start = stop
        return named


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
                "which is no dense numerical array. Make it a constant, or dense."
            )
    return shared


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


@contextmanager
def black_box_ops_named():
    """Say in the log, once, which Ops run through Python; PyTensor warns of each several times.

    Fills the list that it yields with their names.
    """
    names = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield names
    of_ops = [re.search("object mode to run (.*)'s perform", str(w.message)) for w in caught]
    names += sorted({found[1] for found in of_ops if found})
    if names:
        _log.info("No numba version of %s: called through Python.", ", ".join(names))
    for warning, found in zip(caught, of_ops, strict=True):
        if not found:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def _numba_logp(jit_fn):
    @numba.njit(LOGP_SIGNATURE)
    def logp(x, data, shapes, gradient):
        return jit_fn(x, data, shapes)[0].item()

    return logp


def _numba_logp_and_gradient(jit_fn):
    @numba.njit(LOGP_SIGNATURE)
    def logp(x, data, shapes, gradient):
        value, slope = jit_fn(x, data, shapes)
        linalg.copy(slope, gradient)
        return value.item()

    return logp


def _python_logp(function):
    @numba.njit(LOGP_SIGNATURE)
    def logp(x, data, shapes, gradient):
        with numba.objmode(value="float64"):
            values = function(x, data, shapes)
            value = float(values[0])
            if gradient.size:
                gradient[:] = values[1]
        return value

    return logp


def _vector_function(function):
    """Return a function that replaces its last argument; a graph may take that as an input."""
    if not hasattr(function.vm, "jit_fn"):
        return _python_vector_function(function)
    jit_fn = function.vm.jit_fn

    @numba.njit(LOGP_SIGNATURE)
    def vector_function(x, data, shapes, v):
        linalg.copy(jit_fn(x, data, shapes, v)[0], v)
        return 0.0

    return vector_function


def _python_vector_function(function):
    @numba.njit(LOGP_SIGNATURE)
    def vector_function(x, data, shapes, v):
        with numba.objmode():
            v[:] = function(x, data, shapes, v)[0]
        return 0.0

    return vector_function
