"""The Responses API: what is sent is what turns assemble, and its events are read one by one.

Source: the public Responses API reference, "Streaming".
"""

from collections.abc import Sequence
from contextlib import suppress

from app_server.models.interface import (
    CallInputDelta,
    EventReader,
    ItemAdded,
    ItemDone,
    ModelEvent,
    ModelFailure,
    ReasoningDelta,
    ResponseCompleted,
    SummaryDelta,
    SummaryPartAdded,
    TextDelta,
    broken,
    incomplete,
    malformed,
    reported,
)
from app_server.runtime.http.event_stream import SseEvent
from protocol.jsonrpc.lone_surrogates import read_json
from protocol.model import Json, JsonObject
from protocol.turns.turn import TokenUsageBreakdown


class ResponsesApi:
    """The API `responses`."""

    path = "responses"

    def begin(self, body: JsonObject) -> tuple[JsonObject, EventReader]:
        """Send a body as it is, but for reasoning that another API has left in the history."""
        if any(map(_is_foreign, body["input"])):
            body = {**body, "input": [item for item in body["input"] if not _is_foreign(item)]}
        return body, _Reader()


def _is_foreign(item: JsonObject) -> bool:
    """Whether it is raw reasoning that no Responses API has given a name."""
    is_named = item.get("id") or item.get("encrypted_content")
    return item.get("type") == "reasoning" and bool(item.get("content")) and not is_named


class _Reader:
    def read(self, sse: SseEvent) -> Sequence[ModelEvent]:
        event = parse_event(sse)
        return () if event is None else (event,)

    def end(self) -> Sequence[ModelEvent]:
        raise broken("stream closed before response.completed")


def parse_event(sse: SseEvent) -> ModelEvent | None:
    """Read one event of the Responses API; None for kinds that are not used.

    Raises:
        ModelFailure: the event reports one, or is not JSON.
    """
    try:
        event = read_json(sse.data)
        match event["type"]:
            case "response.output_text.delta":
                return TextDelta(_item_id(event), _text(event, "delta"))
            case "response.output_item.added":
                return ItemAdded(_item(event))
            case "response.output_item.done":
                return ItemDone(_item(event))
            case "response.reasoning_summary_part.added":
                return SummaryPartAdded(_item_id(event), _index(event, "summary_index"))
            case "response.reasoning_summary_text.delta":
                index = _index(event, "summary_index")
                return SummaryDelta(_item_id(event), index, _text(event, "delta"))
            case "response.reasoning_text.delta":
                index = _index(event, "content_index")
                return ReasoningDelta(_item_id(event), index, _text(event, "delta"))
            case "response.custom_tool_call_input.delta":
                return CallInputDelta(_item_id(event), _text(event, "delta"))
            case "response.completed":
                return ResponseCompleted(_usage(event["response"].get("usage")))
            case "response.failed" | "error":
                raise _with_usage(reported(_error(event)), event)
            case "response.incomplete":
                details = event["response"].get("incomplete_details") or {}
                raise _with_usage(incomplete(details.get("reason") or "unknown"), event)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise malformed(exc) from exc
    return None


def _with_usage(failure: ModelFailure, event: JsonObject) -> ModelFailure:
    """Add what a failed response has used to its failure, where the event says it."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        failure.usage = _usage(event["response"].get("usage"))
    return failure


def _text(event: JsonObject, key: str) -> str:
    value = event[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} must be a string")
    return value


def _index(event: JsonObject, key: str) -> int:
    index = int(event[key])
    if not -(2**63) <= index < 2**63:
        # As many as clients can be sent.
        raise ValueError(f"{key} must have at most 64 bits")
    return index


def _item_id(event: JsonObject) -> str | None:
    return None if event.get("item_id") is None else _text(event, "item_id")


def _item(event: JsonObject) -> JsonObject:
    item = event["item"]
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        raise ValueError("an item must be an object with a type")
    return item


def _usage(usage: Json) -> TokenUsageBreakdown | None:
    if not isinstance(usage, dict):
        return None
    input_details = usage.get("input_tokens_details") or {}
    output_details = usage.get("output_tokens_details") or {}
    return TokenUsageBreakdown(
        total_tokens=usage["total_tokens"],
        input_tokens=usage["input_tokens"],
        cached_input_tokens=input_details.get("cached_tokens") or 0,
        output_tokens=usage["output_tokens"],
        reasoning_output_tokens=output_details.get("reasoning_tokens") or 0,
    )


def _error(event: JsonObject) -> JsonObject:
    error: JsonObject = event.get("error") or (event.get("response") or {}).get("error") or event
    return error
