"""Single mistakes in source code, each addressed by function, operator and number.

`core/linalg.py:dot term 2` is the second way to leave out a term in the function `dot`, from top to
bottom. Editing a function changes no addresses in other functions.
"""

import ast
from typing import NamedTuple


class Mutant(NamedTuple):
    """A piece of a file, as bytes from `start` to `end`, and what replaces it."""

    file: str
    function: str
    operator: str
    number: int
    line: int
    start: int
    end: int
    old: str
    new: str
    is_expression: bool

    @property
    def address(self):
        return f"{self.file}:{self.function} {self.operator} {self.number}"

    def applied(self, source):
        new = f"({self.new})" if self.is_expression else self.new
        return source[: self.start] + new.encode() + source[self.end :]


# ---- operators ----------------------------------------------------------------------------------
#
# Each takes a node and yields pairs: the node to replace, which is this one or one of its children,
# and its replacement.


def condition(node):
    """A branch is always taken, or never; a loop is left out."""
    if isinstance(node, ast.If | ast.IfExp):
        yield node.test, ast.Constant(True)
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield node.test, ast.Constant(False)
    if isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield test, ast.Constant(True)


TURNED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
TURNED |= {new: old for old, new in TURNED.items()}
EDGES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}


def compare(node):
    """A comparison is reversed, or its edge moves if it compares integers.

    For floats, `<` and `<=` rarely differ.
    """
    if not isinstance(node, ast.Compare):
        return
    counts = any(is_count(side) for side in (node.left, *node.comparators))
    for i, old in enumerate(node.ops):
        for table in (TURNED, EDGES) if counts else (TURNED,):
            if type(old) in table:
                ops = [*node.ops[:i], table[type(old)](), *node.ops[i + 1 :]]
                yield node, ast.Compare(node.left, ops, node.comparators)


def is_count(node):
    """Return whether an expression looks like an integer."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    name = called(node) if isinstance(node, ast.Call) else name_of(node)
    return name in ("len", "size", "ndim", "n", "d", "i", "j") or name.startswith("n_")


def name_of(node):
    """Return a name, or the last part of one with dots; of other expressions, nothing."""
    return getattr(node, "id", "") or getattr(node, "attr", "")


def called(node):
    """Return the name of the function that is called, without its module."""
    return name_of(node.func)


SWAPPED = {ast.Add: ast.Sub, ast.Mult: ast.Div, ast.FloorDiv: ast.Mod, ast.BitAnd: ast.BitOr}
SWAPPED |= {new: old for old, new in SWAPPED.items()} | {ast.Pow: ast.Mult}


def arithmetic(node):
    """Plus becomes minus, times becomes divided by."""
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
        yield node, ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right)
    if isinstance(node, ast.AugAssign) and type(node.op) in SWAPPED:
        yield node, ast.AugAssign(node.target, SWAPPED[type(node.op)](), node.value)


def term(node):
    """A term of a sum or a factor of a product is missing, for example a Jacobian."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        yield node, node.left
        if isinstance(node.op, ast.Add | ast.Mult):
            yield node, node.right
        if isinstance(node.op, ast.Sub):
            yield node, ast.UnaryOp(ast.USub(), node.right)


def sign(node):
    """A minus, `not` or `~` is missing."""
    if isinstance(node, ast.UnaryOp):
        yield node, node.operand


def constant(node):
    """An integer is increased by one, a float is doubled, a switch is flipped."""
    if isinstance(node, ast.Constant):
        if type(node.value) is bool:
            yield node, ast.Constant(not node.value)
        if type(node.value) is int:
            yield node, ast.Constant(node.value + 1)
        if type(node.value) is float:
            yield node, ast.Constant(2 * node.value or 1.0)


def logic(node):
    """`and` becomes `or`, or one of the conditions is missing."""
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node, ast.BoolOp(other, node.values)
        for i in range(len(node.values)):
            rest = [*node.values[:i], *node.values[i + 1 :]]
            yield node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


TWINS = {"max": "min", "maximum": "minimum", "fmax": "fmin", "nanmax": "nanmin", "any": "all"}
TWINS |= {"argmax": "argmin", "floor": "ceil", "mean": "median", "std": "var", "tril": "triu"}
TWINS |= {"zeros": "ones", "zeros_like": "ones_like", "logical_and": "logical_or", "log1p": "log"}
TWINS |= {new: old for old, new in TWINS.items()}


def twin(node):
    """The opposite function is called: min for max."""
    if isinstance(node, ast.Call) and called(node) in TWINS:
        new = TWINS[called(node)]
        if isinstance(node.func, ast.Name):
            yield node.func, ast.Name(new)
        else:
            yield node.func, ast.Attribute(node.func.value, new)


CONVERSIONS = ("asarray", "ascontiguousarray", "array", "float64", "int64", "atleast_1d")
CHOICES = ("max", "min", "maximum", "minimum", "fmax", "fmin", "where", "clip")


def call(node):
    """A function is not applied, such as abs, np.sqrt or copy, or returns one of its arguments."""
    if not isinstance(node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return
    module = getattr(node.func, "value", None)
    if called(node) == "copy" and not node.args and module is not None:
        yield node, module
    elif called(node) in CHOICES and len(node.args) > 1:
        for choice in node.args[1:] if called(node) == "where" else node.args:
            yield node, choice
    elif len(node.args) == 1 and is_of_numbers(node):
        yield node, node.args[0]


def is_of_numbers(node):
    """Return whether a function that is called changes numbers, as np.sqrt does."""
    of_module = name_of(getattr(node.func, "value", None)) in ("np", "math")
    return (of_module and called(node) not in CONVERSIONS) or called(node) in ("abs", "sorted")


def part(node):
    """A slice is the whole, or a list lacks an element."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        yield node, node.value
    listed = isinstance(node, ast.Tuple) and any(isinstance(e, ast.Starred) for e in node.elts)
    if (listed or isinstance(node, ast.List | ast.Set)) and len(node.elts) > 1:
        for i in range(len(node.elts)):
            yield node, type(node)(elts=node.elts[:i] + node.elts[i + 1 :], ctx=ast.Load())


def handler(node):
    """An exception is not caught."""
    if isinstance(node, ast.ExceptHandler) and node.type:
        yield node.type, ast.Name("NotImplementedError")


def keyword(node):
    """A named argument is missing."""
    if isinstance(node, ast.Call):
        for i, argument in enumerate(node.keywords):
            if argument.arg is not None:
                rest = node.keywords[:i] + node.keywords[i + 1 :]
                yield node, ast.Call(node.func, node.args, rest)


def statement(node):
    """A statement is missing: a call, an error, the end of a loop, a new value of a variable."""
    drops = isinstance(node, ast.AugAssign | ast.Raise | ast.Break | ast.Continue)
    drops |= isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    drops |= isinstance(node, ast.Assign) and all(is_old(name, node) for name in node.targets)
    if drops:
        yield node, ast.Pass()


def is_old(target, assignment):
    """Return whether a target already had a value, as far as the assignment shows."""
    if isinstance(target, ast.Name):
        return any(name_of(node) == target.id for node in ast.walk(assignment.value))
    return isinstance(target, ast.Attribute | ast.Subscript)


OPERATORS = (condition, compare, arithmetic, term, sign, constant, logic, twin, call, part)
OPERATORS += (handler, keyword, statement)


# ---- mutants of a file --------------------------------------------------------------------------


def mutants_of(file, source):
    """Return all mutants of a file, from its source as bytes."""
    lines = source.splitlines(keepends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line))
    counts, found = {}, []
    for function, operator, old, new in changes(ast.parse(source), ""):
        texts = ast.unparse(old), ast.unparse(new)
        if texts[0] == texts[1]:
            continue
        key = function, operator
        counts[key] = counts.get(key, 0) + 1
        start = begins[old.lineno - 1] + old.col_offset
        end = begins[old.end_lineno - 1] + old.end_col_offset
        where = counts[key], old.lineno, start, end
        found.append(Mutant(file, *key, *where, *texts, isinstance(new, ast.expr)))
    return found


def changes(node, function):
    """Yield function, operator, node to replace and replacement, from top to bottom."""
    for operator in OPERATORS if function else ():
        for old, new in operator(node):
            yield function, operator.__name__, old, new
    for child in children(node):
        yield from changes(child, inner_name(node, child, function))


def children(node):
    """Return the children of a node that may be mutated.

    Annotations, decorators and the texts of messages are left alone.
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        defaults = [*node.args.defaults, *node.args.kw_defaults]
        return [default for default in defaults if default is not None] + node.body
    if isinstance(node, ast.ClassDef):
        return node.body
    if isinstance(node, ast.AnnAssign):
        return [node.value] if node.value else []
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
        return []
    if isinstance(node, ast.Call) and name_of(getattr(node.func, "value", None)) == "_log":
        return []
    return ast.iter_child_nodes(node)


def inner_name(parent, child, function):
    """Return the function, method or constant that a child belongs to."""
    name = ""
    if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        name = child.name
    elif isinstance(parent, ast.Module | ast.ClassDef) and isinstance(child, ast.Assign):
        name = name_of(child.targets[0])
    elif isinstance(parent, ast.Module | ast.ClassDef) and isinstance(child, ast.AnnAssign):
        name = name_of(child.target)
    return ".".join(part for part in (function, name) if part)
