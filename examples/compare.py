"""Which sampler for this model? The growth curves of until_enough.py, by several of them.

    python compare.py [--draws N] [--tune N] [--output FILE]

A minute or two on two cores. nutpie takes part if it is installed.
"""

import argparse
from importlib.util import find_spec

import pymc as pm
from until_enough import build_model

import pymc_kameleon as pk


def main(arguments=None):
    """Print the table, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=2000, help="draws of each chain")
    parser.add_argument("--tune", type=int, default=2000, help="draws of tuning before them")
    parser.add_argument("--output", default="compare.png", help="file of the picture")
    options = parser.parse_args(arguments)

    steps = ["GadMALA", "GAM", "KAM", "SurrogateMetropolis", pm.DEMetropolisZ, "nuts"]
    steps += ["nutpie"] if find_spec("nutpie") else []
    table = pk.compare_samplers(
        steps, build_model(), draws=options.draws, tune=options.tune, random_seed=1
    )
    print(table.drop(columns="warnings").to_string(float_format="{:.3g}".format))
    for label, said in table["warnings"][table["warnings"] != ""].items():
        print(f"{label}: {said}")
    plots = pk.plot_compare(table, backend="matplotlib")
    plots.savefig(options.output, bbox_inches="tight", dpi=200)


if __name__ == "__main__":
    main()
