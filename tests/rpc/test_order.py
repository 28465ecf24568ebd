"""rpc: the order of requests of a thread."""

import asyncio
import json
import threading
from collections import deque
from typing import Any

import anyio
import pytest

from app_server.observability.log_context import REQUEST, THREAD
from app_server.rpc.connection import STEP, RequestQueues, RpcConnection
from app_server.rpc.context import Handler, RequestContext
from app_server.rpc.dispatch import Dispatcher
from app_server.rpc.hub import Hub
from app_server.rpc.message_stream import ConnectionLimits
from protocol.contract.methods import METHODS
from protocol.contract.specs import Access
from protocol.jsonrpc.envelope import Request
from protocol.server.lifecycle import WarningNotification
from protocol.threads.lists import ThreadLoadedListResponse
from tests.support.harness import WAIT_S, claim
from tests.support.wire.conversations import (
    MemoryStream,
    Work,
    conversation,
    request,
    session,
)


@claim("order:one-thread")
async def test_requests_of_one_thread_run_in_their_order() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        stream.client_send(
            request(1), request(2), request(3, thread="u"), request(4, "thread/list")
        )
        await work.until_started(1, 3, 4)
        work.let(1)
        assert await stream.client_receive() == [{"id": 1, "result": {"method": "turn/start"}}]
        await work.until_started(1, 3, 4, 2)
        work.let(2, 3, 4)
        assert {answer["id"] for answer in await stream.client_receive(3)} == {2, 3, 4}


async def test_reads_of_one_thread_run_side_by_side_but_not_beside_a_write() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        stream.client_send(
            request(1, "thread/read"),
            request(2, "thread/read"),
            request(3),
            request(4, "thread/read"),
        )
        await work.until_started(1, 2)
        work.let(2)
        await stream.client_receive()
        work.let(1)
        await work.until_started(1, 2, 3)
        work.let(3)
        await work.until_started(1, 2, 3, 4)
        work.let(4)
        assert [answer["id"] for answer in await stream.client_receive(3)] == [1, 3, 4]


@pytest.mark.parametrize(
    ("change", "look"),
    [
        ("config/value/write", "config/read"),
        ("account/logout", "account/read"),
        ("project/create", "project/list"),
    ],
)
async def test_what_there_is_once_is_changed_and_read_in_the_order_of_requests(
    change: str, look: str
) -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        for number, method in enumerate((change, look, change)):
            stream.client_send({"id": number, "method": method, "params": {"id": f"p{number}"}})
        stream.client_send(request("free", "thread/list"))
        await work.until_started(0, "free")
        work.let(0, "free")
        await work.until_started(0, "free", 1)
        work.let(1)
        await work.until_started(0, "free", 1, 2)
        work.let(2)
        assert len(await stream.client_receive(4)) == 4


async def test_signals_of_one_source_are_taken_in_the_order_of_requests() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        for number, source in enumerate(("a", "a", "b")):
            params = {"id": f"p{number}", "signal": {"source": source}}
            stream.client_send({"id": number, "method": "signal/deliver", "params": params})
        recall = {"id": "p3", "source": "a"}
        stream.client_send({"id": 3, "method": "signal/recall", "params": recall})
        await work.until_started(0, 2)
        work.let(0)
        await work.until_started(0, 2, 1)
        work.let(1)
        await work.until_started(0, 2, 1, 3)
        work.let(2, 3)
        assert len(await stream.client_receive(4)) == 4


async def test_a_request_without_a_usable_thread_id_waits_for_nobody() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        stream.client_send(request(1), {"id": 2, "method": "turn/start", "params": {"threadId": 5}})
        stream.client_send({"id": 3, "method": "turn/start", "params": []}, request(4, "no/such"))
        await work.until_started(1, 2, 3, 4)
        work.let(1, 2, 3, 4)
        await stream.client_receive(4)


async def test_a_place_that_is_given_up_lets_the_next_one_in() -> None:
    queues = RequestQueues()
    first, second, third = (queues.take_place("k", Access.EXCLUSIVE) for _ in range(3))
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
        stream.client_send({"id": 1, "method": "initialize"}, request(2, "thread/list"))
        await work.until_started(1)
        # More turns of the event loop than a request needs to begin.
        for _ in range(20):
            await asyncio.sleep(0)
        assert work.started == [1]
        work.let(1, 2)
        assert [answer["id"] for answer in await stream.client_receive(2)] == [1, 2]


async def test_nothing_is_kept_of_a_queue_without_requests() -> None:
    queues = RequestQueues()
    first = queues.take_place("t", Access.EXCLUSIVE)
    async with first, queues.take_place("u", Access.SHARED):
        waiting = asyncio.create_task(queues.take_place("t", Access.SHARED).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert queues.by_key.keys() == {"t", "u"}
    assert queues.by_key == {}


async def test_what_is_read_after_initialize_is_not_logged_as_a_part_of_it() -> None:
    found: list[Any] = []

    class Refused(Work):
        def refused(self, failure: str) -> None:
            found.append(REQUEST.get())

    work = Refused()
    work.let(1)
    async with conversation(work) as (stream, _, _):
        stream.client_send({"id": 1, "method": "initialize"}, "no JSON")
        await stream.client_receive(2)
    assert found == [None]


async def test_requests_one_after_another_share_a_task_and_are_logged_apart() -> None:
    found: list[Any] = []

    class Seen(Work):
        async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
            found.append((asyncio.current_task(), REQUEST.get(), THREAD.get()))
            THREAD.set("of this request")
            return await super().dispatch(context, request)

    work = Seen()
    work.let(1, 2)
    async with conversation(work) as (stream, _, _):
        for number in (1, 2):
            stream.client_send(request(number))
            await stream.client_receive()
            # Its task has nothing left to do.
            await anyio.wait_all_tasks_blocked()
        stream.client_send(request(3), request(4, thread="u"))
        await work.until_started(1, 2, 3, 4)
        work.let(3, 4)
        await stream.client_receive(2)
    tasks = [task for task, _, _ in found]
    assert (tasks[0] is tasks[1] is tasks[2], tasks[2] is tasks[3]) == (True, False)
    assert [origin[1:] for _, origin, _ in found] == [(n, "turn/start") for n in (1, 2, 3, 4)]
    assert [thread for _, _, thread in found] == [None] * 4


@claim("order:loading")
@pytest.mark.parametrize("steps", range(0, 30, 3))
async def test_requests_of_handlers_that_are_loaded_begin_in_their_order(steps: int) -> None:
    begun, may_load = list[Any](), threading.Event()

    async def handler(context: RequestContext[Any], params: Any) -> ThreadLoadedListResponse:
        begun.append(context.connection_id)
        return ThreadLoadedListResponse(data=[])

    one, other = "thread/loaded/list", "thread/list"

    def find(method: str) -> Handler:
        assert method == other or may_load.wait(WAIT_S)
        return handler

    dispatcher = Dispatcher(find)

    def ask(number: int, method: str) -> asyncio.Task[str]:
        context = RequestContext(number, method, False, session(), None)
        return asyncio.create_task(dispatcher.dispatch(context, Request(number, method, {})))

    await ask(1, other)
    asked = [ask(2, one), ask(3, other), ask(4, one), ask(5, one)]
    may_load.set()
    with anyio.fail_after(WAIT_S):
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        await asyncio.gather(*asked, ask(6, one), ask(7, other))
    assert begun == list(range(1, 8))


async def test_a_thousand_quick_requests_do_not_keep_another_client_waiting() -> None:
    quick, other = Work(), Work()
    quick.let(*range(1000))
    other.let("x")
    async with conversation(quick) as (many, _, _), conversation(other) as (one, _, _):
        many.client_send([request(number, "free/method") for number in range(1000)])
        one.client_send(request("x"))
        await other.until_started("x")
        assert len(quick.started) <= 4 * STEP
        await one.client_receive()
        assert len((await many.client_receive())[0]) == 1000


async def test_requests_that_came_together_and_wait_for_nothing_let_another_client_in() -> None:
    class Received(MemoryStream):
        """A stream whose first messages have come already."""

        def __init__(self, *messages: Any) -> None:
            super().__init__()
            self.messages = deque(map(json.dumps, messages))

        async def receive(self) -> str:
            return self.messages.popleft() if self.messages else await super().receive()

    work, other = Work(), Work()
    work.let(*range(1000))
    other.let("x")
    stream = Received(*(request(number, "thread/loaded/list") for number in range(1000)))
    connection = RpcConnection(stream, work, Hub(), ConnectionLimits())
    async with conversation(other) as (one, _, _), anyio.create_task_group() as tasks:
        one.client_send(request("x"))
        tasks.start_soon(connection.run)
        await other.until_started("x")
        assert len(work.started) <= 4 * STEP
        answers = await stream.client_receive(1000)
        assert [answer["id"] for answer in answers] == list(range(1000))
        stream.finish()
    stream.drop()


async def test_requests_of_a_queue_keep_their_order_whoever_waits() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        stream.client_send([*(request(each) for each in "abc"), request("x", thread=None)])
        await work.until_started("a", "x")
        work.let("a", "b")
        await work.until_started("a", "x", "b", "c")
        work.let("c", "x")
        (answers,) = await stream.client_receive()
        assert [answer["id"] for answer in answers] == ["a", "b", "c", "x"]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_request_that_fails_takes_no_other_with_it(waits: bool) -> None:
    async def handler(context: RequestContext[Any], params: Any) -> Any:
        if params.limit == 1:
            if waits:
                await asyncio.sleep(0)
            raise LookupError
        return WarningNotification(message="fine")

    async with conversation(Dispatcher(dict.fromkeys(METHODS, handler).get)) as (
        stream,
        connection,
        _,
    ):
        connection.initialized = session()
        lists = [{**request(n, "thread/list"), "params": {"limit": n}} for n in range(3)]
        stream.client_send(lists)
        (answers,) = await stream.client_receive()
    well = {answer["id"]: "result" in answer for answer in answers}
    assert well == {0: True, 1: False, 2: True}
