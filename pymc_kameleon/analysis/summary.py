"""``pk.summary``: the table of ArviZ, with averages that are corrected where possible.

Symbols: F the distribution function of a variable, estimated at the points of a grid.
"""

from numbers import Integral

import numpy as np
import pandas as pd
from arviz_base import extract, rcParams
from arviz_stats import summary as arviz_summary
from arviz_stats.base import array_stats
from numpy.polynomial.chebyshev import chebpts2
from scipy.interpolate import PchipInterpolator
from scipy.stats import norm

from pymc_kameleon.analysis.batches import ROUNDING, Corrected, r_hat
from pymc_kameleon.analysis.corrections import WIDER
from pymc_kameleon.analysis.draws_of_result import Draws, not_finite, side_by_side
from pymc_kameleon.analysis.trust import few_events, high_errors, signs
from pymc_kameleon.core.conventions import NUMBERS_PER_PART
from pymc_kameleon.findings.diagnosis import CHECK, NOT_USABLE, diagnosis_in
from pymc_kameleon.findings.finding import finding, said, say
from pymc_kameleon.findings.words import some
from pymc_kameleon.result.opening import opened
from pymc_kameleon.step.groups import FINDINGS

GRID = 30
"""Points at which F is estimated."""

LEVELS = (1 + chebpts2(GRID)) / 2
"""F at these points, by the draws: they are denser towards both ends."""

MOST_SHARED = 0.01
"""Share of draws with values of other chains' from which a distribution function has steps."""


def summary(dt, var_names=None, *, ci_prob=None, ci_kind=None, round_to="auto", model=None):
    """Summarise the posterior, more exactly than the draws do.

    Means, standard deviations, intervals and their errors are corrected as those of
    ``pk.expectation``, each where that is of use. Otherwise they are those of ``arviz.summary``,
    whose other arguments, as `kind`, `coords` and `filter_vars`, it does not take. Gradients are
    kept in the result, as ``dt["gradients"]``.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample``, or of another sampler, or the path of a file or store of one.
    var_names : str or list of str, optional
        As in ``arviz.summary``; all variables by default.
    ci_prob : float, optional
        Probability of the interval; by default ArviZ's, 0.89.
    ci_kind : {"eti", "hdi"}, optional
        Interval with equal tails, ArviZ's default, or the shortest one.
    round_to : int or {"auto", "none"}, optional
        Number of decimals; by default only digits that are known.
    model : pm.Model, optional
        By default the one that this process has sampled, or that of the context. Without it, for
        example after loading a file, a surrogate or an emulator corrects only variables that need
        no model to be computed.

    Returns
    -------
    DataFrame
        ArviZ's columns and two more. ``ess`` is the number of independent draws that would estimate
        the mean equally well, and ``gain`` the estimated variance of the mean over the draws,
        divided by that of this mean. ``ess_bulk`` and ``ess_tail`` are those of the draws.
        ``r_hat`` is that of corrected averages over half-chains if the mean was corrected.
        ``attrs`` may have the ``ess_share`` of a surrogate or an emulator; the rows whose mean is
        corrected ``by_surrogate``, ``by_emulator``, ``by_gradients``, or is ``by_process``, and so
        approximate; and ``not_by_gradients`` and so on: why there are none.

    Raises
    ------
    ValueError
        If there are no draws, if `model` is another one, or if `var_names` is empty.

    Notes
    -----
    The log says which variables are not corrected, as those that were changed since, or depend on
    a black box. It warns if a variable is not finite at some draws, if there are signs that the
    errors are not to be trusted, and if these are more than a tenth of the standard deviation. See
    docs/estimates.md and docs/any_run.md.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.SurrogateMetropolis())
    >>> pk.summary(dt)
    >>> with model:
    ...     dt = pm.sample()  # NUTS
    >>> pk.summary(dt, model=model)
    """
    is_number = isinstance(round_to, Integral) and not isinstance(round_to, bool)
    if not is_number and round_to not in ("auto", "none"):
        raise ValueError(
            f'round_to must be "auto", "none" or a number of decimals, not {round_to!r}.'
        )
    dt = opened(dt, model)
    draws = Draws(dt, model)
    if var_names is not None and np.size(var_names) == 0:
        raise ValueError(f"var_names is empty: name some of {list(draws.posterior)}.")
    chosen = extract(draws.posterior, var_names=var_names, combined=False, keep_dataset=True)
    chosen = chosen.transpose("chain", "draw", ...)
    ci_kind = rcParams["stats.ci_kind"] if ci_kind is None else ci_kind
    ci_prob = rcParams["stats.ci_prob"] if ci_prob is None else ci_prob
    values = side_by_side(chosen)
    about = [one for name, own in chosen.items() for one in not_finite(name, own.values)]
    with np.errstate(divide="ignore", invalid="ignore"):  # of what does not vary
        found = arviz_summary(
            chosen.astype(np.float64), ci_kind=ci_kind, ci_prob=ci_prob, round_to="none"
        )
        ess = array_stats.ess(values, chain_axis=0, draw_axis=1, method="mean")
    table = pd.DataFrame(found, dtype=float)
    table = table.assign(ess=ess, gain=1.0)
    constant = np.ptp(values, axis=(0, 1)) == 0
    _put(table, constant, ["mcse_mean", "mcse_sd", "ess"], np.nan)
    plain = table.copy()
    by, is_approximate = _correct(table, draws, chosen, values, ci_prob, ci_kind)
    for name, one in draws.corrections.items():
        table.attrs[name] = table.index[by == name].tolist()
        if one.ess_share is not None:
            table.attrs["ess_share"] = one.ess_share
    table.attrs |= {f"not_{kind}": reason for kind, reason in draws.why_not.items()}
    labels = list(table.index)
    if draws.should_be_corrected:
        r_hat = np.where(is_approximate, np.nan, table["r_hat"])  # which no chain tells
        about += signs(labels, values, r_hat, draws)
    about += _keep_what_draws_show(table, plain)
    if (table["sd"] <= ROUNDING * table["mean"].abs()).all():
        about.append(finding("constant_draws", names=some(labels)))
    else:
        both = [f"{what} of {name}" for what in ("mean", "sd") for name in labels]
        errors = table[["mcse_mean", "mcse_sd"]].to_numpy().T.ravel()
        sd = np.where(constant, 0, table["sd"])  # it is 1e-17 of rounding
        about += high_errors(both, np.tile(sd, 2), errors)
    about += few_events(labels, values, is_approximate)
    _say(dt, about + draws.findings)
    if is_number:
        return table.round(round_to)
    return _rounded(table) if round_to == "auto" else table


def _say(dt, findings):
    """Log the verdict on the run if it is bad, and findings of the table that it does not name."""
    known = ()
    if FINDINGS in getattr(dt, "children", ()):
        of_run = diagnosis_in(dt[FINDINGS].to_dataset())
        if of_run.verdict in (CHECK, NOT_USABLE):
            worst = of_run.findings[0]
            known = {worst.code}
            say("bad_verdict", verdict=of_run.verdict.capitalize(), worst=str(worst))
    said(findings, known)


# ---- corrections --------------------------------------------------------------------------------


def _correct(table, draws, chosen, values, ci_prob, ci_kind):
    """Put corrected numbers into the table; return by what means are, and which are approximate."""
    sizes = [variable[0, 0].size for variable in chosen.values()]
    names = draws.can_correct(list(chosen))
    known = np.repeat([name in names for name in chosen], sizes)
    real = np.repeat([variable.dtype.kind == "f" for variable in chosen.values()], sizes)
    varies = np.isfinite(values).all(axis=(0, 1)) & (np.ptp(values, axis=(0, 1)) > 0)
    varies &= bool(draws.corrections)
    place = np.cumsum(known) - 1
    told = np.full(len(table), "", object), np.zeros(len(table), bool)
    for own, is_known in _blocks_of(known, varies, values[..., 0].size):

        def columns_at(x, own=own):
            return draws.at(x, side_by_side, names)[:, place[own]]

        many = draws.many(columns_at) if is_known else None
        block = _Block(values[..., own], many)

        def at(x, block=block, columns_at=columns_at):
            return block.functions(columns_at(x))

        at = at if is_known else None
        found = draws.corrected(block.functions(block.values), at)
        if found is not None:
            written = block.write(table, own, found, real[own], ci_prob, ci_kind)
            for part, new in zip(told, written, strict=True):
                part[own] = new
    return told


def _blocks_of(known, varies, n_draws):
    """Yield rows that are computed at a time, of what is known at other points, and of the rest."""
    size = max(1, NUMBERS_PER_PART // (n_draws * (GRID + 2)))
    for is_known in (True, False):
        rows = np.flatnonzero(varies & (known == is_known))
        for first in range(0, len(rows), size):
            yield rows[first : first + size], is_known


def _keep_what_draws_show(table, plain):
    """Take rows of plain averages where draws are farther out than a corrected sd tells.

    So in a mode of which what corrects them does not know; and where a corrected mean has left its
    interval, which is told of others.
    """
    found = []
    wider = (plain["sd"] > WIDER * table["sd"]).to_numpy()
    _put(table, wider, table.columns, plain.to_numpy()[wider])
    if wider.any():
        found.append(finding("wider_draws", names=", ".join(table.index[wider])))
    outside, was_outside = (
        (~own["mean"].between(own.iloc[:, 2], own.iloc[:, 3]) & own["mean"].notna()).to_numpy()
        for own in (table, plain)
    )
    back = outside & ~was_outside
    _put(table, back, table.columns, plain.to_numpy()[back])
    if (rest := outside & was_outside).any():
        found.append(finding("mean_outside_interval", names=", ".join(table.index[rest])))
    return found


class _Block:
    """Columns (chains, draws, q) of a table, perhaps at `many` other draws (n, q), and their F."""

    def __init__(self, values, many=None):
        self.values, self.q = values, values.shape[2]
        self.centre = values.mean(axis=(0, 1))
        spread = values.reshape(-1, self.q) if many is None else many
        self.grid = np.quantile(spread, LEVELS, axis=0)

    def functions(self, values):
        """Return x, (x − centre)² and whether x is up to each point of the grid, (..., all)."""
        below = self._below(values).reshape(*values.shape[:-1], -1)
        parts = [values, (values - self.centre) ** 2, below]
        return np.concatenate(parts, axis=-1, dtype=np.float64)

    def _below(self, values):
        return values[..., None, :] <= self.grid

    def write(self, table, rows, found, real, ci_prob, ci_kind):
        """Put what was found into rows of a table; return as `_correct`."""
        q = self.q
        mean, square, below = (
            Corrected(*(part[..., own] if np.ndim(part) else part for part in found))
            for own in (slice(q), slice(q, 2 * q), slice(2 * q, None))
        )
        better = mean.is_better
        new = np.where(better, mean.mean, self.centre)
        variance = square.mean - (new - self.centre) ** 2
        fine = square.is_better & (variance > 0)
        sd = np.sqrt(variance[fine])
        _put(table, rows[fine], ["sd", "mcse_sd"], np.c_[sd, square.mcse[fine] / sd / 2])
        found = np.c_[new, mean.mcse, mean.gain, self.r_hat(below.halves, mean.halves)][better]
        better_rows = rows[better]
        _put(table, better_rows, ["mean", "mcse_mean", "gain", "r_hat"], found)
        sd = table["sd"].to_numpy()[better_rows]
        ess = (sd / mean.mcse[better]) ** 2
        _put(table, better_rows, ["ess"], ess[:, None])
        own = np.broadcast_to(mean.is_approximate, better.shape)[better]
        _put(table, better_rows[own], ["r_hat"], np.sqrt(1 + 1 / ess[own, None]))
        changed = below.is_better.reshape(GRID, q).any(axis=0) & real
        shares = below.mean.reshape(GRID, q)
        for j in np.flatnonzero(changed):
            if not has_atoms(self.values[..., j]):
                ends = interval(self.grid[:, j], shares[:, j], ci_prob, ci_kind)
                _put(table, rows[[j]], table.columns[2:4], ends)
        return np.where(better, mean.by, ""), mean.is_approximate

    def r_hat(self, below, means):
        """Return R-hat (q,) of F over halves of chains, (2 · chains, GRID · q).

        The larger one of normal scores of ranks, and of distances to the median; scores are those
        of the grid's intervals. Where these are all the same it is that of `means` (2 · chains, q).

        Source: Vehtari et al., "Rank-normalization, folding, and localization: an improved R-hat",
        Bayesian Analysis 16 (2021).
        """
        averages = SCORES @ below.reshape(len(below), GRID, self.q)
        scores = SCORES @ self._below(self.values)
        found = np.where(np.ptp(scores, axis=(0, 1)) > ROUNDING, r_hat(averages, scores), np.nan)
        found = np.fmax.reduce(found)
        return np.where(np.isnan(found), r_hat(means, self.values), found)


def _scores():
    """Return what F at each point of the grid counts in the mean of both scores, (2, GRID)."""
    middles, widths = (LEVELS[1:] + LEVELS[:-1]) / 2, np.diff(LEVELS)
    folded = np.maximum(np.abs(2 * middles - 1), widths / 2)
    return np.pad(-np.diff(norm.ppf([middles, folded])), ((0, 0), (1, 1)))


SCORES = _scores()


def _put(table, rows, columns, values):
    """Put values into rows of a table, by their places: labels need not be unique."""
    table.iloc[rows, table.columns.get_indexer(list(columns))] = values


def has_atoms(values):
    """Whether chains (chains, draws) share values, as those of a floor do: F then has steps."""
    each = np.concatenate([np.unique(own) for own in values])
    atoms, counts = np.unique(each, return_counts=True)
    return np.isin(values, atoms[counts > 1]).mean() > MOST_SHARED


def interval(x, shares, prob, kind):
    """Return the ends of an interval, by F(x) as estimated, which need not be monotone."""
    x, first = np.unique(x, return_index=True)
    up = np.maximum.accumulate(shares[first])
    down = np.minimum.accumulate(shares[first][::-1])[::-1]
    monotone = np.clip((up + down) / 2, 0, 1)
    fine = np.linspace(x[0], x[-1], 2001)
    cumulative = PchipInterpolator(x, monotone)(fine)
    low = np.array([(1 - prob) / 2]) if kind == "eti" else np.linspace(0, 1 - prob, 501)
    ends = np.interp([low, low + prob], cumulative, fine)
    return ends[:, np.argmin(ends[1] - ends[0])]


def _rounded(table):
    """Return the table with digits that are known: two of an error, and as many as that allows."""
    rounded = table.copy()
    for columns, error, factor in [
        (["mean"], "mcse_mean", 1),
        (["sd"], "mcse_sd", 1),
        (list(table.columns[2:4]), "mcse_mean", 3),
    ]:
        sizes = np.minimum(2 * factor * table[error], table["sd"]).to_numpy()
        for row, size in enumerate(sizes):
            digits = -int(np.floor(np.log10(size))) if 0 < size < np.inf else 6
            own = table[columns].to_numpy()[row].round(digits)
            _put(rounded, [row], columns, own)
    for name in ("mcse_mean", "mcse_sd", "gain"):
        rounded[name] = [float(f"{value:.2g}") for value in table[name]]
    if "r_hat" in table:
        rounded["r_hat"] = table["r_hat"].round(2)
    for name in ("ess", "ess_bulk", "ess_tail"):
        rounded[name] = np.floor(table[name]).astype("Int64")
    return rounded
