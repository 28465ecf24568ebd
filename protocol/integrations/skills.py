"""skills/*, hooks/list, hook/*: instructions that the model can load, and what runs on events."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import (
    Int64,
    OpenEnum,
    OpenUnion,
    UInt,
    UInt64,
    Variant,
    WireModel,
    absent_if_none,
)
from protocol.thread_ids import ThreadIdParam
from protocol.values import AbsolutePathBuf, HookEventName, LegacyAppPathString


class HooksListParams(WireModel):
    """List the hooks of some folders or of a thread."""

    cwds: list[str] = []
    """Folders to look in; empty means the server's own. Leave it out with `threadId`."""
    thread_id: ThreadIdParam | None = None
    """Loaded thread; its environments' hooks are listed too."""


class HookErrorInfo(WireModel):
    """A file whose hooks could not be read."""

    path: str
    message: str


HookSource = TypeAliasType(
    "HookSource",
    OpenEnum[
        Literal[
            "system",
            "user",
            "project",
            "mdm",
            "sessionFlags",
            "plugin",
            "cloudRequirements",
            "cloudManagedConfig",
            "legacyManagedConfigFile",
            "legacyManagedConfigMdm",
            "unknown",
        ]
    ],
)
"""What kind of configuration a hook comes from."""


HookTrustStatus = TypeAliasType(
    "HookTrustStatus", OpenEnum[Literal["managed", "untrusted", "trusted", "modified"]]
)
"""Whether the user trusts a hook as it is now; `managed` ones need no trust."""


class HookMetadataBase(Variant):
    """What every hook has, whatever it runs."""

    key: str
    event_name: HookEventName
    matcher: str | None = None
    """Pattern that limits the events it runs for."""
    timeout_sec: UInt64
    """Seconds that a run may take."""
    status_message: str | None = None
    """Shown while the hook runs."""
    additional_context_limit: UInt | None = None
    """Tokens of `additionalContext` before it spills; null means 2,500, 0 never."""
    source_path: AbsolutePathBuf
    """File that declares it."""
    source: HookSource
    plugin_id: str | None = None
    environment_id: str | None = None
    """Environment whose requirements declare it, if one does."""
    display_order: Int64
    enabled: bool
    is_managed: bool
    """Set by an administrator."""
    current_hash: str
    """Hash of the hook as it is now, by which a change is noticed."""
    trust_status: HookTrustStatus


class AgentHookMetadata(HookMetadataBase):
    """A hook that runs an agent."""

    handler_type: Literal["agent"] = "agent"


class CommandHookMetadata(HookMetadataBase):
    """A hook that runs a shell command."""

    handler_type: Literal["command"] = "command"
    command: str
    async_: bool = Field(default=False, alias="async")
    """Whether the turn goes on without waiting for it."""


class McpToolHookMetadata(HookMetadataBase):
    """A hook that calls an MCP tool."""

    handler_type: Literal["mcpTool"] = "mcpTool"
    server: str
    tool: str


class PromptHookMetadata(HookMetadataBase):
    """A hook that asks a model."""

    handler_type: Literal["prompt"] = "prompt"


HookMetadata = TypeAliasType(
    "HookMetadata",
    OpenUnion[
        Annotated[
            CommandHookMetadata | McpToolHookMetadata | PromptHookMetadata | AgentHookMetadata,
            Field(discriminator="handler_type"),
        ]
    ],
)
"""A hook, by what it runs."""


class HooksListEntry(WireModel):
    """The hooks of one folder."""

    cwd: str
    hooks: list[HookMetadata]
    warnings: list[str]
    errors: list[HookErrorInfo]


class HooksListResponse(WireModel):
    """The hooks, folder by folder."""

    data: list[HooksListEntry]


class SkillsConfigWriteParams(WireModel):
    """Switch a skill on or off for good; name it by `path` or by `name`."""

    path: AbsolutePathBuf | None = None
    """File of the skill."""
    name: str | None = None
    enabled: bool


class SkillsConfigWriteResponse(WireModel):
    """Whether the skill is on, now that the change is written."""

    effective_enabled: bool


class SkillsExtraRootsSetParams(WireModel):
    """Set the further folders in which skills are looked for."""

    extra_roots: list[AbsolutePathBuf]
    """The whole list: it replaces the one before."""


class SkillsExtraRootsSetResponse(WireModel):
    """Nothing."""


class SkillsListParams(WireModel):
    """Ask for the skills of some folders."""

    cwds: list[str] = []
    """Empty means the server's own folder."""
    force_reload: bool = False
    """Read the files again, past the cache."""


class SkillErrorInfo(WireModel):
    """A file whose skill could not be read."""

    path: str
    message: str


class SkillToolDependency(WireModel):
    """A tool that a skill needs."""

    type: str
    """Kind of tool, an MCP server for instance."""
    value: str
    """Names the tool within its kind."""
    description: str | None = absent_if_none()
    transport: str | None = absent_if_none()
    command: str | None = absent_if_none()
    """How to start it, if it is a program."""
    url: str | None = absent_if_none()
    """Where to reach it, if it is a service."""


class SkillDependencies(WireModel):
    """What a skill needs."""

    tools: list[SkillToolDependency]


class SkillInterface(WireModel):
    """How to show a skill."""

    display_name: str | None = absent_if_none()
    short_description: str | None = absent_if_none()
    icon_small: AbsolutePathBuf | None = absent_if_none()
    icon_large: AbsolutePathBuf | None = absent_if_none()
    icon_small_url: str | None = None
    """Remote, from the plugin catalog."""
    icon_large_url: str | None = None
    """Remote, from the plugin catalog."""
    brand_color: str | None = absent_if_none()
    default_prompt: str | None = absent_if_none()
    """Prompt to start with."""


SkillScope = TypeAliasType("SkillScope", OpenEnum[Literal["user", "repo", "system", "admin"]])
"""Whom a skill is there for."""


class SkillMetadata(WireModel):
    """A skill that the model can be given."""

    name: str
    description: str
    short_description: str | None = absent_if_none()
    """From an older form of skill; `interface` has the current one."""
    interface: SkillInterface | None = absent_if_none()
    dependencies: SkillDependencies | None = absent_if_none()
    path: LegacyAppPathString
    """The skill's file."""
    scope: SkillScope
    enabled: bool
    plugin_id: str | None = None
    """`id` of the plugin that brings it, if one does."""


class SkillsListEntry(WireModel):
    """The skills of one folder."""

    cwd: str
    skills: list[SkillMetadata]
    errors: list[SkillErrorInfo]


class SkillsListResponse(WireModel):
    """An entry for each folder that was asked for."""

    data: list[SkillsListEntry]


HookExecutionMode = TypeAliasType("HookExecutionMode", OpenEnum[Literal["sync", "async"]])
"""Whether the turn waits for a hook."""


HookHandlerType = TypeAliasType(
    "HookHandlerType", OpenEnum[Literal["command", "mcpTool", "prompt", "agent"]]
)
"""What a hook runs."""


HookOutputEntryKind = TypeAliasType(
    "HookOutputEntryKind", OpenEnum[Literal["warning", "stop", "feedback", "context", "error"]]
)
"""What a line of a hook's output is for."""


class HookOutputEntry(WireModel):
    """Something that a hook said."""

    kind: HookOutputEntryKind
    text: str


HookRunStatus = TypeAliasType(
    "HookRunStatus", OpenEnum[Literal["running", "completed", "failed", "blocked", "stopped"]]
)
"""Where the run of a hook stands; all but `running` are final."""


HookScope = TypeAliasType("HookScope", OpenEnum[Literal["thread", "turn"]])
"""Whether a hook runs for a whole thread or for one turn."""


class HookRunSummary(WireModel):
    """One run of a hook."""

    id: str
    event_name: HookEventName
    handler_type: HookHandlerType
    execution_mode: HookExecutionMode
    scope: HookScope
    source_path: LegacyAppPathString
    source: HookSource = "unknown"
    display_order: Int64
    status: HookRunStatus
    status_message: str | None = None
    """To show while it runs."""
    started_at: Int64
    """Unix seconds."""
    completed_at: Int64 | None = None
    """Unix seconds; null while it runs."""
    duration_ms: Int64 | None = None
    """Null while it runs."""
    entries: list[HookOutputEntry]


class HookCompletedNotification(WireModel):
    """A hook has run."""

    thread_id: str
    turn_id: str | None = None
    """Null when the hook runs outside a turn."""
    run: HookRunSummary


class HookStartedNotification(WireModel):
    """A hook runs."""

    thread_id: str
    turn_id: str | None = None
    """Null when the hook runs outside a turn."""
    run: HookRunSummary


class SkillsChangedNotification(WireModel):
    """Skill files changed: ask `skills/list` again."""
