"""Two real posteriors with several modes, and what is known of them without a Markov step of ours.

sensors: where eight sensors in the unit square are, from noisy distances to three anchors and to
each other; those far apart are seldom seen. Whoever is seen by two others only may be on either
side of them. Known from parallel tempering of one sensor at a time, down from the uniform prior.
oscillator: a damped oscillation measured at twelve times that are nearly evenly spaced, so that
several periods fit. Known from quadrature: given period, decay and noise the rest is linear.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numba import njit
from scipy.stats import halfnorm

# ---- sensors ------------------------------------------------------------------------------------

N_SENSORS, RANGE, NOISE = 8, 0.3, 0.02
ANCHORS = np.array([[0.1, 0.15], [0.5, 0.9], [0.85, 0.3]])


def observed_distances(seed=4):
    """Return distances (8, 11) to sensors and anchors, NaN if not seen; the upper triangle."""
    rng = np.random.default_rng(seed)
    places = np.concatenate([rng.random((N_SENSORS, 2)), ANCHORS])
    distances = np.linalg.norm(places[:N_SENSORS, None] - places, axis=2)
    seen = rng.random(distances.shape) < np.exp(-(distances**2) / (2 * RANGE**2))
    measured = distances + NOISE * rng.standard_normal(distances.shape)
    return np.where(seen & (np.arange(11) > np.arange(8)[:, None]), measured, np.nan)


def sensors():
    """Return the posterior of the places, which are uniform a priori."""
    measured = observed_distances()
    first, second = np.triu_indices(N_SENSORS, 1, N_SENSORS + len(ANCHORS))
    measured = measured[first, second]
    seen = np.isfinite(measured)
    with pm.Model() as model:
        places = pm.Uniform("places", 0, 1, shape=(N_SENSORS, 2))
        everywhere = pt.concatenate([places, ANCHORS])
        squares = ((everywhere[first] - everywhere[second]) ** 2).sum(axis=1)
        distance = pt.sqrt(squares[seen])
        pm.Normal("distance", distance, NOISE, observed=measured[seen])
        pm.Potential("seen", pt.sum(-squares[seen] / (2 * RANGE**2)))
        unseen = squares[~seen] / (2 * RANGE**2)
        pm.Potential("unseen", pt.sum(pt.log(-pt.expm1(-unseen))))
    return model


@njit
def log_of_sensor(places, i, x, measured):
    """Log-density of the distances of sensor i, if it is at x."""
    total = 0.0
    for j in range(places.shape[0]):
        if j == i:
            continue
        square = (x[0] - places[j, 0]) ** 2 + (x[1] - places[j, 1]) ** 2
        value = measured[min(i, j), max(i, j)]
        if np.isnan(value):
            total += np.log(-np.expm1(-square / (2 * RANGE**2)))
        else:
            residual = (value - np.sqrt(square)) / NOISE
            total -= square / (2 * RANGE**2) + residual**2 / 2
    return total


@njit
def temper(places, measured, powers, n, every, rng):
    """Return places (n / every, 8, 2) by parallel tempering; `places` are those of each power."""
    kept = np.empty((n // every, N_SENSORS, 2))
    x, logs = np.empty(2), np.zeros(len(powers))
    for sweep in range(n):
        for k in range(len(powers)):
            for i in range(N_SENSORS):
                scale = NOISE * 10.0 ** (1.5 * rng.random()) / np.sqrt(max(powers[k], 1e-2))
                if rng.random() < 0.2:
                    x[0], x[1] = rng.random(), rng.random()
                else:
                    x[0] = places[k, i, 0] + scale * rng.standard_normal()
                    x[1] = places[k, i, 1] + scale * rng.standard_normal()
                if x.min() <= 0.0 or x.max() >= 1.0:
                    continue
                change = log_of_sensor(places[k], i, x, measured)
                change -= log_of_sensor(places[k], i, places[k, i], measured)
                if np.log(rng.random()) < powers[k] * change:
                    places[k, i] = x
            logs[k] = 0.0
            for i in range(N_SENSORS):  # each pair of sensors once: those before i are left out
                logs[k] += log_of_sensor(places[k, i:], 0, places[k, i], measured[i:, i:])
        for k in range(len(powers) - 1):
            if np.log(rng.random()) < (powers[k + 1] - powers[k]) * (logs[k] - logs[k + 1]):
                other = places[k].copy()
                places[k], places[k + 1] = places[k + 1], other
                logs[k], logs[k + 1] = logs[k + 1], logs[k]
        if sweep % every == 0:
            kept[sweep // every] = places[-1, :N_SENSORS]
    return kept


def tempered_sensors(n=200_000, seed=1):
    """Return draws (n / 20, 16) of the places by tempering, the first tenth left out."""
    rng = np.random.default_rng(seed)
    powers = np.concatenate([[0.0], np.geomspace(1e-3, 1, 27)])
    places = rng.random((len(powers), N_SENSORS + len(ANCHORS), 2))
    places[:, N_SENSORS:] = ANCHORS
    draws = temper(places, observed_distances(), powers, n, 20, rng)
    return draws[len(draws) // 10 :].reshape(-1, 2 * N_SENSORS)


# ---- oscillator ---------------------------------------------------------------------------------


def oscillation(seed=2):
    """Return the times, in seconds, and what was measured then."""
    rng = np.random.default_rng(seed)
    times = 0.9 * np.arange(12) + rng.uniform(-0.04, 0.04, 12)
    y = np.exp(-0.1 * times) * (np.cos(2.5 * times) + 0.5 * np.sin(2.5 * times))
    return times, y + 0.3 * rng.standard_normal(12)


def oscillator():
    """Return the posterior of y'' + 2 decay y' + (frequency² + decay²) y = 0, solved by hand."""
    times, y = oscillation()
    with pm.Model() as model:
        frequency = pm.Uniform("frequency", 0, 12)
        decay = pm.HalfNormal("decay", 0.3)
        a, b = pm.Normal("cosine", 0, 2), pm.Normal("sine", 0, 2)
        noise = pm.HalfNormal("noise", 0.5)
        wave = a * pm.math.cos(frequency * times) + b * pm.math.sin(frequency * times)
        pm.Normal("y", pm.math.exp(-decay * times) * wave, noise, observed=y)
    return model


def known_frequency(n=6000, n_other=40):
    """Return a grid of frequencies, and their posterior probabilities."""
    times, y = oscillation()
    frequency = (np.arange(n) + 0.5) * (12 / n)
    shares = (np.arange(n_other) + 0.5) / n_other
    decays, noises = halfnorm.ppf(shares, scale=0.3), halfnorm.ppf(shares, scale=0.5)
    total = np.zeros(n)
    phases = frequency[:, None] * times
    for decay in decays:
        waves = np.exp(-decay * times) * np.stack([np.cos(phases), np.sin(phases)], axis=1)
        gram, by_data = waves @ waves.transpose(0, 2, 1), waves @ y
        for noise in noises:
            precision = gram / noise**2 + np.eye(2) / 4
            fit = np.linalg.solve(precision, by_data[..., None] / noise**2)[..., 0]
            log = np.sum(fit * by_data, axis=1) / (2 * noise**2) - np.sum(y**2) / (2 * noise**2)
            total += np.exp(log - len(y) * np.log(noise)) / np.sqrt(np.linalg.det(precision))
    return frequency, total / total.sum()
