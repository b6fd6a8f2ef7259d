"""``pk.find_mode``: the maximum of a posterior, from a run and perhaps some more evaluations."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pymc as pm
from pytensor.compile import Mode as Compilation

from pymc_kameleon.analysis.mode.densities import (
    EmulatedModel,
    ModelDensity,
    OnNaturalScale,
    ProcessOfLogp,
)
from pymc_kameleon.analysis.mode.maxima import (
    FLAT,
    SETTLED,
    distinct,
    factor_of,
    maxima,
)
from pymc_kameleon.analysis.summary import summary
from pymc_kameleon.analysis.unconstrained_draws import (
    NotMapped,
    on_unconstrained_scale,
    variables_lacking,
)
from pymc_kameleon.approximation.drops import NEGLIGIBLE, drop
from pymc_kameleon.approximation.records import evenly
from pymc_kameleon.approximation.search import DIFFERENCE
from pymc_kameleon.findings.diagnosis import diagnosis_in
from pymc_kameleon.findings.finding import finding, said
from pymc_kameleon.findings.words import counted, some
from pymc_kameleon.model.black_boxes import black_boxes
from pymc_kameleon.model.evaluators import calling_elsewhere
from pymc_kameleon.model.functions import has_gradient
from pymc_kameleon.model.layout import split_name
from pymc_kameleon.model.pymc_internals import natural_name
from pymc_kameleon.model.starts import prior_draws
from pymc_kameleon.result.opening import draws_in, known_logp, opened
from pymc_kameleon.samplers.emulator.evaluations import calls_in, shapes_in
from pymc_kameleon.sampling.sample import sample
from pymc_kameleon.sampling.workers import evaluators_of
from pymc_kameleon.step.groups import EVALUATIONS, FINDINGS
from pymc_kameleon.step.learned import COORDINATE
from pymc_kameleon.step.options import checked_integer

N_STARTS, MOST_FITTED = 16, 4
"""Draws that climbs begin at, and as many of the prior; and maxima about which an approximation is
fitted, at most."""

ROUND, BESIDE = 5, 0.5
"""Evaluations of a check: a maximum, and pairs of points on opposite sides of it; and how far from
it these are drawn, in standard deviations by its curvature."""

CHECKS = 30
"""Evaluations that are kept for checking, at most, where a model is searched anew."""

OF_SEARCHES = {"no_search", "few_searches", "other_ends", "blind_search"}
"""Findings of a run that there may be other modes."""

AWAY, WIDER = 1.0, 2.0
"""From where on the mode misses something: distance from the mean, and ratio of the sds."""


class Mode(NamedTuple):
    """Where the posterior density is largest, on the natural scale of the parameters.

    Attributes
    ----------
    point : dict
        Values of the free variables, by name, as ``initvals`` of a sampler takes them.
    logp : float
        The log-density there, without the Jacobian of transforms, as in ``pm.find_MAP``.
    is_checked : bool
        Whether it was evaluated there, and agrees with what was expected.
    table : DataFrame
        A row for each number: `mode`; `sd`, its standard deviation by the curvature there, NaN
        without one; and `posterior_mean` and `posterior_sd` of the draws, for what the mode misses.
    n_evaluations : int
        Evaluations of the log-density that this has made, if it calls black boxes.
    """

    point: dict
    logp: float
    is_checked: bool
    table: pd.DataFrame
    n_evaluations: int

    def __repr__(self):
        """Show the table, and the log-density."""
        checked = "predicted, not evaluated"
        if self.is_checked or self.n_evaluations:
            checked = "evaluated" if self.is_checked else "evaluated, but no maximum was confirmed"
        table = self.table.to_string(float_format="{:.4g}".format)
        return f"{table}\nlog-density {self.logp:.6g}, {checked}"


def find_mode(dt=None, model=None, *, n_evaluations=None, random_seed=None, executor=None):
    """Find the maximum of a posterior density: the MAP estimate.

    It begins at draws of a run. Where the log-density calls no black box, it is maximised itself,
    by its gradient. Otherwise what the run has evaluated makes an approximation: the model with
    emulators of its simulators, or a Gaussian process of the log-density. That is maximised, which
    takes no call. Evaluations check its maximum, and improve it, if you ask for some.

    Parameters
    ----------
    dt : DataTree, path or pm.Model, optional
        A result of ``pk.sample``, or of another sampler. Without one, or of a model, ``pk.sample``
        makes it.
    model : pm.Model, optional
        The model, or that of the context.
    n_evaluations : int, optional
        Evaluations of the log-density at most, where it calls black boxes. 0 by default with a
        result, because a call may be slow. A check of the maximum takes five. Without a result,
        ``pk.sample`` takes nine tenths of them, by default as many as it takes by itself.
    random_seed : int or Generator, optional
        Of ``pk.sample``, and of the points that checks evaluate.
    executor : concurrent.futures.Executor or callable, optional
        What calls black boxes, as in ``pk.sample``.

    Returns
    -------
    Mode

    Raises
    ------
    ValueError
        If a variable is discrete, the result lacks draws or log-densities, or has other variables.

    Notes
    -----
    The log warns if the density has no maximum, but rises towards a bound or without end; if a
    maximum was not evaluated, or is not what was predicted; and if it is no typical place. See
    docs/find_mode.md.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample()
    ...     mode = pk.find_mode(dt)
    """
    if n_evaluations is not None:
        checked_integer("n_evaluations", n_evaluations, at_least=0)
        if 0 < n_evaluations < ROUND:
            raise ValueError(f"n_evaluations must be 0, or at least {ROUND}, for one check.")
    if isinstance(dt, pm.Model):
        dt, model = None, dt
    model, rng = pm.modelcontext(model), np.random.default_rng(random_seed)
    if discrete := [var.name for var in model.discrete_value_vars]:
        raise ValueError(f"{some(discrete)} is discrete: the density has no slope in it.")
    if dt is None:
        most, n_evaluations = _shares(n_evaluations)
        dt = sample(model=model, max_evaluations=most, random_seed=random_seed, executor=executor)
    dt = opened(dt, model)
    posterior = draws_in(dt, "begin at")
    if missing := variables_lacking(posterior, model):
        raise ValueError(f"The result has no draws of {some(missing)}: is it of another model?")
    try:
        x, layout, point = on_unconstrained_scale(posterior, model)
    except NotMapped as error:
        raise ValueError(f"The mode cannot be found from these draws: {error}.") from None
    z = x.reshape(-1, x.shape[2])
    with evaluators_of(executor) as evaluators, calling_elsewhere(evaluators):
        density = OnNaturalScale(_density(model, dt, z, layout, point), model, layout)
        search = _Search(density, z, _starts(model, density, layout, z))
        n = 0 if search.is_exact else search.check(n_evaluations or 0, rng)
    natural, top = _Natural(model, layout), search.found[0]
    names = [rv.name for rv in model.free_RVs]
    table = _table(summary(dt, names, round_to="none"), natural, top)
    says = [] if top.is_settled else [natural.runs_off(top, search)]
    says += [] if search.is_exact else _of_searches(dt)
    said(says + search.doubts(n) + _what_it_misses(table))
    is_checked = search.is_exact or search.is_checked
    return Mode(natural.values(top.z), top.logp, is_checked, table, n)


def _shares(n):
    """Return the evaluations of a run, and those for checking, of so many."""
    if n is None:
        return None, CHECKS
    checks = max(ROUND, min(CHECKS, n // 10))
    return n - checks, checks


def _density(model, dt, z, layout, point):
    """Return the density that is maximised."""
    if not black_boxes([model.logp()]) and has_gradient(model):
        return ModelDensity(model, point, z)
    names = layout.coordinates()
    if EVALUATIONS not in getattr(dt, "children", ()):
        logp = known_logp(dt, ("lp", "logp"))
        if logp is None:
            raise ValueError(
                "The result lacks sample_stats['lp'], the log-densities of its draws. pk.sample "
                "keeps them."
            )
        return ProcessOfLogp(model, point, z, _finite(z, logp.ravel()))
    data = dt[EVALUATIONS].to_dataset()
    own = data[COORDINATE].values.tolist()
    if sorted(own) != sorted(names):
        raise ValueError(f"The result is of another model: it has coordinates {some(own)}.")
    known = _finite(data["z"].values[:, [own.index(name) for name in names]], data["logp"].values)
    if "boxes" in data.attrs:
        return EmulatedModel(model, point, z, known, calls_in(data), shapes_in(data))
    return ProcessOfLogp(model, point, z, known)


def _finite(z, logp):
    """Return the evaluations that have numbers, each once."""
    rows = np.isfinite(logp) & np.isfinite(z).all(axis=1)
    _, first = np.unique(z[rows], axis=0, return_index=True)
    return z[rows][first], logp[rows][first]


def _starts(model, density, layout, z):
    """Return where climbs begin: at the highest point, at draws, and at draws of the prior.

    Of an approximation the latter would tell nothing.
    """
    starts = [density.known[np.argmax(density.logp)], *evenly(z, N_STARTS)]
    prior = prior_draws(model, layout) if density.is_exact else None
    return starts if prior is None else [*starts, *evenly(prior, N_STARTS)]


class _Search:
    """Climbs from some starts, and evaluations at their end."""

    def __init__(self, density, z, starts):
        self._density, self.is_exact = density, density.is_exact
        self.factor = factor_of(z)
        self.mean, self.is_checked, self.off = z.mean(axis=0), False, np.nan
        found = maxima(density, starts, self.factor)
        self.found = found if self.is_exact else self._fitted_about(found[:MOST_FITTED])

    def _fitted_about(self, found):
        """Return the maxima near some, by approximations that are fitted about each."""
        others = []
        for one in found:
            self._density.fit_about(one.z)
            others += maxima(self._density, [one.z], self.factor)
        return distinct(others)

    def check(self, n, rng):
        """Evaluate the highest maximum, and others that this leads to; return how often.

        A pair of points shows the error of the slope, which would move the maximum. If no maximum
        is as predicted, the highest point that was evaluated takes its place.
        """
        for k in range(0, n - ROUND + 1, ROUND):
            top, *others = self.found
            self._density.fit_about(top.z)
            values, vectors = np.linalg.eigh(top.curvature)
            shape = top.factor @ (vectors / np.sqrt(np.maximum(values, FLAT)))
            pairs = ROUND // 2
            steps = BESIDE * rng.standard_normal((pairs, top.z.size)) @ shape.T
            points = np.concatenate([top.z[None], top.z + steps, top.z - steps])
            predicted, _ = self._density.values(points)
            logp = np.array([self._density.evaluate(z) for z in points])
            own, *beside = predicted - logp
            with np.errstate(invalid="ignore"):  # of impossible points
                of_slopes = np.abs(np.subtract(beside[:pairs], beside[pairs:])) / 2
            self.found = distinct([*self._fitted_about([top]), *others])
            self.off = max(abs(own), self.found[0].logp - logp[0])
            is_right = of_slopes.max() < BESIDE * np.sqrt(2 * SETTLED)
            self.is_checked = bool(self.off < SETTLED and is_right and top.is_settled)
            if self.is_checked:
                return k + ROUND
        if n >= ROUND:
            best = np.argmax(self._density.logp)
            z, logp = self._density.known[best], self._density.logp[best]
            self.found[0] = self.found[0]._replace(z=z, logp=float(logp))
        return n - n % ROUND

    def doubts(self, n):
        """Return what there is to say against the highest maximum, after so many evaluations."""
        says, (top, *others) = [], self.found
        known, logp, d = self._density.known, self._density.logp, top.z.size
        if not self.is_exact:
            good = known[logp > logp.max() - drop(d, NEGLIGIBLE)]
            own, *of_good = np.linalg.norm(
                np.linalg.solve(self.factor, (np.vstack([top.z, good]) - self.mean).T), axis=0
            )
            if own > max(of_good):
                says.append(finding("mode_beyond"))
            if n == 0:
                says.append(finding("mode_not_evaluated"))
            elif not self.is_checked:
                says.append(finding("mode_off", n=counted(n, "evaluation"), off=abs(self.off)))
        low = top.logp - drop(d, NEGLIGIBLE)
        if near := [one for one in others if one.is_settled and one.logp > low]:
            lower = top.logp - near[0].logp
            others = "one other maximum" if len(near) == 1 else f"{len(near)} other maxima"
            says.append(finding("other_maxima", others=others, lower=abs(lower)))
        return says


class _Natural:
    """Free variables on their natural scale, of points on the unconstrained one."""

    def __init__(self, model, layout):
        own = {var.name: var for var in model.unobserved_value_vars}
        self._names, self._layout = [rv.name for rv in model.free_RVs], layout
        self._function = model.compile_fn(
            [own[name] for name in self._names],
            inputs=model.value_vars,
            point_fn=True,
            mode=Compilation("py", "fast_compile"),
        )

    def values(self, z):
        """Return the variables by name."""
        found = self._function(self._layout.unraveled(z))
        return dict(zip(self._names, map(np.asarray, found), strict=True))

    def flat(self, z):
        """Return all of them, (k,)."""
        return np.concatenate([np.ravel(own) for own in self.values(z).values()])

    def sd(self, found):
        """Return standard deviations (k,) by the curvature at a Maximum, NaN where it has none."""
        values, vectors = np.linalg.eigh(found.curvature)
        is_flat = values < FLAT
        steps = DIFFERENCE * (found.factor @ vectors).T
        slopes = [self.flat(found.z + step) - self.flat(found.z - step) for step in steps]
        slopes = np.array(slopes) / (2 * DIFFERENCE)
        variances = np.sum(slopes[~is_flat] ** 2 / values[~is_flat, None], axis=0)
        of_flat = np.sum(slopes[is_flat] ** 2, axis=0)
        return np.sqrt(np.where((variances > 0) & (of_flat < FLAT * variances), variances, np.nan))

    def runs_off(self, found, search):
        """Return the finding of a climb that has not settled, with what has least curvature."""
        _, vectors = np.linalg.eigh(found.curvature)
        off = np.abs(found.factor @ vectors[:, 0]) / np.linalg.norm(search.factor, axis=1)
        variable, index = split_name(self._layout.coordinates()[np.argmax(off)])
        name = natural_name(variable)
        value = self.values(found.z)[name]
        is_same = value.shape == self._layout.shapes[variable]
        value = float(value[index]) if is_same else np.nan
        name = f"{name}{list(index) or ''}"
        return finding("no_maximum_inside", name=name, value=value, logp=found.logp)


def _table(posterior, natural, top):
    """Return the table of a Mode, by the summary of the draws."""
    columns = {
        "mode": natural.flat(top.z),
        "sd": natural.sd(top),
        "posterior_mean": posterior["mean"],
        "posterior_sd": posterior["sd"],
    }
    return pd.DataFrame(columns, index=posterior.index)


def _what_it_misses(table):
    """Return a finding if the posterior is not as the mode and its curvature say."""
    table = table[table["posterior_sd"] > 0]
    away = (table["posterior_mean"] - table["mode"]).abs() / table["posterior_sd"]
    ratio = table["posterior_sd"] / table["sd"]
    worst = np.fmax(away / AWAY, np.log(ratio).abs() / np.log(WIDER))
    if not worst.max() > 1:
        return []
    name = worst.idxmax()
    return [finding("mode_misses", name=name, away=away[name], ratio=ratio[name])]


def _of_searches(dt):
    """Return what a run has found of other modes, which an approximation does not know."""
    if FINDINGS not in getattr(dt, "children", ()):
        return []
    found = diagnosis_in(dt[FINDINGS].to_dataset()).findings
    return [one for one in found if one.code in OF_SEARCHES]
