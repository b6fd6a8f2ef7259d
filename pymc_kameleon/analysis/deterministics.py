"""Variables of a model that are functions of what a simulator returns, as the model has them."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor import function
from pytensor.compile import Mode
from pytensor.graph import Constant, FunctionGraph
from pytensor.graph.replace import clone_replace, vectorize_graph
from pytensor.graph.traversal import explicit_graph_inputs

from pymc_kameleon.findings.words import some
from pymc_kameleon.model.simulator_calls import boxes_called


def of_outputs(name, model, simulator, shapes):
    """Return a function of outputs (n, q) of a simulator: a variable of the model, (n, k).

    `shapes` are those of the outputs that are used, as Simulators have them for each call. Raises a
    ValueError if the variable depends on anything else that is not known, or on several calls.
    """
    model = pm.modelcontext(model)
    if name not in model.named_vars:
        raise ValueError(f"outputs: the model has no variable {name!r}.")
    [variable] = model.replace_rvs_by_values([model[name]])
    inputs = [var for var in explicit_graph_inputs([variable]) if not isinstance(var, Constant)]
    graph = FunctionGraph(inputs, [variable], clone=False)
    calls = [own for own in boxes_called(graph, model.value_vars) if own.name == simulator]
    if len(calls) != 1 or len(shapes) != 1:
        raise ValueError(
            f"outputs: {name} has to depend on one call of `{simulator}`, and the model to make no "
            "other one; pass a function of its outputs instead."
        )
    y = pt.vector("y", dtype="float64")
    parts, end = {}, 0
    for var, shape in zip(calls[0].outputs, shapes[0], strict=True):
        start, end = end, end + int(np.prod(shape))
        parts[var] = var.type.filter_variable(y[start:end].reshape(shape).astype(var.dtype))
    result = clone_replace(variable, parts, rebuild_strict=False).ravel()
    if others := [v.name for v in model.value_vars if v in explicit_graph_inputs([result])]:
        raise ValueError(
            f"outputs: {name} depends on {some(others)} besides what `{simulator}` returns. Let "
            "the simulator return what you ask for."
        )
    rows = pt.matrix("rows", dtype="float64")
    batched = vectorize_graph(result, {y: rows})
    return function([rows], batched, mode=Mode("py", "fast_run"))
