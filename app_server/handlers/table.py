"""Which class serves which methods: the one table of the server, a row per class.

A row imports its class when it is loaded, and not before. The dispatcher is made from the table
(app_server/server/core.py); tests/handlers/test_table.py loads every class, and holds the table
against protocol/contract/methods.py and every `routes`.
Source: docs/architecture.md, "Life of a process".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, TypeAlias

from app_server.handlers.services import Services
from app_server.rpc.context import Routes


class Handlers(Protocol):
    """An object that serves some methods."""

    @property
    def routes(self) -> Routes:
        """What it serves, by method."""


HandlerClass: TypeAlias = Callable[[Services], Handlers]


@dataclass(frozen=True, slots=True)
class Row:
    """One class of handlers."""

    place: str
    """Module, below `app_server.handlers`, and class: `host.files:FileHandlers`."""
    methods: Sequence[str]
    """What its `routes` have."""
    at_start: bool
    """Whether it is loaded soon after the start; else with the first request."""

    def load(self) -> HandlerClass:
        """Import the class; called on the importer's thread.

        Raises:
            ImportError: it cannot be imported now.
        """
        module, _, name = self.place.partition(":")
        found: HandlerClass = getattr(import_module(f"app_server.handlers.{module}"), name)
        return found


def _row(place: str, *methods: str, at_start: bool = False) -> Row:
    return Row(place, methods, at_start)


TABLE: Sequence[Row] = (
    _row("server.lifecycle:LifecycleHandlers", "initialize", at_start=True),
    _row("threads.threads:ThreadHandlers", "thread/resume", "thread/start", at_start=True),
    _row(
        "threads.reading.lists:ThreadListHandlers",
        "thread/list",
        "thread/loaded/list",
        "thread/read",
        at_start=True,
    ),
    _row(
        "threads.upkeep:ThreadUpkeepHandlers",
        "thread/archive",
        "thread/inject_items",
        "thread/name/set",
        "thread/unarchive",
        "thread/unsubscribe",
        at_start=True,
    ),
    _row("turns.turns:TurnHandlers", "turn/interrupt", "turn/start", "turn/steer", at_start=True),
    _row(
        "mcp.servers:McpHandlers",
        "config/mcpServer/reload",
        "mcpServer/event/stream/start",
        "mcpServer/event/stream/stop",
        "mcpServer/resource/read",
        "mcpServer/tool/call",
        "mcpServerStatus/list",
        at_start=True,
    ),
    _row(
        "account.account:AccountHandlers",
        "account/login/cancel",
        "account/login/start",
        "account/logout",
        at_start=True,
    ),
    _row("threads.branches:BranchHandlers", "thread/delete", "thread/fork", "thread/revert"),
    _row(
        "threads.reading.history:HistoryHandlers",
        "thread/items/list",
        "thread/items/read",
        "thread/timeline/list",
        "thread/turns/list",
    ),
    _row("threads.reading.search:SearchHandlers", "thread/search", "thread/searchOccurrences"),
    _row(
        "threads.metadata:ThreadMetadataHandlers",
        "thread/memory/read",
        "thread/memoryMode/set",
        "thread/metadata/update",
        "thread/readState/update",
    ),
    _row(
        "threads.settings:ThreadSettingsHandlers", "thread/settings/update", "turn/settings/update"
    ),
    _row(
        "turns.queue:QueueHandlers",
        "thread/queue/add",
        "thread/queue/delete",
        "thread/queue/list",
        "thread/queue/reorder",
        "thread/queue/start",
        "thread/queue/update",
    ),
    _row("turns.goals:GoalHandlers", "thread/goal/clear", "thread/goal/get", "thread/goal/set"),
    _row(
        "turns.background_terminals:BackgroundTerminalHandlers",
        "thread/backgroundTerminals/clean",
        "thread/backgroundTerminals/list",
        "thread/backgroundTerminals/terminate",
    ),
    _row(
        "organization.sections:SectionHandlers",
        "thread/section/move",
        "threadSection/create",
        "threadSection/delete",
        "threadSection/list",
        "threadSection/update",
    ),
    _row(
        "organization.projects:ProjectHandlers",
        "project/create",
        "project/delete",
        "project/import",
        "project/list",
        "project/move",
        "project/read",
        "project/update",
    ),
    _row(
        "organization.attachments:AttachmentHandlers",
        "thread/attachment/add",
        "thread/attachment/list",
        "thread/attachment/remove",
        "thread/attachmentOwner/list",
    ),
    _row(
        "signals.signals:SignalHandlers",
        "signal/deliver",
        "signal/list",
        "signal/read",
        "signal/recall",
    ),
    _row("mcp.oauth:OAuthHandlers", "mcpServer/oauth/login"),
    _row("apps.list:AppListHandlers", "app/list"),
    _row("apps.read:AppReadHandlers", "app/installed", "app/read"),
    _row(
        "plugins.plugins:PluginHandlers",
        "plugin/install",
        "plugin/installed",
        "plugin/list",
        "plugin/read",
        "plugin/uninstall",
    ),
    _row(
        "plugins.marketplaces:MarketplaceHandlers",
        "marketplace/add",
        "marketplace/remove",
        "marketplace/upgrade",
    ),
    _row(
        "plugins.skills:SkillHandlers",
        "skills/config/write",
        "skills/extraRoots/set",
        "skills/list",
    ),
    _row("settings.models:ModelHandlers", "model/list"),
    _row(
        "settings.config:ConfigHandlers",
        "config/read",
        "configRequirements/read",
        "permissionProfile/list",
    ),
    _row("settings.write:ConfigWriteHandlers", "config/batchWrite", "config/value/write"),
    _row(
        "settings.features:FeatureHandlers",
        "collaborationMode/list",
        "experimentalFeature/enablement/set",
        "experimentalFeature/list",
    ),
    _row("settings.hooks:HookHandlers", "hooks/list"),
    _row(
        "turns.elicitations:ElicitationHandlers",
        "thread/decrement_elicitation",
        "thread/increment_elicitation",
    ),
    _row(
        "turns.special_turns:SpecialTurnHandlers",
        "review/start",
        "thread/compact/start",
        "thread/shellCommand",
    ),
    _row("turns.plans:PlanHandlers", "thread/prepareApprovedPlan"),
    _row(
        "server.environments:EnvironmentHandlers",
        "environment/add",
        "environment/info",
        "environment/status",
    ),
    _row("server.diagnostics:DiagnosticsHandlers", "server/diagnostics"),
    _row(
        "server.absent:AbsentHandlers",
        "account/bedrock/checkGovCloudRequirements",
        "externalAgentConfig/detect",
        "externalAgentConfig/import/readHistories",
        "memory/reset",
        "plugin/reconcile",
        "remoteControl/status/read",
        "thread/realtime/listVoices",
        "thread/realtime/stop",
        "userVerification/status",
        "windowsSandbox/readiness",
    ),
    _row(
        "host.files:FileHandlers",
        "fs/copy",
        "fs/createDirectory",
        "fs/getMetadata",
        "fs/readDirectory",
        "fs/readFile",
        "fs/remove",
        "fs/unwatch",
        "fs/watch",
        "fs/writeFile",
    ),
    _row("server.feedback:FeedbackHandlers", "feedback/save"),
    _row(
        "settings.providers:ProviderHandlers",
        "modelProvider/capabilities/read",
        "modelProvider/config/write",
        "modelProvider/list",
    ),
    _row(
        "host.search:SearchFilesHandlers",
        "fuzzyFileSearch",
        "fuzzyFileSearch/sessionStart",
        "fuzzyFileSearch/sessionStop",
        "fuzzyFileSearch/sessionUpdate",
    ),
    _row(
        "host.command:CommandExecHandlers",
        "command/exec",
        "command/exec/resize",
        "command/exec/terminate",
        "command/exec/write",
    ),
    _row(
        "host.process:ProcessHandlers",
        "process/kill",
        "process/resizePty",
        "process/spawn",
        "process/writeStdin",
    ),
    _row("host.git_diff:GitDiffHandlers", "gitDiffToRemote"),
    _row("account.reading:AccountReadHandlers", "account/read", "getAuthStatus"),
    _row("account.usage:AccountUsageHandlers", "account/rateLimits/read", "account/usage/read"),
    _row("threads.reading.summary:SummaryHandlers", "getConversationSummary"),
)

NOT_BUILT: frozenset[str] = frozenset()
"""Methods of the contract that no class serves yet; they answer `methodNotBuilt`."""
