"""Declarations of tools as functions, which are all that Chat Completions knows.

A custom tool becomes a function that takes one string. Tools that a search has found are declared
like the others, and tools that only OpenAI runs are left out.
Source: the public Chat Completions reference, "tools".
"""

from collections.abc import Iterator, Sequence

from app_server.models.chat.names import CalledTool, ToolNames
from protocol.model import Json, JsonObject

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
