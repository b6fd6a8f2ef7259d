"""``pk.where_next``: which further measurement would narrow a quantity most.

Symbols: θ the draws, f_c(θ) what candidate c would measure without error, σ_c its standard error,
q the quantities to narrow.

A measurement y of c gives each draw the weight N(y; f_c(θ), σ_c²), and leaves the variance that q
has with these weights. Its expectation over y is found twice. Nested Monte Carlo draws θ_i from the
posterior, y from N(f_c(θ_i), σ_c²), and weighs all other draws. Where f_c and q are jointly normal,
it is Var q − Cov(q, f_c)² / (Var f_c + σ_c²) (Raiffa & Schlaifer, Applied Statistical Decision
Theory, 1961; Chaloner & Verdinelli, Statistical Science 10, 1995, 273).
"""

import numpy as np
import xarray as xr

from pymc_kameleon.analysis.emulator import SimulatorEmulator, emulator
from pymc_kameleon.analysis.simulator_inputs import posterior_inputs
from pymc_kameleon.findings.words import some
from pymc_kameleon.result.opening import draws_in, opened

N_DRAWS, N_MEASUREMENTS = 2000, 500
"""Draws that are weighed, at most, and measurements that are imagined of each candidate: an
expected variance is then known to a few percent."""


def where_next(dt, candidates=None, noise=None, for_=None, *, name=None, random_seed=None):
    """Tell which further measurement would narrow quantities most, from draws alone.

    The simulator is not called: its emulator, or the draws, have what would be measured.

    Parameters
    ----------
    dt : DataTree or path
        A result of ``pk.sample``, or of another sampler.
    candidates : str or callable, optional
        What each of k candidates would measure if there were no errors: the name of a variable
        with draws (chain, draw, k); or a function of variables, a dict of arrays
        (chain, draw, ...), that returns (chain, draw, k). By default the outputs of the simulator,
        as its emulator predicts them.
    noise : float, array, str or callable
        The standard error of a measurement: a number, one for each candidate (k,), the name of a
        variable, or a function as above, that returns (chain, draw) or (chain, draw, k).
    for_ : str, list of str or callable, optional
        What is to be narrowed: names of variables, by default all; or a function of variables that
        returns (chain, draw, ...). Of several quantities the mean is judged.
    name : str, optional
        The name of the black box, if there are several.
    random_seed : int or Generator, optional

    Returns
    -------
    Dataset
        ``remaining`` (candidate), the variance that is expected to remain after the measurement,
        relative to that now, averaged over quantities; and ``remaining_of`` (candidate, quantity).
        Both by nested Monte Carlo; ``remaining_linear`` and ``remaining_linear_of`` have the same
        by the formula for normal variables. ``mcse`` (candidate) is the Monte Carlo error of
        ``remaining``. The attribute ``best`` is the candidate that leaves least.

    Raises
    ------
    ValueError
        If the result has no draws or no such variable, `noise` is missing or not positive, or
        shapes do not fit.

    Notes
    -----
    The emulator's own errors count as errors of the measurement. Where a measurement is so precise
    that fewer than two draws agree with it, nested Monte Carlo takes it for less precise: then
    too much seems to remain. See docs/design.md.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     dt = pk.sample()
    >>> pk.where_next(dt, noise=0.1, for_="k")  # doctest: +SKIP
    """
    dt, rng = opened(dt), np.random.default_rng(random_seed)
    posterior = draws_in(dt, "go by").transpose("chain", "draw", ...)
    if noise is None:
        raise ValueError("noise is missing: give the standard error of a further measurement.")
    f, labels, unknown = _candidates(dt, posterior, candidates, name)
    sd = np.sqrt(_noise(posterior, noise, f) ** 2 + unknown**2)
    q, names = _quantities(posterior, for_)
    few = rng.permutation(len(f))[:N_DRAWS]
    f, sd, q = f[few], sd[few], q[few]
    linear = _linear(f, sd, q)
    nested, errors = _nested(f, sd, q, rng)
    remaining, own = nested.mean(axis=1), ("candidate", "quantity")
    return xr.Dataset(
        {
            "remaining": ("candidate", remaining),
            "mcse": ("candidate", errors),
            "remaining_linear": ("candidate", linear.mean(axis=1)),
            "remaining_of": (own, nested),
            "remaining_linear_of": (own, linear),
        },
        {"candidate": labels, "quantity": names},
        {"best": labels[int(np.argmin(remaining))]},
    )


# ---- what is asked ------------------------------------------------------------------------------


def _candidates(dt, posterior, candidates, name):
    """Return what candidates measure at the draws (n, k), labels, and the emulator's errors."""
    if candidates is None:
        known = emulator(dt, name)
        if not isinstance(known, SimulatorEmulator):
            raise ValueError("candidates is missing, and the result has no emulator of outputs.")
        x = posterior_inputs(known.inputs, posterior).reshape(-1, len(known.inputs))
        return known(x), list(range(known.n_outputs)), known.error(x)
    values = _values(posterior, candidates, "candidates")
    if values.ndim != 3:
        raise ValueError(
            f"candidates must have draws (chain, draw, k), a column for each; it has the shape "
            f"{values.shape}."
        )
    f, labels = values.reshape(-1, values.shape[2]), list(range(values.shape[2]))
    if isinstance(candidates, str):
        [dim] = posterior[candidates].dims[2:]
        labels = posterior[dim].values.tolist() if dim in posterior.coords else labels
    if not np.isfinite(f).all():
        raise ValueError("candidates has draws that are not finite: leave out those candidates.")
    return f, labels, 0.0


def _noise(posterior, noise, f):
    """Return standard errors (n, k) of what candidates f (n, k) measure."""
    if isinstance(noise, str) or callable(noise):
        values = _values(posterior, noise, "noise")
        values = values.reshape(len(f), *values.shape[2:])
        noise = values[:, None] if values.ndim == 1 else values
    try:
        sd = np.broadcast_to(np.asarray(noise, np.float64), f.shape)
    except ValueError:
        raise ValueError(
            f"noise must be one number, or one for each of {f.shape[1]} candidates, not of the "
            f"shape {np.shape(noise)}."
        ) from None
    if not (np.isfinite(sd).all() and (sd > 0).all()):
        raise ValueError("noise must be positive: a standard error.")
    return sd


def _quantities(posterior, for_):
    """Return the quantities to narrow at the draws (n, m), and their names."""
    if callable(for_):
        parts = {getattr(for_, "__name__", "function"): _values(posterior, for_, "for_")}
    else:
        names = list(posterior) if for_ is None else [for_] if isinstance(for_, str) else list(for_)
        parts = {name: _values(posterior, name, "for_") for name in names}
    columns, labels = [], []
    for name, values in parts.items():
        for index in np.ndindex(values.shape[2:]):
            column = values[(..., *index)].ravel()
            if np.ptp(column) > 0:  # what is known already need not be narrowed
                columns.append(column)
                labels.append(f"{name}[{', '.join(map(str, index))}]" if index else name)
    if not columns:
        raise ValueError("for_ names nothing that varies over the draws.")
    return np.stack(columns, axis=1), labels


def _values(posterior, what, argument):
    """Return the values (chain, draw, ...) of a variable, or of a function of them."""
    sizes = posterior.sizes["chain"], posterior.sizes["draw"]
    if callable(what):
        values = np.asarray(what({name: own.values for name, own in posterior.items()}))
    elif what in posterior:
        values = posterior[what].values
    else:
        raise ValueError(
            f"{argument}: there is no variable {what!r} among {some(list(posterior))}."
        )
    if values.shape[:2] != sizes or values.dtype.kind not in "fiub":
        raise ValueError(
            f"{argument} must have real numbers of the shape (chain, draw, ...), {sizes} here, not "
            f"{values.dtype} of the shape {values.shape}."
        )
    return values.astype(np.float64)


# ---- what remains -------------------------------------------------------------------------------


def _linear(f, sd, q):
    """Return the variance of q (n, m) that remains, relative to that now, (k, m), if normal."""
    f, q = f - f.mean(axis=0), q - q.mean(axis=0)
    covariance = f.T @ q / len(f)
    measured = np.mean(f**2, axis=0) + np.mean(sd**2, axis=0)
    return 1 - covariance**2 / measured[:, None] / np.mean(q**2, axis=0)


def _nested(f, sd, q, rng):
    """Return the same by nested Monte Carlo, and the errors of the means over quantities (k,)."""
    (n, k), q = f.shape, (q - q.mean(axis=0)) / q.std(axis=0)
    remaining, errors = np.empty((k, q.shape[1])), np.empty(k)
    squares = np.concatenate([q, q**2], axis=1)
    for c in range(k):
        rows = rng.choice(n, min(n, N_MEASUREMENTS), replace=False)
        y = f[rows, c] + sd[rows, c] * rng.standard_normal(len(rows))
        w = _weights(y, f[:, c], sd[:, c], rows)
        mean, square = np.split(w @ squares, 2, axis=1)
        variance = (square - mean**2) / (1 - np.sum(w**2, axis=1, keepdims=True))
        remaining[c] = variance.mean(axis=0)
        errors[c] = variance.mean(axis=1).std() / len(rows) ** 0.5
    return remaining, errors


def _weights(y, f, sd, rows):
    """Return weights (len(y), n) of draws by measurements y, of the draws `rows`.

    The draw that a measurement is of has none, as it would be too near. Where too few draws have
    any, the measurement is taken for less precise.
    """
    w, wider = np.empty((len(y), len(f))), np.ones((len(y), 1))
    left = np.arange(len(y))
    while left.size:
        log_w = -0.5 * ((y[left, None] - f) / (wider[left] * sd)) ** 2 - np.log(sd)
        log_w[np.arange(left.size), rows[left]] = -np.inf
        own = np.exp(log_w - log_w.max(axis=1, keepdims=True))
        w[left] = own / own.sum(axis=1, keepdims=True)
        left = left[np.sum(w[left] ** 2, axis=1) > 0.5]  # less than two draws, in effect
        wider[left] *= 2
    return w
