"""What is said of Searches: how many there were, and where they ended."""

from pymc_kameleon.step.messages import counted


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


def note_searches(searches, sampler):
    """Say how many there were, and where they ended, if all is well."""
    if searches.n == 0 or searches.may_have_missed:
        return ""
    return f"{sampler}: {_in_words(searches)}."


def note_impossible(monitor):
    """Say that more than half of the prior is impossible, if so."""
    n, impossible = monitor.of_prior, monitor.impossible
    if not impossible > n / 2:
        return ""
    return (
        f"More than half of the prior may be impossible: {impossible} of {n} draws of it had no "
        "finite log-density. If the likelihood fails there that should not, mend it; a narrower "
        "prior saves evaluations."
    )


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
