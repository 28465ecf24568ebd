"""A history of Responses items as the messages of Chat Completions.

Templates of models on one's own machine are strict: one system message, at the beginning; user and
assistant by turns; the outputs of calls right behind them. Items that have no place in such a
conversation, reasoning above all, are left out.
Source: the public Chat Completions reference, "messages".
"""

from collections.abc import Sequence

from pydantic_core import from_json, to_json

from app_server.models.chat.names import CalledTool, ToolNames
from app_server.models.chat.tools import INPUT, SEARCH
from protocol.model import Json, JsonObject

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
