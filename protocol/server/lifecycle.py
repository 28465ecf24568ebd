"""initialize, feedback/save, warnings: what concerns the server as a whole."""

from protocol.model import JsonObject, UInt, WireModel, absent_if_none
from protocol.thread_ids import ThreadIdParam
from protocol.values import AbsolutePathBuf, LegacyAppPathString

PROTOCOL_VERSION = "0.169.0"
"""The Codex app-server version whose wire this is; clients parse it out of the user agent."""


class FeedbackSaveParams(WireModel):
    """Save a report of a problem as a ZIP file on the server's machine; nothing is sent."""

    save_path: LegacyAppPathString
    """Absolute path of a ZIP file that does not exist yet; the caller looks after it from then
    on."""
    classification: str
    """Kind of report, in the client's words."""
    reason: str | None = None
    thread_id: ThreadIdParam | None = None
    """Thread that the report is about; null for none."""
    include_logs: bool = False
    extra_log_files: list[str] | None = None
    """Paths on the server's machine."""
    tags: dict[str, str] | None = None


class FeedbackSaveResponse(WireModel):
    """Where the report is."""

    saved_path: LegacyAppPathString
    thread_id: str
    prompt_hash: str | None = None
    """Hash of the prompt; null when it is not known."""


class ClientInfo(WireModel):
    """Who is calling; shown in logs and in `thread.originator`."""

    name: str
    title: str | None = None
    """For people; null means `name`."""
    version: str


class InitializeCapabilities(WireModel):
    """What the client asks for and can do."""

    required_human_approval: bool = False
    """A person answers `humanCommand` approvals, each for one time; needs `experimentalApi`."""
    explicit_gateway_oauth: bool = False
    """Never open a browser unasked to sign in to the gateway; holds for the whole server from then
    on."""
    experimental_api: bool = False
    """Opens methods, fields and variants that are marked experimental."""
    request_attestation: bool = False
    """The client answers `attestation/generate` requests."""
    mcp_server_openai_form_elicitation: bool = False
    """Older way to declare the extension `openai/form`; newer clients use `extensions`."""
    opt_out_notification_methods: list[str] | None = None
    """Exact names of notifications that this connection does not want."""
    extensions: JsonObject | None = None
    """MCP extensions that the client has, by name, each with its settings."""


class InitializeParams(WireModel):
    """The first request of every connection."""

    client_info: ClientInfo
    capabilities: InitializeCapabilities | None = None
    """Null means none."""


class InitializeResponse(WireModel):
    """Who answers, and where it keeps its files."""

    user_agent: str
    """Begins with `<client name>/<protocol version>`."""
    codex_home: AbsolutePathBuf
    """Absolute path of the home directory."""
    platform_family: str
    """`unix` or `windows`."""
    platform_os: str
    """`linux`, `macos` or `windows`."""


class TextPosition(WireModel):
    """A place in a text file."""

    line: UInt
    """From 1."""
    column: UInt
    """From 1, in Unicode characters."""


class TextRange(WireModel):
    """Part of a text file."""

    start: TextPosition
    end: TextPosition


class ConfigWarningNotification(WireModel):
    """A setting that was ignored or is doubtful."""

    summary: str
    details: str | None = None
    """What to do about it, or the error."""
    path: str | None = absent_if_none()
    """The file; absent when no file is to blame."""
    range: TextRange | None = absent_if_none()
    """Place in the file; absent when unknown."""


class DeprecationNoticeNotification(WireModel):
    """Something in use will go away."""

    summary: str
    details: str | None = None
    """Why, or what to use instead."""


class GuardianWarningNotification(WireModel):
    """The automatic review of approvals has something to tell the user."""

    thread_id: str
    message: str


class WarningNotification(WireModel):
    """Something the user should know that stopped nothing."""

    thread_id: str | None = None
    """Null when no single thread is concerned."""
    message: str
