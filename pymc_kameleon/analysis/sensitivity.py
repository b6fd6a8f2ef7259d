"""``pk.sensitivity``: how much each input of a simulator matters for what it returns.

Symbols: x (p,) the inputs, y what is asked of the outputs, A a set of inputs; V_A = Var E(y | x_A),
of which first-order indices are V_{i} / Var y and total ones 1 − V_{all but i} / Var y; z normal
scores of x, R their correlations.

Where inputs are independent these are Sobol's indices, as SciPy computes them. Otherwise V_A is the
covariance of y(x) and y(x'), where x' agrees with x in A, and is drawn anew given x_A elsewhere, by
a Gaussian copula (Kucherenko, Tarantola & Annoni, Computer Physics Communications 183, 2012, 937).
Shapley effects divide what inputs explain together evenly among them (Owen, SIAM/ASA Journal on
Uncertainty Quantification 2, 2014, 245; Song, Nelson & Staum, ibid. 4, 2016, 1060). Each point has
a random order of inputs, which are kept one after the other (Goda, arXiv:2009.00874).

The emulator is not what it emulates. Intervals have the indices of functions that are drawn from
the Gaussian process, each with points of its own, by how much they differ from those of the mean
(Le Gratiet, Cannamela & Iooss, ibid. 2, 2014, 336). Each has draws of its own, too: a bootstrap of
the halves of chains.
"""

from functools import partial
from types import SimpleNamespace

import numpy as np
import xarray as xr
from arviz_base import rcParams
from scipy.special import ndtr, ndtri
from scipy.stats import qmc, rankdata, sobol_indices
from threadpoolctl import threadpool_limits

from pymc_kameleon.analysis.deterministics import of_outputs
from pymc_kameleon.analysis.emulator import SimulatorEmulator, emulator
from pymc_kameleon.analysis.simulator_inputs import posterior_points, prior_inputs, simulator_in
from pymc_kameleon.findings.finding import finding, said
from pymc_kameleon.findings.words import some
from pymc_kameleon.result.opening import evaluations_in, opened
from pymc_kameleon.samplers.emulator.evaluations import shapes_in

N_FUNCTIONS = 32
"""Functions drawn from the process: a 90 % interval is known to a tenth or so of its width."""

N_POINTS = 1024
"""Points of each function, a power of 2, as Sobol's sequence wants: errors of an index are about
.005."""

MANY_POINTS, N_REPEATED = 4096, 8
"""Points for the emulator's mean, and how often it has others: a bootstrap tells their errors. Also
draws at which functions are compared, at most."""

N_ROUNDS = 5
"""Fits of the emulator while it is improved: an engineering limit, as each takes a second."""

ROUNDING = 1e-9
"""Variance that is added to that of scores, so that those that determine others have factors."""

UNSURE, LOST = 0.1, 0.5
"""Share of an output's variance from which on it is told, as far as it is the emulator's
uncertainty, or that the copula does not have right; and from which on indices are NaN."""


def sensitivity(
    dt,
    inputs=None,
    outputs=None,
    *,
    over="posterior",
    name=None,
    model=None,
    n_evaluations=0,
    ci_prob=None,
    random_seed=None,
):
    """Tell how much each input of a simulator matters for its outputs, by its emulator.

    The emulator has learned from what a run of EmulatorMetropolis has evaluated, so the simulator
    is not called. Indices are shares of an output's variance. First-order ones are what an input
    explains by itself, and total ones what is left if all others are known.

    Parameters
    ----------
    dt : DataTree, path or SimulatorEmulator
        A result of ``pk.sample`` by EmulatorMetropolis; for the prior also what ``pk.emulator``
        returned of one.
    inputs : list of str, optional
        Names of inputs to tell of; all by default. The others vary all the same.
    outputs : str, callable, list of int, list of str or dict of callables, optional
        Which outputs, from 0 on, by default all; names of variables of the model that depend on
        them alone, as a ``pm.Deterministic``; or functions, of an array (n, q) of outputs to an
        array (n,) or (n, k).
    over : {"posterior", "prior"}, optional
        What inputs vary over: the posterior draws, by default, or the prior of `model`.
    name : str, optional
        The name of the black box, if there are several.
    model : pm.Model, optional
        As in ``pk.summary``. Needed for the prior.
    n_evaluations : int, optional
        Calls of the simulator to make over the prior, where the emulator knows least; 0 by default.
    ci_prob : float, optional
        Of intervals; by default that of ArviZ, .89.
    random_seed : int or Generator, optional

    Returns
    -------
    Dataset
        ``first_order`` and ``total_order`` (output, input), and where inputs depend on each other
        ``shapley``, which add up to about 1, all by the emulator's mean. Each has an interval,
        ``first_order_interval`` etc., (output, input, ci_bound), which includes it, by functions
        drawn from the emulator, other draws, and other points.
        ``unknown`` (output) is the share of the variance that is the emulator's uncertainty. Above
        0.5 the indices of that output are NaN.

    Raises
    ------
    ValueError
        If the result has no emulator of a simulator, the draws lack an input, there is no such
        input or output, or `model` is needed.

    Notes
    -----
    Where inputs depend on each other, a first-order index has what an input explains through
    others, and totals may be less. Shapley effects are in between. See docs/sensitivity.md.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     dt = pk.sample()
    >>> indices = pk.sensitivity(dt)  # doctest: +SKIP
    """
    if over not in ("posterior", "prior"):
        raise ValueError(f'over must be "posterior" or "prior", not {over!r}.')
    if n_evaluations and over == "posterior":
        raise ValueError("n_evaluations is for the prior: the run has evaluated the posterior.")
    if ci_prob is not None and not 0 < ci_prob < 1:
        raise ValueError(f"ci_prob must be between 0 and 1, not {ci_prob!r}.")
    outputs = [outputs] if isinstance(outputs, str) else outputs
    dt, rng = opened(dt, model), np.random.default_rng(random_seed)
    is_alone = isinstance(dt, SimulatorEmulator)
    known = dt if is_alone else emulator(dt, name)
    if not isinstance(known, SimulatorEmulator):
        raise ValueError("There is no emulator of a simulator: sample with pk.EmulatorMetropolis.")
    if is_alone and over == "posterior":
        raise ValueError("The posterior's draws are in the result of the run: pass that.")
    if over == "prior":
        x, independent = prior_inputs(known.inputs, model, rng)
        drawn = Inputs(x, independent)
        known = known.everywhere(x)
        if n_evaluations:
            shapes = None if is_alone else shapes_in(evaluations_in(dt))
            known = _improved(known, simulator_in(model, known.label, shapes), x, n_evaluations)
    else:
        x = posterior_points(known.inputs, dt, model)
        drawn = Inputs(x, False, 2 * dt["posterior"].sizes["chain"])
        x = rng.permutation(x)
    few, chosen = x[:MANY_POINTS], _chosen(known.inputs, inputs)
    if _are_names(outputs):
        if is_alone:
            raise ValueError("outputs: an emulator knows of no variables; pass the result.")
        shapes = shapes_in(evaluations_in(dt))
        outputs = {name: of_outputs(name, model, known.name, shapes) for name in outputs}
    ask, labels = _asked(known, outputs)
    varying = [known.drawn(rng) for _ in range(N_FUNCTIONS)]
    by_copula = None if drawn.independent else ask(known(drawn.sample(rng)))
    with threadpool_limits(1):  # matrices are small
        middle, found = _of_functions(varying, known, ask, drawn, rng)
        unknown = _unknown([ask(f(few)) for f in varying])
    unsure = unknown if over == "posterior" else np.fmax(unknown, _errors(known, few))
    said(_doubts(unsure, ask(known(few)), by_copula, labels))
    return _dataset(middle, found, unknown, known.inputs, chosen, labels, ci_prob)


def _of_functions(functions, known, ask, inputs, rng):
    """Return the indices of the emulator's mean, and of each function.

    Those of the mean are computed by many more points, as they are cheap. By how much a
    function differs from it is then seen at the same points of both, so that errors cancel.
    """

    def middle(x):
        return ask(known(x))

    many, found = [indices(middle, inputs, rng, MANY_POINTS) for _ in range(N_REPEATED)], []
    for function in functions:
        seed, chosen = rng.integers(2**32), rng.integers(N_REPEATED, size=N_REPEATED)
        one, other = np.random.default_rng(seed), np.random.default_rng(seed)
        own = indices(lambda x, f=function: ask(f(x)), inputs.resampled(rng), one)
        same = indices(middle, inputs, other)
        means = {kind: np.mean([many[k][kind] for k in chosen], axis=0) for kind in own}
        found.append({kind: own[kind] - same[kind] + means[kind] for kind in own})
    return {kind: np.mean([one[kind] for one in many], axis=0) for kind in many[0]}, found


def _improved(known, simulator, x, n):
    """Return the emulator with n more calls, where it knows least of inputs x (N, p).

    It is fitted anew some times meanwhile, as it is wrong of where it has never been.
    """
    sizes = [len(part) for part in np.array_split(np.arange(n), N_ROUNDS) if len(part)]
    for size in sizes:
        new = known.least_known(x, size)
        known = known.everywhere(x, new, simulator(new))
    return known


# ---- what is asked, and what is returned --------------------------------------------------------


def _chosen(names, inputs):
    """Return the places of the inputs that were asked for."""
    if inputs is None:
        return list(range(len(names)))
    inputs = [inputs] if isinstance(inputs, str) else list(inputs)
    if unknown := [name for name in inputs if name not in names]:
        raise ValueError(f"inputs: there is no {some(unknown)} among {some(names)}.")
    return [names.index(name) for name in inputs]


def _are_names(outputs):
    """Whether outputs are names of variables of the model."""
    is_list = isinstance(outputs, list | tuple) and len(outputs)
    return is_list and all(isinstance(name, str) for name in outputs)


def _asked(known, outputs):
    """Return a function of outputs (n, q), with values (n, k), and k labels."""
    q = known.n_outputs
    if callable(outputs):
        outputs = {getattr(outputs, "__name__", "function"): outputs}
    if not isinstance(outputs, dict):
        places = list(range(q)) if outputs is None else list(np.atleast_1d(outputs))
        if unknown := [k for k in places if k not in range(q)]:
            raise ValueError(
                f"outputs: there is no {some([*map(str, unknown)])}; there are {q}, from 0 on."
            )
        return lambda y: y[:, places], places

    def ask(y):
        parts = []
        for label, function in outputs.items():
            values = np.asarray(function(y), np.float64)
            if values.ndim not in (1, 2) or len(values) != len(y):
                raise ValueError(
                    f"The function {label!r} of outputs must return an array ({len(y)},) or "
                    f"({len(y)}, k) of outputs {y.shape}, not {values.shape}."
                )
            parts.append(values.reshape(len(y), -1))
        return np.concatenate(parts, axis=1)

    sizes = [
        ask_one.shape[1]
        for ask_one in (np.reshape(f(known.y[:1]), (1, -1)) for f in outputs.values())
    ]
    labels = [
        own
        for label, size in zip(outputs, sizes, strict=True)
        for own in ([label] if size == 1 else [f"{label}[{k}]" for k in range(size)])
    ]
    return ask, labels


def _unknown(values):
    """Return which share of the variance (k,) is the emulator's, of values (functions, n, k)."""
    values = np.array(values)
    with np.errstate(all="ignore"):
        return values.var(axis=0).mean(axis=0) / values.reshape(-1, values.shape[2]).var(axis=0)


def _errors(known, x):
    """Return which share of the variance at inputs x is errors, of outputs on average.

    These grow with the distance from the calls, where functions that are drawn are too sure.
    """
    with np.errstate(all="ignore"):
        squares, variances = np.mean(known.error(x) ** 2, axis=0), known(x).var(axis=0)
        shares = 1 / (1 + variances / squares)
    varies = variances > 0
    return shares[varies].mean() if varies.any() else 0.0


def _doubts(unknown, at_draws, by_copula, labels):
    """Return what speaks against the indices; `by_copula` are values (n, k) of dependent inputs.

    Of outputs that the emulator does not know, the copula is not judged.
    """
    says, worst = [], np.argmax(np.nan_to_num(unknown))
    if unknown[worst] > UNSURE:
        n, share = int(np.count_nonzero(unknown > UNSURE)), 100 * unknown[worst]
        says.append(finding("emulator_unsure", n=n, output=labels[worst], share=share))
    if by_copula is None:
        return says
    with np.errstate(all="ignore"):
        ratio = np.where(unknown > UNSURE, 1.0, by_copula.var(axis=0) / at_draws.var(axis=0))
        worst = np.argmax(np.nan_to_num(np.abs(np.log(ratio))))
    if abs(ratio[worst] - 1) > UNSURE:
        says.append(finding("not_a_copula", output=labels[worst], ratio=ratio[worst]))
    return says


def _dataset(middle, found, unknown, names, chosen, labels, ci_prob):
    """Return the indices of the emulator's mean, and intervals of functions, which include these.

    The mean is smooth. Functions that are drawn depend on all inputs, as far as the emulator is
    uncertain: what is less than that may be nothing. Where it is most of the variance, indices are
    NaN.
    """
    prob = rcParams["stats.ci_prob"] if ci_prob is None else ci_prob
    levels = [(1 - prob) / 2, (1 + prob) / 2]
    dims, variables = ("output", "input"), {}
    for kind, index in middle.items():
        index = np.where(unknown[:, None] > LOST, np.nan, index)[:, chosen]
        drawn = np.array([own[kind] for own in found])[:, :, chosen]
        lower, upper = np.quantile(drawn, levels, axis=0)
        lower = np.where(lower < unknown[:, None], np.minimum(lower, 0.0), lower)
        interval = np.stack([np.minimum(lower, index), np.maximum(upper, index)], axis=2)
        variables[kind], variables[f"{kind}_interval"] = (
            (dims, index),
            ((*dims, "ci_bound"), interval),
        )
    variables["unknown"] = "output", unknown
    coords = {"output": labels, "input": [names[k] for k in chosen]}
    return xr.Dataset(variables, coords | {"ci_bound": ["lower", "upper"]}, {"ci_prob": prob})


# ---- indices of a function ----------------------------------------------------------------------


class Inputs:
    """What inputs vary over: what was drawn of each, and the correlations of normal scores.

    The draws x (n, p) consist of some parts that are about independent, such as halves of chains.
    """

    def __init__(self, x, independent, n_parts=1):
        self._margins, self.independent = np.sort(x, axis=0).T, independent
        self._parts, self.r = np.array_split(x, n_parts), np.eye(x.shape[1])
        varying = np.flatnonzero(np.ptp(x, axis=0) > 0)
        if not independent and len(varying):
            scores = ndtri((rankdata(x[:, varying], axis=0) - 0.5) / len(x))
            self.r[np.ix_(varying, varying)] = np.corrcoef(scores, rowvar=False)

    def resampled(self, rng):
        """Return them with other draws, as they might have been: a bootstrap of the parts."""
        n = len(self._parts)
        if n == 1:
            return self
        parts = [self._parts[k] for k in rng.integers(n, size=n)]
        return Inputs(np.concatenate(parts), self.independent)

    @property
    def dists(self):
        """What SciPy takes as the distributions of inputs."""
        return [SimpleNamespace(ppf=partial(_quantile, own)) for own in self._margins]

    def of(self, z):
        """Return inputs (n, p) of scores z (n, p)."""
        pairs = zip(self._margins, ndtr(z).T, strict=True)
        return np.column_stack([_quantile(*pair) for pair in pairs])

    def anew(self, noise, z=None, kept=()):
        """Return scores that are those of z (n, p) in `kept` places, and drawn anew elsewhere."""
        kept = list(kept)
        free = [k for k in range(len(self.r)) if k not in kept]
        slopes = np.linalg.pinv(self.r[np.ix_(kept, kept)]) @ self.r[np.ix_(kept, free)]
        left = self.r[np.ix_(free, free)] - self.r[np.ix_(free, kept)] @ slopes
        values, vectors = np.linalg.eigh(left)
        found = np.empty_like(noise)
        found[:, free] = noise[:, free] @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
        if kept:
            found[:, kept] = z[:, kept]
            found[:, free] += z[:, kept] @ slopes
        return found

    def factors(self, orders):
        """Return Cholesky factors (n, p, p) of R in these orders of inputs (n, p)."""
        r = self.r[orders[:, :, None], orders[:, None]]
        return np.linalg.cholesky(r + ROUNDING * np.eye(len(self.r)))

    def sample(self, rng):
        """Return inputs (n, p) by the copula."""
        return self.of(self.anew(normal_points(len(self.r), N_POINTS, rng)))


def _quantile(draws, q):
    """Return the quantiles at q of sorted draws."""
    return np.interp(q, (np.arange(len(draws)) + 0.5) / len(draws), draws)


def normal_points(d, n, rng):
    """Return normal scores (n, d), n a power of 2, that are evenly spread."""
    return ndtri(qmc.Sobol(d, rng=rng).random(n))


def indices(function, inputs, rng, n=N_POINTS):
    """Return indices (k, p) of a function of inputs (n, p) that has values (n, k), by their names.

    They are first-order and total ones, and Shapley effects unless inputs are independent. There
    are n points, a power of 2, for each set of inputs.
    """
    p = len(inputs.r)
    if inputs.independent:
        found = sobol_indices(func=lambda x: function(x.T).T, n=n, dists=inputs.dists, rng=rng)
        kinds = {"first_order": found.first_order, "total_order": found.total_order}
        return {kind: values.reshape(-1, p) for kind, values in kinds.items()}
    explained, places = _Explained(function, inputs, n, rng), range(p)
    all_but = [[j for j in places if j != i] for i in places]
    return {
        "first_order": np.array([explained([i]) for i in places]).T,
        "total_order": np.array([1 - explained(others) for others in all_but]).T,
        "shapley": _shapley(function, inputs, n, rng),
    }


class _Explained:
    """Which share of the variance of k values a set of inputs explains."""

    def __init__(self, function, inputs, n, rng):
        first, self._noise = np.split(normal_points(2 * len(inputs.r), n, rng), 2, axis=1)
        self._function, self._inputs, self._z = function, inputs, inputs.anew(first)
        self._y = function(inputs.of(self._z))
        others = function(inputs.of(inputs.anew(self._noise)))
        both = np.concatenate([self._y, others])
        self._mean, self._variance = both.mean(axis=0), both.var(axis=0)

    def __call__(self, kept):
        """Return shares (k,)."""
        x = self._inputs.of(self._inputs.anew(self._noise, self._z, kept))
        products = (self._y - self._mean) * (self._function(x) - self._mean)
        with np.errstate(all="ignore"):  # of values that do not vary
            return products.mean(axis=0) / self._variance


def _shapley(function, inputs, n, rng):
    """Return Shapley effects (k, p), of n points that each have their own order of inputs.

    Scores are R's Cholesky factor in that order, times independent normals. The first of these
    are kept, one more each time, and what this adds is the effect of one input.
    """
    p = len(inputs.r)
    first, noise, by = np.split(normal_points(3 * p, n, rng), 3, axis=1)
    orders = np.argsort(by, axis=1)
    factors = inputs.factors(orders)

    def values(kept):
        z = np.empty((n, p))
        normals = np.concatenate([first[:, :kept], noise[:, kept:]], axis=1)
        np.put_along_axis(z, orders, np.einsum("nij,nj->ni", factors, normals), axis=1)
        return function(inputs.of(z))

    whole, last = values(p), values(0)
    effects, variance = np.zeros((p, whole.shape[1])), 0.0
    for k in range(p):
        own = values(k + 1) if k + 1 < p else whole
        added = (whole - (own + last) / 2) * (own - last)
        np.add.at(effects, orders[:, k], added)
        variance, last = variance + added.sum(axis=0), own
    with np.errstate(all="ignore"):
        return (effects / variance).T
