"""rpc: one answer to each request, also in batches and at the end."""

import asyncio
import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from app_server.rpc.connection import JOINED_CHARS, RpcConnection
from app_server.rpc.context import RequestContext
from app_server.rpc.hub import Hub
from app_server.rpc.message_stream import ConnectionLimits
from app_server.rpc.outbox import Outbox
from protocol.jsonrpc.envelope import Request, render_result
from tests.support.event_loop.clock import LoopClock
from tests.support.harness import WAIT_S, claim
from tests.support.wire.conversations import MemoryStream, Work, conversation, request


@claim("bounds:in-flight")
async def test_one_request_too_many_is_refused_and_the_others_go_on() -> None:
    work = Work()
    async with conversation(work, ConnectionLimits(max_in_flight=2)) as (stream, _, _):
        stream.client_send(
            request(1, thread=None), request(2, thread=None), request(3, thread=None)
        )
        assert await stream.client_receive() == [
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
        await stream.client_receive(2)
        stream.client_send(request(4, thread=None))
        assert await stream.client_receive() == [{"id": 4, "result": {"method": "turn/start"}}]


@claim("framing:batch")
async def test_a_batch_gets_one_array_without_answers_to_notifications() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        stream.client_send(
            [request(1, thread=None), {"method": "initialized"}, 5, request(2, thread=None)]
        )
        stream.client_send([{"method": "initialized"}], request(3, thread=None))
        work.let(1, 2)
        (answers,) = await stream.client_receive()
        assert [answer["id"] for answer in answers] == [None, 1, 2]
        work.let(3)
        assert await stream.client_receive() == [{"id": 3, "result": {"method": "turn/start"}}]


async def test_a_batch_holds_back_what_follows_its_answers() -> None:
    class Following:
        services: object = None

        def refused(self, failure: str) -> None:
            """Count nothing."""

        async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
            context.after_answer(lambda: connection.post(f'"after {request.id}"'))
            return render_result(request.id, {})

    async with conversation(Following()) as (stream, connection, _):
        stream.client_send([request(1), request(2)])
        answers, *after = await stream.client_receive(3)
        assert [answer["id"] for answer in answers] == [1, 2]
        assert after == ["after 1", "after 2"]


async def test_batches_that_were_answered_are_not_kept() -> None:
    work = Work()
    work.let(*range(10))
    async with conversation(work) as (stream, connection, _):
        for number in range(10):
            stream.client_send([request(number)])
            await stream.client_receive()
        assert len(connection._batches) <= 1


async def test_requests_are_finished_and_answered_after_the_client_has_finished_sending() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        stream.client_send(request(1))
        stream.finish()
        await work.until_started(1)
        work.let(1)
        assert await stream.client_receive_all() == [{"id": 1, "result": {"method": "turn/start"}}]
    assert stream.closed_with == (1000, "")


async def test_an_answer_goes_past_the_outbox_where_nothing_waits_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def add(*_: object) -> None:
        raise AssertionError("its write task would have to wake")

    monkeypatch.setattr(Outbox, "add", add)
    work = Work()
    work.let(1)
    async with conversation(work) as (stream, _, _):
        stream.client_send(request(1))
        assert await stream.client_receive() == [{"id": 1, "result": {"method": "turn/start"}}]


async def test_a_request_that_never_ends_does_not_hold_up_the_end() -> None:
    async with conversation(Work(), ConnectionLimits(finish_s=0.01)) as (stream, _, _):
        stream.client_send(request(1))
        stream.finish()
        assert await stream.client_receive_all() == []


async def test_what_follows_an_answer_happens_also_when_the_request_is_cancelled() -> None:
    followed: list[str] = []
    begun = anyio.Event()

    class Hanging:
        services: object = None

        def refused(self, failure: str) -> None:
            """Count nothing."""

        async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
            context.after_answer(lambda: followed.append("after"))
            begun.set()
            await anyio.sleep_forever()
            raise AssertionError

    async with conversation(Hanging(), ConnectionLimits(finish_s=0.01)) as (stream, _, _):
        stream.client_send(request(1))
        await begun.wait()
        stream.finish()
        assert await stream.client_receive_all() == []
    assert followed == ["after"]


@pytest.mark.parametrize("thread", [None, "t"], ids=["free", "in a queue"])
async def test_a_cancelled_request_ends_what_it_has_shielded(thread: str | None) -> None:
    begun, disk, ended = anyio.Event(), anyio.Event(), anyio.Event()

    class Writing:
        services: object = None

        def refused(self, failure: str) -> None:
            """Count nothing."""

        async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
            begun.set()
            try:
                with anyio.CancelScope(shield=True):
                    await disk.wait()
                    ended.set()
                await anyio.sleep_forever()
            finally:
                cancelled.set()
            raise AssertionError

    cancelled = anyio.Event()
    async with conversation(Writing(), ConnectionLimits(finish_s=0)) as (stream, _, _):
        stream.client_send(request(1, thread=thread))
        await begun.wait()
        stream.finish()
        # The end is due, and more than due.
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        assert not cancelled.is_set()
        disk.set()
        assert await stream.client_receive_all() == []
    assert ended.is_set()


async def test_a_conversation_that_is_cancelled_ends_what_its_requests_have_shielded() -> None:
    begun, disk, ended = anyio.Event(), anyio.Event(), anyio.Event()

    class Writing:
        services: object = None

        def refused(self, failure: str) -> None:
            """Count nothing."""

        def is_immediate(self, method: str) -> bool:
            """Load nothing."""
            return True

        async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
            begun.set()
            with anyio.CancelScope(shield=True):
                await disk.wait()
                ended.set()
            await anyio.sleep_forever()
            raise AssertionError

    stream = MemoryStream()
    connection = RpcConnection(stream, Writing(), Hub(), ConnectionLimits())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(connection.run)
        stream.client_send(request(1))
        await begun.wait()
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
            disk.set()
    stream.drop()
    assert ended.is_set()


async def test_what_follows_answers_happens_also_when_their_batch_is_never_complete() -> None:
    followed: list[str | int] = []
    first = anyio.Event()

    class HangingAtTwo:
        services: object = None

        def refused(self, failure: str) -> None:
            """Count nothing."""

        async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
            context.after_answer(lambda: followed.append(request.id))
            if request.id == 2:
                await first.wait()
                await anyio.sleep_forever()
            first.set()
            return "1"

    async with conversation(HangingAtTwo(), ConnectionLimits(finish_s=0.01)) as (stream, _, _):
        stream.client_send([request(1, thread=None), request(2, thread=None)])
        await first.wait()
        stream.finish()
        assert await stream.client_receive_all() == []
    assert sorted(followed, key=str) == [1, 2]


async def test_what_follows_an_answer_may_have_something_follow_it() -> None:
    followed: list[str] = []

    class Following:
        services: object = None

        def refused(self, failure: str) -> None:
            """Count nothing."""

        async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
            def first() -> None:
                followed.append("first")
                context.after_answer(followed.append, "third")

            context.after_answer(first)
            context.after_answer(followed.append, "second")
            return "1"

    async with conversation(Following(), ConnectionLimits()) as (stream, _, _):
        stream.client_send(request(1))
        assert await stream.client_receive() == [1]
    assert followed == ["first", "second", "third"]


async def test_what_follows_an_answer_happens_also_when_nobody_takes_the_answer() -> None:
    followed: list[str] = []
    begun = anyio.Event()

    class Following:
        services: object = None

        def refused(self, failure: str) -> None:
            """Count nothing."""

        async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
            context.after_answer(lambda: followed.append("after"))
            begun.set()
            return "1"

    limits = ConnectionLimits(finish_s=0.01)
    async with conversation(Following(), limits, window=0) as (stream, _, _):
        stream.client_send(request(1))
        await begun.wait()
    assert followed == ["after"]


async def test_a_client_that_takes_nothing_after_its_end_is_given_up() -> None:
    work = Work()
    limits = ConnectionLimits(finish_s=0.01)
    async with conversation(work, limits, window=0) as (stream, _, _):
        # Two, so that one of them waits in the outbox.
        stream.client_send(request(1, thread=None), request(2, thread=None))
        stream.finish()
        work.let(1, 2)
    assert stream.closed_with == (1000, "")


async def test_a_conversation_ends_when_nothing_can_be_sent_though_the_client_may_send() -> None:
    class HalfClosed(MemoryStream):
        async def send(self, *texts: str) -> None:
            raise anyio.BrokenResourceError

        async def aclose(self, code: int = 1000, reason: str = "") -> None:
            self._to_client.close()

    work, left = Work(), anyio.Event()
    stream, hub = HalfClosed(), Hub(lambda: 7)
    connection = RpcConnection(stream, work, hub, ConnectionLimits(finish_s=WAIT_S))
    stream.client_send(request(1, thread=None), request(2, thread=None))
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connection.run)
            await work.until_started(1, 2)
            hub.connections.when_gone(connection.load.id, lambda _: left.set())
            work.let(1)
            # At once: the other request is still worked on.
            await left.wait()
            assert connection.load.in_flight == 1
            work.let(2)
    stream.drop()


async def test_a_write_to_a_client_that_stays_has_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = LoopClock(monkeypatch)
    async with conversation(Work()) as (stream, connection, _):
        connection.post('"first"')
        assert await stream.client_receive() == ["first"]
        clock.put_forward(10 * ConnectionLimits().finish_s)
        connection.post('"second"')
        assert await stream.client_receive() == ["second"]
        assert stream.closed_with is None


async def test_after_its_end_each_write_to_a_client_has_its_own_bound() -> None:
    async with conversation(Work(), window=0) as (stream, connection, _):
        for number in range(3):
            # Too large for one write.
            connection.post(json.dumps({"number": number, "padding": "x" * JOINED_CHARS}))
        stream.finish()
        with anyio.fail_after(WAIT_S):
            while not connection._outbox.is_closed:
                await anyio.lowlevel.checkpoint()
        before = connection._writing.deadline
        assert [message["number"] for message in await stream.client_receive(3)] == [0, 1, 2]
        assert connection._writing.deadline > before


async def test_finishing_from_our_side_answers_what_was_read() -> None:
    work = Work()
    async with conversation(work) as (stream, connection, _):
        stream.client_send(request(1), {"id": 2, "method": "initialize"})
        await work.until_started(1, 2)
        connection.finish()
        work.let(1, 2)
        assert {answer["id"] for answer in await stream.client_receive_all()} == {1, 2}
    assert stream.closed_with == (1001, "the server stops")


async def test_a_conversation_that_is_cancelled_closes_its_stream() -> None:
    stream = MemoryStream(1_000_000)
    connection = RpcConnection(stream, Work(), Hub(lambda: 7), ConnectionLimits())
    task = asyncio.create_task(connection.run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert stream.closed_with == (1000, "")
    stream.drop()
