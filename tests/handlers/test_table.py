"""The table of handlers against the contract, the classes and what they serve."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, get_type_hints

import app_server.handlers
from app_server.handlers.table import NOT_BUILT, TABLE
from app_server.rpc.context import PreparedResult, RequestContext
from protocol.contract.methods import METHODS
from protocol.contract.specs import OBJECT_OR_NULL
from tests.support.harness import serve


def classes_with_routes() -> set[type[Any]]:
    found = set()
    package = app_server.handlers
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(value) and value.__module__ == module.name:
                made = getattr(value.__init__, "__code__", None)
                found |= {value} if made is not None and "routes" in made.co_names else set()
    return found


def test_every_method_of_the_contract_has_one_class_or_is_said_to_have_none() -> None:
    named = Counter(method for row in TABLE for method in row.methods)
    assert named + Counter(NOT_BUILT) == Counter(METHODS.keys())


def test_every_class_of_handlers_is_in_the_table() -> None:
    assert Counter(row.load() for row in TABLE) == Counter(classes_with_routes())


async def test_a_class_serves_what_its_row_says_with_the_types_of_each_method(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served:
        routes = [row.load()(served.services).routes for row in TABLE]
    assert [set(handlers) for handlers in routes] == [set(row.methods) for row in TABLE]
    for method, handler in [each for handlers in routes for each in handlers.items()]:
        spec, types = METHODS[method], get_type_hints(handler)
        params = spec.params | None if spec.takes is OBJECT_OR_NULL else spec.params
        assert types.pop("return") in (spec.result, PreparedResult), method
        assert types == {"context": RequestContext, "params": params}, method


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
