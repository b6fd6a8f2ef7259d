"""Install the package beside the newest versions of others that build on PyMC, and import them all.

    python tests/tools/neighbours.py                    # those below, in one environment
    python tests/tools/neighbours.py pymc-marketing     # others

The table that it prints is in docs/versions.md. A row is a package: its newest version, and the one
that there is beside all the others. Needs uv, and the network.
"""

import json
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from versions import ROOT, run, uv

NEIGHBOURS = ["bambi", "hssm", "pymc-extras", "nutpie", "pymc-bart"]
BELOW = ["pymc", "pytensor", "numba", "numpy", "scipy"]

SCRIPT = """
import importlib, sys
import pymc as pm, pymc_kameleon as pk
for name in sys.argv[1:]:
    importlib.import_module(name.replace("-", "_"))
with pm.Model():
    pm.Normal("x", shape=2)
    options = dict(tune=200, draws=200, chains=2, random_seed=1, progressbar=False,
                   compute_convergence_checks=False)
    pk.sample(step=pk.GAM, **options)
    pm.sample(step=pk.GAM(), cores=1, **options)
"""


def newest(name, folder):
    """Return the newest version of a package, whatever it needs."""
    wanted = folder / "wanted.txt"
    wanted.write_text(name, encoding="utf-8")
    printed = uv("pip", "compile", "--quiet", "--no-deps", "--python", sys.executable, wanted)
    return re.search(r"==(\S+)", printed)[1]


def main():
    """Print the table; the exit code is 0 if all are the newest, and work."""
    names = sys.argv[1:] or NEIGHBOURS
    with TemporaryDirectory() as own:
        folder = Path(own)
        python = folder / "env" / "bin" / "python"
        uv("venv", "--quiet", "--python", sys.executable, folder / "env")
        uv("pip", "install", "--quiet", "--python", python, ROOT, *names)
        listed = json.loads(uv("pip", "list", "--quiet", "--format=json", "--python", python))
        found = {package["name"]: package["version"] for package in listed}
        rows = {name: newest(name, folder) for name in names}
        code, printed = run(python, "-c", SCRIPT, *names, cwd=folder)
    print(printed)
    print("| package | newest | installed |\n| --- | --- | --- |")
    for name, version in rows.items():
        print(f"| {name} | {version} | {found[name]} |")
    print("\nWith", ", ".join(f"{name} {found[name]}" for name in BELOW))
    print("Imported, and sampled." if code == 0 else "FAILED.")
    sys.exit(code or any(found[name] != version for name, version in rows.items()))


if __name__ == "__main__":
    main()
