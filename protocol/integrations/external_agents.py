"""externalAgentConfig/*: what other agents have on this machine, and what was taken over from them.

This server takes nothing over, so that lists are empty.
"""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int64, OpenEnum, UInt32, WireModel

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
