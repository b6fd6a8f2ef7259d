"""Moves by an approximation s to the posterior π, and how close it is at their ends.

Symbols: as in samplers/surrogate/metropolis.py; w = π/s.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.analysis.corrections import Correction, NotCorrected


class Moves(NamedTuple):
    """The moves by an approximation of all chains, in the order of chains and draws."""

    row: np.ndarray  # which chain made them
    draw: np.ndarray  # for which of its draws
    start: np.ndarray  # (n, d), where they began, unconstrained
    end: np.ndarray  # (n, d), what they proposed
    log_w: np.ndarray  # log π/s there
    accept_prob: np.ndarray  # α
    parameters: list = None  # those of each chain, as far as an inner chain on s needs them
    stops: np.ndarray = None  # (n, R, d), of an inner chain; the end is one, drawn beforehand


def correction_by(moves, chains, least, batches):
    """Return the Correction by moves, if each of several chains has made so many at least."""
    moved = moves.row[(moves.start != moves.end).any(axis=1)]
    if chains < 2 or np.bincount(moved, minlength=chains).min() < least:
        raise NotCorrected("there are too few chains, or moves by it")
    return Correction(batches, is_anew=True, certificate=certificate(moves))


class Certificate(NamedTuple):
    """How close s is to the posterior at the ends of its moves, by w = π/s.

    Attributes
    ----------
    ess_share : float
        (Σw)²/(nΣw²), of n moves: 1 if s is the posterior.
    sd_log_w : float
        Standard deviation of log w, where it is finite.
    accept_prob : float
        Mean of α.
    """

    ess_share: float
    sd_log_w: float
    accept_prob: float

    def in_words(self):
        """Return it as text."""
        if np.isnan(self.sd_log_w):
            return "all of its moves ended where the log-density is not finite"
        return (
            f"effective share of the weights π/s {self.ess_share:.2f}, sd of log(π/s) "
            f"{self.sd_log_w:.2g}, mean acceptance {self.accept_prob:.2f}"
        )


def certificate(moves):
    """Return the Certificate of moves, one at least, which have `log_w` (n,) and `accept_prob`."""
    log_w = moves.log_w
    finite = np.isfinite(log_w)
    if not finite.any() or (log_w == np.inf).any():  # where s is 0, and π is not, is the worst case
        return Certificate(0.0, np.nan, float(moves.accept_prob.mean()))
    w = np.exp(np.where(finite, log_w, -np.inf) - log_w[finite].max())
    return Certificate(
        float(w.sum() ** 2 / (len(w) * np.square(w).sum())),
        float(log_w[finite].std()),
        float(moves.accept_prob.mean()),
    )
