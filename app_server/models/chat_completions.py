"""Chat Completions: bodies of the Responses API and their answers, as that API writes them.

Servers for models on one's own machine speak it. Only members that they know are sent, as some
refuse others. From top to bottom: names of tools, tools, messages, the stream, a request.
Source: the public Chat Completions reference; docs/config.md, "Models".
"""

import hashlib
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic_core import from_json, to_json

from app_server.models.interface import (
    EventReader,
    ItemAdded,
    ItemDone,
    ModelEvent,
    ReasoningDelta,
    ResponseCompleted,
    TextDelta,
    broken,
    incomplete,
    malformed,
    reported,
)
from app_server.models.response_stream import (
    MAX_ITEM_BYTES,
    MAX_PARTS,
    MAX_RESPONSE_BYTES,
    too_long,
)
from app_server.runtime.http.event_stream import SseEvent
from protocol.jsonrpc.lone_surrogates import read_json
from protocol.model import Json, JsonObject
from protocol.turns.turn import TokenUsageBreakdown

# Flat names of tools, as functions of Chat Completions have no namespaces.
# A namespace and a name are joined with two underscores. What is too long, or taken, is cut and
# gets a hash, as the names of MCP tools do. Only the table made here leads back.
# Source: docs/mcp.md, "Names"; the public Chat Completions reference, "tools" (64 characters).


MAX_LENGTH = 64
_HASH_LENGTH = 13
"""An underscore and twelve hexadecimal digits."""


@dataclass(frozen=True, slots=True)
class CalledTool:
    """A tool as the Responses API names it."""

    kind: Literal["function", "custom", "search"]
    namespace: str | None
    name: str

    @property
    def identity(self) -> str:
        """Text that is hashed."""
        return f"{self.kind}\0{self.namespace or ''}\0{self.name}"

    @property
    def flat(self) -> str:
        """Its flat name, unless another tool has the same."""
        joined = self.name if self.namespace is None else f"{self.namespace}__{self.name}"
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", joined) or "_"
        return plain if len(plain) <= MAX_LENGTH else self.hashed(plain)

    def hashed(self, plain: str) -> str:
        """Cut a name and make it this tool's own."""
        digest = hashlib.sha1(self.identity.encode(), usedforsecurity=False).hexdigest()
        return f"{plain[: MAX_LENGTH - _HASH_LENGTH]}_{digest[:12]}"


class ToolNames:
    """The flat names of one request's tools, and the way back."""

    def __init__(self, tools: Iterable[CalledTool]) -> None:
        """Give every tool a name of its own, whatever the order of `tools`."""
        distinct = set(tools)
        count = Counter(tool.flat for tool in distinct)
        self._flat = {
            tool: tool.flat if count[tool.flat] == 1 else tool.hashed(tool.flat)
            for tool in distinct
        }
        self._tools = {flat: tool for tool, flat in self._flat.items()}

    def flat(self, tool: CalledTool) -> str:
        """Return a tool's flat name; also of one that is not offered any more."""
        return self._flat.get(tool) or tool.flat

    def tool(self, flat: str) -> CalledTool:
        """Return the tool that is called by a flat name; what is none is a function."""
        return self._tools.get(flat) or CalledTool("function", None, flat)


# Declarations of tools as functions, which are all that Chat Completions knows.
#
# A custom tool becomes a function that takes one string. Tools that a search has found are declared
# like the others, and tools that only OpenAI runs are left out.
# Source: the public Chat Completions reference, "tools".


INPUT = "input"
"""The one argument of what is a custom tool elsewhere."""

SEARCH = CalledTool("search", None, "tool_search")

NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}


def chat_tools(
    declared: Sequence[JsonObject], history: Sequence[JsonObject]
) -> tuple[list[JsonObject], ToolNames]:
    """Translate declarations, and the ones that searches in the history have found."""
    by_tool: dict[CalledTool, JsonObject] = {}
    for tool, declaration in (*_flattened(declared), *_found(history)):
        by_tool.setdefault(tool, declaration)
    names = ToolNames(by_tool)
    functions = [_function(names.flat(tool), tool, entry) for tool, entry in by_tool.items()]
    return functions, names


def _found(history: Sequence[JsonObject]) -> Iterator[tuple[CalledTool, JsonObject]]:
    for item in history:
        tools = item.get("tools")
        if item.get("type") == "tool_search_output" and isinstance(tools, list):
            yield from _flattened([tool for tool in tools if isinstance(tool, dict)])


def _flattened(
    declared: Sequence[JsonObject], namespace: str | None = None
) -> Iterator[tuple[CalledTool, JsonObject]]:
    for entry in declared:
        name = entry.get("name")
        match entry.get("type"):
            case "function" if isinstance(name, str):
                yield CalledTool("function", namespace, name), entry
            case "custom" if isinstance(name, str):
                yield CalledTool("custom", namespace, name), entry
            case "tool_search":
                yield SEARCH, entry
            case "namespace" if isinstance(name, str) and isinstance(entry.get("tools"), list):
                yield from _flattened(entry["tools"], name)


def _function(flat: str, tool: CalledTool, entry: JsonObject) -> JsonObject:
    description = entry.get("description")
    function: JsonObject = {
        "name": flat,
        "description": description if isinstance(description, str) else "",
        "parameters": entry.get("parameters") or NO_PARAMETERS,
    }
    if tool.kind == "custom":
        function["description"] += _grammar(entry.get("format"))
        function["parameters"] = {
            "type": "object",
            "properties": {INPUT: {"type": "string", "description": "The whole text."}},
            "required": [INPUT],
            "additionalProperties": False,
        }
    elif entry.get("strict") is True:
        function["strict"] = True
    return {"type": "function", "function": function}


def _grammar(form: Json) -> str:
    if not isinstance(form, dict) or not isinstance(form.get("definition"), str):
        return ""
    syntax = form.get("syntax")
    return f"\n\nThe text has to follow this {syntax} grammar:\n{form['definition']}"


# A history of Responses items as the messages of Chat Completions.
# Templates of models on one's own machine are strict: one system message, at the beginning; user
# and assistant by turns; the outputs of calls right behind them. Items that have no place in such
# a conversation, reasoning above all, are left out.
# Source: the public Chat Completions reference, "messages".


LOST_OUTPUT = "aborted before there was a result"
NOT_SHOWN = "[something that is neither text nor image was here]"

_CALLS = ("function_call", "custom_tool_call", "tool_search_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "tool_search_output")


def chat_messages(
    instructions: str, history: Sequence[JsonObject], names: ToolNames
) -> list[JsonObject]:
    """Translate instructions and a history."""
    conversation = _Conversation(instructions)
    for item in history:
        kind = item.get("type")
        if kind in _CALLS:
            conversation.call(item, names)
        elif kind in _OUTPUTS:
            conversation.output(item)
        elif kind == "message":
            conversation.message(item)
    return conversation.finish()


class _Conversation:
    def __init__(self, instructions: str) -> None:
        self._system = [instructions] if instructions else []
        self._messages: list[JsonObject] = []
        self._open: list[str] = []
        """Ids of calls whose outputs are still to come."""
        self._waiting: list[tuple[str, list[JsonObject]]] = []
        """Messages that came before the outputs of the calls before them."""

    def message(self, item: JsonObject) -> None:
        role, parts = item.get("role"), _parts(item.get("content"))
        if not parts:
            return
        if role == "assistant":
            self._add_assistant_text(parts)
        elif role in ("system", "developer") and not self._messages and not self._waiting:
            self._system.append(_text_of(parts))
        else:
            self._waiting.append(("user", parts))
            self._settle()

    def _add_assistant_text(self, parts: list[JsonObject]) -> None:
        if self._follows_assistant():
            # Also behind the calls of the same answer, whose outputs are still to come.
            last = self._messages[-1]
            last["content"] = _joined(last["content"], _text_of(parts))
        else:
            self._waiting.append(("assistant", parts))
            self._settle()

    def _follows_assistant(self) -> bool:
        return bool(self._messages) and self._messages[-1]["role"] == "assistant"

    def call(self, item: JsonObject, names: ToolNames) -> None:
        call_id = item.get("call_id")
        if not isinstance(call_id, str) or call_id in self._open:
            return
        if not self._follows_assistant():
            self._close_calls()
        # All calls of one answer belong to one message, together with what was said before them.
        if not self._follows_assistant():
            self._messages.append({"role": "assistant", "content": ""})
        self._messages[-1].setdefault("tool_calls", []).append(
            {
                "id": call_id,
                "type": "function",
                "function": {"name": names.flat(_called(item)), "arguments": _arguments(item)},
            }
        )
        self._open.append(call_id)

    def output(self, item: JsonObject) -> None:
        call_id = item.get("call_id")
        if call_id not in self._open:
            return
        self._open.remove(call_id)
        parts = _output_parts(item)
        texts = [part for part in parts if part["type"] == "text"]
        others = [part for part in parts if part["type"] != "text"]
        self._messages.append({"role": "tool", "tool_call_id": call_id, "content": _text_of(texts)})
        if others:
            # A message of a tool is text alone.
            self._waiting.append(("user", others))
        self._settle()

    def finish(self) -> list[JsonObject]:
        self._close_calls()
        system = _joined(*self._system)
        return [*([{"role": "system", "content": system}] if system else []), *self._messages]

    def _close_calls(self) -> None:
        for call_id in self._open:
            self._messages.append({"role": "tool", "tool_call_id": call_id, "content": LOST_OUTPUT})
        self._open.clear()
        self._settle()

    def _settle(self) -> None:
        """Put what waits behind the outputs, once all of them are there."""
        if self._open:
            return
        for role, parts in self._waiting:
            last = self._messages[-1] if self._messages else None
            if last is not None and last["role"] == role:
                last["content"] = _content([*_as_parts(last["content"]), *parts])
            else:
                self._messages.append({"role": role, "content": _content(parts)})
        self._waiting.clear()


def _called(item: JsonObject) -> CalledTool:
    if item["type"] == "tool_search_call":
        return SEARCH
    namespace = item.get("namespace")
    return CalledTool(
        "custom" if item["type"] == "custom_tool_call" else "function",
        namespace if isinstance(namespace, str) else None,
        str(item.get("name", "")),
    )


def _arguments(item: JsonObject) -> str:
    if item["type"] == "custom_tool_call":
        return to_json({INPUT: item.get("input")}).decode()
    arguments = item.get("arguments")
    if not isinstance(arguments, str):
        return to_json(arguments or {}).decode()
    if not arguments.strip():
        return "{}"
    try:
        from_json(arguments)
    except ValueError:
        # Servers that put arguments into a template refuse what is no JSON.
        return to_json({"invalid": arguments}).decode()
    return arguments


def _output_parts(item: JsonObject) -> list[JsonObject]:
    if item["type"] == "tool_search_output":
        tools = item.get("tools")
        found = [_name(tool) for tool in tools] if isinstance(tools, list) else []
        text = f"Found, and declared from now on: {', '.join(found)}" if found else "Found nothing."
        return [{"type": "text", "text": text}]
    return _parts(item.get("output"))


def _name(tool: Json) -> str:
    if not isinstance(tool, dict):
        return ""
    name, inner = str(tool.get("name", "")), tool.get("tools")
    if isinstance(inner, list):
        return ", ".join(CalledTool("function", name, _name(function)).flat for function in inner)
    return name


def _parts(content: Json) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return []
    return [_part(part) for part in content if isinstance(part, dict)]


def _part(part: JsonObject) -> JsonObject:
    match part.get("type"):
        case "input_text" | "output_text" | "text" if isinstance(part.get("text"), str):
            return {"type": "text", "text": part["text"]}
        case "refusal" if isinstance(part.get("refusal"), str):
            return {"type": "text", "text": part["refusal"]}
        case "input_image" if isinstance(part.get("image_url"), str):
            image = {"url": part["image_url"]}
            if part.get("detail") in ("low", "high", "auto"):
                image["detail"] = part["detail"]
            return {"type": "image_url", "image_url": image}
        case "input_audio" if isinstance(part.get("audio_url"), str):
            return _audio(part["audio_url"])
    return {"type": "text", "text": NOT_SHOWN}


def _audio(url: str) -> JsonObject:
    head, comma, data = url.partition(";base64,")
    form = head.rpartition("/")[2].removeprefix("x-")
    if not comma or not head.startswith("data:audio/"):
        return {"type": "text", "text": NOT_SHOWN}
    return {"type": "input_audio", "input_audio": {"data": data, "format": form}}


def _as_parts(content: Json) -> list[JsonObject]:
    return list(content) if isinstance(content, list) else _parts(content)


def _content(parts: list[JsonObject]) -> Json:
    """Return text where there is nothing but text: not every template takes parts."""
    if all(part["type"] == "text" for part in parts):
        return _text_of(parts)
    return list(parts)


def _joined(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))


def _text_of(parts: Sequence[JsonObject]) -> str:
    return _joined(*(part["text"] for part in parts if part["type"] == "text"))


# The stream of a chat completion, read as the events of a response.
#
# Pieces of text, of reasoning and of calls come in one kind of chunk; items begin and end where the
# kind changes. Items have no ids: nothing that another API would not know gets into a history.
# Source: the public Chat Completions reference, "Streaming"; the sources of llama.cpp's server
# (`reasoning_content`) and vLLM (`reasoning`, errors before `[DONE]`).


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
            failure = incomplete(self._reason)
            failure.usage = self._usage
            raise failure
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


# A request: a body of the Responses API as one of Chat Completions.


class ChatCompletions:
    """The API `chat`."""

    path = "chat/completions"

    def begin(self, body: JsonObject) -> tuple[JsonObject, EventReader]:
        """Translate a body, and read what answers it."""
        history = body["input"]
        tools, names = chat_tools(body.get("tools") or (), history)
        translated: JsonObject = {
            "model": body["model"],
            "messages": chat_messages(body.get("instructions") or "", history, names),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if tools:
            translated |= {
                "tools": tools,
                "tool_choice": body.get("tool_choice", "auto"),
                "parallel_tool_calls": body.get("parallel_tool_calls", True),
            }
        if effort := (body.get("reasoning") or {}).get("effort"):
            translated["reasoning_effort"] = effort
        if form := (body.get("text") or {}).get("format"):
            described = {key: form[key] for key in ("name", "strict", "schema") if key in form}
            translated["response_format"] = {"type": form["type"], "json_schema": described}
        if most := body.get("max_output_tokens"):
            # Servers of local models do not know its newer name.
            translated["max_tokens"] = most
        if tier := body.get("service_tier"):
            translated["service_tier"] = tier
        return translated, ChatReader(names)
