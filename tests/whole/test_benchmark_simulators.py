import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest
from scipy.integrate import odeint
from scipy.linalg import expm

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "benchmarks"))
from benchmark import load


@pytest.fixture(scope="module")
def simulators():
    """Here, as it compiles a simulator when it is imported."""
    return import_module("simulators")


@pytest.mark.slow
def test_concentrations_are_those_of_the_closed_form_and_of_the_matrix_exponential(simulators):
    clearance, v1, flow, v2, absorption = x = np.array([4.0, 25.0, 2.0, 50.0, 1.5])
    found = simulators.concentrations(x)
    np.testing.assert_allclose(found, simulators.concentrations(x, pt).eval(), rtol=1e-11)
    rates = np.array(
        [
            [-absorption, 0, 0],
            [absorption, -(clearance + flow) / v1, flow / v2],
            [0, flow / v1, -flow / v2],
        ]
    )
    by_expm = [simulators.DOSE * expm(rates * t)[1, 0] / v1 for t in simulators.HOURS]
    np.testing.assert_allclose(found, by_expm, rtol=1e-11)
    with np.errstate(all="ignore"):
        assert np.isnan(simulators.concentrations(x * [1, 0, 1, 1, 1])).all()


@pytest.mark.slow
def test_outbreaks_and_populations_are_those_of_odeint(simulators):
    def outbreak(state, day):
        new = 1.7 * state[0] * state[1] / 763
        return -new, new - 0.5 * state[1]

    exact = odeint(outbreak, [762, 1], np.arange(15), rtol=1e-10, atol=1e-10)[1:, 1]
    np.testing.assert_allclose(simulators.outbreak(np.array([1.7, 0.5])), exact, rtol=1e-4)

    def growth(state, year):
        hare, lynx = state
        return (0.55 - 0.028 * lynx) * hare, (0.024 * hare - 0.8) * lynx

    exact = odeint(growth, [30, 4], np.arange(21), rtol=1e-10, atol=1e-10)
    found = simulators.numbers(np.array([0.55, 0.028, 0.8, 0.024, 30, 4]))
    np.testing.assert_allclose(found.reshape(21, 2), exact, rtol=1e-4)


@pytest.mark.slow
def test_temperatures_solve_the_implicit_equations(simulators):
    x = np.random.default_rng(1).normal(size=simulators.COEFFICIENTS)
    n, dt = simulators.CELLS, simulators.DURATION / simulators.STEPS
    field = simulators.BASIS @ x
    flow = np.append(2 * np.exp(field[0]), np.exp((field[1:] + field[:-1]) / 2)) * n**2
    matrix = np.diag(flow + np.append(flow[1:], 0))
    matrix -= np.diag(flow[1:], 1) + np.diag(flow[1:], -1)
    u, rows = np.zeros(n), []
    for step in range(simulators.STEPS):
        u = np.linalg.solve(np.eye(n) + dt * matrix, u + dt * flow[0] * np.eye(n)[0])
        if step % 6 == 5:
            rows.append(u[simulators.SENSORS])
    found = simulators.temperatures(x).reshape(10, -1)
    np.testing.assert_allclose(found, rows, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(simulators.temperatures(x, pt).eval(), found, rtol=1e-8, atol=1e-12)
    assert found[0, -1] < found[-1, -1] < 1  # it warms up from the left


@pytest.mark.slow
@pytest.mark.parametrize("name", ["influenza", "pk_by_subject"])
def test_a_black_box_counts_its_calls_and_its_twin_makes_none(simulators, name):
    benchmark = simulators.MODELS[name]
    call = benchmark.simulator.call
    models = benchmark.model(), benchmark.twin_model()
    with pytest.warns(UserWarning, match="object mode"):
        logps = [model.compile_logp() for model in models]
    before, point = call.calls, models[0].initial_point()
    values = [logp(point) for logp in logps]
    assert call.calls - before == benchmark.applications
    assert values[0] == pytest.approx(values[1], rel=1e-10)


def test_references_are_of_the_models(simulators):
    rows = load(simulators.FILE)
    known = {row["case"] for row in rows}
    assert known == {name for name, one in simulators.MODELS.items() if one.known is not None}
    for row in rows:
        mean, sd, square = (np.array(row[key]) for key in ("mean", "sd", "square"))
        assert len(row["names"]) == mean.size
        np.testing.assert_allclose(square, mean**2 + sd**2, rtol=1e-4)
        assert row["rhat"] is None or row["rhat"] < 1.003
