"""Context that all loaded threads share."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from app_server.config.editing.file import ConfigFile
from app_server.config.effective import Configuration
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.extensions.contract.turns import PluginMentions, PluginOffers
from app_server.extensions.hooks.running import HookRunner
from app_server.extensions.plugins.contributor import Plugins
from app_server.extensions.skills.catalog import SkillCatalog
from app_server.host.commands.local_commands import LocalCommands
from app_server.host.environments import Environments
from app_server.host.folder_reads import FolderReads
from app_server.mcp.servers.pool import ServerPool
from app_server.models.catalogue.models import ModelLists
from app_server.models.interface import Model
from app_server.observability.telemetry.metrics import ServerMetrics
from app_server.permissions.rules import RuleBook
from app_server.permissions.sandbox.roots import MachinePaths
from app_server.permissions.shell.parse import ShellGrammar
from app_server.runtime.clock import Clock
from app_server.threads.store import ThreadStore
from app_server.turns.approval.persistent import PersistentApprovals
from app_server.turns.clients import ClientPort
from app_server.turns.usage.home import HomeBudgets


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlugins:
    """The plugins of the server, as threads use them."""

    installed: Plugins
    """With those that each thread goes without."""
    offers: PluginOffers
    """Plugins that models may suggest to install."""
    mentions: PluginMentions
    """Which plugins users name."""


class WakeRefused(Exception):
    """A thread cannot be woken so; the text says why."""


class TurnWakes(Protocol):
    """The wakes that models set for their threads. When a method returns, the wake is on disk.

    Source: docs/wakes.md, "For models".
    """

    async def at_time(self, thread_id: str, at_ms: int, note: str) -> None:
        """Have a turn begin at a time, Unix milliseconds.

        Raises:
            WakeRefused
        """

    async def at_exit(self, thread_id: str, session_id: str, note: str) -> None:
        """Have a turn begin when a command ends that runs behind the turns.

        Raises:
            WakeRefused
        """


class NoWakes:
    """The wakes of a server that has none."""

    async def at_time(self, thread_id: str, at_ms: int, note: str) -> None:
        """Refuse; see TurnWakes."""
        raise WakeRefused("this server wakes nobody")

    async def at_exit(self, thread_id: str, session_id: str, note: str) -> None:
        """Refuse; see TurnWakes."""
        raise WakeRefused("this server wakes nobody")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContext:
    """The store, the model, the clients and the rest of the server, as a thread sees them."""

    store: ThreadStore
    model_client: Model
    model_lists: ModelLists
    """Lists of models from the providers."""
    clients: ClientPort
    clock: Clock
    lasting_approvals: PersistentApprovals
    """Store of the approvals that outlive their thread."""
    mcp_pool: ServerPool
    """Processes and sessions of MCP servers that threads share."""
    home: Path
    """Folder of the user's own instructions."""
    commands: LocalCommands
    environments: Environments
    """Other machines that commands can run on."""
    hook_runner: HookRunner
    machine_paths: MachinePaths
    credentials: frozenset[str]
    """Names of variables with what the server signs in with, besides those of models."""
    skills: SkillCatalog
    rules: RuleBook
    extensions: ExtensionRegistry
    plugins: ServerPlugins
    metrics: ServerMetrics
    """Counts the turns that end."""
    budgets: HomeBudgets
    """Budgets that all threads share."""
    configuration: Configuration
    """With an administrator's requirements, for turns that no request begins."""
    config_file: ConfigFile
    """Gets the MCP servers that skills need."""
    wakes: TurnWakes = field(default_factory=NoWakes)
    """Of threads whose models may set some."""
    folder_reads: FolderReads = field(default_factory=FolderReads)
    grammar: ShellGrammar = field(default_factory=ShellGrammar)
