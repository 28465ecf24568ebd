"""What the source says of a type: docstrings that Python itself throws away.

A string under a field or under a named alias is its documentation. Reading it when the types are
imported would cost every process; here only the generator pays.
"""

import ast
import inspect
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True, slots=True)
class Docs:
    """The prose of one module."""

    aliases: dict[str, str] = field(default_factory=dict)
    """By alias."""
    fields: dict[tuple[str, str], str] = field(default_factory=dict)
    """By class and Python field name."""


def read_docs(module: ModuleType) -> Docs:
    """Collect the strings under aliases and fields of a module.

    Raises:
        OSError: the source is not there.
    """
    assert module.__file__ is not None, "wire types live in files"
    docs = Docs()
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    for name, text in _strings_under(tree.body):
        docs.aliases[name] = text
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for name, text in _strings_under(node.body):
                docs.fields[node.name, name] = text
    return docs


def _strings_under(body: list[ast.stmt]) -> list[tuple[str, str]]:
    found = []
    for statement, below in pairwise(body):
        name = _target(statement)
        match below:
            case ast.Expr(value=ast.Constant(value=str(text))) if name is not None:
                found.append((name, inspect.cleandoc(text)))
    return found


def _target(statement: ast.stmt) -> str | None:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return None
