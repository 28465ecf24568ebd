"""A client in the server's own process: the pipe, its calls, and what it is sent."""

import json
from typing import Any

import anyio
import pytest

from app_server.rpc.in_process import MAX_WAITING, AppClient, open_pipe
from protocol.jsonrpc.envelope import Notification, Request
from protocol.jsonrpc.errors import RpcError
from tests.support.harness import WAIT_S


async def test_a_pipe_holds_a_few_messages_and_ends_after_the_last_is_read() -> None:
    left, right = open_pipe()
    for number in range(MAX_WAITING):
        await left.send(str(number))
    with anyio.move_on_after(0) as scope:
        await left.send("one too many")
    assert scope.cancelled_caught
    await left.aclose()
    assert [await right.receive() for _ in range(MAX_WAITING)] == list(map(str, range(MAX_WAITING)))
    with pytest.raises(anyio.EndOfStream):
        await right.receive()
    with pytest.raises(anyio.EndOfStream):
        await left.receive()
    with pytest.raises(anyio.BrokenResourceError):
        await right.send("too late")
    with pytest.raises(anyio.BrokenResourceError):
        await left.send("too late")
    await right.aclose()


async def test_calls_fail_when_the_app_server_has_gone() -> None:
    near, far = open_pipe()
    app = AppClient(near)

    class Nobody:
        async def on_event(self, event: Any) -> None:
            """Hear nothing."""

        async def question(self, question: Any) -> None:
            """Answer nothing."""

    async def call() -> None:
        with pytest.raises(RpcError, match="the app-server has stopped"):
            await app.call("thread/start", {})

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app.run, Nobody())
            tasks.start_soon(call)
            await far.receive()
            await far.aclose()
        await call()
    await near.aclose()


async def test_answers_events_and_questions_are_taken_in_their_order() -> None:
    near, far = open_pipe()
    app = AppClient(near)
    taken: list[Any] = []

    class Listener:
        async def on_event(self, event: Notification) -> None:
            """Take an event."""
            taken.append(event.method)

        async def question(self, question: Request) -> None:
            """Take a question, and answer it."""
            taken.append(question.method)
            await app.answer(question.id, {"yes": True})
            await app.refuse(question.id, RpcError(-1, "no"))

    async def served() -> None:
        first, second = [json.loads(await far.receive()) for _ in range(2)]
        assert first == {"id": 1, "method": "thread/start", "params": {}}
        await far.send('{"id":7,"result":{}}')
        await far.send('{"id":1,"result":{"a":1}}')
        await far.send('{"method":"thread/started","params":{}}')
        await far.send('{"id":"q","method":"item/tool/call","params":{}}')
        error = {"code": -32602, "message": "no such", "data": {"code": "none"}}
        await far.send(json.dumps({"id": second["id"], "error": error}))
        await far.send('{"id":1,"result":{"again":1}}')
        assert json.loads(await far.receive()) == {"id": "q", "result": {"yes": True}}
        assert json.loads(await far.receive())["error"]["message"] == "no"
        assert json.loads(await far.receive()) == {"method": "initialized"}

    async def fails() -> None:
        with pytest.raises(RpcError, match="no such") as refused:
            await app.call("thread/read", {})
        assert (refused.value.code, refused.value.data) == (-32602, {"code": "none"})

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(app.run, Listener())
            async with anyio.create_task_group() as calls:
                calls.start_soon(served)
                calls.start_soon(app.call, "thread/start", {}, taken.append)
                calls.start_soon(fails)
                await anyio.wait_all_tasks_blocked()
                await app.notify("initialized")
            await far.aclose()
    assert taken == [{"a": 1}, "thread/started", "item/tool/call"]
    with pytest.raises(RpcError, match="the app-server has stopped"):
        await app.notify("initialized")
    await near.aclose()
