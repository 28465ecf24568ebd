"""Which raw items a model's API accepts as input, so that nothing else gets into a history.

Source: the public Responses API reference, "input".
"""

from collections.abc import Sequence

from protocol.model import Json, JsonObject

_ROLES = frozenset({"user", "assistant", "system", "developer"})

_TEXT_PARTS = frozenset({"input_text", "output_text"})
_OTHER_PARTS = frozenset({"input_image", "input_file", "input_audio", "refusal"})

_REQUIRED_TEXTS = {
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id",),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id",),
    "reasoning": (),
    "web_search_call": (),
    "file_search_call": (),
    "image_generation_call": (),
    "code_interpreter_call": (),
    "computer_call": ("call_id",),
    "computer_call_output": ("call_id",),
    "local_shell_call": ("call_id",),
    "local_shell_call_output": (),
    "mcp_list_tools": (),
    "mcp_call": (),
    "mcp_approval_request": (),
    "mcp_approval_response": (),
    "item_reference": ("id",),
    "compaction": (),
}
"""Item types that are accepted, with the members that must be strings."""

_WITH_OUTPUT = frozenset({"function_call_output", "custom_tool_call_output"})


def first_problem(items: Sequence[Json]) -> tuple[int, str] | None:
    """Find the first item that is none: its index and the rule it breaks; None: all are fine."""
    for index, item in enumerate(items):
        rule = _broken_rule(item)
        if rule is not None:
            return index, rule
    return None


def _broken_rule(item: Json) -> str | None:
    if not isinstance(item, dict):
        return "must be an object"
    kind = item.get("type", "message" if "role" in item else None)
    if kind == "message":
        return _broken_message_rule(item)
    if kind is None:
        return "`type` is missing"
    if not isinstance(kind, str) or kind not in _REQUIRED_TEXTS:
        return f"`type` {kind!r} is not a Responses input item"
    for member in _REQUIRED_TEXTS[kind]:
        if not isinstance(item.get(member), str):
            return f"`{member}` must be a string"
    if kind in _WITH_OUTPUT and not isinstance(item.get("output"), str | list):
        return "`output` must be a string or a list"
    return None


def _broken_message_rule(item: JsonObject) -> str | None:
    if item.get("role") not in _ROLES:
        return f"`role` must be one of {', '.join(sorted(_ROLES))}"
    content = item.get("content")
    if isinstance(content, str):
        return None
    if not isinstance(content, list) or not content:
        return "`content` must be a string or a list that is not empty"
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in _TEXT_PARTS:
            if not isinstance(part.get("text"), str):
                return f"`content[{index}].text` must be a string"
        elif kind not in _OTHER_PARTS:
            return f"`content[{index}].type` {kind!r} is not a content part"
    return None
