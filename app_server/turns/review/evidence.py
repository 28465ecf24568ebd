"""Evidence for the reviewer: the planned call, and an excerpt of the thread. No I/O.

Source: docs/mcp.md, "Reviewer".
"""

from collections.abc import Iterable, Sequence

from pydantic_core import to_json

from app_server.mcp.tools.call_contents import cut_middle
from app_server.mcp.tools.table import Tool
from app_server.models.prompt.environment_context import kind_of
from app_server.turns.response.reader import texts_of
from protocol.log.rollout import LOCAL
from protocol.model import Json, JsonObject

APPROVAL_CONTEXT = "codex/approvalContext"

MAX_EXCERPT_BYTES = 40_000
MAX_USER_BYTES = 24_000
"""Of the excerpt; what the user's messages leave goes to the other items."""
MAX_MESSAGE_BYTES = 6_000
MAX_ITEM_BYTES = 2_000
MAX_ARGUMENTS_BYTES = 64_000
MAX_DESCRIPTION_BYTES = 4_000
MAX_DETAIL_BYTES = 1_000
MAX_EMAIL_BYTES = 320


def machine_of(environment_id: str) -> JsonObject:
    """Name the machine that something is planned on, unless it is this one."""
    return {} if environment_id == LOCAL else {"environment": environment_id}


def connected_account(tool: Tool) -> str | None:
    """Return whose account a tool would use; None if it does not say, or may not.

    It is shown to the reviewer alone: no item, event, log or request of a turn has it.
    """
    if not tool.config.metadata.trusts_approval_context:
        return None
    context = _member(tool.definition.get("_meta"), APPROVAL_CONTEXT)
    email = _member(context, "connectedAccountEmail")
    if not isinstance(email, str) or "@" not in email:
        return None
    if len(email.encode(errors="replace")) > MAX_EMAIL_BYTES:
        return None
    return email if all(char.isprintable() and not char.isspace() for char in email) else None


def without_account(definition: JsonObject) -> JsonObject:
    """Return a tool as clients may see it: without the context that only the reviewer gets."""
    meta = definition.get("_meta")
    if not isinstance(meta, dict) or APPROVAL_CONTEXT not in meta:
        return definition
    return {**definition, "_meta": {k: v for k, v in meta.items() if k != APPROVAL_CONTEXT}}


def _member(value: Json, key: str) -> Json:
    return value.get(key) if isinstance(value, dict) else None


def planned_call(tool: Tool, arguments: Json) -> JsonObject:
    """Describe a call; what is too long is shown as the cut text of its JSON."""
    planned: JsonObject = {"kind": "mcp_tool_call", "server": tool.raw.server}
    planned["tool"] = tool.raw.tool
    if (source := tool.metadata.approval_source) is not None:
        planned["source"] = {
            "id": cut_middle(source.id, MAX_DETAIL_BYTES),
            "name": cut_middle(source.name, MAX_DETAIL_BYTES),
        }
        if source.description is not None:
            planned["source"]["description"] = cut_middle(source.description, MAX_DESCRIPTION_BYTES)
    for member, limit_bytes in (
        ("title", MAX_DETAIL_BYTES),
        ("description", MAX_DESCRIPTION_BYTES),
        ("annotations", MAX_DETAIL_BYTES),
    ):
        if (value := tool.definition.get(member)) is not None:
            planned[member] = bounded(value, limit_bytes)
    planned["arguments"] = bounded(arguments, MAX_ARGUMENTS_BYTES)
    if (email := connected_account(tool)) is not None:
        planned["connected_account_email"] = email
    return planned


def bounded(value: Json, limit_bytes: int) -> Json:
    """Return a value as it is, or if its JSON is longer than that, the JSON as a cut text."""
    if isinstance(value, str) and len(value) > limit_bytes:
        return cut_middle(value, limit_bytes // 2)
    encoded = _json(value)
    if len(encoded) <= limit_bytes:
        return value
    text = value if isinstance(value, str) else encoded.decode()
    # A text may take twice its bytes as JSON.
    return cut_middle(text, limit_bytes // 2)


def _json(value: Json) -> bytes:
    return to_json(value, inf_nan_mode="null")


def excerpt(history: Sequence[JsonObject]) -> JsonObject:
    """Choose what of a thread is shown: the user's messages first, then what happened last.

    Both lists are in the order of the thread; the newest entries are the ones that are kept, and
    how many are left out is said. Reasoning is never shown, and nothing that the server itself
    sent to the model: it is no word of the user's, though it has that role.
    """
    history = [item for item in history if kind_of(item) is None]
    said = [item for item in history if _is_of_user(item)]
    happened = [i for i in history if not _is_of_user(i) and i.get("type") != "reasoning"]
    messages, used = _newest(map(_user_message, reversed(said)), MAX_USER_BYTES)
    events, _ = _newest(map(_event, reversed(happened)), MAX_EXCERPT_BYTES - used)
    return {
        "user_messages": messages,
        "earlier_user_messages_left_out": len(said) - len(messages),
        "recent_items": events,
        "earlier_items_left_out": len(happened) - len(events),
    }


def _newest(newest_first: Iterable[Json], limit_bytes: int) -> tuple[list[Json], int]:
    """Take entries while there is room, and put them back into order; no more are looked at."""
    kept: list[Json] = []
    used = 0
    for entry in newest_first:
        size = len(_json(entry)) + 1
        if used + size > limit_bytes:
            break
        kept.append(entry)
        used += size
    return kept[::-1], used


def _user_message(item: JsonObject) -> Json:
    return bounded(_content(item.get("content")), MAX_MESSAGE_BYTES)


def _event(item: JsonObject) -> JsonObject:
    if _is_message(item):
        return {"from": item.get("role"), "text": _shown(_content(item.get("content")))}
    match item.get("type"):
        case "function_call":
            name = ".".join(_named(item.get("namespace"), item.get("name")))
            return {"call": name, "arguments": _shown(item.get("arguments"))}
        case "function_call_output":
            return {"output": _shown(_content(item.get("output")))}
    return {"item": _shown(item)}


def _is_message(item: JsonObject) -> bool:
    return item.get("type", "message") == "message" and "role" in item


def _is_of_user(item: JsonObject) -> bool:
    return _is_message(item) and item.get("role") == "user"


def _named(*parts: Json) -> Iterable[str]:
    return (part for part in parts if isinstance(part, str))


def _shown(value: Json) -> Json:
    return bounded(value, MAX_ITEM_BYTES)


def _content(content: Json) -> Json:
    """Join the texts of a content; what is no text is only named."""
    if not isinstance(content, list):
        return content
    parts = [part for part in content if isinstance(part, dict)]
    return "\n".join(
        text for part in parts for text in (texts_of([part]) or [f"[{part.get('type')}]"])
    )
