"""What default arguments of pk.sample give from jittered starts: a table of docs/adaptation.md.

    python examples/benchmarks/starts.py    some four minutes

GAM and KAM on the posteriors of posteriors.py, two runs each. Each run is added to starts.json as
it ends; what is in there is not run again.
"""

from pathlib import Path

from dispersed import verdict
from pages import load, save, spaced, when_and_where, write
from posteriors import POSTERIORS

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
SAMPLERS = ("GAM", "KAM")
SEEDS = (0, 1)


def main():
    """Run what is not in the file yet, and write the page."""
    rows = load(FILE)
    done = {(row["posterior"], row["sampler"]) for row in rows}
    for name, build in POSTERIORS.items():
        for sampler in SAMPLERS:
            if (name, sampler) in done:
                continue
            step = getattr(pk, sampler)(model=build())
            for seed in SEEDS:
                row = {"posterior": name, "d": step.layout.d, "sampler": sampler, "seed": seed}
                found = verdict(step, seed, None)
                row |= {"rhat": round(found.rhat, 4), "ess": round(found.ess)}
                rows.append(row | when_and_where())
                print(rows[-1], flush=True)
            save(FILE, rows)
    write(tables(rows))


def tables(rows):
    """Return the table of the page: of both runs the largest R-hat and the least ESS."""
    lines = ["| posterior | d | GAM: R-hat | ESS | KAM: R-hat | ESS |", "|---" * 6 + "|"]
    for name in POSTERIORS:
        own = [row for row in rows if row["posterior"] == name]
        cells = [name, str(own[0]["d"])]
        for sampler in SAMPLERS:
            some = [row for row in own if row["sampler"] == sampler]
            cells.append(f"{max(row['rhat'] for row in some):.3f}")
            cells.append(spaced(min(row["ess"] for row in some)))
        lines.append(f"| {' | '.join(cells)} |")
    return {"adaptation.md": {"jittered starts": lines}}


if __name__ == "__main__":
    main()
