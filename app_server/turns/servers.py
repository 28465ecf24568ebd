"""The MCP servers of one loaded thread: which they are, from the start of the thread to its end.

With them the files behind a thread's settings, which are looked at between model requests: one stat
of each file on the event loop; only what has changed is read, in a worker.
Source: docs/mcp.md, "Connections", "Reload"; docs/extensions.md, "Boundaries"; docs/config.md, "An
edited file".
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.abc
import anyio.to_thread
from pydantic_core import to_json

from app_server.config.effective import Configuration
from app_server.config.positions import KeyPath
from app_server.config.unchanged import QUIET_S, Stamp, is_settled, stamp_of
from app_server.config.values import ChosenProfile, Config, ConfigError, merge_at
from app_server.extensions.contract.registration import (
    NO_METADATA,
    ContributionContext,
    RuntimeMetadata,
)
from app_server.mcp.bounds import MAX_DECLARED_BYTES
from app_server.mcp.catalog.catalog import ServerCatalog
from app_server.mcp.catalog.config import McpSettings, credential_variables
from app_server.mcp.catalog.tables import read_mcp_settings
from app_server.mcp.elicitation import ServerQuestion
from app_server.mcp.errors import NotLoggedIn
from app_server.mcp.servers.server import McpServer, ServerNews, Status
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.servers.waits import (
    WantedServers,
    refresh_lists,
    wait_for_grace,
    wait_for_required,
    wait_for_wanted,
)
from app_server.mcp.tools.table import SMALL_TABLE, declare, declared_functions, is_declared
from app_server.observability.log_context import start_apart
from app_server.permissions.project_config import (
    ProjectLayer,
    project_files,
    read_project_layers,
    with_projects,
)
from app_server.runtime.loop_share import free_in_pieces
from app_server.threads.log.live import LiveThread
from app_server.turns.approval.elicitations import Elicitations
from app_server.turns.clients import ThreadClients
from app_server.turns.server_context import ServerContext
from protocol.model import JsonObject

MAX_NAMED = 8
"""Servers in one warning."""

MAX_OWN_BYTES = 64 * 1024
"""Of the settings that clients changed for one thread alone, as JSON."""

DISCOVERY_S = 30.0
"""For extensions to find what a thread has; what is found later counts for a later request."""


class ThreadServers:
    """The servers that the settings and the extensions give a thread."""

    def __init__(
        self,
        log: LiveThread,
        clients: ThreadClients,
        config: Config,
        mcp: McpSettings,
        server: ServerContext,
        elicitations: Elicitations,
    ) -> None:
        """`mcp` was read from `config`; nothing starts before `start`."""
        self._config = config
        self._log = log
        self._mcp = mcp
        self._clients = clients
        self._elicitations = elicitations
        self._left_out: frozenset[str] = frozenset()
        self._catalog = ServerCatalog(server.extensions, log.id)
        cwd = log.state.settings.cwd
        self._discovered = anyio.Event()
        """Set once extensions know what the thread has at its start, or take too long for that."""
        self._has_asked = False
        """Whether there was a model request: changes since then wait for the next one."""
        self._reload_base: Config | None = None
        """The configuration of a reload that has not been done yet."""
        self._live = LiveSettings(server.configuration, cwd, config.chosen)
        self._looking = anyio.Lock()
        self._news: Config | None = None
        """Settings that `look_at_files` found, and that are not in force yet."""
        self._layers = config.layers
        """What the thread was loaded with, on top of the files."""
        self._own: Mapping[KeyPath, Any] = {}
        """What clients changed for this thread alone, on top of all."""
        self._is_behind = False
        """Whether the servers do not follow that yet."""
        self._refused: str | None = None
        """What is wrong with the settings that `look_at_files` found last."""
        self._set = ServerSet(self._resolved(), cwd, server.mcp_pool, self._announce, self)

    def live(self) -> ServerSet:
        """Return the set of servers, which goes on changing; a reload that waits is done first."""
        self.catch_up()
        return self._set

    @property
    def config(self) -> Config:
        """The settings in force, as of the start of the thread or the last reload."""
        self.catch_up()
        return self._config

    @property
    def profile_file(self) -> Path | None:
        """The file of the profile that the thread was loaded with; None: it has none of its own."""
        return None if self._config.chosen is None else self._config.chosen.file

    def statuses(self) -> list[tuple[str, Status]]:
        """Return name and status of each server as they are, whatever reload is to be done yet."""
        return [(name, server.status) for name, server in self._set.servers.items()]

    def credential_variables(self) -> frozenset[str]:
        """Return the names of variables with tokens of servers, configured or registered."""
        registered = self.live().settings.servers
        return credential_variables([*self._mcp.servers.values(), *registered.values()])

    async def start(self, tasks: anyio.abc.TaskGroup) -> None:
        """Start the servers in `tasks`; returns when all required ones have started.

        Raises:
            RequiredServersFailed: some did not.
        """
        start_apart(tasks, self._run, thread_id=self._log.id)
        await wait_for_required(self.live())

    async def _run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._discover)
            await self.live().run()
            tasks.cancel_scope.cancel()

    async def _discover(self) -> None:
        """Start what extensions find for the thread without waiting for its first turn."""
        await _discover_extensions(self._catalog, self.config)
        self._discovered.set()
        if self._has_asked or self._catalog.is_current:
            return
        await self._catalog.prepare(self.config)
        if not self._has_asked:
            self.live().update(self._resolved())

    async def prepare_reload(self) -> None:
        """Have `reload` find what extensions register now already read."""
        await self._catalog.prepare(self.config)

    def reload_later(self, base: Config) -> None:
        """Do a reload when somebody looks at the servers, or at the next `catch_up`."""
        self._reload_base = base

    def catch_up(self) -> None:
        """Do the reload that has not been done yet, if there is one; never waits.

        What the thread was loaded with lies on top of the new configuration as it lay on the one
        before. If both together make no sense, the servers stay as they are and the subscribers get
        a warning.
        """
        base, self._reload_base = self._reload_base, None
        if base is None:
            return
        self._news = None
        try:
            settings = self._adopt(base.with_projects(self._config.projects))
        except ConfigError as exc:
            self._clients.warning(f"failed to refresh MCP servers: {exc}")
        else:
            self._set.update(settings, reload=True)

    async def look_at_files(self) -> None:
        """Look whether the files have changed; `take_over` takes over what was found.

        The subscribers are warned once of what cannot be used, and nothing changes.
        """
        # Whoever comes while another one reads has what that finds.
        async with self._looking:
            try:
                if (found := await self._live.changed()) is None or not _has_servers(found.base):
                    return
                base = replace(found.base, chosen=found.chosen)
                news = with_projects(base, found.projects)
                read_mcp_settings(news.with_layers_of(self._config))
            except ConfigError as exc:
                self._refuse(exc)
            else:
                self._news, self._refused = news, None

    def _refuse(self, problem: ConfigError) -> None:
        """Warn of settings that cannot be used, once for as long as they stay so."""
        if self._refused != str(problem):
            self._refused = str(problem)
            self._clients.warning(f"failed to refresh MCP servers: {problem}")

    def take_over(self, *, with_extensions: bool = False) -> None:
        """Reconcile the servers with what `look_at_files` found; never waits.

        To be called between two model requests: a response goes with the servers of its request.
        Servers with equal settings stay as they are. `with_extensions`: also with what extensions
        register now, which a turn asks for itself. Where what was found makes no sense any more, it
        is left out, and the subscribers are warned.
        """
        self.catch_up()
        news, self._news = self._news, None
        is_behind, self._is_behind = self._is_behind, False
        if news is not None:
            try:
                self._set.update(self._adopt(news))
            except ConfigError as exc:
                # A client has changed the thread's own settings since `look_at_files` tried them.
                self._refuse(exc)
            else:
                return
        if with_extensions and self._discovered.is_set() and not self._catalog.is_current:
            is_behind = True
        if is_behind:
            self._set.update(self._resolved())

    def change(self, path: KeyPath, settings: Mapping[str, Any]) -> None:
        """Put settings of the table at `path` on top, until the thread is unloaded; never waits.

        They replace what is below them, also tables; None takes a setting away. The servers have
        them with the next `take_over`, and `look_at_files` tries the files with them.

        Raises:
            ConfigError: they make no sense, alone or with the others; nothing has changed.
        """
        own = {**self._own, **{(*path, key): value for key, value in settings.items()}}
        cleared, changed = _layers_of(own)
        if len(to_json(changed)) > MAX_OWN_BYTES:
            raise ConfigError(f"a thread takes {MAX_OWN_BYTES} bytes of changes of its own")
        config = self.config.override(cleared).override(changed)
        config = replace(config, layers=(*self._layers, cleared, changed))
        self._mcp = _with_last_good(read_mcp_settings(config), self._mcp)
        self._own, self._config, self._is_behind = own, config, True
        self._live.forget()

    def _adopt(self, below: Config) -> McpSettings:
        """Have the settings in force, with what the thread was loaded with on top.

        Raises:
            ConfigError: both together make no sense; what was in force stays.
        """
        config = below.with_layers_of(self._config)
        mcp = _with_last_good(read_mcp_settings(config), self._mcp)
        self._config, self._mcp = config, mcp
        self._layers = config.layers[: len(self._layers)]
        return self._resolved()

    async def before_request(self, wanted: WantedServers) -> None:
        """Bring the servers up to date before a model request.

        What extensions register now is taken over, and what has died is started again. A request
        waits at most the grace, for extensions that look for servers and for servers that start
        together, and for servers that are wanted until they have started or failed. Without a limit
        of the grace a look is waited for until it has taken DISCOVERY_S.
        """
        await self.look_at_files()
        self.take_over()
        began_at = anyio.current_time()
        if not (self._has_asked and self._catalog.is_current):
            deadline = _look_ends_at(self._catalog, self.config, self.live().settings)
            with anyio.CancelScope(deadline=deadline):
                if not self._has_asked:
                    await self._discovered.wait()
                if not self._catalog.is_current:
                    await _discover_extensions(self._catalog, self.config)
            self._has_asked = True
            if not self._catalog.is_current:
                await self._catalog.prepare(self.config)
                self.live().update(self._resolved())
        if self._set.is_empty:
            # Most threads have no server: there is nothing to start, to wait for or to declare.
            return
        self.live().revive()
        await wait_for_grace(self.live(), began_at)
        await wait_for_wanted(self.live(), wanted)
        await refresh_lists(self.live())
        await _declare(self.live())
        self._warn_of_left_out()

    async def elicit(self, question: ServerQuestion) -> JsonObject:
        """Answer a question of a server; see ElicitationPort."""
        return await self._elicitations.elicit(question, self.metadata_of(question.server))

    def context(self) -> ContributionContext:
        """Describe the thread to extensions."""
        return ContributionContext("current", self.config.document, self._log.id)

    def metadata_of(self, name: str) -> RuntimeMetadata:
        """Return the metadata with which a server was registered; empty for an unknown one."""
        server = self.live().servers.get(name)
        return NO_METADATA if server is None else server.config.metadata

    def environment_changed(self, environment_id: str, connected: bool) -> None:
        """Notify the subscribers if the thread, or one of its servers, is in the environment."""
        settings = self._log.state.in_force
        if settings.working_folder(environment_id) is not None or any(
            server.config.environment_id == environment_id and server.config.enabled
            for server in self.live().servers.values()
        ):
            self._clients.environment(environment_id, connected=connected)

    def _warn_of_left_out(self) -> None:
        before, self._left_out = self._left_out, self.live().tools().left_out
        if news := sorted(self._left_out - before):
            names = ", ".join(f"`{name}`" for name in news[:MAX_NAMED])
            more = f" and {len(news) - MAX_NAMED} more" if len(news) > MAX_NAMED else ""
            self._clients.warning(
                f"the tools of MCP servers are not shown to the model: {names}{more}; with them "
                f"tools would take more than {MAX_DECLARED_BYTES} bytes of a model request"
            )

    def _resolved(self) -> McpSettings:
        return self._catalog.resolve(self._mcp, self._config, "discover")

    def _announce(self, news: Sequence[ServerNews]) -> None:
        failed = [one.name for one in news if one.step == "failed"]
        again = [name for name in failed if _signs_in_again(self._set.servers.get(name))]
        self._clients.server_steps(news, again)
        if self._mcp.follows_list_changes:
            for one in news:
                if one.step == "toolsChanged":
                    self._clients.server_tools_changed(one.name)


def _signs_in_again(server: McpServer | None) -> bool:
    failure = None if server is None else server.failure
    return isinstance(failure, NotLoggedIn) and failure.again


def _look_ends_at(catalog: ServerCatalog, config: Config, settings: McpSettings) -> float:
    """Return until when the look of extensions is waited for, on the clock of anyio.

    The time counts from the look's beginning, which may be that of another thread: while somebody
    else's server hangs, threads do not wait one after the other.
    """
    began = catalog.looking_since(config)
    bound_s = DISCOVERY_S if settings.startup_grace_s is None else settings.startup_grace_s
    return (anyio.current_time() if began is None else began) + bound_s


async def _discover_extensions(catalog: ServerCatalog, config: Config) -> None:
    with anyio.move_on_after(DISCOVERY_S):
        await catalog.discovered(config)


async def _declare(servers: ServerSet) -> None:
    """Make what the model is shown of the tools, in a worker thread where they are many."""
    before = servers.table
    table = await servers.prepare_tools()
    if before is not table:
        parts = [*before.tools, *declared_functions(before)]
        del before
        await free_in_pieces(parts)
    is_small = len(table.tools) <= SMALL_TABLE
    if servers.settings.surface == "direct" and not is_small and not is_declared(table):
        await anyio.to_thread.run_sync(declare, table)


def _layers_of(own: Mapping[KeyPath, Any]) -> tuple[JsonObject, JsonObject]:
    """Make two layers that replace values: the first one clears what tables would merge with."""
    cleared: JsonObject = {}
    changed: JsonObject = {}
    for path, value in own.items():
        merge_at(cleared, path, None)
        merge_at(changed, path, value)
    return cleared, changed


def _with_last_good(mcp: McpSettings, before: McpSettings) -> McpSettings:
    """Let servers whose tables are wrong now go on as they were configured before."""
    kept = {
        name: before.servers[name]
        for name, server in mcp.servers.items()
        if server.problem is not None and name in before.servers
    }
    return replace(mcp, servers={**mcp.servers, **kept}) if kept else mcp


def _has_servers(base: Config) -> bool:
    """Whether its servers can be read; all clients are warned where they cannot."""
    try:
        read_mcp_settings(base)
    except ConfigError:
        return False
    return True


UNSEEN = -1
"""No number of changes: whatever there is has not been seen."""

MAX_READS = 10
"""Of files that somebody writes all the time; then what was in force stays until the next look."""


class NewSettings(NamedTuple):
    """Settings of the files, without those of requests."""

    base: Config
    """Of the user and the administrator, with the command line on top."""
    projects: Sequence[ProjectLayer]
    chosen: ChosenProfile | None
    """The profile that the thread was loaded with."""


class LiveSettings:
    """The files of the user, the administrator and the project, for one thread."""

    def __init__(
        self, configuration: Configuration, folder: str, chosen: ChosenProfile | None = None
    ) -> None:
        """Prepare; the first look finds a change.

        `folder` is where the thread works, and `chosen` the profile of its own, if it has one.
        """
        self._chosen = chosen
        self._configuration = configuration
        self._folder = folder
        self._changes = UNSEEN
        """Changes of the files of all threads that were seen here."""
        self._files: Sequence[Path] = ()
        """The files that the project has or may get, and the thread's own profile."""
        self._stamps: Sequence[Stamp | None] | None = None
        """Of these files when they were read; None: they have to be read again."""
        self._seen: Mapping[Path, Stamp | None] | None = None
        """Stamps of all files at the last look, if an edit since then would have changed one."""

    async def changed(self) -> NewSettings | None:
        """Return the settings if they have changed and are usable, else None.

        One call at a time: what one reads is not new to another.

        All clients are warned of a file of the user or the administrator that cannot be used
        (app_server/handlers/server/lifecycle.py).

        Raises:
            ConfigError: a file of the project, or the thread's own profile, cannot be used.
        """
        for _ in range(MAX_READS):
            before = self._look()
            if before == self._seen:
                return None
            if (left_s := _unquiet_s(before)) > 0:
                await anyio.sleep(left_s)
                before = self._look()
            try:
                found = await self._read()
            except ConfigError:
                if before.items() <= self._look().items():
                    raise
            else:
                if before.items() <= self._look().items():
                    now_ns = time.time_ns()
                    is_sure = all(is_settled(stamp, now_ns) for stamp in before.values())
                    self._seen = before if is_sure else None
                    return found
            # It was written meanwhile: an editor may have begun with an empty file.
            self._changes = UNSEEN
        return None

    def forget(self) -> None:
        """Have the next look find a change: it is to be tried with other settings on top."""
        self._changes, self._seen = UNSEEN, None

    async def _read(self) -> NewSettings | None:
        try:
            base = await self._configuration.read_as_is()
        except ConfigError:
            return None
        changes = self._configuration.changes
        if changes == self._changes and self._stamps == [stamp_of(file) for file in self._files]:
            return None
        self._changes = changes
        return await anyio.to_thread.run_sync(self._read_own, base)

    def _look(self) -> Mapping[Path, Stamp | None]:
        """Stat the files of the user, and the project's that were read before."""
        return {file: stamp_of(file) for file in (*self._configuration.files, *self._files)}

    def _read_own(self, base: Config) -> NewSettings:
        files, now_ns = project_files(Path(self._folder)), time.time_ns()
        self._files = files if self._chosen is None else [*files, self._chosen.file]
        stamps = [stamp_of(file) for file in self._files]
        # What changes while it is read has another stamp by the next look.
        self._stamps = stamps if all(is_settled(stamp, now_ns) for stamp in stamps) else None
        projects = read_project_layers(base, self._folder)
        chosen = self._chosen
        return NewSettings(
            base, projects, None if chosen is None else self._configuration.read_again(chosen)
        )


def _unquiet_s(stamps: Mapping[Path, Stamp | None]) -> float:
    """Return for how long the file that was written last is to be left alone."""
    newest_ns = max(stamp.modified_ns if stamp else 0 for stamp in stamps.values())
    age_s = time.time() - newest_ns / 1e9
    return QUIET_S - age_s if 0 <= age_s < QUIET_S else 0
