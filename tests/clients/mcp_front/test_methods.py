"""mcp-server: the second conversation, with methods of the app-server."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from app_server.clients.mcp_front.older import MAX_QUESTIONS, OlderSide
from app_server.rpc.in_process import PipeEnd, open_pipe
from tests.support.harness import WAIT_S

ASKED = "item/commandExecution/requestApproval"


@dataclass
class Second:
    """A second conversation, the app-server's end of it, and what the client was sent."""

    side: OlderSide
    app: PipeEnd
    sent: list[Any] = field(default_factory=list)
    came: anyio.Event = field(default_factory=anyio.Event)

    async def send(self, **message: Any) -> Any:
        """Send a message as the app-server; returns what the client is sent."""
        self.came = anyio.Event()
        await self.app.send(json.dumps(message))
        with anyio.fail_after(WAIT_S):
            await self.came.wait()
        return self.sent[-1]

    async def receive(self) -> Any:
        """Return what the app-server is sent next."""
        with anyio.fail_after(WAIT_S):
            return json.loads(await self.app.receive())


@asynccontextmanager
async def second() -> AsyncIterator[Second]:
    near, far = open_pipe()

    async def open_conversation() -> PipeEnd:
        return near

    async def send(text: str) -> None:
        both.sent.append(json.loads(text))
        both.came.set()

    async with anyio.create_task_group() as tasks:
        both = Second(OlderSide(open_conversation, send, tasks), far)
        await both.side.forward('{"id": 1, "method": "thread/list"}', {"name": "c"})
        methods = [(await both.receive()).get("method") for _ in range(4)]
        assert methods == ["initialize", "initialized", "getUserAgent", "thread/list"]
        yield both
        await both.side.aclose()
        await far.aclose()


def resolved(request_id: Any) -> dict[str, Any]:
    params = {"threadId": "t", "requestId": request_id}
    return {"method": "serverRequest/resolved", "params": params}


async def test_a_question_has_an_id_of_its_own_until_it_is_answered() -> None:
    async with second() as both:
        assert await both.send(id=0, method=ASKED, params={}) == {
            "id": "older:1",
            "method": ASKED,
            "params": {},
        }
        assert await both.side.answered("older:1", {"id": "older:1", "result": {"d": 1}})
        assert await both.receive() == {"jsonrpc": "2.0", "id": 0, "result": {"d": 1}}
        assert not await both.side.answered("older:1", {"id": "older:1", "result": {}})


async def test_a_question_that_was_settled_elsewhere_is_forgotten() -> None:
    async with second() as both:
        await both.send(id=0, method=ASKED, params={})
        await both.send(id=1, method=ASKED, params={})
        # By the id that the client knows.
        assert await both.send(**resolved(1)) == resolved("older:2")
        assert not await both.side.answered("older:2", {"id": "older:2", "result": {}})
        assert await both.side.answered("older:1", {"id": "older:1", "result": {}})
        # One that it was never asked.
        assert await both.send(**resolved(7)) == resolved(7)


async def test_of_many_questions_the_oldest_are_forgotten() -> None:
    async with second() as both:
        for number in range(MAX_QUESTIONS + 1):
            await both.send(id=number, method=ASKED, params={})
        last = MAX_QUESTIONS + 1
        known = [await both.side.answered(f"older:{n}", {"result": {}}) for n in (1, 2, last)]
    assert known == [False, True, True]
