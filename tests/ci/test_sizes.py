"""How large parts of the server may be; ruff bounds parameters and branches."""

import ast
from collections import Counter

from tests.support.paths import ROOT

MOST_METHODS = 25
"""Of a class: one with more is two ideas."""

MOST_MODULES = 16
"""Of a folder, the packages in it not counted: one with more hides a package."""

SOURCES = sorted((ROOT / "app_server").rglob("*.py"))
OTHERS = [
    path
    for folder in ("protocol", "tests/bench", "tests/support")
    for path in (ROOT / folder).rglob("*.py")
]


def test_classes_have_few_methods() -> None:
    methods = {
        f"{path.relative_to(ROOT)}: {node.name}": sum(
            isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) for member in node.body
        )
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert len(methods) > 500
    assert {name: count for name, count in methods.items() if count > MOST_METHODS} == {}


def test_folders_have_few_modules() -> None:
    modules = Counter(
        str(path.parent.relative_to(ROOT))
        for path in SOURCES + OTHERS
        if path.name != "__init__.py"
    )
    assert len(modules) > 50
    assert {folder: count for folder, count in modules.items() if count > MOST_MODULES} == {}
