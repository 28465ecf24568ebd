"""The stream of a thread's events: numbers, bounds, and telling it again."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.handlers.views.threads import thread_settings
from app_server.rpc.connection import ConnectionLoad
from app_server.rpc.context import InitializedClient
from app_server.rpc.hub import MAX_AT_ONCE, Hub
from app_server.rpc.outbox import Delta, Outgoing
from app_server.rpc.replay import Position, ReplayBuffer, ReplayLimits
from protocol.contract.methods import METHOD_OF
from protocol.integrations.mcp import McpServerStatusUpdatedNotification
from protocol.jsonrpc.envelope import Answer, RepeatedNotifications
from protocol.model import WireModel
from protocol.server.lifecycle import ClientInfo, InitializeCapabilities, WarningNotification
from protocol.threads.settings import ThreadSettingsUpdatedNotification
from protocol.turns.elicitation import FormElicitation, McpElicitationSchema
from protocol.turns.items import AgentMessageDeltaNotification, ReasoningTextDeltaNotification
from protocol.turns.policy import GranularApprovals, GranularAskForApproval
from tests.support.harness import claim
from tests.support.threads.seen import merged
from tests.support.threads.stores import created

FORM = True, False, True
ASK = "mcpServer/elicitation/request"
STEP = "mcpServer/startupStatus/updated"


def text_delta(item_id: str, text: str) -> WireModel:
    return AgentMessageDeltaNotification(thread_id="t", turn_id="u", item_id=item_id, delta=text)


def thought(index: int, text: str) -> WireModel:
    return ReasoningTextDeltaNotification(
        thread_id="t", turn_id="u", item_id="r", delta=text, content_index=index
    )


def warned(text: str) -> WireModel:
    return WarningNotification(thread_id="t", message=text)


def steps(thread_id: str, names: Sequence[str]) -> list[WireModel]:
    return [
        McpServerStatusUpdatedNotification(thread_id=thread_id, name=name, status="ready")
        for name in names
    ]


texts = st.text(max_size=5)
events = st.one_of(
    st.builds(text_delta, st.sampled_from("ab"), texts),
    st.builds(thought, st.integers(0, 1), texts),
    st.builds(warned, texts),
)


class Client:
    """A peer of a hub that keeps what it is told."""

    def __init__(self, *, experimental: bool = True, jsonrpc: bool = False) -> None:
        capabilities = InitializeCapabilities(experimental_api=experimental)
        info = ClientInfo(name="c", version="1")
        self.initialized: InitializedClient | None = InitializedClient(info, capabilities, jsonrpc)
        self.is_behind = True
        self.is_of_node = False
        self.heard: list[Any] = []
        self.given_up = False
        self.load = ConnectionLoad(in_flight=0, messages=0, chars=0)

    def post(self, *texts: str, delta: Delta | None = None) -> None:
        self.heard.extend(map(json.loads, texts))

    async def wait_for_room(self) -> None:
        raise AssertionError("nobody waits here")

    def give_up(self) -> None:
        self.given_up = True


@claim("replay:equal")
@given(st.lists(events), st.data())
def test_what_is_sent_again_from_any_cut_equals_what_was_sent(
    told: list[WireModel], data: st.DataObject
) -> None:
    hub = Hub(lambda: 7)
    hub.open_stream("t")
    steady, away = Client(), Client()
    cut = data.draw(st.integers(0, len(told)))
    left = data.draw(st.integers(0, cut))
    with hub.connect(steady) as one, hub.connect(away) as two:
        hub.subscribe(one, "t")
        hub.subscribe(two, "t")
        stream = hub.streams.find("t")
        assert stream is not None
        for number, event in enumerate(told):
            if number == left:
                hub.unsubscribe(two, "t")
            if number == cut:
                hub.hold(two, "t", Position(stream.id, left))
                hub.release(two, "t")
            hub.emit("t", event)
        if cut == len(told):
            hub.hold(two, "t", Position(stream.id, left if left < len(told) else len(told)))
            hub.release(two, "t")
    assert [message["seq"] for message in steady.heard] == list(range(1, len(told) + 1))
    assert merged(away.heard) == merged(steady.heard)
    numbers = [message["seq"] for message in away.heard]
    assert numbers == sorted(set(numbers))
    assert not away.given_up


@given(st.lists(events), st.integers(1, 20), st.integers(1, 2000))
def test_a_stream_keeps_within_its_bounds_the_newest_events_without_a_gap(
    told: list[WireModel], max_events: int, max_bytes: int
) -> None:
    stream = ReplayBuffer(ReplayLimits(max_events, max_bytes))
    whole = ReplayBuffer(ReplayLimits(10_000, 1 << 30))
    for event in told:
        for each in (stream, whole):
            outgoing = Outgoing(METHOD_OF[type(event).__name__], event, 7, each.next_seqs(1)[0])
            each.keep([outgoing])
    if told:
        assert 1 <= stream.events <= len(told)
    assert stream.last == len(told)
    newest_alone = len(list(stream.since(0))) <= 1
    assert newest_alone or (stream.events <= max_events and stream.size <= max_bytes)
    oldest = stream.last - stream.events
    assert not stream.can_go_on(Position(stream.id, oldest - 1))
    assert not stream.can_go_on(Position(stream.id, stream.last + 1))
    assert not stream.can_go_on(Position(whole.id, oldest))
    for after in range(oldest, stream.last + 1):
        assert stream.can_go_on(Position(stream.id, after))
        kept = [json.loads(each.text(FORM)) for each in stream.since(after)]
        everything = [json.loads(each.text(FORM)) for each in whole.since(after)]
        assert merged(kept) == merged(everything)
    assert stream.forget() >= 0
    assert (stream.size, stream.events, list(stream.since(0))) == (0, 0, [])
    assert stream.can_go_on(Position(stream.id, stream.last))


def test_a_listener_that_is_held_gets_nothing_until_it_is_released() -> None:
    hub = Hub(lambda: 7)
    hub.open_stream("t")
    position = hub.streams.position("t")
    assert position is not None
    client = Client()
    with hub.connect(client) as connection:
        hub.hold(connection, "t", position)
        hub.emit("t", warned("1"))
        hub.broadcast(warned("2"))
        assert client.heard == []
        assert hub.has_subscribers("t")
        hub.release(connection, "t")
        hub.release(connection, "t")
        hub.emit("t", warned("3"))
    heard = [(message["seq"], message["params"]["message"]) for message in client.heard]
    assert heard == [(1, "1"), (2, "2"), (3, "3")]


@claim("replay:too-much")
def test_a_listener_that_was_held_for_too_long_is_given_up() -> None:
    hub = Hub(lambda: 7, ReplayLimits(max_events=2))
    hub.open_stream("t")
    client = Client()
    with hub.connect(client) as connection:
        position = hub.streams.position("t")
        assert position is not None
        hub.hold(connection, "t", position)
        for number in range(3):
            hub.emit("t", warned(str(number)))
        hub.release(connection, "t")
        assert (client.given_up, client.heard) == (True, [])


def test_a_listener_whose_thread_leaves_memory_while_it_is_held_misses_nothing() -> None:
    hub = Hub(lambda: 7)
    hub.open_stream("t")
    client = Client()
    with hub.connect(client) as connection:
        position = hub.streams.position("t")
        assert position is not None
        hub.hold(connection, "t", position)
        hub.close_stream("t")
        hub.broadcast(warned("gone"))
        hub.release(connection, "t")
        hub.emit("t", warned("last"))
    heard = [(message["params"]["message"], "seq" in message) for message in client.heard]
    assert (client.given_up, heard) == (False, [("gone", False), ("last", False)])


@claim("replay:opt-in")
def test_numbers_are_for_listeners_with_the_opt_in() -> None:
    hub = Hub(lambda: 7)
    hub.open_stream("t")
    listener, plain, stranger = Client(), Client(experimental=False), Client()
    with hub.connect(listener) as a, hub.connect(plain) as b, hub.connect(stranger):
        hub.subscribe(a, "t")
        hub.subscribe(b, "t")
        hub.emit("t", warned("1"))
        hub.broadcast(warned("2"))
        hub.notify(a, warned("to one"))
    assert [message.get("seq") for message in listener.heard] == [1, 2, None]
    assert [message.get("seq") for message in plain.heard] == [None, None]
    assert [message.get("seq") for message in stranger.heard] == [None]


@claim("replay:questions")
async def test_a_client_that_comes_back_is_asked_what_is_open_and_sent_what_was_settled() -> None:
    hub = Hub(lambda: 7)
    hub.open_stream("t")
    position = hub.streams.position("t")
    assert position is not None
    schema = McpElicitationSchema(type="object", properties={})
    question = FormElicitation(thread_id="t", server_name="s", message="?", requested_schema=schema)
    steady, back = Client(), Client()
    with hub.connect(steady) as one:
        hub.subscribe(one, "t")
        settled = asyncio.create_task(hub.ask("t", ASK, question))
        await asyncio.sleep(0)
        hub.answer(one, Answer(0, {"action": "accept"}, None))
        await settled
        still_open = asyncio.create_task(hub.ask("t", ASK, question))
        await asyncio.sleep(0)
        with hub.connect(back) as two:
            hub.hold(two, "t", position)
            later = asyncio.create_task(hub.ask("t", ASK, question))
            await asyncio.sleep(0)
            assert back.heard == []
            hub.release(two, "t")
            heard = [(m["method"], m.get("id"), m["params"].get("requestId")) for m in back.heard]
            assert heard == [
                ("serverRequest/resolved", None, 0),
                (ASK, 1, None),
                (ASK, 2, None),
            ]
            for number in (1, 2):
                hub.answer(two, Answer(number, {"action": "decline"}, None))
            await still_open
            await later


@pytest.mark.parametrize("jsonrpc", [True, False])
@pytest.mark.parametrize("experimental", [True, False])
def test_what_is_sent_again_has_the_form_of_its_client(jsonrpc: bool, experimental: bool) -> None:
    hub = Hub(lambda: 7)
    hub.open_stream("t")
    position = hub.streams.position("t")
    assert position is not None
    live, late = (Client(experimental=experimental, jsonrpc=jsonrpc) for _ in range(2))
    policy = GranularAskForApproval(
        granular=GranularApprovals(mcp_elicitations=True, rules=True, sandbox_approval=True)
    )
    settings = thread_settings(created().settings.model_copy(update={"approval_policy": policy}))
    with hub.connect(live) as one, hub.connect(late) as two:
        hub.subscribe(one, "t")
        hub.emit("t", ThreadSettingsUpdatedNotification(thread_id="t", thread_settings=settings))
        hub.emit("t", text_delta("a", "text"))
        hub.hold(two, "t", position)
        hub.release(two, "t")
    assert late.heard == live.heard
    # Settings are told to those alone who know all their forms.
    assert [message["method"] for message in late.heard] == [
        *(["thread/settings/updated"] if experimental else []),
        "item/agentMessage/delta",
    ]
    assert ("jsonrpc" in late.heard[0], "seq" in late.heard[0]) == (jsonrpc, experimental)


@pytest.mark.parametrize("jsonrpc", [True, False])
@pytest.mark.parametrize("experimental", [True, False])
@given(st.text(min_size=1, max_size=5), st.lists(texts, min_size=1, max_size=3), st.data())
def test_repeated_events_are_sent_and_sent_again_as_others_are(
    jsonrpc: bool, experimental: bool, thread_id: str, names: list[str], data: st.DataObject
) -> None:
    known = data.draw(st.integers(0, 1 + len(names)))
    heard = []
    for is_repeated in (True, False):
        hub = Hub(lambda: 7)
        hub.open_stream(thread_id)
        stream = hub.streams.find(thread_id)
        assert stream is not None
        live, late = (Client(experimental=experimental, jsonrpc=jsonrpc) for _ in range(2))
        with hub.connect(live) as one, hub.connect(late) as two, hub.connect(Client()):
            hub.subscribe(one, thread_id)
            hub.emit(thread_id, text_delta("a", "before"))
            hub.hold(two, thread_id, Position(stream.id, known))
            if is_repeated:
                hub.emit_repeated(thread_id, RepeatedNotifications(STEP, *steps("", names)))
            else:
                hub.emit(thread_id, *steps(thread_id, names))
            assert (late.heard, stream.events) == ([], 1 + len(names))
            hub.release(two, thread_id)
        assert late.heard == live.heard[known:]
        hub.close_stream(thread_id)
        assert hub.streams.total_bytes == 0
        heard.append(live.heard)
    assert heard[0] == heard[1]


def test_repeated_events_without_a_stream_have_no_number() -> None:
    hub, client = Hub(lambda: 7), Client()
    with hub.connect(client) as one:
        hub.subscribe(one, "t")
        hub.emit_repeated("t", RepeatedNotifications(STEP, *steps("", ["a"])))
    (message,) = client.heard
    assert (message["params"]["threadId"], message["params"]["name"]) == ("t", "a")
    assert "seq" not in message


async def test_whoever_sends_many_clients_much_is_asked_to_let_others_run() -> None:
    hub = Hub(lambda: 7)
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    with hub.connect(Client()) as one, hub.connect(Client()) as two:
        hub.subscribe(one, "t")
        hub.subscribe(two, "t")
        told = 0
        while not hub.is_crowded:
            hub.emit("t", warned("x"))
            told += 2
        assert told == MAX_AT_ONCE
        task = asyncio.create_task(other())
        await hub.yield_to_loop()
        order.append("told more")
        assert not hub.is_crowded
        await task
    assert order == ["other", "told more"]


def test_two_streams_of_one_thread_have_different_ids() -> None:
    hub = Hub()
    ids = set()
    for _ in range(3):
        hub.open_stream("t")
        position = hub.streams.position("t")
        assert position is not None
        ids.add(position.stream_id)
        hub.close_stream("t")
    assert len(ids) == 3
    assert hub.streams.position("t") is None


@pytest.mark.parametrize("kept", [1, 300])
def test_a_long_text_leaves_the_stream_in_parts(kept: int) -> None:
    stream = ReplayBuffer(ReplayLimits(max_events=kept))
    for _ in range(1000):
        outgoing = Outgoing(
            "item/agentMessage/delta", text_delta("a", "x"), 7, stream.next_seqs(1)[0]
        )
        stream.keep([outgoing])
    assert kept <= stream.events + 64
    assert stream.events <= max(kept, 64)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=80), st.data())
def test_a_run_of_pieces_is_sent_and_kept_like_one_after_the_other(
    pieces: list[str], data: st.DataObject
) -> None:
    together, apart = Hub(lambda: 7), Hub(lambda: 7)
    cut = data.draw(st.integers(0, len(pieces)))
    runs = [run for run in (pieces[:cut], pieces[cut:]) if run]

    def delta(text: str) -> AgentMessageDeltaNotification:
        return AgentMessageDeltaNotification(thread_id="t", turn_id="u", item_id="i", delta=text)

    told: list[list[Any]] = []
    for hub in (together, apart):
        hub.open_stream("t")
        listening, stable = Client(), Client(experimental=False)
        with hub.connect(listening) as one, hub.connect(stable) as two:
            hub.subscribe(one, "t")
            hub.subscribe(two, "t")
            before = hub.streams.position("t")
            for run in runs:
                if hub is together:
                    hub.emit("t", delta(run[0]), more=run[1:])
                else:
                    for piece in run:
                        hub.emit("t", delta(piece))
            assert before is not None
            stream = hub.streams.find("t")
            assert stream is not None
            told.append(
                [
                    listening.heard,
                    stable.heard,
                    [entry.text((True, False, True)) for entry in stream.since(before.seq)],
                    (stream.last, stream.size, stream.events),
                ]
            )
    assert told[0] == told[1]
    assert [message["params"]["delta"] for message in told[0][0]] == pieces
    assert [message["seq"] for message in told[0][0]] == list(range(1, len(pieces) + 1))
