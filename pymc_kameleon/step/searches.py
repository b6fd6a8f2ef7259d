"""What is said of Searches: how many there were, and where they ended."""

import numpy as np

from pymc_kameleon.step.messages import counted
from pymc_kameleon.step.warm_start.look import FELT


def pool_searches(chains):
    """Let chains, each a list of steps, that have searched apart tell of all searches.

    Their ends are not compared: there are as many as in the chain that knows most. If others differ
    from these, R-hat shows it, as chains begin there.
    """
    for steps in zip(*chains, strict=True):
        if not steps[0].search.follows:
            monitors = [step.monitor for step in steps]
            n, n_ends = sum(own.searches for own in monitors), max(own.ends for own in monitors)
            for own in monitors:
                own.searches, own.ends = n, n_ends


def note_searches(searches, sampler):
    """Say how many there were, and where they ended, if all is well."""
    if searches.n == 0 or searches.may_have_missed:
        return ""
    return f"{sampler}: {_in_words(searches)}."


def warn_of_searches(searches, reason=""):
    """Warn if there may be another mode; `reason` is said where the searches may be in vain."""
    if not searches.may_have_missed:
        return ""
    text = _in_words(searches)
    if searches.fails and searches.n > 1:
        text += f". {searches.n_best or 'None'} of them came to the best place"
    return (
        "there may be another mode, which R-hat does not show. "
        f"{reason * searches.fails}{text[0].upper()}{text[1:]}. Compare what the model predicts "
        "with the data. Raise max_evaluations, or tune longer, for more searches; or start where "
        "the data point to (`initvals`)."
    )


def warn_of_faint(faint):
    """Warn of a Faint mode, where no chain begins, if it is felt."""
    if not faint.felt > FELT:
        return ""
    return (
        f"a mode with about {100 * faint.mass:.1g} % of the mass was found some {faint.far:.0f} "
        "standard deviations away, where no chain begins. With it standard deviations may be "
        f"{np.sqrt(1 + faint.felt):.2g} times as large. If that matters, start a chain there "
        "(`initvals`), of a sampler that moves between modes, such as pk.CyclicalKAM."
    )


def _in_words(searches):
    n, n_ends = searches.n, searches.n_ends
    if n == 1:
        return "one search for the posterior was made"
    text = f"{n} searches for the posterior, from different starts, ended in "
    share = searches.share_elsewhere
    rest = f"{100 * share:.0f} % of such starts may end elsewhere"
    if share == 1 and n_ends == 1:
        rest = "these are too few to tell whether others end elsewhere"
    return f"{text}{counted(n_ends, 'place')}; {rest}"
