"""Several modes: the mixture from which reference moves are drawn follows the chains.

What is in it was found before the first draw, see step/warm_start/look.py. While tuning, it follows
the states that chains have been in; after that it is frozen.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.linalg import cholesky
from pymc_kameleon.approximation.modes import MOST_MODES, NEGLIGIBLE_MASS, Mode, Modes, mix
from pymc_kameleon.core.arrays import copy_arrays, floats, integers
from pymc_kameleon.samplers.approximation.moves import newest, states_of

WORTH_OF_FOUND = 2
"""Times d: independent states that the first idea of a mode counts for."""

STATES_PER_DRAW = 0.25
"""Independent states that a state of tuning counts for."""


class Found(NamedTuple):
    """What was found before the first draw, by a chain, and then by all of them."""

    n_found: integers(1)
    found_masses: floats(MOST_MODES)  # logs, but for a constant
    found_means: floats(MOST_MODES, "d")
    found_factors: floats(MOST_MODES, "d", "d")


def note(found, modes):
    """Write down Modes that a chain has found, those with most mass."""
    modes = sorted(modes, key=lambda mode: -mode.mass)
    modes = [mode for mode in modes if mode.mass > modes[0].mass - NEGLIGIBLE_MASS][:MOST_MODES]
    found.n_found[0] = len(modes)
    for k, mode in enumerate(modes):
        found.found_masses[k] = mode.mass
        found.found_means[k], found.found_factors[k] = mode.mean, mode.factor


def noted(found):
    """Return these Modes."""
    return [
        Mode(mean.copy(), factor.copy(), mass - np.log(np.diag(factor)).sum())
        for mass, mean, factor in list(zip(*found[1:], strict=True))[: found.n_found[0]]
    ]


def share_what_was_found(chains):
    """Let all chains know what each has found: if one of them looked, and they are not the same."""
    every = [mode for chain in chains for mode in noted(chain.tuning.found)]
    distinct = []
    for mode in sorted(every, key=lambda mode: -mode.mass):
        if not any(mode.is_same(one) for one in distinct):
            distinct.append(mode)
    n = sum(chain.monitor.searches for chain in chains)
    is_any_low = any(c.monitor.ends > max(1, c.tuning.found.n_found[0]) for c in chains)
    for chain in chains:
        if distinct:
            note(chain.tuning.found, distinct)
        chain.monitor.searches, chain.monitor.ends = n, max(1, len(distinct)) + int(is_any_low)


def learn_modes(chains):
    """Let the mixture follow the states of chains; return shares of the modes, none if one."""
    first = chains[0]
    modes, found = first.parameters.modes, noted(first.tuning.found)
    if len(found) < 2:
        return []
    (points, weights), merged = states_of(newest(chains)), True
    while merged:
        mine = _nearest(points, modes if modes.n_modes[0] == len(found) else None, found)
        groups = [(points[mine == k], weights[mine == k]) for k in range(len(found))]
        learned = [_learned(mode, *own) for mode, own in zip(found, groups, strict=True)]
        merged = _merge(found, learned)
    totals = np.array([own[1].sum() for own in groups])
    shares = totals / max(totals.sum(), 1e-300)
    note(first.tuning.found, found)
    order = np.argsort([-mode.mass for mode in found], kind="stable")[:MOST_MODES]
    mix(modes, [learned[j] for j in order], shares[order])
    for chain in chains[1:]:
        copy_arrays(modes, chain.parameters.modes, Modes._fields)
        copy_arrays(first.tuning.found, chain.tuning.found, Found._fields)
    return [shares[j] for j in order] if len(order) > 1 else []


def _nearest(points, modes, found):
    """Return to which mode each point (n, d) belongs: where its normal density is highest."""
    shapes = [mode[:2] for mode in found]
    if modes is not None:
        shapes = list(zip(modes.mode_means, modes.mode_factors, strict=True))[: len(found)]
    normals = [Mode(mean, factor, -np.log(np.diag(factor)).sum()) for mean, factor in shapes]
    return np.argmax([one.normal(points) for one in normals], axis=0)


def _learned(mode, points, weights):
    """Return mean and factor of a mode: of weighted states, and what was known before."""
    d, total = len(mode.mean), weights.sum()
    known = WORTH_OF_FOUND * d / (WORTH_OF_FOUND * d + STATES_PER_DRAW * total)
    if total < 1:
        return mode.mean, mode.factor
    own = np.average(points, axis=0, weights=weights)
    away = points - own
    covariance = (1 - known) * (away.T * weights) @ away / total
    covariance += known * mode.factor @ mode.factor.T
    return (1 - known) * own + known * mode.mean, cholesky(covariance)


def _merge(found, learned):
    """Take two modes for one that are not apart, of `found`; return whether there were any."""
    for j in range(len(found)):
        for k in range(j + 1, len(found)):
            if Mode(*learned[j], 0.0).is_same(Mode(*learned[k], 0.0)):
                lesser = j if found[j].mass < found[k].mass else k
                del found[lesser]
                return True
    return False
