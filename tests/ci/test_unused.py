"""What ruff does not see: imports of modules for nothing, and loggers that nobody writes to."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

SOURCES = [path for name in ("app_server", "protocol") for path in (ROOT / name).rglob("*.py")]

IMPORTED_EARLY = {"uvicorn.lifespan.off"}
"""So that a library does not import them when it is used."""


def names_in(tree: ast.Module) -> Iterator[str]:
    """Give every name that is read, and every `a.b.c` with all its beginnings."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                yield name
            case ast.Attribute(ctx=ast.Load()):
                yield ast.unparse(node)


def unused_in(path: Path) -> list[str]:
    source = path.read_text()
    if not re.search(r"^\s*import \w+\.|^logger\b", source, re.MULTILINE):
        return []
    tree = ast.parse(source)
    names = set(names_in(tree))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if "." in alias.name and alias.asname is None
    }
    assigned = {ast.unparse(node.targets[0]) for node in tree.body if isinstance(node, ast.Assign)}
    return sorted((imported | (assigned & {"logger"})) - names - IMPORTED_EARLY)


def test_nothing_is_imported_or_made_for_nothing() -> None:
    assert len(SOURCES) > 500
    unused = {str(path.relative_to(ROOT)): found for path in SOURCES if (found := unused_in(path))}
    assert unused == {}
