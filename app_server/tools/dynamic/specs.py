"""Tools that a client declares for a thread: which names and schemas they may have. No I/O.

Source: docs/tools.md, "Tools of clients".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from app_server.mcp.tools.search import spaced
from app_server.tools.mcp.resources import RESOURCE_FUNCTION_NAMES
from protocol.model import Json, JsonObject
from protocol.threads.start import (
    DynamicToolSpec,
    FunctionDynamicToolNamespaceTool,
    FunctionDynamicToolSpec,
)

MAX_TOOLS = 512
MAX_BYTES = 256 * 1024
"""Of everything that a thread's clients declare, as JSON."""
MAX_NAME_CHARS = 128
MAX_NAMESPACE_CHARS = 64

OWN_NAMES = frozenset(
    {
        "apply_patch",
        "create_goal",
        "exec_command",
        "get_goal",
        "request_permissions",
        "request_user_input",
        "tool_search",
        "update_goal",
        "update_plan",
        "view_image",
        "web_search",
        "write_stdin",
        *RESOURCE_FUNCTION_NAMES,
    }
)
"""Functions of the server itself, which no tool of a client may replace."""
RESERVED_NAMESPACES = frozenset({"functions", "multi_tool_use", "web"})
"""Of the Responses API."""
MCP_PREFIX = "mcp__"

_NAME = re.compile(r"[a-zA-Z0-9_-]+")


class BadSpec(Exception):
    """A tool that cannot be declared: which member, and the rule that it breaks."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}")
        self.field = field
        self.rule = rule


@dataclass(frozen=True, slots=True)
class DynamicTool:
    """One tool of a client."""

    namespace: str | None
    name: str
    description: str
    parameters: JsonObject
    is_deferred: bool

    @property
    def text(self) -> str:
        """Text that a search looks through: names and description."""
        return spaced(self.namespace or "", self.name, self.description)

    def declare(self) -> JsonObject:
        """Declare the function, as the Responses API takes it."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "strict": False,
            "parameters": self.parameters,
        }


class DynamicTools:
    """The tools of one thread's clients."""

    def __init__(self, specs: Sequence[JsonObject] = ()) -> None:
        """Take what `checked_specs` returned."""
        self._namespaces = {spec["name"]: spec for spec in specs if spec["type"] == "namespace"}
        self._tools = {(tool.namespace, tool.name): tool for tool in _tools(specs)}

    @property
    def deferred(self) -> list[DynamicTool]:
        """Tools that a model must search for."""
        return [tool for tool in self._tools.values() if tool.is_deferred]

    def find(self, namespace: str | None, name: str) -> DynamicTool | None:
        """Return a tool, declared or deferred."""
        return self._tools.get((namespace, name))

    def declarations(self) -> list[JsonObject]:
        """Declare all that are not deferred: functions first, then namespaces."""
        shown = [tool for tool in self._tools.values() if not tool.is_deferred]
        return [
            *(tool.declare() for tool in shown if tool.namespace is None),
            *self._grouped([tool for tool in shown if tool.namespace is not None], {}),
        ]

    def declare_found(self, found: Sequence[DynamicTool]) -> list[JsonObject]:
        """Declare deferred tools that a search found."""
        return list(self._grouped(found, {"defer_loading": True}))

    def deferred_lines(self) -> list[str]:
        """Describe the namespaces with deferred tools, a line each."""
        names = dict.fromkeys(tool.namespace for tool in self.deferred)
        return [
            f"- {name}: {(self._namespaces[name]['description'].splitlines() or [''])[0]}"
            for name in names
            if name is not None
        ]

    def _grouped(self, tools: Sequence[DynamicTool], marks: JsonObject) -> Iterator[JsonObject]:
        for name, spec in self._namespaces.items():
            members = [tool.declare() | marks for tool in tools if tool.namespace == name]
            if members:
                yield {
                    "type": "namespace",
                    "name": name,
                    "description": spec["description"],
                    "tools": members,
                }


def checked_specs(specs: Sequence[DynamicToolSpec]) -> list[JsonObject]:
    """Check what a client declares, and return it as it is stored.

    Raises:
        BadSpec: it names the first member that breaks a rule.
    """
    field = "dynamicTools"
    names: set[tuple[str | None, str]] = set()
    namespaces: set[str] = set()
    count = 0
    for index, spec in enumerate(specs):
        place = f"{field}[{index}]"
        if isinstance(spec, FunctionDynamicToolSpec):
            _check_tool(spec, None, place, names)
            if spec.defer_loading:
                raise BadSpec(f"{place}.deferLoading", "a tool that is deferred needs a namespace")
            count += 1
            continue
        _check_namespace(spec.name, place, namespaces)
        if not spec.tools:
            raise BadSpec(f"{place}.tools", "must not be empty")
        for number, tool in enumerate(spec.tools):
            _check_tool(tool, spec.name, f"{place}.tools[{number}]", names)
        count += len(spec.tools)
    if count > MAX_TOOLS:
        raise BadSpec(field, f"has more than {MAX_TOOLS} tools")
    stored = [spec.model_dump(mode="json", by_alias=True) for spec in specs]
    if len(to_json(stored)) > MAX_BYTES:
        raise BadSpec(field, f"has more than {MAX_BYTES} bytes")
    return stored


def _check_namespace(name: str, place: str, taken: set[str]) -> None:
    field = f"{place}.name"
    _check_name(name, field, MAX_NAMESPACE_CHARS)
    if name in RESERVED_NAMESPACES:
        raise BadSpec(field, f"`{name}` is reserved")
    if name in taken:
        raise BadSpec(field, f"`{name}` is there twice")
    taken.add(name)


def _check_tool(
    tool: FunctionDynamicToolSpec | FunctionDynamicToolNamespaceTool,
    namespace: str | None,
    place: str,
    taken: set[tuple[str | None, str]],
) -> None:
    field = f"{place}.name"
    _check_name(tool.name, field, MAX_NAME_CHARS)
    if namespace is None and tool.name in OWN_NAMES:
        raise BadSpec(field, f"`{tool.name}` is a tool of this server")
    if (namespace, tool.name) in taken:
        raise BadSpec(field, f"`{tool.name}` is there twice")
    taken.add((namespace, tool.name))
    _check_schema(tool.input_schema, f"{place}.inputSchema")


def _check_name(name: str, field: str, max_chars: int) -> None:
    if not name:
        raise BadSpec(field, "must not be empty")
    if len(name) > max_chars:
        raise BadSpec(field, f"has more than {max_chars} characters")
    if not _NAME.fullmatch(name):
        raise BadSpec(field, "may have letters, digits, `_` and `-` alone")
    if name.startswith(MCP_PREFIX):
        raise BadSpec(field, f"names that begin with `{MCP_PREFIX}` are reserved")


def _check_schema(schema: Json, field: str) -> None:
    if not isinstance(schema, dict):
        raise BadSpec(field, "must be an object")
    if schema.get("type", "object") != "object":
        raise BadSpec(f"{field}.type", "must be `object`: arguments have names")
    if not isinstance(schema.get("properties", {}), dict):
        raise BadSpec(f"{field}.properties", "must be an object")


def _tools(specs: Sequence[JsonObject]) -> Iterator[DynamicTool]:
    for spec in specs:
        if spec["type"] == "namespace":
            yield from (_tool(tool, spec["name"]) for tool in spec["tools"])
        else:
            yield _tool(spec, None)


def _tool(spec: dict[str, Any], namespace: str | None) -> DynamicTool:
    schema = spec["inputSchema"]
    return DynamicTool(
        namespace=namespace,
        name=spec["name"],
        description=spec["description"],
        parameters={"type": "object", "properties": {}} | schema,
        is_deferred=spec["deferLoading"],
    )
