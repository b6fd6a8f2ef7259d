"""The emulator of a simulator, fitted to all that a run has evaluated, after tuning too."""

import numpy as np
from scipy.spatial import KDTree
from threadpoolctl import threadpool_limits

from pymc_kameleon.analysis.trust import FEW_EVENTS
from pymc_kameleon.findings.words import counted, some
from pymc_kameleon.result.opening import evaluations_in, opened
from pymc_kameleon.samplers.emulator import fit
from pymc_kameleon.samplers.emulator.evaluations import calls_in
from pymc_kameleon.samplers.emulator.learning import VARIANTS, drops, unpacked

MOST_CALLS = 900
"""Calls that it is fitted to, at most: the best ones."""

USUAL = 0.9
"""Share of the good calls beyond which errors are wider, by how much farther out inputs are."""


def emulator(dt, name=None):
    """Return the emulator of a black box that a run of EmulatorMetropolis has fitted.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample``, also from a file. The model is not needed.
    name : str, optional
        The name of the black box, if there are several.

    Returns
    -------
    SimulatorEmulator
        ``emulator(x)`` takes inputs (..., p) of the black box, and returns outputs (..., q); it has
        ``error(x)``.

    Raises
    ------
    ValueError
        If the result keeps no evaluations of a black box, or there is no such one.

    Notes
    -----
    It is good where the posterior is, and poor where the run has never been.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     dt = pk.sample(step=pk.EmulatorMetropolis())
    >>> emulator = pk.emulator(dt)  # doctest: +SKIP
    >>> outputs, errors = emulator([0.3, 0.7]), emulator.error([0.3, 0.7])  # doctest: +SKIP
    """
    dt = opened(dt)
    known = {calls.described["label"]: calls for calls in calls_in(evaluations_in(dt))}
    if name is None and len(known) == 1:
        [name] = known
    if name not in known:
        raise ValueError(f"name must be one of {[*known]}, not {name!r}.")
    return SimulatorEmulator(known[name])


class SimulatorEmulator:
    """What a simulator returns, as a Gaussian process predicts it: ``emulator(x)``.

    Attributes
    ----------
    name : str
        Of the simulator.
    inputs : list of str
        Names of its inputs, in order.
    n_outputs, n_calls : int
        How many outputs it has, and to how many calls it is fitted.
    x, y : (n, p) and (n, q) float64
        Calls that were made.
    best : (p,) float64
        Inputs of the call with the highest log-density.
    left_out : (q,) float64
        Root mean square error of each output at calls that are left out of the fit; those near the
        posterior count most. Of outputs that are predicted by their logarithms it is relative.
    """

    def __init__(self, calls, over=None):
        described, self._calls = calls.described, calls
        self.name, self.label, self.inputs = described["name"], described["label"], calls.names
        there = np.isfinite(calls.y).all(axis=1)
        self.x, self.y = calls.x[there], calls.y[there]
        if len(self.x) == 0:
            raise ValueError(f"`{self.name}` has not returned anything finite in this result.")
        drop = _drops(calls, there)
        self.best = self.x[np.argmin(drop)]
        drop = drop if over is None else np.zeros(len(drop))
        self._near = self.x[drop == 0]
        self._fit, self._uncertainty = _fitted(calls, self.x, self.y, drop, over)
        self._middle = self._fit.transformed(self._near).mean(axis=0)
        self._usual = np.quantile(self._distances(self._near), USUAL)
        self._factor, later = 1.0, ~calls.tuning[there]
        if np.count_nonzero(later) >= FEW_EVENTS and not later.all():
            self._factor = self._how_far_off(calls, drop, later, over)
        self.n_outputs, self.n_calls = self.y.shape[1], len(self._fit.u)
        self.left_out = self._uncertainty.left_out

    def _how_far_off(self, calls, drop, later, over):
        """Return how much larger errors at later calls are than what the fit to others expects."""
        own, errors = _fitted(calls, self.x[~later], self.y[~later], drop[~later], over)
        with np.errstate(all="ignore"):
            z = (own.predict(self.x[later]) - self.y[later]) / errors.of(own, self.x[later])
        z = z[np.isfinite(z)]
        return max(1.0, np.sqrt(np.mean(z**2))) if z.size else 1.0

    def __call__(self, x):
        """Return outputs (..., q) of inputs x (..., p)."""
        return self._over(x, self._fit.predict)

    def error(self, x):
        """Return the standard deviations (..., q) of what is predicted at inputs x (..., p).

        They are larger if a fit to what was evaluated while tuning has been farther off at later
        evaluations. They grow with the distance from the middle of good evaluations, beyond 90 % of
        these, where a Gaussian process is too sure; there they may still be off by a factor of 5.
        """

        def errors(x):
            wider = np.fmax(1.0, self._distances(x) / max(self._usual, 1e-300))
            return self._factor * wider[:, None] * self._uncertainty.of(self._fit, x)

        return self._over(x, errors)

    def _distances(self, x):
        """Return distances (n,) of inputs (n, p) from the middle of good calls, of the kernel."""
        return np.linalg.norm(self._fit.transformed(x) - self._middle, axis=1)

    def _over(self, x, function):
        """Return what a function of rows (n, p) makes of any number of them."""
        x, p = np.asarray(x, np.float64), len(self.inputs)
        if x.shape[-1:] != (p,):
            raise ValueError(
                f"The emulator takes {counted(p, 'input')}, an array (..., {p}) in the order of "
                f"{some(self.inputs)}; this one has the shape {x.shape}."
            )
        with np.errstate(all="ignore"):  # logarithms of what is not positive are NaN
            rows = function(x.reshape(-1, p))
        return rows.reshape(*x.shape[:-1], *rows.shape[1:])

    def drawn(self, random_seed=None):
        """Return a function of inputs (n, p) to outputs (n, q) that the emulator holds possible.

        It is a draw from the Gaussian process: what many of these differ by is not known.
        """
        rng = np.random.default_rng(random_seed)
        function = self._uncertainty.drawn(self._fit, self._factor, rng)
        return lambda x: self._over(x, function)

    def everywhere(self, over, x=(), y=()):
        """Return an emulator for all inputs `over` (N, p), of all calls, also further ones (n, p).

        That of a run is fitted for the posterior: calls far from it may be predicted badly.
        """
        n, own = len(x), self._calls
        if n:
            own = own._replace(
                x=np.concatenate([own.x, x]),
                y=np.concatenate([own.y, y]),
                logp=np.concatenate([own.logp, np.full(n, np.nan)]),
                tuning=np.concatenate([own.tuning, np.ones(n, bool)]),
            )
        return SimulatorEmulator(own, over)

    def least_known(self, x, n):
        """Return n of the inputs x (N, p): each where errors are largest, given those before."""
        sd = self.y.std(axis=0)
        scale = np.where(sd > 0, sd, np.inf)
        with np.errstate(all="ignore"):
            return x[self._uncertainty.least_known(self._fit, x, n, scale)]

    def range(self):
        """Return inputs (2, p) between which 90 % of the good calls are."""
        return np.quantile(self._near, [0.05, 0.95], axis=0)

    def __repr__(self):
        """Say of what, from how many calls, and how good."""
        logs = self._fit.log_outputs
        spread = np.where(logs, 1.0, self.y.std(axis=0))
        relative = np.median(self.left_out / np.where(spread > 0, spread, 1.0))
        return (
            f"SimulatorEmulator({self.name}: {counted(len(self.inputs), 'input')} "
            f"({some(self.inputs)}), {counted(self.n_outputs, 'output')}; fitted to "
            f"{counted(self.n_calls, 'call')}, relative error {relative:.2g} at those left out)"
        )


def fitted(calls):
    """Return the Fit to all calls that have returned numbers."""
    there = np.isfinite(calls.y).all(axis=1)
    return _fitted(calls, calls.x[there], calls.y[there], _drops(calls, there), None)[0]


def _fitted(calls, x, y, drop, over):
    """Return the Fit to calls, and its Uncertainty; if there are inputs `over`, the best for these.

    That is found among all choices of logarithms, by errors of calls that are left out, each of
    which counts as much as how many of the inputs are nearest to it.
    """
    hypers, d = np.array(calls.described["hyper"], float), calls.d
    first = calls.described["variant"]
    arguments, best, least = (x, y, drop, d), None, np.inf

    def by(k, look):
        last = None if hypers[k].min() < 0 else unpacked(hypers[k])
        own = fit.fit_box(*arguments, calls.curvature, VARIANTS[k], last, MOST_CALLS, look)
        return own, fit.uncertainty(own, *arguments, MOST_CALLS)

    with threadpool_limits(1), np.errstate(all="ignore"):
        if over is None:
            return by(first, "next")
        for pair in fit.variants_of(x, y, drop, d, MOST_CALLS):
            for look in ("next", "all"):
                own, unsure = by(VARIANTS.index(pair), look)
                error, unsure = _judged(own, unsure, *arguments, over)
                if best is None or error < least:
                    best, least = (own, unsure), error
    return best


def _judged(own, unsure, x, y, drop, d, over):
    """Return the mean square error over inputs (N, p), relative to that of outputs' variances.

    Also the Uncertainty whose errors are as large as those.
    """
    errors, z, x, y = fit.left_out_errors(own, unsure, x, y, drop, d, MOST_CALLS)
    sd = over.std(axis=0)
    sd = np.where(sd > 0, sd, np.inf)
    nearest = KDTree(x / sd).query(over / sd)[1]
    shares = np.bincount(nearest, minlength=len(x)) / len(over)
    variances = shares @ (y - shares @ y) ** 2
    varies = variances > 0
    error = np.mean((shares @ errors**2)[varies] / variances[varies]) if varies.any() else 0.0
    return error, unsure._replace(sd=np.sqrt(shares @ z**2))


def _drops(calls, there):
    """Return how far calls are below the best, by a normal about its outputs if logp is unknown."""
    logp, y = calls.logp[there], calls.y[there]
    known = np.isfinite(logp)
    if not known.any():
        return np.zeros(len(y))
    best = logp[known].max()
    squares = [(y - row) ** 2 @ calls.curvature for row in y[logp == best]]
    about = best - np.min(squares, axis=0) / 2
    return drops(np.where(np.isnan(logp), about, logp), calls.d)
