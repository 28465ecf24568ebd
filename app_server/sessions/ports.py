"""What all loaded threads share."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from app_server.config.requirements import Requirements, requirements_of
from app_server.config.values import Config
from app_server.extension.plugins import PluginMentions, PluginOffers, PluginSwitches
from app_server.extension.registry import ExtensionRegistry
from app_server.hooks.plugins import HookedPlugin
from app_server.hooks.running import HookRunner
from app_server.host.commands.machine import MachineCommands
from app_server.host.environments import Environments
from app_server.host.folder_reads import FolderReads
from app_server.mcp.processes import Processes
from app_server.permissions.confinement.places import Places, places_of_machine
from app_server.permissions.rules.book import RuleBook
from app_server.permissions.shell.grammar import ShellGrammar
from app_server.runtime.clock import Clock
from app_server.skills.catalog import SkillCatalog
from app_server.telemetry.figures import ServerFigures
from app_server.threads.log.state.thread import ThreadState
from app_server.threads.store import ThreadStore
from app_server.turns.approval.persistent import LastingApprovals
from app_server.turns.model.catalogue.lists import ModelLists
from app_server.turns.model.interface import Model
from app_server.turns.ports import ClientPort

Install: TypeAlias = Callable[[Mapping[str, Mapping[str, str]]], Awaitable[None]]
"""Writes servers into config.toml and gives them to loaded threads.

Raises ConfigError or NotRecorded; nothing was written then.
"""


def _ignore(state: ThreadState) -> None:
    pass


def _no_hooks() -> HookRunner:
    return HookRunner(MachineCommands(), dict)


async def _no_requirements() -> Requirements:
    return requirements_of(Config({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPorts:
    """The store, the model, the clients and the rest of the server, as a thread sees them."""

    store: ThreadStore
    model: Model
    clients: ClientPort
    clock: Clock
    approvals: LastingApprovals
    processes: Processes
    commands: MachineCommands = field(default_factory=MachineCommands)
    environments: Environments | None = None
    """Other machines that commands can run on."""
    hook_runner: HookRunner = field(default_factory=_no_hooks)
    credentials: frozenset[str] = frozenset()
    """Names of variables with what the server signs in with, besides those of models."""
    places: Places = field(default_factory=partial(places_of_machine, "/"))
    model_lists: ModelLists = field(default_factory=ModelLists)
    """What providers say of their models."""
    home: Path | None = None
    """Where the user's own instructions are."""
    skills: SkillCatalog | None = None
    """None: there are none."""
    folder_reads: FolderReads = field(default_factory=FolderReads)
    extensions: ExtensionRegistry = field(default_factory=ExtensionRegistry)
    grammar: ShellGrammar = field(default_factory=ShellGrammar)
    install_servers: Install | None = None
    """How MCP servers that skills need are installed; None: not at all."""
    plugin_offers: PluginOffers | None = None
    """What models may suggest to install; None: nothing."""
    plugin_mentions: PluginMentions | None = None
    """Which plugins users name; None: there are none."""
    plugin_switches: PluginSwitches | None = None
    """Where it is said which plugins a thread goes without; None: there are no plugins."""
    hooked_plugins: Callable[[Mapping[str, Any], str], Sequence[HookedPlugin]] | None = None
    """Gives the plugins that settings and a thread have, with their hooks; None: there are none."""
    rules: RuleBook = field(default_factory=RuleBook)
    """Those of the home; without one there are none."""
    log_grew: Callable[[ThreadState], None] = _ignore
    """Called after every append to a loaded thread's log; never waits."""
    figures: ServerFigures = field(default_factory=ServerFigures)
    """Counts the turns that end."""
    requirements: Callable[[], Awaitable[Requirements]] = _no_requirements
    """What an administrator demands of turns that no request begins."""
