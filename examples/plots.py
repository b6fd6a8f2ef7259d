"""What the samplers did and learned, in five pictures: those of docs/plots.md.

    python examples/plots.py [--draws N] [--tune N] [--output DIRECTORY]

A minute on two cores, once everything is compiled.
"""

import argparse
from pathlib import Path

import numpy as np
import pymc as pm
from pharmacokinetics import build_model as drug
from pharmacokinetics import made_up_data
from until_enough import build_model

import pymc_kameleon as pk

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
SEED = 1


def banana():
    """Build a curved ridge."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 10)
        pm.Normal("y", 0.03 * (x**2 - 100), 1)
    return model


def modes():
    """Build two modes of two dimensions, with 0.7 and 0.3 of the probability."""
    with pm.Model() as model:
        near = pm.MvNormal.dist([-4, 0], np.eye(2))
        far = pm.MvNormal.dist([4, 3], [[1, 0.7], [0.7, 1]])
        pm.Mixture("mu", [0.7, 0.3], [near, far])
    return model


def main(arguments=None):
    """Draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=1000, help="draws of each chain")
    parser.add_argument("--tune", type=int, default=1000, help="draws of tuning before them")
    parser.add_argument("--output", default=IMAGES, help="where to write; docs/images by default")
    options = parser.parse_args(arguments)

    def sample(model, step):
        return pk.sample(options.draws, tune=options.tune, random_seed=SEED, step=step, model=model)

    walk = sample(build_model(), pk.GAM)
    # Short steps, in the coordinates of the picture: those of the defaults span half of it.
    kernel = pk.samplers.kernels.Gaussian(bandwidth=3)
    kam = pk.KAM.options(kernel=kernel, whiten=False, gamma=0.2, target_accept=0.7)
    curved = sample(banana(), kam)
    x, y = (curved["posterior"][name] for name in "xy")
    ridge = [(place, 0.03 * (place**2 - 100)) for place in np.linspace(-18, 18, 7)]
    nearest = [np.hypot(x - a, y - b).argmin(("chain", "draw")) for a, b in ridge]
    along = [(int(at["chain"]), int(at["draw"])) for at in nearest]
    large = {"figsize": (9, 7)}
    jumps = sample(modes(), pk.CyclicalKAM)
    searched = pk.sample(10, tune=20, random_seed=SEED, model=drug(made_up_data()))
    pictures = {
        "adaptation": pk.plot_adaptation(sample(banana(), pk.KAM), backend="matplotlib"),
        "learned": pk.plot_learned(walk, backend="matplotlib"),
        "proposals": pk.plot_proposals(
            curved, draws=along, backend="matplotlib", figure_kwargs=large
        ),
        "modes": pk.plot_modes(jumps, backend="matplotlib"),
        "search": pk.plot_search(searched, backend="matplotlib"),
    }
    for name, plots in pictures.items():
        plots.savefig(Path(options.output) / f"plot_{name}.png", dpi=200)


if __name__ == "__main__":
    main()
