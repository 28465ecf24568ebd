"""A client that shows items of a thread, as an author would write it: mypy narrows each by `type`.

tests/protocol/test_typed_client.py has it checked, and runs it.
"""

from typing import assert_never

from protocol.model import UnknownVariant
from protocol.threads.thread import ThreadStatus
from protocol.turns.items import CommandAction, ThreadItem


def shown(item: ThreadItem) -> str:
    """Return a line for an item."""
    match item.type:
        case "userMessage":
            return f"{len(item.content)} inputs"
        case "hookPrompt":
            return f"{len(item.fragments)} fragments"
        case "agentMessage" | "plan":
            return item.text
        case "functionCallOutput":
            return str(item.output)
        case "reasoning":
            return " ".join(item.summary)
        case "commandExecution":
            return f"{item.command}: {[shown_action(action) for action in item.command_actions]}"
        case "fileChange":
            return ", ".join(f"{change.kind.type} {change.path}" for change in item.changes)
        case "mcpToolCall":
            return f"{item.server}.{item.tool}"
        case "dynamicToolCall":
            return item.tool
        case "collabAgentToolCall":
            return item.sender_thread_id
        case "subAgentActivity":
            return item.agent_thread_id
        case "webSearch":
            return item.query if item.action is None else f"{item.action.type} {item.query}"
        case "imageView":
            return item.path
        case "sleep":
            return f"{item.duration_ms} ms"
        case "imageGeneration":
            return item.result or item.status
        case "enteredReviewMode" | "exitedReviewMode":
            return item.review
        case "contextCompaction":
            return item.id
        case None:
            return shown_unknown(item)
        case never:
            assert_never(never)


def shown_action(action: CommandAction) -> str:
    """Return what a part of a command does: other ways to narrow than `match`."""
    if action.type == "read":
        return action.name
    if action.type == "search":
        return action.query or ""
    if isinstance(action, UnknownVariant):
        return shown_unknown(action)
    return action.command


def shown_status(status: ThreadStatus) -> str:
    """Return the state of a thread."""
    return ", ".join(status.active_flags) if status.type == "active" else str(status.type)


def shown_unknown(value: UnknownVariant) -> str:
    """Return the kind of something that this version of the types does not know."""
    return f"unknown: {(value.model_extra or {}).get('type')}"
