"""Models whose simulator is a black box, and what is known of their posteriors.

    python examples/benchmarks/simulators.py [--cases influenza heat]

makes the references that are missing in simulators.json.

Each model has one black box: a function that is called through Python, has no gradient, and counts
its calls. It is smooth and the same at each call, as its steps are fixed. So the same model with a
twin of the simulator that has a gradient, or is at least called without Python, can be run for very
long, and that is where references are from:

* `by_nuts`: NUTS with derivatives by central differences, or by PyTensor of a closed form. An error
  of a derivative costs acceptance only: the draws are exact.
* `by_grid`: sums over a grid, where there are three parameters.

A row of simulators.json is of all coordinates of a model on the unconstrained scale, or of all free
variables, with their means, standard deviations, means of squares and standard deviations of
squares. `ess` says how well means are known: as by so many independent draws, null if exactly.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import benchmark
import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from problems import Case, Moments, Problem, from_draws
from pytensor.graph import Apply, Op
from pytensor.graph.replace import vectorize_graph
from pytensor.link.numba.dispatch.basic import numba_funcify, numba_njit
from quickstart import PELTS

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")

jit = numba.njit(error_model="numpy")


# ---- black boxes --------------------------------------------------------------------------------


def black_box(name, solve, shape):
    """Return a black box, and leave in its attribute `call` what counts its calls.

    `solve` takes all inputs as one vector, and returns all outputs, of this shape. The twin needs
    it compiled.
    """

    def call(*inputs):
        outputs = solve(np.concatenate([np.ravel(x) for x in inputs])).reshape(shape)
        call.calls += 1
        return outputs

    call.calls = 0
    call.__name__ = call.__qualname__ = name
    op = pk.black_box(call, ndim=len(shape))
    op.call, op.twin = call, twin(solve, shape)
    return op


def twin(solve, shape):
    """Return a function of the same inputs and outputs, which is compiled and has a gradient."""

    def function(*inputs):
        x = pt.concatenate([pt.flatten(pt.as_tensor(x)) for x in inputs])
        return Compiled(solve)(x).reshape(shape)

    return function


class Compiled(Op):
    """A compiled function of a vector, which returns a vector, or a matrix of derivatives."""

    __props__ = ("solve", "ndim")

    def __init__(self, solve, ndim=1):
        self.solve, self.ndim = solve, ndim

    def make_node(self, x):
        """Take a vector."""
        return Apply(self, [x], [pt.TensorType("float64", (None,) * self.ndim)()])

    def perform(self, node, inputs, outputs):
        """Call the function."""
        outputs[0][0] = self.solve(inputs[0])

    def pullback(self, inputs, outputs, cotangents):
        """Multiply by the derivatives."""
        return [cotangents[0] @ Compiled(derivatives_of(self.solve), 2)(*inputs)]


@numba_funcify.register(Compiled)
def _compiled(op, **kwargs):
    solve = op.solve

    @numba_njit
    def compiled(x):
        return solve(x)

    return compiled


def derivatives_of(solve):
    """Return a compiled function that returns the derivatives of outputs in inputs, (q, p)."""
    if solve not in _derivatives:

        @jit
        def derivatives(x):
            found, moved = np.empty((solve(x).size, x.size)), x.copy()
            for k in range(x.size):
                h = DIFFERENCE * max(abs(x[k]), 0.01)
                moved[k] = x[k] + h
                above = solve(moved)
                moved[k] = x[k] - h
                found[:, k] = (above - solve(moved)) / (2 * h)
                moved[k] = x[k]
            return found

        _derivatives[solve] = derivatives
    return _derivatives[solve]


DIFFERENCE = 1e-5
_derivatives = {}


@jit
def runge_kutta(slopes, a, b, x, h, n):
    """Move two numbers by n steps of length h; `slopes` are functions of them and x."""
    for _ in range(n):
        a1, b1 = slopes(a, b, x)
        a2, b2 = slopes(a + h / 2 * a1, b + h / 2 * b1, x)
        a3, b3 = slopes(a + h / 2 * a2, b + h / 2 * b2, x)
        a4, b4 = slopes(a + h * a3, b + h * b3, x)
        a += h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
        b += h / 6 * (b1 + 2 * b2 + 2 * b3 + b4)
    return a, b


# ---- influenza ----------------------------------------------------------------------------------

IN_BED = np.array([3, 8, 26, 76, 225, 298, 258, 233, 189, 128, 68, 29, 14, 4])
"""Boys of 763 on 14 days: Anonymous, "Influenza in a boarding school", BMJ, 4 March 1978, 587."""


@jit
def infections(s, i, x):
    """Return the slopes of the logarithms of susceptible and infectious, which stay positive."""
    return -x[0] / 763 * np.exp(i), x[0] / 763 * np.exp(s) - x[1]


@jit
def outbreak(x):
    """Return the infectious on each day, of infection and recovery per day."""
    s, i, found = np.log(762.0), 0.0, np.empty(IN_BED.size)
    for day in range(found.size):
        s, i = runge_kutta(infections, s, i, x, 0.05, 20)
        found[day] = np.exp(i)
    return found


@jit
def outbreak_in_fives(x):
    """Return the same, rounded to multiples of five, but at least one."""
    found = outbreak(x)
    for day in range(found.size):
        found[day] = max(1.0, 5 * np.round(found[day] / 5))
    return found


@jit
def outbreak_with_a_hole(x):
    """Return the same, or NaN where a boy is ill for longer than about two days."""
    found = outbreak(x)
    if x[1] < 0.52 + 0.02 * np.sin(40 * x[0]):
        found[:] = np.nan
    return found


epidemic = black_box("epidemic", outbreak, (14,))
epidemic_in_fives = black_box("epidemic_in_fives", outbreak_in_fives, (14,))
epidemic_with_a_hole = black_box("epidemic_with_a_hole", outbreak_with_a_hole, (14,))


def influenza(epidemic):
    """Return the model of the boarding school, with negative binomial counts."""
    with pm.Model() as model:
        infection, recovery = pm.LogNormal("infection"), pm.LogNormal("recovery")
        inverse = pm.Exponential("inverse_dispersion", 5)
        mean = epidemic(infection, recovery)
        pm.NegativeBinomial("in_bed", mean, alpha=1 / inverse, observed=IN_BED)
    return model


# ---- a drug in two compartments -----------------------------------------------------------------

HOURS = np.array([0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 18, 24])
DOSE = 100.0


def concentrations(x, xp=np):
    """Return concentrations at HOURS of a dose that is swallowed, of (CL, V1, Q, V2, ka).

    It is a sum of three exponentials. `xp` is NumPy, or pytensor.tensor, which differentiates.
    """
    clearance, v1, flow, v2, absorption = (x[k] for k in range(5))
    out, across, back = clearance / v1, flow / v1, flow / v2
    total = out + across + back
    fast = (total + xp.sqrt(total**2 - 4 * back * out)) / 2
    slow = back * out / fast
    terms = [
        (back - own) / ((one - own) * (other - own)) * xp.exp(-own * HOURS)
        for own, one, other in (
            (fast, slow, absorption),
            (slow, fast, absorption),
            (absorption, fast, slow),
        )
    ]
    return DOSE * absorption / v1 * sum(terms)


def concentrations_of_all(x):
    """Return the same of several subjects, whose parameters come one after the other."""
    return np.array([concentrations(own) for own in x.reshape(-1, 5)])


pkmodel = black_box("pkmodel", concentrations, HOURS.shape)
pkmodel_of_all = black_box("pkmodel_of_all", concentrations_of_all, (4, HOURS.size))

TYPICAL = np.array([5.0, 20.0, 3.0, 40.0, 1.2])


def measured_concentrations(n, seed):
    """Return simulated data of n subjects."""
    rng = np.random.default_rng(seed)
    own = np.tile(TYPICAL, (n, 1))
    own[:, :2] *= np.exp(rng.normal(size=(n, 2)) * [0.3, 0.2])
    mean = concentrations_of_all(own)
    return mean * np.exp(0.15 * rng.normal(size=mean.shape))


def pk_model(of_all, y):
    """Return a hierarchical model, not centred; clearance and first volume vary by subject."""
    with pm.Model() as model:
        means = pm.Normal("means", np.log([3, 30, 3, 30, 1]), 1, shape=5)
        between = pm.HalfNormal("between", 0.5, shape=2)
        sigma = pm.HalfNormal("sigma", 0.5)
        effects = pm.Normal("effects", shape=(2, len(y)))
        varying = pt.exp(means[:2, None] + between[:, None] * effects)
        common = pt.exp(means[2:, None]) * np.ones(len(y))
        mean = of_all(pt.concatenate([varying, common]).T)
        pm.LogNormal("y", pt.log(mean), sigma, observed=y)
    return model


def pk_by_subject(solve):
    """Return the model of four subjects, with a call for each."""

    def of_all(parameters):
        return pt.stack([solve(parameters[i]) for i in range(4)])

    return pk_model(of_all, measured_concentrations(4, seed=1))


def pk_in_one_call(solve):
    """Return the same model, with a call for all four."""
    return pk_model(solve, measured_concentrations(4, seed=1))


# ---- heat ---------------------------------------------------------------------------------------

CELLS, STEPS, DURATION = 40, 60, 0.6
SENSORS = np.array([3, 9, 16, 23, 30, 37])
COEFFICIENTS, LENGTH = 25, 0.2


def field_basis():
    """Return what a coefficient of the log-conductivity adds to it in each cell, (cells, 25).

    It is a Gaussian process with the covariance of Matérn, ν = 3/2, by its principal components.
    """
    x = (np.arange(CELLS) + 0.5) / CELLS
    distance = np.sqrt(3) * np.abs(x[:, None] - x) / LENGTH
    values, vectors = np.linalg.eigh((1 + distance) * np.exp(-distance))
    vectors = vectors[:, ::-1][:, :COEFFICIENTS]
    vectors = vectors * np.sign(vectors[0])  # as signs depend on the library
    return np.ascontiguousarray(vectors * np.sqrt(values[::-1][:COEFFICIENTS]))


BASIS = field_basis()


def temperatures(x, xp=np):
    """Return temperatures of a rod at ten times and six places, of the coefficients of the field.

    The rod is cold; then its left end is held at 1, while its right end is insulated. Steps in time
    are implicit, so that any conductivity does. In the end all is at 1, and a step multiplies the
    distance to that by the same matrix. `xp` is NumPy, or pytensor.tensor, which differentiates.
    """
    field = BASIS @ x
    between = (field[1:] + field[:-1]) / 2
    flow = DURATION / STEPS * CELLS**2 * xp.exp(xp.concatenate([field[:1] + np.log(2), between]))
    difference = np.eye(CELLS) - np.eye(CELLS, k=-1)
    step = xp.linalg.inv(np.eye(CELLS) + difference.T @ (flow[:, None] * difference))
    square = step @ step
    steps, left, found = square @ square @ square, xp.ones(CELLS), []
    for _ in range(10):
        left = steps @ left
        found.append(1 - left[SENSORS])
    return xp.stack(found)


rod = black_box("rod", temperatures, (10, SENSORS.size))


def heat(rod):
    """Return a model of the conductivity along a rod, whose logarithm is a Gaussian field."""
    rng = np.random.default_rng(4)
    y = temperatures(rng.normal(size=COEFFICIENTS)).reshape(10, -1)
    y += 0.01 * rng.normal(size=y.shape)
    with pm.Model() as model:
        z = pm.Normal("z", shape=COEFFICIENTS)
        sigma = pm.HalfNormal("sigma", 0.1)
        pm.Normal("y", rod(z), sigma, observed=y)
    return model


# ---- hares and lynxes ---------------------------------------------------------------------------


@jit
def growth(hare, lynx, x):
    """Return the slopes of the logarithms of both numbers."""
    return x[0] - x[1] * np.exp(lynx), x[3] * np.exp(hare) - x[2]


@jit
def numbers(x):
    """Return hares and lynxes by year, of four rates and both at first."""
    hare, lynx, found = np.log(x[4]), np.log(x[5]), np.empty((21, 2))
    found[0] = x[4:]
    for year in range(1, 21):
        hare, lynx = runge_kutta(growth, hare, lynx, x, 0.05, 20)
        found[year, 0], found[year, 1] = np.exp(hare), np.exp(lynx)
    return found.ravel()


populations = black_box("populations", numbers, (21, 2))


def hares(populations):
    """Return Carpenter's (2018) model of the pelts, which starts at his estimates.

    Other starts have other periods, and modes of their own around them.
    """
    with pm.Model() as model:
        alpha = pm.TruncatedNormal("alpha", 1, 0.5, lower=0, initval=0.55)
        beta = pm.TruncatedNormal("beta", 0.05, 0.05, lower=0, initval=0.028)
        gamma = pm.TruncatedNormal("gamma", 1, 0.5, lower=0, initval=0.80)
        delta = pm.TruncatedNormal("delta", 0.05, 0.05, lower=0, initval=0.024)
        initial = pm.LogNormal("initial", np.log(10), 1, shape=2, initval=PELTS[0])
        sigma = pm.LogNormal("sigma", -1, 1, shape=2, initval=[0.25, 0.25])
        mean = populations(pt.stack([alpha, beta, gamma, delta]), initial)
        pm.LogNormal("pelts", pt.log(mean), sigma, observed=PELTS)
    return model


# ---- chaos --------------------------------------------------------------------------------------


@jit
def weather(x):
    """Return what Lorenz's (1963) equations come to at times 11 to 20, of their three numbers."""
    h, state, found = 0.01, np.ones(3), np.empty((10, 3))
    k, moved = np.empty((4, 3)), np.empty(3)
    for time in range(20):
        for _ in range(100):
            for part in range(4):
                step = h * (0.0, 0.5, 0.5, 1.0)[part]
                for i in range(3):
                    moved[i] = state[i] + (step * k[part - 1, i] if part > 0 else 0.0)
                k[part, 0] = x[0] * (moved[1] - moved[0])
                k[part, 1] = moved[0] * (x[1] - moved[2]) - moved[1]
                k[part, 2] = moved[0] * moved[1] - x[2] * moved[2]
            for i in range(3):
                state[i] += h / 6 * (k[0, i] + 2 * k[1, i] + 2 * k[2, i] + k[3, i])
        if time >= 10:
            found[time - 10] = state
    return found.ravel()


lorenz = black_box("lorenz", weather, (10, 3))


def chaos(lorenz):
    """Return a model of a chaotic system, observed ten times and more beyond what is predictable.

    An error at first is e times as large after a time of about 1. So nothing can learn this.
    """
    rng = np.random.default_rng(5)
    y = weather(np.array([10, 28, 8 / 3])).reshape(10, 3) + rng.normal(size=(10, 3))
    with pm.Model() as model:
        x = pm.LogNormal("x", np.log([10, 28, 8 / 3]), 0.1, shape=3)
        pm.Normal("y", lorenz(x), 1, observed=y)
    return model


# ---- references ---------------------------------------------------------------------------------


def by_nuts(problem, draws=10_000):
    """Return Moments of coordinates and of free variables, by a run of NUTS, and how it was made.

    Its mass matrix is dense, as some coordinates correlate by more than 0.9.
    """
    with benchmark.quiet() as told:
        dt = benchmark.sample_by_pymc(
            draws,
            tune=2000,
            init="jitter+adapt_full",
            cores=2,
            target_accept=0.95,
            model=problem.model,
            random_seed=1,
            compute_convergence_checks=True,
            idata_kwargs={"include_transformed": True},
        )
    for record in told:
        print(f"reference of {problem.name}: {record.getMessage()}", file=sys.stderr)
    both = problem.coordinates(dt["posterior"]), benchmark.parameters(problem.model, dt)
    made = f"NUTS with a dense mass matrix, 4 chains of {draws} draws"
    return [(from_draws(x), benchmark.largest_rhat(x)) for x in both], made


def by_grid(problem):
    """Return the same by a sum over a grid."""
    dt = benchmark.sample(pk.GAM(model=problem.model), 5000, random_seed=1)
    moments, made = over_grid(problem, dt)
    return [(own, None) for own in moments], made


def over_grid(problem, dt, points=100, reach=9.0):
    """Return Moments of coordinates and of free variables, and how they were made.

    The grid is along the principal axes of the draws, up to so many sds each way.
    """
    x = problem.coordinates(dt["posterior"]).reshape(-1, problem.d)
    along = np.meshgrid(*[np.linspace(-reach, reach, points)] * problem.d)
    along = np.stack(along, axis=-1).reshape(-1, problem.d)
    x = x.mean(axis=0) + along @ np.linalg.cholesky(np.cov(x.T)).T
    logp = np.array([problem.logp(own) for own in x])
    weight = np.exp(logp - logp.max())
    outside = weight[np.abs(along).max(axis=1) == reach].max()
    weight /= weight.sum()
    x, weight = x[weight > NEGLIGIBLE], weight[weight > NEGLIGIBLE]
    made = f"sum over {points}^{problem.d} points, at their edge {outside:.0e} of the highest"
    return [from_weights(own, weight) for own in (x, problem.natural(x))], made


NEGLIGIBLE = 1e-15
"""Probability of a point of a grid that is left out."""


def from_weights(x, weight):
    """Return the Moments of points (n, d) and their probabilities."""
    mean, square, fourth = weight @ x, weight @ x**2, weight @ x**4
    sd, of_square = np.sqrt(weight @ (x - mean) ** 2), np.sqrt(fourth - square**2)
    exactly = np.full(2 * mean.size, np.inf)
    return Moments(np.concatenate([mean, square]), np.concatenate([sd, of_square]), exactly)


def labels(values):
    """Return the names of all elements of values by name."""
    return [
        name + "".join(f"[{i}]" for i in place)
        for name, value in values.items()
        for place in np.ndindex(np.shape(value))
    ]


# ---- all models ---------------------------------------------------------------------------------


class Benchmark(NamedTuple):
    """A model, as a function of its black box; the box; and how its posterior is known."""

    build: Callable
    simulator: Op
    known: Callable | None  # of a `Problem`, whose model is built with the twin
    twin: Callable | None = None  # instead of that of the black box
    applications: int = 1  # calls of the black box in an evaluation of the log-density
    known_as: str | None = None  # the model with the same posterior

    def model(self):
        """Return the model with its black box."""
        return self.build(self.simulator)

    def twin_model(self):
        """Return the model whose simulator is compiled with it."""
        return self.build(self.twin or self.simulator.twin)


MODELS = {
    "influenza": Benchmark(influenza, epidemic, by_grid),
    "pk_by_subject": Benchmark(pk_by_subject, pkmodel, by_nuts, partial(concentrations, xp=pt), 4),
    "pk_in_one_call": Benchmark(pk_in_one_call, pkmodel_of_all, None, known_as="pk_by_subject"),
    "heat": Benchmark(heat, rod, by_nuts, partial(temperatures, xp=pt)),
    "hares": Benchmark(hares, populations, by_nuts),
    "jumps": Benchmark(influenza, epidemic_in_fives, by_grid),
    "holes": Benchmark(influenza, epidemic_with_a_hole, by_grid),
    "chaos": Benchmark(chaos, lorenz, None),
}


class Known(Problem):
    """A model, and its coordinates and free variables by name."""

    def __init__(self, name, build):
        super().__init__(name, Case(build))

    def natural(self, x):
        """Return the free variables (n, q) at points x (n, d)."""
        by_name = {v.name: v for v in self.model.value_vars}
        values = {
            by_name[name]: pt.tensor(name, shape=(None, *value.shape))
            for name, value in self.initial.items()
        }
        variables = self.model.replace_rvs_by_values(self.model.free_RVs)
        function = pytensor.function([*values.values()], vectorize_graph(variables, values))
        ends = np.cumsum([value.size for value in self.initial.values()])[:-1]
        pairs = zip(np.split(x, ends, axis=1), self.initial.values(), strict=True)
        found = function(*(part.reshape(-1, *value.shape) for part, value in pairs))
        return np.concatenate([f.reshape(len(x), -1) for f in found], axis=1)

    def names(self):
        """Return names of coordinates, and of free variables."""
        values = self._natural(self.initial)
        free = {rv.name: v for rv, v in zip(self.model.free_RVs, values, strict=True)}
        return labels(self.initial), labels(free)


def reference(name, of="coordinates"):
    """Return the row of a model, with arrays, or None."""
    for row in benchmark.grouped(benchmark.load(FILE), "case", "of")[name, of]:
        return {k: np.array(v) if isinstance(v, list) else v for k, v in row.items()}


def plan(options):
    """Yield the references."""
    for name, model in MODELS.items():
        if model.known is not None:
            yield {"case": name}, partial(known_of, name)


def known_of(name):
    """Return the reference of a model, a row for coordinates and one for free variables."""
    problem, rows = Known(name, MODELS[name].twin_model), []
    found, made = MODELS[name].known(problem)
    for of, names, (moments, rhat) in zip(
        ("coordinates", "variables"), problem.names(), found, strict=True
    ):
        row = {"of": of, "made": made, "names": names}
        for key, both in zip(("mean", "sd", "ess"), moments, strict=True):
            row |= {
                name: exactly(half)
                for name, half in zip(HALVES[key], np.split(both, 2), strict=True)
            }
        rows.append(row | {"rhat": rhat and benchmark.rounded(rhat, 7)})
    return rows


HALVES = {
    "mean": ("mean", "square"),
    "sd": ("sd", "sd_of_square"),
    "ess": ("ess", "ess_of_square"),
}
"""What rows call the halves of Moments."""


def exactly(values):
    """Return numbers as rows have them, None if they are infinite."""
    return None if np.isinf(values).all() else benchmark.rounded(values, 7)


if __name__ == "__main__":
    benchmark.main(FILE, plan)
