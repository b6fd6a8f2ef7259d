"""What SurrogateMetropolis keeps of its surrogate in a result, and the function made from that.

Symbols: as in metropolis.py.
"""

import numpy as np
import xarray as xr

from pymc_kameleon.approximation.linalg import whitened
from pymc_kameleon.approximation.records import MANY_DRAWS
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.density import Surrogate
from pymc_kameleon.step.groups import EMULATOR_MOVES, LEARNED_GROUP, SURROGATE_MOVES
from pymc_kameleon.step.learned import BIS, COORDINATE, Quantity, product

U, U_BIS, CENTRE = "whitened", "whitened_bis", "centre"
"""Dimensions: of u, and of the points that the surrogate was fitted to."""

NATS = "log-density"  # the units of a log-density

MOST_NAMED = 4
"""Coordinates that are named in one line."""


class Emulator:
    """A model's log-density, as tuning has fitted it: ``emulator(x)``, in microseconds per point.

    It approximates ``model.logp()``, that of unconstrained variables with the Jacobian of their
    transforms, with its constant. It is good where the chains have been; far out it falls as a t
    density does, whatever the model does there, and it knows nothing of a ``region``.

    Attributes
    ----------
    coordinates : list of str
        Names of what it is a function of, in order, as ``["a", "s_log__", "b[0]"]``.
    mean : (d,) float64
        Of the posterior, about.
    covariance : (d, d) float64
        Of the posterior, about.
    error : float
        What it is wrong by at a point that was left out when it was fitted, in units of the
        log-density: a mean of absolute errors, about their own mean, each at most 6, in which
        points of lower density count less.
    posterior_error : float
        What it is wrong by at the draws after tuning, of all chains, from which it has not learned:
        a mean of absolute errors, as they are. NaN if the result has no such draws.
    """

    posterior_error = np.nan

    def __init__(self, coordinates, mean, factor, surrogate, error):
        self.coordinates, self.mean, self.error = coordinates, mean, error
        self.covariance = product(factor)
        self._factor, self._surrogate = factor, surrogate

    def __call__(self, x):
        """Return the approximate log-density (...) at points x (..., d)."""
        x, d = np.asarray(x, np.float64), len(self.mean)
        if x.shape[-1:] != (d,):
            raise ValueError(
                f"The emulator takes points of {d} coordinates, an array (..., {d}) in the order "
                f"of {self._names()}; this one has the shape {x.shape}."
            )
        u = whitened(x.reshape(-1, d), self.mean, self._factor)
        return fit.values(self._surrogate, u).reshape(x.shape[:-1])[()]

    def __repr__(self):
        """Say of what, how good, and from how many points, or that it is a quadratic."""
        n, at_draws = self._surrogate.n[0], self.posterior_error
        return (
            f"Emulator(unconstrained log-density of {self._names()}; error {self.error:.2g}, "
            f"{'' if np.isnan(at_draws) else f'{at_draws:.2g} at the draws, '}"
            f"{f'fitted to {n} points' if n else 'a quadratic'})"
        )

    def _names(self):
        d, shown = len(self.coordinates), ", ".join(self.coordinates[:MOST_NAMED])
        return shown if d <= MOST_NAMED else f"{shown}, … ({d} coordinates)"


# ---- in a result --------------------------------------------------------------------------------


def learned(parameters):
    """Return what there is of the surrogate, a Quantity by name."""
    surrogate, n = parameters.surrogate, parameters.surrogate.n[0]
    fitted = {
        "n_centres": Quantity((), n, "Kernels of the surrogate."),
        "surrogate_error": Quantity(
            (), parameters.error[0], "Mean error of points left out.", NATS
        ),
    }
    if np.isnan(parameters.error[0]):
        return fitted
    lower = np.tril(surrogate.quadratic)
    factor = "Factor L of `covariance`: the surrogate is a function of u = L⁻¹(x − mean)."
    base = "Whether kernels are added to a quadratic; if not, to the t density."
    bounds = "Least and largest difference from the log of the t density, which is 0 at u = 0."
    quantities = {
        "factor": Quantity(
            (COORDINATE, BIS), np.tril(parameters.factor), factor, "the first coordinate's"
        ),
        "nu": Quantity((), surrogate.nu[0], "Degrees of freedom ν of the t density."),
        "is_quadratic": Quantity((), bool(surrogate.is_quadratic[0]), base),
        "constant": Quantity((), surrogate.constant[0], "Constant term.", NATS),
        "gradient": Quantity((U,), surrogate.linear, "Of the polynomial, at u = 0."),
        "hessian": Quantity((U, U_BIS), lower + lower.T, "Of the polynomial."),
        "bounds": Quantity(
            ("bound",), surrogate.bounds, bounds, NATS, {"bound": ("lower", "upper")}
        ),
    }
    if n > 0:
        centres = surrogate.centres[:, :n].T / surrogate.rates
        quantities |= {
            "centres": Quantity((CENTRE, U), centres, "Points u that it was fitted to."),
            "weights": Quantity((CENTRE,), surrogate.weights[:n], "Of the kernels there.", NATS),
            "rates": Quantity((U,), surrogate.rates, "Reciprocal lengths of the kernels."),
        }
    return fitted | {f"surrogate_{name}": quantity for name, quantity in quantities.items()}


def is_of_surrogate(dt):
    """Return whether a result is one of SurrogateMetropolis, perhaps beside other steps."""
    learned = getattr(dt, "children", {}).get(LEARNED_GROUP, ())
    has_fitted = any(name == "n_centres" or name.endswith("_n_centres") for name in learned)
    return has_fitted and EMULATOR_MOVES not in dt.children


def emulator_of(dt):
    """Return the Emulator of a result, of the chain with the least error."""
    own = _learned_group(dt)
    fitted = own["surrogate_error"].notnull()
    if not fitted.any():
        raise ValueError(
            "No surrogate was fitted in this result: nothing is learned with tune=0. Tune longer."
        )
    chain = own["surrogate_error"].where(fitted, np.inf).idxmin("chain").item()
    emulator = emulator_from(own.sel(chain=chain))
    if {SURROGATE_MOVES, "sample_stats"} <= set(dt.children):
        x, logp = _draws(dt[SURROGATE_MOVES].to_dataset(), dt["sample_stats"]["lp"])
        emulator.posterior_error = float(np.mean(np.abs(emulator(x) - logp)))
    return emulator


def _draws(moves, logp):
    """Return draws (n, d), the ends or starts of last moves, and their log-densities (n,)."""
    moves, logp = xr.align(moves, logp, join="inner")
    x = xr.where(moves["end_logp"] == logp, moves["end"], moves["start"])
    x = x.transpose(*logp.dims, COORDINATE).values.reshape(logp.size, -1)
    some = np.unique(np.linspace(0, logp.size - 1, MANY_DRAWS).astype(int))
    return x[some], logp.values.ravel()[some]


def emulator_from(own):
    """Return the Emulator of what one chain has learned."""
    factor, surrogate = own["surrogate_factor"].values, surrogate_from(own)
    names = own[COORDINATE].values.tolist()
    return Emulator(names, own["mean"].values, factor, surrogate, own["surrogate_error"].item())


def _learned_group(dt):
    """Return what the chains of a result learned, if that is by one step SurrogateMetropolis."""
    own = dt[LEARNED_GROUP].to_dataset()
    if any(name.endswith("_n_centres") for name in own):
        raise ValueError(
            "There is no emulator of this result: several steps have moved its variables, and each "
            "surrogate is of the log-density of some given the others. Let one SurrogateMetropolis "
            "move all."
        )
    if "chain" not in own.dims:
        raise ValueError("The result has no dimension chain. Select one as dt.isel(chain=[0]).")
    return own


def surrogate_from(own):
    """Return the Surrogate of one chain, the opposite of `learned`; NaN follows its n centres."""
    values = {name.removeprefix("surrogate_"): array.values for name, array in own.items()}
    quadratic = np.tril(values["hessian"])
    quadratic[np.diag_indices(len(quadratic))] /= 2
    n, d = values["n_centres"], len(quadratic)
    kernels = {"centres": np.empty((0, d)), "weights": np.empty(0), "rates": np.ones(d)}
    centres, weights, rates = ((values if n else kernels)[name] for name in kernels)
    if not 0 <= n <= len(weights) == len(centres):  # compiled code would read beyond them
        raise ValueError(f"The group learned was changed: it has {len(weights)} centres, not {n}.")
    return Surrogate(
        nu=np.array([values["nu"]]),
        is_quadratic=np.array([values["is_quadratic"]], np.int64),
        constant=np.array([values["constant"]]),
        linear=values["gradient"],
        quadratic=quadratic,
        bounds=values["bounds"],
        n=np.array([n]),
        centres=(centres * rates).T,
        weights=weights,
        rates=rates,
    )
