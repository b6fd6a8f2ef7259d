"""What ``pk.evidence`` returns, and when it says that it is not to be trusted."""

import logging
from dataclasses import dataclass

import numpy as np
import xarray as xr
from arviz_stats.base import array_stats

from pymc_kameleon.analysis.mode_occupancy import mode_occupancy
from pymc_kameleon.analysis.trust import HIGH_RHAT
from pymc_kameleon.result.superchains import are_high, nested_r_hat, superchains_of
from pymc_kameleon.step.messages import grouped

_log = logging.getLogger("pymc_kameleon")

LEAST_OVERLAP, LEAST_ESS, LARGE_ERROR = 0.25, 20, 1.0
"""Overlap, independent draws and standard error beyond which there is no number."""

POOR_OVERLAP, POOR_ESS = 0.5, 50
"""Overlap and independent draws below which there is a warning."""

CONTRADICTION = 4
"""Standard errors by which draws and new ones contradict each other from which on that is told."""


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
    """

    log_evidence: float
    standard_error: float
    method: str
    overlap: float
    ess: float
    evaluations: int

    def __repr__(self):
        """Say all of it in a line."""
        return (
            f"Evidence(log_evidence={self.log_evidence:.{_decimals(self.standard_error)}f} ± "
            f"{self.standard_error:.2g}; {self.method}, overlap {self.overlap:.2f}, "
            f"{grouped(int(self.ess))} effective draws, {grouped(self.evaluations)} evaluations)"
        )


def _decimals(error):
    """Return how many decimals a number with this error is shown with."""
    known = np.isfinite(error) and error > 0
    return int(np.clip(1 - np.floor(np.log10(error)), 0, 6)) if known else 2


def checked(found, draws, contradiction=0.0):
    """Return an Evidence, without a number if nothing is known; warn of what speaks against it."""
    reasons = []
    is_known = found.overlap >= LEAST_OVERLAP and found.ess >= LEAST_ESS
    if not (is_known and found.standard_error <= LARGE_ERROR):
        _log.warning(
            "The evidence is not known: the overlap of the posterior and the density that it was "
            "compared with is %.2g, the draws are worth %.0f independent ones, and its logarithm "
            "may be off by %.2g or more. Draw longer, or reparametrise.",
            found.overlap,
            found.ess,
            found.standard_error,
        )
        return _without_number(found)
    if found.overlap < POOR_OVERLAP:
        reasons.append(f"the overlap is {found.overlap:.2f}")
    if found.ess < POOR_ESS:
        reasons.append(f"the draws are worth {found.ess:.0f} independent ones")
    if abs(contradiction) > CONTRADICTION:
        reasons.append(
            "the draws are not those of this log-density, as points around them show: the sampler "
            "has not converged, or it had another model or other data"
        )
    if (r_hat := _r_hat(draws)) is not None:
        reasons.append(f"R-hat is {r_hat:.2f}")
    coordinates = xr.Dataset({"x": (("chain", "draw", "coordinate"), draws.x)})
    occupancy = mode_occupancy(coordinates)
    if not occupancy.weights_known:
        reasons.append(occupancy.verdict.rstrip(".").replace("Chains", "chains", 1))
    if reasons:
        _log.warning(
            "The evidence may be far more wrong than its standard error says: %s.",
            "; ".join(reasons),
        )
    return found


def _without_number(found):
    return Evidence(np.nan, np.nan, found.method, found.overlap, found.ess, found.evaluations)


def _r_hat(draws):
    """Return the largest R-hat of coordinates if it is too high, else None."""
    if len(draws.x) < 2:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = array_stats.rhat(draws.x, chain_axis=0, draw_axis=1)
    numbers = superchains_of(draws.posterior)
    if numbers is None:
        high = r_hat > HIGH_RHAT
    else:
        nested = nested_r_hat(draws.x, numbers)
        high, nested_high = are_high(r_hat, nested, numbers, draws.x.shape[1])
        r_hat, high = np.where(nested_high, nested, r_hat), high | nested_high
    return float(r_hat[high].max()) if high.any() else None
