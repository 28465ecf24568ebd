"""Which handlers serve which methods: the table of areas, joined with what they work with.

Most areas are imported with their first request; the table names them and imports none.
Source: docs/architecture.md, "Life of a process".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import anyio.abc

from app_server.accounts.accounts import Accounts
from app_server.config.effective import Configuration
from app_server.config.file import ConfigFile
from app_server.extension.registry import ExtensionRegistry
from app_server.handlers.account.ports import AccountPorts
from app_server.handlers.apps.servers import AppServers
from app_server.handlers.late import LateHandlers
from app_server.handlers.mcp.reload import McpReloadHandlers
from app_server.handlers.mcp.servers import LoginPorts, McpHandlers, McpPorts
from app_server.handlers.organization.areas import late_metadata_routes
from app_server.handlers.server.lifecycle import LifecycleHandlers
from app_server.handlers.threads.threads import ThreadHandlers, ThreadPorts
from app_server.handlers.turns.turns import TurnHandlers, TurnPorts
from app_server.host.environments import Environments
from app_server.memory.budget import MemoryBudget
from app_server.plugins.contributor import Plugins
from app_server.rpc.context import Handler
from app_server.rpc.hub import Hub
from app_server.rpc.lazy_dispatch import LateDispatcher
from app_server.runtime.clock import Clock
from app_server.sessions.registry import Sessions
from app_server.signals.lazy import LateSignals
from app_server.signals.notifications import SignalNews
from app_server.threads.store import ThreadStore


class Area(Protocol):
    """Handlers of some methods."""

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""


@dataclass(frozen=True, slots=True)
class AreaPorts:
    """What the areas of one server work with."""

    store: ThreadStore
    sessions: Sessions
    hub: Hub
    clock: Clock
    configuration: Configuration
    file: ConfigFile
    extensions: ExtensionRegistry
    environments: Environments
    accounts: Accounts
    plugins: Plugins
    apps: AppServers | None
    signals: LateSignals
    news: SignalNews
    memory: MemoryBudget
    loads: Callable[[], Sequence[Any]]
    """How much waits on each connection."""
    tasks: anyio.abc.TaskGroup
    lifecycle: LifecycleHandlers


def account_area(ports: AreaPorts) -> LateHandlers:
    """Return account/*, which is loaded after the start too."""
    return LateHandlers(
        "app_server.handlers.account.account",
        "AccountHandlers",
        (
            "account/login/cancel",
            "account/login/start",
            "account/logout",
            "account/rateLimits/read",
            "account/read",
            "account/usage/read",
        ),
        AccountPorts(ports.configuration, ports.accounts, ports.hub, ports.tasks),
    )


def make_dispatcher(ports: AreaPorts, account: LateHandlers) -> LateDispatcher:
    """Join every area with what it works with."""
    threads = ThreadPorts(
        ports.store, ports.sessions, ports.hub, ports.configuration, ports.clock, ports.plugins
    )
    areas: Sequence[Area] = (
        ports.lifecycle,
        ThreadHandlers(threads),
        TurnHandlers(TurnPorts(ports.sessions, ports.hub, ports.configuration)),
        McpHandlers(
            McpPorts(
                ports.sessions,
                ports.configuration,
                ports.extensions,
                ports.environments,
                ports.apps,
            )
        ),
        McpReloadHandlers(ports.sessions, ports.configuration),
        account,
        *_thread_areas(ports, threads),
        *_other_areas(ports),
    )
    routes = {method: handler for area in areas for method, handler in area.routes.items()}
    return LateDispatcher(routes | late_metadata_routes(threads))


def _thread_areas(ports: AreaPorts, threads: ThreadPorts) -> list[LateHandlers]:
    store, sessions = ports.store, ports.sessions
    return [
        LateHandlers(
            "app_server.handlers.threads.branches",
            "BranchHandlers",
            ("thread/delete", "thread/fork", "thread/revert"),
            threads,
        ),
        LateHandlers(
            "app_server.handlers.threads.history",
            "HistoryHandlers",
            (
                "thread/items/list",
                "thread/items/read",
                "thread/timeline/list",
                "thread/turns/list",
            ),
            store,
            sessions,
        ),
        LateHandlers(
            "app_server.handlers.threads.search",
            "SearchHandlers",
            ("thread/search", "thread/searchOccurrences"),
            store,
            sessions,
        ),
        LateHandlers(
            "app_server.handlers.turns.queue",
            "QueueHandlers",
            (
                "thread/queue/add",
                "thread/queue/delete",
                "thread/queue/list",
                "thread/queue/reorder",
                "thread/queue/start",
                "thread/queue/update",
            ),
            store,
            sessions,
            ports.clock,
        ),
        LateHandlers(
            "app_server.handlers.turns.compaction",
            "CompactionHandlers",
            ("thread/compact/start",),
            sessions,
        ),
        LateHandlers(
            "app_server.handlers.signals.signals",
            "SignalHandlers",
            ("signal/deliver", "signal/list", "signal/read", "signal/recall"),
            ports.signals,
            ports.news,
        ),
    ]


def _other_areas(ports: AreaPorts) -> list[LateHandlers]:
    return [
        LateHandlers(
            "app_server.handlers.mcp.oauth",
            "OAuthHandlers",
            ("mcpServer/oauth/login",),
            LoginPorts(
                ports.sessions,
                ports.configuration,
                ports.extensions,
                ports.hub,
                ports.clock,
                ports.tasks,
                partial(_start_signed_in, ports.sessions),
            ),
        ),
        LateHandlers(
            "app_server.handlers.server.environments",
            "EnvironmentHandlers",
            ("environment/add", "environment/info", "environment/status"),
            ports.environments,
        ),
        LateHandlers(
            "app_server.handlers.plugins.areas",
            "PluginAreas",
            (
                "marketplace/add",
                "marketplace/remove",
                "marketplace/upgrade",
                "plugin/install",
                "plugin/installed",
                "plugin/list",
                "plugin/read",
                "plugin/uninstall",
            ),
            ports.plugins,
            ports.sessions,
            ports.configuration,
            ports.file,
            ports.hub,
            ports.tasks,
            ports.apps,
        ),
        LateHandlers(
            "app_server.handlers.server.diagnostics",
            "DiagnosticsHandlers",
            ("server/diagnostics",),
            ports.hub,
            ports.sessions,
            ports.memory,
            ports.loads,
        ),
        LateHandlers(
            "app_server.handlers.plugins.skills",
            "SkillHandlers",
            ("skills/list",),
            ports.configuration,
            ports.file.path.parent,
        ),
        LateHandlers(
            "app_server.handlers.apps.apps",
            "AppHandlers",
            ("app/installed", "app/list", "app/read"),
            ports.sessions,
            ports.configuration,
            ports.hub,
            ports.tasks,
            ports.apps,
        ),
        LateHandlers(
            "app_server.handlers.turns.background_terminals",
            "BackgroundTerminalHandlers",
            ("thread/backgroundTerminals/list",),
            ports.sessions,
        ),
        *_config_areas(ports),
    ]


def _config_areas(ports: AreaPorts) -> list[LateHandlers]:
    return [
        LateHandlers(
            "app_server.handlers.settings.write",
            "ConfigWriteHandlers",
            ("config/batchWrite", "config/value/write"),
            ports.configuration,
            ports.file,
            ports.sessions,
        ),
        LateHandlers(
            "app_server.handlers.settings.features",
            "FeatureHandlers",
            ("collaborationMode/list", "experimentalFeature/list"),
            ports.configuration,
            ports.sessions,
        ),
        LateHandlers(
            "app_server.handlers.settings.hooks",
            "HookHandlers",
            ("hooks/list",),
            ports.configuration,
            ports.sessions,
        ),
        LateHandlers(
            "app_server.handlers.settings.permission_profiles",
            "PermissionProfileHandlers",
            ("permissionProfile/list",),
            ports.configuration,
        ),
        LateHandlers(
            "app_server.handlers.settings.config",
            "ConfigHandlers",
            ("config/read", "configRequirements/read", "model/list"),
            ports.configuration,
        ),
    ]


def _start_signed_in(sessions: Sessions, name: str) -> None:
    for session in sessions:
        session.servers.signed_in(name)
