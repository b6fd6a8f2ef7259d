"""Wrong simulators beside a Gaussian process of their discrepancy, against NUTS on closed forms.

    python examples/benchmarks/discrepancy.py [--cases battery enzyme] [--seeds 6]

Data of a battery come from two pairs of a resistor and a capacitor, and the simulator has one. Data
of an enzyme drift with time, and the simulator does not. A model is *wrong* where independent noise
is all that stands between simulator and data. Beside it stands the model with a discrepancy δ(t),
whose amplitude and length have priors. Simulators are closed forms, which are written twice: for
NumPy in a black box, and for PyTensor, so that NUTS has gradients.

Rows have averages on the natural scale, of all free variables. Those of "known" are from NUTS, four
chains of 5000 draws. The others are a run of ``pk.sample(max_evaluations=500)``: the error of means
in sds, and the ratio of standard deviations, by `pk.summary`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import (
    each,
    evaluations,
    grouped,
    judged,
    largest_rhat,
    main,
    measured,
    parameters,
    rounded,
    sample_by_pymc,
    span,
    table,
)
from problems import from_draws

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
EVALUATIONS, DRAWS = 500, 5000


class Wrong(NamedTuple):
    """A simulator that is wrong, and data."""

    simulate: Callable  # of NumPy or pytensor.tensor, and parameters
    priors: Callable  # () -> the parameters within a model
    truth: dict
    missing: np.ndarray  # what the simulator does not know of
    when: np.ndarray  # times (n,) of a curve
    noise: float
    sizes: tuple  # of the priors: sd of the noise, sd of δ, and its length

    @property
    def data(self):
        """What was observed, of one curve (n,) or of several."""
        errors = np.random.default_rng(1).normal(size=self.missing.shape)
        return self.simulate(np, *self.truth.values()) + self.missing + self.noise * errors

    def model(self, *, closed_form, discrepancy):
        """Return a model of PyMC."""

        def simulator(*parameters):
            return self.simulate(np, *parameters)

        noise, size, length = self.sizes
        with pm.Model() as model:
            own = self.priors()
            sigma = pm.HalfNormal("sigma", noise)
            box = pk.black_box(simulator, ndim=self.missing.ndim)
            curve = self.simulate(pt, *own) if closed_form else box(*own)
            if not discrepancy:
                pm.Normal("seen", curve, sigma, observed=self.data)
                return model
            eta = pm.HalfNormal("eta", size)
            ell = pm.LogNormal("ell", np.log(length), 0.5)
            kernel = eta**2 * pm.gp.cov.Matern52(1, ell)
            covariance = kernel(self.when[:, None]) + sigma**2 * pt.eye(self.when.size)
            pm.MvNormal("seen", curve, covariance, observed=self.data)
        return model


# ---- a battery ----------------------------------------------------------------------------------

SECONDS = np.arange(10.0, 601, 10)
SWITCHED = np.arange(0.0, 600, 40)
CURRENT = np.where(np.arange(SWITCHED.size) % 2, 0.0, 6.0)  # amperes, from each switch on
DRAWN = CURRENT[np.searchsorted(SWITCHED, SECONDS, side="right") - 1]


def lagged(xp, tau):
    """Return the current through a resistor with a capacitor beside it, at each time."""
    since = np.maximum(SECONDS[:, None] - SWITCHED, 0)
    return xp.sum(np.diff(CURRENT, prepend=0) * (1 - xp.exp(-since / tau)), axis=1)


def millivolts(xp, rest, r0, r1, tau):
    """Return voltages of a battery with one pair of a resistor and a capacitor."""
    return rest - r0 * DRAWN - r1 * lagged(xp, tau)


def of_battery():
    """Return its parameters, in mV, milliohms and seconds."""
    rest, r0 = pm.Normal("rest", 3700, 10), pm.LogNormal("r0", np.log(20), 0.5)
    return rest, r0, pm.LogNormal("r1", np.log(20), 0.5), pm.LogNormal("tau", np.log(60), 0.7)


# ---- an enzyme ----------------------------------------------------------------------------------

MINUTES = np.arange(2.0, 61, 2)
SUBSTRATE = np.array([[1.0], [4.0]])


def omega(xp, a):
    """Return w with w + log w = a, which is Lambert's function of exp(a), by Newton's steps."""
    w = xp.where(a > 1, a - xp.log(xp.maximum(a, 1.0)), xp.exp(xp.minimum(a, 1.0) - 1))
    for _ in range(6):
        w = w * (1 + a - xp.log(w)) / (1 + w)
    return w


def signals(xp, vmax, km, scale):
    """Return what is seen of the product by Michaelis and Menten, of two concentrations."""
    left = km * omega(xp, xp.log(SUBSTRATE / km) + (SUBSTRATE - vmax * MINUTES) / km)
    return scale * (SUBSTRATE - left)


def of_enzyme():
    """Return its parameters; a calibration has told the scale of the signal within 2 %."""
    vmax, km = pm.LogNormal("vmax", np.log(0.1), 0.5), pm.LogNormal("km", 0, 0.7)
    return vmax, km, pm.LogNormal("scale", np.log(100), 0.02)


MODELS = {
    "battery": Wrong(
        millivolts,
        of_battery,
        {"rest": 3700.0, "r0": 20.0, "r1": 15.0, "tau": 30.0},
        -20 * lagged(np, 1000.0),
        SECONDS,
        2.0,
        (5, 20, 150),
    ),
    "enzyme": Wrong(
        signals,
        of_enzyme,
        {"vmax": 0.1, "km": 0.8, "scale": 100.0},
        np.tile(MINUTES / 6, (2, 1)),
        MINUTES,
        1.5,
        (3, 15, 30),
    ),
}


# ---- what is measured ---------------------------------------------------------------------------


def plan(options):
    """Return what is to be run."""
    kinds = {"case": MODELS, "discrepancy": [False, True]}
    yield from each(known, sampler=["known"], **kinds)
    yield from each(run, sampler=["EmulatorMetropolis"], **kinds, seed=range(options.seeds))


def known(case, discrepancy):
    """Return the averages of NUTS."""
    model = MODELS[case].model(closed_form=True, discrepancy=discrepancy)
    dt = sample_by_pymc(
        DRAWS,
        tune=2000,
        target_accept=0.95,
        nuts_sampler="pymc",
        init="jitter+adapt_full",
        model=model,
        random_seed=1,
    )
    x, d = parameters(model, dt), len(model.free_RVs)
    moments = from_draws(x)
    return {
        "names": [rv.name for rv in model.free_RVs],
        "mean": rounded(moments.mean[:d], 6),
        "sd": rounded(moments.sd[:d], 6),
        "ess": rounded(moments.ess),
        "rhat": largest_rhat(x),
        "divergences": int(dt["sample_stats"]["diverging"].sum()),
    }


def reference(case, discrepancy):
    """Return the row of what is known, which may have to be computed first."""
    what = {"sampler": "known", "case": case, "discrepancy": discrepancy}
    rows = measured(FILE, [(what, lambda: known(case, discrepancy))])
    return next(row for row in rows if what.items() <= row.items())


def run(case, discrepancy, seed):
    """Return what a run of `pk.sample` says."""
    own = reference(case, discrepancy)
    with MODELS[case].model(closed_form=False, discrepancy=discrepancy):
        dt = pk.sample(max_evaluations=EVALUATIONS, random_seed=seed, cores=1, progressbar=False)
        summary = pk.summary(dt, var_names=own["names"], round_to="none")
    return {
        "calls": int(evaluations(dt)[:, -1].sum()),
        "accept": rounded(dt["sample_stats"]["emulator_accept"].mean()),
        "error": rounded((summary["mean"].to_numpy() - own["mean"]) / own["sd"]),
        "sd": rounded(summary["sd"].to_numpy() / own["sd"]),
        "rhat": rounded(summary["r_hat"].max()),
        **judged(dt),
    }


def tables(rows):
    """Return the table of docs/tutorials/discrepancy.md."""
    lines = []
    for (case, discrepancy), own in grouped(rows, "case", "discrepancy").items():
        runs = [row for row in own if "seed" in row]
        if not runs:
            continue
        usable = sum(row["verdict"] == "usable" for row in runs)
        lines.append(
            [
                case,
                "with δ" if discrepancy else "without",
                len(runs[0]["error"]),
                span([row["calls"] for row in runs]),
                span([np.abs(row["error"]).max() for row in runs], "{:.2f}".format),
                span(
                    [np.abs(np.array(row["sd"]) - 1).max() for row in runs],
                    lambda x: f"{100 * x:.0f} %",
                ),
                f"{usable} of {len(runs)}",
            ]
        )
    titles = ["model", "δ", "d", "calls", "worst mean off by, sd", "worst sd off by", "usable"]
    return {"tutorials/discrepancy.md": {"against NUTS": table(titles, lines)}}


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=6)
