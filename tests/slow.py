"""The covariance that GAM and KAM learn, from its definition, in plain numpy."""

import numpy as np


def seeding_times(d, n_tune):
    """Transitions after which mean and Σ are seeded: n_seed, 2 n_seed, … up to half of tuning."""
    n_seed = min(max(100, 20 * d), n_tune // 4 + 1)
    times = [n_seed]
    while 2 * times[-1] <= n_tune // 2:
        times.append(2 * times[-1])
    return times


def moments(states, n_tune, sigma=None):
    """Return mean and Σ after each of the states (n, d); Σ is `sigma` until one can be formed."""
    states = np.asarray(states)
    d = states.shape[1]
    seedings = seeding_times(d, n_tune)
    mean = None
    result = []
    for t, x in enumerate(states):
        if t + 1 in seedings:
            stride = 1  # the past is thinned to at most 2 n_seed states
            while (t + 1) // stride > 2 * seedings[0]:
                stride *= 2
            kept = states[stride - 1 : t + 1 : stride]
            half = kept[len(kept) // 2 :]
            distinct = len(np.unique(half, axis=0))
            mean = half.mean(axis=0)
            if distinct > 1:
                raw = np.atleast_2d(np.cov(half, rowvar=False, bias=True))
                diagonal = np.diag(np.diag(raw))
                sigma = diagonal * (1 + 1e-9) + min(1, distinct / (5 * d + 2)) * (raw - diagonal)
        elif mean is not None:
            eta = 1 / max(16 * d, t / 3)
            v = x - mean
            mean, sigma = mean + eta * v, sigma + eta * (np.outer(v, v) - sigma)
        result.append((mean, sigma))
    return result
