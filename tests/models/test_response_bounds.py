"""How much a model may send: bounds of items and responses, idle streams, the share of the loop."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app_server.models import response_stream as response_bounds
from app_server.models.interface import (
    ItemAdded,
    ItemDone,
    ModelEvent,
    ModelFailure,
    ReasoningDelta,
    SummaryDelta,
    SummaryPartAdded,
    TextDelta,
)
from app_server.models.response_stream import ResponseBounds
from tests.support.harness import WireClient, claim, methods_of, serve
from tests.support.model import BREAK, COMPLETED, Gate, says

MIB = 1024 * 1024
BROKEN = {"responseStreamDisconnected": {"httpStatusCode": None}}
ITEM_TOO_LONG = "the response of the model is too long: an item has more than 900000 bytes of text"


def delta(text: str, **members: Any) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "item_id": "msg_1", "delta": text, **members}


def failed(message: str) -> dict[str, Any]:
    return {
        "message": message,
        "codexErrorInfo": BROKEN,
        "additionalDetails": None,
        "misalignment": None,
    }


async def messages_of_turn(client: WireClient, thread_id: str) -> list[dict[str, Any]]:
    user_input = [{"type": "text", "text": "go"}]
    await client.call("turn/start", {"threadId": thread_id, "input": user_input})
    return await client.until("turn/completed")


def texts_of_items(turn: Any) -> list[str]:
    return [item["text"] for item in turn["items"] if item["type"] == "agentMessage"]


# Bounds of one response.


@claim("model:too-long")
async def test_a_model_that_never_stops_fails_the_turn_and_what_was_finished_is_kept(
    tmp_path: Path,
) -> None:
    def flood() -> Iterator[Any]:
        yield from says("first", item_id="msg_0")[:-1]
        yield from says("", item_id="msg_1")[1:2]
        while True:
            yield delta("x" * 50_000)

    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts += [list(bounded(flood(), 40)), says("second")]
        messages = await messages_of_turn(client, thread_id)
        turn = messages[-1]["params"]["turn"]
        assert (turn["status"], turn["error"]) == ("failed", failed(ITEM_TOO_LONG))
        assert len(served.model.requests) == 1, "it would be as long the next time"
        assert max(len(json.dumps(message)) for message in messages) < MIB
        assert (await client.turn(thread_id, "again"))["status"] == "completed"
        assert served.model.inputs() == [
            ("user", "go"),
            ("assistant", "first"),
            ("user", "again"),
        ]
        turns = (await client.call("thread/read", {"threadId": thread_id, "includeTurns": True}))[
            "thread"
        ]["turns"]
        assert [texts_of_items(turn) for turn in turns] == [["first"], ["second"]]


def bounded(events: Iterator[Any], count: int) -> Iterator[Any]:
    return (event for _, event in zip(range(count), events, strict=False))


@claim("model:pieces")
async def test_a_long_delta_comes_in_pieces_and_the_item_whole(tmp_path: Path) -> None:
    text = "".join(f"{number}\x01ü " for number in range(60_000))
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(says(text))
        messages = await messages_of_turn(client, thread_id)
        pieces = [
            message["params"]["delta"]
            for message in messages
            if message.get("method") == "item/agentMessage/delta"
        ]
        assert "".join(pieces) == text
        assert len(pieces) == len(text) // (64 * 1024) + 1
        assert texts_of_items(messages[-1]["params"]["turn"]) == [text]
        assert max(len(json.dumps(message, ensure_ascii=False)) for message in messages) < MIB


async def test_a_finished_item_above_the_bound_fails_the_turn_too(tmp_path: Path) -> None:
    item = says("x" * 900_001)[-2]
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append([item, COMPLETED])
        turn = await client.turn(thread_id, "go")
        assert turn["error"] == failed(ITEM_TOO_LONG)


def message_item(item_id: str | None, *texts: str) -> dict[str, Any]:
    return {"type": "message", "id": item_id, "content": [{"text": text} for text in texts]}


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (lambda: [TextDelta("a", "x" * 899_999)], "an item has more than 900000 bytes of text"),
        (lambda: [TextDelta("a", "\x01" * 150_000)], "an item has more than 900000 bytes of text"),
        (
            lambda: [SummaryDelta("a", 0, "x" * 450_000), ReasoningDelta("a", 0, "x" * 450_000)],
            "an item has more than 900000 bytes of text",
        ),
        (
            lambda: [ItemAdded(message_item(None)), TextDelta(None, "x" * 899_999)],
            "an item has more than 900000 bytes of text",
        ),
        (
            lambda: [ItemDone(message_item("a", "x" * 450_000, "x" * 450_000))],
            "an item has more than 900000 bytes of text",
        ),
        (
            lambda: [ItemDone({"type": "function_call", "arguments": "x" * 900_000})],
            "an item has more than 900000 bytes of text",
        ),
        (lambda: [SummaryPartAdded("a", 1024)], "an item has a part 1024 of at most 1024"),
        (lambda: [SummaryDelta("a", 10**18, "")], f"an item has a part {10**18} of at most 1024"),
        (lambda: [ReasoningDelta("a", 1024, "")], "an item has a part 1024 of at most 1024"),
    ],
)
def test_every_way_to_be_too_long_is_refused_and_one_less_is_not(
    events: Callable[[], list[ModelEvent]], reason: str
) -> None:
    refuse_the_last(events(), reason)


@pytest.mark.parametrize(
    ("event", "count"),
    [
        (lambda number: TextDelta(str(number), "x" * 800_000), 21),
        (lambda number: ItemAdded(message_item(str(number))), 16 * 1024 + 1),
        (lambda number: SummaryPartAdded("a", number % 1024), 16 * 1024 + 1),
    ],
)
def test_many_that_fit_are_too_long_together(
    event: Callable[[int], ModelEvent], count: int
) -> None:
    refuse_the_last([event(number) for number in range(count)], "it has more than 16777216 bytes")


def refuse_the_last(events: list[ModelEvent], reason: str) -> None:
    bounds = ResponseBounds()
    for event in events[:-1]:
        bounds.take(event, 0)
    with pytest.raises(ModelFailure) as caught:
        bounds.take(events[-1], 0)
    assert caught.value.message == f"the response of the model is too long: {reason}"
    assert (caught.value.info, caught.value.retry_after_s) == (BROKEN, None)


def test_what_fits_passes_whole_and_a_body_is_counted() -> None:
    bounds = ResponseBounds()
    for text in ("x" * 899_998, "", "ü" * 10):
        event = TextDelta(text[:2] or None, text)
        pieces = [piece for piece in bounds.take(event, 0) if isinstance(piece, TextDelta)]
        assert "".join(piece.delta for piece in pieces) == text
        assert {piece.item_id for piece in pieces} == {event.item_id}
    done = ItemDone(message_item("xx", "x" * 899_998))
    assert bounds.take(done, 0) == (done,)
    bounds.read(response_bounds.MAX_STREAM_BYTES)
    with pytest.raises(ModelFailure, match="its stream has more than 268435456 bytes"):
        bounds.read(1)


async def test_items_that_a_broken_response_began_are_not_kept(tmp_path: Path) -> None:
    """However often a model begins anew: what a turn holds is that of one response."""
    gate = Gate()
    overrides = {"model_providers.scripted.stream_max_retries": 2}
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread(config=overrides)
        served.model.scripts += [
            [*says("lost", item_id="msg_1")[:-2], BREAK],
            [*says("kept", item_id="msg_2")[:-2], gate, *says("kept", item_id="msg_2")[-2:]],
        ]
        await client.request(
            "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        )
        await client.wait_for("item/agentMessage/delta", lambda params: params["itemId"] == "msg_2")
        joined = await other.call("thread/resume", {"threadId": thread_id})
        assert texts_of_items(joined["thread"]["turns"][0]) == ["kept"]
        gate.opened.set()
        await client.wait_for("turn/completed")


# Deltas without an id.


@claim("model:no-item-id")
async def test_deltas_without_an_id_belong_to_the_item_that_began_last(tmp_path: Path) -> None:
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}]}
    content = [{"type": "output_text", "text": "Hello"}]
    message = {"type": "message", "role": "assistant"}
    summary = {"type": "response.reasoning_summary_text.delta", "summary_index": 0}
    script = [
        {"type": "response.output_item.added", "item": {**reasoning, "summary": []}},
        {"type": "response.reasoning_summary_part.added", "summary_index": 0},
        {**summary, "delta": "why"},
        {"type": "response.output_item.done", "item": reasoning},
        {"type": "response.output_item.added", "item": {**message, "id": "m", "content": []}},
        {"type": "response.output_text.delta", "delta": "Hel"},
        {"type": "response.output_text.delta", "delta": "lo", "item_id": None},
        {"type": "response.output_item.done", "item": {**message, "id": "m", "content": content}},
        {"type": "response.output_text.delta", "delta": "Hello"},
        {"type": "response.output_item.done", "item": {**message, "id": "n", "content": content}},
        COMPLETED,
    ]
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(script)
        messages = await messages_of_turn(client, thread_id)
        assert messages[-1]["params"]["turn"]["status"] == "completed"
        told = [
            (message["method"].removeprefix("item/"), message["params"])
            for message in messages
            if message.get("method", "").startswith("item/")
        ][2:]
        ids = [params.get("itemId") or params["item"]["id"] for _, params in told]
        thought, unnamed = ids[0], ids[-1]
        assert ids == [thought] * 4 + ["m"] * 4 + [unnamed] * 3
        assert len({thought, "m", unnamed}) == 3
        assert [method for method, _ in told] == [
            "started",
            "reasoning/summaryPartAdded",
            "reasoning/summaryTextDelta",
            "completed",
            "started",
            "agentMessage/delta",
            "agentMessage/delta",
            "completed",
            "started",
            "agentMessage/delta",
            "completed",
        ]
        await client.turn(thread_id, "again")
        assert served.model.items()[1:4] == [
            reasoning,
            {**message, "id": "m", "content": content},
            {**message, "id": "n", "content": content},
        ], "the model gets back what it said"


# Idle streams.


@asynccontextmanager
async def endless(chunk: bytes) -> AsyncIterator[str]:
    """Serve a Responses API that answers with one chunk, again and again; gives its URL."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET "):
            # The list of models, which the server would wait for.
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            writer.close()
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        while not writer.is_closing():
            writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            await asyncio.wait([asyncio.create_task(writer.drain())])
            await asyncio.sleep(0)

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


@claim("model:idle")
@pytest.mark.parametrize("chunk", [b": still here\n\n", b"data: part of an event\n"])
async def test_what_is_no_event_does_not_keep_a_stream_alive(tmp_path: Path, chunk: bytes) -> None:
    async with endless(chunk) as url, serve(tmp_path) as served, served.client() as client:
        overrides = {
            "model_providers.scripted.base_url": url,
            "model_providers.scripted.stream_idle_timeout_ms": 100,
            "model_providers.scripted.stream_max_retries": 0,
        }
        thread_id = await client.start_thread(config=overrides)
        turn = await client.turn(thread_id, "go")
        message = "stream disconnected before completion: idle timeout waiting for the model"
        assert turn["error"] == failed(message)


@claim("model:shares-loop")
async def test_a_stream_that_comes_at_once_lets_others_run_in_between(tmp_path: Path) -> None:
    deltas = 3000
    script = says(*["x"] * deltas)
    at_once = b"".join(
        b"data: %b\n\n" % json.dumps(event, separators=(",", ":")).encode() for event in script
    )
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        stream = served.services.hub.streams.find(thread_id)
        assert stream is not None
        told = [stream.last]

        async def count() -> None:
            while True:
                told.append(stream.last)
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        served.model.scripts.append([at_once])
        messages = await messages_of_turn(client, thread_id)
        counting.cancel()
        assert "turn/completed" in methods_of(messages)
        steps = [after - before for before, after in itertools.pairwise(told)]
        assert sum(steps) > deltas
        # One read brings some 700 of these events.
        assert max(steps) < 300
