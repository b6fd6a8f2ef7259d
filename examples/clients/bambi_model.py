"""A Bambi model, sampled by GadMALA through the PyMC model that Bambi builds, and by Bambi's NUTS.

Reaction times of subjects over days, with an intercept and a slope for each subject and errors of
Student's t, on data made here. What comes back is Bambi's again: `model.predict` takes it. And
`pk.summary` takes what Bambi's own `fit` returns, and corrects its averages by gradients.

    python bambi_model.py [--draws N] [--tune N]
"""

import argparse

import arviz as az
import bambi as bmb
import numpy as np
import pandas as pd

import pymc_kameleon as pk

SUBJECTS, DAYS = 15, 8


def make_data():
    """Return reaction times in milliseconds, of each subject on each day."""
    rng = np.random.default_rng(1)
    start, slope = rng.normal(250, 25, SUBJECTS), rng.normal(10, 6, SUBJECTS)
    subject = np.repeat(np.arange(SUBJECTS), DAYS)
    day = np.tile(np.arange(DAYS), SUBJECTS)
    reaction = start[subject] + slope[subject] * day + 15 * rng.standard_t(4, subject.size)
    names = [f"S{number:02}" for number in subject]
    return pd.DataFrame({"subject": names, "day": day, "reaction": reaction})


def main(arguments=None):
    """Sample, and predict the mean of one more day."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=2000, help="draws of each chain")
    parser.add_argument("--tune", type=int, default=1000, help="draws of tuning before them")
    options = parser.parse_args(arguments)

    data = make_data()
    # With centred predictors the PyMC model's Intercept is the mean at the predictors' means. Only
    # Bambi's own fit() turns it into the intercept, and predict() relies on that.
    formula = "reaction ~ day + (day | subject)"
    model = bmb.Model(formula, data, family="t", center_predictors=False)
    model.build()
    with model.backend.model as pymc_model:
        names = [variable.name for variable in pymc_model.unobserved_RVs if variable.name != "mu"]
        dt = pk.sample(
            options.draws, tune=options.tune, step=pk.GadMALA(), var_names=names, random_seed=1
        )
    parameters = ["Intercept", "day", "sigma", "nu", "1|subject_sigma", "day|subject_sigma"]
    print(az.summary(dt, var_names=parameters))

    nuts = model.fit(
        options.draws, tune=options.tune, target_accept=0.95, omit_offsets=False, random_seed=1
    )
    print(pk.summary(nuts, model=model.backend.model, var_names=parameters))

    model.predict(dt, kind="response_params")
    mean = dt["posterior"]["mu"].mean().item()
    print(f"mean reaction {data['reaction'].mean():.0f} ms, predicted {mean:.0f} ms")
    tomorrow = data.groupby("subject", as_index=False).first().assign(day=DAYS)
    ahead = model.predict(dt, data=tomorrow, inplace=False)["posterior"]["mu"]
    for name, value in zip(tomorrow["subject"][:3], ahead.mean(("chain", "draw")), strict=False):
        print(f"{name} on day {DAYS}: {value.item():.0f} ms")


if __name__ == "__main__":
    main()
