"""A likelihood that a particle filter estimates: stochastic volatility, by pseudo-marginal GAM.

    python examples/particle_filter.py [--particles 25] [--draws 2000] [--tune 1000]

The log variance h_t of the returns y_t, the state, wanders about μ:

    h_1 ~ N(μ, σ²/(1 − φ²)),    h_t = μ + φ (h_{t−1} − μ) + σ η_t,    y_t = exp(h_t/2) ε_t,

with η_t and ε_t standard normal. The likelihood of (μ, φ, σ) is an integral over 200 states. GAM
gets an estimate of it from a bootstrap particle filter [G], and samples three parameters. NUTS gets
no estimate: it samples the states, too, 203 variables in all. So both have the same posterior. The
script prints what they make of it, and by how many Monte-Carlo errors they differ.

For a model of your own with one state, write three functions like `first`, `move` and
`log_density`, and leave the rest as it is.

[G] Gordon, Salmond & Smith, "Novel approach to nonlinear/non-Gaussian Bayesian state estimation",
IEE Proceedings F 140 (1993).
"""

import argparse
import logging
import time

import arviz as az
import numba
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Apply, Op
from pytensor.link.numba.dispatch.basic import numba_funcify, numba_njit

import pymc_kameleon as pk

TRUTH = {"mu": -1.0, "phi": 0.95, "sigma": 0.3}
N_DAYS, SEED = 200, 1


# ---- the state-space model ----------------------------------------------------------------------


@numba.njit(error_model="numpy")
def first(parameters, normal):
    """Return the first state, made of a standard normal number."""
    mu, phi, sigma = parameters
    return mu + sigma / np.sqrt(1 - phi**2) * normal


@numba.njit
def move(state, parameters, normal):
    """Return the state that follows `state`, made of a standard normal number."""
    mu, phi, sigma = parameters
    return mu + phi * (state - mu) + sigma * normal


@numba.njit
def log_density(y, state, parameters):
    """Return the log-density of an observation: normal, with variance exp(state)."""
    return -0.5 * (np.log(2 * np.pi) + state + y**2 * np.exp(-state))


# ---- its likelihood, estimated ------------------------------------------------------------------


class ParticleFilter(Op):
    """Logarithm of an estimate of p(y | parameters), of (parameters (d,), y (n,), seed).

    Functions compiled by numba are the model. More particles make its variance smaller.
    """

    __props__ = ("first", "move", "log_density", "n_particles")

    def __init__(self, first, move, log_density, n_particles):
        self.first, self.move, self.log_density = first, move, log_density
        self.n_particles = n_particles

    def make_node(self, parameters, y, seed):
        """Take parameters and y as float64, and the seed as int64."""
        inputs = [pt.as_tensor(value).astype("float64") for value in (parameters, y)]
        inputs.append(pt.as_tensor(seed).astype("int64"))
        return Apply(self, inputs, [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        """Call the compiled function from Python."""
        parameters, y, seed = inputs
        functions = self.first, self.move, self.log_density
        value = log_estimate(parameters, y, int(seed), self.n_particles, *functions)
        outputs[0][0] = np.array(value)


@numba_funcify.register(ParticleFilter)
def _compiled(op, **kwargs):
    first, move, log_density, n_particles = op.first, op.move, op.log_density, op.n_particles

    @numba_njit
    def particle_filter(parameters, y, seed):
        value = log_estimate(parameters, y, seed.item(), n_particles, first, move, log_density)
        return np.asarray(value)

    return particle_filter


@numba.njit(error_model="numpy")
def log_estimate(parameters, y, seed, n_particles, first, move, log_density):
    """Return the logarithm of the product over t of the mean of p(y_t | state) over particles.

    The product is an unbiased estimate of p(y | parameters). All random numbers come from the seed.
    """
    np.random.seed(seed % 2**32)  # noqa: NPY002, as compiled code cannot make a Generator
    states, weights = np.empty(n_particles), np.empty(n_particles)
    for i in range(n_particles):
        states[i] = first(parameters, np.random.standard_normal())  # noqa: NPY002
    total = 0.0
    for t in range(y.size):
        if t > 0:
            states = parents(states, weights)
            for i in range(n_particles):
                normal = np.random.standard_normal()  # noqa: NPY002
                states[i] = move(states[i], parameters, normal)
        for i in range(n_particles):
            weights[i] = log_density(y[t], states[i], parameters)
        largest = weights.max()
        if largest == -np.inf:
            return largest
        weights = np.exp(weights - largest)
        total += largest + np.log(weights.mean())
    return total


@numba.njit
def parents(states, weights):
    """Return as many states, each on average in proportion to its weight: systematic resampling."""
    n = states.size
    chosen = np.empty(n)
    i, reached, step = 0, weights[0], weights.sum() / n
    place = np.random.random() * step  # noqa: NPY002
    for k in range(n):
        while reached < place and i < n - 1:
            i += 1
            reached += weights[i]
        chosen[k] = states[i]
        place += step
    return chosen


# ---- the two ways to the posterior --------------------------------------------------------------


def simulate():
    """Return returns (200,) of the true parameters, in percent."""
    rng = np.random.default_rng(SEED)
    parameters = tuple(TRUTH.values())
    state = [first(parameters, rng.standard_normal())]
    for _ in range(N_DAYS - 1):
        state.append(move(state[-1], parameters, rng.standard_normal()))
    return np.exp(np.array(state) / 2) * rng.standard_normal(N_DAYS)


def priors():
    """Return mu, phi and sigma, as variables of the model at hand."""
    mu = pm.Normal("mu", 0, 2)
    phi = pm.Beta("phi", 20, 2)
    sigma = pm.HalfNormal("sigma", 0.5)
    return mu, phi, sigma


def estimated(y, n_particles):
    """Build the model of the parameters alone."""
    with pm.Model() as model:
        likelihood = ParticleFilter(first, move, log_density, n_particles)
        pm.Potential("likelihood", likelihood(pt.stack(priors()), y, pk.noise_seed()))
    return model


def exact(y):
    """Build the model of parameters and states."""
    with pm.Model() as model:
        mu, phi, sigma = priors()
        start = pm.Normal.dist(0, 1 / pm.math.sqrt(1 - phi**2))
        wander = pm.AR("wander", rho=[phi], sigma=1, init_dist=start, shape=N_DAYS)
        pm.Normal("y", 0, pm.math.exp((mu + sigma * wander) / 2), observed=y)
    return model


def compare(name, ours, reference):
    """Print what both made of a parameter, and their distance in Monte-Carlo errors."""
    row, means, errors = f"{name:6}{TRUTH[name]:6.2f}", [], []
    for dt in ours, reference:
        x = dt["posterior"][name].values
        ess = float(az.ess(x))
        row += f"{x.mean():11.3f} ({x.std():.3f}){ess:6.0f}"
        means.append(x.mean())
        errors.append(x.std() / ess**0.5)
    print(f"{row}{abs(means[0] - means[1]) / np.hypot(*errors):10.1f}")


def main():
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--particles", type=int, default=25)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--tune", type=int, default=1000)
    options = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)

    y = simulate()
    common = {"draws": options.draws, "tune": options.tune, "chains": 4, "random_seed": SEED}
    times = [time.perf_counter()]
    with estimated(y, options.particles):
        ours = pk.sample(step=pk.GAM(pseudo_marginal=True), **common)
    times.append(time.perf_counter())
    with exact(y):
        reference = pm.sample(nuts={"target_accept": 0.9}, progressbar=False, **common)
    times.append(time.perf_counter())

    v = ours["sample_stats"]["log_estimate_var"].values[:, 0]
    print(f"\n{options.particles} particles; variance of the log-estimate, by chain:", v.round(1))
    print(f"{'':8}true{'estimated, GAM':>19}   ESS{'states too, NUTS':>19}   ESS   errors apart")
    for name in TRUTH:
        compare(name, ours, reference)
    print("seconds{:24.0f}{:25.0f}   with compilation".format(*np.diff(times)))


if __name__ == "__main__":
    main()
