"""rpc: handlers that break, and answers that cannot be written."""

import errno
import json
import os
from typing import Any

import pytest

from app_server.rpc.context import RequestContext
from app_server.rpc.dispatch import Dispatcher
from protocol.contract.methods import METHODS
from protocol.jsonrpc.envelope import Request
from protocol.server.lifecycle import WarningNotification
from tests.support.harness import claim
from tests.support.wire.conversations import session


@claim("errors:internal")
async def test_a_handler_that_breaks_shows_nobody_why(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(context: RequestContext[Any], params: Any) -> Any:
        raise LookupError("the secret is 42")

    dispatcher = Dispatcher(dict.fromkeys(METHODS, handler).get)
    context = RequestContext(1, "thread/list", False, session(), None)
    answer = await dispatcher.dispatch(context, Request(1, "thread/list", {}))
    assert json.loads(answer) == {
        "id": 1,
        "error": {
            "code": -32603,
            "message": "Internal error",
            "data": {"code": "internalError"},
        },
    }
    assert "the secret is 42" in caplog.text


@claim("errors:disk-full")
@pytest.mark.parametrize(
    ("number", "reason", "todo"),
    [
        (errno.ENOSPC, "diskFull", "make room on the disk of the home folder, then try again"),
        (errno.EDQUOT, "diskFull", "make room on the disk of the home folder, then try again"),
        (errno.EROFS, "notWritable", "let the server write to its home folder, then try again"),
    ],
)
async def test_a_disk_that_refuses_is_named_by_every_method(
    number: int, reason: str, todo: str
) -> None:
    async def handler(context: RequestContext[Any], params: Any) -> Any:
        raise OSError(number, os.strerror(number), "/the/home/index/history.sqlite3")

    dispatcher = Dispatcher(dict.fromkeys(METHODS, handler).get)
    for method in ("thread/list", "thread/loaded/list"):
        context = RequestContext(1, method, False, session(), None)
        answer = await dispatcher.dispatch(context, Request(1, method, {}))
        assert json.loads(answer)["error"] == {
            "code": -32603,
            "message": f"the home folder cannot be used: {os.strerror(number)}; {todo}",
            "data": {
                "code": "storageFailed",
                "reason": reason,
                "detail": os.strerror(number),
            },
        }


@claim("methods:unserved", "methods:not-built")
@pytest.mark.parametrize(
    ("method", "message", "data"),
    [
        ("no/such", "method not found: no/such", {"code": "methodNotFound"}),
        (
            "plugin/search",
            "method not served: plugin/search: plugin/list lists everything there is",
            {"code": "methodNotServed", "reason": "plugin/list lists everything there is"},
        ),
        ("thread/fork", "method not built yet: thread/fork", {"code": "methodNotBuilt"}),
    ],
)
async def test_a_method_that_is_not_answered_says_why(
    method: str, message: str, data: dict[str, Any]
) -> None:
    context = RequestContext(1, method, False, session(), None)
    answer = json.loads(
        await Dispatcher(lambda _: None).dispatch(context, Request(1, method, None))
    )
    assert answer == {
        "id": 1,
        "error": {"code": -32601, "message": message, "data": {**data, "method": method}},
    }


@claim("bounds:outgoing", "bounds:large")
@pytest.mark.parametrize(
    ("method", "params", "limit"),
    [
        ("thread/list", {}, (1 << 20) - 1),
        ("fs/readFile", {"path": "/"}, (1 << 26) - 1),
    ],
)
async def test_an_answer_that_no_client_could_read_is_an_error(
    method: str, params: Any, limit: int
) -> None:
    def answer_of(chars: int) -> Any:
        async def handler(context: RequestContext[Any], params: Any) -> Any:
            return WarningNotification(message="x" * chars)

        return handler

    async def ask(chars: int) -> Any:
        dispatcher = Dispatcher(dict.fromkeys(METHODS, answer_of(chars)).get)
        context = RequestContext(1, method, False, session(experimental=False), None)
        return json.loads(await dispatcher.dispatch(context, Request(1, method, params)))

    assert len((await ask(limit - 100))["result"]["message"]) == limit - 100
    answer = await ask(limit)
    assert answer["error"]["data"]["code"] == "answerTooLarge"
    assert answer["error"]["data"]["limit"] == limit
