"""An HSSM model by pk.sample() and by HSSM's `sample`, with a likelihood in Cython or in PyTensor.

A drift diffusion model whose drift varies between trials, of the first subject of the data that
HSSM ships. HSSM has two likelihoods of it, and the posterior is the same. The one in Cython is a
black box: `pk.sample` takes SurrogateMetropolis, and HSSM's `sample`, which would take Slice, gets
GAM. The analytical one has a gradient: here they take GadMALA and NUTS.

    python hssm_model.py [--likelihood analytical] [--draws N] [--tune N]
"""

import argparse

import hssm

import pymc_kameleon as pk


def build_model(kind):
    """Return the model of 298 trials: drift, its variability, threshold, bias, other time."""
    data = hssm.load_data("cavanagh_theta")
    data = data[data["participant_id"] == 0][["rt", "response"]].reset_index(drop=True)
    return hssm.HSSM(data, model="ddm_sdv", loglik_kind=kind, p_outlier=0.05)


def main(arguments=None):
    """Sample with `pk.sample`, then with HSSM's own method."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--likelihood", choices=["blackbox", "analytical"], default="blackbox")
    parser.add_argument("--draws", type=int, default=500, help="draws of each chain")
    parser.add_argument("--tune", type=int, default=200, help="draws of tuning before them")
    options = parser.parse_args(arguments)
    arguments = {"draws": options.draws, "tune": options.tune, "chains": 4, "cores": 2}
    arguments["random_seed"] = 1

    model = build_model(options.likelihood)
    names = ["v", "sv", "a", "z", "t"]
    with model.pymc_model:
        dt = pk.sample(initvals=model.initvals, **arguments)
        print(pk.summary(dt, var_names=names))

    own = {"step": pk.GAM.options()} if options.likelihood == "blackbox" else {}
    dt = model.sample(**own, **arguments)  # has log_likelihood, too
    print(pk.summary(dt, var_names=names, model=model.pymc_model))


if __name__ == "__main__":
    main()
