"""From notifications of one turn to lines for a person. No I/O.

Source: docs/exec.md, "Progress".
"""

from collections.abc import Iterator, Sequence

from app_server.clients.exec.events import failure_text, warning_text
from protocol.model import JsonObject

MAX_LINES = 20
"""Of a command's output: its first and its last ones; of those between only the count."""
MAX_CHARS = 400
"""Of each line."""

MARKS = {"completed": "[x]", "inProgress": "[>]"}
WORDS = {
    "item/commandExecution/requestApproval": "a command",
    "item/fileChange/requestApproval": "a patch",
}


class Progress:
    """Shows what happens in a run."""

    def __init__(self) -> None:
        self._usage: JsonObject | None = None

    def begin(self, opened: JsonObject) -> Iterator[str]:
        """See Presenter."""
        thread = opened["thread"]
        sandbox = opened["sandbox"]
        yield from (
            f"folder    {opened['cwd']}",
            f"model     {opened['model']} ({opened['modelProvider']})",
            f"sandbox   {sandbox['type']}",
            f"approval  {_policy(opened['approvalPolicy'])}",
            f"thread    {thread['id']}",
        )

    def take(self, method: str, params: JsonObject) -> Iterator[str]:
        """See Presenter."""
        match method:
            case "item/started":
                yield from self._started(params["item"])
            case "item/completed":
                yield from self._completed(params["item"])
            case "turn/plan/updated":
                yield "plan:"
                for step in params["plan"]:
                    yield f"  {MARKS.get(step['status'], '[ ]')} {_cut(step['step'])}"
            case "thread/tokenUsage/updated":
                self._usage = params["tokenUsage"]["total"]
            case "error":
                text = failure_text(params["error"], will_retry=params["willRetry"])
                yield f"error: {text}"
            case "turn/completed":
                yield from self._ended(params["turn"])
            case _:
                if (warning := warning_text(method, params)) is not None:
                    yield f"warning: {warning}"

    def asked(self, method: str, params: JsonObject) -> Iterator[str]:
        """See Presenter."""
        yield (
            f"question: {WORDS.get(method, method)} needs an answer: another client "
            "of this server can give it, else it is refused"
        )

    def lost(self, reason: str) -> Iterator[str]:
        """See Presenter."""
        yield f"error: {reason}"

    def _started(self, item: JsonObject) -> Iterator[str]:
        match item["type"]:
            case "commandExecution":
                yield f"$ {_cut(item['command'])}"
            case "mcpToolCall":
                yield f"tool: {item['server']}/{item['tool']}"
            case "webSearch" if item["query"]:
                yield f"search: {_cut(item['query'])}"

    def _completed(self, item: JsonObject) -> Iterator[str]:
        match item["type"]:
            case "agentMessage":
                yield "agent:"
                yield item["text"]
            case "reasoning" if item.get("summary"):
                yield "\n".join(item["summary"])
            case "commandExecution":
                yield from _shortened(item.get("aggregatedOutput") or "")
                yield f"  {_end_of(item)}"
            case "fileChange":
                yield f"patch: {item['status']}"
                yield from (f"  {one['kind']['type']} {one['path']}" for one in item["changes"])
            case "mcpToolCall":
                error = item.get("error")
                why = "" if error is None else f": {_cut(error['message'])}"
                yield f"  {item['status']}{_seconds(item)}{why}"

    def _ended(self, turn: JsonObject) -> Iterator[str]:
        if turn["status"] == "interrupted":
            yield "interrupted"
        if self._usage is not None:
            cached = self._usage["cachedInputTokens"]
            yield (
                f"tokens: {self._usage['inputTokens']} in ({cached} cached), "
                f"{self._usage['outputTokens']} out"
            )


def _policy(policy: object) -> str:
    return policy if isinstance(policy, str) else "granular"


def _end_of(item: JsonObject) -> str:
    code = item.get("exitCode")
    if code is None:
        return str(item["status"])
    return f"exit status {code}{_seconds(item)}"


def _seconds(item: JsonObject) -> str:
    duration_ms = item.get("durationMs")
    return "" if duration_ms is None else f" after {duration_ms / 1000:.1f} s"


def _shortened(output: str) -> Sequence[str]:
    lines = [f"  {_cut(line)}" for line in output.splitlines()]
    if len(lines) <= MAX_LINES:
        return lines
    half = MAX_LINES // 2
    return [*lines[:half], f"  … {len(lines) - 2 * half} lines", *lines[-half:]]


def _cut(line: str) -> str:
    return line if len(line) <= MAX_CHARS else f"{line[:MAX_CHARS]}…"
