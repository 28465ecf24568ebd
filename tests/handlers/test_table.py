"""The table of handlers against the contract, the classes and what they serve."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections import Counter
from typing import Any, get_type_hints

import app_server.handlers
from app_server.handlers.lazy import LazyHandlers
from app_server.handlers.table import TABLE, handler_name
from app_server.rpc.context import PreparedResult, RequestContext
from protocol.methods import METHODS
from protocol.specs import OBJECT_OR_NULL


def classes_of_handlers() -> set[type[Any]]:
    found = set()
    package = app_server.handlers
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if inspect.isclass(value) and value.__module__ == module.name:
                found |= {value} if name.endswith("Handlers") else set()
    return found - {LazyHandlers}


def handlers_of(found: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(found).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def test_every_method_of_the_contract_has_one_class() -> None:
    assert Counter(method for row in TABLE for method in row.methods) == Counter(METHODS.keys())


def test_every_class_of_handlers_is_in_the_table() -> None:
    assert Counter(row.load() for row in TABLE) == Counter(classes_of_handlers())


def test_a_class_has_a_handler_for_each_method_of_its_row_and_no_other() -> None:
    found = [set(handlers_of(row.load())) for row in TABLE]
    assert found == [set(map(handler_name, row.methods)) for row in TABLE]


def test_a_handler_takes_and_gives_the_types_of_its_method() -> None:
    for row in TABLE:
        handlers = handlers_of(row.load())
        for method in row.methods:
            types = get_type_hints(handlers[handler_name(method)])
            spec = METHODS[method]
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
