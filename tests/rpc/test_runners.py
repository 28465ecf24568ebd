"""rpc: requests that share a task, and those that keep one for themselves."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from app_server.logs.context import REQUEST, THREAD, TURN
from app_server.rpc.context import RequestContext
from app_server.rpc.dispatch import Dispatcher
from app_server.rpc.runners import REQUESTS_AT_ONCE, Runners
from protocol.contract.methods import METHODS
from protocol.server.lifecycle import WarningNotification
from tests.support.harness import WAIT_S
from tests.support.wire.conversations import Work, conversation, request, session

THREAD_ID = "0199a000-0000-7111-8111-111111111111"


class Requests:
    """Requests by their letters: which have begun and ended, and the task of each."""

    def __init__(self, **work: Callable[[], Awaitable[object]]) -> None:
        """Let some do `work`; the others end at once."""
        self._work = work
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.tasks: dict[str, asyncio.Task[Any] | None] = {}

    async def answer(self, letter: str) -> None:
        self.begun.append(letter)
        self.tasks[letter] = asyncio.current_task()
        if (work := self._work.get(letter)) is not None:
            await work()
        self.ended.append(letter)

    async def run(self, letters: str) -> None:
        """Run requests to their end."""
        with anyio.fail_after(WAIT_S):
            async with asyncio.TaskGroup() as tasks:
                runners = Runners(tasks)
                for letter in letters:
                    runners.start_soon(self.answer, letter)


async def test_requests_that_do_not_wait_share_a_task() -> None:
    requests = Requests()
    await requests.run("abcd")
    assert requests.ended == [*"abcd"]
    assert len(set(requests.tasks.values())) == 1


async def test_a_request_that_waits_keeps_its_task_and_delays_nobody() -> None:
    gate = anyio.Event()

    async def open_gate() -> None:
        gate.set()

    requests = Requests(b=gate.wait, d=gate.wait, e=open_gate)
    await requests.run("abcde")
    assert requests.begun == [*"abcde"]
    assert requests.ended == [*"aceb", "d"]
    assert len({requests.tasks[each] for each in "bcde"}) == 4


async def test_requests_that_come_while_one_waits_do_not_wait_for_it() -> None:
    gate = anyio.Event()
    requests = Requests(a=gate.wait)
    with anyio.fail_after(WAIT_S):
        async with asyncio.TaskGroup() as tasks:
            runners = Runners(tasks)
            runners.start_soon(requests.answer, "a")
            await asyncio.sleep(0)
            assert requests.begun == ["a"]
            for letter in "bc":
                runners.start_soon(requests.answer, letter)
            while len(requests.ended) < 2:
                await asyncio.sleep(0)
            gate.set()
    assert requests.ended == [*"bca"]
    assert requests.tasks["a"] not in {requests.tasks["b"], requests.tasks["c"]}


async def test_a_request_that_has_waited_is_the_last_of_its_task() -> None:
    gate = anyio.Event()

    async def open_gate() -> None:
        gate.set()

    requests = Requests(a=gate.wait, b=open_gate)
    with anyio.fail_after(WAIT_S):
        async with asyncio.TaskGroup() as tasks:
            runners = Runners(tasks)
            runners.start_soon(requests.answer, "a")
            # It begins, and then it is left alone.
            for _ in range(2):
                await asyncio.sleep(0)
            # So many that some are left when the first one goes on.
            behind = ["b", *map(str, range(3 * REQUESTS_AT_ONCE))]
            for letter in behind:
                runners.start_soon(requests.answer, letter)
    assert requests.ended.index("a") < len(behind)
    assert requests.tasks["a"] not in {requests.tasks[each] for each in behind}


async def test_a_timeout_of_a_request_is_its_own() -> None:
    async def hurry() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anyio.sleep_forever()
        with anyio.move_on_after(0):
            await anyio.sleep_forever()

    requests = Requests(a=hurry, b=lambda: asyncio.sleep(0))
    await requests.run("abc")
    assert sorted(requests.ended) == [*"abc"]


async def test_a_request_that_is_cancelled_takes_no_other_with_it() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def cancel_task() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    requests = Requests(a=cancelled, c=cancel_task)
    await requests.run("abcde")
    assert requests.ended == [*"bcde"]
    assert len(set(requests.tasks.values())) == 3


async def test_what_is_raised_ends_the_group_and_what_has_not_begun() -> None:
    async def fail() -> None:
        raise LookupError

    requests = Requests(a=anyio.sleep_forever, b=fail)
    with pytest.raises(ExceptionGroup) as raised:
        await requests.run("ab")
    assert raised.group_contains(LookupError)
    assert requests.ended == []


async def test_others_run_between_many_requests_that_do_not_wait() -> None:
    """Counted in turns of the event loop."""
    requests, at_once = Requests(), []
    with anyio.fail_after(WAIT_S):
        async with asyncio.TaskGroup() as tasks:
            runners = Runners(tasks)
            for number in range(1000):
                runners.start_soon(requests.answer, str(number))
            while len(requests.ended) < 1000:
                before = len(requests.ended)
                await asyncio.sleep(0)
                at_once.append(len(requests.ended) - before)
    assert max(at_once) == REQUESTS_AT_ONCE


async def test_a_thousand_quick_requests_do_not_keep_another_client_waiting() -> None:
    quick, other = Work(), Work()
    quick.let(*range(1000))
    other.let("x")
    async with conversation(quick) as (many, _, _), conversation(other) as (one, _, _):
        many.client_send([request(number, "free/method") for number in range(1000)])
        one.client_send(request("x"))
        await other.until_started("x")
        assert len(quick.started) <= 4 * REQUESTS_AT_ONCE
        await one.client_receive()
        assert len((await many.client_receive())[0]) == 1000


async def test_requests_of_a_lane_keep_their_order_whoever_waits() -> None:
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
    async def handler(context: RequestContext, params: Any) -> Any:
        if params.limit == 1:
            if waits:
                await asyncio.sleep(0)
            raise LookupError
        return WarningNotification(message="fine")

    async with conversation(Dispatcher(dict.fromkeys(METHODS, handler))) as (stream, connection, _):
        connection.session = session()
        lists = [{**request(n, "thread/list"), "params": {"limit": n}} for n in range(3)]
        stream.client_send(lists)
        (answers,) = await stream.client_receive()
    well = {answer["id"]: "result" in answer for answer in answers}
    assert well == {0: True, 1: False, 2: True}


async def test_a_request_finds_nothing_of_the_one_before_it_in_its_task() -> None:
    found: list[Any] = []
    tasks = set()

    async def handler(context: RequestContext, params: Any) -> Any:
        origin = REQUEST.get()
        assert origin is not None
        found.append((*origin[1:], THREAD.get(), TURN.get()))
        tasks.add(asyncio.current_task())
        TURN.set("a turn")
        return WarningNotification(message="fine")

    async with conversation(Dispatcher(dict.fromkeys(METHODS, handler))) as (stream, connection, _):
        connection.session = session()
        methods = ["thread/loaded/list", "thread/read", "thread/loaded/list"]
        # They are imported with the first request, which waits for that.
        for _ in range(2):
            found.clear()
            tasks.clear()
            stream.client_send([request(n, each, THREAD_ID) for n, each in enumerate(methods)])
            await stream.client_receive()
    assert found == [
        (0, "thread/loaded/list", None, None),
        (1, "thread/read", THREAD_ID, None),
        (2, "thread/loaded/list", None, None),
    ]
    assert len(tasks) == 1
