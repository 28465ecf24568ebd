"""Streams of Chat Completions servers, as written down and in pieces, read as events."""

import json
import re
from typing import Any

import pytest

from app_server.models import response_stream as response_bounds
from app_server.models.chat_completions import CalledTool, ChatReader, ToolNames
from app_server.models.interface import (
    ItemAdded,
    ItemDone,
    ModelEvent,
    ModelFailure,
    ReasoningDelta,
    ResponseCompleted,
    TextDelta,
)
from app_server.runtime.http.event_stream import EventParser, SseEvent
from protocol.turns.turn import TokenUsageBreakdown
from tests.support.paths import RECORDINGS

STREAMS = RECORDINGS / "chat_completions"

NAMES = ToolNames(
    [
        CalledTool("function", "mcp__files", "read"),
        CalledTool("custom", None, "apply_patch"),
        CalledTool("search", None, "tool_search"),
    ]
)
BROKEN = {"responseStreamDisconnected": {"httpStatusCode": None}}


def read(events: list[SseEvent]) -> list[ModelEvent]:
    reader = ChatReader(NAMES)
    return [event for sse in events for event in reader.read(sse)]


def recorded(name: str) -> list[SseEvent]:
    return EventParser(1 << 20).feed((STREAMS / f"{name}.sse").read_bytes())


def chunk(*, usage: Any = None, reason: str | None = None, **delta: Any) -> SseEvent:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    document = {"choices": [choice] if delta or reason else [], "usage": usage}
    return SseEvent(b"message", json.dumps(document).encode())


def call(index: int | None = 0, call_id: str | None = None, **function: Any) -> dict[str, Any]:
    known = {"index": index, "id": call_id, "function": function}
    return {key: value for key, value in known.items() if value is not None}


DONE = SseEvent(b"message", b"[DONE]")
STOP = chunk(reason="stop")


def used(
    total: int, prompt: int, output: int, cached: int = 0, reasoned: int = 0
) -> ResponseCompleted:
    return ResponseCompleted(
        TokenUsageBreakdown(
            total_tokens=total,
            input_tokens=prompt,
            cached_input_tokens=cached,
            output_tokens=output,
            reasoning_output_tokens=reasoned,
        )
    )


def message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text}] if text else []
    return {"type": "message", "role": "assistant", "content": content}


def reasoning(text: str) -> dict[str, Any]:
    content = [{"type": "reasoning_text", "text": text}] if text else []
    return {"type": "reasoning", "summary": [], "content": content}


def function(call_id: str, arguments: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "arguments": arguments,
        "name": "read",
        "namespace": "mcp__files",
        "call_id": call_id,
    }


RECORDED: dict[str, list[ModelEvent]] = {
    "llama_cpp_reasoning_text_and_calls": [
        ItemAdded(reasoning("")),
        ReasoningDelta(None, 0, "We look"),
        ReasoningDelta(None, 0, " at both"),
        ReasoningDelta(None, 0, " files.\n"),
        ItemDone(reasoning("We look at both files.\n")),
        ItemAdded(message("")),
        TextDelta(None, "I"),
        TextDelta(None, " read"),
        TextDelta(None, " them"),
        TextDelta(None, " \u2014 now."),
        TextDelta(None, "\n"),
        ItemDone(message("I read them \u2014 now.\n")),
        ItemDone(function("LjRxHvwaFPgi8hHqIQSQFD0xQhjUYJcN", '{"path": "a.txt"}')),
        ItemDone(function("zKlW7XDwAMrcdTXWpwTJlcr498nsmjVP", '{"path": "b.txt"}')),
        used(592, 564, 28, 8),
    ],
    "llama_cpp_old_text": [
        ItemAdded(message("")),
        TextDelta(None, "Hello!"),
        ItemDone(message("Hello!")),
        used(15, 12, 3),
    ],
    "vllm_parallel_calls": [
        ItemAdded(reasoning("")),
        ReasoningDelta(None, 0, "Two"),
        ReasoningDelta(None, 0, " files."),
        ItemDone(reasoning("Two files.")),
        ItemDone(function("chatcmpl-tool-a1", '{"path": "a.txt"}')),
        ItemDone(
            {
                "type": "custom_tool_call",
                "input": "*** Begin Patch",
                "name": "apply_patch",
                "call_id": "chatcmpl-tool-b2",
            }
        ),
        used(352, 310, 42, 256),
    ],
    "vllm_0_32_reasoning_and_text": [
        ItemAdded(reasoning("")),
        ReasoningDelta(None, 0, "\ufffdx"),
        ItemDone(reasoning("\ufffdx")),
        ItemAdded(message("")),
        TextDelta(None, "\ufffd\x11"),
        TextDelta(None, "i"),
        TextDelta(None, "\ufffd\x06"),
        ItemDone(message("\ufffd\x11i\ufffd\x06")),
        used(31, 21, 10, reasoned=1),
    ],
    "vllm_0_32_required_calls": [
        ItemDone(function("chatcmpl-tool-b2104c316edd6392", "false")),
        ItemDone(
            {
                "type": "custom_tool_call",
                "input": "false",
                "name": "apply_patch",
                "call_id": "chatcmpl-tool-bb71090537109491",
            }
        ),
        used(145, 21, 124),
    ],
    "ollama_whole_calls": [
        ItemAdded(reasoning("")),
        ReasoningDelta(None, 0, "Look."),
        ItemDone(reasoning("Look.")),
        ItemDone(function("call_aa", '{"path":"a.txt"}')),
        ItemDone(function("call_bb", '{"path":"b.txt"}')),
        used(190, 160, 30),
    ],
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_stream_is_read_as_the_events_of_a_response(name: str) -> None:
    assert read(recorded(name)) == RECORDED[name]


def test_every_recording_is_read() -> None:
    assert {path.stem for path in STREAMS.iterdir()} == {*RECORDED, "vllm_error"}


def test_an_error_in_a_recorded_stream_is_raised_after_what_came_before_it() -> None:
    reader = ChatReader(NAMES)
    first, second, error, _ = recorded("vllm_error")
    assert [*reader.read(first), *reader.read(second)] == [
        ItemAdded(message("")),
        TextDelta(None, "Hel"),
    ]
    with pytest.raises(ModelFailure) as caught:
        reader.read(error)
    assert (caught.value.message, caught.value.info) == ("Internal server error", BROKEN)
    assert caught.value.retry_after_s is not None


@pytest.mark.parametrize(
    ("error", "info", "message", "is_retried"),
    [
        (
            {
                "code": 400,
                "message": "request (13392 tokens) exceeds the available context size (8192)",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 13392,
                "n_ctx": 8192,
            },
            "contextWindowExceeded",
            "request (13392 tokens) exceeds the available context size (8192)",
            False,
        ),
        (
            {
                "message": "This model's maximum context length is 8192 tokens. However, …",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            },
            "contextWindowExceeded",
            "This model's maximum context length is 8192 tokens. However, …",
            False,
        ),
        ({"code": 400, "message": "no template"}, "badRequest", "no template", False),
        ({"code": 429, "message": "later"}, BROKEN, "later", True),
        ("plain", BROKEN, "plain", True),
        ({"message": 5}, BROKEN, "the model failed without a reason", True),
    ],
)
def test_errors_of_streams_are_told_apart(
    error: Any, info: Any, message: str, is_retried: bool
) -> None:
    with pytest.raises(ModelFailure) as caught:
        read([SseEvent(b"message", json.dumps({"error": error}).encode())])
    failure = caught.value
    assert (failure.message, failure.info) == (message, info)
    assert (failure.retry_after_s is not None) is is_retried


def items(*events: SseEvent) -> list[dict[str, Any]]:
    return [event.item for event in read([*events, DONE]) if isinstance(event, ItemDone)]


def arguments(*events: SseEvent) -> list[tuple[str, str]]:
    return [(item["call_id"], item["arguments"]) for item in items(*events)]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        # Pieces of two calls that take turns.
        (
            [
                [call(0, "a", name="f", arguments="{"), call(1, "b", name="g", arguments="[")],
                [call(1, arguments="]")],
                [call(0, arguments="}")],
            ],
            [("a", "{}"), ("b", "[]")],
        ),
        # The id and the name come with every piece.
        (
            [
                [call(0, "a", name="f", arguments="{")],
                [call(0, "a", name="f", arguments="}")],
            ],
            [("a", "{}")],
        ),
        # The id comes late.
        ([[call(0, name="f", arguments="{")], [call(0, "a", arguments="}")]], [("a", "{}")]),
        # No index.
        (
            [
                [call(None, "a", name="f", arguments="{")],
                [call(None, arguments="}")],
                [call(None, "b", name="f", arguments="{}")],
            ],
            [("a", "{}"), ("b", "{}")],
        ),
        # Arguments as an object; none at all.
        ([[call(0, "a", name="f", arguments={"x": 1})]], [("a", '{"x":1}')]),
        ([[call(0, "a", name="f")]], [("a", "")]),
    ],
)
def test_calls_are_put_together_from_pieces(calls: Any, expected: Any) -> None:
    assert arguments(*(chunk(tool_calls=pieces) for pieces in calls), STOP) == expected


def test_calls_without_an_id_get_one() -> None:
    pieces = [call(0, name="f", arguments="{}"), call(1, name="f", arguments="{}")]
    first, second = (item["call_id"] for item in items(chunk(tool_calls=pieces), STOP))
    assert first != second
    assert re.fullmatch(r"call_[0-9a-f]{32}", first)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ('{"input": "*** Begin"}', "*** Begin"),
        ("*** Begin", "*** Begin"),
        ('{"patch": "*** Begin"}', '{"patch": "*** Begin"}'),
        ('{"input": 5}', '{"input": 5}'),
        ("[1]", "[1]"),
    ],
)
def test_the_text_of_a_custom_tool_is_taken_out_of_its_argument(text: str, given: str) -> None:
    [item] = items(chunk(tool_calls=[call(0, "a", name="apply_patch", arguments=text)]), STOP)
    assert item == {
        "type": "custom_tool_call",
        "name": "apply_patch",
        "call_id": "a",
        "input": given,
    }


def test_a_search_is_a_call_of_its_own_kind() -> None:
    wanted = call(0, "a", name="tool_search", arguments='{"query": "mail"}')
    assert items(chunk(tool_calls=[wanted]), STOP) == [
        {
            "type": "tool_search_call",
            "execution": "client",
            "arguments": {"query": "mail"},
            "call_id": "a",
        }
    ]


def test_a_function_that_nobody_declared_keeps_its_name() -> None:
    [item] = items(chunk(tool_calls=[call(0, "a", name="other", arguments="{}")]), STOP)
    assert item == {"type": "function_call", "name": "other", "call_id": "a", "arguments": "{}"}


def test_reasoning_and_text_that_take_turns_are_items_of_their_own() -> None:
    events = [chunk(reasoning="a"), chunk(content="b"), chunk(reasoning_content="c"), STOP]
    assert items(*events) == [reasoning("a"), message("b"), reasoning("c")]


def test_other_choices_and_what_nobody_needs_are_passed_over() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "x"}}]}
    strange = chunk(content=[1], tool_calls=None, role="assistant", logprobs={})
    events = [SseEvent(b"message", json.dumps(other).encode()), strange, chunk(refusal="no"), STOP]
    assert items(*events) == [message("no")]


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_an_answer_that_is_cut_short_is_a_failure(reason: str) -> None:
    with pytest.raises(ModelFailure) as caught:
        read([chunk(content="a"), chunk(reason=reason), DONE])
    assert caught.value.message == f"Incomplete response returned, reason: {reason}"
    assert caught.value.retry_after_s is None


def test_a_body_that_ends_behind_the_reason_is_complete() -> None:
    reader = ChatReader(NAMES)
    reader.read(chunk(content="a"))
    with pytest.raises(ModelFailure, match="stream closed before the end of the completion"):
        reader.end()
    reader.read(STOP)
    assert reader.end() == [ItemDone(message("a")), ResponseCompleted(None)]


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[1]", b'{"choices": 5}', b'{"choices": [5]}', b'{"choices": [{"delta": 5}]}'],
)
def test_what_makes_no_sense_is_a_failure_that_is_tried_again(data: bytes) -> None:
    with pytest.raises(ModelFailure, match="makes no sense") as caught:
        read([SseEvent(b"message", data)])
    assert caught.value.retry_after_s is not None


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (None, None),
        (5, None),
        ({}, None),
        ({"prompt_tokens": None, "total_tokens": "x"}, None),
        ({"prompt_tokens": 3, "completion_tokens": None}, (3, 3, 0, 0, 0)),
        ({"total_tokens": 5}, (5, 0, 0, 0, 0)),
        (
            {
                "prompt_tokens": 3,
                "completion_tokens": 4,
                "total_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
            (7, 3, 2, 4, 1),
        ),
    ],
)
def test_an_account_that_makes_no_sense_is_none(
    usage: Any, counted: tuple[int, ...] | None
) -> None:
    *_, last = read([chunk(content="a"), STOP, chunk(usage=usage), DONE])
    assert isinstance(last, ResponseCompleted)
    told = last.usage
    assert counted == (
        told
        and (
            told.total_tokens,
            told.input_tokens,
            told.cached_input_tokens,
            told.output_tokens,
            told.reasoning_output_tokens,
        )
    )


def test_an_error_of_a_choice_is_an_error() -> None:
    choice = {"index": 0, "delta": {}, "finish_reason": "error", "error": {"message": "why"}}
    with pytest.raises(ModelFailure, match="why"):
        read([SseEvent(b"message", json.dumps({"choices": [choice]}).encode())])


def test_calls_are_bounded() -> None:
    def too_long(*calls: dict[str, Any]) -> str:
        with pytest.raises(ModelFailure) as caught:
            read([chunk(tool_calls=[each]) for each in calls])
        assert caught.value.retry_after_s is None
        return caught.value.message

    large = "x" * (response_bounds.MAX_ITEM_BYTES // 2 + 1)
    assert too_long(call(0, arguments=large), call(0, arguments=large)).endswith(
        "a call has more than 900000 characters of arguments"
    )
    count = response_bounds.MAX_RESPONSE_BYTES // len(large) + 1
    assert too_long(*(call(n, f"{n}", arguments=large) for n in range(count))).endswith(
        f"it has more than {response_bounds.MAX_RESPONSE_BYTES} characters of arguments"
    )
    count = response_bounds.MAX_PARTS + 1
    assert too_long(*(call(n, f"{n}") for n in range(count))).endswith(
        "it has more than 1024 calls"
    )
