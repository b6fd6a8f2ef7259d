"""Which measurement narrows most: against closed forms, and by brute force."""

import numpy as np
import pytest
import xarray as xr
from numpy.testing import assert_allclose

import pymc_kameleon as pk

TIMES = np.linspace(0.1, 5, 50)
COVARIANCE = np.array([[1.0, 0.6], [0.6, 2.0]])
NOISE = 0.4


def linear_draws(n=4000):
    """Return draws of a normal θ (2,), and lines at each of the times."""
    theta = np.random.default_rng(1).multivariate_normal([1, 2], COVARIANCE, n).reshape(4, -1, 2)
    return as_result({"a": theta[..., 0], "b": theta[..., 1], "line": theta @ design().T})


def design():
    return np.stack([np.cos(TIMES), TIMES / 3], axis=1)


def as_result(variables):
    data = {
        name: (("chain", "draw", *[f"{name}_dim"] * (v.ndim - 2)), v)
        for name, v in variables.items()
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(data)})


def remaining_exactly():
    """Return what a measurement leaves of the variances of θ, relative to these, (50, 2)."""
    x = design()
    gain = (x @ COVARIANCE) ** 2 / (np.sum(x @ COVARIANCE * x, axis=1) + NOISE**2)[:, None]
    return 1 - gain / np.diag(COVARIANCE)


def test_a_linear_model():
    found = pk.where_next(linear_draws(), "line", NOISE, ["a", "b"], random_seed=1)
    exact = remaining_exactly()
    assert_allclose(found["remaining_linear_of"], exact, atol=0.02)
    assert_allclose(found["remaining_of"], exact, atol=0.06)
    best = exact.mean(axis=1).min()
    assert exact.mean(axis=1)[found.attrs["best"]] < 1.05 * best
    assert np.all(np.abs(found["remaining"] - exact.mean(axis=1)) < 5 * found["mcse"] + 0.02)


def precise():
    """Return q, and what measures it up to 1e-4 of its variance, with next to no error."""
    q = np.random.default_rng(2).normal(size=(4, 500))
    f = q + 0.01 * np.random.default_rng(3).normal(size=q.shape)
    return pk.where_next(as_result({"q": q, "f": f[..., None]}), "f", 1e-7, "q", random_seed=1)


def test_a_precise_measurement_leaves_something():
    """Most measurements agree with one draw alone, which has no variance."""
    assert 0.5e-4 < precise()["remaining"][0] < 1e-3


def test_where_q_is_not_linear_in_what_is_measured():
    """Of q = θ² a measurement of θ tells all, though it is not correlated with q."""
    theta = np.random.default_rng(3).normal(size=(4, 1000))
    both = np.stack([theta, theta**2], axis=2)
    dt = as_result({"theta": theta, "both": both})
    found = pk.where_next(dt, "both", 0.1, lambda v: v["theta"] ** 2, random_seed=1)
    assert found["remaining"][0] < 0.1
    assert found["remaining_linear"][0] > 0.95


def test_noise_of_several_kinds():
    dt = linear_draws()
    dt["posterior"]["sigma"] = xr.full_like(dt["posterior"]["a"], NOISE)
    many = np.full(len(TIMES), NOISE)
    ways = (
        NOISE,
        many,
        "sigma",
        lambda v: v["sigma"],
        lambda v: v["sigma"][..., None] * many / NOISE,
    )
    found = [pk.where_next(dt, "line", noise, "a", random_seed=1) for noise in ways]
    for one in found[1:]:
        xr.testing.assert_allclose(one, found[0])


def test_labels_are_those_of_the_candidates():
    dt = linear_draws()
    dt["posterior"] = dt["posterior"].to_dataset().assign_coords(line_dim=TIMES)
    found = pk.where_next(dt, "line", NOISE, "b", random_seed=1)
    assert found.attrs["best"] == TIMES[np.argmin(remaining_exactly()[:, 1])]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"candidates": "line"}, "noise is missing"),
        ({"candidates": "line", "noise": 0.0}, "must be positive"),
        ({"candidates": "line", "noise": [1.0, 2.0]}, "one for each of 50 candidates"),
        ({"candidates": "curve", "noise": 1.0}, "no variable 'curve' among"),
        ({"candidates": "a", "noise": 1.0}, "a column for each"),
        ({"candidates": "line", "noise": 1.0, "for_": "c"}, "no variable 'c' among"),
        ({"candidates": lambda v: v["a"][0], "noise": 1.0}, "must have real numbers of the shape"),
        ({"candidates": lambda v: v["line"] / 0.0, "noise": 1.0}, "not finite"),
        ({"noise": 1.0}, "no group 'evaluations'"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_what_does_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        pk.where_next(linear_draws(), **arguments)


def test_what_does_not_vary_need_not_be_narrowed():
    dt = linear_draws()
    dt["posterior"]["c"] = xr.zeros_like(dt["posterior"]["a"])
    with pytest.raises(ValueError, match="nothing that varies"):
        pk.where_next(dt, "line", 1.0, "c")
    found = pk.where_next(dt, "line", 1.0, ["c", "a"], random_seed=1)
    assert found["quantity"].values.tolist() == ["a"]
