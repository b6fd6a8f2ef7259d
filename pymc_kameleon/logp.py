"""A PyMC model's log-density and gradient, compiled with one signature for every model."""

import logging
import re
import warnings
from contextlib import contextmanager
from hashlib import sha256

import numba
import numpy as np
import pytensor.tensor as pt
from pymc.pytensorf import compile as pymc_compile
from pytensor.compile import Mode, SharedVariable
from pytensor.gradient import NullTypeGradError
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs

from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.target import LOGP_SIGNATURE, Target, function_address

_log = logging.getLogger("pymc_kameleon")


class ModelLogp:
    """The log-density of a model, for the transitions of one step.

    All value variables are raveled into one vector, the step's own first, discrete ones included;
    all shared variables (``pm.Data``) into another. So the compiled function has the same type for
    every model, and new data need no new compilation.

    Parameters
    ----------
    model : pm.Model
    own : list of value variables
        Those that the step moves.
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
    value_vars : list
        All value variables, in the order of the vector.
    point : (n,) float64
        Where the transitions evaluate it.
    digest : bytes
        Fingerprint of the data.
    count : (1,) int64
        Number of evaluations, here and in compiled code.
    gradient : (d,) or (0,) float64
        Gradient with respect to the step's own variables, where it was evaluated last.
    """

    def __init__(self, model, own, initial_point, compile_kwargs, region, derivatives=0):
        self.value_vars = [*own, *(var for var in model.value_vars if var not in own)]
        size = sum(initial_point[var.name].size for var in self.value_vars)
        self.point = np.zeros(size)
        self.region = region
        self.count = np.zeros(1, np.int64)
        self.gradient = np.zeros(region.shape[1] if derivatives else 0)
        logp = model.logp()
        self.shared = _shared_variables(logp)
        self.read_data()
        self._compile(model, own, logp, initial_point, compile_kwargs, derivatives)

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

    def __call__(self, x):
        """Log-density at the raveled point `x`, from Python; NaN and +inf count as -inf."""
        if not self.inside(x):
            return -np.inf
        self.count[0] += 1
        x = np.ascontiguousarray(x, np.float64)
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

    def _compile(self, model, own, logp, initial_point, compile_kwargs, derivatives):
        x = pt.vector("x", shape=self.point.shape, dtype="float64")
        data = pt.vector("data", dtype="float64")
        shapes = pt.vector("shapes", dtype="int64")
        v = pt.vector("v", shape=self.gradient.shape, dtype="float64")
        static = [initial_point[var.name].shape for var in self.value_vars]
        dynamic, start = [], 0
        for var in self.shared:
            dynamic.append(shapes[start : start + var.type.ndim])
            start += var.type.ndim
        replacements = _slices(self.value_vars, x, static) | _slices(self.shared, data, dynamic)

        def compile_graphs(**kwargs):
            """Return functions of the log-density, perhaps with its gradient, and of Hv."""
            graphs = [([x, data, shapes], [logp])]
            if derivatives:
                gradient = _gradient(logp, own)
                graphs[0][1].append(gradient)
            if derivatives > 1:
                product = _gradient(pt.dot(gradient, v), own)
                graphs.append(([x, data, shapes, v], [product]))
            return [compile_graph(*graph, **kwargs) for graph in graphs]

        def compile_graph(inputs, outputs, **kwargs):
            raveled = clone_replace(outputs, replacements, rebuild_strict=False)
            outputs = [output.astype("float64") for output in raveled]
            with model, black_box_ops_named():
                function = pymc_compile(inputs, outputs, on_unused_input="ignore", **kwargs)
            function.trust_input = True
            return function

        self._functions = compile_graphs(**compile_kwargs)
        try:
            self._make_callable()
        except Exception as error:  # numba and PyTensor raise many kinds
            _log.warning(
                "The model's log-density runs through Python, which is slower: %s",
                str(error).strip().partition("\n")[0],
            )
            self._functions = compile_graphs(**compile_kwargs | {"mode": Mode("cvm", "fast_run")})
            self._make_callable()

    def _make_callable(self):
        """Wrap the PyTensor functions so that compiled code can call them."""
        with warnings.catch_warnings():  # numba, of large data; it is not PyTensor's to be cached
            warnings.filterwarnings("ignore", "Cannot cache compiled function")
            self._wrap_functions()

    def _wrap_functions(self):
        function, *curvature = self._functions
        in_numba = hasattr(function.vm, "jit_fn")
        if in_numba:
            wrap = _numba_logp_and_gradient if self.gradient.size else _numba_logp
            self._logp = wrap(function.vm.jit_fn)
        else:
            self._logp = _python_logp(function)
        self._address = function_address(self._logp)
        self._curvature, self._curvature_address = None, 0
        if curvature:
            [function] = curvature
            wrap = _numba_curvature if in_numba else _python_curvature
            self._curvature = wrap(function.vm.jit_fn if in_numba else function)
            self._curvature_address = function_address(self._curvature)


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


def _shared_variables(logp):
    shared = [var for var in graph_inputs([logp]) if isinstance(var, SharedVariable)]
    for var in shared:
        value = var.get_value(borrow=True)
        if isinstance(value, np.random.Generator):
            raise ValueError(
                "The model's log-density depends on random numbers (pm.Minibatch?). So it is "
                "noisy, and the sampler would not converge to the posterior."
            )
        if np.asarray(value).dtype.kind not in "biuf":
            raise ValueError(
                f"The model's log-density depends on the shared variable {var.name or var!r} of "
                f"type {var.type}, which is no dense numerical array. Make it a constant, or dense."
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
    """Say in the log, once, which Ops run through Python; PyTensor warns of each several times."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    of_ops = [re.search("object mode to run (.*)'s perform", str(w.message)) for w in caught]
    names = sorted({found[1] for found in of_ops if found})
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
        copy(slope, gradient)
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


def _numba_curvature(jit_fn):
    @numba.njit(LOGP_SIGNATURE)
    def curvature(x, data, shapes, v):
        copy(jit_fn(x, data, shapes, v)[0], v)
        return 0.0

    return curvature


def _python_curvature(function):
    @numba.njit(LOGP_SIGNATURE)
    def curvature(x, data, shapes, v):
        with numba.objmode():
            v[:] = function(x, data, shapes, v)[0]
        return 0.0

    return curvature
