"""The stream of a chat completion, read as the events of a response.

Pieces of text, of reasoning and of calls come in one kind of chunk; items begin and end where the
kind changes. Items have no ids: nothing that another API would not know gets into a history.
Source: the public Chat Completions reference, "Streaming"; the sources of llama.cpp's server
(`reasoning_content`) and vLLM (`reasoning`, errors before `[DONE]`).
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pydantic_core import from_json, to_json

from app_server.models.bounds import (
    MAX_ITEM_BYTES,
    MAX_PARTS,
    MAX_RESPONSE_BYTES,
    too_long,
)
from app_server.models.chat.names import ToolNames
from app_server.models.chat.tools import INPUT
from app_server.models.failures import broken, incomplete, malformed, reported
from app_server.models.interface import (
    ItemAdded,
    ItemDone,
    ModelEvent,
    ReasoningDelta,
    ResponseCompleted,
    TextDelta,
)
from app_server.runtime.http.event_stream import SseEvent
from protocol.jsonrpc.lone_surrogates import read_json
from protocol.model import Json, JsonObject
from protocol.turns.turn import TokenUsageBreakdown

DONE = b"[DONE]"
CUT_SHORT = ("length", "content_filter")
"""Reasons for an end that leave an answer unfinished."""


@dataclass(slots=True)
class _Call:
    call_id: str | None
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    chars: int = 0


class ChatReader:
    """Reads one response."""

    def __init__(self, names: ToolNames) -> None:
        self._names = names
        self._kind: str | None = None
        """`message` or `reasoning`: the item that is open."""
        self._pieces: list[str] = []
        """Of the text of that item."""
        self._calls: list[_Call] = []
        self._by_index: dict[Json, _Call] = {}
        self._chars = 0
        self._usage: TokenUsageBreakdown | None = None
        self._reason: str | None = None
        """Why the model ended."""

    def read(self, sse: SseEvent) -> Sequence[ModelEvent]:
        """Read one chunk.

        Raises:
            ModelFailure: it reports one, or makes no sense.
        """
        if sse.data.strip() == DONE:
            return self._complete()
        try:
            chunk = read_json(sse.data)
            if chunk.get("error"):
                raise reported(_error(chunk["error"]))
            self._usage = _usage(chunk.get("usage")) or self._usage
            return [
                event
                for choice in chunk.get("choices") or ()
                if not choice.get("index")
                for event in self._choice(choice)
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise malformed(exc) from exc

    def end(self) -> Sequence[ModelEvent]:
        """Complete a response whose server ends the body without a word.

        Raises:
            ModelFailure: the model had not ended.
        """
        if self._reason is None:
            raise broken("stream closed before the end of the completion")
        return self._complete()

    def _choice(self, choice: JsonObject) -> Iterator[ModelEvent]:
        if choice.get("error"):
            raise reported(_error(choice["error"]))
        delta = choice.get("delta") or {}
        if text := _text(delta.get("reasoning_content") or delta.get("reasoning")):
            yield from self._open("reasoning")
            self._pieces.append(text)
            yield ReasoningDelta(None, 0, text)
        if text := _text(delta.get("content") or delta.get("refusal")):
            yield from self._open("message")
            self._pieces.append(text)
            yield TextDelta(None, text)
        for call in delta.get("tool_calls") or ():
            self._take(call)
        if reason := choice.get("finish_reason"):
            self._reason = str(reason)

    def _open(self, kind: str) -> Iterator[ModelEvent]:
        if self._kind == kind:
            return
        yield from self._close()
        self._kind = kind
        yield ItemAdded(self._item(""))

    def _close(self) -> Iterator[ModelEvent]:
        if self._kind is not None:
            yield ItemDone(self._item("".join(self._pieces)))
            self._kind = None
            self._pieces.clear()

    def _item(self, text: str) -> JsonObject:
        if self._kind == "reasoning":
            content = [{"type": "reasoning_text", "text": text}] if text else []
            return {"type": "reasoning", "summary": [], "content": content}
        content = [{"type": "output_text", "text": text}] if text else []
        return {"type": "message", "role": "assistant", "content": content}

    def _take(self, piece: JsonObject) -> None:
        """Add a piece of a call; servers name the call by an index, an id, or both."""
        function = piece.get("function") or {}
        index, call_id = piece.get("index"), piece.get("id") or None
        call = self._by_index.get(index)
        if index is None and call_id is None and self._calls:
            call = self._calls[-1]
        is_other = call is not None and call_id not in (None, call.call_id) and function.get("name")
        if call is None or (is_other and call.call_id is not None):
            if len(self._calls) == MAX_PARTS:
                raise too_long(f"it has more than {MAX_PARTS} calls")
            call = _Call(call_id)
            self._calls.append(call)
            self._by_index[index] = call
        call.call_id = call.call_id or call_id
        call.name = call.name or _text(function.get("name"))
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else ""
        if isinstance(arguments, dict):
            text = to_json(arguments).decode()
        call.arguments.append(text)
        call.chars += len(text)
        self._chars += len(text)
        if call.chars > MAX_ITEM_BYTES:
            raise too_long(f"a call has more than {MAX_ITEM_BYTES} characters of arguments")
        if self._chars > MAX_RESPONSE_BYTES:
            raise too_long(f"it has more than {MAX_RESPONSE_BYTES} characters of arguments")

    def _complete(self) -> Sequence[ModelEvent]:
        events = list(self._close())
        if self._reason in CUT_SHORT:
            raise incomplete(self._reason)
        events += (ItemDone(self._call_item(call)) for call in self._calls)
        return [*events, ResponseCompleted(self._usage)]

    def _call_item(self, call: _Call) -> JsonObject:
        tool = self._names.tool(call.name)
        call_id = call.call_id or f"call_{uuid.uuid4().hex}"
        arguments = "".join(call.arguments)
        item: JsonObject
        match tool.kind:
            case "custom":
                item = {"type": "custom_tool_call", "input": _only_argument(arguments)}
            case "search":
                item = {
                    "type": "tool_search_call",
                    "execution": "client",
                    "arguments": _members(arguments) or arguments,
                }
            case "function":
                item = {"type": "function_call", "arguments": arguments}
        if tool.kind != "search":
            item["name"] = tool.name
        if tool.namespace is not None:
            item["namespace"] = tool.namespace
        return {**item, "call_id": call_id}


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _only_argument(arguments: str) -> str:
    """Return the text of a custom tool; what is no such object is the text itself."""
    text = _members(arguments).get(INPUT)
    return text if isinstance(text, str) else arguments


def _members(arguments: str) -> JsonObject:
    try:
        members = from_json(arguments)
    except ValueError:
        return {}
    return members if isinstance(members, dict) else {}


def _error(error: Json) -> JsonObject:
    return error if isinstance(error, dict) else {"message": str(error)}


def _usage(usage: Json) -> TokenUsageBreakdown | None:
    """Read the account; one that makes no sense is none, as the answer is worth more."""
    if not isinstance(usage, dict):
        return None
    prompt, output = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    total = _count(usage, "total_tokens") or prompt + output
    if not total:
        return None
    return TokenUsageBreakdown(
        total_tokens=total,
        input_tokens=prompt,
        cached_input_tokens=_count(usage.get("prompt_tokens_details"), "cached_tokens"),
        output_tokens=output,
        reasoning_output_tokens=_count(usage.get("completion_tokens_details"), "reasoning_tokens"),
    )


def _count(counts: Json, name: str) -> int:
    count = counts.get(name) if isinstance(counts, dict) else None
    return count if isinstance(count, int) and count > 0 else 0
