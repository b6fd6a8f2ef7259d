"""What all corrections of averages are, and which of them is taken for each quantity.

A kind is a function in a file of its own, and an entry of KINDS in draws_of_result.py. It returns a
Correction, or raises NotCorrected. Rows of a summary are called as it is: `by_surrogate`.

Source: Birge, "The calculation of errors by the method of least squares", Physical Review 40
(1932): the factor by which errors of averages that disagree are larger.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_kameleon.analysis.batches import ROUNDING, Corrected
from pymc_kameleon.findings.finding import finding

WIDER = 1.5
"""How much larger the sd of draws may be than a corrected one: a hundred draws of a normal tell it
to 7 %."""

TOO_FAR = 3.0
"""Standard errors of their difference by which two averages do not agree, as by convention."""


class Result(NamedTuple):
    """What corrections are made of: the groups are those of the draws of the `posterior`."""

    dt: object
    posterior: xr.Dataset
    model: object = None  # as given
    group: str = ""  # of what a sampler has `kept` of the draws, and `learned`
    kept: xr.Dataset = None
    learned: xr.Dataset = None
    findings: tuple = ()  # of what was changed


class NotCorrected(Exception):
    """Why a correction is none for a result: the end of a sentence; "" where it is out of place."""


class Correction(NamedTuple):
    """One way to correct averages."""

    batches: object  # returns Corrected averages of values, and of a function, as `best_of`
    is_anew: bool = False  # whether it needs them at other points than the draws
    # whether few evaluations tell its error, so that it has to agree with others
    is_approximate: bool = False
    ess_share: float = None  # of an approximation that it rests on, as of `ess_share`
    draws: np.ndarray = None  # further points (n, d), distributed as the posterior, or None


class Moves(NamedTuple):
    """The moves by an approximation s to the posterior π of all chains, in their order."""

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
    return Correction(batches, is_anew=True, ess_share=ess_share(moves.log_w))


def ess_share(log_w):
    """Return how close s is to π at ends of moves, (Σw)²/(nΣw²) by log w (n,): 1 if they agree."""
    log_w = np.where(np.isnan(log_w), -np.inf, log_w)
    most = log_w.max()
    if not np.isfinite(most):  # π is 0 at all of them, or s is at one where π is not
        return 0.0
    w = np.exp(log_w - most)
    return float(w.sum() ** 2 / (len(w) * np.square(w).sum()))


def best_of(corrections, values, function, findings):
    """Return Corrected averages of values (chains, draws, q), each with the smallest error.

    The function returns values (n, q) at positions (n, d), or is None. What fails is added to
    `findings`. Without any correction that is None.
    """
    best = None
    for by, one in corrections.items():
        if one.is_anew and function is None:
            continue
        try:
            own = one.batches(values, function)._replace(by=np.full(values.shape[2], by))
        except Exception as error:  # of the model, or of the user's function
            if not one.is_anew:
                raise
            raised = f"{type(error).__name__}: {error}"
            findings.append(finding("failed_correction", error=raised))
            best, function = None, None
            continue
        if one.is_approximate:
            best = with_approximate(best, own, values)
        elif best is None:
            best = own
        else:
            is_other = own.is_better & ~(best.is_better & (best.mcse <= own.mcse))
            best = _merged(is_other, own, best)
    return best


def _merged(is_other, other, best):
    """Return Corrected averages that are the `other` ones where `is_other` (q,)."""
    shape = max(len(own.halves) for own in (best, other)), len(is_other)
    pair = (own._replace(halves=np.resize(own.halves, shape)) for own in (best, other))
    return Corrected(*(np.where(is_other, b, a) for a, b in zip(*pair, strict=True)))


def with_approximate(best, own, values):
    """Return Corrected averages of values (chains, draws, q), with `own` of smaller error.

    The `best` are exact ones, or None. Their error is no smaller than that of as many independent
    draws, by the sd that is `own`. Without them the draws of each chain count as one. Where both
    differ by more than their errors tell, the error is larger by that factor [Birge 1932]; where
    they do not agree, by what they differ. Where neither has an error, it is NaN. Corrected
    averages are taken from which `own` ones are too far: these have missed a part.
    """
    q, of_draws = values.shape[2], values.mean(axis=(0, 1))
    mean, error, sd = own.mean, own.mcse, own.sd
    with np.errstate(all="ignore"):
        is_alone = own.is_better & (best is None)
        if best is None:
            of_one = values.std(axis=(0, 1)) / np.sqrt(len(values))
            error = np.where(is_alone, np.fmin(error, np.hypot(of_one, mean - of_draws)), error)
            of_one, one = np.where(is_alone, of_one, np.inf), np.ones(q)
            best = Corrected(of_draws, of_one, one, one > 0, own.halves, np.full(q, ""))
        mcse = best.mcse * np.where(best.is_better, 1, np.sqrt(best.gain))
        # Draws that have missed a tail agree too well.
        counted = values.shape[0] * values.shape[1] * np.where(best.is_better, best.gain, 1)
        mcse = np.fmax(mcse, np.where(mcse > 0, sd / np.sqrt(counted), 0))
        is_known = (mcse > 0) & (np.ptp(values, axis=(0, 1)) > 0)
        mcse = np.where(is_known, mcse, np.inf)
        error = np.where(error > ROUNDING * np.abs(mean), error, np.inf)
        other = np.where(best.is_better, best.mean, of_draws)
        is_own = (error < mcse) | (is_alone & (error < np.inf))
        square = np.square(mean - other)
        apart = square / (mcse**2 + error**2)
        is_far = apart > TOO_FAR**2
        is_own &= ~(best.is_better & is_far)
        variance = np.where(is_own, error, mcse) ** 2
        variance = np.where(is_far, variance + square, variance * np.fmax(apart, 1))
        gain = best.gain * best.mcse**2 / variance
    return best._replace(
        mean=np.where(is_own, mean, other),
        mcse=np.where(variance < np.inf, np.sqrt(variance), np.nan),
        gain=np.where(np.isfinite(gain) & (gain > 0), gain, 1),
        is_better=is_own | best.is_better,
        by=np.where(is_own, own.by, best.by),
        sd=np.where(is_own, sd, np.nan),
    )
