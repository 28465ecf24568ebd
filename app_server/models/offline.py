"""The offline model: a deterministic stand-in behind a loopback Responses endpoint.

It says of itself that it is one. It repeats the user's last message, and what it was told from
outside since it spoke last; `/tool SERVER.TOOL {json}`, `/exec LINE`, `/outside LINE` and `/patch
TEXT` make it call a tool and repeat what came back. Asked for a review of an approval it denies, as
it cannot judge; asked to sum a conversation up it lists the end of it. Knows the Responses API, the
marks of these two requests and nothing else of ours, so turns reach it through the same client as
any model. Importing this module imports starlette and uvicorn: the server does it when the model is
needed.
Source: docs/config.md, "The offline model".
"""

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pydantic_core import from_json, to_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from app_server.models.prompt.environment_context import kind_of
from app_server.runtime.http.bounded_body import TooManyBytes, read_bounded
from app_server.runtime.http.listening import HOST
from app_server.runtime.http.loopback_server import serve_on_loopback

INTRODUCTION = "This is the offline model: it repeats what it is told."
REVIEW_SCHEMA = "approval_review"
REVIEW_ANSWER = {
    "risk_level": "high",
    "user_authorization": "unknown",
    "outcome": "deny",
    "rationale": "The offline model cannot judge what is safe.",
}
SUMMED_MESSAGES = 8
SUMMED_CHARS = 160
"""Of each message, in a summary."""
MAX_REQUEST_BYTES = 128 * 1024 * 1024

Item = dict[str, Any]


def reply(body: Item) -> Item:
    """Choose the one output item that answers a request."""
    items = [item for item in body.get("input", []) if isinstance(item, dict)]
    identity = hashlib.sha256(to_json(items)).hexdigest()[:24]
    match body:
        case {"text": {"format": {"type": "json_schema", "name": name}}} if name == REVIEW_SCHEMA:
            return _message(identity, to_json(REVIEW_ANSWER).decode())
        case {"client_metadata": {"request_kind": "compaction"}}:
            return _message(identity, _summary(items[:-1]))
    last = items[-1] if items else {}
    if last.get("type") in ("function_call_output", "custom_tool_call_output"):
        return _message(identity, f"The tool answered: {_text_of(last.get('output'))}")
    said = next(
        (_text_of(i.get("content")) for i in reversed(items) if i.get("role") == "user"), ""
    )
    word, _, rest = said.partition(" ")
    if word in _WORDS and not _called_since(items):
        return _WORDS[word](identity, rest, body.get("tools", []))
    news = "".join(f" I was also told: {text}" for text in _messages_since_last_answer(items))
    return _message(identity, f"{INTRODUCTION} You said: {said}{news}")


def _called_since(items: list[Item]) -> bool:
    """Whether the user's last message has had its call."""
    for item in reversed(items):
        if item.get("role") == "user":
            break
        if item.get("type") in ("function_call", "custom_tool_call"):
            return True
    return False


def _summary(items: list[Item]) -> str:
    """List the last messages, one line each."""
    said = [
        (item["role"], _text_of(item.get("content")))
        for item in items
        if "role" in item and kind_of(item) is None
    ]
    lines = [f"- {role}: {' '.join(text.split())[:SUMMED_CHARS]}" for role, text in said]
    left_out = max(0, len(lines) - SUMMED_MESSAGES)
    head = f"{INTRODUCTION} The last messages, after {left_out} others:"
    return "\n".join([head, *lines[left_out:]])


def _messages_since_last_answer(items: list[Item]) -> list[str]:
    """Return what came with the role `developer` since the model spoke last."""
    texts: list[str] = []
    for item in items:
        if item.get("role") == "assistant":
            texts.clear()
        elif item.get("role") == "developer" and kind_of(item) is None:
            texts.append(_text_of(item.get("content")))
    return texts


def _call(identity: str, command: str, tools: list[Item]) -> Item:
    name, _, arguments = command.strip().partition(" ")
    if any(found.get("name") == name and found["type"] == "function" for found in tools):
        return _function(identity, name, arguments or "{}")
    server, _, tool = name.partition(".")
    for namespace in tools:
        if namespace.get("type") != "namespace":
            continue
        if namespace["name"] not in (server, f"mcp__{server}"):
            continue
        if any(function.get("name") == tool for function in namespace["tools"]):
            return _function(identity, tool, arguments or "{}", namespace=namespace["name"])
    return _message(identity, f"{INTRODUCTION} There is no tool {name}.")


def _execute(identity: str, line: str, tools: list[Item]) -> Item:
    return _function(identity, "exec_command", to_json({"cmd": line}).decode())


def _execute_unsandboxed(identity: str, line: str, tools: list[Item]) -> Item:
    arguments = {
        "cmd": line,
        "sandbox_permissions": "require_escalated",
        "justification": "The offline model was told to run it outside of the sandbox.",
    }
    return _function(identity, "exec_command", to_json(arguments).decode())


def _patch(identity: str, text: str, tools: list[Item]) -> Item:
    return _function(identity, "apply_patch", to_json({"input": text}).decode())


def _function(identity: str, name: str, arguments: str, **members: str) -> Item:
    return {
        "type": "function_call",
        "id": f"fc_{identity}",
        "call_id": f"call_{identity}",
        **members,
        "name": name,
        "arguments": arguments,
    }


_WORDS: Mapping[str, Callable[[str, str, list[Item]], Item]] = {
    "/tool": _call,
    "/exec": _execute,
    "/outside": _execute_unsandboxed,
    "/patch": _patch,
}
"""With what a message begins that makes the model call a tool."""


def _message(identity: str, text: str) -> Item:
    return {
        "type": "message",
        "id": f"msg_{identity}",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
    }


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def events(item: Item, input_bytes: int) -> Iterator[Item]:
    """Spell an output item out as the events of one response."""
    response_id = f"resp_{item['id']}"
    yield {"type": "response.created", "response": {"id": response_id}}
    text = _text_of(item.get("content"))
    begun = {**item, "content": []} if item["type"] == "message" else item
    yield {"type": "response.output_item.added", "output_index": 0, "item": begun}
    if item["type"] == "message":
        for delta in re.findall(r"\S+\s*|\s+", text):
            yield {
                "type": "response.output_text.delta",
                "item_id": item["id"],
                "output_index": 0,
                "content_index": 0,
                "delta": delta,
            }
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    tokens_in, tokens_out = input_bytes // 4, len(text) // 4
    usage = {
        "input_tokens": tokens_in,
        "output_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }
    yield {"type": "response.completed", "response": {"id": response_id, "usage": usage}}


async def _respond(request: Request, max_bytes: int) -> Response:
    try:
        content = await read_bounded(request.stream(), max_bytes)
        body = from_json(content)
    except TooManyBytes as exc:
        return _refused(413, f"the request is {exc}")
    except ValueError as exc:
        return _refused(400, f"not JSON: {exc}")
    if not isinstance(body, dict):
        return _refused(400, "the body must be a JSON object")

    async def stream() -> AsyncIterator[bytes]:
        for event in events(reply(body), len(content)):
            yield b"event: %b\ndata: %b\n\n" % (event["type"].encode(), to_json(event))

    return StreamingResponse(stream(), media_type="text/event-stream")


def _refused(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "code": "bad_request"}}, status)


@asynccontextmanager
async def serve_offline_model(max_request_bytes: int = MAX_REQUEST_BYTES) -> AsyncIterator[str]:
    """Serve the model on a free loopback port while the context lasts; gives its base URL.

    Requests of more than `max_request_bytes` are refused with 413.
    """

    async def responses(request: Request) -> Response:
        return await _respond(request, max_request_bytes)

    app = Starlette(routes=[Route("/v1/responses", responses, methods=["POST"])])
    async with serve_on_loopback(app) as port:
        yield f"http://{HOST}:{port}/v1"
