"""An error is known by its name: in logs, in `except` and in docstrings."""

import ast
import builtins
from collections import defaultdict
from pathlib import Path

import app_server
import protocol


def test_no_two_public_errors_have_the_same_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    bases: defaultdict[str, set[str]] = defaultdict(set)
    for package in (app_server, protocol):
        (root,) = map(Path, package.__path__)
        for path in root.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(str(path.relative_to(root.parent)))
                    bases[node.name] |= {ast.unparse(base).split(".")[-1] for base in node.bases}
    errors = {name for name, value in vars(builtins).items() if _is_error(value)}
    while found := {name for name, above in bases.items() if above & errors} - errors:
        errors |= found
    ours = {name: places[name] for name in errors & places.keys() if not name.startswith("_")}
    assert len(ours) > 100
    assert {name: found for name, found in ours.items() if len(found) > 1} == {}


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)
