"""The errors that can be planted in a module, in the order of its text. Standard library only.

Left out, as no test should find them: what is logged, the words and numbers of messages (within
`raise`), docstrings, annotations, `assert`, `__repr__` and `__str__`, protocols, `TYPE_CHECKING`,
and how long something is waited for (constants that are named `…_S` or `…_MS`).
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPPOSITES = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot)
"""Turning one of these is negating it."""
SILENT = re.compile(r"(?:\w+\.)*_?(?:logger|log|warnings)\.\w+")
A_WAIT = re.compile(r"\w*_M?S(?:ECONDS)?")
Functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True)
class PlantedError:
    """One error: which node is changed, and how."""

    node: ast.AST
    kind: str
    """`comparison`, `condition`, `statement` or `constant`."""
    lines: range
    """Of the statement, or of the head of a compound one: who runs one of them may find it."""
    in_function: bool
    position: int = 0
    """Of the operator in a comparison, of the operand in an `and` or `or`."""


def errors_in(tree: ast.Module) -> list[PlantedError]:
    """Return all errors of a module; the same text always gives the same."""
    return list(_within(tree.body, False))


def planted(source: str, number: int) -> tuple[ast.Module, str]:
    """Return a module with the error of that number, and what was changed as `old -> new`."""
    tree = ast.parse(source)
    error = errors_in(tree)[number]
    old = _words(error.node)
    new = _changed(error)
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is error.node:
                setattr(parent, name, new)
            elif isinstance(value, list):
                value[:] = [new if one is error.node else one for one in value]
    ast.fix_missing_locations(tree)
    return tree, f"{old} -> {_words(new)}"


def _words(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:160]


def _changed(error: PlantedError) -> ast.AST:
    node = error.node
    changed: ast.AST
    match node:
        case ast.Compare() if error.kind == "comparison":
            ops = list(node.ops)
            ops[error.position] = TURNED[type(ops[error.position])]()
            changed = ast.Compare(node.left, ops, node.comparators)
        case ast.BoolOp() if error.position:
            values = list(node.values)
            values[error.position - 1] = _negated(values[error.position - 1])
            changed = ast.BoolOp(node.op, values)
        case ast.Constant(value=int() | float() as value):
            changed = ast.Constant(value + 1)
        case ast.expr():
            changed = _negated(node)
        case _:
            changed = ast.Pass()
    return ast.copy_location(changed, node)


def _negated(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    return ast.copy_location(ast.UnaryOp(ast.Not(), node), node)


def _within(body: list[ast.stmt], in_function: bool) -> Iterator[PlantedError]:
    """Yield the errors of statements."""
    for statement in body:
        yield from _of_statement(statement, in_function)


def _of_statement(node: ast.stmt, in_function: bool) -> Iterator[PlantedError]:
    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            if node.name not in ("__repr__", "__str__"):
                for default in (*node.args.defaults, *node.args.kw_defaults):
                    yield from _of_expression(default, lines, False)
                last = list(_ends(node.body))
                # At its end a function returns None anyway.
                yield from (each for each in _within(node.body, True) if each.node not in last)
            return
        case ast.ClassDef():
            if not any(_words(base).startswith("Protocol") for base in node.bases):
                yield from _within(node.body, in_function)
            return
        case ast.Assert() | ast.Import() | ast.ImportFrom():
            return
        case ast.Raise():
            yield PlantedError(node, "statement", lines, in_function)
            return
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return
        case ast.Expr(value=value):
            call = value.value if isinstance(value, ast.Await) else value
            if isinstance(call, ast.Constant):
                return
            if isinstance(call, ast.Call):
                if SILENT.fullmatch(_words(call.func)):
                    return
                yield PlantedError(node, "statement", lines, in_function)
        case ast.Return(value=value):
            empty = isinstance(value, ast.List | ast.Tuple | ast.Dict)
            if value is None or empty or isinstance(value, ast.Constant):
                yield PlantedError(node, "statement", lines, in_function)
        case ast.Continue() | ast.Break() | ast.AugAssign() | ast.Delete():
            yield PlantedError(node, "statement", lines, in_function)
        case ast.Assign(targets=targets):
            if not any(isinstance(target, ast.Name | ast.Tuple) for target in targets):
                yield PlantedError(node, "statement", lines, in_function)
            if all(A_WAIT.fullmatch(name) for name in _words(targets[0]).strip("()").split(", ")):
                return
        case ast.AnnAssign(target=target, value=value):
            if not A_WAIT.fullmatch(_words(target)):
                yield from _of_expression(value, lines, in_function)
            return
    if (inner := getattr(node, "body", None)) or isinstance(node, ast.Match):
        first = inner[0] if inner else node.cases[0].pattern  # type: ignore[attr-defined]
        lines = range(node.lineno, max(first.lineno, node.lineno + 1))
    conditions: list[ast.expr] = [node.test] if isinstance(node, ast.If | ast.While) else []
    for _, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            match child:
                case ast.stmt():
                    yield from _of_statement(child, in_function)
                case ast.ExceptHandler():
                    yield from _within(child.body, in_function)
                case ast.match_case():
                    head = range(child.pattern.lineno, child.body[0].lineno + 1)
                    guard: ast.expr | None = child.guard
                    if guard is not None:
                        yield from _of_condition(guard, head, in_function)
                    yield from _within(child.body, in_function)
                case ast.expr() if child in conditions:
                    yield from _of_condition(child, lines, in_function)
                case ast.AST():
                    yield from _of_expression(child, lines, in_function)


def _ends(body: list[ast.stmt]) -> Iterator[ast.Return]:
    """Yield the returns behind which nothing of a function comes."""
    match body[-1] if body else None:
        case ast.Return() as last:
            yield last
        case ast.If(body=one, orelse=other):
            yield from (*_ends(one), *_ends(other))
        case ast.Try(body=one, orelse=other, handlers=handlers, finalbody=[]):
            yield from _ends(other or one)
            for handler in handlers:
                yield from _ends(handler.body)
        case ast.With(body=one) | ast.AsyncWith(body=one):
            yield from _ends(one)


def _of_condition(node: ast.expr, lines: range, in_function: bool) -> Iterator[PlantedError]:
    """Yield the negation of a condition, if it is not the same as another error, and its errors."""
    turns = (
        isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], OPPOSITES)
    )
    if not turns and not isinstance(node, ast.Constant):
        yield PlantedError(node, "condition", lines, in_function)
    yield from _of_expression(node, lines, in_function)


def _of_expression(node: ast.AST | None, lines: range, in_function: bool) -> Iterator[PlantedError]:
    conditions: list[ast.expr] = []
    match node:
        case None | ast.JoinedStr():
            return
        case ast.Compare(ops=ops):
            for position, operator in enumerate(ops):
                if type(operator) in TURNED:
                    yield PlantedError(node, "comparison", lines, in_function, position)
        case ast.BoolOp(values=values):
            for position in range(len(values)):
                yield PlantedError(node, "condition", lines, in_function, position + 1)
        case ast.IfExp(test=test):
            conditions = [test]
        case ast.comprehension(ifs=ifs):
            conditions = ifs
        case ast.Constant(value=value):
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield PlantedError(node, "constant", lines, in_function)
        case ast.Lambda():
            yield from _of_expression(node.body, lines, True)
            return
        case ast.keyword(arg=str(name)) if A_WAIT.fullmatch(name.upper()):
            return
        case ast.Call() if SILENT.fullmatch(_words(node.func)):
            return
    for condition in conditions:
        yield from _of_condition(condition, lines, in_function)
    for child in ast.iter_child_nodes(node):
        if child not in conditions:
            yield from _of_expression(child, lines, in_function)
