"""rpc and transport: one answer each, order, bounds, questions, over every transport."""

import asyncio
import json
import os
import socket
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from app_server.rpc.connection import ConnectionLimits, RpcConnection
from app_server.rpc.context import ClientSession, RequestContext
from app_server.rpc.dispatch import Dispatcher
from app_server.rpc.hub import Hub
from app_server.rpc.ordering import KeyedQueue
from app_server.rpc.outbox import Outbox, OutboxLimits
from app_server.rpc.outgoing import Delta
from app_server.transport.address import (
    Address,
    StdioAddress,
    TcpAddress,
    UnixAddress,
    parse_address,
)
from app_server.transport.stdio import open_stdio
from app_server.transport.websocket import WebSocketLimits
from protocol.elicitation import (
    FormElicitation,
    McpElicitationSchema,
    McpServerElicitationRequestResponse,
    UserVerificationElicitation,
)
from protocol.envelope import Answer, Request, render_result
from protocol.items import AgentMessageDeltaNotification
from protocol.lifecycle import ClientInfo, InitializeCapabilities, WarningNotification
from protocol.methods import METHODS
from protocol.signals import SignalReceipt, SignalUpdatedNotification
from protocol.specs import Access
from protocol.threads import ServerRequestResolvedNotification
from tests.support.harness import WAIT_S, LinePipe, WireClient, claim, serve

LOOPBACK = TcpAddress("127.0.0.1", 0)


# A pair of streams in memory.


class MemoryStream:
    """Both ends of a connection without a socket."""

    def __init__(self, window: int = 1_000_000) -> None:
        self._to_server, self._at_server = anyio.create_memory_object_stream[str](1000)
        self._to_client, self._at_client = anyio.create_memory_object_stream[str](window)
        self.closed_with: tuple[int, str] | None = None

    async def receive(self) -> str:
        return await self._at_server.receive()

    async def send(self, text: str) -> None:
        await self._to_client.send(text)

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        if self.closed_with is None:
            self.closed_with = code, reason
        self._to_client.close()
        self._to_server.close()

    def say(self, *messages: Any) -> None:
        """Send as the client."""
        for message in messages:
            self._to_server.send_nowait(
                message if isinstance(message, str) else json.dumps(message)
            )

    def finish(self) -> None:
        """End as the client."""
        self._to_server.close()

    async def hear(self, count: int = 1) -> list[Any]:
        """Receive as the client."""
        with anyio.fail_after(WAIT_S):
            return [json.loads(await self._at_client.receive()) for _ in range(count)]

    async def hear_text(self) -> str:
        """Receive one message as it was sent."""
        with anyio.fail_after(WAIT_S):
            return await self._at_client.receive()

    async def hear_all(self) -> list[Any]:
        """Receive as the client until the server has closed."""
        with anyio.fail_after(WAIT_S):
            return [json.loads(text) async for text in self._at_client]

    def drop(self) -> None:
        """Close what is left, so that nothing warns."""
        for stream in (self._to_server, self._at_server, self._to_client, self._at_client):
            stream.close()


class Work:
    """Requests that run until they are told to go on."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self._gates: dict[Any, anyio.Event] = {}
        self._changed = anyio.Event()

    async def dispatch(self, context: RequestContext, request: Request) -> str:
        self.started.append(request.id)
        self._changed.set()
        await self._gates.setdefault(request.id, anyio.Event()).wait()
        return render_result(request.id, {"method": request.method})

    def let(self, *request_ids: Any) -> None:
        """Let requests go on."""
        for request_id in request_ids:
            self._gates.setdefault(request_id, anyio.Event()).set()

    async def until_started(self, *request_ids: Any) -> None:
        """Wait until exactly these have started, in this order."""
        with anyio.fail_after(WAIT_S):
            while self.started != list(request_ids):
                self._changed = anyio.Event()
                await self._changed.wait()


@asynccontextmanager
async def conversation(
    requests: Any, limits: ConnectionLimits | None = None, window: int = 1_000_000
) -> AsyncIterator[tuple[MemoryStream, RpcConnection, Hub]]:
    stream, hub = MemoryStream(window), Hub(lambda: 7)
    connection = RpcConnection(stream, requests, hub, limits or ConnectionLimits())
    task = asyncio.create_task(connection.run())
    await asyncio.sleep(0)
    try:
        yield stream, connection, hub
    finally:
        stream.finish()
        with anyio.fail_after(WAIT_S):
            await task
        stream.drop()


def request(request_id: Any, method: str = "turn/start", thread: str | None = "t") -> Any:
    params = {} if thread is None else {"threadId": thread}
    return {"id": request_id, "method": method, "params": params}


def session(*, experimental: bool = True, jsonrpc: bool = False, **kwargs: Any) -> ClientSession:
    capabilities = InitializeCapabilities(experimental_api=experimental)
    return ClientSession(ClientInfo(name="c", version="1"), capabilities, jsonrpc, **kwargs)


# Order.


@claim("order:one-thread")
async def test_requests_of_one_thread_run_in_their_order() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        stream.say(request(1), request(2), request(3, thread="u"), request(4, "thread/list"))
        await work.until_started(1, 3, 4)
        work.let(1)
        assert await stream.hear() == [{"id": 1, "result": {"method": "turn/start"}}]
        await work.until_started(1, 3, 4, 2)
        work.let(2, 3, 4)
        assert {answer["id"] for answer in await stream.hear(3)} == {2, 3, 4}


async def test_reads_of_one_thread_run_side_by_side_but_not_beside_a_write() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        stream.say(
            request(1, "thread/read"),
            request(2, "thread/read"),
            request(3),
            request(4, "thread/read"),
        )
        await work.until_started(1, 2)
        work.let(2)
        await stream.hear()
        work.let(1)
        await work.until_started(1, 2, 3)
        work.let(3)
        await work.until_started(1, 2, 3, 4)
        work.let(4)
        assert [answer["id"] for answer in await stream.hear(3)] == [1, 3, 4]


async def test_a_request_without_a_usable_thread_id_waits_for_nobody() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        stream.say(request(1), {"id": 2, "method": "turn/start", "params": {"threadId": 5}})
        stream.say({"id": 3, "method": "turn/start", "params": []}, request(4, "no/such"))
        await work.until_started(1, 2, 3, 4)
        work.let(1, 2, 3, 4)
        await stream.hear(4)


async def test_a_place_that_is_given_up_lets_the_next_one_in() -> None:
    queue = KeyedQueue()
    first, second, third = (queue.take_place("k", Access.EXCLUSIVE) for _ in range(3))
    entered = []

    async def enter(place: Any, name: str) -> None:
        async with place:
            entered.append(name)

    async with first:
        impatient = asyncio.create_task(enter(second, "second"))
        patient = asyncio.create_task(enter(third, "third"))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.wait({impatient})
        assert entered == []
    await patient
    assert entered == ["third"]


async def test_initialize_is_answered_before_the_next_message_is_read() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        stream.say({"id": 1, "method": "initialize"}, request(2, "thread/list"))
        await work.until_started(1)
        work.let(1, 2)
        assert [answer["id"] for answer in await stream.hear(2)] == [1, 2]


# One answer each.


@claim("bounds:in-flight")
async def test_one_request_too_many_is_refused_and_the_others_go_on() -> None:
    work = Work()
    async with conversation(work, ConnectionLimits(max_in_flight=2)) as (stream, _, _):
        stream.say(request(1, thread=None), request(2, thread=None), request(3, thread=None))
        assert await stream.hear() == [
            {
                "id": 3,
                "error": {
                    "code": -32001,
                    "message": "Server overloaded; retry later.",
                    "data": {"code": "overloaded"},
                },
            }
        ]
        work.let(1, 2, 4)
        await stream.hear(2)
        stream.say(request(4, thread=None))
        assert await stream.hear() == [{"id": 4, "result": {"method": "turn/start"}}]


@claim("framing:batch")
async def test_a_batch_gets_one_array_without_answers_to_notifications() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        stream.say([request(1, thread=None), {"method": "initialized"}, 5, request(2, thread=None)])
        stream.say([{"method": "initialized"}], request(3, thread=None))
        work.let(1, 2)
        (answers,) = await stream.hear()
        assert [answer["id"] for answer in answers] == [None, 1, 2]
        work.let(3)
        assert await stream.hear() == [{"id": 3, "result": {"method": "turn/start"}}]


async def test_a_batch_holds_back_what_follows_its_answers() -> None:
    class Following:
        async def dispatch(self, context: RequestContext, request: Request) -> str:
            context.after_answer(lambda: connection.post(f'"after {request.id}"'))
            return render_result(request.id, {})

    async with conversation(Following()) as (stream, connection, _):
        stream.say([request(1), request(2)])
        answers, *after = await stream.hear(3)
        assert [answer["id"] for answer in answers] == [1, 2]
        assert after == ["after 1", "after 2"]


async def test_requests_are_finished_and_answered_after_the_client_has_finished_sending() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        stream.say(request(1))
        stream.finish()
        await work.until_started(1)
        work.let(1)
        assert await stream.hear_all() == [{"id": 1, "result": {"method": "turn/start"}}]
    assert stream.closed_with == (1000, "")


async def test_a_request_that_never_ends_does_not_hold_up_the_end() -> None:
    async with conversation(Work(), ConnectionLimits(finish_s=0.01)) as (stream, _, _):
        stream.say(request(1))
        stream.finish()
        assert await stream.hear_all() == []


async def test_what_follows_an_answer_happens_also_when_the_request_is_cancelled() -> None:
    followed: list[str] = []

    class Hanging:
        async def dispatch(self, context: RequestContext, request: Request) -> str:
            context.after_answer(lambda: followed.append("after"))
            await anyio.sleep_forever()
            raise AssertionError

    async with conversation(Hanging(), ConnectionLimits(finish_s=0.01)) as (stream, _, _):
        stream.say(request(1))
        stream.finish()
        assert await stream.hear_all() == []
    assert followed == ["after"]


async def test_what_follows_an_answer_happens_also_when_nobody_takes_the_answer() -> None:
    followed: list[str] = []

    class Following:
        async def dispatch(self, context: RequestContext, request: Request) -> str:
            context.after_answer(lambda: followed.append("after"))
            return "1"

    limits = ConnectionLimits(finish_s=0.01)
    async with conversation(Following(), limits, window=0) as (stream, _, _):
        stream.say(request(1))
    assert followed == ["after"]


async def test_finishing_from_our_side_answers_what_was_read() -> None:
    work = Work()
    async with conversation(work) as (stream, connection, _):
        stream.say(request(1), {"id": 2, "method": "initialize"})
        await work.until_started(1, 2)
        connection.finish()
        work.let(1, 2)
        assert {answer["id"] for answer in await stream.hear_all()} == {1, 2}
    assert stream.closed_with == (1001, "the server stops")


# The outbox.


def delta_of(key: str, text: str) -> tuple[str, Delta]:
    return text, Delta((key,), text, lambda joined: f"{key}:{joined}")


async def test_deltas_of_one_text_are_merged_for_a_client_that_falls_behind() -> None:
    outbox = Outbox(OutboxLimits(merge_above=2))
    for key, text in (("a", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("b", "5")):
        outbox.add(*delta_of(key, text))
    outbox.add("whole")
    outbox.add(*delta_of("b", "6"))
    outbox.close()
    taken = []
    for _ in range(6):
        taken.append(await outbox.take())
        outbox.release()
    with pytest.raises(anyio.EndOfStream):
        await outbox.take()
    assert taken == ["1", "2", "a:34", "b:5", "whole", "b:6"]


@claim("bounds:slow-client")
@pytest.mark.parametrize(
    "limits", [OutboxLimits(max_messages=10), OutboxLimits(max_chars=50)], ids=["count", "size"]
)
async def test_a_client_that_cannot_keep_up_is_closed_with_1013(limits: OutboxLimits) -> None:
    async with conversation(Work(), ConnectionLimits(outbox=limits), window=0) as (
        stream,
        connection,
        _,
    ):
        for number in range(20):
            connection.post(f'"message {number}"')
        connection.post('"too late"')
        assert await stream.hear_all() == []
    assert stream.closed_with == (1013, "reads too slowly; resume later")


@claim("replay:too-much")
async def test_a_client_that_missed_what_cannot_be_told_is_closed_with_1013() -> None:
    async with conversation(Work()) as (stream, connection, _):
        connection.post('"before"')
        assert await stream.hear() == ["before"]
        connection.give_up()
        connection.post('"too late"')
        assert await stream.hear_all() == []
    assert stream.closed_with == (1013, "reads too slowly; resume later")


async def test_requests_of_a_client_that_does_not_read_are_not_read_either() -> None:
    work = Work()
    limits = ConnectionLimits(outbox=OutboxLimits(merge_above=1))
    async with conversation(work, limits, window=0) as (stream, connection, _):
        for number in range(3):
            connection.post(str(number))
        await asyncio.sleep(0)
        stream.say(request(1))
        stream.say(request(2))
        assert await stream.hear(2) == [0, 1]
        assert len(work.started) < 2
        assert await stream.hear() == [2]
        await asyncio.sleep(0)
        work.let(1, 2)
        assert [answer["id"] for answer in await stream.hear(2)] == [1, 2]


async def test_a_message_of_its_own_is_sent_at_once_only_when_nothing_is_on_its_way() -> None:
    outbox = Outbox(OutboxLimits())
    assert outbox.claim()
    assert not outbox.claim()
    outbox.add("waits")
    outbox.release()
    assert not outbox.claim()
    assert await outbox.take() == "waits"
    assert not outbox.claim()
    outbox.release()
    assert outbox.claim()
    outbox.close()
    outbox.add("too late")
    taking = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    assert not taking.done()
    outbox.release()
    with pytest.raises(anyio.EndOfStream):
        await taking


async def test_a_client_that_has_gone_ends_the_conversation_quietly() -> None:
    class Broken(MemoryStream):
        async def send(self, text: str) -> None:
            raise anyio.BrokenResourceError

    work, stream, hub = Work(), Broken(), Hub()
    connection = RpcConnection(stream, work, hub, ConnectionLimits())
    work.let(1, 2)
    stream.say(request(1), request(2))
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            await work.until_started(1, 2)
            connection.post("x")
    stream.drop()


# The hub.


class Listener:
    """A peer of the hub."""

    def __init__(self, settled: ClientSession | None) -> None:
        self.session = settled
        self.heard: list[Any] = []
        self.deltas: list[Delta | None] = []

    def post(self, text: str, delta: Delta | None = None) -> None:
        self.heard.append(json.loads(text))
        self.deltas.append(delta)

    def give_up(self) -> None:
        self.heard.append("given up")


WARNING = WarningNotification(thread_id="t", message="m")
WIRE_WARNING = {"method": "warning", "params": {"threadId": "t", "message": "m"}, "emittedAtMs": 7}


def test_events_reach_listeners_in_their_form_and_nobody_else() -> None:
    hub = Hub(lambda: 7)
    plain, with_jsonrpc = Listener(session()), Listener(session(jsonrpc=True))
    opted_out = Listener(session(opted_out=frozenset({"warning"})))
    stranger, early = Listener(session()), Listener(None)
    with (
        hub.connect(plain) as a,
        hub.connect(with_jsonrpc) as b,
        hub.connect(opted_out) as c,
        hub.connect(stranger),
        hub.connect(early) as e,
    ):
        for connection_id in (a, b, c, e):
            hub.subscribe(connection_id, "t")
        assert hub.has_listeners("t")
        hub.emit("t", WARNING)
        hub.emit("nobody listens", WARNING)
        assert plain.heard == [WIRE_WARNING]
        assert with_jsonrpc.heard == [{"jsonrpc": "2.0", **WIRE_WARNING}]
        assert opted_out.heard == stranger.heard == early.heard == []
        hub.broadcast(WARNING)
        assert stranger.heard == [WIRE_WARNING]
        hub.tell(a, WARNING)
        hub.tell(99, WARNING)
        assert len(plain.heard) == 3
        assert hub.unsubscribe(a, "t")
        assert not hub.unsubscribe(a, "t")
        hub.emit("t", WARNING)
        assert len(plain.heard) == 3
    assert not hub.has_listeners("t")
    hub.subscribe(a, "t")
    assert not hub.has_listeners("t")


def test_deltas_can_be_joined_into_one_message() -> None:
    hub = Hub(lambda: 7)
    listener = Listener(session())
    with hub.connect(listener) as connection_id:
        hub.subscribe(connection_id, "t")
        for text in ("a", "b"):
            hub.emit(
                "t",
                AgentMessageDeltaNotification(thread_id="t", turn_id="u", item_id="i", delta=text),
            )
    first, second = listener.deltas
    assert first is not None
    assert second is not None
    assert first.key == second.key
    assert json.loads(first.render("ab")) == {
        "method": "item/agentMessage/delta",
        "params": {"threadId": "t", "turnId": "u", "itemId": "i", "delta": "ab"},
        "emittedAtMs": 7,
    }


def question() -> FormElicitation:
    schema = McpElicitationSchema(type="object", properties={})
    return FormElicitation(thread_id="t", server_name="s", message="?", requested_schema=schema)


ASK = "mcpServer/elicitation/request"


@claim("questions:first-answer", "questions:resolved")
async def test_every_listener_is_asked_and_the_first_answer_wins() -> None:
    hub = Hub(lambda: 7)
    one, two = Listener(session()), Listener(session(jsonrpc=True))
    with hub.connect(one) as a, hub.connect(two) as b, hub.connect(Listener(session())) as c:
        hub.subscribe(a, "t")
        hub.subscribe(b, "t")
        asking = asyncio.create_task(hub.ask("t", ASK, question()))
        await asyncio.sleep(0)
        hub.answer(c, Answer(0, {"action": "accept"}, None))
        hub.answer(b, Answer(5, {"action": "accept"}, None))
        hub.answer(b, Answer(0, {"action": "decline"}, None))
        hub.answer(a, Answer(0, {"action": "accept"}, None))
        assert await asking == McpServerElicitationRequestResponse(action="decline")
        resolved = {
            "method": "serverRequest/resolved",
            "params": {"threadId": "t", "requestId": 0},
            "emittedAtMs": 7,
        }
        asked = {"method": ASK, "id": 0, "params": json.loads(question().model_dump_json())}
        assert one.heard == [asked, resolved]
        assert two.heard == [{"jsonrpc": "2.0", **asked}, {"jsonrpc": "2.0", **resolved}]
        hub.answer(a, Answer(0, {"action": "accept"}, None))


@claim("questions:wait-for-listener")
async def test_a_question_waits_for_somebody_who_can_answer_it() -> None:
    hub = Hub(lambda: 7)
    asking = asyncio.create_task(hub.ask("t", ASK, question()))
    await asyncio.sleep(0)
    late, early = Listener(session(experimental=False)), Listener(None)
    with hub.connect(late) as a, hub.connect(early) as b:
        hub.subscribe(a, "other")
        assert late.heard == []
        hub.subscribe(b, "t")
        hub.subscribe(a, "t")
        hub.subscribe(a, "t")
        assert [message["method"] for message in late.heard] == [ASK]
        hub.answer(a, Answer(0, None, {"code": 1, "message": "no"}))
        assert await asking is None
        assert early.heard == []


@claim("experimental:events")
async def test_what_needs_the_opt_in_goes_to_those_who_opted_in_alone() -> None:
    hub = Hub(lambda: 7)
    stable, opted_in = Listener(session(experimental=False)), Listener(session())
    receipt = SignalReceipt(
        signal_id="1",
        source="s",
        thread_id="t",
        stage="accepted",
        woken=False,
        recipient_state="idle",
        at=1,
    )
    verify = UserVerificationElicitation(
        thread_id="t", server_name="s", title="", description="", challenge=""
    )
    with hub.connect(stable) as a, hub.connect(opted_in) as b:
        hub.subscribe(a, "t")
        hub.subscribe(b, "t")
        hub.emit("t", SignalUpdatedNotification(receipt=receipt))
        asking = asyncio.create_task(hub.ask("t", ASK, verify))
        await asyncio.sleep(0)
        hub.answer(b, Answer(0, {"action": "cancel"}, None))
        assert await asking == McpServerElicitationRequestResponse(action="cancel")
        hub.emit("t", WARNING)
    methods = ["signal/updated", ASK, "serverRequest/resolved", "warning"]
    assert [message["method"] for message in opted_in.heard] == methods
    assert stable.heard == [WIRE_WARNING]


async def test_nonsense_is_no_answer_and_a_withdrawn_question_is_settled_once() -> None:
    hub = Hub(lambda: 7)
    listener = Listener(session())
    with hub.connect(listener) as a:
        hub.subscribe(a, "t")
        asking = asyncio.create_task(hub.ask("t", ASK, question()))
        await asyncio.sleep(0)
        hub.answer(a, Answer(0, {"action": "perhaps"}, None))
        assert await asking is None
        asking = asyncio.create_task(hub.ask("t", ASK, question()))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.sleep(0)
    methods = [(message["method"], message.get("id")) for message in listener.heard]
    assert methods == [
        (ASK, 0),
        ("serverRequest/resolved", None),
        (ASK, 1),
        ("serverRequest/resolved", None),
    ]
    assert ServerRequestResolvedNotification.model_validate(listener.heard[3]["params"]) == (
        ServerRequestResolvedNotification(thread_id="t", request_id=1)
    )


# Dispatch.


def test_a_handler_without_a_method_breaks_the_start() -> None:
    async def handler(context: RequestContext, params: Any) -> Any:
        raise AssertionError

    with pytest.raises(ValueError, match="thread/lost"):
        Dispatcher({"thread/list": handler, "thread/lost": handler})


@claim("errors:internal")
async def test_a_handler_that_breaks_tells_nobody_why(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(context: RequestContext, params: Any) -> Any:
        raise LookupError("the secret is 42")

    dispatcher = Dispatcher(dict.fromkeys(METHODS, handler))
    context = RequestContext(1, "thread/list", False, session(), lambda _: None)
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
    context = RequestContext(1, method, False, session(), lambda _: None)
    answer = json.loads(await Dispatcher({}).dispatch(context, Request(1, method, None)))
    assert answer == {
        "id": 1,
        "error": {"code": -32601, "message": message, "data": {**data, "method": method}},
    }


@claim("bounds:outgoing")
async def test_an_answer_that_no_client_could_read_is_an_error() -> None:
    async def handler(context: RequestContext, params: Any) -> Any:
        return WarningNotification(message="x" * (1 << 20))

    dispatcher = Dispatcher(dict.fromkeys(METHODS, handler))
    context = RequestContext(1, "thread/list", False, session(experimental=False), lambda _: None)
    answer = json.loads(await dispatcher.dispatch(context, Request(1, "thread/list", {})))
    assert answer["error"]["data"]["code"] == "answerTooLarge"
    assert answer["error"]["data"]["limit"] == (1 << 20) - 1


# The whole way, over every transport.


@asynccontextmanager
async def stdio_pipes(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LinePipe]:
    """Replace this process's stdio by pipes and give the other ends."""
    server_in, client_out = os.pipe()
    client_in, server_out = os.pipe()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(client_in, "rb")
    )
    writing, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(client_out, "wb")
    )
    monkeypatch.setattr("sys.stdin", os.fdopen(server_in, "r"))
    monkeypatch.setattr("sys.stdout", os.fdopen(server_out, "w"))
    try:
        yield LinePipe(reader, asyncio.StreamWriter(writing, protocol, None, loop))
    finally:
        reading.close()
        writing.close()


@asynccontextmanager
async def connected(
    transport: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[WireClient]:
    """Give an uninitialized client of a server, over a transport."""
    if transport == "stdio":
        async with stdio_pipes(monkeypatch) as pipe, serve(home, listen=[StdioAddress()]):
            yield WireClient(pipe)
    else:
        address: Address = LOOPBACK if transport == "ws" else UnixAddress(home / "s" / "socket")
        async with serve(home, listen=[address]) as served, served.pipe() as pipe:
            yield WireClient(pipe)


@claim(
    "handshake:first", "handshake:once", "handshake:answer", "errors:unknown-method", "framing:echo"
)
@pytest.mark.parametrize("transport", ["ws", "unix", "stdio"])
async def test_the_handshake_over_every_transport(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(transport, tmp_path, monkeypatch) as client:
        early = await client.refusal("thread/list", {})
        assert (early.code, early.message) == (-32600, "Not initialized")
        assert early.data == {"code": "notInitialized"}
        nameless = await client.refusal("initialize", {"clientInfo": {"name": " ", "version": "1"}})
        assert (nameless.code, nameless.data["field"]) == (-32602, "clientInfo.name")
        result = await client.initialize("my-client")
        assert result["userAgent"].startswith("my-client/0.169.0 (")
        assert result["userAgent"].endswith("(my-client; 1)")
        assert result["codexHome"] == str(tmp_path)
        assert (result["platformFamily"], result["platformOs"]) == ("unix", "linux")
        again = await client.refusal("initialize", {"clientInfo": {"name": "x", "version": "1"}})
        assert (again.code, again.message) == (-32600, "Already initialized")
        unknown = await client.refusal("no/such", {})
        assert (unknown.code, unknown.message) == (-32601, "method not found: no/such")
        listed = await client.refusal("thread/loaded/list", [1])
        assert listed.code == -32602
        await client.send("nonsense")
        assert (await client.receive())["error"]["code"] == -32700
        await client.send('{"id":"last","method":"thread/loaded/list","params":{}}')
        assert await client.receive() == {"id": "last", "result": {"data": [], "nextCursor": None}}


async def test_a_client_that_says_jsonrpc_is_told_jsonrpc(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.pipe() as pipe:
        client = WireClient(pipe)
        params = {"clientInfo": {"name": "x", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        await client.send(message)
        assert (await client.receive())["jsonrpc"] == "2.0"
        await client.send({"id": 2, "method": "thread/start", "params": {}})
        assert [(await client.receive()).get("jsonrpc") for _ in range(2)] == ["2.0", "2.0"]
        await client.send([{"id": 3, "method": "no/such"}])
        (answer,) = await client.receive()
        assert answer["jsonrpc"] == "2.0"
        assert answer["error"]["code"] == -32601


@claim("experimental:refused", "experimental:hidden")
async def test_a_stable_client_neither_uses_nor_sees_what_is_experimental(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client(experimental=False) as client:
        refused = await client.refusal("thread/start", {"dynamicTools": []})
        assert (refused.code, refused.message) == (
            -32600,
            "thread/start.dynamicTools requires experimentalApi capability",
        )
        assert refused.data == {
            "code": "experimentalApiRequired",
            "descriptor": "thread/start.dynamicTools",
        }
        result = await client.call("thread/start", {})
        started = await client.wait_for("thread/started")
        hidden = {"environments", "extra", "canAcceptDirectInput", "attachedToThreadId"}
        assert hidden.isdisjoint(result["thread"])
        assert hidden.isdisjoint(started["params"]["thread"])
        assert {"multiAgentMode", "activePermissionProfile"}.isdisjoint(result)
    async with serve(tmp_path) as served, served.client() as client:
        result = await client.call("thread/start", {})
        assert hidden <= result["thread"].keys()
        assert {"multiAgentMode", "activePermissionProfile"} <= result.keys()


@claim("experimental:refused")
async def test_an_experimental_method_needs_the_opt_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = METHODS["thread/loaded/list"]
    changed = {**METHODS, "thread/loaded/list": replace(spec, experimental=True)}
    monkeypatch.setattr("app_server.rpc.dispatch.METHODS", changed)
    async with serve(tmp_path) as served:
        async with served.client() as client:
            assert (await client.call("thread/loaded/list", {}))["data"] == []
        async with served.client(experimental=False) as client:
            refused = await client.refusal("thread/loaded/list", {})
            assert refused.data == {
                "code": "experimentalApiRequired",
                "descriptor": "thread/loaded/list",
            }


@claim("handshake:opt-out")
async def test_notifications_can_be_opted_out_by_exact_name(tmp_path: Path) -> None:
    names = ["thread/started", "no/such/name", "turn/*"]
    async with serve(tmp_path) as served, served.client(optOutNotificationMethods=names) as client:
        result = await client.call("thread/start", {})
        await client.request("turn/start", {"threadId": result["thread"]["id"], "input": []})
        messages = await client.until("turn/completed")
        heard = {message.get("method") for message in messages}
        assert "thread/started" not in heard
        assert {"turn/started", "thread/status/changed"} <= heard


# The WebSocket listener.


def http_status(url: str, path: str, **headers: str) -> tuple[int, str]:
    """Make a plain HTTP request."""
    target = urllib.request.Request(url.replace("ws://", "http://") + path, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with closing(opener.open(target, timeout=WAIT_S)) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode()


@claim("listener:health", "listener:origin")
async def test_health_is_answered_and_web_pages_are_not(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        (url,) = served.urls

        async def get(path: str, **headers: str) -> tuple[int, str]:
            return await asyncio.to_thread(http_status, url, path, **headers)

        assert await get("/readyz") == (200, "ok\n")
        assert await get("/healthz") == (200, "ok\n")
        assert (await get("/readyz", Origin="http://x"))[0] == 403
        assert (await get("/other"))[0] == 426
        with pytest.raises(InvalidStatus) as caught:
            async with connect(url, origin="http://127.0.0.1", proxy=None, open_timeout=WAIT_S):  # type: ignore[arg-type]
                pass
        assert caught.value.response.status_code == 403


@claim("bounds:incoming")
async def test_a_message_above_the_bound_closes_its_socket_and_no_other(tmp_path: Path) -> None:
    limits = WebSocketLimits(max_message_bytes=1000)
    async with (
        serve(tmp_path, websocket=limits) as served,
        served.client() as other,
        served.pipe() as pipe,
    ):
        await pipe.send("x" * 1001)
        with pytest.raises(ConnectionClosed) as caught:
            await pipe.socket.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1009
        assert "1000" in caught.value.rcvd.reason
        assert await other.call("thread/loaded/list", {}) == {"data": [], "nextCursor": None}


async def test_one_client_too_many_is_turned_away(tmp_path: Path) -> None:
    limits = WebSocketLimits(max_connections=1)
    async with serve(tmp_path, websocket=limits) as served, served.client():
        with pytest.raises(InvalidStatus) as caught:
            async with served.pipe():
                pass
        assert caught.value.response.status_code == 503


async def test_binary_frames_and_broken_text_get_an_answer(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.pipe() as pipe:
        await pipe.socket.send(b"\x00\xff")
        answer = json.loads(await pipe.receive())
        assert (answer["id"], answer["error"]["code"]) == (None, -32700)
        await pipe.socket.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosed) as caught:
            await pipe.socket.recv()
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1007


@claim("listener:loopback-only")
@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ws://0.0.0.0:1", "refusing to listen on 0.0.0.0: it is not a loopback address"),
        ("ws://192.168.1.1:1", "refusing to listen on 192.168.1.1"),
        ("ws://localhost:1", "does not appear to be an IPv4 or IPv6 address"),
        ("ws://127.0.0.1", "the port is missing; 0 picks a free one"),
        ("ws://127.0.0.1:99999", "Port out of range"),
        ("ws://127.0.0.1:1/path", "nothing may follow the port"),
        ("http://127.0.0.1:1", "use ws://127.0.0.1:PORT, unix://PATH, stdio:// or off"),
    ],
)
def test_an_address_that_cannot_be_used_says_why(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=r"^(cannot|refusing to) listen on") as caught:
        parse_address(text, Path("/s"))
    assert complaint in str(caught.value)


def test_addresses_are_read() -> None:
    socket_path = Path("/home/app-server.sock")
    expected: dict[str, Address | None] = {
        "off": None,
        "stdio://": StdioAddress(),
        "unix://": UnixAddress(socket_path),
        "unix:///tmp/s": UnixAddress(Path("/tmp/s")),
        "ws://127.0.0.1:0": TcpAddress("127.0.0.1", 0),
        "ws://[::1]:8080": TcpAddress("::1", 8080),
    }
    assert {text: parse_address(text, socket_path) for text in expected} == expected


async def test_several_listeners_serve_one_set_of_threads(tmp_path: Path) -> None:
    listen: list[Address] = [LOOPBACK, UnixAddress(tmp_path / "socket"), TcpAddress("::1", 0)]
    async with serve(tmp_path, listen=listen) as served:
        assert [url.split(":")[0] for url in served.urls] == ["ws", "unix", "ws"]
        assert os.stat(tmp_path / "socket").st_mode & 0o777 == 0o600
        async with served.pipe(served.urls[0]) as first, served.pipe(served.urls[1]) as second:
            one, two = WireClient(first), WireClient(second)
            await one.initialize()
            await two.initialize()
            thread_id = await one.start_thread()
            started = await two.wait_for("thread/started")
            assert started["params"]["thread"]["id"] == thread_id
    assert not (tmp_path / "socket").exists()


async def test_a_socket_that_a_dead_server_left_is_replaced_and_a_live_one_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with serve(tmp_path, listen=[UnixAddress(path)]):
        with pytest.raises(OSError, match="another server listens on this socket"):
            async with serve(tmp_path / "b", listen=[UnixAddress(path)]):
                pass
    path.write_text("not a socket")
    with pytest.raises(OSError, match="exists and is not a socket"):
        async with serve(tmp_path, listen=[UnixAddress(path)]):
            pass


async def test_a_port_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="address already in use"):
            async with serve(tmp_path, listen=[TcpAddress("127.0.0.1", port)]):
                pass


async def test_a_line_above_the_bound_ends_a_conversation_on_stdio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app_server.transport.stdio.MAX_LINE_BYTES", 100)
    async with stdio_pipes(monkeypatch) as client:
        stream = await open_stdio()
        await client.send("\n" + "x" * 50)
        assert await stream.receive() == "x" * 50 + "\n"
        await client.send("x" * 1000)
        with pytest.raises(anyio.EndOfStream, match="longer than 100 bytes"):
            await stream.receive()
        await stream.send("hello")
        assert await client.receive() == "hello\n"
        await stream.aclose()


Check = Callable[[Any], bool]


@claim("fuzz:answers")
@pytest.mark.slow
async def test_a_thousand_frames_of_nonsense_disturb_nobody(tmp_path: Path) -> None:
    frames = [
        "{", "[", '"', "nul", "5", "null", '{"id":1}', '{"id":null,"method":"x"}',
        '{"id":1.5,"method":"x"}', '{"id":[],"method":"x"}', "[" * 300, "[]", "[[]]", "[1,2]",
        '{"id":1,"method":"thread/list","params":{"limit":1e999}}',
        '{"id":1,"method":"thread/list","params":{"limit":99999999999999999999999}}',
        '{"id":1,"method":"thread/list","params":"text"}',
        '{"id":1,"method":"thread/list","params":{"cursor":"\\u0000"}}',
        '{"id":1,"method":"thread/read","params":{"threadId":"../../etc/passwd"}}',
        '{"id":1,"method":"turn/start","params":{"threadId":"x","input":[{"type":"nonsense"}]}}',
        '{"id":1,"method":"thread/start","params":{"config":{"":{"":[]}}}}',
        '{"id":1,"method":"thread/start","params":{"cwd":"\\u0000"}}',
        '{"id":1,"method":"thread/start","params":{"config":{"mcp_servers":7}}}',
        '{"id":1,"method":"mcpServerStatus/list","params":{"cursor":"-1"}}',
        '{"id":1,"method":"\\ud83d\\ude00"}', '{"id":"' + "x" * 5000 + '","method":"x"}',
    ]  # fmt: skip
    async with serve(tmp_path) as served, served.client() as other, served.client() as client:
        for frame in frames * 40:
            await client.send(frame)
            answer = await client.receive()
            while "method" in answer:
                answer = await client.receive()
            for one in answer if isinstance(answer, list) else [answer]:
                assert one.get("error", {}).get("message") != "Internal error", frame
        assert await other.call("thread/loaded/list", {"limit": 1}) is not None
