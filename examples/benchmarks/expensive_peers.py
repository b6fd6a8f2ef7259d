"""The best tools for expensive likelihoods at their own settings: evaluations, and the error then.

    git clone https://github.com/sbi-benchmark/sbibm
    pip install pints umbridge; git clone https://github.com/UM-Bridge/benchmarks
    python examples/benchmarks/expensive_peers.py --sbibm sbibm --umbridge benchmarks
        [--cases GARCH logistic] [--samplers PyVBMC GPry] [--seeds 4]

`pip install pymc-kameleon[peers]` installs what there is to compare with; what is not installed is
left out. A row of expensive_peers.json is one run.

Which problems: of problems.py all with 3 to 12 parameters, a likelihood and proper priors. Of
suites.py all with proper priors and at most 12 parameters; of observations the first. Those in
FIRST were chosen before any was run here: of suites.py they have 3 parameters or more, one mode,
and a truth that was worth 4000 draws then. The others were added after these were run, so that the
choice from suites.py is nobody's. Truths by chains are worth 1000 draws or more.

Other packages begin with the model's own priors. Nested samplers take them as quantiles of a unit
cube, SMC takes draws of them, and PyVBMC what its `PyMCTarget` makes of the model or, where that
refuses, its initial point and 5 and 95 % quantiles of the prior. What PyVBMC's target spends on its
search of a mode is counted, in its own units. They see numbers of the log-likelihood or the
log-density alone. Ours is `pk.sample(max_evaluations=...)`, read by
`pk.expectation`. It chooses its sampler by itself, and so learns a simulator's predictions where a
model has one; "density" is SurrogateMetropolis on these, which sees what others see. Of compiled
models ours is SurrogateMetropolis.

Errors are those of the mean and of the standard deviation of each coordinate on the unconstrained
scale, in posterior standard deviations; the latter is by the mean square distance from the right
mean. An evaluation is one of the likelihood or of the density.
"""

import signal
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache, cached_property, partial
from importlib.util import find_spec
from io import StringIO
from itertools import takewhile
from math import log
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import suites
from benchmark import evaluations, grouped, load, main, rounded, table, three_digits
from others import anneal
from problems import CASES as MODELS
from problems import NAMES, Case, Problem, known_quantiles
from pymc.distributions.transforms import ordered
from pytensor.graph import graph_replace
from scipy.stats import gmean, qmc, uniform

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
LIMIT, LIMITS = 150, {"PyVBMC": 600, "GPry": 300}
"""Seconds of a processor after which a run is given up; of these what they then have counts."""

COMPILED = {
    case: NAMES[case]
    for case in (
        "AR5",
        "interaction",
        "GARCH",
        "hidden Markov",
        "mixture",
        "schools",
        "centred schools",
    )
}
FIRST = COMPILED | {
    "logistic": "logistic growth",
    "oscillator": "harmonic oscillator",
    "linear 1": "ten means, normal prior",
    "linear uniform 1": "ten means, uniform prior",
    "Bernoulli GLM 1": "Bernoulli GLM",
    "Lotka–Volterra of sbibm 1": "Lotka–Volterra",
}
DENSITIES = {
    "Rosenbrock": "Rosenbrock",
    "two modes in a box": "two modes in a box",
    "three modes in a box": "three modes in a box",
    "three modes 5 in a box": "three modes in a box, five parameters",
    "egg box in a box": "egg box in a box",
    "two moons 1": "two moons",
    "SLCP 1": "SLCP",
    "mixture 1": "mixture of sbibm",
    "gaussian-mixture over HTTP": "three normals over HTTP",
    "constrained bananas": "constrained bananas",
}
CASES = {
    **FIRST,
    "SIR of sbibm 1": "SIR of sbibm",
    "SIR": "SIR of PINTS",
    "constant": "two constants",
    "Goodwin": "Goodwin's oscillator",
    "FitzHugh–Nagumo": "FitzHugh–Nagumo",
    "Hodgkin–Huxley": "Hodgkin–Huxley",
    "action potential": "action potential",
    "Lotka–Volterra": "Lotka–Volterra of PINTS",
    "repressilator": "repressilator",
    "messenger RNA": "messenger RNA",
    **DENSITIES,
}
"""And as the page calls them. Of all but COMPILED and DENSITIES the black box is a simulator."""
BUDGETS = (50, 60, 70, 80, 90, 100, 110, 125, 150, 175, 200, 300, 500, 1000, 2000, 5000)
"""Evaluations of ours."""


def plan(options):
    """Yield what is to be run."""
    make = cache(partial(Target, options))
    for case in CASES:
        yield {"case": case, "sampler": "truth"}, lambda case=case: make(case).truth()
    for seed in range(options.seeds):
        for method, (package, _) in METHODS.items():
            if package is None or find_spec(package):
                for case in CASES:
                    is_simulator = case not in COMPILED | DENSITIES
                    if is_simulator or not method.startswith("density"):
                        what = {"case": case, "sampler": method, "seed": seed}
                        yield what, partial(run, what, make)


# ---- problems -----------------------------------------------------------------------------------


class Target(Problem):
    """A Problem whose prior and likelihood are apart, and which counts and times what is asked.

    `calls` has an item for each call of its black box, or is None. `mass` is what the density of
    the prior integrates to, where it is that of what is sorted. `paths` are checkouts, or None.
    """

    n_density, n_likelihood, spent = 0, 0, 0.0

    def __init__(self, paths, name):
        self.toy, self.calls, case = None, None, MODELS.get(name)
        if case is None:
            toys_of = {
                "PINTS": suites.of_pints,
                "sbibm": partial(suites.of_sbibm, paths.sbibm),
                "UM-Bridge": partial(suites.of_umbridge, paths.umbridge),
                "infbench": partial(suites.of_infbench, None),
                "Ballnus et al.": suites.of_ballnus,
            }
            self.toy = toys_of[suites.suite_of(name)]()[name]
            model, self.calls = self.toy.model()
            case = Case(lambda: model)
        super().__init__(name, case)
        self.mass = 1 / 2 if name == "mixture" else 1.0

    def count_from_zero(self):
        """Compile what is called, and forget all calls."""
        self._logp, self._log_likelihood, self._prior  # noqa: B018
        self.n_density, self.n_likelihood, self.spent = 0, 0, 0.0
        if self.calls is not None:
            self.calls.clear()

    def logp(self, x):
        """Return the log-density at x, -inf for NaN."""
        self.n_density += 1
        return self._timed(super().logp, x)

    def log_likelihood(self, x):
        """Return the log-likelihood at x (d,), as low as nested samplers take where it is none."""
        self.n_likelihood += 1
        if x.min() <= NOWHERE:
            return LOWEST
        value = float(self._timed(self._log_likelihood, x))
        return value if value > LOWEST else LOWEST

    def _timed(self, function, x):
        began = process_time()
        try:
            return function(x)
        finally:
            self.spent += process_time() - began

    @cached_property
    def _log_likelihood(self):
        by_name = {value.name: value for value in self.model.value_vars}
        values = [by_name[name] for name in self.initial]
        [graph], x = pm.pytensorf.join_nonshared_inputs(self.initial, [self.model.datalogp], values)
        function = pm.pytensorf.compile([x], graph)
        function.trust_input = True
        return function

    @cached_property
    def _prior(self):
        u, at, quantiles, x = pt.vector("u", dtype="float64"), 0, {}, []
        for rv in self.model.free_RVs:
            shape = tuple(rv.shape.eval())
            n = int(np.prod(shape))
            own = graph_replace(rv, quantiles, strict=False) if quantiles else rv
            q = quantile(own, u[at : at + n].reshape(shape))
            transform = self.model.rvs_to_transforms[rv]
            if self.mass < 1 and isinstance(transform, type(ordered)):
                q = pt.sort(q)
            quantiles[rv], at = pt.specify_shape(q, shape), at + n
            x.append((q if transform is None else transform.forward(q, *own.owner.inputs)).ravel())
        function = pm.pytensorf.compile([u], pt.concatenate(x), on_unused_input="ignore")
        function.trust_input = True
        return function

    def prior(self, u):
        """Return the points x (..., d) of the unit cube's u (..., d), NOWHERE where there is none.

        That is where variables that are ordered, and not alike, are not in order.
        """
        flat = np.clip(np.atleast_2d(u), TINY, 1 - TINY)
        with np.errstate(all="ignore"):
            x = np.array([self._prior(row) for row in flat])
        return np.where(np.isnan(x), NOWHERE, x).reshape(np.shape(u))

    def draws_of_prior(self, u):
        """Return the points x (n, d) of those of u (m, d) that have one."""
        x = self.prior(u)
        return x[(x > NOWHERE).all(axis=1)]

    def quantiles(self, share, seed):
        """Return x (d,) with this share of the prior below, and above."""
        x = self.draws_of_prior(qmc.Sobol(self.d, seed=seed).random(1024))
        return np.quantile(x, [share, 1 - share], axis=0)

    @cached_property
    def _transformed(self):
        natural, at, values, x = pt.vector("natural", dtype="float64"), 0, {}, []
        for rv in self.model.free_RVs:
            shape = tuple(rv.shape.eval())
            n = int(np.prod(shape))
            inputs = graph_replace(rv.owner.inputs, values, strict=False)
            value = pt.specify_shape(natural[at : at + n].reshape(shape), shape)
            transform = self.model.rvs_to_transforms[rv]
            x.append((value if transform is None else transform.forward(value, *inputs)).ravel())
            values[rv], at = value, at + n
        return pm.pytensorf.compile([natural], pt.concatenate(x), on_unused_input="ignore")

    def transformed(self, natural):
        """Return x (n, d) of draws (n, d) of the free variables, each on its own scale."""
        return np.array([self._transformed(row) for row in natural])

    def truth(self):
        """Return means and standard deviations: by exact draws, by chains, or by a long run."""
        worth = {}
        if self.toy is not None:
            natural, ess = self._drawn()
            worth = {} if ess is None else {"ess": ess}
        elif "schools" in self.name:
            rng = np.random.default_rng(1)
            natural, _ = suites.schools_truth(self.name == "centred schools", None, rng)
        else:
            known = known_quantiles(self)
            return self._moments(known["mean"], known["sd"])
        x = self.transformed(natural[:: -(-len(natural) // N_TRUTH)])
        return self._moments(x.mean(axis=0), x.std(axis=0)) | worth

    def _drawn(self):
        """Return draws, by as many chains as it takes; what these are worth, None of exact ones."""
        draws, worth = [], 0
        while worth < LEAST_WORTH:
            rng = np.random.default_rng(1 + len(draws))
            own, ess = self.toy.truth(lambda: self.toy.model()[0], rng)
            if ess is None:
                return own, None
            draws.append(own)
            worth += ess
        return np.concatenate(draws), worth

    def _moments(self, mean, sd):
        return {"d": self.d, "mean": rounded(mean, 6), "sd": rounded(sd, 6)}


N_TRUTH, LEAST_WORTH = 30_000, 1000
"""Draws that are looked at, at most; what those of chains are worth, at least."""

LOWEST, TINY, NOWHERE = -1e100, 1e-15, -1e6


def quantile(rv, u):
    """Return the quantiles of a variable, as a graph; of a normal vector, those of its factor."""
    if isinstance(rv.owner.op, pm.MvNormal.rv_type):
        mean, covariance = rv.owner.op.dist_params(rv.owner)
        return mean + pt.linalg.cholesky(covariance) @ pm.icdf(pm.Normal.dist(), u)
    return pm.icdf(rv, u)


# ---- a run --------------------------------------------------------------------------------------


class Errors:
    """Functions of points whose averages are the errors of means and standard deviations."""

    def __init__(self, name):
        [known] = grouped(load(FILE), "case", "sampler")[name, "truth"]
        self.mean, self.sd = np.array(known["mean"]), np.array(known["sd"])

    def __call__(self, x):
        """Return their values (..., 2d) at single points x (..., d)."""
        z = (x - self.mean) / self.sd
        return np.concatenate([z, (z**2 - 1) / 2], axis=-1)


def run(what, make):
    """Return the row of a run."""
    name, method, seed = what.values()
    target, errors, (_, ask) = make(name), Errors(name), METHODS[method]
    target.count_from_zero()
    signal.signal(signal.SIGPROF, time_is_up)
    began = process_time()
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        signal.setitimer(signal.ITIMER_PROF, LIMITS.get(method, LIMIT))
        try:
            row = ask(target, errors, seed)
        except (Exception, TimeUp) as error:  # of any package: the row says so
            said = f"{type(error).__name__}: {error}".replace("\n", " ")[:120]
            spent = max(target.n_density, target.n_likelihood, len(target.calls or ()))
            row = {"evaluations": spent, "refused": said}
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    seconds = process_time() - began - target.spent
    row |= {key: rounded(value, 6) for key, value in row.items() if isinstance(value, float)}
    return row | {"seconds": round(seconds, 1)}


def time_is_up(*signal):
    """Raise TimeUp."""
    raise TimeUp("no end in time")


def ours(most, as_density, target, errors, seed):
    """Return a run of `pk.sample`, read as its users are told to."""
    options = {
        "max_evaluations": most,
        "compute_convergence_checks": False,
        "idata_kwargs": {"include_transformed": True},
    }
    if as_density or target.calls is None:
        options["step"] = pk.SurrogateMetropolis(model=target.model)
    dt, _ = suites.sampled(target.model, seed, options)
    counted = evaluations(dt)[:, -1].sum() if target.calls is None else len(target.calls)
    found = pk.expectation(dt, lambda v: errors(target.coordinates(v)), target.model)
    return {"evaluations": int(counted), "errors": rounded(found.mean, 3)}


def other(function, target, errors, seed):
    """Return a run of another package."""
    found = function(target, seed)
    if not isinstance(found, Found):
        return found
    x, w = found.draws()
    return found.row() | {"errors": rounded(np.average(errors(x), axis=0, weights=w), 3)}


class TimeUp(BaseException):
    """A run has taken too long. Packages catch errors, but not this."""


class Found(NamedTuple):
    """What a run has found: evaluations, log Z, its error, and what returns draws and weights.

    Draws x are (n, d), on the unconstrained scale.
    """

    evaluations: int
    log_z: float
    stated: float | None
    draws: Callable
    converged: bool | None = None

    def row(self):
        """Return the row of the evidence."""
        row = {"evaluations": int(self.evaluations), "log_z": float(self.log_z)}
        row |= {} if self.stated is None else {"stated": float(self.stated)}
        return row | ({} if self.converged is None else {"converged": bool(self.converged)})


def nautilus(n_live, n_eff, target, seed):
    """Return a run of nautilus; its error is that of its effective draws, as its paper has it."""
    from nautilus import Sampler

    target.count_from_zero()
    sampler = Sampler(
        target.prior, target.log_likelihood, target.d, n_live=n_live, seed=seed, pass_dict=False
    )
    sampler.run(n_eff=n_eff)

    def draws():
        x, log_w, _ = sampler.posterior()
        return x, np.exp(log_w)

    log_z = sampler.log_z + log(target.mass)
    return Found(target.n_likelihood, log_z, sampler.n_eff**-0.5, draws)


def dynesty(n_live, target, seed):
    """Return a run of dynesty's static sampler, which is for the evidence."""
    from dynesty import NestedSampler

    target.count_from_zero()
    sampler = NestedSampler(
        target.log_likelihood,
        target.prior,
        target.d,
        nlive=n_live,
        rstate=np.random.default_rng(seed),
    )
    sampler.run_nested(print_progress=False)
    found = sampler.results

    def draws():
        return found.samples, found.importance_weights()

    log_z = found.logz[-1] + log(target.mass)
    return Found(target.n_likelihood, log_z, found.logzerr[-1], draws)


def sequential(n, target, seed):
    """Return a chain of PyMC's SMC, which states no error: users look at several chains."""
    rng = np.random.default_rng(seed)
    x = target.draws_of_prior(rng.random((2 * n, target.d)))[:n]
    points = [target.unraveled(row) for row in x]
    start = {name: np.array([point[name] for point in points]) for name in target.initial}
    kernel = pm.smc.IMH(draws=n, model=target.model)
    spent = anneal(kernel, start, rng)

    def draws():
        return kernel.tempered_posterior, np.ones(n)

    return Found(spent, kernel.log_marginal_likelihood + log(target.mass), None, draws)


def variational(target, seed):
    """Return a run of PyVBMC: its bound, and the bound's error."""
    from pyvbmc import VBMC
    from pyvbmc.pymc import PyMCTarget, UnsupportedModel

    options = {"display": "off"}
    try:
        of_model = PyMCTarget(target.model, seed=seed)
    except UnsupportedModel:
        low, high = target.quantiles(0.05, seed)
        start = np.clip(target.centre, low, high)
        vbmc = VBMC(
            target.logp,
            start,
            plausible_lower_bounds=low,
            plausible_upper_bounds=high,
            options=options,
            seed=seed,
        )
        setup, coordinates = 0, np.asarray
    else:
        vbmc, setup = VBMC(of_model, options=options, seed=seed), of_model.setup_cost

        def coordinates(x):
            by_name = of_model.to_model_variables(x)
            columns = [np.reshape(by_name[name], (len(x), -1)) for name in of_model.names]
            return target.transformed(np.column_stack(columns))

    try:
        posterior, found = vbmc.optimize()
    except (ValueError, np.linalg.LinAlgError) as error:
        spent = vbmc.function_logger.func_count + setup
        return {"evaluations": int(spent), "refused": str(error)[:120]}
    except TimeUp:  # what it has by now
        spent, history = vbmc.function_logger.func_count, vbmc.iteration_history
        posterior = history["vp"][-1]
        found = {key: history[key][-1] for key in ("elbo", "elbo_sd")}
        found |= {"func_count": spent, "success_flag": False}

    def draws():
        return coordinates(posterior.sample(VARIATIONAL_DRAWS)[0]), np.ones(VARIATIONAL_DRAWS)

    spent = found["func_count"] + setup
    return Found(spent, found["elbo"], found["elbo_sd"], draws, found["success_flag"])


VARIATIONAL_DRAWS = 20_000
"""Of PyVBMC's posterior."""


def by_gaussian_process(target, seed):
    """Return a run of GPry in a box of 99 % of the prior of each coordinate.

    Its first points are from the middle 90 % of each.
    """
    from gpry import Runner

    boxes = [np.transpose(target.quantiles(share, seed)) for share in (0.005, 0.05)]
    runner = Runner(target.logp, bounds=boxes[0], ref_bounds=boxes[1], seed=seed, verbose=1)
    with suppress(TimeUp):  # then it is asked for what it has by now
        runner.run()
    spent = target.n_density
    runner.generate_mc_sample()
    sample, (log_z, error) = runner.last_mc_samples(), runner.last_mc_logZ()
    log_z += np.sum(np.log(np.diff(boxes[0])))  # its prior is 1 / volume
    w = np.ones(len(sample["X"])) if sample["w"] is None else sample["w"]
    return Found(spent, log_z, error, lambda: (sample["X"], w))


def ultranest(n_live, target, seed):
    """Return a run of UltraNest's reactive sampler."""
    from ultranest import ReactiveNestedSampler

    np.random.seed(seed)  # noqa: NPY002 (it takes no generator)
    names = [f"x{k}" for k in range(target.d)]
    sampler = ReactiveNestedSampler(names, target.log_likelihood, target.prior)
    found = sampler.run(min_num_live_points=n_live, show_status=False, viz_callback=False)
    sample = found["weighted_samples"]
    return Found(
        target.n_likelihood,
        found["logz"],
        found["logzerr"],
        lambda: (np.asarray(sample["points"]), sample["weights"]),
    )


def preconditioned(n_effective, target, seed):
    """Return a run of pocoMC, from the unit cube of the prior."""
    import pocomc

    sampler = pocomc.Sampler(
        pocomc.Prior([uniform()] * target.d),
        lambda u: target.log_likelihood(target.prior(u)),
        n_effective=n_effective,
        n_active=n_effective // 2,
        random_state=seed,
    )
    sampler.run(n_total=8 * n_effective, n_evidence=0, progress=False)
    u, w, *_ = sampler.posterior()
    log_z, error = sampler.evidence()
    return Found(target.n_likelihood, log_z, error, lambda: (target.prior(u), w))


METHODS = {
    "PyVBMC": ("pyvbmc", partial(other, variational)),
    "GPry": ("gpry", partial(other, by_gaussian_process)),
    **{f"ours {n}": (None, partial(ours, n, False)) for n in BUDGETS},
    **{f"density {n}": (None, partial(ours, n, True)) for n in BUDGETS},
    "SMC 100": (None, partial(other, partial(sequential, 100))),
    "SMC 500": (None, partial(other, partial(sequential, 500))),
    "SMC": (None, partial(other, partial(sequential, 2000))),
    "dynesty 50": ("dynesty", partial(other, partial(dynesty, 50))),
    "dynesty 100": ("dynesty", partial(other, partial(dynesty, 100))),
    "dynesty": ("dynesty", partial(other, partial(dynesty, 500))),
    "nautilus 200": ("nautilus", partial(other, partial(nautilus, 200, 200))),
    "nautilus 500": ("nautilus", partial(other, partial(nautilus, 500, 500))),
    "nautilus": ("nautilus", partial(other, partial(nautilus, 2000, 10_000))),
    "UltraNest 100": ("ultranest", partial(other, partial(ultranest, 100))),
    "UltraNest": ("ultranest", partial(other, partial(ultranest, 400))),
    "pocoMC 64": ("pocomc", partial(other, partial(preconditioned, 64))),
    "pocoMC": ("pocomc", partial(other, partial(preconditioned, 512))),
}
"""By name the package that it needs besides PyMC, and a function of a target, Errors and a seed."""


# ---- the page -----------------------------------------------------------------------------------

FAMILIES = {
    "ours": [f"ours {n}" for n in BUDGETS],
    "ours, as a density": [f"density {n}" for n in BUDGETS],
    "PyVBMC": ["PyVBMC"],
    "GPry": ["GPry"],
    "SMC": ["SMC 100", "SMC 500", "SMC"],
    "dynesty": ["dynesty 50", "dynesty 100", "dynesty"],
    "nautilus": ["nautilus 200", "nautilus 500", "nautilus"],
    "UltraNest": ["UltraNest 100", "UltraNest"],
    "pocoMC": ["pocoMC 64", "pocoMC"],
}
OURS = ("ours", "ours, as a density")
WANTED, NEAR = 0.1, 0.25
"""Posterior standard deviations, of the worst quantity."""


class Runs:
    """What the runs of a method on a case are worth.

    `evaluations` are those that an answer takes: runs without one are begun again.
    """

    def __init__(self, rows):
        self.n, answered = len(rows), [row for row in rows if "errors" in row]
        self.n_answered = len(answered)
        self.seconds = np.mean([row["seconds"] for row in rows])
        self.evaluations = np.sum([row["evaluations"] for row in rows]) / max(1, self.n_answered)
        errors = [row["errors"] for row in answered] or [[np.inf]]
        each = np.sqrt(np.mean(np.square(errors), axis=0))
        self.worst, self.median = each.max(), np.median(each)
        self.refused = sorted({row["refused"] for row in rows if "refused" in row})

    @property
    def enough(self):
        """Evaluations for the wanted error, if errors fall as n^-1/2."""
        return self.evaluations * (self.worst / WANTED) ** 2

    def cells(self):
        """Return the cells of a row."""
        n = f"{self.n_answered} of {self.n}" if self.n_answered < self.n else self.n
        off = (f"{rounded(x, 2):g}" if self.n_answered else None for x in (self.worst, self.median))
        return [n, three_digits(self.evaluations), *off, f"{rounded(self.seconds, 2):g}"]


class Needed(NamedTuple):
    """The evaluations for the wanted error, and whether a setting had it."""

    evaluations: float
    is_reached: bool


def needed(runs):
    """Return the Needed of some settings of a method, None if no setting came near.

    It is the first setting from which on all have the error, as one alone may have it by luck. The
    one before says how many are enough, or where the last has it not those whose errors are at most
    NEAR.
    """
    answered = sorted((one for one in runs if one.n_answered), key=lambda one: one.evaluations)
    n = sum(1 for _ in takewhile(lambda one: one.worst <= WANTED, reversed(answered)))
    if n > 0:
        before, first = answered[: len(answered) - n], answered[-n]
        return Needed(min([first.evaluations, *(one.enough for one in before[-1:])]), True)
    near = [max(one.enough, one.evaluations) for one in answered if one.worst <= NEAR]
    return Needed(min(near), False) if near else None


def tables(rows):
    """Return the tables of the page."""
    found = grouped(rows, "case", "sampler")
    runs = {what: Runs(own) for what, own in found.items() if what[1] != "truth"}
    d = {case: own[0]["d"] for (case, method), own in found.items() if method == "truth"}
    cases = [case for case in CASES if case in d]
    families = [f for f, methods in FAMILIES.items() if any(m in methods for _, m in runs)]
    n = {
        case: {
            family: needed(own)
            for family in families
            if (own := [runs[case, m] for m in FAMILIES[family] if (case, m) in runs])
        }
        for case in cases
    }
    others = [family for family in families if family not in OURS]
    learning = [family for family in others if family in LEARNING]
    return {
        "peers.md": {
            "evaluations for an error": table(
                ["problem", *families],
                [
                    [f"{CASES[case]}, d = {d[case]}", *(written(n[case], f) for f in families)]
                    for case in cases
                ],
            ),
            "against others": table(
                [
                    "against",
                    "problems",
                    "geometric mean",
                    "smallest",
                    "largest",
                    "never ours",
                    "never theirs",
                ],
                [
                    against(f"{title}, {which}", own, against_what, were_run)
                    for title, against_what, were_run in (
                        ("PyVBMC", ["PyVBMC"], ["PyVBMC"]),
                        ("the best, where PyVBMC was run", others, ["PyVBMC"]),
                        ("the best of SMC and nested samplers", set(others) - {*learning}, ()),
                    )
                    for which, own in (
                        ("first choice", {case: n[case] for case in cases if case in FIRST}),
                        ("all", n),
                    )
                ],
            ),
            "expensive": table(
                ["problem", "method", "runs", "evaluations", "worst", "median", "seconds"],
                [
                    [CASES[case], method, *runs[case, method].cells()]
                    for case in cases
                    for method in METHODS
                    if (case, method) in runs
                ],
            ),
        }
    }


LEARNING = ("PyVBMC", "GPry")
"""Those that learn the log-density."""


def against(title, n, families, were_run):
    """Return the row of ours over the fewest evaluations of some families, where they were run."""
    ratios, never_ours, never_theirs = [], 0, 0
    for own in n.values():
        if not all(family in own for family in ("ours", *were_run)):
            continue
        counts = [own[family].evaluations for family in families if own.get(family)]
        if own["ours"] and counts:
            ratios.append(own["ours"].evaluations / min(counts))
        never_ours += not own["ours"]
        never_theirs += not counts
    shown = (gmean(ratios), min(ratios), max(ratios)) if ratios else (None,) * 3
    shown = (None if x is None else f"{rounded(x, 2):g}" for x in shown)
    return [title, len(ratios), *shown, never_ours, never_theirs]


def written(n, family):
    """Return the cell of a method."""
    if family not in n:
        return None
    if n[family] is None:
        return "never"
    return three_digits(rounded(n[family].evaluations, 2)) + "°" * (not n[family].is_reached)


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=4, add_options=suites.add_options)
