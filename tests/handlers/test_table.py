"""The table of handlers against the contract, the classes and what they serve."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import app_server.handlers
from app_server.handlers.lazy import LazyHandlers
from app_server.handlers.table import NOT_BUILT, TABLE, Handlers
from protocol.methods import METHODS
from tests.support.harness import serve


def classes_with_routes() -> set[type[Any]]:
    found = set()
    package = app_server.handlers
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(value) and value.__module__ == module.name:
                found |= {value} if hasattr(value, "routes") else set()
    return found - {Handlers, LazyHandlers}


def test_every_method_of_the_contract_has_one_class_or_is_said_to_have_none() -> None:
    named = Counter(method for row in TABLE for method in row.methods)
    assert named + Counter(NOT_BUILT) == Counter(METHODS.keys())


def test_every_class_of_handlers_is_in_the_table() -> None:
    assert Counter(row.load() for row in TABLE) == Counter(classes_with_routes())


async def test_a_class_serves_what_its_row_says(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        served_methods = [set(row.load()(served.services).routes) for row in TABLE]
    assert served_methods == [set(row.methods) for row in TABLE]


def test_a_start_imports_no_class_of_handlers() -> None:
    code = (
        "import sys, app_server.server.core; "
        "print(*(m for m in sorted(sys.modules) if m.startswith('app_server.handlers.')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    rooms = ("lazy", "services", "table")
    assert result.stdout.split() == [f"app_server.handlers.{room}" for room in rooms]
