"""What ``pk.evidence`` returns, and when it says that it is not to be trusted."""

from dataclasses import dataclass, field, replace

import numpy as np
import xarray as xr
from arviz_stats.base import array_stats

from pymc_kameleon.analysis.limits_of_r_hat import LEAST_ESS, high_r_hats
from pymc_kameleon.analysis.mode_occupancy import mode_occupancy
from pymc_kameleon.analysis.trust import FEW_EVENTS
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.findings.words import counted, grouped

LEAST_OVERLAP, LARGE_ERROR = 0.25, 1.0
"""Overlap and standard error beyond which there is no number."""

POOR_OVERLAP = 0.5
"""Overlap below which there is a warning."""

CONTRADICTION = 4
"""Standard errors by which draws and new ones contradict each other from which on that is told."""

CONTRADICTS = (
    "the draws are not those of this log-density, as points around them show: the sampler has not "
    "converged or misses tails, or it had another model or other data"
)


@dataclass(frozen=True)
class Evidence:
    """The log marginal likelihood of a model, as ``pk.evidence`` has found it.

    Attributes
    ----------
    log_evidence : float
        Natural logarithm of the density of the data, given the model alone. NaN where nothing is
        known of it.
    standard_error : float
        Of the logarithm: 0.01 is one per cent of the evidence.
    method : str
        How it was found.
    overlap : float
        Of the posterior and the density that it was compared with, from 0 to 1.
    ess : float
        Independent draws that those of the posterior were worth.
    evaluations : int
        Of the log-density that this took.
    findings : list of Finding
        Why it is not to be trusted; none if it is.
    """

    log_evidence: float
    standard_error: float
    method: str
    overlap: float
    ess: float
    evaluations: int
    findings: list = field(default_factory=list)

    @property
    def warning(self):
        """The findings in words, or ""."""
        return " ".join(map(str, self.findings))

    def __repr__(self):
        """Say all of it in a line."""
        error = self.standard_error
        known = np.isfinite(error) and error > 0
        decimals = int(np.clip(1 - np.floor(np.log10(error)), 0, 6)) if known else 2
        return (
            f"Evidence(log_evidence={self.log_evidence:.{decimals}f} ± {error:.2g}; "
            f"{self.method}, overlap {self.overlap:.2f}, {grouped(int(self.ess))} effective draws, "
            f"{grouped(self.evaluations)} evaluations{', doubtful' if self.findings else ''})"
        )


def checked(found, draws, contradiction=0.0):
    """Return an Evidence with what speaks against it; without a number if nothing is known."""
    low, few = found.overlap < LEAST_OVERLAP, found.ess < FEW_EVENTS
    is_known = not low and not few and found.standard_error <= LARGE_ERROR
    reasons = [CONTRADICTS] if abs(contradiction) > CONTRADICTION else []
    if low or (is_known and found.overlap < POOR_OVERLAP):
        reasons.append(
            "the overlap of the posterior and the density that it was compared with is "
            f"{found.overlap:.2g}"
        )
    if few or (is_known and found.ess < LEAST_ESS):
        reasons.append(f"the draws are worth {found.ess:.0f} independent ones")
    if not found.standard_error <= LARGE_ERROR:
        reasons.append(f"its logarithm may be off by {found.standard_error:.2g} or more")
    reasons += _doubts(draws)
    if not reasons:
        return found
    if is_known:
        return replace(found, findings=[finding("doubtful_evidence", reasons="; ".join(reasons))])
    unknown = [finding("unknown_evidence", reasons="; ".join(reasons))]
    return replace(found, log_evidence=np.nan, standard_error=np.nan, findings=unknown)


def _doubts(draws):
    """Return what the draws themselves say against an evidence, as texts."""
    reasons = []
    if draws.n_diverging:
        reasons.append(
            f"{counted(draws.n_diverging, 'draw')} diverged, so that a part of the posterior may "
            "not have been seen"
        )
    if (r_hat := _r_hat(draws)) is not None:
        reasons.append(f"R-hat is {r_hat:.3f}")
    coordinates = xr.Dataset({"x": (("chain", "draw", "coordinate"), draws.x)})
    occupancy = mode_occupancy(coordinates)
    if not occupancy.weights_known:
        reasons.append(occupancy.verdict.rstrip(".").replace("Chains", "chains", 1))
    return reasons


def _r_hat(draws):
    """Return the largest R-hat of coordinates if it is too high, else None."""
    if len(draws.x) < 2:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = array_stats.rhat(draws.x, chain_axis=0, draw_axis=1)
    high = high_r_hats(draws.x, r_hat)
    return float(r_hat[high].max()) if high.any() else None
