"""From events and items of a thread to `session/update`. No I/O.

Source: https://agentclientprotocol.com/protocol/v1/prompt-turn, "Agent Reports Output", and
/protocol/v1/tool-calls; docs/acp.md, "Updates".
"""

import re
import shlex
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from protocol.model import Json, JsonObject

MAX_OPEN_ITEMS = 256
"""Items that have begun and not ended, of which something is remembered; the oldest is forgotten.
"""
MAX_OUTPUT_CHARS = 64 * 1024
"""Of a command's output that is shown as text once it has ended: the end of it."""
LIVE_CHARS = 8 * 1024
"""Of it in each update while the command runs, where the client shows no terminal."""
MAX_TITLE_CHARS = 80

_HUNK = re.compile(r"@@ -(\d+)")
_STATUS = {"inProgress": "in_progress", "completed": "completed"}
"""Of items; any other status is `failed`."""
_DELTAS = {
    "item/agentMessage/delta": "agent_message_chunk",
    "item/plan/delta": "agent_message_chunk",
    "item/reasoning/summaryTextDelta": "agent_thought_chunk",
    "item/reasoning/textDelta": "agent_thought_chunk",
}
_STEP_STATUS = {"inProgress": "in_progress", "completed": "completed"}


class ThreadUpdates:
    """Translator of one thread's events for one client, which may come into it at any time."""

    def __init__(self, cwd: str, *, shows_terminals: bool) -> None:
        """`shows_terminals`: output of commands goes to terminals of the client."""
        self.cwd = cwd
        self._shows_terminals = shows_terminals
        self._own_messages: set[str] = set()
        self._streamed: set[str] = set()
        """Items of which text was sent as it came."""
        self._open: OrderedDict[str, JsonObject] = OrderedDict()
        self._live_output: dict[str, str] = {}
        """The end of what an open command has printed."""

    def expect_message(self, client_id: str) -> None:
        """Leave out the message that this client sends: it has shown it already."""
        self._own_messages.add(client_id)

    def item_of_question(self, asked: JsonObject) -> JsonObject:
        """Return the open item that a question is about, as it was announced; `{}`: none is.

        The approval of a tool names the tool alone: it is about the newest call of it.
        """
        if (item_id := asked.get("itemId")) is not None:
            return self._open.get(item_id, {})
        meta = asked.get("_meta")
        tool = meta.get("tool_name") if isinstance(meta, dict) else None
        for item in reversed(self._open.values()):
            if (item.get("server"), item.get("tool")) == (asked.get("serverName"), tool):
                return item
        return {}

    def of_event(self, method: str, params: JsonObject) -> Sequence[JsonObject]:
        """Return the updates that tell of an event of the thread."""
        match method:
            case "item/started":
                return self._started(params["item"])
            case "item/completed":
                return self._completed(params["item"])
            case _ if (kind := _DELTAS.get(method)) is not None:
                self._streamed.add(params["itemId"])
                return [_chunk(kind, params["itemId"], params["delta"])]
            case "item/reasoning/summaryPartAdded" if params["summaryIndex"] > 0:
                return [_chunk("agent_thought_chunk", params["itemId"], "\n\n")]
            case "item/commandExecution/outputDelta":
                return self._printed(params["itemId"], params["delta"])
            case "item/fileChange/patchUpdated":
                content = list(diffs(params["changes"], self.cwd))
                return [_update(params["itemId"], content=content)]
            case "item/mcpToolCall/progress":
                return [_update(params["itemId"], content=[text_content(params["message"])])]
            case "turn/plan/updated":
                return [_plan(params["plan"])]
            case "turn/completed":
                self._streamed.clear()
                self._own_messages.clear()
            case "thread/tokenUsage/updated":
                return _usage(params["tokenUsage"])
            case "thread/name/updated":
                return [{"sessionUpdate": "session_info_update", "title": params["threadName"]}]
        return []

    def of_history(self, item: JsonObject) -> Iterator[JsonObject]:
        """Return the updates that tell of an item that is stored, or of what there is of it."""
        match item["type"]:
            case "userMessage":
                yield from _user_message(item)
            case "agentMessage" | "plan" | "reasoning":
                yield from self._text_of(item)
            case _ if (call := self._tool_call(item)) is not None:
                if item.get("status") == "inProgress":
                    self._remember(item)
                    yield call
                else:
                    yield from self._ended_call(call, item)

    def _started(self, item: JsonObject) -> Sequence[JsonObject]:
        if item["type"] == "userMessage":
            return [] if item.get("clientId") in self._own_messages else _user_message(item)
        call = self._tool_call(item)
        if call is None:
            return []
        self._remember(item)
        return [call]

    def _completed(self, item: JsonObject) -> Sequence[JsonObject]:
        item_id: str = item["id"]
        if item["type"] in ("agentMessage", "plan", "reasoning"):
            return [] if item_id in self._streamed else list(self._text_of(item))
        was_open = self._open.pop(item_id, None) is not None
        self._live_output.pop(item_id, None)
        call = self._tool_call(item)
        if call is None:
            return []
        return [self._end(item)] if was_open else list(self._ended_call(call, item))

    def _remember(self, item: JsonObject) -> None:
        self._open[item["id"]] = item
        if len(self._open) > MAX_OPEN_ITEMS:
            forgotten, _ = self._open.popitem(last=False)
            self._live_output.pop(forgotten, None)

    def _printed(self, item_id: str, delta: str) -> Sequence[JsonObject]:
        if self._shows_terminals:
            shown = {"terminal_id": item_id, "data": delta}
            return [_update(item_id, _meta={"terminal_output": shown})]
        if item_id not in self._open:
            return []
        output = (self._live_output.get(item_id, "") + delta)[-LIVE_CHARS:]
        self._live_output[item_id] = output
        return [_update(item_id, content=[text_content(output)])]

    def _text_of(self, item: JsonObject) -> Iterator[JsonObject]:
        if item["type"] == "reasoning":
            text = "\n\n".join(item.get("summary") or item.get("content") or ())
            kind = "agent_thought_chunk"
        else:
            text, kind = item["text"], "agent_message_chunk"
        if text:
            yield _chunk(kind, item["id"], text)

    def _tool_call(self, item: JsonObject) -> JsonObject | None:
        """Return the announcement of an item that is a tool call; None for other items."""
        described = describe(item, self.cwd)
        if described is None:
            return None
        call: JsonObject = {
            "sessionUpdate": "tool_call",
            "toolCallId": item["id"],
            "status": "in_progress",
            **described,
        }
        if item["type"] == "commandExecution" and self._shows_terminals:
            call["content"] = [{"type": "terminal", "terminalId": item["id"]}]
            shown = {"terminal_id": item["id"], "cwd": item["cwd"]}
            call["_meta"] = {"terminal_info": shown}
        return call

    def _end(self, item: JsonObject) -> JsonObject:
        """Return the end of a call that was announced."""
        outcome = _outcome(item, self.cwd)
        if item["type"] == "commandExecution" and self._shows_terminals:
            # The terminal has the output; a text in its place would hide it.
            outcome.pop("content", None)
            outcome["_meta"] = {"terminal_exit": _exit(item)}
        return _update(item["id"], **outcome)

    def _ended_call(self, call: JsonObject, item: JsonObject) -> Iterator[JsonObject]:
        """Return a call whose announcement and end are told together."""
        if item["type"] != "commandExecution" or not self._shows_terminals:
            yield call | _outcome(item, self.cwd)
            return
        yield call
        if output := item.get("aggregatedOutput"):
            shown = {"terminal_id": item["id"], "data": output[-MAX_OUTPUT_CHARS:]}
            yield _update(item["id"], _meta={"terminal_output": shown})
        yield self._end(item)


def describe(item: JsonObject, cwd: str) -> JsonObject | None:
    """Return title, kind, and what else is known of a tool call before it has run.

    None for items that are no tool calls. `cwd` is what relative paths count from.
    """
    match item["type"]:
        case "commandExecution":
            return describe_command(
                item["command"], item["cwd"], item.get("commandActions") or (), cwd
            )
        case "fileChange":
            return {
                "title": "Edit files",
                "kind": "edit",
                "locations": [
                    {"path": _absolute(change["path"], cwd)} for change in item["changes"]
                ],
                "content": list(diffs(item["changes"], cwd)),
            }
        case "mcpToolCall":
            return {
                "title": f"mcp.{item['server']}.{item['tool']}",
                "kind": "read" if item.get("readOnlyHint") else "execute",
                "rawInput": {name: item[name] for name in ("server", "tool", "arguments")},
            }
        case "dynamicToolCall":
            return {"title": item["tool"], "kind": "other", "rawInput": item["arguments"]}
        case "webSearch":
            return {"title": f"Web search: {item['query']}", "kind": "fetch"}
        case "imageView":
            path = _absolute(item["path"], cwd)
            return {"title": f"View image {path}", "kind": "read", "locations": [{"path": path}]}
        case "imageGeneration":
            return {"title": "Make an image", "kind": "other"}
        case "collabAgentToolCall":
            return {"title": f"Agents: {item['tool']}", "kind": "other"}
        case "contextCompaction":
            return {"title": "Compact the context", "kind": "think"}
    return None


def describe_command(
    command: str, folder: str, actions: Sequence[JsonObject], cwd: str
) -> JsonObject:
    """Return title, kind, places and input of a command in a folder; `actions` guess at it."""
    shown = _script_of(command)
    kinds = {action["type"] for action in actions}
    if kinds == {"read"}:
        kind = "read"
    elif kinds and kinds <= {"search", "listFiles"}:
        kind = "search"
    else:
        kind = "execute"
    paths = [action["path"] for action in actions if action.get("path")]
    places = [{"path": _absolute(path, folder or cwd)} for path in paths]
    return {
        "title": shown,
        "kind": kind,
        **({"locations": places} if places else {}),
        "rawInput": {"command": shown, "cwd": folder},
    }


def diffs(changes: Sequence[JsonObject], cwd: str) -> Iterator[JsonObject]:
    """Return a diff for each part of a file that changes: the changed lines with those around."""
    for change in changes:
        kind, text = change["kind"], change["diff"]
        path = _absolute(kind.get("move_path") or change["path"], cwd)
        meta = {"_meta": {"kind": kind["type"]}}
        match kind["type"]:
            case "add":
                yield {"type": "diff", "path": path, "oldText": None, "newText": text, **meta}
            case "delete":
                yield {"type": "diff", "path": path, "oldText": text, "newText": "", **meta}
            case _:
                for old, new in _hunks(text):
                    yield {"type": "diff", "path": path, "oldText": old, "newText": new, **meta}


def text_content(text: str) -> JsonObject:
    """Return a text as content of a tool call."""
    return {"type": "content", "content": {"type": "text", "text": text}}


def title_of(text: str) -> str:
    """Return the first line of a text, cut to the length of a title."""
    first = text.strip().partition("\n")[0]
    return first if len(first) <= MAX_TITLE_CHARS else f"{first[: MAX_TITLE_CHARS - 1]}…"


def _script_of(command: str) -> str:
    """Return what a shell is given to run, of a command that starts one for it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return command
    return words[2] if len(words) == 3 and words[1] in ("-c", "-lc") else command


def _hunks(diff: str) -> Iterator[tuple[str, str]]:
    """Return the lines of each part of a unified diff before and after the change."""
    old: list[str] = []
    new: list[str] = []
    is_in_hunk = False
    last: Sequence[list[str]] = ()
    for line in diff.splitlines(keepends=True):
        if _HUNK.match(line):
            if is_in_hunk:
                yield "".join(old), "".join(new)
            old, new, is_in_hunk = [], [], True
        elif not is_in_hunk:
            continue
        elif line.startswith("\\"):
            # The line before it has no end.
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
        else:
            last = {"-": (old,), "+": (new,)}.get(line[:1], (old, new))
            for side in last:
                side.append(line[1:])
    if is_in_hunk:
        yield "".join(old), "".join(new)


def _outcome(item: JsonObject, cwd: str) -> dict[str, Any]:
    """Return how a tool call ended: its status, and what it gave."""
    outcome: dict[str, Any] = {"status": _STATUS.get(item.get("status", "completed"), "failed")}
    match item["type"]:
        case "commandExecution":
            if output := item.get("aggregatedOutput"):
                outcome["content"] = [text_content(output[-MAX_OUTPUT_CHARS:])]
            outcome["rawOutput"] = {"exitCode": item.get("exitCode")}
        case "fileChange":
            outcome["content"] = list(diffs(item["changes"], cwd))
        case "mcpToolCall":
            result, error = item.get("result"), item.get("error")
            outcome["rawOutput"] = {"result": result, "error": error}
            if error is not None:
                outcome["content"] = [text_content(error["message"])]
            elif result is not None:
                outcome["content"] = list(_mcp_content(result["content"]))
        case "dynamicToolCall":
            shown = [part["text"] for part in item.get("contentItems") or () if "text" in part]
            outcome["content"] = [text_content(text) for text in shown]
        case "imageGeneration":
            outcome["status"] = "completed" if item.get("failure") is None else "failed"
            if item.get("result"):
                image = {"type": "image", "mimeType": "image/png", "data": item["result"]}
                outcome["content"] = [{"type": "content", "content": image}]
    return outcome


def _mcp_content(blocks: Sequence[Json]) -> Iterator[JsonObject]:
    """Return the content of a tool's result that has the same form in both protocols."""
    needed: Mapping[str, Sequence[str]] = {
        "text": ("text",),
        "image": ("data", "mimeType"),
        "audio": ("data", "mimeType"),
        "resource_link": ("name", "uri"),
        "resource": ("resource",),
    }
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str) and kind in needed and all(name in block for name in needed[kind]):
            yield {"type": "content", "content": block}


def _exit(item: JsonObject) -> JsonObject:
    return {"terminal_id": item["id"], "exit_code": item.get("exitCode"), "signal": None}


def _user_message(item: JsonObject) -> Sequence[JsonObject]:
    return [
        {"sessionUpdate": "user_message_chunk", "messageId": item["id"], "content": block}
        for part in item["content"]
        if (block := _block(part)) is not None
    ]


def _block(part: JsonObject) -> JsonObject | None:
    match part["type"]:
        case "text":
            return {"type": "text", "text": part["text"]}
        case "image" if (part.get("url") or "").startswith("data:"):
            head, _, data = part["url"].removeprefix("data:").partition(",")
            return {"type": "image", "mimeType": head.partition(";")[0], "data": data}
        case "localImage" | "localAudio" | "mention" | "skill":
            path: str = part["path"]
            uri = PurePath(path).as_uri() if PurePath(path).is_absolute() else path
            return {"type": "resource_link", "name": part.get("name") or path, "uri": uri}
    return None


def _chunk(kind: str, message_id: str, text: str) -> JsonObject:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": kind, "messageId": message_id, "content": content}


def _update(call_id: str, **members: Any) -> JsonObject:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call_id, **members}


def _plan(steps: Sequence[JsonObject]) -> JsonObject:
    entries = [
        {
            "content": step["step"],
            "priority": "medium",
            "status": _STEP_STATUS.get(step["status"], "pending"),
        }
        for step in steps
    ]
    return {"sessionUpdate": "plan", "entries": entries}


def _usage(usage: JsonObject) -> Sequence[JsonObject]:
    size = usage.get("modelContextWindow")
    if size is None:
        # The protocol has no word for a window that nobody knows.
        return []
    used = usage["last"]["totalTokens"]
    return [{"sessionUpdate": "usage_update", "used": used, "size": size}]


def _absolute(path: str, cwd: str) -> str:
    return str(PurePath(cwd, path))
