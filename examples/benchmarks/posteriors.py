"""Ordinary posteriors of 3 to 26 parameters: regressions, GARCH, hierarchies, curves.

Each function returns a PyMC model, with priors as users write them, in the units of the data. The
data are simulated with a fixed seed, or typed in. ``POSTERIORS`` has all of them by name.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

sys.path.insert(0, str(Path(__file__).parents[1]))
from logistic_regression import regression as logistic_regression
from until_enough import build_model as growth

# ---- linear regressions -------------------------------------------------------------------------


def linear(predictors, y, prior_sd, student=False):
    """Build a linear regression with normal errors, or Student's t of unknown ν."""
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, prior_sd)
        slope = pm.Normal("slope", 0, prior_sd, shape=predictors.shape[1])
        sigma = pm.HalfCauchy("sigma", 5)
        mean = intercept + pm.math.dot(predictors, slope)
        if student:
            pm.StudentT("y", pm.Gamma("nu", 2, 0.1), mu=mean, sigma=sigma, observed=y)
        else:
            pm.Normal("y", mean, sigma, observed=y)
    return model


def interaction():
    """Children's test scores by their mothers' schooling and IQ, and the product of both, raw."""
    rng = np.random.default_rng(1)
    school, iq = rng.random(430) < 0.8, rng.normal(100, 15, 430)
    predictors = np.column_stack([school, iq, school * iq])
    return linear(predictors, -10 + predictors @ [50, 1, -0.5] + rng.normal(0, 18, 430), 100)


def trend():
    """Sixty years of summer temperatures by the calendar year, which is not centred."""
    years = np.arange(1952, 2014)
    noise = np.random.default_rng(2).normal(0, 1.1, years.size)
    return linear(years[:, None], 9.3 + 0.02 * (years - 1983) + noise, 100)


def prices():
    """Prices of houses in thousands, by square metres, rooms, years, and metres to the centre."""
    rng = np.random.default_rng(3)
    area = rng.gamma(9, 13, 300)
    rooms = np.round(area / 25 + rng.normal(0, 0.7, 300)).clip(1)
    age, distance = rng.gamma(2, 20, 300), rng.gamma(2, 1500, 300)
    predictors = np.column_stack([area, rooms, age, distance])
    return linear(predictors, 50 + predictors @ [2, 8, -1, -0.02] + rng.normal(0, 40, 300), 100)


def correlated():
    """Twelve quantities that correlate by 0.96, each measured twice: 24 predictors."""
    rng = np.random.default_rng(4)
    quantities = rng.normal(size=(400, 1)) + 0.2 * rng.normal(size=(400, 12))
    predictors = np.repeat(quantities, 2, axis=1) + 0.02 * rng.normal(size=(400, 24))
    return linear(predictors, 8 + predictors @ rng.normal(0, 0.2, 24) + rng.normal(0, 0.2, 400), 1)


def autoregression(order=5, n=200):
    """Return AR(5), as a regression on what came before."""
    rng = np.random.default_rng(5)
    y = rng.normal(size=n)
    for t in range(order, n):
        y[t] += 0.5 + y[t - order : t] @ [-0.1, 0.1, -0.2, 0.3, 0.6]
    lags = np.lib.stride_tricks.sliding_window_view(y, order)[:-1]
    return linear(lags, y[order:], 10)


def robust():
    """Return a regression with some outliers, and Student's t errors of unknown ν."""
    rng = np.random.default_rng(6)
    predictors = rng.normal(size=(120, 3)) * [1, 5, 0.2]
    y = 4 + predictors @ [1, -0.5, 3] + rng.standard_t(3, 120)
    return linear(predictors, y, 10, student=True)


# ---- other regressions --------------------------------------------------------------------------


def wells():
    """Whether a household changes its well, by metres to the next one, arsenic, and the product."""
    rng = np.random.default_rng(7)
    distance, arsenic = rng.gamma(1.5, 30, 800), 0.5 + rng.gamma(1.2, 1, 800)
    logit = -0.1 - 0.006 * distance + 0.55 * arsenic - 0.002 * distance * arsenic
    changes = rng.random(800) < 1 / (1 + np.exp(-logit))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 5, shape=4)
        logit = b[0] + b[1] * distance + b[2] * arsenic + b[3] * distance * arsenic
        pm.Bernoulli("changes", logit_p=logit, observed=changes)
    return model


def pests():
    """Pests caught, by those before, treatment and kind of house: negative binomial counts."""
    rng = np.random.default_rng(8)
    houses = rng.random((260, 2)) < [0.6, 0.3]
    design = np.column_stack([np.ones(260), rng.gamma(0.3, 1.4, 260), houses])
    days = rng.uniform(0.5, 2, 260)
    rate = days * np.exp(design @ [2.8, 0.7, -0.6, -0.4]) * rng.gamma(0.4, 2.5, 260)
    caught = rng.poisson(rate)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 5, shape=4)
        mean = days * pm.math.exp(pm.math.dot(design, b))
        pm.NegativeBinomial("caught", mean, pm.HalfNormal("shape", 5), observed=caught)
    return model


# ---- curves -------------------------------------------------------------------------------------


def dose_response():
    """Return the sigmoid Emax model at seven doses, the highest of which does not saturate."""
    rng = np.random.default_rng(10)
    dose = np.repeat([0, 5, 10, 20, 40, 80, 160], 6)
    y = 2 + 15 * dose**1.3 / (50**1.3 + dose**1.3) + rng.normal(0, 1.2, dose.size)
    with pm.Model() as model:
        base, most = pm.Normal("base", 0, 10), pm.Normal("most", 0, 50)
        half, hill = pm.LogNormal("half", 3, 1), pm.LogNormal("hill", 0, 0.5)
        sigma = pm.HalfNormal("sigma", 5)
        pm.Normal("y", base + most * dose**hill / (half**hill + dose**hill), sigma, observed=y)
    return model


def elimination():
    """Return the concentration of a drug, which is taken up faster than it is eliminated.

    If it were not known which is faster, this would have two modes.
    """
    rng = np.random.default_rng(11)
    hours, dose = np.array([0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 18, 24]), 300

    def concentration(exp, up, out, volume):
        return dose * up / volume / (up - out) * (exp(-out * hours) - exp(-up * hours))

    y = concentration(np.exp, 1.2, 0.15, 30) * np.exp(rng.normal(0, 0.15, hours.size))
    with pm.Model() as model:
        out = pm.LogNormal("out", -2, 1)
        up = out + pm.LogNormal("faster", 0, 1)
        volume, sigma = pm.LogNormal("volume", 3, 1), pm.HalfNormal("sigma", 1)
        mean = concentration(pm.math.exp, up, out, volume)
        pm.LogNormal("y", pm.math.log(mean), sigma, observed=y)
    return model


def oxygen():
    """Biochemical oxygen demand of water after days: six numbers, and a long curved ridge.

    The numbers are Marske's (1967), as in Bates & Watts (1988), "Nonlinear Regression Analysis".
    """
    days, demand = np.array([1, 2, 3, 4, 5, 7]), [8.3, 10.3, 19.0, 16.0, 15.6, 19.8]
    with pm.Model() as model:
        most, rate = pm.HalfNormal("most", 30), pm.HalfNormal("rate", 1)
        sigma = pm.HalfNormal("sigma", 5)
        pm.Normal("demand", most * (1 - pm.math.exp(-rate * days)), sigma, observed=demand)
    return model


# ---- a time series ------------------------------------------------------------------------------


def volatility(n=300):
    """Return GARCH(1, 1), stationary."""
    rng, y, variance = np.random.default_rng(13), np.zeros(n), 1.0
    for t in range(n):
        y[t] = 0.1 + variance**0.5 * rng.normal()
        variance = 0.2 + 0.3 * (y[t] - 0.1) ** 2 + 0.5 * variance
    with pm.Model() as model:
        mu, omega = pm.Normal("mu", 0, 5), pm.HalfNormal("omega", 2)
        alpha = pm.Uniform("alpha", 0, 1)
        beta = pm.Uniform("beta", 0, 1 - alpha)
        news = omega + alpha * (y[:-1] - mu) ** 2
        variances = recursion(lambda new, before, beta: new + beta * before, news, 1, beta)
        sigma = pt.sqrt(pt.concatenate([pt.ones(1), variances]))
        pm.Normal("y", mu, sigma, observed=y)
    return model


def recursion(function, sequence, start, *parameters):
    """Return all of x_t = function(sequence_t, x_(t-1), *parameters)."""
    return pytensor.scan(
        function,
        sequences=sequence,
        outputs_info=pt.as_tensor(np.float64(start)),
        non_sequences=parameters,
        return_updates=False,
    )


# ---- hierarchies and mixtures -------------------------------------------------------------------


def eight_schools(centred):
    """Return Rubin's (1981) eight schools; centred, this is a funnel."""
    effect, error = [28, 8, -3, 7, -1, 1, 18, 12], [15, 10, 16, 11, 9, 11, 10, 18]
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        if centred:
            theta = pm.Normal("theta", mu, tau, shape=8)
        else:
            theta = mu + tau * pm.Normal("z", shape=8)
        pm.Normal("y", theta, error, observed=effect)
    return model


def groups():
    """Weights in eight litters of unequal size: means, and a spread within and between litters."""
    rng = np.random.default_rng(14)
    litter = np.repeat(np.arange(8), [4, 6, 8, 9, 10, 12, 14, 20])
    y = rng.normal(150, 12, 8)[litter] + rng.normal(0, 15, litter.size)
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 100, 100), pm.HalfNormal("tau", 30)
        mean = pm.Normal("mean", mu, tau, shape=8)
        sigma = pm.HalfNormal("sigma", 30)
        pm.Normal("y", mean[litter], sigma, observed=y)
    return model


def two_components():
    """Return a mixture of two normals that overlap, their means in order."""
    rng = np.random.default_rng(15)
    y = rng.normal(*np.where(rng.random((300, 1)) < 0.35, [-1.5, 1.2], [1.5, 0.8]).T)
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 3, shape=2, transform=ordered, initval=[-1, 1])
        sigma, share = pm.HalfNormal("sigma", 2, shape=2), pm.Beta("share", 2, 2)
        pm.NormalMixture("y", pt.stack([share, 1 - share]), mu, sigma, observed=y)
    return model


# ---- a Gaussian process -------------------------------------------------------------------------


def latent_process():
    """Return counts at eleven points; their log rates are a Gaussian process, scales unknown."""
    points = np.linspace(-10, 10, 11)
    counts = np.random.default_rng(16).poisson(np.exp(2.8 + 1.2 * np.cos(points / 3)))
    with pm.Model() as model:
        length, amplitude = pm.Gamma("length", 25, 4), pm.HalfNormal("amplitude", 2)
        covariance = amplitude**2 * pm.gp.cov.ExpQuad(1, length)(points[:, None])
        factor = pt.linalg.cholesky(covariance + 1e-8 * pt.eye(points.size))
        log_rate = pm.math.dot(factor, pm.Normal("z", shape=points.size))
        pm.Poisson("counts", pm.math.exp(log_rate), observed=counts)
    return model


# ---- all of them --------------------------------------------------------------------------------

POSTERIORS = {
    "correlated": correlated,
    "interaction": interaction,
    "trend": trend,
    "prices": prices,
    "autoregression": autoregression,
    "robust": robust,
    "logistic": logistic_regression,
    "wells": wells,
    "negative binomial": pests,
    "dose response": dose_response,
    "elimination": elimination,
    "growth": growth,
    "oxygen": oxygen,
    "GARCH": volatility,
    "schools": partial(eight_schools, centred=False),
    "centred schools": partial(eight_schools, centred=True),
    "groups": groups,
    "two components": two_components,
    "latent process": latent_process,
}
