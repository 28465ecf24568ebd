"""From notifications of one turn to the events of `codex exec --json`. No I/O.

Source: docs/exec.md, "Events"; openai/codex, sdk/typescript (`events.ts`, `items.ts`).
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from protocol.model import Json, JsonObject

Members: TypeAlias = JsonObject

STATUSES = {"inProgress": "in_progress"}
"""Of calls and commands, by their words on the wire; all others are the same."""

FILE_STATUSES = STATUSES | {"declined": "failed"}


def _command(item: JsonObject) -> Members:
    return {
        "type": "command_execution",
        "command": item["command"],
        "aggregated_output": item.get("aggregatedOutput") or "",
        "exit_code": item.get("exitCode"),
        "status": _word(item["status"]),
    }


def _files(item: JsonObject) -> Members:
    changes = [{"path": one["path"], "kind": one["kind"]["type"]} for one in item["changes"]]
    return {
        "type": "file_change",
        "changes": changes,
        "status": _word(item["status"], FILE_STATUSES),
    }


def _tool_call(item: JsonObject) -> Members:
    result = item.get("result")
    return {
        "type": "mcp_tool_call",
        "server": item["server"],
        "tool": item["tool"],
        "arguments": item["arguments"],
        "result": None
        if result is None
        else {
            "content": result["content"],
            "structured_content": result.get("structuredContent"),
        },
        "error": item.get("error"),
        "status": _word(item["status"]),
    }


def _search(item: JsonObject) -> Members:
    return {"type": "web_search", "query": item["query"], "action": item.get("action")}


def _word(status: str, words: Mapping[str, str] = STATUSES) -> str:
    return words.get(status, status)


WITH_START: Mapping[str, Callable[[JsonObject], Members]] = {
    "commandExecution": _command,
    "fileChange": _files,
    "mcpToolCall": _tool_call,
    "webSearch": _search,
}
"""Items that are shown when they begin and when they end, by their type on the wire."""


def _message(item: JsonObject) -> Members:
    return {"type": "agent_message", "text": item["text"]}


def _reasoning(item: JsonObject) -> Members | None:
    text = "\n".join(item.get("summary") or item.get("content") or ())
    return {"type": "reasoning", "text": text} if text else None


WHOLE: Mapping[str, Callable[[JsonObject], Members | None]] = {
    "agentMessage": _message,
    "reasoning": _reasoning,
}
"""Items that are shown once they are complete."""


def warning_text(method: str, params: JsonObject) -> str | None:
    """Return what a notification warns the user of; None if it is no warning."""
    match method:
        case "warning" | "guardianWarning":
            return str(params["message"])
        case "configWarning" | "deprecationNotice":
            details = params.get("details")
            return f"{params['summary']}\n{details}" if details else str(params["summary"])
    return None


def failure_text(error: JsonObject, *, will_retry: bool) -> str:
    """Return the message of a failed model call or turn; that of a retry has its cause."""
    details = error.get("additionalDetails")
    return f"{error['message']} ({details})" if will_retry and details else str(error["message"])


class ExecEvents:
    """The events of one run, in their order; items are numbered from `item_0` as they appear."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._shown: dict[str, str] = {}
        """Ids of items that have begun, by their ids on the wire."""
        self._plan: JsonObject | None = None
        self._usage: JsonObject = {}

    def begin(self, thread_id: str) -> Iterator[JsonObject]:
        """Render the beginning of a run."""
        yield {"type": "thread.started", "thread_id": thread_id}

    def take(self, method: str, params: JsonObject) -> Iterator[JsonObject]:
        """Translate a notification; those without a counterpart give nothing."""
        match method:
            case "turn/started":
                yield {"type": "turn.started"}
            case "item/started":
                yield from self._started(params["item"])
            case "item/completed":
                yield from self._completed(params["item"])
            case "turn/plan/updated":
                yield self._planned(params["plan"])
            case "thread/tokenUsage/updated":
                self._usage = params["tokenUsage"]["total"]
            case "error":
                text = failure_text(params["error"], will_retry=params["willRetry"])
                yield {"type": "error", "message": text}
            case "turn/completed":
                yield from self._ended(params["turn"])
            case _:
                if (warning := warning_text(method, params)) is not None:
                    error = {"type": "error", "message": warning}
                    yield self._completed_item(self._next_id(), error)

    def lost(self, reason: str) -> Iterator[JsonObject]:
        """Render the loss of the server in a run; the turn may go on there."""
        yield {"type": "error", "message": reason}
        yield {"type": "turn.failed", "error": {"message": reason}}

    def _started(self, item: JsonObject) -> Iterator[JsonObject]:
        render = WITH_START.get(item["type"])
        if render is not None:
            shown_id = self._shown[item["id"]] = self._next_id()
            yield {"type": "item.started", "item": {"id": shown_id, **render(item)}}

    def _completed(self, item: JsonObject) -> Iterator[JsonObject]:
        render = WITH_START.get(item["type"]) or WHOLE.get(item["type"])
        members = None if render is None else render(item)
        if members is not None:
            yield self._completed_item(self._shown.pop(item["id"], "") or self._next_id(), members)

    def _planned(self, plan: list[Any]) -> JsonObject:
        steps: list[Json] = [
            {"text": step["step"], "completed": step["status"] == "completed"} for step in plan
        ]
        kind = "item.started" if self._plan is None else "item.updated"
        shown_id = self._next_id() if self._plan is None else self._plan["id"]
        self._plan = {"id": shown_id, "type": "todo_list", "items": steps}
        return {"type": kind, "item": self._plan}

    def _ended(self, turn: JsonObject) -> Iterator[JsonObject]:
        if self._plan is not None:
            yield {"type": "item.completed", "item": self._plan}
        match turn["status"]:
            case "completed":
                yield {"type": "turn.completed", "usage": usage_members(self._usage)}
            case "failed":
                error = turn.get("error") or {"message": "the turn failed"}
                yield {"type": "turn.failed", "error": {"message": error["message"]}}

    def _completed_item(self, shown_id: str, members: Members) -> JsonObject:
        return {"type": "item.completed", "item": {"id": shown_id, **members}}

    def _next_id(self) -> str:
        return f"item_{next(self._numbers)}"


def usage_members(total: JsonObject) -> JsonObject:
    """Render the tokens of a thread, in all its turns."""
    return {
        "input_tokens": total.get("inputTokens", 0),
        "cached_input_tokens": total.get("cachedInputTokens", 0),
        "cache_write_input_tokens": total.get("cacheWriteInputTokens", 0),
        "output_tokens": total.get("outputTokens", 0),
        "reasoning_output_tokens": total.get("reasoningOutputTokens", 0),
    }


UNQUOTED = {code: f"\\u{code:04x}" for code in range(127, 160)}
"""Control characters that JSON leaves as they are, and terminals obey."""


class JsonLines:
    """Writes the events, one a line."""

    def __init__(self) -> None:
        self._events = ExecEvents()

    def begin(self, opened: JsonObject) -> Iterator[str]:
        """See Presenter."""
        return map(_line, self._events.begin(opened["thread"]["id"]))

    def take(self, method: str, params: JsonObject) -> Iterator[str]:
        """See Presenter."""
        return map(_line, self._events.take(method, params))

    def asked(self, method: str, params: JsonObject) -> Iterator[str]:
        """Write nothing: there is no event for a question."""
        return iter(())

    def lost(self, reason: str) -> Iterator[str]:
        """See Presenter."""
        return map(_line, self._events.lost(reason))


def _line(event: JsonObject) -> str:
    text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return text.translate(UNQUOTED)
