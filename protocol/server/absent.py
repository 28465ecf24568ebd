"""What this server does not have, for clients that ask before they offer it to users.

A machine without these things answers the same: there is none.
"""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int64, OpenEnum, UInt32, WireModel
from protocol.thread_ids import ThreadIdParam


class BedrockCheckGovCloudRequirementsParams(WireModel):
    """Ask whether models are reached in a GovCloud region of Amazon Bedrock."""


class BedrockCheckGovCloudRequirementsResponse(WireModel):
    """Whether they are, and whether the user should be warned."""

    is_gov_cloud: bool
    should_warn: bool
    """Whether what an administrator demands falls short of what GovCloud needs."""


class MemoryResetResponse(WireModel):
    """The store of memories across threads is empty."""


RemoteControlConnectionStatus = TypeAliasType(
    "RemoteControlConnectionStatus",
    OpenEnum[Literal["disabled", "connecting", "connected", "errored"]],
)
"""Whether the server can be used from another machine through its provider."""


class RemoteControlStatusReadResponse(WireModel):
    """How the server is reached from other machines."""

    status: RemoteControlConnectionStatus
    server_name: str
    """Name of the machine."""
    installation_id: str
    """UUID of the home on this machine."""
    environment_id: str | None = None
    """Null unless it is connected."""


RealtimeVoice = TypeAliasType(
    "RealtimeVoice",
    OpenEnum[
        Literal[
            "alloy",
            "arbor",
            "ash",
            "aube",
            "ballad",
            "breeze",
            "bubbie",
            "cedar",
            "coral",
            "cove",
            "echo",
            "ember",
            "haetsal",
            "hanul",
            "himari",
            "juniper",
            "leher",
            "maple",
            "marin",
            "miko",
            "neer",
            "porto",
            "rindo",
            "rio",
            "rivage",
            "sage",
            "selva",
            "shimmer",
            "sol",
            "sonna",
            "spruce",
            "tinta",
            "vale",
            "verse",
            "viola",
        ]
    ],
)
"""A voice of the provider's."""


class RealtimeVoicesList(WireModel):
    """Voices by the version of the provider's interface."""

    v1: list[RealtimeVoice]
    v2: list[RealtimeVoice]
    v3: list[RealtimeVoice] = []
    default_v1: RealtimeVoice
    default_v2: RealtimeVoice


class ThreadRealtimeListVoicesParams(WireModel):
    """Ask for the names of voices."""


class ThreadRealtimeListVoicesResponse(WireModel):
    """The names of voices."""

    voices: RealtimeVoicesList


class ThreadRealtimeStopParams(WireModel):
    """End the voice session of a thread."""

    thread_id: ThreadIdParam


class ThreadRealtimeStopResponse(WireModel):
    """The thread has no voice session."""


UserVerificationUnavailableReason = TypeAliasType(
    "UserVerificationUnavailableReason",
    OpenEnum[Literal["credentialMissing", "biometricsUnavailable", "providerUnavailable"]],
)
"""Why the platform cannot verify its user."""


class UserVerificationStatusParams(WireModel, extra="forbid"):
    """Ask whether the platform can verify its user."""


class UserVerificationStatusResponse(WireModel):
    """Whether it can."""

    credential_id: str | None = None
    unavailable_reason: UserVerificationUnavailableReason | None = None
    unavailable_message: str | None = None
    """For people."""


WindowsSandboxReadiness = TypeAliasType(
    "WindowsSandboxReadiness", OpenEnum[Literal["ready", "notConfigured", "updateRequired"]]
)
"""Whether commands can be confined on Windows."""


class WindowsSandboxReadinessResponse(WireModel):
    """Whether commands can be confined on Windows."""

    status: WindowsSandboxReadiness


ExternalAgentConfigMigrationItemType = TypeAliasType(
    "ExternalAgentConfigMigrationItemType",
    OpenEnum[
        Literal[
            "AGENTS_MD",
            "CONFIG",
            "SKILLS",
            "PLUGINS",
            "MCP_SERVER_CONFIG",
            "SUBAGENTS",
            "HOOKS",
            "COMMANDS",
            "MEMORY",
            "SESSIONS",
        ]
    ],
)
"""What can be taken over."""

ExternalAgentDetectedConnectorSource = TypeAliasType(
    "ExternalAgentDetectedConnectorSource",
    OpenEnum[Literal["remoteMcpServersConfig", "sessionToolUse"]],
)
"""Where a connector was found."""

ExternalAgentImportedConnectorSource = TypeAliasType(
    "ExternalAgentImportedConnectorSource", OpenEnum[Literal["remoteMcpServersConfig"]]
)
"""Where a connector that was taken over was found."""


class CommandMigration(WireModel):
    """A command of another agent."""

    name: str


class HookMigration(WireModel):
    """A hook of another agent."""

    name: str


class McpServerMigration(WireModel):
    """An MCP server of another agent."""

    name: str


class PluginsMigration(WireModel):
    """Plugins of another agent, of one marketplace."""

    marketplace_name: str
    plugin_names: list[str]


class SessionMigration(WireModel):
    """A conversation of another agent."""

    path: str
    cwd: str
    title: str | None = None


class SkillMigration(WireModel):
    """A skill of another agent."""

    name: str


class SubagentMigration(WireModel):
    """A subagent of another agent."""

    name: str


class MigrationDetails(WireModel):
    """What one entry consists of."""

    plugins: list[PluginsMigration] = []
    skills: list[SkillMigration] = []
    sessions: list[SessionMigration] = []
    mcp_servers: list[McpServerMigration] = []
    hooks: list[HookMigration] = []
    subagents: list[SubagentMigration] = []
    commands: list[CommandMigration] = []
    memory: list[str] = []


class ExternalAgentConfigMigrationItem(WireModel):
    """Something that can be taken over."""

    item_type: ExternalAgentConfigMigrationItemType
    description: str
    cwd: str | None = None
    """Folder that it belongs to; null or empty means the user's home."""
    details: MigrationDetails | None = None


class ExternalAgentDetectedConnectorCandidate(WireModel):
    """A connector that another agent uses."""

    name: str
    session_count: UInt32
    source: ExternalAgentDetectedConnectorSource


class ExternalAgentConfigDetectParams(WireModel):
    """Look for what other agents have."""

    include_home: bool = False
    """Also look in the user's home."""
    cwds: list[str] | None = None
    """Folders to look in."""
    max_session_age_days: UInt32 | None = None
    max_sessions: UInt32 | None = None
    source: str | None = None
    """Ignored; older clients send it."""
    migration_source: str | None = None
    """Which agent; null means the usual one."""


class ExternalAgentConfigDetectResponse(WireModel):
    """What was found."""

    items: list[ExternalAgentConfigMigrationItem]
    connectors: list[ExternalAgentDetectedConnectorCandidate] = []


class ExternalAgentConfigImportItemTypeSuccess(WireModel):
    """Something that was taken over."""

    item_type: ExternalAgentConfigMigrationItemType
    cwd: str | None = None
    source: str | None = None
    target: str | None = None
    title: str | None = None
    """Of a conversation."""


class ExternalAgentConfigImportItemTypeFailure(WireModel):
    """Something that could not be taken over."""

    item_type: ExternalAgentConfigMigrationItemType
    error_type: str | None = None
    sub_error_type: str | None = None
    failure_stage: str
    message: str
    cwd: str | None = None
    source: str | None = None


class ExternalAgentConfigImportHistory(WireModel):
    """One import."""

    import_id: str
    provider_id: str | None = None
    completed_at_ms: Int64
    """Unix time in milliseconds."""
    successes: list[ExternalAgentConfigImportItemTypeSuccess]
    failures: list[ExternalAgentConfigImportItemTypeFailure]


class ExternalAgentImportedConnectorCandidate(WireModel):
    """A connector that an import brought."""

    name: str
    session_count: UInt32
    source: ExternalAgentImportedConnectorSource


class ExternalAgentConfigImportHistoriesReadResponse(WireModel):
    """The imports of this server, the oldest first."""

    data: list[ExternalAgentConfigImportHistory]
    connectors: list[ExternalAgentImportedConnectorCandidate]
