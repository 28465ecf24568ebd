"""rpc: events to those who listen, and questions to clients."""

import asyncio
import gc
import json
import weakref
from typing import Any

import anyio
import pytest

from app_server.rpc.connection import ConnectionLoad
from app_server.rpc.context import InitializedClient
from app_server.rpc.hub import Hub
from app_server.rpc.outbox import Delta, Outgoing
from app_server.rpc.replay import Position, ReplayLimits
from protocol.integrations.skills import SkillsChangedNotification
from protocol.jsonrpc.envelope import Answer, RequestId
from protocol.model import WireModel
from protocol.server.lifecycle import WarningNotification
from protocol.signals.delivery import SignalReceipt, SignalUpdatedNotification
from protocol.threads.notifications import ServerRequestResolvedNotification
from protocol.turns.elicitation import (
    FormElicitation,
    McpElicitationSchema,
    McpServerElicitationRequestResponse,
    UserVerificationElicitation,
)
from protocol.turns.items import AgentMessageDeltaNotification
from tests.support.harness import WAIT_S, claim
from tests.support.wire.conversations import session


class Listener:
    """A peer of the hub."""

    def __init__(self, settled: InitializedClient | None) -> None:
        self.initialized = settled
        self.is_behind = True
        self.is_of_node = False
        self.heard: list[Any] = []
        self.deltas: list[Delta | None] = []
        self.load = ConnectionLoad(in_flight=0, messages=0, chars=7)

    def post(self, *texts: str, delta: Delta | None = None) -> None:
        self.heard.extend(map(json.loads, texts))
        self.deltas.extend(delta for _ in texts)

    async def wait_for_room(self) -> None:
        raise AssertionError("nobody waits here")

    def give_up(self) -> None:
        self.heard.append("given up")


class Observer:
    """An observer of the hub."""

    def __init__(self) -> None:
        self.seen: list[WireModel] = []

    def observe(self, event: WireModel) -> None:
        self.seen.append(event)

    def asking(self, thread_id: str, request_id: RequestId, method: str, params: WireModel) -> None:
        raise AssertionError("nothing is asked here")

    def asked(self, thread_id: str, request_id: RequestId, method: str, *, answered: bool) -> None:
        raise AssertionError("nothing is asked here")


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
        assert hub.has_subscribers("t")
        hub.emit("t", WARNING)
        hub.emit("nobody listens", WARNING)
        assert plain.heard == [WIRE_WARNING]
        assert with_jsonrpc.heard == [{"jsonrpc": "2.0", **WIRE_WARNING}]
        assert opted_out.heard == stranger.heard == early.heard == []
        hub.broadcast(WARNING)
        assert stranger.heard == [WIRE_WARNING]
        hub.notify(a, WARNING)
        hub.notify(99, WARNING)
        assert len(plain.heard) == 3
        assert hub.unsubscribe(a, "t")
        assert not hub.unsubscribe(a, "t")
        hub.emit("t", WARNING)
        assert len(plain.heard) == 3
    assert not hub.has_subscribers("t")
    hub.subscribe(a, "t")
    assert not hub.has_subscribers("t")


def test_events_that_are_sent_together_are_what_they_are_one_by_one() -> None:
    events = [WarningNotification(thread_id="t", message=text) for text in "abc"]
    heard = []
    for together in (True, False):
        hub = Hub(lambda: 7, ReplayLimits(max_events=2))
        observer = Observer()
        hub.observers.append(observer)
        hub.open_stream("t")
        listener, later = Listener(session(experimental=True)), Listener(session(experimental=True))
        with hub.connect(listener) as a, hub.connect(later) as b:
            hub.subscribe(a, "t")
            if together:
                hub.emit("t", *events)
            else:
                for event in events:
                    hub.emit("t", event)
            stream = hub.streams.find("t")
            assert stream is not None
            hub.hold(b, "t", Position(stream.id, 1))
            hub.release(b, "t")
        assert observer.seen == events
        heard.append((listener.heard, later.heard))
    assert heard[0] == heard[1]
    assert [message["seq"] for message in heard[0][0]] == [1, 2, 3]
    assert [message["seq"] for message in heard[0][1]] == [2, 3]


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


def test_a_delta_that_was_sent_is_freed_without_the_garbage_collector() -> None:
    event = AgentMessageDeltaNotification(thread_id="t", turn_id="u", item_id="i", delta="a")
    outgoing = Outgoing("item/agentMessage/delta", event, at_ms=7)
    held = outgoing.delta((True, False, False))
    assert held is not None
    assert "ab" in held.render("ab")
    freed = weakref.ref(event)
    gc.disable()
    try:
        del outgoing, held, event
        assert freed() is None
    finally:
        gc.enable()


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
        assert await asking == (McpServerElicitationRequestResponse(action="decline"), "c")
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
        assert await asking == (None, "c")
        assert early.heard == []


UNKNOWN = {"code": -32601, "message": "what?"}


@claim("questions:unknown-method")
async def test_a_client_that_does_not_know_a_question_leaves_it_to_the_others() -> None:
    hub = Hub(lambda: 7)
    with hub.connect(Listener(session())) as a, hub.connect(Listener(session())) as b:
        hub.subscribe(a, "t")
        hub.subscribe(b, "t")
        asking = asyncio.create_task(hub.ask("t", ASK, question()))
        await asyncio.sleep(0)
        hub.answer(a, Answer(0, None, UNKNOWN))
        hub.answer(b, Answer(0, {"action": "accept"}, None))
        assert await asking == (McpServerElicitationRequestResponse(action="accept"), "c")
        asking = asyncio.create_task(hub.ask("t", ASK, question()))
        await asyncio.sleep(0)
        hub.answer(a, Answer(1, None, UNKNOWN))
        hub.answer(b, Answer(1, None, UNKNOWN))
        assert await asking == (None, "c")
        with hub.connect(Listener(session())) as c:
            hub.subscribe(c, "t")
            asking = asyncio.create_task(hub.ask("t", ASK, question()))
            await asyncio.sleep(0)
        # One that has gone answers no more.
        hub.answer(a, Answer(2, None, UNKNOWN))
        hub.answer(b, Answer(2, None, UNKNOWN))
        assert await asking == (None, "c")


@claim("questions:unknown-method")
@pytest.mark.parametrize("way", ["disconnects", "unsubscribes", "was to be asked later"])
async def test_a_question_that_one_passed_on_is_refused_when_the_other_leaves(way: str) -> None:
    hub = Hub(lambda: 7)
    stays = Listener(session())
    with hub.connect(stays) as a:
        hub.subscribe(a, "t")
        hub.open_stream("t")
        with hub.connect(Listener(session())) as b:
            if way == "was to be asked later":
                position = hub.streams.position("t")
                assert position is not None
                hub.hold(b, "t", position)
            else:
                hub.subscribe(b, "t")
            asking = asyncio.create_task(hub.ask("t", ASK, question()))
            other = asyncio.create_task(hub.ask("elsewhere", ASK, question()))
            await asyncio.sleep(0)
            hub.answer(a, Answer(0, None, UNKNOWN))
            await asyncio.sleep(0)
            assert not asking.done()
            if way == "unsubscribes":
                hub.unsubscribe(b, "t")
                with anyio.fail_after(WAIT_S):
                    await asking
        with anyio.fail_after(WAIT_S):
            assert await asking == (None, "c")
        assert [message["method"] for message in stays.heard] == [ASK, "serverRequest/resolved"]
        assert not other.done()
        other.cancel()


@claim("questions:unknown-method", "questions:wait-for-listener")
async def test_it_waits_for_the_next_one_if_nobody_is_left_or_somebody_comes() -> None:
    hub = Hub(lambda: 7)
    hub.open_stream("t")
    late = Listener(session())
    with hub.connect(late) as c:
        with hub.connect(Listener(session())) as a, hub.connect(Listener(session())) as b:
            hub.subscribe(a, "t")
            hub.subscribe(b, "t")
            asking = asyncio.create_task(hub.ask("t", ASK, question()))
            await asyncio.sleep(0)
            hub.answer(a, Answer(0, None, UNKNOWN))
            # On its way: it is asked once it has heard of what it missed.
            position = hub.streams.position("t")
            assert position is not None
            hub.hold(c, "t", position)
            hub.unsubscribe(b, "t")
            await asyncio.sleep(0)
            assert not asking.done()
            hub.unsubscribe(a, "t")
            hub.unsubscribe(c, "t")
        await asyncio.sleep(0)
        assert not asking.done()
        hub.subscribe(c, "t")
        hub.answer(c, Answer(0, {"action": "accept"}, None))
        assert await asking == (McpServerElicitationRequestResponse(action="accept"), "c")


@pytest.mark.parametrize("who", ["one", "all"])
async def test_a_question_about_no_thread_ends_with_the_last_who_was_asked(who: str) -> None:
    hub = Hub(lambda: 7)
    with hub.connect(Listener(session())) as stays:
        with hub.connect(Listener(session())) as leaves:
            # All are asked in the place of one who is not there.
            preferred = leaves if who == "one" else leaves + 1
            asking = asyncio.create_task(hub.ask_client(ASK, question(), preferred))
            await asyncio.sleep(0)
            if who == "all":
                hub.answer(stays, Answer(0, None, UNKNOWN))
                assert not asking.done()
        with anyio.fail_after(WAIT_S):
            assert await asking is None


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
        assert await asking == (McpServerElicitationRequestResponse(action="cancel"), "c")
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
        assert await asking == (None, "c")
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


def test_clients_of_other_nodes_are_told_of_what_they_follow_here_alone() -> None:
    hub = Hub(lambda: 7)
    own, following, other = (Listener(session()) for _ in range(3))
    following.is_of_node = other.is_of_node = True
    told: list[str] = []
    hub.on_broadcast = lambda event: told.append(type(event).__name__)
    about_all = SkillsChangedNotification()
    with hub.connect(own), hub.connect(following) as follower, hub.connect(other):
        hub.subscribe(follower, "t")
        hub.broadcast(WARNING)
        hub.broadcast(about_all)
        hub.notify(follower, WARNING)
    assert [message["method"] for message in own.heard] == ["warning", "skills/changed"]
    assert [message["method"] for message in following.heard] == ["warning", "warning"]
    assert other.heard == []
    assert told == ["WarningNotification", "SkillsChangedNotification"]
    with hub.connect(own), hub.connect(other):
        hub.broadcast(about_all)
    assert (len(own.heard), other.heard) == (3, [])


def test_the_question_of_another_node_is_answered_once_by_whom_it_was_for() -> None:
    hub = Hub(lambda: 7)
    answers: list[Answer] = []
    with hub.connect(Listener(session())) as asked, hub.connect(Listener(session())) as other:
        first = hub.server_requests.pass_on(asked, answers.append)
        second = hub.server_requests.pass_on(asked, answers.append)
        answer = Answer(first, {"x": 1}, None)
        hub.answer(other, answer)
        hub.answer(asked, answer)
        hub.answer(asked, answer)
        hub.server_requests.withdraw(second)
        hub.answer(asked, Answer(second, {}, None))
    assert answers == [answer]
    assert hub.server_requests.count == 0
