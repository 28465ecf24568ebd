"""The frames of one client's link to a node: ids, order, and what is not a message."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import pytest

from app_server.fleet.catching_up import DeliveredTurn, Mark
from app_server.fleet.link import (
    MAX_HELD,
    MAX_HELD_CHARS,
    LinkEnd,
    LinkLost,
    NodeLink,
    OwnerMoved,
    mark_of,
)
from app_server.peer.node import NodeSocket, NodeUnreachable
from app_server.rpc.connection import ConnectionLoad
from app_server.rpc.context import InitializedClient, RequestContext
from app_server.rpc.hub import Hub
from app_server.rpc.outbox import Delta
from app_server.threads.nodes import Owner
from protocol.jsonrpc.envelope import Answer, Request, render_notification
from protocol.jsonrpc.errors import RpcError
from protocol.server.lifecycle import ClientInfo, InitializeCapabilities
from protocol.turns.items import (
    AgentMessageThreadItem,
    ItemCompletedNotification,
    McpToolCallResult,
    McpToolCallThreadItem,
    UserMessageThreadItem,
)

SESSION = InitializedClient(ClientInfo(name="c", version="1"), InitializeCapabilities(), False)


class Client:
    """A client of this node that keeps what it is sent."""

    def __init__(self) -> None:
        self.initialized: InitializedClient | None = SESSION
        self.is_of_node = False
        self.is_behind = False
        self.heard: list[Any] = []
        self.more = asyncio.Event()
        self.load = ConnectionLoad(in_flight=0, messages=0, chars=0)

    def post(self, *texts: str, delta: Delta | None = None) -> None:
        self.heard.extend(map(json.loads, texts))
        self.more.set()

    async def until_received(self, count: int) -> None:
        with anyio.fail_after(30):
            while len(self.heard) < count:
                self.more.clear()
                await self.more.wait()

    async def wait_for_room(self) -> None:
        raise AssertionError("it is not behind")

    def give_up(self) -> None:
        raise AssertionError("it has missed nothing")


@dataclass
class Node:
    """A node at the other end, which says what the test says."""

    sent: list[Any] = field(default_factory=list)
    frames: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, text: str) -> None:
        self.sent.append(json.loads(text))
        self.heard.set()

    async def receive(self) -> str:
        frame = await self.frames.get()
        if frame is None:
            raise anyio.EndOfStream
        return frame

    def says(self, *messages: Any) -> None:
        for message in messages:
            text = (
                message if isinstance(message, str) else json.dumps(message, separators=(",", ":"))
            )
            self.frames.put_nowait(text)

    async def until_sent(self, count: int) -> None:
        with anyio.fail_after(30):
            while len(self.sent) < count:
                self.heard.clear()
                await self.heard.wait()


@dataclass
class Linked:
    """A client of this node, its link, and the node at the other end."""

    hub: Hub
    client: Client
    node: Node
    link: NodeLink
    running: asyncio.Task[None]

    def context(self, *, is_of_batch: bool = False) -> RequestContext[Any]:
        return RequestContext(1, "m", False, SESSION, None, is_of_batch)

    async def begin(
        self,
        method: str,
        request_id: int | str = 7,
        seen: DeliveredTurn | None = None,
        batch: asyncio.Event | None = None,
    ) -> "asyncio.Task[tuple[str, bool]]":
        """Send a request, whose answer is handed on at once, or when a `batch` is complete."""
        before = len(self.node.sent)

        async def run() -> tuple[str, bool]:
            context = self.context(is_of_batch=batch is not None)
            request = Request(request_id, method, {"threadId": "t"})
            answer = await self.link.call(request, context, seen)
            if batch is not None:
                await batch.wait()
            self.client.post(answer[0])
            context.answered()
            return answer

        task = asyncio.create_task(run())
        await self.node.until_sent(before + 1)
        return task


@asynccontextmanager
async def linked() -> AsyncIterator[Linked]:
    hub, client, node = Hub(lambda: 7), Client(), Node()
    with hub.connect(client) as connection_id:
        end = LinkEnd(hub, connection_id, jsonrpc=False)
        link = NodeLink(Owner("n", "ws://n"), cast(NodeSocket, node), end)
        running = asyncio.create_task(link.run())
        yield Linked(hub, client, node, link, running)
        node.frames.put_nowait(None)
        await running


def event(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": "t", **params}, "emittedAtMs": 1}


async def test_an_answer_has_the_id_of_the_client_and_events_stay_behind_it() -> None:
    async with linked() as at:
        for request_id in (7, "an id"):
            task = await at.begin("turn/start", request_id)
            own_id = at.node.sent[-1]["id"]
            at.node.says({"id": own_id, "result": {"x": 1}}, event("warning", message="later"))
            assert await task == (
                json.dumps({"id": request_id, "result": {"x": 1}}, separators=(",", ":")),
                False,
            )
            assert at.client.heard[-2:] == [
                {"id": request_id, "result": {"x": 1}},
                event("warning", message="later"),
            ]


async def test_messages_of_one_frame_come_in_its_order_also_around_an_answer() -> None:
    async with linked() as at:
        task = await at.begin("turn/start")
        answer = {"id": at.node.sent[-1]["id"], "result": {}}
        events = [event("warning", message=text) for text in ("\x1e", "b", "c", "d")]
        for messages in (events[:2], [events[2], answer, events[3]]):
            texts = (json.dumps(message, separators=(",", ":")) for message in messages)
            at.node.says("\x1e".join(texts))
        await task
        await at.client.until_received(5)
        assert at.client.heard == [*events[:3], {"id": 7, "result": {}}, events[3]]


async def test_a_question_has_an_id_of_this_node_and_its_answer_finds_back() -> None:
    async with linked() as at:
        question = {"method": "item/tool/call", "id": 5, "params": {"threadId": "t"}}
        at.node.says(question, question | {"id": 6})
        task = await at.begin("thread/read")
        at.node.says({"id": at.node.sent[-1]["id"], "result": {}})
        await task
        first, second = (message["id"] for message in at.client.heard[:2])
        assert first != second
        at.hub.answer(1, Answer(second, {"ok": True}, None))
        await at.node.until_sent(2)
        assert at.node.sent[-1] == {"id": 6, "result": {"ok": True}}
        at.node.says(event("serverRequest/resolved", requestId=6))
        at.node.says(event("serverRequest/resolved", requestId=99))
        task = await at.begin("thread/read")
        at.node.says({"id": at.node.sent[-1]["id"], "result": {}})
        await task
        resolved = [m for m in at.client.heard if m.get("method") == "serverRequest/resolved"]
        assert [m["params"]["requestId"] for m in resolved] == [second]
        # The other one is settled with the end of the link; its answer is for nobody.
        at.node.frames.put_nowait(None)
        await at.running
        assert at.client.heard[-1]["params"] == {"threadId": "t", "requestId": first}
        at.hub.answer(1, Answer(first, {"ok": True}, None))
        assert at.node.sent[-1]["method"] == "thread/read"


async def test_what_is_under_way_when_the_node_goes_is_lost() -> None:
    async with linked() as at:
        task = await at.begin("turn/start")
        at.node.frames.put_nowait(None)
        with pytest.raises(LinkLost):
            await task
        await at.running
        # What was never sent may be asked of the next owner.
        with pytest.raises(OwnerMoved):
            await at.link.call(Request(1, "turn/start", {}), at.context())


async def test_a_node_that_does_not_own_the_thread_did_nothing() -> None:
    async with linked() as at:
        task = await at.begin("turn/start")
        error = {"code": -32600, "message": "m", "data": {"code": "ownerMoved"}}
        at.node.says({"id": at.node.sent[-1]["id"], "error": error}, event("warning", message="w"))
        with pytest.raises(OwnerMoved):
            await task
        task = await at.begin("turn/start")
        refusal = {"code": -32600, "message": "m", "data": {"code": "noActiveTurn"}}
        at.node.says({"id": at.node.sent[-1]["id"], "error": refusal})
        assert (await task)[1] is True
        # Nothing waits for the answer that nobody was given.
        assert at.client.heard == [event("warning", message="w"), {"id": 7, "error": refusal}]


@pytest.mark.parametrize(
    "frame", ['{"method":"turn/started","params":{}}', '{"method":"turn/started",']
)
async def test_a_node_that_sends_no_messages_is_left(frame: str) -> None:
    async with linked() as at:
        at.node.says(frame)
        await at.running
        assert at.link.is_lost


async def test_frames_of_no_known_form_are_left_out() -> None:
    async with linked() as at:
        at.node.says("[]", '{"id":12,"result":{}}', event("warning", message="w"))
        task = await at.begin("thread/read")
        at.node.says({"id": at.node.sent[-1]["id"], "result": {}})
        await task
        assert at.client.heard[0] == event("warning", message="w")


async def test_a_link_knows_how_far_its_client_has_seen_a_thread() -> None:
    async with linked() as at:
        task = await at.begin("thread/resume", seen=DeliveredTurn())
        turn = {"id": "0", "status": "inProgress", "items": [{"type": "userMessage", "id": "z"}]}
        at.node.says(
            {"id": at.node.sent[-1]["id"], "result": {"thread": {"id": "t", "turns": [turn]}}}
        )
        await task
        assert at.link.followed == {"t": DeliveredTurn("0", is_open=True, completed={"z"})}
        at.node.says(
            event("turn/started", turn={"id": "1"}),
            event("item/completed", turnId="1", item={"id": "a"}),
            event("turn/completed", turn={"id": "1"}),
            event("turn/started", turn={"id": "2"}),
            event("item/completed", turnId="2", item={"id": "b"}),
            # Of a command that the turn before has left running.
            event("item/completed", turnId="1", item={"id": "c"}),
        )
        task = await at.begin("thread/resume", seen=DeliveredTurn())
        at.node.says({"id": at.node.sent[-1]["id"], "error": {"code": 1, "message": "no"}})
        await task
        assert at.link.followed == {"t": DeliveredTurn("2", is_open=True, completed={"b"})}
        at.node.says(event("thread/closed"))
        task = await at.begin("thread/read")
        at.node.says({"id": at.node.sent[-1]["id"], "result": {}})
        await task
        assert at.link.followed == {}


async def test_what_was_told_ahead_is_not_told_again() -> None:
    async with linked() as at:
        ahead = {Mark("item/completed", "1", "a"), Mark("turn/completed", "1")}
        task = await at.begin("thread/resume", seen=DeliveredTurn("1", ahead=ahead))
        at.node.says(
            {"id": at.node.sent[-1]["id"], "result": {"thread": {"id": "t", "turns": []}}},
            event("item/started", turnId="1", item={"id": "a"}),
            event("item/completed", turnId="1", item={"id": "a"}),
            event("turn/completed", turn={"id": "1"}),
            event("item/completed", turnId="1", item={"id": "b"}),
        )
        await task
        task = await at.begin("thread/read")
        at.node.says({"id": at.node.sent[-1]["id"], "result": {}})
        await task
        told = [m["params"]["item"]["id"] for m in at.client.heard if "method" in m]
        assert told == ["b"]


ITEMS: list[Any] = [
    UserMessageThreadItem(id="i", content=[]),
    AgentMessageThreadItem(id="i", text='"threadId":"x","turnId":"y"' * 100),
    McpToolCallThreadItem(
        id="i",
        server="s",
        tool="t",
        status="completed",
        arguments={"threadId": "x", "turnId": "y", "id": "z"},
        result=McpToolCallResult(content=[], structured_content={"threadId": "x", "turnId": "y"}),
    ),
]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.type)
@pytest.mark.parametrize("experimental", [True, False])
async def test_items_are_found_in_what_a_server_renders(item: Any, experimental: bool) -> None:
    ended = ItemCompletedNotification(thread_id="t", turn_id="1", item=item, completed_at_ms=7)
    text = render_notification(
        "item/completed", ended, 1, jsonrpc=True, experimental=experimental, seq=5
    )
    assert mark_of("item/completed", text) == ("t", Mark("item/completed", "1", "i"))


async def test_a_question_does_not_wait_for_a_batch_that_may_wait_for_it() -> None:
    async with linked() as at:
        complete = asyncio.Event()
        task = await at.begin("thread/name/set", batch=complete)
        calling = await at.begin("mcpServer/tool/call", 8, batch=complete)
        question = {"method": "mcpServer/elicitation/request", "id": 5, "params": {"threadId": "t"}}
        at.node.says(
            {"id": at.node.sent[0]["id"], "result": {}},
            event("warning", message="behind it"),
            question,
        )
        await at.client.until_received(2)
        assert at.client.heard[0] == event("warning", message="behind it")
        at.hub.answer(1, Answer(at.client.heard[1]["id"], {}, None))
        await at.node.until_sent(3)
        at.node.says({"id": at.node.sent[1]["id"], "result": {}}, event("warning", message="last"))
        complete.set()
        await asyncio.gather(task, calling)
        at.node.frames.put_nowait(None)
        await at.running
        # Its link has gone before it could say that the question is settled.
        assert [m.get("id", m.get("method")) for m in at.client.heard[2:]] == [
            7,
            8,
            "warning",
            "serverRequest/resolved",
        ]


async def test_what_waits_for_a_batch_is_bounded() -> None:
    async with linked() as at:
        complete = asyncio.Event()
        task = await at.begin("thread/name/set", batch=complete)
        at.node.says({"id": at.node.sent[0]["id"], "result": {}})
        at.node.says(*[event("warning", message=str(n)) for n in range(MAX_HELD + 1)])
        await at.client.until_received(MAX_HELD + 1)
        large = "x" * MAX_HELD_CHARS
        at.node.says(event("warning", message=large))
        await at.client.until_received(MAX_HELD + 2)
        complete.set()
        await task
        assert at.client.heard[-1] == {"id": 7, "result": {}}


async def test_a_request_that_the_node_would_not_read_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app_server.fleet.link.MAX_REQUEST_BYTES", 1000)
    async with linked() as at:
        for text in ("x" * 1000, "é" * 500):
            with pytest.raises(RpcError, match="`params` must have at most 1000 bytes"):
                await at.link.call(Request(1, "turn/start", {"threadId": text}), at.context())
        task = await at.begin("thread/read")
        at.node.says({"id": at.node.sent[-1]["id"], "result": {}})
        assert (await task)[1] is False
        assert len(at.node.sent) == 1


async def test_a_node_that_refuses_the_client_is_no_owner_to_ask() -> None:
    hub, client, node = Hub(), Client(), Node()
    with hub.connect(client) as connection_id:
        end = LinkEnd(hub, connection_id, jsonrpc=True)
        link = NodeLink(Owner("n", "ws://n"), cast(NodeSocket, node), end)
        node.says({"jsonrpc": "2.0", "id": 0, "error": {"code": 1, "message": "no"}})
        with pytest.raises(NodeUnreachable, match="it refuses the client"):
            await link.introduce({"clientInfo": {}})
        assert node.sent == [
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"clientInfo": {}}}
        ]
        node.frames.put_nowait(None)
        with pytest.raises(NodeUnreachable, match="it has closed"):
            await link.introduce({})
