"""What samplers with an approximation tell."""

from pymc_kameleon.approximation.modes import shares_in
from pymc_kameleon.findings.finding import finding


def several_modes(modes):
    """Tell between which modes chains move, by the mixture of these."""
    if len(shares := shares_in(modes)) < 2:
        return None
    listed = ", ".join(f"{100 * share:.0f} %" for share in shares)
    return finding("several_modes", n=len(shares), shares=listed)
