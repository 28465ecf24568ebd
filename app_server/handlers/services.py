"""Services of the handlers of one server: one value, made in app_server/server/services.py."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.abc

from app_server.accounts.accounts import Accounts
from app_server.config.editing.file import ConfigFile
from app_server.config.effective import Configuration
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.extensions.plugins.contributor import Plugins
from app_server.extensions.skills.catalog import SkillCatalog
from app_server.host.commands.local_commands import LocalCommands
from app_server.host.environments import Environments
from app_server.host.files.work import FileWork
from app_server.host.git_fetch import GitFetch
from app_server.mcp.servers.pool import ServerPool
from app_server.models.catalogue.models import ModelLists
from app_server.notifications.lazy import LazyNotifications
from app_server.observability.telemetry.metrics import ServerMetrics
from app_server.permissions.rules import RuleBook
from app_server.permissions.sandbox.roots import MachinePaths
from app_server.rpc.connection import Conversations
from app_server.rpc.hub import Hub
from app_server.runtime.clock import Clock
from app_server.runtime.loader import Lazy
from app_server.sessions.memory_budget import MemoryBudget
from app_server.sessions.registry import Sessions
from app_server.signals.lazy import LazySignals
from app_server.signals.notifications import SignalNotifier
from app_server.threads.environments import AddedEnvironments
from app_server.threads.store import ThreadStore

if TYPE_CHECKING:
    from app_server.handlers.integrations.apps_port import AppsPort
    from app_server.handlers.server.config_problems import ConfigProblems
    from app_server.observability.use_counts import UseCounts


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services of one server; handlers have it as `context.services`."""

    home: Path
    version: str
    """This package's."""
    clock: Clock
    store: ThreadStore
    sessions: Sessions
    loaded_elsewhere: Callable[[str | None, int], Awaitable[Sequence[str]]] | None
    """See Nodes.loaded_elsewhere; None: this server is in no group."""
    rules: RuleBook
    hub: Hub
    configuration: Configuration
    config_problems: "Lazy[ConfigProblems]"
    config_file: ConfigFile
    extensions: ExtensionRegistry
    environments: Environments
    added_environments: AddedEnvironments
    """Those that clients of all servers of the store added."""
    mcp_pool: ServerPool
    commands: LocalCommands
    """On this machine, within what confines each."""
    git: GitFetch
    machine_paths: MachinePaths
    """Paths of this machine that sandbox policies need."""
    file_work: FileWork
    accounts: Accounts
    model_lists: ModelLists
    plugins: Plugins
    apps: "AppsPort | None"
    """None: there are no apps, and none are looked for."""
    skills: SkillCatalog
    signals: LazySignals
    signal_notifier: SignalNotifier
    notifications: LazyNotifications
    memory: MemoryBudget
    conversations: Conversations
    metrics: ServerMetrics
    use_counts: "UseCounts | None"
    """None: use is not counted."""
    tasks: anyio.abc.TaskGroup
    """Owns what goes on after an answer; cancelled when the server ends."""
    _parts: dict[Callable[["Services"], Any], Any] = field(default_factory=dict, init=False)

    def part(self, make: Callable[["Services"], T]) -> T:
        """Return what `make` makes of these services: one value of this server, made once.

        What handlers keep between requests (watches, sign-ins, locks) is such a part.
        """
        if make not in self._parts:
            self._parts[make] = make(self)
        part: T = self._parts[make]
        return part
