"""The `_meta` of tool calls, and their results. No I/O.

Source: docs/mcp.md, "Calls".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from app_server.mcp.tools.naming import RawName
from app_server.mcp_wire.errors import McpError, PeerError
from app_server.runtime.cut_text import cut_middle
from protocol.integrations.mcp import RESERVED_META, RESERVED_META_PREFIXES
from protocol.model import Json, JsonObject

SANDBOX_CAPABILITIES = ("codex/sandbox-state-meta", "codex/sandbox-state")
"""Experimental capabilities of servers that want the sandbox state; also its keys in `_meta`."""

INPUT_CAPABILITY = "codex/tool-input-meta"
"""Experimental capability of servers that say what a tool really got."""

EFFECTIVE_INPUT = "codex/toolInput"
"""Its key in `_meta` of a result; removed before the result is passed on."""

BYTES_PER_TOKEN = 4.8
"""A token counts as four bytes, and a limit in tokens leaves a fifth more."""

DEFAULT_MODEL_BYTES = 12_000
"""UTF-8 bytes of text of one tool output that the model sees."""

MAX_MODEL_BLOCKS = 256
"""Content blocks of one tool output that the model sees."""

MAX_RESULT_BYTES = 900 * 1024
"""UTF-8 bytes of a result inside an item; a message to a client stays below 1 MiB."""

MAX_CAUSE_BYTES = 12_000
"""UTF-8 bytes of what a server says of a call that failed; the middle is cut out."""

OMITTED_AUDIO = "<audio content omitted because you do not support audio input>"


@dataclass(frozen=True, slots=True)
class CallOrigin:
    """The thread, turn and item of a model's tool call."""

    thread_id: str
    turn_id: str
    call_id: str
    item_id: str | None
    """The Responses item that asked for it."""
    turn_metadata: JsonObject
    sandbox_state: JsonObject | None = None
    """For a server that asked for it."""
    plugin_id: str | None = None
    """The plugin that brought the server."""


def request_meta(origin: CallOrigin, client_meta: Mapping[str, Json]) -> JsonObject:
    """Assemble `_meta` of a call that a model made.

    `client_meta` is what the client gave for this server; reserved keys are dropped from it, and
    ours are written over what is left. The transport adds `progressToken`.
    """
    meta = client_part(client_meta)
    meta["callId"] = origin.call_id
    meta["codex/toolCallId"] = origin.call_id
    meta["x-codex-turn-metadata"] = origin.turn_metadata
    meta["threadId"] = origin.thread_id
    meta["sessionId"] = origin.thread_id
    meta["windowId"] = f"{origin.thread_id}:0"
    if origin.item_id is not None:
        meta["itemId"] = origin.item_id
    if origin.plugin_id is not None:
        meta["plugin_id"] = origin.plugin_id
    if origin.sandbox_state is not None:
        meta |= dict.fromkeys(SANDBOX_CAPABILITIES, origin.sandbox_state)
    return meta


def client_part(meta: Mapping[str, Json]) -> JsonObject:
    """Return of a client's `_meta` what a server gets: everything but reserved keys."""
    return {key: value for key, value in meta.items() if not _is_reserved(key)}


def _is_reserved(key: str) -> bool:
    return key in RESERVED_META or key.startswith(RESERVED_META_PREFIXES)


def without_effective_input(result: JsonObject) -> tuple[JsonObject, Json]:
    """Take out of a result what its tool says that it really got; None when it says nothing."""
    meta = result.get("_meta")
    if not isinstance(meta, dict) or EFFECTIVE_INPUT not in meta:
        return result, None
    rest = {key: value for key, value in meta.items() if key != EFFECTIVE_INPUT}
    return {**result, "_meta": rest or None}, meta[EFFECTIVE_INPUT]


def failure_text(raw: RawName, error: McpError) -> str:
    """Say what went wrong with a call, for the item and for the model."""
    if isinstance(error, PeerError):
        data = "" if error.data is None else f"({to_json(error.data).decode()})"
        cause = cut_middle(f"Mcp error: {error.code}: {error.message}{data}", MAX_CAUSE_BYTES)
    else:
        cause = str(error)
    return (
        f"tool call error: tool call failed for `{raw.server}/{raw.tool}`\n\n"
        f"Caused by:\n    {cause}"
    )


def model_output(result: JsonObject, wall_s: float, limit_bytes: int) -> Json:
    """Turn a result into what the model reads: a list of content, or one string.

    Text beyond `limit_bytes` is cut out of the middle of the block in which the limit lies; of the
    texts behind it, and of blocks above MAX_MODEL_BLOCKS, the model reads how many there are.
    """
    header = f"Wall time: {wall_s:.4f} seconds\nOutput:"
    structured = result.get("structuredContent")
    if structured is not None:
        return f"{header}\n{cut_middle(compact(structured), limit_bytes)}"
    parts: list[JsonObject] = [_text(header)]
    left = limit_bytes
    blocks = blocks_of(result)
    for block in blocks[:MAX_MODEL_BLOCKS]:
        part = _model_part(block)
        if (text := part.get("text")) is not None:
            if left <= 0:
                continue
            part = _text(cut_middle(text, left))
            left -= len(text.encode())
        parts.append(part)
    if left_out := len(blocks) - len(parts) + 1:
        parts.append(_text(f"…{left_out} content blocks truncated…"))
    return parts


def failed_output(text: str, wall_s: float) -> Json:
    """Turn a failure into what the model reads."""
    return [_text(f"Wall time: {wall_s:.4f} seconds\nOutput:"), _text(text)]


def blocks_of(result: JsonObject) -> list[Any]:
    """Return a result's content blocks; a result without any has none."""
    content = result.get("content")
    return content if isinstance(content, list) else []


def bounded_result(result: JsonObject) -> JsonObject:
    """Return a result that fits into a message to a client.

    One that does not becomes a single text block with its beginning and its end.
    """
    if len(encoded := to_json(result, inf_nan_mode="null")) <= MAX_RESULT_BYTES:
        return result
    rendered = encoded.decode()
    half = MAX_RESULT_BYTES // 4
    removed = len(rendered) - 2 * half
    text = f"Truncated tool output:\n{rendered[:half]}…{removed} chars truncated…{rendered[-half:]}"
    return {"content": [{"type": "text", "text": text}]}


def _model_part(block: Json) -> JsonObject:
    match block:
        case {"type": "text", "text": str(text)}:
            return _text(text)
        case {"type": "image", "data": str(data), "mimeType": str(kind)}:
            url = f"data:{kind};base64,{data}"
            return {"type": "input_image", "image_url": url, "detail": "high"}
        case {"type": "audio"}:
            return _text(OMITTED_AUDIO)
    return _text(compact(block))


def _text(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def compact(value: Json) -> str:
    """Write a value as JSON without spaces; numbers that JSON does not have become null."""
    return to_json(value, inf_nan_mode="null").decode()
