"""The functions that serve methods, against the contract."""

import ast
import inspect
import subprocess
import sys
import textwrap
from typing import Any, get_type_hints

import pytest

from app_server.fleet.routing import LOADED_LIST
from app_server.handlers import serving
from app_server.handlers.serving import RequestContext, find_handler, serves
from app_server.rpc.context import PreparedResult
from protocol.contract.methods import METHODS
from protocol.contract.specs import AT_ONCE, OBJECT_OR_NULL


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_one_function_with_the_types_of_the_contract(method: str) -> None:
    handler = find_handler(method)
    assert handler is not None
    spec, types = METHODS[method], get_type_hints(handler)
    params = spec.params | None if spec.takes is OBJECT_OR_NULL else spec.params
    assert types.pop("return") in (spec.result, PreparedResult)
    assert types == {"context": RequestContext, "params": params}


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("thread/lost", "no method of the contract: thread/lost"),
        ("turn/start", r"turn/start is served in app_server\.handlers\.turns\.requests"),
    ],
)
def test_a_function_for_no_method_or_in_another_module_is_refused(method: str, text: str) -> None:
    async def handler(context: RequestContext, params: Any) -> Any:
        raise AssertionError

    with pytest.raises(ValueError, match=text):
        serves(method)(handler)


def test_a_second_function_for_a_method_is_refused() -> None:
    first = find_handler("turn/start")

    async def handler(context: RequestContext, params: Any) -> Any:
        raise AssertionError

    handler.__module__ = "app_server.handlers.turns.requests"
    with pytest.raises(ValueError, match="turn/start is served twice"):
        serves("turn/start")(handler)
    assert find_handler("turn/start") is first


def test_a_module_that_is_executed_again_serves_its_methods_with_the_newer_functions() -> None:
    first = find_handler("turn/start")
    assert first is not None

    async def newer(context: RequestContext, params: Any) -> Any:
        raise AssertionError

    newer.__module__, newer.__qualname__ = first.__module__, "start_turn"
    try:
        serves("turn/start")(newer)
        assert find_handler("turn/start") is newer
    finally:
        serves("turn/start")(first)


def test_a_start_imports_no_handlers() -> None:
    code = (
        "import sys, app_server.server.core; "
        "print(*(m for m in sorted(sys.modules) if m.startswith('app_server.handlers.')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    rooms = ("services", "serving", "views", "views.rules")
    assert result.stdout.split() == [f"{serving.__package__}.{room}" for room in rooms]


class _OnOneServer(ast.NodeTransformer):
    """Takes out what is done in a group of servers alone."""

    def visit_If(self, node: ast.If) -> ast.If | None:
        in_group = ast.unparse(node.test) == "context.services.loaded_elsewhere is not None"
        return None if in_group else node


@pytest.mark.parametrize(
    "name", sorted(name for name, spec in METHODS.items() if spec.order is AT_ONCE)
)
def test_a_method_that_is_answered_at_once_waits_for_nothing(name: str) -> None:
    handler = find_handler(name)
    assert handler is not None
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(handler))).body
    if name == LOADED_LIST:
        # In a group, whose connections do not answer it at once.
        function = _OnOneServer().visit(function)
    waits = ast.Await | ast.AsyncWith | ast.AsyncFor
    assert not any(isinstance(node, waits) for node in ast.walk(function))
