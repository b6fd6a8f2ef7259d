"""``pk.black_box``: an Op that compiles, but is expensive, is treated as a simulator."""

from pytensor.graph import Apply, Op


def black_box(op):
    """Return an Op that models call as this one, and samplers treat as a black box.

    Samplers take what PyTensor can compile for cheap, as it usually is. A simulator that is written
    in PyTensor or numba, and takes long, is better emulated: this says so.

    Parameters
    ----------
    op : pytensor.graph.Op
        As an ``OpFromGraph``, or an Op of yours that numba has a version of. A function of arrays
        needs none of this: what ``pytensor.wrap_py`` makes of it is a black box.

    Returns
    -------
    Op
        An Op without a gradient.

    Raises
    ------
    TypeError
        For anything else.

    Examples
    --------
    >>> theta = pt.vector("theta")  # doctest: +SKIP
    >>> graph = OpFromGraph([theta], [solution_of(theta)], name="solve")  # doctest: +SKIP
    >>> solve = pk.black_box(graph)  # doctest: +SKIP
    >>> with pm.Model():  # doctest: +SKIP
    ...     theta = pm.LogNormal("theta", shape=3)
    ...     pm.Normal("y", solve(theta), 0.1, observed=y)
    ...     dt = pk.sample()
    """
    if not isinstance(op, Op):
        raise TypeError(
            f"black_box takes an Op of PyTensor, not {op!r}. Of a function of arrays, "
            "pytensor.wrap_py makes one, which is a black box already."
        )
    return BlackBox(op)


class BlackBox(Op):
    """An Op in whose place Python calls another one."""

    __props__ = ("op",)

    def __init__(self, op):
        self.op = op
        self.destroy_map, self.view_map = op.destroy_map, op.view_map

    def __str__(self):
        return getattr(self.op, "name", None) or str(self.op)

    def make_node(self, *inputs):
        """Build the node that the other Op would."""
        node = self.op.make_node(*inputs)
        return Apply(self, node.inputs, [out.type() for out in node.outputs])

    def perform(self, node, inputs, outputs):
        """Compute what the other Op does."""
        self.op.perform(self.op.make_node(*node.inputs), inputs, outputs)
