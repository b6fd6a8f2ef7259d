"""Whether two versions of the package draw the same numbers, to the last bit.

    PYTHONPATH=CHECKOUT python tests/tools/same_draws.py > a.json
    python tests/tools/same_draws.py --compare a.json b.json

The first takes half a minute, with empty caches two: short runs of all samplers through both
drivers, resumed runs, and what is made of results. It keeps a hash of each variable, numbers of
tables, and what was logged. Only the public API is used, so that it runs wherever files lie; on
another machine last bits differ.
"""

import json
import logging
import os
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # sums depend on them

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pytensor import wrap_py

import pymc_kameleon as pk

QUIET = {"progressbar": False, "compute_convergence_checks": False}
SHORT = QUIET | {"draws": 60, "tune": 200, "chains": 2, "cores": 1, "random_seed": 3}
TIMES = {"sampling_time", "created_at", "perf_counter_start"}
TIMES |= {"perf_counter_diff", "process_time_diff", "model_id"}


def sample(step, **options):
    return pk.sample(step=step, **SHORT | {"discard_tuned_samples": False} | options)


def of_sampler(cls):
    name, step = cls.__name__, cls()
    yield f"{name}, pm.sample", pm.sample(step=step, discard_tuned_samples=False, **SHORT)
    yield f"{name}, pk.sample", sample(step)
    yield f"{name}, tuned", (tuned := sample(step, draws=0))
    yield f"{name}, resumed after tuning", pk.resume(tuned, 60, **QUIET)
    with TemporaryDirectory() as folder:
        store = Path(folder) / "run.zarr"
        sample(step, store=store, callback=lambda run, draw: draw.draw_idx < 9 or run.stop())
        yield f"{name}, resumed from a store", pk.resume(store, **QUIET).load()


def of_options(model):
    steps = [pk.GAM([model["a"]]), pk.baselines.MALA([model["s"]])]
    yield "two steps", (two := sample(steps))
    yield "two steps, resumed", pk.resume(two, 20, **QUIET)
    yield "two steps, pm.sample", pm.sample(step=steps, **SHORT)
    yield "beside NUTS, pm.sample", pm.sample(step=[steps[0], pm.NUTS([model["s"]])], **SHORT)
    for cls in (pk.GAM, pk.KAM, pk.GadMALA, pk.SurrogateMetropolis):
        yield f"{cls.__name__}, alone", sample(cls(pool_tuning=False), chains=3)
    yield "no step", sample(None)
    yield "without tuning", sample(pk.GAM(), tune=0)
    yield "without warmup", sample(pk.GAM(), discard_tuned_samples=True, var_names=["s"])
    yield "until enough", sample(pk.GAM(), draws=5000, target_ess=100)
    yield "from one start", sample(pk.KAM(), initvals={"a": [0.1, -0.2], "s": 0.5})
    yield "slow", sample(pk.GAM(compile_kwargs={"mode": "FAST_COMPILE"}))
    published = pk.baselines.PublishedCyclicalKAM(cycle_length=20)
    yield "as published", (cyclical := sample(published))
    yield "as published, resumed", pk.resume(cyclical, 20, **QUIET)
    yield "as published, pm.sample", pm.sample(step=published, **SHORT)
    yield "GadMALA as published", sample(pk.GadMALA(adaptation="published"))
    yield "starts", dict(enumerate(pk.initvals(2, random_seed=1)))


def of_averages():
    for name, step, options in (
        ("GAM", pk.GAM(), {}),
        ("a surrogate", pk.SurrogateMetropolis(), {"chains": 4}),
    ):
        yield name, (dt := sample(step, **options))
        yield f"{name}, resumed", pk.resume(dt, 20, **QUIET)
        yield f"{name}, summary", pk.summary(dt, round_to="none").to_dict()
        expectation = pk.expectation(dt, lambda v: v["a"].sum(axis=-1) > v["s"])
        yield f"{name}, expectation", expectation._asdict()
        yield f"{name}, modes", pk.mode_occupancy(dt).dataset


def of_other_models():
    with pm.Model():
        x = pm.Normal("x", shape=2)
        pm.Potential("noise", 0.5 * pt.cos(x[0] + pk.noise_seed() % 1000))
        for cls in (pk.GAM, pk.CyclicalKAM):
            yield f"{cls.__name__}, estimated", (dt := sample(cls(pseudo_marginal=True)))
            yield f"{cls.__name__}, estimated, resumed", pk.resume(dt, 20, **QUIET)
    with pm.Model():
        x = pm.Flat("x", shape=2)
        pm.Potential("modes", pt.logaddexp(*(-((x - at) ** 2).sum() for at in (-3, 3))))
        yield "two modes", (dt := sample(pk.CyclicalKAM(), tune=1000, chains=4))
        yield "two modes, occupancy", pk.mode_occupancy(dt).dataset
    black_box = wrap_py([pt.dvector], [pt.dscalar])(lambda x: np.array(-0.5 * x @ x))
    with pm.Model():
        pm.Potential("black_box", black_box(pm.Flat("x", shape=2)))
        yield "in Python", sample(pk.GAM())
        yield "in Python, pm.sample", pm.sample(step=pk.GAM(), **SHORT)
        yield "in Python, a surrogate", sample(pk.SurrogateMetropolis())
    predictions = wrap_py([pt.dvector], [pt.dvector])(lambda x: x + 0.1 * x**2)
    with pm.Model():
        pm.Normal("y", predictions(pm.Normal("x", shape=2)), 0.3, observed=[0.3, 0.4])
        yield from of_sampler(pk.EmulatorMetropolis)
        yield "predictions, no step", sample(None)


def all_results():
    with pm.Model(coords={"city": ["A", "B"]}) as model:
        a, s = pm.Normal("a", 0, [1.0, 2.0], dims="city"), pm.HalfNormal("s")
        pm.Deterministic("scaled", a * s, dims="city")
        pm.Normal("y", a[0], s, observed=pm.Data("data", [0.5, 1.5]))
        for cls in pk.samplers.SAMPLERS:
            if cls is not pk.EmulatorMetropolis:  # needs a black box
                yield from of_sampler(cls)
        yield from of_options(model)
        yield from of_averages()
    yield from of_other_models()


def digest(found):
    """Return hashes of variables, attributes and numbers, as text, by name."""
    if isinstance(found, xr.DataTree):
        apart = ("sampling_state", "ahead_", "behind_")  # as it came, in time
        groups = [name for name in found.children if not name.startswith(apart)]
        groups = [name for name in groups if found[name].sizes.get("draw") != 0]
        found = {group: digest(found[group].to_dataset()) for group in groups}
        return {f"{group}/{k}": v for group, part in found.items() for k, v in part.items()}
    if not isinstance(found, xr.Dataset):
        return {str(k): repr(v) for k, v in found.items()}
    attributes = {f".{k}": str(v) for k, v in found.attrs.items() if k not in TIMES}
    return {str(k): hashed(v) for k, v in found.variables.items() if k not in TIMES} | attributes


def hashed(variable):
    values, sizes = variable.values, dict(variable.sizes)
    content = repr(values.tolist()).encode() if values.dtype == object else values.tobytes()
    return f"{values.dtype} {sizes} {sha256(content).hexdigest()[:16]}"


def measure():
    np.set_printoptions(floatmode="unique")
    logging.getLogger("pymc").setLevel(logging.ERROR)
    said, found, log = set(), {}, logging.Handler()
    log.emit = lambda record: said.add(str(record.msg))  # without the numbers: some are times
    logging.getLogger("pymc_kameleon").addHandler(log)
    logging.getLogger("pymc_kameleon").setLevel(logging.INFO)
    for name, result in all_results():
        of_caches = {text for text in said if "ompiling" in text}
        found[name] = digest(result) | {"said": sorted(said - of_caches)}
        said.clear()
    json.dump(found, sys.stdout, indent=1)


def compare(*files):
    one, other = (json.loads(Path(file).read_text()) for file in files)
    pairs = {name: (one.get(name, {}), other.get(name, {})) for name in one | other}
    unlike = {name: [k for k in a | b if a.get(k) != b.get(k)] for name, (a, b) in pairs.items()}
    for name, keys in unlike.items():
        if keys:
            print(f"{name}: {len(keys)} differ: {', '.join(keys[:8])}")
    print(f"{sum(map(bool, unlike.values()))} of {len(pairs)} results differ.")
    return any(unlike.values())


if __name__ == "__main__":
    sys.exit(compare(*sys.argv[2:]) if "--compare" in sys.argv else measure())
