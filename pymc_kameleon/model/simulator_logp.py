"""The log-density of a model with simulators: as it is, and without them for an emulator.

Four compiled functions share the one signature of log-densities, ``f(z, data, shapes, last)``:

* truth returns log π(z), for which it calls the black boxes, and writes their outputs y into
  `last`, (Q,). All that watches a log-density watches it.
* the other three call no black box, and share a *tape*: y (Q), x (P), ȳ (Q), x̄ (P), z̄ (d), one
  after the other, where a bar is the derivative of log π(z, y) by what is under it.
  - inputs reads y, and writes x(z, y). It needs of y what feeds other black boxes.
  - density reads y, returns log π(z, y), and writes ȳ and z̄, with the other one held fixed.
  - pullback reads y and x̄, and adds x̄ᵀ∂x/∂y to ȳ, and x̄ᵀ∂x/∂z to z̄.

With an emulator y = e(x), and x̄ = ȳᵀ∂e/∂x between density and pullback, z̄ becomes the gradient of
log π(z, e(x(z))) by the step's own variables. Symbols as in simulators.py.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from numba import config
from pytensor import function
from pytensor.compile import Mode
from pytensor.gradient import NullTypeGradError

from pymc_kameleon.core.conventions import ROOT_EPS
from pymc_kameleon.findings.words import counted
from pymc_kameleon.model.black_boxes import with_coarse_models
from pymc_kameleon.model.entry_points import (
    black_box_ops_silent,
    density_entry,
    inputs_entry,
    logp_and_vector_entry,
    pullback_entry,
)
from pymc_kameleon.model.functions import ModelLogp
from pymc_kameleon.model.simulator_calls import NotEmulated
from pymc_kameleon.model.simulators import cut_of, returns_loglikelihood

TRUTH, INPUTS, DENSITY, PULLBACK = range(4)
"""Places among the functions."""

SHIFTS = (0.1, 1.0, 10.0, 1000.0)
"""Of y, relative to 1 + |y|, by which it is seen whether log π is linear in it: up and down, as a
log-density may have corners on one side only."""

LEVELS = np.array([-700.0, 50.0, 100.0])
"""Log-likelihoods far below those of outliers, where log π has the slope 0 in them, and far above,
where it has the slope 1."""


class Tape(NamedTuple):
    """The parts of a tape, as views."""

    y: np.ndarray
    x: np.ndarray
    y_bar: np.ndarray
    x_bar: np.ndarray
    z_bar: np.ndarray


class SimulatorLogp(ModelLogp):
    """A ModelLogp whose `gradient` (Q,) is what black boxes returned where it was evaluated.

    With the `shapes` of its Simulators, nothing is called before that, nor checked.
    """

    def __init__(self, model, own, initial_point, compile_kwargs, region, shapes=None):
        logp = self._whole(model)
        cut = cut_of(model, logp, own, initial_point, shapes)
        self.simulators, self._alone, self.n_trials = cut.simulators, cut.alone, cut.n_trials
        self._begin(model, own, initial_point, logp, region, gradient_size=cut.y.type.shape[0])
        depends_on = own, cut.simulators.sizes.tolist(), cut.simulators.applications.tolist()
        self._to_compile = model, depends_on, lambda: self._graphs(cut, own), compile_kwargs
        self._to_check = (cut.start, initial_point) if shapes is None else ()

    def _whole(self, model):
        """Return the log-density that is cut at its black boxes."""
        return model.logp()

    @property
    def emulates(self):
        """Which black boxes, with their inputs and outputs, in words."""
        parts = []
        for b, box in enumerate(self.simulators.boxes):
            n_calls = (self.simulators.applications[:, 0] == b).sum()
            often = f", {n_calls} times in each evaluation" if n_calls > 1 else ""
            sizes = f"{counted(box.p, 'input')}; {counted(box.q, 'output')}"
            parts.append(f"`{box.name}` ({sizes}){often}")
        return f", emulating {' and '.join(parts)}"

    def compiled(self):
        """Compile it; raise NotEmulated if numba cannot, or if nothing is to be emulated."""
        try:
            super().compiled()
            self._check_compiled()
            if self._to_check:
                self._check_outputs(*self._to_check)
        except NotEmulated as error:
            error.n_trials = self.n_trials
            raise
        return self

    def _graphs(self, cut, own):
        q, p = cut.simulators.q, cut.simulators.p
        x_bar = pt.vector("x_bar", shape=(p,), dtype="float64")
        by_y, by_z = _gradients(cut.density, cut.y, own, "in the outputs of its black boxes")
        pulled = _gradients(pt.dot(cut.x, x_bar), cut.y, own, "of their inputs")
        return [
            ([], cut.whole, logp_and_vector_entry),
            ([cut.y], [cut.x], partial(inputs_entry, q, p)),
            ([cut.y], [cut.density, by_y, by_z], partial(density_entry, q, p)),
            ([cut.y, x_bar], [*pulled], partial(pullback_entry, q, p)),
        ]

    def _check_compiled(self):
        for compiled in self.functions[INPUTS:]:
            names = ", ".join(f"`{name}`" for name in compiled.python_ops)
            if names:
                raise NotEmulated(f"The model around its black boxes calls Python for {names}.")
            if not (hasattr(compiled.function.vm, "jit_fn") or config.DISABLE_JIT):
                raise NotEmulated("numba cannot compile the model around its black boxes.")

    def _check_outputs(self, y, initial_point):
        """Raise NotEmulated if the log-density is linear in a box's outputs, or ignores them."""
        rng = np.random.default_rng(0)
        start = np.concatenate([np.ravel(initial_point[var.name]) for var in self.value_vars])
        starts = start + np.zeros((2, 1))
        starts[1, : self.region.shape[1]] += rng.uniform(-0.1, 0.1, self.region.shape[1])
        y = np.where(np.isfinite(y), y, 1.0)
        shifts = [0.0, *SHIFTS, *np.negative(SHIFTS)]
        ys = y + np.multiply.outer(shifts, (1.0 + np.abs(y)) * rng.uniform(1, 2, y.size))
        slopes = [self.gradients_given(np.tile(z, (len(ys), 1)), ys)[0] for z in starts]
        feeds = self._feeds(starts[1], y)
        for b, box in enumerate(self.simulators.boxes):
            places = self._places(b)
            by_y = [slope[:, places] for slope in slopes]
            if all((s == 0.0).all() for s in by_y):
                if not feeds[places].any():
                    raise NotEmulated(
                        f"The log-density has no gradient in what `{box.name}` returns."
                    )
                continue
            is_linear = all(np.max(np.abs(s - s[0])) <= ROOT_EPS * np.max(np.abs(s)) for s in by_y)
            if is_linear or self._are_beside_outliers(places, starts[0], y):
                raise NotEmulated(returns_loglikelihood(box.name))

    def _are_beside_outliers(self, places, z, y):
        """Whether some outputs are log-likelihoods that are mixed with those of outliers."""
        ys = np.tile(y, (len(LEVELS), 1))
        ys[:, places] = LEVELS[:, None]
        slopes = self.gradients_given(np.tile(z, (len(ys), 1)), ys)[0][:, places]
        slopes = slopes[:, slopes[-1] != 0.0]  # some may be impossible, whatever y is
        return slopes.size > 0 and np.all(np.abs(slopes.T - (LEVELS > 0)) <= ROOT_EPS)

    def _places(self, b):
        """Return which outputs are those of a box."""
        q = self.simulators.sizes[b, 1]
        of_box = self.simulators.applications[self.simulators.applications[:, 0] == b]
        return (of_box[:, 2, None] + np.arange(q)).ravel()

    def _feeds(self, z, y):
        """Return which outputs are inputs of other boxes, (Q,)."""
        if not self.simulators.applications[:, 3].any():
            return np.zeros(y.size, bool)
        tape, rng = self.tape(), np.random.default_rng(0)
        parts = self.parts(tape)
        parts.y[:], parts.x_bar[:] = y, rng.normal(size=parts.x_bar.size)
        self._run(PULLBACK, z, tape)
        return parts.y_bar != 0.0

    # ---- from Python ----------------------------------------------------------------------------

    def tape(self):
        """Return a tape of zeros."""
        return np.zeros(2 * (self.simulators.q + self.simulators.p) + self.region.shape[1])

    def parts(self, tape):
        """Return the parts of a tape."""
        q, p = self.simulators.q, self.simulators.p
        return Tape(*np.split(tape, np.cumsum([q, p, q, p])))

    def inputs_at(self, points, y):
        """Return x (m, P) at points (m, n) in the step's order, and outputs y (m, Q)."""
        return np.array([tape.x for _, tape in self._tapes(INPUTS, points, y)])

    def logp_given(self, points, y):
        """Return log π (m,) at points (m, n) in the step's order, given outputs y (m, Q)."""
        return np.array([value for value, _ in self._tapes(DENSITY, points, y)])

    def gradients_given(self, points, y):
        """Return ȳ (m, Q) and z̄ (m, d) at points (m, n) in the step's order."""
        tapes = [tape for _, tape in self._tapes(DENSITY, points, y)]
        return np.array([tape.y_bar for tape in tapes]), np.array([tape.z_bar for tape in tapes])

    def called_at(self, b, x):
        """Return what box b returns of inputs x (n, p), by as many calls, (n, q)."""
        return called(self._alone[b], x)

    def __getstate__(self):
        """Leave the graphs behind, and what only compiling them needs."""
        left = "_alone", "_to_check"
        return {k: v for k, v in super().__getstate__().items() if k not in left}

    def _tapes(self, place, points, y):
        for z, own in zip(points, y, strict=True):
            tape = self.tape()
            parts = self.parts(tape)
            parts.y[:] = own
            yield self._run(place, z, tape), parts

    def _run(self, place, z, tape):
        z = np.ascontiguousarray(z, np.float64)
        return self.functions[place].entry(z, self._data, self._shapes, tape)


class CoarseLogp(SimulatorLogp):
    """The log-density by the coarse models of black boxes."""

    def _whole(self, model):
        return with_coarse_models(super()._whole(model))


def _gradients(scalar, y, own, where):
    """Return the gradients in y and in the step's own variables, raveled."""
    try:
        by_y, *parts = pt.grad(scalar, [y, *own], disconnected_inputs="ignore")
    except (NotImplementedError, NullTypeGradError) as error:
        raise NotEmulated(
            f"The model has no gradient {where}. PyTensor says: "
            f"{str(error).strip().partition(chr(10))[0]}"
        ) from error
    return by_y, pt.concatenate([part.ravel() for part in parts])


def called(alone, x):
    """Return what a box returns of inputs x (n, p), by as many calls, (n, q)."""
    inputs, outputs = alone
    with black_box_ops_silent():
        mode = Mode("py", "fast_compile")
        call = function([inputs], outputs, mode=mode, on_unused_input="ignore")
    return np.array([call(row) for row in x])
