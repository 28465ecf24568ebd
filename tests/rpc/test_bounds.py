"""What a client sends, however large, keeps nobody waiting and is not said back at length."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.rpc.connection import STEP
from app_server.rpc.context import RequestContext
from app_server.rpc.dispatch import Dispatcher
from app_server.rpc.message_stream import ConnectionLimits
from protocol.contract.methods import METHODS
from protocol.jsonrpc.envelope import (
    MAX_BATCH,
    MAX_ID_CHARS,
    Invalid,
    Request,
    parse_message,
    render_result,
)
from protocol.jsonrpc.errors import (
    MAX_ANSWER_CHARS,
    MAX_FACT_CHARS,
    MAX_FACTS,
    MAX_MESSAGE_CHARS,
    RpcError,
    invalid_params,
)
from protocol.jsonrpc.value_count import MAX_VALUES, ValueCount
from tests.support.harness import WAIT_S, claim, serve
from tests.support.wire.conversations import Work, conversation, request, session
from tests.support.wire.hostile_frames import (
    AFTER_INITIALIZE,
    BEFORE_INITIALIZE,
    complaint,
    connected,
    send,
)
from tests.support.wire.json_values import json_values

SIZE = 2 * 1024 * 1024
TURN_S = 0.5
"""Processor time of one turn of the event loop, of which client and server have a part each."""


def refusal(rule: str) -> dict[str, Any]:
    return {
        "id": None,
        "error": {
            "code": -32600,
            "message": f"Invalid request: {rule}",
            "data": {"code": "invalidRequest", "rule": rule},
        },
    }


# Frames.


class Turns:
    """How much processor time the turns of the event loop take; other processes do not count."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[None]:
        """Measure while the context lasts."""
        task = asyncio.create_task(self._measure())
        try:
            yield
        finally:
            task.cancel()

    async def _measure(self) -> None:
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.thread_time() - began)


@claim("bounds:hostile-frames")
@pytest.mark.process
@pytest.mark.parametrize("initialized", [False, True])
async def test_a_frame_of_any_shape_is_refused_soon_and_in_few_words(
    initialized: bool, tmp_path: Path
) -> None:
    frames = AFTER_INITIALIZE if initialized else BEFORE_INITIALIZE
    async with (
        serve(tmp_path) as served,
        connected(served.urls[0], initialized=initialized) as socket,
    ):
        for frame in frames:
            text, turns = frame.text(SIZE), Turns()
            async with turns.measured():
                outcome = await send(socket, text)
            assert complaint(frame, outcome) is None, frame.name
            assert turns.longest_s < TURN_S, frame.name


def counted(value: Any) -> int:
    if isinstance(value, dict):
        return max(1, len(value)) + sum(map(counted, value.values()))
    if isinstance(value, list):
        return max(1, len(value)) + sum(map(counted, value))
    return 0


@given(json_values | st.text('"\\[{,'), st.integers(1, 40), st.booleans())
def test_values_are_counted_in_pieces_of_any_size(value: Any, size: int, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    count = ValueCount()
    for start in range(0, len(text), size):
        count.add(text[start : start + size])
    assert count.values == counted(value)


@claim("bounds:values")
async def test_a_message_with_too_many_values_is_refused_and_the_next_one_is_read() -> None:
    work = Work()
    work.let(1, 2)
    async with conversation(work) as (stream, _, _):
        most = {**request(1), "params": {"a": [0] * (MAX_VALUES - 4)}}
        assert counted(most) == MAX_VALUES
        stream.client_send(most)
        assert await stream.client_receive() == [{"id": 1, "result": {"method": "turn/start"}}]
        stream.client_send({**most, "more": None})
        assert await stream.client_receive() == [refusal("a message may hold at most 50000 values")]
        commas = {**request(2), "params": {"text": ",[{" * MAX_VALUES}}
        stream.client_send(commas)
        assert await stream.client_receive() == [{"id": 2, "result": {"method": "turn/start"}}]


# Batches.


@claim("bounds:batch")
async def test_a_batch_may_hold_so_many_messages_and_no_more() -> None:
    async with conversation(Said("x")) as (stream, _, _):
        stream.client_send([{"method": "initialized"}] * (MAX_BATCH - 1) + [request(1)])
        assert await stream.client_receive() == [[{"id": 1, "result": {"said": "x"}}]]
        stream.client_send([request(1)] * (MAX_BATCH + 1))
        assert await stream.client_receive() == [refusal("a batch may hold at most 1000 messages")]


class Said:
    """Requests that are answered at once."""

    services: object = None

    def __init__(self, text: str) -> None:
        self._text = text

    def refused(self, failure: str) -> None:
        """Count nothing."""

    async def dispatch(self, context: RequestContext[Any], request: Request) -> str:
        return render_result(request.id, {"said": self._text}, jsonrpc=context.jsonrpc)


@claim("bounds:batch-answer")
async def test_answers_that_do_not_fit_into_the_array_give_way_to_errors() -> None:
    async with conversation(Said("x" * 300_000)) as (stream, connection, _):
        connection.initialized = session(jsonrpc=True)
        stream.client_send([request(number, thread=None) for number in range(200)])
        text = await stream.client_receive_text()
    answers = json.loads(text)
    assert len(text) <= MAX_ANSWER_CHARS
    assert sorted(answer["id"] for answer in answers) == list(range(200))
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    said = [answer for answer in answers if "result" in answer]
    assert len(said) == 3
    errors = [answer["error"] for answer in answers if "error" in answer]
    assert {(error["code"], error["data"]["code"]) for error in errors} == {
        (-32603, "answerTooLarge")
    }


@claim("bounds:batch-answer")
async def test_a_batch_whose_ids_fill_the_array_is_refused_and_not_begun() -> None:
    work = Work()
    async with conversation(work) as (stream, _, _):
        stream.client_send([request("\a" * MAX_ID_CHARS)] * 200)
        rule = "the ids of a batch leave no space for its answers"
        assert await stream.client_receive() == [refusal(rule)]
    assert work.started == []


async def test_others_run_while_a_batch_is_taken() -> None:
    work = Work()
    async with conversation(work) as (stream, connection, _):
        stream.client_send([request(number, thread=None) for number in range(STEP * 2)])
        taken = [0]
        with anyio.fail_after(WAIT_S):
            while taken[-1] < STEP * 2:
                await asyncio.sleep(0)
                taken.append(connection.load.in_flight)
        assert STEP in taken
        work.let(*range(STEP * 2))
        assert len((await stream.client_receive())[0]) == STEP * 2


@claim("bounds:in-flight-chars")
async def test_requests_in_flight_are_bounded_by_their_size_too() -> None:
    work = Work()
    async with conversation(work, ConnectionLimits(max_in_flight_chars=1000)) as (stream, _, _):
        stream.client_send({**request(1, thread=None), "text": "x" * 2000})
        stream.client_send(request(2, thread=None))
        (answer,) = await stream.client_receive()
        assert (answer["id"], answer["error"]["code"]) == (2, -32001)
        work.let(1, 3)
        await stream.client_receive()
        stream.client_send(request(3, thread=None))
        assert await stream.client_receive() == [{"id": 3, "result": {"method": "turn/start"}}]


# What is said back.


@claim("bounds:id")
def test_an_id_has_a_bound() -> None:
    longest = "x" * MAX_ID_CHARS
    assert parse_message(f'{{"id":"{longest}","method":"m"}}') == Request(longest, "m", None)
    parsed = parse_message(f'{{"id":"{longest}x","method":"m"}}')
    assert isinstance(parsed, Invalid)
    assert parsed.id is None
    assert parsed.error.message == "Invalid request: `id` may have at most 1024 characters"


@claim("bounds:error")
def test_an_error_repeats_a_bounded_part_of_what_was_sent() -> None:
    long = "ü" * 1_000_000
    error = invalid_params(long, "word", fact=long, facts=[long] * 1000, inner={"of": long})
    cut = "ü" * (MAX_FACT_CHARS - 1) + "…"
    assert error.message == str(error) == "ü" * (MAX_MESSAGE_CHARS - 1) + "…"
    assert error.data == {
        "code": "word",
        "fact": cut,
        "facts": [cut] * MAX_FACTS,
        "inner": {"of": cut},
    }


@claim("bounds:outgoing")
async def test_an_error_of_a_peer_that_no_client_could_read_is_another_error() -> None:
    async def handler(context: RequestContext[Any], params: Any) -> Any:
        raise RpcError(-5, "no", data={"said": "x" * MAX_ANSWER_CHARS})

    dispatcher = Dispatcher(dict.fromkeys(METHODS, handler).get)
    context = RequestContext(1, "thread/list", False, session(experimental=False), None)
    answer = json.loads(await dispatcher.dispatch(context, Request(1, "thread/list", {})))
    assert answer["error"]["data"]["code"] == "answerTooLarge"
