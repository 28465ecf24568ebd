"""A tool of the hosted endpoint: how it is listed, and what it does when it is called."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp_types import Request, ServerRequest
from pydantic import RootModel

JsonObject = dict[str, Any]

ENVELOPE = "_codex_apps"

READS: JsonObject = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}
WRITES: JsonObject = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}
"""MCP annotations of a tool: its effects."""


class _Question(Request[dict[str, Any], str]):
    """A request to the client, whatever its method."""


class _Answer(RootModel[dict[str, Any]]):
    """Response of a tool."""


class Caller:
    """Caller of a tool: the client of one MCP session."""

    def __init__(self, context: ServerRequestContext[Any]) -> None:
        self._context = context

    def can_be_asked(self, mode: str) -> bool:
        """Whether it declared that users can be asked: `form`, `url`, `openai/form`."""
        capabilities = self._context.session.client_capabilities
        if capabilities is None:
            return False
        if mode == "openai/form":
            return mode in (capabilities.extensions or {})
        return getattr(capabilities.elicitation, mode, None) is not None

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Ask the user on the stream of this call, and return the answer as it came.

        Raises:
            mcp.MCPError: the client answered with an error.
        """
        answer = await self._context.session.send_request(
            cast(ServerRequest, _Question(method=method, params=params)),
            _Answer,
            metadata=ServerMessageMetadata(related_request_id=self._context.request_id),
        )
        return answer.root

    async def report(self, progress: float, total: float, message: str) -> None:
        """Report how far the call is, if the client wants to know."""
        await self._context.session.report_progress(progress, total, message)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool."""

    arguments: JsonObject
    meta: JsonObject
    """`_meta` of the request."""
    caller: Caller = field(repr=False)


Run = Callable[[Call], Awaitable[JsonObject]]
"""Returns a result of `tools/call`."""


@dataclass(frozen=True, slots=True)
class HostedTool:
    """One element of the list of tools."""

    definition: JsonObject
    """As it is listed, `_meta` included."""
    run: Run = field(repr=False)


@dataclass(frozen=True, slots=True)
class HostedConnector:
    """An app: what the directory says of it, and its tools."""

    id: str
    name: str
    description: str
    tools: tuple[HostedTool, ...] = ()

    def tool(
        self,
        name: str,
        description: str,
        properties: JsonObject,
        annotations: JsonObject,
        run: Run,
        *,
        meta: JsonObject | None = None,
    ) -> HostedTool:
        """Make a tool that is listed with this app; all its arguments are required."""
        definition = {
            "name": f"{self.name.lower()}_{name}",
            "title": f"{self.name}_{name}",
            "description": description,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            },
            "annotations": annotations,
            "_meta": {
                "connector_id": self.id,
                "connector_name": self.name,
                "connector_description": self.description,
                ENVELOPE: {"resource_uri": f"/connectors/{self.id}/{name}"},
                **(meta or {}),
            },
        }
        return HostedTool(definition, run)


def text_result(
    text: str, structured: JsonObject | None = None, *, error: bool = False
) -> JsonObject:
    """Return a result with a text, and with a structure if there is one."""
    result: JsonObject = {"content": [{"type": "text", "text": text}], "isError": error}
    return result if structured is None else {**result, "structuredContent": structured}
