"""Builds the services of a server and joins them; starts nothing.

Before them stand the settings that are read once, plugins, apps and skills, and the built-in model,
which is served on loopback from when a turn first asks for it; and calls to the other servers of
the home, or of the group, one connection each.
Source: docs/signals.md, "Several servers"; docs/scale.md, "Requests for other nodes".
"""

import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.abc
import anyio.to_thread

from app_server import VERSION
from app_server.accounts.account_settings import AccountSettings, read_account_settings
from app_server.accounts.accounts import Accounts
from app_server.apps.lazy import LazyApps
from app_server.apps.upstream.endpoint import DEBUG_TOKEN_VARIABLE
from app_server.config.editing.file import ConfigFile
from app_server.config.effective import Configuration
from app_server.config.requirements import requirements_of
from app_server.config.values import Config, ConfigError
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.extensions.hooks.running import HookRunner
from app_server.extensions.plugins.contributor import Plugins
from app_server.extensions.plugins.in_turns import Offers, PluginsInTurns
from app_server.extensions.plugins.store import PluginStore
from app_server.extensions.skills.catalog import SkillCatalog
from app_server.extensions.skills.folders import FoundSkill
from app_server.handlers.services import Services
from app_server.handlers.views.rules import rules_warning
from app_server.host.commands.local_commands import LocalCommands
from app_server.host.environments import Environments
from app_server.host.files.work import FileWork
from app_server.host.git_fetch import GitFetch
from app_server.mcp.servers.pool import ServerPool
from app_server.models.catalogue.models import ModelLists
from app_server.models.lazy import LazyModel
from app_server.notifications.lazy import LazyNotifications
from app_server.notifications.ports import NotificationPorts
from app_server.notifications.sending import Senders
from app_server.observability.settings import counts_use
from app_server.observability.telemetry.metrics import ServerMetrics
from app_server.permissions.environment import EnvironmentPolicy, command_environment
from app_server.permissions.rules import BrokenRules, RuleBook
from app_server.permissions.sandbox.roots import read_machine_paths
from app_server.rpc.connection import Conversations
from app_server.rpc.hub import Hub
from app_server.runtime.clock import Clock, SystemClock
from app_server.runtime.loader import Lazy, LoadFailed, load, load_from_worker
from app_server.server.settings import Settings, Substitutes
from app_server.sessions.memory_budget import MemoryBudget, MemorySettings, read_memory_settings
from app_server.sessions.registry import Sessions
from app_server.signals.lazy import LazySignals, ModelWakes
from app_server.signals.notifications import PEER_NAME, SignalNotifier, SignalPorts
from app_server.threads.failures import Holder
from app_server.threads.opening.stores import Stores
from app_server.threads.servers import RunningServers
from app_server.turns.approval.persistent import PersistentApprovals
from app_server.turns.server_context import ServerContext, ServerPlugins
from app_server.turns.usage.home import HomeBudgets
from protocol.integrations.skills import SkillsChangedNotification
from protocol.jsonrpc.errors import METHOD_NOT_FOUND, RpcError
from protocol.model import JsonObject, WireModel

if TYPE_CHECKING:
    from app_server.handlers.integrations.apps_port import AppsPort
    from app_server.handlers.server.config_problems import ConfigProblems
    from app_server.observability.use_counts import UseCounts
    from app_server.server.node import GroupNode
    from app_server.signals.wakes import Wakes


if TYPE_CHECKING:
    from app_server.peer.connection import Client
    from app_server.server.node import GroupNode

logger = logging.getLogger(__name__)


CALL_S = 5.0
"""For a call to another server, with its connection."""


class HomePeers:
    """The servers that announce themselves in a home; their tokens are read there."""

    def __init__(self, servers: RunningServers) -> None:
        self._servers = servers

    async def call(
        self, thread_id: str, holder: Holder, method: str, params: WireModel
    ) -> JsonObject | None:
        """Call a method of the server that holds a thread; see Peers.call."""
        address = await anyio.to_thread.run_sync(_address_of, self._servers, holder)
        if address is None:
            return None
        url, token_file = address

        async def connected() -> "AbstractAsyncContextManager[Client]":
            connect = await load(_open_client)
            return connect(url, PEER_NAME, token_file=token_file, experimentalApi=True)

        return await _called(connected, holder, method, params)


class GroupPeers:
    """The nodes of a group."""

    def __init__(self, node: "GroupNode") -> None:
        self._node = node

    async def call(
        self, thread_id: str, holder: Holder, method: str, params: WireModel
    ) -> JsonObject | None:
        """Call a method of the node that owns a thread; see Peers.call."""
        owners = self._node.owners
        owner = None if owners is None else await owners.owner(thread_id)
        if owner is None or owner.node_id == self._node.id:
            return None

        async def connected() -> "AbstractAsyncContextManager[Client]":
            return self._node.address_of(owner).client(PEER_NAME, experimentalApi=True)

        return await _called(connected, holder, method, params)


async def _called(
    connected: "Callable[[], Awaitable[AbstractAsyncContextManager[Client]]]",
    holder: Holder,
    method: str,
    params: WireModel,
) -> JsonObject | None:
    try:
        with anyio.fail_after(CALL_S):
            async with await connected() as peer:
                result: JsonObject = await peer.call(
                    method, params.model_dump(mode="json", by_alias=True, exclude_unset=True)
                )
                return result
    except RpcError as exc:
        if exc.code != METHOD_NOT_FOUND:
            raise
        reason = str(exc)
    except (OSError, ValueError, LoadFailed, anyio.EndOfStream) as exc:
        reason = str(exc) or type(exc).__name__
    logger.info("%s cannot be handed to %s: %s", method, holder, reason)
    return None


def _address_of(servers: RunningServers, holder: Holder) -> tuple[str, Path | None] | None:
    if holder.address is None:
        return None
    try:
        found_servers = servers.all()
    except OSError:
        return None
    for server in found_servers:
        if server.is_running and holder.address in server.entry.addresses:
            found = server.entry.for_clients
            if found is not None:
                url, token_file = found
                return url, None if token_file is None else Path(token_file)
    return None


def _open_client() -> "Callable[..., AbstractAsyncContextManager[Client]]":
    from app_server.peer.connection import open_client

    return open_client


T = TypeVar("T")

UNLOAD_DELAY_S = 60.0


@dataclass(frozen=True, slots=True)
class FirstSettings:
    """Settings that hold until the server ends."""

    unload_delay_s: float = UNLOAD_DELAY_S
    """After which a quiet thread is unloaded."""
    memory: MemorySettings = field(default_factory=MemorySettings)
    counts_use: bool = False


async def read_first_settings(configuration: Configuration) -> FirstSettings:
    """Read what is read once; the default stands for what cannot be used.

    The check of the configuration logs what that is
    (app_server/handlers/server/config_problems.py).
    """
    default = FirstSettings()
    try:
        config = await configuration.read()
    except ConfigError:
        return default
    for warning in requirements_of(config).warnings:
        logger.warning("%s", warning)
    return FirstSettings(
        unload_delay_s=_read(_unload_delay_s, config, default.unload_delay_s),
        memory=_read(read_memory_settings, config, default.memory),
        counts_use=_read(counts_use, config, default.counts_use),
    )


def _check_usable(config: Config) -> None:
    load_from_worker(_usable_check)(config)


def _usable_check() -> Callable[[Config], None]:
    # With the first file that is edited.
    from app_server.handlers.server.config_check import check_usable

    return check_usable


def _unload_delay_s(config: Config) -> float:
    delay_s = config.view().integer("thread_unload_delay_secs")
    return UNLOAD_DELAY_S if delay_s is None else float(delay_s)


def _read(read: Callable[[Config], T], config: Config, default: T) -> T:
    try:
        return read(config)
    except ConfigError:
        return default


APPROVALS_OF_APPS = "apps"
"""Target of lasting approvals in the registrations of apps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extensions:
    """Plugins, apps and registry of a server."""

    plugins: Plugins
    registry: ExtensionRegistry
    apps: "AppsPort | None"
    lazy_apps: LazyApps | None
    """The same apps where they are the real ones; None: this process serves no apps."""


def join_extensions(
    settings: Settings,
    substitutes: Substitutes,
    environments: Environments,
    config_file: ConfigFile,
) -> Extensions:
    """Make the real ones, or take the substitutes."""
    plugins = Plugins(PluginStore(settings.home), partial(_is_available, environments))
    if substitutes.extensions is not None:
        return Extensions(
            plugins=plugins, registry=substitutes.extensions, apps=substitutes.apps, lazy_apps=None
        )
    apps = LazyApps(settings.home, environments, plugins)
    registry = ExtensionRegistry(
        [plugins],
        persisters={APPROVALS_OF_APPS: partial(_approve, config_file)},
        in_turns=[PluginsInTurns(plugins)],
        install_checks=[apps],
        late=[apps],
    )
    return Extensions(plugins=plugins, registry=registry, apps=apps, lazy_apps=apps)


def _is_available(environments: Environments, environment_id: str) -> bool:
    return environments.instance_of(environment_id) is not None


async def _approve(file: ConfigFile, path: Sequence[str]) -> None:
    await file.write(path, "approve")


def join_skills(
    settings: Settings, plugins: Plugins, hub: Hub, background: anyio.abc.TaskGroup
) -> SkillCatalog:
    """Find the skills of the user, of projects and of plugins; clients are notified of changes."""

    def changed() -> None:
        hub.broadcast(SkillsChangedNotification())

    return SkillCatalog(
        settings.home,
        settings.user_home,
        partial(_skills_of_plugins, plugins),
        background,
        changed,
    )


def _skills_of_plugins(
    plugins: Plugins, settings: Mapping[str, Any], thread_id: str | None
) -> list[FoundSkill]:
    return [
        FoundSkill("user", skill, active.id)
        for active in plugins.active(settings, thread_id)
        for skill in active.plugin.named_skills()
    ]


def offline_model_url(tasks: anyio.abc.TaskGroup) -> Lazy[str]:
    """Return the base URL of the model, which `tasks` serves once the URL is asked for."""

    async def start() -> str:
        serve_offline_model = await load(_serve_offline_model)
        url: str = await tasks.start(_hold, serve_offline_model())
        return url

    return Lazy("the offline model", start)


def _serve_offline_model() -> Callable[[], AbstractAsyncContextManager[str]]:
    from app_server.models.offline import serve_offline_model

    return serve_offline_model


async def _hold(
    context: AbstractAsyncContextManager[str], *, task_status: anyio.abc.TaskStatus[str]
) -> None:
    """Keep a context open until cancelled; its value is the status."""
    async with context as value:
        task_status.started(value)
        await anyio.sleep_forever()


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The services, and what only the server itself works with."""

    services: Services
    lazy_model: LazyModel
    lazy_apps: LazyApps | None
    """Apps that are loaded late; None: this process serves no apps."""


async def build_services(
    settings: Settings,
    substitutes: Substitutes,
    *,
    stores: Stores,
    node: "GroupNode | None",
    conversations: Conversations,
    background: anyio.abc.TaskGroup,
    work: anyio.abc.TaskGroup,
) -> Built:
    """Join the services; reads the configuration and starts no task.

    `background` is cancelled when the server ends, `work` has whatever threads do and ends before.
    `node` is this server, where it is one of a group.
    """
    home, hub = settings.home, conversations.hub
    clock: Clock = substitutes.clock or SystemClock()
    metrics = ServerMetrics(clock.now_ms)
    accounts = _accounts(settings, clock)
    configuration = Configuration(
        settings.sources,
        partial(_is_signed_in, accounts),
        is_strict=settings.is_strict,
        check=_check_usable,
    )
    config_file = ConfigFile(home, over=configuration.profile_file)
    environments = Environments(background)
    mcp_pool = ServerPool(environments, home)
    rules = RuleBook(home, partial(_warn_of_rules, hub))
    commands = LocalCommands(rules, home)
    machine_paths = read_machine_paths(str(home), [str(file) for file in _hidden_files(settings)])
    extensions = join_extensions(settings, substitutes, environments, config_file)
    plugins, registry = extensions.plugins, extensions.registry
    skills = join_skills(settings, plugins, hub, background)
    lazy_model = LazyModel(offline_model_url(background), accounts)
    model_lists = ModelLists(lazy_model)
    first = await read_first_settings(configuration)
    hub.streams.limits = first.memory.stream
    counts = (await load(_use_counts))() if first.counts_use else None
    if counts is not None:
        hub.observers.append(counts)

    async def wakes() -> "Wakes":
        # Signals need the threads, and threads the wakes, which are signals.
        return await signals.wakes()

    sessions = Sessions(
        ServerContext(
            store=stores.threads,
            model_client=lazy_model,
            model_lists=model_lists,
            clients=hub,
            clock=clock,
            lasting_approvals=PersistentApprovals(config_file, registry),
            mcp_pool=mcp_pool,
            home=home,
            commands=commands,
            environments=environments,
            hook_runner=HookRunner(commands, _hook_environment),
            machine_paths=machine_paths,
            credentials=frozenset({DEBUG_TOKEN_VARIABLE}),
            skills=skills,
            rules=rules,
            extensions=registry,
            plugins=ServerPlugins(
                installed=plugins,
                offers=Offers(plugins, settings.user_home, config_file, registry.verify_install),
                mentions=PluginsInTurns(plugins),
            ),
            metrics=metrics,
            budgets=HomeBudgets(stores.budgets, stores.threads.lists),
            configuration=configuration,
            config_file=config_file,
            wakes=ModelWakes(wakes),
        ),
        work,
        first.unload_delay_s,
    )
    environments.on_connection = partial(_environment_changed, sessions, plugins)
    signal_notifier = SignalNotifier(hub)
    ports = SignalPorts(
        store=stores.threads,
        sessions=sessions,
        clock=clock,
        notifier=signal_notifier,
        configuration=configuration,
        peers=HomePeers(stores.servers) if node is None else GroupPeers(node),
    )
    signals = LazySignals(stores.signals, background, ports)
    notifications = LazyNotifications(
        stores.notifications,
        background,
        hub,
        NotificationPorts(
            store=stores.threads,
            sessions=sessions,
            clock=clock,
            configuration=configuration,
            senders=Senders(commands, clock, configuration.resolve(None), _hook_environment),
        ),
    )
    services = Services(
        home=home,
        version=VERSION,
        clock=clock,
        store=stores.threads,
        sessions=sessions,
        loaded_elsewhere=None
        if node is None or stores.nodes is None
        else stores.nodes.loaded_elsewhere,
        rules=rules,
        hub=hub,
        configuration=configuration,
        config_problems=Lazy(
            "the check of the configuration", partial(_config_problems, configuration)
        ),
        config_file=config_file,
        extensions=registry,
        environments=environments,
        added_environments=stores.environments,
        mcp_pool=mcp_pool,
        commands=commands,
        git=GitFetch(commands),
        machine_paths=machine_paths,
        file_work=FileWork(),
        accounts=accounts,
        model_lists=model_lists,
        plugins=plugins,
        apps=extensions.apps,
        skills=skills,
        signals=signals,
        signal_notifier=signal_notifier,
        notifications=notifications,
        memory=MemoryBudget(first.memory.budget_bytes, hub.streams, sessions),
        conversations=conversations,
        metrics=metrics,
        use_counts=counts,
        tasks=background,
    )
    return Built(services=services, lazy_model=lazy_model, lazy_apps=extensions.lazy_apps)


def _hidden_files(settings: Settings) -> Sequence[Path]:
    """Return files that sandboxed commands must not read."""
    of_node = () if settings.node is None else (settings.node.secret_file,)
    return (*settings.guards.hidden_files, *of_node)


def _accounts(settings: Settings, clock: Clock) -> Accounts:
    # Whether somebody is signed in changes a configuration; this one says where to look for it.
    as_written = Configuration(settings.sources)
    return Accounts(settings.home, partial(_account_settings, as_written), clock.now_ms)


async def _account_settings(configuration: Configuration) -> AccountSettings:
    return read_account_settings(await configuration.read())


async def _is_signed_in(accounts: Accounts) -> bool:
    return (await accounts.look()).credentials is not None


def _problems() -> "type[ConfigProblems]":
    # All that reads settings, which is looked for once turns can start.
    from app_server.handlers.server.config_problems import ConfigProblems

    return ConfigProblems


async def _config_problems(configuration: Configuration) -> "ConfigProblems":
    return (await load(_problems))(configuration)


def _use_counts() -> "type[UseCounts]":
    # Off unless it is configured.
    from app_server.observability.use_counts import UseCounts

    return UseCounts


def _hook_environment() -> Mapping[str, str]:
    return command_environment(EnvironmentPolicy(), os.environ, (), {})


def _warn_of_rules(hub: Hub, broken: BrokenRules) -> None:
    hub.broadcast(rules_warning(broken))


def _environment_changed(
    sessions: Sessions, plugins: Plugins, environment_id: str, connected: bool
) -> None:
    plugins.environment_changed()
    for session in sessions:
        session.servers.environment_changed(environment_id, connected)
