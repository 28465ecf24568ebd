"""A server's `initialize` result and its tools."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from app_server.mcp.bounds import json_bytes
from app_server.mcp.tools.schema import tool_parameters
from protocol.model import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Listing:
    """A server's introduction and its tools, as it sent them."""

    server_info: JsonObject | None = None
    capabilities: Json = None
    instructions: str | None = None
    tools: Mapping[str, JsonObject] = field(default_factory=dict)
    """Raw name to tool, in the server's order; of tools with one name the first."""
    tools_meta: JsonObject | None = None
    sizes: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Raw name to the bytes that description and parameters of the tool take as JSON."""
    parameters: Mapping[str, JsonObject] = field(default_factory=dict, compare=False)
    """Raw name to the input schema as it is declared to models."""

    @classmethod
    def of(
        cls, hello: JsonObject, tools: list[JsonObject], tools_meta: JsonObject | None
    ) -> "Listing":
        """Read the answers to `initialize` and `tools/list`; what makes no sense is left out.

        Measuring thousands of tools takes a while: for worker threads.
        """
        info, instructions = hello.get("serverInfo"), hello.get("instructions")
        return cls(
            server_info=info if isinstance(info, dict) else None,
            capabilities=hello.get("capabilities"),
            instructions=instructions if isinstance(instructions, str) else None,
        ).with_tools(tools, tools_meta)

    def with_tools(self, tools: list[JsonObject], meta: JsonObject | None) -> "Listing":
        """Return the same introduction with a new list of tools; see `of`."""
        named = _by_name(tools)
        parameters = {n: tool_parameters(tool.get("inputSchema")) for n, tool in named.items()}
        sizes = {
            name: json_bytes([described(tool), parameters[name]]) - len("[,]")
            for name, tool in named.items()
        }
        return replace(self, tools=named, tools_meta=meta, sizes=sizes, parameters=parameters)

    def opts_into(self, capability: str) -> bool:
        """Whether the server declared an experimental capability."""
        capabilities = self.capabilities if isinstance(self.capabilities, dict) else {}
        experimental = capabilities.get("experimental")
        return isinstance(experimental, dict) and capability in experimental


def _by_name(tools: list[JsonObject]) -> dict[str, JsonObject]:
    named: dict[str, JsonObject] = {}
    for tool in tools:
        if isinstance(name := tool.get("name"), str):
            named.setdefault(name, tool)
    return named


def described(tool: JsonObject) -> str:
    """Return a tool's description; empty when it has none."""
    description = tool.get("description")
    return description if isinstance(description, str) else ""


def is_for_model(tool: JsonObject) -> bool:
    """Whether the model may see and call a tool: unless `_meta.ui.visibility` leaves it out.

    Clients may, for user interfaces that a tool brought.
    Source: MCP Apps (SEP-1865), "Visibility".
    """
    meta = tool.get("_meta")
    interface = meta.get("ui") if isinstance(meta, dict) else None
    visibility = interface.get("visibility") if isinstance(interface, dict) else None
    return not isinstance(visibility, list) or "model" in visibility


def read_only_hint(tool: JsonObject | None) -> bool | None:
    """Return a tool's `readOnlyHint`, None when it has none."""
    annotations = (tool or {}).get("annotations")
    hint = annotations.get("readOnlyHint") if isinstance(annotations, dict) else None
    return hint if isinstance(hint, bool) else None
