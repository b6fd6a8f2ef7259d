"""A model's log-density: compiled once, its data shared, and whether it calls Python."""

import warnings

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import wrap_py
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.scalar import ScalarOp, upgrade_to_float
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from runs import messages

import pymc_kameleon as pk

# ---- a second step on the same model ------------------------------------------------------------


@pytest.fixture
def model():
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        data = pm.Data("data", [1.0, 2.0])
        pm.Normal("y", x, 1, observed=data)
    return model


def same_functions(step, other):
    return step.log_density.functions is other.log_density.functions


def test_a_second_step_takes_the_compiled_functions_over(model):
    step = pk.baselines.RWM(model=model)
    assert same_functions(step, pk.baselines.RWM(model=model, steps_per_draw=3))
    assert step.outputs(["x"]).functions is pk.baselines.RWM(model=model).outputs(["x"]).functions
    assert step.outputs(["x"]).functions is not step.log_density.functions
    pm.set_data({"data": [5.0, 5.0]}, model=model)
    other = pk.baselines.RWM(model=model)
    assert same_functions(step, other)
    expected = model.compile_logp()({"x": np.ones(2)})
    assert other.log_density(np.ones(2)) == pytest.approx(expected)


def test_functions_are_compiled_anew_where_they_differ(model):
    step = pk.baselines.RWM(model=model)
    assert not same_functions(step, pk.baselines.MALA(model=model))  # with a gradient
    kwargs = {"mode": "FAST_COMPILE"}
    assert not same_functions(step, pk.baselines.RWM(model=model, compile_kwargs=kwargs))
    with model:
        pm.Potential("more", -model["x"].sum())
    more = pk.baselines.RWM(model=model)
    assert not same_functions(step, more)
    x = np.ones(2)
    assert more.log_density(x) == pytest.approx(step.log_density(x) - 2.0)
    with model:
        pm.Normal("z")
    one, other = (
        pk.baselines.RWM([model["x"]], model=model),
        pk.baselines.RWM([model["z"]], model=model),
    )
    assert not same_functions(one, other)


def test_constants_changed_in_place_are_noticed():
    """PyTensor keeps the array itself."""
    values = np.array([1.0, 2.0])
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        pm.Potential("p", -(x * pt.as_tensor(values)).sum())
    assert pk.baselines.RWM(model=model).log_density(np.ones(2)) == -3.0
    values[:] = 5.0
    assert pk.baselines.RWM(model=model).log_density(np.ones(2)) == -10.0


def test_options_that_are_arrays(model):
    kwargs = {"random_seed": np.array([1, 2])}
    for _ in range(2):
        pk.baselines.RWM(model=model, compile_kwargs=kwargs)


# ---- data ---------------------------------------------------------------------------------------


def data_of(step):
    return step.log_density.target(step.rng).data


def test_steps_and_chains_share_one_copy_of_the_data(model):
    step, other = pk.baselines.RWM(model=model), pk.GAM(model=model)
    chain = step.for_chain()
    chain.setup_chain(1, 0, 1)
    assert data_of(step) is data_of(other) is data_of(chain)
    before = data_of(step)
    pm.set_data({"data": [5.0, 5.0]}, model=model)
    step.setup_chain(1, 0, 1)
    np.testing.assert_array_equal(data_of(step), [5.0, 5.0])
    np.testing.assert_array_equal(before, [1.0, 2.0])


def test_equal_numbers_of_another_shape_are_other_data():
    with pm.Model() as model:
        x = pm.Normal("x")
        data = pm.Data("data", np.ones((2, 3)))
        pm.Potential("p", -x * data.shape[0])
    step = pk.baselines.RWM(model=model)
    first, digest = step.log_density(np.ones(1)), step.log_density.digest
    pm.set_data({"data": np.ones((3, 2))}, model=model)
    step.log_density.follow_data()
    assert step.log_density.digest != digest
    assert step.log_density(np.ones(1)) == pytest.approx(first - 1)


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1])
def test_integers_that_would_be_rounded_are_refused(number):
    big = pytensor.shared(np.array([0, number]), name="big")  # pm.Data has smaller integers
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("p", -x * (big % 2).sum())
    with pytest.raises(ValueError, match=r"depends on .big., which has integers beyond 2\*\*53"):
        pk.baselines.RWM(model=model)
    big.set_value(np.array([1, 2**53]))
    pk.baselines.RWM(model=model)


# ---- Ops that call Python -----------------------------------------------------------------------


class Box(Op):
    __props__ = ()
    gufunc_signature = "(n)->()"

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, out):
        out[0][0] = np.asarray(-0.5 * (inputs[0] ** 2).sum())


class ScalarBox(ScalarOp):
    nin = nout = 1

    def impl(self, x):
        return -0.5 * float(x) ** 2


def wrapped(x):
    v = pt.vector("v")
    return OpFromGraph([v], [Box()(v)])(x)


def scanned(x):
    return pytensor.scan(
        lambda a, x: Box()(a * x), sequences=x, non_sequences=[x], return_updates=False
    ).sum()


BLACK_BOXES = {
    "Op": (Box(), "Box"),
    "OpFromGraph": (wrapped, "Box"),
    "Scan": (scanned, "Box"),
    "Blockwise": (lambda x: Blockwise(Box())(x.reshape((2, 2))).sum(), "Box"),
    "Elemwise": (lambda x: Elemwise(ScalarBox(upgrade_to_float, name="scalar"))(x).sum(), "scalar"),
    "PyTensor's own": (
        lambda x: -(pt.extra_ops.Unique(return_counts=True)(x)[0] ** 2).sum(),
        "unique",
    ),
}

COMPILED = {
    "BLAS": lambda x: -((np.ones((4, 4)) @ x) ** 2).sum(),
    "LAPACK": lambda x: -(pt.linalg.cholesky(pt.eye(4) + pt.diag(x**2)) ** 2).sum(),
    "special function": lambda x: -pt.gammainc(2.0, pt.exp(x)).sum(),
    "Scan": lambda x: -pytensor.scan(lambda a: a**2, sequences=x, return_updates=False).sum(),
}


def step_of(logp):
    with pm.Model():
        x = pm.Flat("x", shape=4)
        pm.Potential("p", logp(x))
        return pk.baselines.RWM()


@pytest.mark.parametrize(("logp", "name"), BLACK_BOXES.values(), ids=BLACK_BOXES)
def test_python_is_recognised_wherever_it_is(logp, name, caplog):
    with caplog.at_level("INFO", logger="pymc_kameleon"):
        step = step_of(logp)
    assert step.log_density.holds_gil
    assert f"`{name}` has no numba version: it is called through Python" in caplog.text
    assert np.isfinite(step.log_density(np.full(4, 0.3)))


@wrap_py(itypes=[pt.dvector], otypes=[pt.dscalar])
def energy(x):
    return np.asarray(-0.5 * (x**2).sum())


def test_python_is_told_once_for_each_model(caplog):
    """And PyTensor, which warns with each function that PyMC compiles, says nothing."""
    caplog.set_level("INFO", "pymc_kameleon")
    words, own = "`Box` has no numba version: it is called through Python.", Box()
    with warnings.catch_warnings(action="error"):
        with pm.Model() as model:
            x = pm.Flat("x", shape=4)
            pm.Deterministic("e", own(x))
            pm.Potential("p", own(x + 1))
            step = pk.baselines.RWM()
        assert messages(caplog) == [words]
        step.outputs(["e"])
        model.compile_logp()
        assert messages(caplog) == [words]
        step_of(own)
        assert messages(caplog) == [words] * 2


def test_of_a_function_that_is_wrapped_nothing_is_told(caplog):
    caplog.set_level("INFO", "pymc_kameleon")
    with warnings.catch_warnings(action="error"):
        assert step_of(energy).log_density.holds_gil
    assert messages(caplog) == []


def test_a_worker_is_not_warned_of_what_has_been_said():
    function = step_of(Box()).log_density.functions[0]
    sent = cloudpickle.dumps(function)
    with warnings.catch_warnings(action="error"):
        assert cloudpickle.loads(sent).holds_gil


@pytest.mark.slow
@pytest.mark.parametrize(
    "logp",
    [
        pytest.param(logp, id=name, marks=[pytest.mark.slow] * (name == "LAPACK"))
        for name, logp in COMPILED.items()
    ],
)
def test_machine_code_is_not_taken_for_python(logp):
    assert not step_of(logp).log_density.holds_gil


@pytest.mark.slow
def test_another_length_than_at_the_start_is_refused():
    """Machine code would write beyond what is kept."""
    with pm.Model() as model:
        a = pm.HalfNormal("a", 3)
        pm.Deterministic("k", pt.arange(pt.cast(a * 10, "int64")))
        outputs = pk.baselines.RWM(model=model).outputs(["k"])
    for a in (-3.0, 3.0):
        with pytest.raises(ValueError, match="another length than at the model's initial point"):
            outputs.at(np.array([a]))
