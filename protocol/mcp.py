"""mcpServer* and mcpServerStatus/*: servers, direct calls, and what servers ask the user."""

from typing import Literal, TypeAlias

from pydantic import Field

from protocol.model import Json, JsonObject, UInt32, WireModel, absent_if_none

McpAuthStatus: TypeAlias = Literal["unknown", "unsupported", "notLoggedIn", "bearerToken", "oAuth"]

McpServerConnectionStatus: TypeAlias = Literal[
    "notStarted",
    "starting",
    "connected",
    "authenticationRequired",
    "failed",
    "cancelled",
    "disabled",
]


class ListMcpServerStatusParams(WireModel):
    """Page through the MCP servers, by raw name."""

    cursor: str | None = None
    """Decimal offset, from `nextCursor` of the page before."""
    limit: UInt32 | None = None
    """Servers a page; null means all, 0 counts as 1."""
    detail: Literal["full", "toolsAndAuthOnly"] | None = None
    """`full` (also when null) lists resources and resource templates too."""
    thread_id: str | None = None
    server_name: str | None = None


class McpServerInfo(WireModel):
    """What a server says of itself."""

    name: str
    title: str | None = None
    version: str
    description: str | None = None
    icons: list[Json] | None = None
    website_url: str | None = None


class McpServerStatus(WireModel):
    """One MCP server as configured and as it is now."""

    name: str
    runtime_status: McpServerConnectionStatus | None = None
    """The thread's connection; null when no thread was named."""
    plugin_id: str | None = None
    http_origin: str | None = None
    server_info: McpServerInfo | None = None
    server_capabilities: Json = None
    tool_list_meta: Json = None
    tools: dict[str, Json]
    """Raw tool name to the tool as the server listed it."""
    tools_error: str | None = None
    resources: list[Json]
    resource_templates: list[Json]
    auth_status: McpAuthStatus


class ListMcpServerStatusResponse(WireModel):
    """One page; `next_cursor` is null at the end."""

    data: list[McpServerStatus]
    next_cursor: str | None = None


class McpServerToolCallParams(WireModel):
    """Call a tool without a model, an approval or an item."""

    thread_id: str
    server: str
    tool: str
    arguments: Json = None
    meta: Json = Field(default=None, alias="_meta")


class McpServerToolCallResponse(WireModel):
    """What the tool returned; members that it left out stay out."""

    content: list[Json]
    structured_content: Json = absent_if_none()
    is_error: bool | None = absent_if_none()
    meta: Json = absent_if_none(alias="_meta")


class McpResourceReadParams(WireModel):
    """Read one resource; without a thread over a connection of its own."""

    server: str
    uri: str
    thread_id: str | None = None
    meta: JsonObject | None = Field(default=None, alias="_meta")
    origin_call_id: str | None = None
    connector_id: str | None = None
    target: JsonObject | None = None


class McpResourceReadResponse(WireModel):
    """The contents as the server sent them."""

    contents: list[Json]
    origin_call_id: str | None = None


class McpServerStatusUpdatedNotification(WireModel):
    """How far the start of one server of one thread has come."""

    thread_id: str | None = None
    name: str
    status: Literal["starting", "ready", "failed", "cancelled"]
    error: str | None = None
    failure_reason: Literal["reauthenticationRequired"] | None = None


class McpServerElicitationRequestParams(WireModel):
    """A question for the user; also how a tool call is approved."""

    thread_id: str
    turn_id: str | None = None
    server_name: str
    mode: Literal["form"] = "form"
    meta: Json = Field(default=None, alias="_meta")
    message: str
    requested_schema: JsonObject


class McpServerElicitationRequestResponse(WireModel):
    """The user's answer."""

    action: Literal["accept", "decline", "cancel"]
    content: Json = None
    meta: Json = Field(default=None, alias="_meta")
