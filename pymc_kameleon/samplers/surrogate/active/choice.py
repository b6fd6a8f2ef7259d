"""Which points to evaluate next: those that tell most of f, but for its average.

The variance of f − f̄, summed over candidates j with weights w, falls by

    Σ_j w_j (V_ji − Σ_k w_k V_ki)² / (V_ii + σ_i²)

when f is evaluated at i. V of the next choice is what is left after the last one.

Symbols: V the covariance (m, m) of the candidates, σ² the noise there.
"""

import numpy as np


def most_telling(covariance, weights, noise, n, first=()):
    """Return the places of n candidates, or of all, the `first` ones among them."""
    v, weights, chosen = covariance.copy(), weights / weights.sum(), []
    for k in range(min(n, len(v))):
        if k < len(first):
            i = first[k]
        else:
            centred = v - weights @ v
            gain = weights @ centred**2 / (np.diag(v) + noise)
            gain[chosen] = -1
            i = int(np.argmax(gain))
        chosen.append(i)
        v -= np.outer(v[:, i], v[i]) / (v[i, i] + noise[i])
    return chosen


def spread(covariance):
    """Return sdV: the root mean square of the standard deviation of f minus its average."""
    return float(np.sqrt(max(np.mean(np.diag(covariance)) - covariance.mean(), 0.0)))
