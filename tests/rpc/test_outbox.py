"""rpc: what is sent to clients that fall behind."""

import asyncio
import json

import anyio
import anyio.lowlevel
import pytest

from app_server.rpc.connection import JOINED_CHARS, MANY_IN_FLIGHT, RpcConnection
from app_server.rpc.context import InitializedClient
from app_server.rpc.hub import Hub
from app_server.rpc.message_stream import ConnectionLimits, OutboxLimits
from app_server.rpc.outbox import Delta, Outbox
from protocol.jsonrpc.envelope import split_messages
from protocol.server.lifecycle import ClientInfo, InitializeCapabilities
from protocol.turns.items import AgentMessageDeltaNotification
from tests.support.harness import WAIT_S, claim
from tests.support.wire.conversations import (
    MemoryStream,
    Work,
    conversation,
    request,
)


def delta_of(key: str, text: str) -> tuple[str, Delta]:
    return text, Delta((key,), text, lambda joined: f"{key}:{joined}")


def add_delta(outbox: Outbox, key: str, text: str) -> None:
    whole, delta = delta_of(key, text)
    outbox.add(whole, delta=delta)


async def test_deltas_of_one_text_are_merged_for_a_client_that_falls_behind() -> None:
    outbox = Outbox(OutboxLimits(merge_above=2))
    for key, text in (("a", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("b", "5")):
        add_delta(outbox, key, text)
    outbox.add("whole")
    add_delta(outbox, "b", "6")
    outbox.close()
    taken = []
    for _ in range(6):
        taken.append(await outbox.take())
        outbox.release()
    with pytest.raises(anyio.EndOfStream):
        await outbox.take()
    assert taken == ["1", "2", "a:34", "b:5", "whole", "b:6"]


@claim("bounds:slow-client")
async def test_deltas_that_are_merged_count_among_what_waits() -> None:
    outbox = Outbox(OutboxLimits(merge_above=1, max_chars=50))
    for _ in range(5):
        add_delta(outbox, "a", "x" * 10)
    assert (outbox.messages, outbox.chars, outbox.overflowed) == (2, 50, False)
    for _ in range(2):
        await outbox.take()
        outbox.release()
    assert outbox.chars == 0
    for _ in range(6):
        add_delta(outbox, "a", "x" * 10)
    assert outbox.overflowed


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
        assert await stream.client_receive_all() == []
    assert stream.closed_with == (1013, "reads too slowly; resume later")


@claim("replay:too-much")
async def test_a_client_that_missed_what_cannot_be_sent_again_is_closed_with_1013() -> None:
    async with conversation(Work()) as (stream, connection, _):
        connection.post('"before"')
        assert await stream.client_receive() == ["before"]
        connection.give_up()
        connection.post('"too late"')
        assert await stream.client_receive_all() == []
    assert stream.closed_with == (1013, "reads too slowly; resume later")


async def test_requests_of_a_client_that_does_not_read_are_not_read_either() -> None:
    work = Work()
    limits = ConnectionLimits(outbox=OutboxLimits(merge_above=1))
    async with conversation(work, limits, window=0) as (stream, connection, _):
        for number in range(3):
            connection.post(str(number))
        await asyncio.sleep(0)
        stream.client_send(request(1))
        stream.client_send(request(2))
        assert await stream.client_receive(2) == [0, 1]
        assert len(work.started) < 2
        assert await stream.client_receive() == [2]
        await asyncio.sleep(0)
        work.let(1, 2)
        assert [answer["id"] for answer in await stream.client_receive(2)] == [1, 2]


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


async def test_who_takes_is_not_woken_for_a_message_that_was_sent_at_once() -> None:
    outbox = Outbox(OutboxLimits())
    taking = outbox.take()
    woken = taking.send(None)
    assert outbox.claim()
    outbox.release()
    assert not woken.done()
    outbox.add("waits")
    assert woken.done()
    with pytest.raises(StopIteration) as taken:
        taking.send(None)
    assert taken.value.value == "waits"


async def test_answers_of_many_requests_go_out_together_and_of_one_at_once() -> None:
    class Counting(MemoryStream):
        def __init__(self) -> None:
            super().__init__()
            self.writes: list[int] = []

        async def send(self, *texts: str) -> None:
            # As a socket with room: nobody else runs meanwhile.
            self.writes.append(len(texts))
            for text in texts:
                self._to_client.send_nowait(text)

    work, stream = Work(), Counting()
    connection = RpcConnection(stream, work, Hub(), ConnectionLimits())
    numbers = range(1, 101)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.run)
        stream.client_send(*(request(number, f"method/{number}") for number in numbers))
        await work.until_started(*numbers)
        work.let(*numbers)
        answers = await stream.client_receive(100)
        assert sorted(answer["id"] for answer in answers) == [*numbers]
        together = len(stream.writes)
        work.let("alone")
        stream.client_send(request("alone", "method/alone"))
        assert [answer["id"] for answer in await stream.client_receive()] == ["alone"]
        stream.finish()
    stream.drop()
    assert together <= MANY_IN_FLIGHT + 2
    assert stream.writes[together:] == [1]


async def test_a_client_that_has_gone_ends_the_conversation_quietly() -> None:
    class Broken(MemoryStream):
        async def send(self, *texts: str) -> None:
            raise anyio.BrokenResourceError

    work, stream, hub = Work(), Broken(), Hub()
    connection = RpcConnection(stream, work, hub, ConnectionLimits())
    work.let(1, 2)
    stream.client_send(request(1), request(2))
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            await work.until_started(1, 2)
            connection.post("x")
    stream.drop()


@claim("bounds:large")
async def test_large_answers_wait_beside_the_others_and_for_each_other() -> None:
    outbox = Outbox(OutboxLimits(max_chars=10, max_large_chars=100))
    await outbox.add_large("a" * 200)
    outbox.add("small")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.add_large, "b" * 60)
        tasks.start_soon(outbox.add_large, "c" * 60)
        await asyncio.sleep(0)
        assert outbox.messages == 2
        taken = []
        for _ in range(4):
            with anyio.fail_after(WAIT_S):
                taken.append(await outbox.take())
            outbox.release()
    assert taken == ["a" * 200, "small", "b" * 60, "c" * 60]
    assert not outbox.overflowed


async def test_large_answers_are_not_kept_for_a_client_that_gets_nothing_any_more() -> None:
    overflowed, closed = Outbox(OutboxLimits()), Outbox(OutboxLimits())
    overflowed.give_up()
    closed.close()
    for outbox in (overflowed, closed):
        await outbox.add_large("a" * 200)
        assert outbox.messages == 0


async def test_what_waits_is_written_at_once_up_to_a_bound() -> None:
    class Counting(MemoryStream):
        writes: list[int]

        async def send(self, *texts: str) -> None:
            # As a socket with room: nobody else runs meanwhile.
            self.writes.append(len(texts))
            for text in texts:
                self._to_client.send_nowait(text)

    stream = Counting()
    stream.writes = []
    connection = RpcConnection(stream, Work(), Hub(), ConnectionLimits())
    large = json.dumps("x" * JOINED_CHARS)
    for text in ('"a"', '"b"', '"c"', large, '"d"', large, '"e"'):
        connection.post(text)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            heard = await stream.client_receive(7)
            stream.finish()
    assert heard == ["a", "b", "c", json.loads(large), "d", json.loads(large), "e"]
    assert stream.writes == [3, 2, 2]
    stream.drop()


@pytest.mark.parametrize("is_of_node", [True, False])
async def test_what_follows_a_delta_for_another_node_is_written_at_once(is_of_node: bool) -> None:
    class Counting(MemoryStream):
        writes: list[int]

        async def send(self, *texts: str) -> None:
            self.writes.append(len(texts))
            for text in texts:
                self._to_client.send_nowait(text)

    stream = Counting()
    stream.writes = []
    limits = ConnectionLimits(gather_s=2.0)
    connection = RpcConnection(stream, Work(), Hub(), limits, is_of_node=is_of_node)
    delta = {"method": "item/agentMessage/delta", "params": {}}
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            for message in ({"method": "turn/started"}, delta, {"n": 1}, {"n": 2}):
                connection.post(json.dumps(message))
                # Others run, as between the pieces of a model's stream.
                for _ in range(5):
                    await anyio.lowlevel.checkpoint()
            heard = await stream.client_receive(4)
            stream.finish()
    assert heard == [{"method": "turn/started"}, delta, {"n": 1}, {"n": 2}]
    assert stream.writes == ([1, 1, 2] if is_of_node else [1, 1, 1, 1])
    stream.drop()


async def test_deltas_for_another_node_that_wait_together_are_one_frame() -> None:
    class Framed(MemoryStream):
        frames: list[str]

        async def send(self, *texts: str) -> None:
            self.frames.extend(texts)
            for text in texts:
                for message in split_messages(text):
                    self._to_client.send_nowait(message)

    stream = Framed()
    stream.frames = []
    connection = RpcConnection(stream, Work(), Hub(), ConnectionLimits(), is_of_node=True)
    delta = '{"method":"item/agentMessage/delta","params":{"delta":"\\u001e%d"}}'
    texts = [*(delta % number for number in range(3)), '{"method":"item/completed"}']
    for text in texts:
        connection.post(text)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            heard = await stream.client_receive(4)
            stream.finish()
    assert heard == [json.loads(text) for text in texts]
    assert stream.frames == ["\x1e".join(texts)]
    stream.drop()


async def test_a_run_of_deltas_larger_than_the_queue_is_merged() -> None:
    hub = Hub()
    limits = ConnectionLimits(outbox=OutboxLimits(merge_above=16, max_messages=200))
    stream = MemoryStream()
    connection = RpcConnection(stream, Work(), hub, limits)
    connection.initialized = InitializedClient(
        ClientInfo(name="c", version="1"), InitializeCapabilities(), False
    )
    with hub.connect(connection) as connection_id:
        hub.subscribe(connection_id, "t")
        first = AgentMessageDeltaNotification(thread_id="t", turn_id="u", item_id="i", delta="0")
        hub.emit("t", first, more=["1"] * 5_000)
        assert connection.load.messages == 17
    stream.finish()
    stream.drop()
