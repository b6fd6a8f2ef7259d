"""Short and quiet runs, and whether two of them are the same."""

import inspect
import logging
import pickle

import numpy as np
from pymc.stats.convergence import SamplerWarning

import pymc_kameleon as pk
from pymc_kameleon.findings.registry import NOTE
from pymc_kameleon.result.state import arrays_in
from pymc_kameleon.step.base import KameleonStep
from pymc_kameleon.step.job import ChainState, Job
from pymc_kameleon.step.problems import findings_of, label

QUIET = {"progressbar": False, "compute_convergence_checks": False}
DRAWN = ("posterior", "sample_stats")

WARMUP = ("warmup_posterior", "warmup_sample_stats")


def sample(step, **kwargs):
    """Run pk.sample small and quiet."""
    first = step[0] if isinstance(step, list) and step else step
    if isinstance(first, KameleonStep):
        kwargs.setdefault("model", first.model)
    defaults = {"draws": 30, "tune": 50, "chains": 2, "cores": 1, "random_seed": 7}
    return pk.sample(step=step, **QUIET | defaults | kwargs)


def unpooled(step, pool_tuning=False):
    """Return the step with chains that do not learn from one another, if they would."""
    if "pool_tuning" not in inspect.signature(type(step)).parameters or pool_tuning:
        return step
    _, arguments = step.__getnewargs_ex__()
    return type(step)(**arguments | {"pool_tuning": False})


def resume(result, model, draws=30, **kwargs):
    return pk.resume(result, draws, model=model, **QUIET | kwargs)


def assert_same(one, other, groups=DRAWN):
    """Compare names, types, dimensions, coordinates and values, bit for bit."""
    for group in groups:
        a, b = one[group].to_dataset(), other[group].to_dataset()
        assert set(a) == set(b), group
        assert set(a.coords) == set(b.coords), group
        for name in [*a, *a.coords]:
            assert a[name].dims == b[name].dims, name
            assert a[name].dtype == b[name].dtype, name
            np.testing.assert_array_equal(a[name], b[name], name)


def states_of(result):
    """Return the arrays of the state of each chain of a result, by name."""
    return [arrays_in(room) for room in result["sampling_state"]["state"].values]


def done_of(result):
    """Return how many draws each chain has made."""
    return [own["0.monitor.done"].item() for own in states_of(result)]


def messages(caplog, level=logging.INFO):
    """Return what the package logged: of a verdict its line, and all findings with their codes."""
    said = []
    for record in caplog.records:
        if record.name == "pymc_kameleon":
            found, line = getattr(record, "findings", None), record.getMessage().split("\n")[0]
            if found is None or line != str(found[0] if found else ""):
                said.append((record.levelno, line))
            levels = {"note": logging.INFO, "caution": logging.WARNING, "problem": logging.WARNING}
            said += [(levels[one.severity], f"{one} [{one.code}]") for one in found or []]
    return [text for own, text in said if own >= level]


def codes(found):
    """Return the codes of Findings, or of those in a result."""
    if not isinstance(found, list):
        return found["findings"]["code"].values.tolist()
    return [one.code for one in found]


def driven(step, n, x, look=lambda step: None):
    """Make n draws by hand; return positions, statistics, and a look at the step after each."""
    point, positions, rows, seen = {"x": np.array(x, float)}, [], [], []
    for _ in range(n):
        point, [row] = step.step(point)
        positions.append(point["x"])
        rows.append(row)
        seen.append(look(step))
    names = rows[0] if rows else ()
    return np.array(positions), {name: np.array([r[name] for r in rows]) for name in names}, seen


def last_warning(step, tune=300, draws=300, seed=1, x=None):
    """Run a chain by hand; only the last draw may have a warning: return all that is told, or ''.

    Where its searches ended is left out.
    """
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    point = step.model.initial_point()
    point = {name: value + 0.3 for name, value in point.items()} if x is None else {"x": x}
    warnings = []
    for i in range(tune + draws):
        if i == tune:
            step.stop_tuning()
        point, [stats] = step.step(point)
        warnings.append(stats["warning"])
    assert set(warnings[:-1]) == {None}
    found = [one for one in findings_of(step) if "search" not in one.code]
    if warnings[-1] is None:
        assert {one.severity for one in found} <= {NOTE}
    else:
        assert isinstance(warnings[-1], SamplerWarning)
        assert all(one.what in warnings[-1].message for one in found if one.severity != NOTE)
    texts = [f"{one.what} {one.remedy} [{one.code}]" for one in found]
    return " ".join([f"{label(step)}:", *texts]) if found else ""


def same(one, other):
    """Compare whatever travels, bit for bit."""
    return pickle.dumps(canonical(one)) == pickle.dumps(canonical(other))


def canonical(value):
    """Return plain containers and bytes, in which nothing but values can differ."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, dict):
        return [(str(k), canonical(v)) for k, v in value.items()]
    if isinstance(value, tuple | list):
        return [canonical(v) for v in value]
    if hasattr(value, "__dict__"):
        return canonical(vars(value))
    return repr(value)


def job_of(*steps):
    return Job(list(steps), steps[0].outputs(["x"]), keeps_warmup=True)


def begun(job, seed=1, tune=40, draws=40, start=0.3):
    """Return a chain's state before its first draw."""
    own = [step.for_chain() for step in job.steps]
    for k, step in enumerate(own):
        step.setup_chain(np.random.default_rng([seed, k]), tune, draws)
    point = np.full(job.steps[0].layout.places.size, start)
    return ChainState(point, [step.sampling_state for step in own])


def joined(*portions):
    return [
        np.concatenate([p.outputs for p in portions]),
        *(np.concatenate(own) for own in zip(*(p.stats for p in portions), strict=True)),
        sum(p.n_logp for p in portions),
    ]
