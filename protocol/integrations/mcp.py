"""mcpServer/*, mcpServerStatus/list, config/mcpServer/reload: MCP servers and what they offer.

Tools, resources and their contents keep the shape that the MCP server gave them. Servers and tools
go by their raw names here, not by the names that the model sees.
"""

from typing import Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import (
    Int64,
    Json,
    JsonObject,
    OpenEnum,
    UInt32,
    Variant,
    WireModel,
    absent_if_none,
    experimental,
)
from protocol.thread_ids import ThreadIdParam

RESERVED_META = frozenset(
    {
        "callId",
        "itemId",
        "threadId",
        "sessionId",
        "windowId",
        "turnId",
        "x-codex-turn-metadata",
        "_codex_apps",
        "plugin_id",
        "codex_bridge_mcp_call_id",
        "progressToken",
        "openai/confirmation_policies",
    }
)
"""Keys of a tool call's `_meta` that the server writes, or keeps everybody from writing."""

RESERVED_META_PREFIXES = ("codex/", "io.modelcontextprotocol/")
"""Of further such keys."""


class McpServerRefreshResponse(WireModel):
    """Nothing: startup notifications tell how the servers fare."""


class McpServerSetParams(WireModel):
    """Switch a server on or off, or change its settings: exactly one of both."""

    name: str
    thread_id: ThreadIdParam | None = None
    """Thread that alone has the change, until it is unloaded; null writes the user's file."""
    enabled: bool | None = None
    settings: JsonObject | None = None
    """Keys of `[mcp_servers.NAME]`; null removes one, those that are left out stay."""


class McpServerSetResponse(WireModel):
    """The change is written; loaded threads have it between two model requests."""

    file_path: str | None = None
    """The file that was written; null for a change of one thread."""
    overridden: bool
    """Whether settings above the file keep the change from having an effect."""


class McpServerRestartParams(WireModel):
    """Start a server afresh; calls that run end on the old one."""

    name: str
    thread_id: ThreadIdParam | None = None
    """Thread whose server is meant; null means all loaded threads that have it."""


class McpServerRestartResponse(WireModel):
    """Startup notifications tell how the new starts fare."""

    thread_ids: list[str]
    """Threads in which it was restarted."""


class McpServerOutputReadParams(WireModel):
    """Ask what a server wrote to stderr, and logged."""

    name: str
    thread_id: ThreadIdParam | None = None
    """Thread whose server is meant; null means all loaded threads that have it."""


McpServerConnectionStatus = TypeAliasType(
    "McpServerConnectionStatus",
    OpenEnum[
        Literal[
            "notStarted",
            "starting",
            "connected",
            "authenticationRequired",
            "failed",
            "cancelled",
            "disabled",
        ]
    ],
)
"""State of a thread's connection to an MCP server."""


class McpServerOutput(WireModel):
    """What a server of one thread wrote: its processes, and the messages of its log."""

    thread_id: str
    text: str
    """The newest whole lines, without secrets."""
    runtime_status: McpServerConnectionStatus
    """The thread's connection, as in `mcpServerStatus/list`."""
    started_at_ms: Int64 | None = None
    """Unix time at which it became ready last; null if it has never run."""
    last_error: str | None = None
    """Why it did not start or ended last, with its command; without secrets."""


class McpServerOutputReadResponse(WireModel):
    """Each thread that has the server, in the order in which they were loaded."""

    data: list[McpServerOutput]


class McpServerEventStreamStartParams(WireModel):
    """Subscribe to events of an MCP server; hosted apps only."""

    thread_id: ThreadIdParam
    server: str
    subscription_id: str
    """Chosen by the client; every event of the stream carries it."""
    name: str
    """Which of the server's events to stream."""
    arguments: Json
    meta: Json = Field(default=None, alias="_meta")
    """`_meta` of the request to the MCP server."""


class McpServerEventStreamStartResponse(WireModel):
    """Nothing: events follow as notifications."""


class McpServerEventStreamStopParams(WireModel):
    """End an event stream."""

    subscription_id: str


class McpServerEventStreamStopResponse(WireModel):
    """Nothing."""


McpServerOauthClientRegistration = TypeAliasType(
    "McpServerOauthClientRegistration", Literal["auto", "cimd", "dcr"]
)
"""How to register with the authorization server; `auto` takes what it supports."""


class McpServerOauthLoginParams(WireModel):
    """Sign in to an MCP server in the browser; streamable HTTP servers only."""

    name: str
    thread_id: ThreadIdParam | None = None
    """Thread whose configuration has the server; null for the global one."""
    client_registration: McpServerOauthClientRegistration | None = None
    """For this login alone; null means `auto`."""
    scopes: list[str] | None = None
    """Null takes the configured scopes, or else those that the server offers."""
    timeout_secs: Int64 | None = None
    """Seconds to wait for the browser to come back; null lets the server choose."""


class McpServerOauthLoginResponse(WireModel):
    """Where to send the user; `mcpServer/oauthLogin/completed` tells how it ended."""

    authorization_url: str
    """To be opened in a browser on the user's machine."""
    login_id: str | None = absent_if_none()
    """Names this attempt, here and in the notification; older servers leave it out."""


class McpResourceReadTarget(WireModel):
    """The app, and the account in it, to read a resource through."""

    connector_id: str
    link_id: str | None
    """Linked account; null asks for access without one."""


class McpResourceReadParams(WireModel):
    """Read one resource; without a thread over a connection of its own."""

    meta: JsonObject | None = Field(default=None, alias="_meta")
    """Added to the MCP request; keys that route by account or turn are reserved."""
    thread_id: ThreadIdParam | None = None
    """Thread whose connection to use; null opens a temporary one."""
    origin_call_id: str | None = None
    """Id of the MCP tool call whose app the resource belongs to."""
    server: str
    uri: str
    connector_id: str | None = None
    target: McpResourceReadTarget | None = None
    """App and account to use; null lets the server find the resource's owner."""


class BlobResourceContent(Variant):
    """Binary content of a resource."""

    uri: str
    mime_type: str | None = absent_if_none()
    meta: Json = absent_if_none(alias="_meta")
    blob: str
    """The bytes, in base64."""


class TextResourceContent(Variant):
    """Text content of a resource."""

    uri: str
    mime_type: str | None = absent_if_none()
    text: str
    meta: Json = absent_if_none(alias="_meta")


ResourceContent = TypeAliasType("ResourceContent", TextResourceContent | BlobResourceContent)
"""One piece of a resource, as text or as bytes."""


class McpResourceReadResponse(WireModel):
    """The contents as the server sent them."""

    contents: list[ResourceContent]
    origin_call_id: str | None = None
    """The call that chose the app, if one did."""


class McpServerToolCallParams(WireModel):
    """Call a tool without a model, an approval or an item."""

    thread_id: ThreadIdParam
    server: str
    tool: str
    """Raw name, as the server lists it."""
    arguments: Json = None
    """A JSON object; null for a tool without arguments."""
    meta: Json = Field(default=None, alias="_meta")
    """Forwarded as the request's `_meta`; `threadId` and `progressToken` are overwritten."""


class McpServerToolCallResponse(WireModel):
    """What the tool returned; members that it left out stay out."""

    content: list[Json]
    """MCP content blocks."""
    structured_content: Json = absent_if_none()
    is_error: bool | None = absent_if_none()
    """True when the tool ran and says that it failed."""
    meta: Json = absent_if_none(alias="_meta")


McpServerStatusDetail = TypeAliasType("McpServerStatusDetail", Literal["full", "toolsAndAuthOnly"])
"""How much to ask each MCP server for."""


class ListMcpServerStatusParams(WireModel):
    """Page through the MCP servers, by raw name."""

    cursor: str | None = None
    """Decimal offset, from `nextCursor` of the page before."""
    limit: UInt32 | None = None
    """Servers a page; null means all, 0 counts as 1."""
    detail: McpServerStatusDetail | None = None
    """`full` (also when null) lists resources and resource templates too."""
    thread_id: ThreadIdParam | None = None
    """Thread whose connections to report on; null opens temporary ones."""
    server_name: str | None = None
    """Report on this server alone; a name that nobody has gives an empty list."""


McpAuthStatus = TypeAliasType(
    "McpAuthStatus",
    OpenEnum[Literal["unknown", "unsupported", "notLoggedIn", "bearerToken", "oAuth"]],
)
"""What authentication an MCP server has or lacks."""


class McpServerInfo(WireModel):
    """What a server says of itself."""

    name: str
    title: str | None = None
    version: str
    description: str | None = None
    icons: list[Json] | None = None
    """MCP icon objects, as the server sent them."""
    website_url: str | None = None


class Resource(WireModel):
    """A resource as an MCP server lists it."""

    annotations: Json = absent_if_none()
    """MCP hints on audience, priority and age."""
    description: str | None = absent_if_none()
    mime_type: str | None = absent_if_none()
    name: str
    size: Int64 | None = absent_if_none()
    """Bytes of the raw content, if the server knows."""
    title: str | None = absent_if_none()
    uri: str
    icons: list[Json] | None = absent_if_none()
    meta: Json = absent_if_none(alias="_meta")


class ResourceTemplate(WireModel):
    """A pattern of resource addresses, as an MCP server lists it."""

    annotations: Json = absent_if_none()
    uri_template: str
    """URI template as in RFC 6570."""
    name: str
    title: str | None = absent_if_none()
    description: str | None = absent_if_none()
    mime_type: str | None = absent_if_none()


class Tool(WireModel):
    """A tool as an MCP server lists it."""

    name: str
    title: str | None = absent_if_none()
    description: str | None = absent_if_none()
    input_schema: Json
    """JSON Schema of the arguments."""
    output_schema: Json = absent_if_none()
    """JSON Schema of the structured content."""
    annotations: Json = absent_if_none()
    """MCP hints, such as `readOnlyHint`; they decide whether a call needs approval."""
    icons: list[Json] | None = absent_if_none()
    meta: Json = absent_if_none(alias="_meta")


class McpServerStatus(WireModel):
    """One MCP server as configured and as it is now."""

    name: str
    runtime_status: McpServerConnectionStatus | None = None
    """The thread's connection; null when no thread was named."""
    plugin_id: str | None = None
    """Plugin that brought the server; null for a configured one."""
    http_origin: str | None = None
    """Scheme, host and port of the endpoint; null unless the server speaks HTTP."""
    server_info: McpServerInfo | None = None
    server_capabilities: Json = None
    """From the MCP handshake; null when there was none."""
    tool_list_meta: Json = None
    """`_meta` of the first page of the tool list; opaque."""
    tools: dict[str, Tool]
    """Raw tool name to the tool as the server listed it."""
    tools_error: str | None = None
    """Why `tools` is empty; null when a list came, even an empty or an old one."""
    resources: list[Resource]
    """Empty when `detail` is `toolsAndAuthOnly`."""
    resource_templates: list[ResourceTemplate]
    """Empty when `detail` is `toolsAndAuthOnly`."""
    auth_status: McpAuthStatus
    protocol_version: str | None = experimental(extension=True)
    """Revision of MCP that is spoken; null before the first connection."""
    pid: UInt32 | None = experimental(extension=True)
    """Process on the server's machine; null where there is none, or elsewhere."""
    rss_bytes: Int64 | None = experimental(extension=True)
    """Resident memory of the process and of those it started; null where it is not known."""
    shared_by: UInt32 | None = experimental(extension=True)
    """Threads that use the process or session; null without a thread."""
    started_at_ms: Int64 | None = experimental(extension=True)
    """Unix time at which it became ready last."""
    restarts: UInt32 | None = experimental(extension=True)
    """Starts after the first one in this thread; null without a thread."""
    last_error: str | None = experimental(extension=True)
    """Why it did not start or ended last, with its command; without secrets."""
    last_fault: str | None = experimental(extension=True)
    """What it did last against MCP, as a text that begins with a verb; without secrets."""
    tools_cached_at_ms: Int64 | None = experimental(extension=True)
    """Unix time at which `tools` was listed, if it comes from the cache; else null."""


class ListMcpServerStatusResponse(WireModel):
    """One page; `next_cursor` is null at the end."""

    data: list[McpServerStatus]
    next_cursor: str | None = None


class McpServerEventNotification(WireModel):
    """A notification of an MCP server, as it came."""

    method: str
    params: Json


class McpServerEventStreamNotification(WireModel):
    """An event arrived on a stream that this client subscribed to."""

    subscription_id: str
    notification: McpServerEventNotification


class McpServerOauthLoginCompletedNotification(WireModel):
    """A sign-in to an MCP server ended, well or not."""

    name: str
    thread_id: str | None = None
    """As the login was asked for."""
    login_id: str | None = None
    """From the response to `mcpServer/oauth/login`; older servers leave it out."""
    success: bool
    error: str | None = absent_if_none()
    """For people; absent on success."""


McpServerStartupFailureReason = TypeAliasType(
    "McpServerStartupFailureReason", OpenEnum[Literal["reauthenticationRequired"]]
)
"""A cause of failure that the client can do something about."""


McpServerStartupState = TypeAliasType(
    "McpServerStartupState", OpenEnum[Literal["starting", "ready", "failed", "cancelled"]]
)
"""How far the start of an MCP server has come; all but `starting` are final."""


class McpServerStatusUpdatedNotification(WireModel):
    """How far the start of one server of one thread has come."""

    thread_id: str | None = None
    name: str
    status: McpServerStartupState
    error: str | None = None
    """For people; null unless `status` is `failed`."""
    failure_reason: McpServerStartupFailureReason | None = None


class McpServerToolsChangedNotification(WireModel):
    """A server says that it has other tools: the thread's next model request has them."""

    thread_id: str
    name: str
