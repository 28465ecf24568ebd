"""initialize and what every connection may hear."""

from protocol.model import JsonObject, WireModel

PROTOCOL_VERSION = "0.169.0"
"""The Codex app-server version whose wire this is; clients parse it out of the user agent."""


class ClientInfo(WireModel):
    """Who is calling; shown in logs and in `thread.originator`."""

    name: str
    title: str | None = None
    version: str


class InitializeCapabilities(WireModel):
    """What the client asks for and can do."""

    experimental_api: bool = False
    """Opens methods, fields and variants that are marked experimental."""
    opt_out_notification_methods: list[str] | None = None
    """Exact names of notifications that this connection does not want."""
    extensions: JsonObject | None = None
    request_attestation: bool = False
    required_human_approval: bool = False
    explicit_gateway_oauth: bool = False
    mcp_server_openai_form_elicitation: bool = False


class InitializeParams(WireModel):
    """The first request of every connection."""

    client_info: ClientInfo
    capabilities: InitializeCapabilities | None = None


class InitializeResponse(WireModel):
    """Who answers, and where it keeps its files."""

    user_agent: str
    """Begins with `<client name>/<protocol version>`."""
    codex_home: str
    """Absolute path of the home directory."""
    platform_family: str
    """`unix` or `windows`."""
    platform_os: str
    """`linux`, `macos` or `windows`."""


class WarningNotification(WireModel):
    """Something the user should know that stopped nothing."""

    thread_id: str | None = None
    message: str


class ConfigWarningNotification(WireModel):
    """A setting that was ignored or is doubtful."""

    summary: str
    details: str | None = None
