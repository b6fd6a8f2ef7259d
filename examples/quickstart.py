"""Hares and lynxes: a model with a black-box ODE solver, sampled by SurrogateMetropolis.

Twenty-one years of pelts and the predator-prey equations of Lotka and Volterra, as in Carpenter
(2018), "Predator-Prey Population Dynamics: the Lotka-Volterra model in Stan", mc-stan.org. SciPy
solves the equations, so there is no gradient and NUTS is out. PyMC's DEMetropolisZ, which needs no
gradient either, then gets as many calls of the solver. Less than a minute on two cores:

    python quickstart.py [--draws N] [--tune N] [--output FILE]
"""

import argparse
import time
import warnings
from math import exp

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.integrate import odeint

import pymc_kameleon as pk

# PyTensor warns of every Op that it cannot compile. Ours is a black box on purpose.
warnings.filterwarnings("ignore", message="Numba will use object mode")

SEED = 1900
CHAINS, CORES = 4, 2

SPECIES = ["hare", "lynx"]
YEARS = np.arange(1900, 1921)
HARES = """30.0 47.2 70.2 77.4 36.3 20.6 18.1 21.4 22.0 25.4 27.1
           40.3 57.0 76.6 52.3 19.5 11.2  7.6 14.6 16.2 24.7"""
LYNXES = """4.0  6.1  9.8 35.2 59.4 41.7 19.0 13.0  8.3  9.1  7.4
            8.0 12.3 19.5 45.7 51.1 29.7 15.8  9.7 10.1  8.6"""
PELTS = np.array([HARES.split(), LYNXES.split()], dtype=float).T
"""Thousands of pelts that the Hudson's Bay Company collected, by year and species.

The numbers are those of Howard (2009), "Modeling Basics", lecture notes, Texas A&M University. On
the company's records see Elton & Nicholson (1942), "The ten-year cycle in numbers of the lynx in
Canada", Journal of Animal Ecology 11, 215-244.
"""

RATES = ["alpha", "beta", "gamma", "delta"]
GUESS = {"alpha": 0.55, "beta": 0.028, "gamma": 0.80, "delta": 0.024, "sigma": [0.25, 0.25]}
"""Carpenter's posterior means."""


# ---- the model ----------------------------------------------------------------------------------


def growth(log_population, year, alpha, beta, gamma, delta):
    """Return what hares and lynxes grow by: the derivatives of the logs of their numbers."""
    log_hare, log_lynx = log_population.tolist()  # Python's floats, twice as fast as NumPy's
    return alpha - beta * exp(log_lynx), delta * exp(log_hare) - gamma


def solve(rates, initial, years):
    """Return the logs of both populations over the years, shape (n, 2).

    NaN where the solver gives up, so that such parameters are rejected.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            start, rates = np.log(initial), tuple(rates.tolist())
            return odeint(growth, start, years, args=rates, rtol=1e-6, atol=1e-6)
        except (Warning, OverflowError):
            return np.full((len(years), 2), np.nan)


@pk.black_box(ndim=2)
def populations(rates, initial):
    """Solve for the years of the data, as a part of PyMC models. It has no gradient."""
    return solve(rates, initial, YEARS)


def build_model():
    """Return Carpenter's model: log-normal errors around the solution, eight parameters."""
    with pm.Model(coords={"year": YEARS, "species": SPECIES}) as model:
        alpha = pm.TruncatedNormal("alpha", 1, 0.5, lower=0)
        beta = pm.TruncatedNormal("beta", 0.05, 0.05, lower=0)
        gamma = pm.TruncatedNormal("gamma", 1, 0.5, lower=0)
        delta = pm.TruncatedNormal("delta", 0.05, 0.05, lower=0)
        initial = pm.LogNormal("initial", np.log(10), 1, dims="species")
        sigma = pm.LogNormal("sigma", -1, 1, dims="species")
        log_population = populations(pt.stack([alpha, beta, gamma, delta]), initial)
        pm.LogNormal("pelts", log_population, sigma, observed=PELTS, dims=("year", "species"))
    return model


# ---- sampling -----------------------------------------------------------------------------------


def starting_points():
    """Return a start for each chain: Carpenter's estimates and the first pelts, all ±15 %."""
    rng = np.random.default_rng(SEED)
    middle = GUESS | {"initial": PELTS[0]}
    return [
        {name: value * rng.uniform(0.85, 1.15, np.shape(value)) for name, value in middle.items()}
        for _ in range(CHAINS)
    ]


def sample(step, draws, tune):
    """Run `pm.sample`; return its trace, warm-up included, and the seconds it took."""
    start = time.perf_counter()
    trace = pm.sample(
        draws,
        tune=tune,
        step=step,
        chains=CHAINS,
        cores=CORES,
        initvals=starting_points(),
        random_seed=SEED,
        discard_tuned_samples=False,
    )
    return trace, time.perf_counter() - start


def print_row(sampler, trace, calls, seconds):
    """Print a row of the comparison."""
    diagnostics = az.summary(trace, kind="diagnostics", round_to="none")
    rhat, ess = diagnostics["r_hat"].max(), diagnostics["ess_bulk"].min()
    print(f"{sampler:19}{calls:14,}{seconds:9.0f}{rhat:13.3f}{ess:16.0f}{ess / seconds:13.1f}")


# ---- posterior predictive -----------------------------------------------------------------------


def predict(trace, years):
    """Return the pelts that each draw predicts, observation noise included: (draw, year, species).

    A draw has the same noise in all years: that leaves each year's quantiles as they are.
    """
    posterior = az.extract(trace).transpose("sample", ...)
    rates = np.stack([posterior[name] for name in RATES], axis=-1)
    initial = posterior["initial"].values
    mean = np.stack([solve(*parameters, years) for parameters in zip(rates, initial, strict=True)])
    noise = posterior["sigma"].values * np.random.default_rng(SEED).normal(size=initial.shape)
    return np.exp(mean + noise[:, None, :])


def draw_picture(trace, output):
    """Draw data and posterior predictive over the years."""
    years = np.linspace(YEARS[0], YEARS[-1], 201)
    low, median, high = np.quantile(predict(trace, years), [0.05, 0.5, 0.95], axis=0)
    figure, axes = plt.subplots(2, 1, figsize=(8, 6), sharex=True, layout="constrained")
    for k, (axis, colour) in enumerate(zip(axes, ["tab:blue", "tab:orange"], strict=True)):
        band = {"color": colour, "alpha": 0.25, "lw": 0, "label": "predicted, 90 %"}
        axis.fill_between(years, low[:, k], high[:, k], **band)
        axis.plot(years, median[:, k], color=colour, label="predicted, median")
        axis.plot(YEARS, PELTS[:, k], "o", color="black", ms=4, label="data")
        axis.set(ylabel=f"{SPECIES[k]} pelts (thousands)", ylim=(0, None))
        axis.legend(frameon=False)
    axes[0].set_title("Hudson's Bay Company: pelts, and the posterior predictive of Lotka-Volterra")
    axes[1].set(xticks=YEARS[::2], xlim=(YEARS[0] - 0.5, YEARS[-1] + 0.5))
    figure.savefig(output, dpi=150)
    plt.close(figure)


# ---- all of it ----------------------------------------------------------------------------------


def main(arguments=None):
    """Sample with both samplers, print what came out, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=1000, help="draws of each chain")
    parser.add_argument("--tune", type=int, default=500, help="draws of warm-up before them")
    parser.add_argument("--output", default="quickstart.png", help="file of the picture")
    options = parser.parse_args(arguments)

    with build_model():
        print("Lotka-Volterra: 8 parameters, and a black-box ODE solver", flush=True)
        trace, seconds = sample(pk.SurrogateMetropolis(), options.draws, options.tune)
        calls = int(trace.warmup_sample_stats.n_logp.sum() + trace.sample_stats.n_logp.sum())
        print(f"\n{az.summary(trace)}\n")
        print("Published means: alpha 0.55, beta 0.028, gamma 0.80, delta 0.024, sigma 0.25.\n")

        # A draw of DEMetropolisZ costs two calls: it evaluates the model at both of its points.
        total = calls // (2 * CHAINS)
        tune = total * options.tune // (options.tune + options.draws)
        print(f"DEMetropolisZ on the same, with as many solver calls: {calls:,}", flush=True)
        step = pm.DEMetropolisZ()
        step.delta_logp(np.zeros(8), np.zeros(8))  # compiles it before time is taken, as ours is
        dem, dem_seconds = sample(step, total - tune, tune)

    print("\nsampler              solver calls  seconds  worst R-hat  least bulk ESS   ESS/second")
    print_row("SurrogateMetropolis", trace, calls, seconds)
    print_row("DEMetropolisZ", dem, 2 * CHAINS * total, dem_seconds)
    print("Calls and seconds include the warm-up; ESS counts the draws after it.\n")

    draw_picture(trace, options.output)
    print(f"Data and posterior predictive: {options.output}")


if __name__ == "__main__":
    main()
