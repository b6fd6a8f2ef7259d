"""An HSSM model with a black-box likelihood, by SurrogateMetropolis and by GAM in HSSM's `sample`.

A drift diffusion model whose drift varies between trials, of the first subject of the data that
HSSM ships. HSSM has a Cython function for it, which has no gradient, and takes Slice by default.

    python hssm_model.py [--draws N] [--tune N]
"""

import argparse

import arviz as az
import hssm

import pymc_kameleon as pk


def build_model():
    """Return the model of 298 trials: drift, its variability, threshold, bias, other time."""
    data = hssm.load_data("cavanagh_theta")
    data = data[data["participant_id"] == 0][["rt", "response"]].reset_index(drop=True)
    return hssm.HSSM(data, model="ddm_sdv", loglik_kind="blackbox", p_outlier=0.05)


def main(arguments=None):
    """Sample with `pk.sample`, then with HSSM's own method."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=500, help="draws of each chain")
    parser.add_argument("--tune", type=int, default=200, help="draws of tuning before them")
    options = parser.parse_args(arguments)
    arguments = {"draws": options.draws, "tune": options.tune, "cores": 2, "random_seed": 1}

    model = build_model()
    names = ["v", "sv", "a", "z", "t"]
    with model.pymc_model:
        dt = pk.sample(step=pk.SurrogateMetropolis(), chains=4, **arguments)
        print(pk.summary(dt, var_names=names))

    dt = model.sample(step=pk.GAM.options(), chains=4, **arguments)  # has log_likelihood, too
    print(az.summary(dt, var_names=names))


if __name__ == "__main__":
    main()
