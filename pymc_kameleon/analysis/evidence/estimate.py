"""The logarithm of an integral from draws, by surrogates that bridges are built to.

docs/evidence_methods.md tells which draws make a proposal, and which are bridged to it.
"""

import numpy as np

from pymc_kameleon.analysis.evidence import proposals
from pymc_kameleon.analysis.evidence.bridge import Estimate, bridge, contradiction
from pymc_kameleon.analysis.modes_of_draws import find_modes

LEAST_PILOT, PILOTS = 50, 10
"""New draws that are looked at before there are more, at least, and one in so many."""

GOOD_OVERLAP = 0.85
"""Overlap from which on a proposal does not learn any more."""

USUAL = 2
"""Standard errors by which draws and new draws may contradict each other without being wrong."""


def estimate(x, f, parameters, evaluate, n, rng):
    """Return an Estimate of log ∫ exp f, by draws x (chains, draws, d) and f there."""
    if parameters is not None:
        proposal = proposals.of_surrogates(parameters, x.reshape(-1, x.shape[2]), rng)
        return _bridged(proposal, x, f, evaluate, n, rng)
    half, modes = x.shape[1] // 2, find_modes(x)
    first, second = (slice(half), slice(half, None))
    parts = []
    for own, other in ((first, second), (second, first)):
        fits = x[:, own].reshape(-1, x.shape[2]), f[:, own].ravel(), modes[:, own].ravel()
        proposal = proposals.fitted(*fits, rng)
        parts.append(_bridged(proposal, x[:, other], f[:, other], evaluate, n // 2, rng))
    log_z, errors, overlap, ess, contradiction = np.array(parts).T
    error = float(np.hypot(*errors))
    apart = abs(log_z[1] - log_z[0]) / error
    worst = max(abs(contradiction.sum()) / np.sqrt(2), apart)
    return Estimate(log_z.mean(), max(1, apart) * error / 2, overlap.mean(), ess.sum(), worst)


def _bridged(proposal, x, f, evaluate, n, rng):
    """Return the Estimate by new draws of a proposal, or of one that has learned from the first."""
    pilot = min(n, max(LEAST_PILOT, n // PILOTS))

    def tried(proposal):
        trial = _Trial(proposal, x, f)
        trial.add(pilot, evaluate, rng)
        return trial

    best, n = tried(proposal), n - pilot
    while best.found.overlap < GOOD_OVERLAP and n >= 2 * pilot and np.isfinite(best.f_y).any():
        trial, n = tried(best.proposal.refitted(best.y, best.f_y)), n - pilot
        if trial.found.overlap <= best.found.overlap:
            break
        best = trial
    if n > 0:
        best.add(n, evaluate, rng)
    difference, of_difference = contradiction(best.at_draws, best.at_new)
    unlikely = max(0.0, abs(difference) - USUAL * of_difference)
    error = np.linalg.norm([best.found.standard_error, best.proposal.error, unlikely])
    return best.found._replace(
        standard_error=float(error), contradiction=difference / of_difference
    )


class _Trial:
    """A proposal, new draws of it, and the Estimate by a bridge to draws of the posterior."""

    def __init__(self, proposal, x, f):
        self.proposal = proposal
        self.at_draws = f - proposal.log_density(x.reshape(-1, x.shape[2])).reshape(f.shape)
        self.y, self.f_y = np.empty((0, x.shape[2])), np.empty(0)

    def add(self, n, evaluate, rng):
        """Evaluate n more of them."""
        more = self.proposal.draws(n, rng)
        self.y = np.concatenate([self.y, more])
        self.f_y = np.concatenate([self.f_y, evaluate(more)])
        self.at_new = self.f_y - self.proposal.log_density(self.y)
        self.found = bridge(self.at_draws, self.at_new, self.proposal.control(self.y))
