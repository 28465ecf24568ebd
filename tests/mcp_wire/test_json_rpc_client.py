"""mcp: one JSON-RPC conversation with a server, over streams in memory."""

import logging
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from app_server.mcp_wire import json_rpc_client as client_module
from app_server.mcp_wire.errors import PeerError, RequestTimedOut, TransportClosed
from app_server.mcp_wire.json_rpc_client import FLOOD, STRAY, TOO_MANY, Caller, JsonRpcClient
from app_server.mcp_wire.messages import JSONRPCRequest, SessionMessage
from protocol.jsonrpc.errors import INVALID_PARAMS
from tests.support.event_loop.clock import LoopClock
from tests.support.harness import WAIT_S
from tests.support.mcp_peers.conversation import Conversation, conversing


async def call(talk: Conversation, outcome: list[Any], **more: Any) -> None:
    """Make a call and note its result, or its error."""
    try:
        outcome.append(await talk.client.call("m", {"a": 1}, **more))
    except (PeerError, RequestTimedOut, TransportClosed) as exc:
        outcome.append(exc)


@pytest.mark.parametrize("answered_id", [1, "1"])
async def test_a_call_gets_its_answer(answered_id: int | str) -> None:
    outcome: list[Any] = []
    async with conversing() as talk, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(talk, outcome, headers={"x": "y"}))
        with anyio.fail_after(WAIT_S):
            sent = await talk.from_us.receive()
        assert sent.headers == {"x": "y"}
        await talk.to_us.send(ValueError("no message"))
        await talk.send(id=7, result={"of": "nobody"})
        await talk.send(id=answered_id, result={"b": 2})
        await talk.send(id=answered_id, result={"b": "late"})
    assert outcome == [{"b": 2}]


async def test_a_request_without_params_has_none() -> None:
    async with conversing() as talk, anyio.create_task_group() as tasks:
        tasks.start_soon(talk.client.call, "ping", {})
        assert await talk.next() == {"id": 1, "method": "ping"}
        await talk.send(id=1, result={})


async def test_an_error_is_that_of_the_server() -> None:
    outcome: list[Any] = []
    async with conversing() as talk, anyio.create_task_group() as tasks:
        tasks.start_soon(call, talk, outcome)
        await talk.next()
        await talk.send(id=1, error={"code": -32001, "message": "m", "data": [1]})
    (error,) = outcome
    assert (error.code, error.message, error.data) == (-32001, "m", [1])


async def test_progress_is_that_of_its_call() -> None:
    outcome: list[Any] = []
    progress: list[Any] = []

    async def on_progress(*values: Any) -> None:
        progress.append(values)
        if len(progress) == 1:
            raise LookupError("contained")

    async with conversing() as talk, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(talk, outcome, on_progress=on_progress))
        sent = {"a": 1, "_meta": {"progressToken": 1}}
        assert await talk.next() == {"id": 1, "method": "m", "params": sent}
        for params in (
            {"progressToken": 1, "progress": 1},
            {"progressToken": "1", "progress": 2, "total": 4, "message": "half"},
            {"progressToken": 1, "progress": True},
            {"progressToken": 1},
            {"progressToken": [], "progress": 3},
            {"progressToken": 5, "progress": 3},
        ):
            await talk.send(method="notifications/progress", params=params)
        await talk.send(id=9, method="echo")
        assert await talk.next() == {"id": 9, "result": {}}
        await talk.send(id=1, result={})
    assert progress == [(1.0, None, None), (2.0, 4.0, "half")]
    assert talk.notifications == ["notifications/progress"] * 6


async def test_progress_that_cannot_be_passed_on_is_dropped_above_a_bound() -> None:
    outcome: list[Any] = []
    begun: list[float] = []
    taken = anyio.Event()

    async def on_progress(progress: float, *_: Any) -> None:
        begun.append(progress)
        await taken.wait()

    async def report(progress: int) -> None:
        params = {"progressToken": 1, "progress": progress}
        await talk.send(method="notifications/progress", params=params)

    async with conversing() as talk, anyio.create_task_group() as tasks:
        talk.client.max_reporting = 2
        tasks.start_soon(lambda: call(talk, outcome, on_progress=on_progress))
        await talk.next()
        for progress in range(4):
            await report(progress)
        await talk.send(id=9, method="echo")
        await talk.next()
        assert begun == [0, 1]
        taken.set()
        await talk.send(id=9, method="echo")
        await talk.next()
        await report(5)
        await talk.send(id=1, result={})
    assert begun == [0, 1, 5]


@pytest.mark.parametrize("may_cancel", [True, False])
async def test_a_call_that_takes_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch, may_cancel: bool
) -> None:
    clock, outcome = LoopClock(monkeypatch), list[Any]()
    async with conversing() as talk:
        async with anyio.create_task_group() as tasks:
            limited = partial(call, talk, outcome, timeout_s=600.0, may_cancel=may_cancel)
            tasks.start_soon(limited)
            await talk.next()
            clock.put_forward(600.0)
        assert [str(error) for error in outcome] == ["timed out awaiting m after 600s"]
        await talk.client.notify("last")
        told = await talk.next()
    reason = "nobody waits for the answer any more"
    given_up = {"method": "notifications/cancelled", "params": {"requestId": 1, "reason": reason}}
    assert told == (given_up if may_cancel else {"method": "last"})


async def test_the_server_is_notified_of_a_caller_that_was_cancelled() -> None:
    async with conversing() as talk:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, talk, [])
            await talk.next()
            tasks.cancel_scope.cancel()
        told = await talk.next()
    assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", 1)


async def test_sending_the_cancellation_of_a_call_has_a_bound() -> None:

    class Stuck:
        async def send(self, item: SessionMessage) -> None:
            await anyio.sleep_forever()

    _, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
    client = JsonRpcClient(incoming, Stuck())
    client.give_up_s = 0.01
    with anyio.fail_after(WAIT_S):
        with anyio.move_on_after(0.01) as limit:
            await client.call("m", {})
    assert limit.cancelled_caught
    _.close()
    incoming.close()


async def test_requests_of_the_server_are_answered_each_in_its_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with conversing() as talk:
        await talk.send(id="a", method="stall")
        await talk.send(id="b", method="echo", params={"x": 1})
        assert await talk.next() == {"id": "b", "result": {"x": 1}}
        await talk.send(id="c", method="refuse")
        error = {"code": INVALID_PARAMS, "message": "not like this"}
        assert await talk.next() == {"id": "c", "error": error}
        await talk.send(id="d", method="break")
        error = {"code": -32603, "message": "Internal error"}
        assert await talk.next() == {"id": "d", "error": error}
        await talk.send(method="notifications/cancelled", params={"requestId": "a"})
        await talk.send(method="notifications/cancelled", params={"requestId": ["a"]})
        await talk.send(id="e", method="echo")
        assert await talk.next() == {"id": "e", "result": {}}
    assert "a request of a server was not answered: break" in caplog.text


async def test_requests_of_the_server_above_the_bound_are_refused() -> None:
    async with conversing() as talk:
        talk.client.max_asked = 1
        await talk.send(id=1, method="stall")
        await talk.send(id=2, method="echo")
        error = {"code": -32603, "message": "too many requests at a time"}
        assert await talk.next() == {"id": 2, "error": error}
        await talk.send(method="notifications/cancelled", params={"requestId": 1})
        await talk.send(method="later")
        with anyio.fail_after(WAIT_S):
            await anyio.wait_all_tasks_blocked()
        await talk.send(id=3, method="echo")
        assert await talk.next() == {"id": 3, "result": {}}


class User:
    """An asker that is asked nothing."""

    async def elicit(self, params: Any, caller: Any) -> Any:
        raise AssertionError(params)

    def logged(self, line: bytes, caller: Any) -> None:
        raise AssertionError(line)


async def test_a_request_of_the_server_is_that_of_the_call_in_whose_response_it_came() -> None:
    """And the bounds are those of each caller: one whose server asks much hurts no other."""
    one, two = Caller(User(), "turn"), Caller(User())
    async with conversing() as talk, anyio.create_task_group() as tasks:
        talk.client.max_asked = 1
        for caller in (one, two):
            tasks.start_soon(partial(call, talk, [], caller=caller))
            await talk.next()
        await talk.send(id="a", method="stall", in_response_to=1)
        await talk.send(id="b", method="echo", in_response_to=1)
        error = {"code": -32603, "message": "too many requests at a time"}
        assert await talk.next() == {"id": "b", "error": error}
        for asked, in_response_to in (("c", 2), ("d", None), ("e", 3)):
            await talk.send(id=asked, method="echo", in_response_to=in_response_to)
            assert await talk.next() == {"id": asked, "result": {}}
        assert talk.notifications == [TOO_MANY]
        assert talk.callers == [one, two, None, None]
        for request_id in (1, 2):
            await talk.send(id=request_id, result={})


async def test_progress_of_one_asker_takes_the_room_of_no_other() -> None:
    begun: list[float] = []
    taken = anyio.Event()

    async def on_progress(progress: float, *_: Any) -> None:
        begun.append(progress)
        await taken.wait()

    async with conversing() as talk, anyio.create_task_group() as tasks:
        talk.client.max_reporting = 1
        for _ in range(2):
            tasks.start_soon(
                partial(call, talk, [], on_progress=on_progress, caller=Caller(User()))
            )
            await talk.next()
        for token, progress in ((1, 10), (1, 11), (2, 20)):
            params = {"progressToken": token, "progress": progress}
            await talk.send(method="notifications/progress", params=params)
        await talk.send(id=9, method="echo")
        await talk.next()
        assert begun == [10, 20]
        assert talk.notifications.count(FLOOD) == 1
        taken.set()
        for request_id in (1, 2):
            await talk.send(id=request_id, result={})


async def test_answers_to_what_was_never_asked_are_noted_and_dropped() -> None:
    outcome: list[Any] = []
    async with conversing() as talk, anyio.create_task_group() as tasks:
        tasks.start_soon(call, talk, outcome)
        await talk.next()
        for request_id in (2, 0, -1, "x", "7"):
            await talk.send(id=request_id, result={"of": "another"})
        await talk.send(id=1, result={"b": 2})
        # One that comes late, or twice, was asked for.
        await talk.send(id="1", result={"b": 3})
        await talk.send(id=9, method="echo")
        await talk.next()
        assert (outcome, talk.notifications) == ([{"b": 2}], [STRAY] * 5)


async def test_a_server_that_asks_and_does_not_read_is_read_no_more() -> None:
    """Each question that was answered waited for it, with ids that it had used before."""

    class Deaf:
        async def send(self, item: SessionMessage) -> None:
            await anyio.sleep_forever()

    count = 1000
    to_us, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](count)
    client = JsonRpcClient(incoming, Deaf())
    ping = SessionMessage(JSONRPCRequest(jsonrpc="2.0", id="the same", method="ping"))

    async def answer(method: str, params: Any, caller: Any) -> Any:
        return {}

    async def run(*, task_status: Any) -> None:
        await client.run(answer, lambda *_: None, task_status=task_status)

    with to_us, incoming, anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            await tasks.start(run)
            for _ in range(count):
                await to_us.send(ping)
                await anyio.lowlevel.checkpoint()
            await anyio.wait_all_tasks_blocked()
            taken = count - to_us.statistics().current_buffer_used
            tasks.cancel_scope.cancel()
    assert taken == client_module.MAX_ASKED + 1


async def test_the_end_of_a_server_ends_all_calls(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    outcome: list[Any] = []
    async with conversing() as talk:
        await talk.send(id=1, method="stall")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, talk, outcome)
            await talk.next()
            await talk.to_us.aclose()
        await call(talk, outcome)
    assert [type(error) for error in outcome] == [TransportClosed, TransportClosed]


async def test_a_message_that_cannot_be_sent_is_the_end_for_its_call() -> None:
    outcome: list[Any] = []
    async with conversing() as talk:
        talk.from_us.close()
        await call(talk, outcome)
        await talk.client.notify("dropped")
    assert [type(error) for error in outcome] == [TransportClosed]
