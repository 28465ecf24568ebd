"""Modules of app_server and protocol import each other in one direction, late imports too."""

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.paths import ROOT


def test_no_modules_import_each_other_in_a_circle() -> None:
    TopologicalSorter({**_imports("app_server"), **_imports("protocol")}).prepare()


def test_a_circle_is_found(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    (room / "__init__.py").write_text("")
    (room / "a.py").write_text("from room.b import B\n")
    (room / "b.py").write_text("def late():\n    from room import a\n    return a\n")
    with pytest.raises(CycleError):
        TopologicalSorter(_imports("room", tmp_path)).prepare()


def _imports(package: str, root: Path = ROOT) -> Mapping[str, set[str]]:
    """Return the modules that each module names, by their dotted names."""
    files = {
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): file
        for file in (root / package).rglob("*.py")
    }
    return {module: _named(file) & files.keys() - {module} for module, file in files.items()}


def _named(file: Path) -> set[str]:
    named: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return named
