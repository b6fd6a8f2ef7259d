"""The densities whose maximum is looked for: the model's own, or an approximation from a run.

Each has ``values(z)``, the logarithms (n,) at points z (n, d) on the unconstrained scale, and their
slopes (n, d). An approximation is fitted to evaluations; ``evaluate(z)`` evaluates the model's own
log-density at a point, and ``fit_about(z)`` fits to what is known, for what is near z. `known`
(n, d) are the points that were evaluated, and `logp` (n,) the values there.
"""

from functools import cached_property

import numpy as np
import pytensor.tensor as pt
from pytensor import function
from pytensor.compile import Mode
from scipy.linalg import solve_triangular
from threadpoolctl import threadpool_limits

from pymc_kameleon.analysis.emulator import fitted
from pymc_kameleon.analysis.mode.maxima import factor_of
from pymc_kameleon.approximation.drops import NEGLIGIBLE, drop
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.core.quadratic import n_coefficients
from pymc_kameleon.model.functions import ModelLogp
from pymc_kameleon.model.simulator_logp import SimulatorLogp
from pymc_kameleon.samplers.emulator.density import Emulated
from pymc_kameleon.samplers.emulator.evaluations import labels
from pymc_kameleon.samplers.emulator.gaussian_process import Structure
from pymc_kameleon.samplers.emulator.inner_chain import EmulatedDensity
from pymc_kameleon.samplers.surrogate.active.process import (
    HOME,
    Prior,
    Process,
    best_of_starts,
    compressed,
)

MOST_POINTS = 300
"""Points of a process of the log-density: an engineering limit, as time grows with their cube."""


class OnNaturalScale:
    """A density of the parameters on their natural scale, from one on the unconstrained scale.

    The difference is the Jacobian of the transforms, which ``pm.find_MAP`` leaves out, too.
    """

    def __init__(self, density, model, layout):
        self._density, self._layout = density, layout
        terms = [
            transform.log_jac_det(model.rvs_to_values[rv], *rv.owner.inputs).sum()
            for rv, transform in model.rvs_to_transforms.items()
            if transform is not None
        ]
        self._jacobian = None
        if terms:
            [total] = model.replace_rvs_by_values([pt.sum(terms)])
            slopes = pt.grad(total, model.value_vars, disconnected_inputs="ignore")
            flat = pt.concatenate([slope.ravel() for slope in slopes])
            mode = Mode("py", "fast_run")  # compiling takes longer than some hundred calls
            self._jacobian = function(
                model.value_vars, [total, flat], mode=mode, on_unused_input="ignore"
            )

    def __getattr__(self, name):
        """Return what the density has."""
        return getattr(self._density, name)

    def values(self, z):
        """Return log-densities (n,) at points z (n, d), and their slopes (n, d)."""
        log_s, slopes = self._density.values(z)
        of_jacobian, its_slopes = self._of_jacobian(z)
        return log_s - of_jacobian, slopes - its_slopes

    @property
    def logp(self):
        """Log-densities (n,) at the known points."""
        return self._density.logp - self._of_jacobian(self._density.known)[0]

    def evaluate(self, z):
        """Return the model's own log-density at z (d,)."""
        return self._density.evaluate(z) - self._of_jacobian(z[None])[0][0]

    def _of_jacobian(self, z):
        if self._jacobian is None:
            return np.zeros(len(z)), np.zeros(z.shape)
        points = [self._layout.unraveled(row) for row in z]
        parts = [self._jacobian(*point.values()) for point in points]
        return np.array([part[0] for part in parts]), np.array([part[1] for part in parts])


def _everywhere(z):
    """Return the region (2, d) that has no bounds."""
    return np.array([[-np.inf], [np.inf]]) * np.ones(z.shape[1])


class ModelDensity:
    """The model's own log-density, with its gradient."""

    is_exact = True

    def __init__(self, model, point, z):
        self._logp = ModelLogp(model, model.value_vars, point, {}, _everywhere(z), 1).compiled()
        self.known = z

    def values(self, z):
        """Return log-densities (n,) at points z (n, d), and their slopes (n, d)."""
        found = [self._value(row) for row in z]
        return np.array([value for value, _ in found]), np.array([slope for _, slope in found])

    def _value(self, z):
        try:
            return self._logp(z), self._logp.gradient.copy()
        except (ArithmeticError, np.linalg.LinAlgError):  # far off, as of a matrix of infinities
            return -np.inf, np.zeros(z.size)

    @cached_property
    def logp(self):
        """Log-densities (n,) at the known points."""
        return self.values(self.known)[0]

    def fit_about(self, _):
        """Do nothing: there is nothing to fit."""


class EmulatedModel:
    """The model with emulators in the place of its simulators."""

    is_exact = False

    def __init__(self, model, point, z, evaluations, calls, shapes):
        logp = SimulatorLogp(model, model.value_vars, point, {}, _everywhere(z), shapes)
        self._logp = logp.compiled()
        by_label = {own.described["label"]: own for own in calls}
        self._calls = [by_label[label] for label in labels(self._logp.simulators)]
        self.known, self.logp = evaluations
        self._mean, self._factor = z.mean(axis=0), factor_of(z)
        self.fit_about(None)

    def values(self, z):
        """Return log-densities (n,) at points z (n, d), and their slopes (n, d)."""
        return self._density.values(z)

    def evaluate(self, z):
        """Return the model's own log-density at z (d,), from a call of each simulator."""
        logp, y = self._logp(z), self._logp.gradient.copy()
        x = self._logp.inputs_at(z[None], y[None])[0]
        for b, own in enumerate(self._calls):
            p, q = own.x.shape[1], own.y.shape[1]
            applications = self._logp.simulators.applications
            places = applications[applications[:, 0] == b][:, 1:3]
            n = len(places)
            self._calls[b] = own._replace(
                x=np.concatenate([own.x, [x[i : i + p] for i, _ in places]]),
                y=np.concatenate([own.y, [y[j : j + q] for _, j in places]]),
                logp=np.concatenate([own.logp, np.full(n, logp)]),
                tuning=np.concatenate([own.tuning, np.ones(n, bool)]),
            )
        self.known = np.concatenate([self.known, z[None]])
        self.logp = np.append(self.logp, logp)
        return logp

    def fit_about(self, _):
        """Fit the emulators to all calls."""
        simulators = self._logp.simulators
        structure = Structure.of(simulators.sizes, simulators.applications)
        fits = [fitted(own) for own in self._calls]
        sizes = structure.sizes(max(len(own.u) for own in fits))
        sizes |= {"d": len(self._mean), "mirrors": 1}
        emulated = allocate(
            Emulated,
            sizes,
            structure=structure,
            mean=self._mean,
            factor=self._factor,
            radius=np.inf,
        )
        for b, own in enumerate(fits):
            own.write(structure, emulated.emulator, b)
        self._density = EmulatedDensity(self._logp.target(np.random.default_rng(0)), emulated)


class ProcessOfLogp:
    """A Gaussian process of the log-density, fitted to what is known near one point."""

    is_exact = False

    def __init__(self, model, point, z, evaluations):
        self._model, self._point = model, point
        self.known, self.logp = evaluations
        self.fit_about(self.known[np.argmax(self.logp)])

    def values(self, z):
        """Return log-densities (n,) at points z (n, d), and their slopes (n, d)."""
        u = self._u_of(z)
        slopes = solve_triangular(self._factor, self._process.slopes(u).T, lower=True, trans="T").T
        return self._best + self._process.mean(u), slopes

    @cached_property
    def _logp(self):
        own = self._model.value_vars
        return ModelLogp(self._model, own, self._point, {}, _everywhere(self.known)).compiled()

    def evaluate(self, z):
        """Return the model's own log-density at z (d,)."""
        logp = self._logp(z)
        self.known = np.concatenate([self.known, z[None]])
        self.logp = np.append(self.logp, logp)
        return logp

    def fit_about(self, z):
        """Fit the process to the points that are nearest to z, in coordinates by these alone."""
        d, least = z.size, 2 * n_coefficients(z.size)
        is_felt = self.logp > self.logp.max() - drop(d, NEGLIGIBLE)
        is_enough = np.count_nonzero(is_felt) >= least
        rows, self._mean = np.flatnonzero(is_felt | (not is_enough)), z
        for _ in range(2):
            self._factor = factor_of(self.known[rows])
            distances = np.linalg.norm(self._u_of(self.known[rows]), axis=1)
            n = max(least, min(len(rows) // 2, MOST_POINTS))
            rows = rows[np.argsort(distances, kind="stable")[:n]]
        self._best = self.logp[rows].max()
        u, prior = self._u_of(self.known[rows]), Prior(0, HOME)
        y = compressed(self.logp[rows], self._best, d)
        with threadpool_limits(1):
            self._process = Process(u, y, best_of_starts(u, y, prior), prior)

    def _u_of(self, z):
        return solve_triangular(self._factor, (z - self._mean).T, lower=True).T
