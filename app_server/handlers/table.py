"""Which class serves which methods: the one table of the server, a row per class.

A row imports its class when it is loaded, and not before; `mypy` checks that the class takes
`Services` alone. The dispatcher is made from the table (app_server/server/services.py), and
tests/handlers/test_table.py holds it against protocol/methods.py and every `routes`.
Source: docs/architecture.md, "Life of a process".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from app_server.handlers.services import Services
from app_server.rpc.context import Handler


class Handlers(Protocol):
    """An object that serves some methods."""

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""


HandlerClass: TypeAlias = Callable[[Services], Handlers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One class of handlers."""

    methods: Sequence[str]
    """What its `routes` have."""
    load: Callable[[], HandlerClass]
    """Imports the class; called on the importer's thread."""
    at_start: bool
    """Whether it is loaded soon after the start; else with the first request."""


_rows: list[Row] = []


def _serves(
    *methods: str, at_start: bool = False
) -> Callable[[Callable[[], HandlerClass]], Callable[[], HandlerClass]]:
    def add(load: Callable[[], HandlerClass]) -> Callable[[], HandlerClass]:
        _rows.append(Row(methods=methods, load=load, at_start=at_start))
        return load

    return add


@_serves("initialize", at_start=True)
def _server_lifecycle() -> HandlerClass:
    from app_server.handlers.server.lifecycle import LifecycleHandlers

    return LifecycleHandlers


@_serves("thread/resume", "thread/start", at_start=True)
def _threads_threads() -> HandlerClass:
    from app_server.handlers.threads.threads import ThreadHandlers

    return ThreadHandlers


@_serves("thread/list", "thread/loaded/list", "thread/read", at_start=True)
def _threads_lists() -> HandlerClass:
    from app_server.handlers.threads.lists import ThreadListHandlers

    return ThreadListHandlers


@_serves(
    "thread/archive",
    "thread/inject_items",
    "thread/name/set",
    "thread/unarchive",
    "thread/unsubscribe",
    at_start=True,
)
def _threads_upkeep() -> HandlerClass:
    from app_server.handlers.threads.upkeep import ThreadUpkeepHandlers

    return ThreadUpkeepHandlers


@_serves("turn/interrupt", "turn/start", "turn/steer", at_start=True)
def _turns_turns() -> HandlerClass:
    from app_server.handlers.turns.turns import TurnHandlers

    return TurnHandlers


@_serves(
    "mcpServer/event/stream/start",
    "mcpServer/event/stream/stop",
    "mcpServer/resource/read",
    "mcpServer/tool/call",
    "mcpServerStatus/list",
    at_start=True,
)
def _mcp_servers() -> HandlerClass:
    from app_server.handlers.mcp.servers import McpHandlers

    return McpHandlers


@_serves(
    "account/login/cancel",
    "account/login/start",
    "account/logout",
    at_start=True,
)
def _account_account() -> HandlerClass:
    from app_server.handlers.account.account import AccountHandlers

    return AccountHandlers


@_serves("thread/delete", "thread/fork", "thread/revert")
def _threads_branches() -> HandlerClass:
    from app_server.handlers.threads.branches import BranchHandlers

    return BranchHandlers


@_serves(
    "thread/items/list",
    "thread/items/read",
    "thread/timeline/list",
    "thread/turns/list",
)
def _threads_history() -> HandlerClass:
    from app_server.handlers.threads.history import HistoryHandlers

    return HistoryHandlers


@_serves("thread/search", "thread/searchOccurrences")
def _threads_search() -> HandlerClass:
    from app_server.handlers.threads.search import SearchHandlers

    return SearchHandlers


@_serves(
    "thread/memory/read",
    "thread/memoryMode/set",
    "thread/metadata/update",
    "thread/readState/update",
)
def _threads_metadata() -> HandlerClass:
    from app_server.handlers.threads.metadata import ThreadMetadataHandlers

    return ThreadMetadataHandlers


@_serves("thread/settings/update", "turn/settings/update")
def _threads_settings() -> HandlerClass:
    from app_server.handlers.threads.settings import ThreadSettingsHandlers

    return ThreadSettingsHandlers


@_serves(
    "thread/queue/add",
    "thread/queue/delete",
    "thread/queue/list",
    "thread/queue/reorder",
    "thread/queue/start",
    "thread/queue/update",
)
def _turns_queue() -> HandlerClass:
    from app_server.handlers.turns.queue import QueueHandlers

    return QueueHandlers


@_serves("thread/compact/start")
def _turns_compaction() -> HandlerClass:
    from app_server.handlers.turns.compaction import CompactionHandlers

    return CompactionHandlers


@_serves("thread/goal/clear", "thread/goal/get", "thread/goal/set")
def _turns_goals() -> HandlerClass:
    from app_server.handlers.turns.goals import GoalHandlers

    return GoalHandlers


@_serves("thread/shellCommand")
def _turns_user_commands() -> HandlerClass:
    from app_server.handlers.turns.user_commands import UserCommandHandlers

    return UserCommandHandlers


@_serves(
    "thread/backgroundTerminals/clean",
    "thread/backgroundTerminals/list",
    "thread/backgroundTerminals/terminate",
)
def _turns_background_terminals() -> HandlerClass:
    from app_server.handlers.turns.background_terminals import BackgroundTerminalHandlers

    return BackgroundTerminalHandlers


@_serves(
    "thread/section/move",
    "threadSection/create",
    "threadSection/delete",
    "threadSection/list",
    "threadSection/update",
)
def _organization_sections() -> HandlerClass:
    from app_server.handlers.organization.sections import SectionHandlers

    return SectionHandlers


@_serves(
    "project/create",
    "project/delete",
    "project/import",
    "project/list",
    "project/move",
    "project/read",
    "project/update",
)
def _organization_projects() -> HandlerClass:
    from app_server.handlers.organization.projects import ProjectHandlers

    return ProjectHandlers


@_serves(
    "thread/attachment/add",
    "thread/attachment/list",
    "thread/attachment/remove",
    "thread/attachmentOwner/list",
)
def _organization_attachments() -> HandlerClass:
    from app_server.handlers.organization.attachments import AttachmentHandlers

    return AttachmentHandlers


@_serves("signal/deliver", "signal/list", "signal/read", "signal/recall")
def _signals_signals() -> HandlerClass:
    from app_server.handlers.signals.signals import SignalHandlers

    return SignalHandlers


@_serves("config/mcpServer/reload")
def _mcp_reload() -> HandlerClass:
    from app_server.handlers.mcp.reload import McpReloadHandlers

    return McpReloadHandlers


@_serves("mcpServer/oauth/login")
def _mcp_oauth() -> HandlerClass:
    from app_server.handlers.mcp.oauth import OAuthHandlers

    return OAuthHandlers


@_serves("app/list")
def _apps_list() -> HandlerClass:
    from app_server.handlers.apps.list import AppListHandlers

    return AppListHandlers


@_serves("app/installed", "app/read")
def _apps_read() -> HandlerClass:
    from app_server.handlers.apps.read import AppReadHandlers

    return AppReadHandlers


@_serves(
    "plugin/install",
    "plugin/installed",
    "plugin/list",
    "plugin/read",
    "plugin/uninstall",
)
def _plugins_plugins() -> HandlerClass:
    from app_server.handlers.plugins.plugins import PluginHandlers

    return PluginHandlers


@_serves("marketplace/add", "marketplace/remove", "marketplace/upgrade")
def _plugins_marketplaces() -> HandlerClass:
    from app_server.handlers.plugins.marketplaces import MarketplaceHandlers

    return MarketplaceHandlers


@_serves("skills/config/write", "skills/extraRoots/set", "skills/list")
def _plugins_skills() -> HandlerClass:
    from app_server.handlers.plugins.skills import SkillHandlers

    return SkillHandlers


@_serves("model/list")
def _settings_models() -> HandlerClass:
    from app_server.handlers.settings.models import ModelHandlers

    return ModelHandlers


@_serves("config/read", "configRequirements/read")
def _settings_config() -> HandlerClass:
    from app_server.handlers.settings.config import ConfigHandlers

    return ConfigHandlers


@_serves("config/batchWrite", "config/value/write")
def _settings_write() -> HandlerClass:
    from app_server.handlers.settings.write import ConfigWriteHandlers

    return ConfigWriteHandlers


@_serves(
    "collaborationMode/list",
    "experimentalFeature/enablement/set",
    "experimentalFeature/list",
)
def _settings_features() -> HandlerClass:
    from app_server.handlers.settings.features import FeatureHandlers

    return FeatureHandlers


@_serves("hooks/list")
def _settings_hooks() -> HandlerClass:
    from app_server.handlers.settings.hooks import HookHandlers

    return HookHandlers


@_serves("permissionProfile/list")
def _settings_permission_profiles() -> HandlerClass:
    from app_server.handlers.settings.permission_profiles import PermissionProfileHandlers

    return PermissionProfileHandlers


@_serves("thread/decrement_elicitation", "thread/increment_elicitation")
def _turns_elicitations() -> HandlerClass:
    from app_server.handlers.turns.elicitations import ElicitationHandlers

    return ElicitationHandlers


@_serves("review/start")
def _turns_reviews() -> HandlerClass:
    from app_server.handlers.turns.reviews import ReviewHandlers

    return ReviewHandlers


@_serves("thread/prepareApprovedPlan")
def _turns_plans() -> HandlerClass:
    from app_server.handlers.turns.plans import PlanHandlers

    return PlanHandlers


@_serves("environment/add", "environment/info", "environment/status")
def _server_environments() -> HandlerClass:
    from app_server.handlers.server.environments import EnvironmentHandlers

    return EnvironmentHandlers


@_serves("server/diagnostics")
def _server_diagnostics() -> HandlerClass:
    from app_server.handlers.server.diagnostics import DiagnosticsHandlers

    return DiagnosticsHandlers


@_serves(
    "fs/copy",
    "fs/createDirectory",
    "fs/getMetadata",
    "fs/readDirectory",
    "fs/readFile",
    "fs/remove",
    "fs/writeFile",
)
def _host_files() -> HandlerClass:
    from app_server.handlers.host.files import FileHandlers

    return FileHandlers


@_serves("feedback/save")
def _server_feedback() -> HandlerClass:
    from app_server.handlers.server.feedback import FeedbackHandlers

    return FeedbackHandlers


@_serves("modelProvider/capabilities/read", "modelProvider/config/write", "modelProvider/list")
def _settings_providers() -> HandlerClass:
    from app_server.handlers.settings.providers import ProviderHandlers

    return ProviderHandlers


@_serves("fs/unwatch", "fs/watch")
def _host_watch() -> HandlerClass:
    from app_server.handlers.host.watch import WatchHandlers

    return WatchHandlers


@_serves(
    "fuzzyFileSearch",
    "fuzzyFileSearch/sessionStart",
    "fuzzyFileSearch/sessionStop",
    "fuzzyFileSearch/sessionUpdate",
)
def _host_search() -> HandlerClass:
    from app_server.handlers.host.search import SearchFilesHandlers

    return SearchFilesHandlers


@_serves(
    "command/exec",
    "command/exec/resize",
    "command/exec/terminate",
    "command/exec/write",
)
def _host_command() -> HandlerClass:
    from app_server.handlers.host.command import CommandExecHandlers

    return CommandExecHandlers


@_serves(
    "process/kill",
    "process/resizePty",
    "process/spawn",
    "process/writeStdin",
)
def _host_process() -> HandlerClass:
    from app_server.handlers.host.process import ProcessHandlers

    return ProcessHandlers


@_serves("gitDiffToRemote")
def _host_git_diff() -> HandlerClass:
    from app_server.handlers.host.git_diff import GitDiffHandlers

    return GitDiffHandlers


@_serves("account/read", "getAuthStatus")
def _account_read() -> HandlerClass:
    from app_server.handlers.account.reading import AccountReadHandlers

    return AccountReadHandlers


@_serves("account/rateLimits/read", "account/usage/read")
def _account_usage() -> HandlerClass:
    from app_server.handlers.account.usage import AccountUsageHandlers

    return AccountUsageHandlers


@_serves("getConversationSummary")
def _threads_summary() -> HandlerClass:
    from app_server.handlers.threads.summary import SummaryHandlers

    return SummaryHandlers


TABLE: Sequence[Row] = tuple(_rows)

NOT_BUILT: frozenset[str] = frozenset()
"""Methods of the contract that no class serves yet; they answer `methodNotBuilt`."""
