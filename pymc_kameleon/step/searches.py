"""What there is to tell of Searches: how many there were, and where they ended."""

from pymc_kameleon.findings.finding import finding
from pymc_kameleon.findings.words import counted

MOST_ELSEWHERE = 0.1
"""Share of the starts that may end elsewhere from which a finding says so: if some have, or if no
other chain has made searches of its own, which R-hat would show."""


def pool_searches(chains):
    """Let chains, each a list of steps, that have searched apart tell of all searches.

    Their ends are not compared: there are as many as in the chain that knows most. If others differ
    from these, R-hat shows it, as chains begin there.
    """
    for steps in zip(*chains, strict=True):
        if not steps[0].search.follows:
            monitors = [step.monitor for step in steps]
            n, n_ends = sum(own.searches for own in monitors), max(own.ends for own in monitors)
            of_prior = sum(own.of_prior for own in monitors)
            impossible = sum(own.impossible for own in monitors)
            for own in monitors:
                own.searches, own.ends = n, n_ends
                own.of_prior, own.impossible = of_prior, impossible


def impossible_prior(monitor):
    """Tell that more than half of the prior is impossible, if so."""
    n, impossible = monitor.of_prior, monitor.impossible
    if not impossible > n / 2:
        return None
    return finding("impossible_prior", n=n, impossible=impossible)


def of_searches(searches):
    """Tell how many there were, where they ended, and whether they may have missed a mode."""
    n, share = searches.n, searches.share_elsewhere
    if n == 0:
        return None
    if searches.is_doubtful:
        return finding("blind_search", n=n, n_best=searches.n_best)
    if n == 1:
        return finding("no_search")
    code = "searches"
    if share > MOST_ELSEWHERE and (searches.n_ends > 1 or searches.are_all):
        code = "other_ends" if searches.n_ends > 1 else "few_searches"
    return finding(code, n=n, places=counted(searches.n_ends, "place"), share=100 * share)
