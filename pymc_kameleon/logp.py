"""A PyMC model's log-density, compiled with one signature for every model."""

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
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import graph_inputs

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
    """

    def __init__(self, model, own, initial_point, compile_kwargs, region):
        self.value_vars = [*own, *(var for var in model.value_vars if var not in own)]
        size = sum(initial_point[var.name].size for var in self.value_vars)
        self.point = np.zeros(size)
        self.region = region
        self.count = np.zeros(1, np.int64)
        logp = model.logp()
        self.shared = _shared_variables(logp)
        self.read_data()
        self._compile(model, logp, initial_point, compile_kwargs)

    @property
    def target(self):
        """What the compiled transitions call."""
        return Target(self._address, self.point, self._data, self._shapes, self.region, self.count)

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
        logp = self._logp(np.ascontiguousarray(x, np.float64), self._data, self._shapes)
        return logp if logp < np.inf else -np.inf

    def inside(self, x):
        """Whether the raveled point lies in the region."""
        own = x[: self.region.shape[1]]
        return bool(np.all((self.region[0] <= own) & (own <= self.region[1])))

    def __getstate__(self):
        """Let the compiled graph travel, so that a worker computes the same to the last bit."""
        return {k: v for k, v in self.__dict__.items() if k not in ("_logp", "_address", "_seen")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.read_data()
        self._make_callable()

    def _compile(self, model, logp, initial_point, compile_kwargs):
        x = pt.vector("x", shape=self.point.shape, dtype="float64")
        data = pt.vector("data", dtype="float64")
        shapes = pt.vector("shapes", dtype="int64")
        static = [initial_point[var.name].shape for var in self.value_vars]
        dynamic, start = [], 0
        for var in self.shared:
            dynamic.append(shapes[start : start + var.type.ndim])
            start += var.type.ndim
        replacements = _slices(self.value_vars, x, static) | _slices(self.shared, data, dynamic)
        [raveled] = clone_replace([logp], replacements, rebuild_strict=False)
        inputs, output = [x, data, shapes], raveled.astype("float64")

        def compile_logp(**kwargs):
            with model, black_box_ops_named():
                function = pymc_compile(inputs, output, on_unused_input="ignore", **kwargs)
            function.trust_input = True
            return function

        self._function = compile_logp(**compile_kwargs)
        try:
            self._make_callable()
        except Exception as error:  # numba and PyTensor raise many kinds
            _log.warning(
                "The model's log-density runs through Python, which is slower: %s",
                str(error).strip().partition("\n")[0],
            )
            self._function = compile_logp(**compile_kwargs | {"mode": Mode("cvm", "fast_run")})
            self._make_callable()

    def _make_callable(self):
        """Wrap the PyTensor function so that compiled code can call it."""
        if hasattr(self._function.vm, "jit_fn"):
            self._logp = _numba_logp(self._function.vm.jit_fn)
        else:
            self._logp = _python_logp(self._function)
        self._address = function_address(self._logp)


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
    def logp(x, data, shapes):
        return jit_fn(x, data, shapes)[0].item()

    return logp


def _python_logp(function):
    @numba.njit(LOGP_SIGNATURE)
    def logp(x, data, shapes):
        with numba.objmode(value="float64"):
            value = float(function(x, data, shapes))
        return value

    return logp
