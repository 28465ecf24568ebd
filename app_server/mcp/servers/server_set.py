"""The servers of one thread (or of one question), under settings that change while they run.

Servers start side by side and fail on their own: none holds up another, or the thread.
Source: docs/mcp.md, "Connections", "Reload".
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TypeAlias

import anyio
import anyio.abc
import anyio.lowlevel

from app_server.mcp.catalog.config import McpSettings, ServerConfig, StdioTransport
from app_server.mcp.elicitation import ElicitationPort
from app_server.mcp.errors import UnknownServer
from app_server.mcp.record import Learned
from app_server.mcp.servers.pool import ServerPool
from app_server.mcp.servers.server import McpServer, SayStep, ServerNews, ServerStep
from app_server.mcp.tools.listing import Listing
from app_server.mcp.tools.table import NO_TOOLS, McpToolTable, McpToolTables
from app_server.observability.log_context import THREAD, start_apart

MAX_RETURN_S = 60.0
"""Between two starts of a server whose environment comes and goes."""

STARTS_AT_ONCE = 8
"""Servers that are started before others of the event loop have their turn."""

JOINS_FOR_A_START = 8
"""Servers that run already, and are joined in the time of a start."""


TakeNews: TypeAlias = Callable[[Sequence[ServerNews]], None]
"""Takes news of servers of one set, in order; does not wait."""


class NewsFeed:
    """The news of the servers of one set, on their way to who takes them."""

    def __init__(self, take: TakeNews) -> None:
        self._take = take
        self._held: list[ServerNews] | None = None

    def say(self, name: str, step: ServerStep, error: str | None) -> None:
        """Pass news on, or keep them for the end of `joined`."""
        if self._held is None:
            self._take([ServerNews(name, step, error)])
        else:
            self._held.append(ServerNews(name, step, error))

    def say_ready(self, name: str, step: ServerStep, error: str | None) -> None:
        """Pass news on of a server that goes on by another way: of its start there are none."""
        if step != "starting":
            self.say(name, step, error)

    def say_nothing(self, name: str, step: ServerStep, error: str | None) -> None:
        """Pass no news on, of a server that goes on by another way as it was."""

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Pass on together what comes until the context ends, which must not wait."""
        held: list[ServerNews] = []
        self._held = held
        try:
            yield
        finally:
            self._held = None
            if held:
                self._take(held)


class Launcher:
    """Runs servers in a task group of its own, from `run` to `stop`."""

    def __init__(
        self, cwd: str, pool: ServerPool, news: NewsFeed, again: Callable[[McpServer], None]
    ) -> None:
        """`again` is called with a server that has failed and whose environment is back."""
        self.cwd = cwd
        self._news = news
        self._processes = pool.processes
        self._again = again
        self._tasks: anyio.abc.TaskGroup | None = None
        self._stopping = anyio.Event()
        self.retired: set[McpServer] = set()
        """Servers that were replaced, and whose calls still run."""

    async def run(self, first: Sequence[McpServer]) -> None:
        """Start servers, and hold the connections of all that are launched until `stop`."""
        try:
            async with anyio.create_task_group() as self._tasks:
                await self._launch_all(first)
                await self._stopping.wait()
        finally:
            self._tasks = None

    def stop(self, servers: Iterable[McpServer]) -> None:
        """End the connections of these servers and of retired ones; then `run` returns."""
        self._stopping.set()
        for server in (*servers, *self.retired):
            server.end(keep_warm=True)
            server.cancel_start()
        for server in servers:
            server.owner_share.leave()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` has been called."""
        return self._stopping.is_set()

    def launch(self, server: McpServer) -> bool:
        """Start a server, unless nothing runs now or it may not be started; never waits.

        Returns whether something starts: not where it joins one that runs.
        """
        if self._tasks is None or not server.startable or server.join(self._tasks, self.cwd):
            return False
        start_apart(self._tasks, self._run, server, thread_id=THREAD.get())
        return True

    def launch_soon(self, servers: Sequence[McpServer]) -> None:
        """Start servers, some at a time; never waits."""
        if self._tasks is not None:
            start_apart(self._tasks, self._launch_all, servers, thread_id=THREAD.get())

    async def _launch_all(self, servers: Sequence[McpServer]) -> None:
        left = deque(servers)
        while left:
            # A hundred starts at once hold up everybody else.
            share = STARTS_AT_ONCE * JOINS_FOR_A_START
            with self._news.joined():
                while left and share > 0:
                    share -= JOINS_FOR_A_START if self.launch(left.popleft()) else 1
            if left:
                await anyio.lowlevel.checkpoint()

    async def _run(self, server: McpServer) -> None:
        """Run a server; one whose environment was out of reach starts again when that is back."""
        await server.run(self.cwd)
        failure = server.failure
        if failure is None or not failure.is_away or server.stop.is_set():
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._start_when_reachable, server, tasks.cancel_scope)
            await server.stop.wait()
            tasks.cancel_scope.cancel()

    async def _start_when_reachable(self, server: McpServer, waiting: anyio.CancelScope) -> None:
        if server.returns:
            # It could be reached, and then not when the server started.
            await anyio.sleep(min(2.0**server.returns, MAX_RETURN_S))
        await self._processes.wait_until_reachable(server.config.environment_id)
        self._again(server)
        waiting.cancel()

    def retire(self, server: McpServer) -> None:
        """End a server that another one has replaced, once its calls have ended; never waits."""
        server.owner_share.leave()
        server.cancel_start()
        if not server.is_in_use:
            server.end()
        elif self._tasks is not None:
            self.retired.add(server)
            start_apart(self._tasks, self._end_retired, server, thread_id=THREAD.get())

    async def _end_retired(self, server: McpServer) -> None:
        await server.retire()
        self.retired.discard(server)


class ServerSet:
    """Live servers, by raw name: who asks for one gets the server that has the name now."""

    def __init__(
        self,
        settings: McpSettings,
        cwd: str,
        pool: ServerPool,
        take_news: TakeNews,
        asks: ElicitationPort | None = None,
    ) -> None:
        """Make the set; nothing starts before `run`.

        `take_news` gets every step of every start. Without `asks` servers cannot ask the user.
        """
        self._pool = pool
        self._news = NewsFeed(take_news)
        self._say = self._news.say
        self._asks = asks
        self._is_paused = False
        self._launcher = Launcher(cwd, pool, self._news, self._environment_is_back)
        self._tables = McpToolTables()
        self.settings = settings
        if any(config.owner is not None for config in settings.servers.values()):
            # A registration is only sure to be served while somebody has leased it.
            _ = self.servers

    @cached_property
    def servers(self) -> dict[str, McpServer]:
        """Servers by raw name, made by the first look: the answer to a start needs none."""
        return {name: self._make(config) for name, config in self.settings.servers.items()}

    def _make(self, config: ServerConfig, replaced: McpServer | None = None) -> McpServer:
        server = McpServer(config, self._pool, self._say, self._asks)
        if replaced is not None and replaced.wanted.is_set() and not replaced.settled.is_set():
            server.wanted.set()
        if self._is_paused:
            server.running_calls.timeouts.pause()
        return server

    def pause_timeouts(self) -> None:
        """Pause the timeouts of all calls, until `resume_timeouts`."""
        self._is_paused = True
        for server in (*self.servers.values(), *self._launcher.retired):
            server.running_calls.timeouts.pause()

    def resume_timeouts(self) -> None:
        """Resume the timeouts of all calls."""
        self._is_paused = False
        for server in (*self.servers.values(), *self._launcher.retired):
            server.running_calls.timeouts.resume()

    async def run(self) -> None:
        """Start every server and hold the connections until `stop`."""
        await self._launcher.run(list(self.servers.values()))

    def stop(self) -> None:
        """End all connections; `run` returns when they have ended."""
        if not self._launcher.is_stopping:
            self._launcher.stop(self.servers.values())

    def update(self, settings: McpSettings, *, reload: bool = False) -> None:
        """Make the set what these settings ask for; never waits.

        Servers with equal settings stay as they are. Of others those that run or start with equal
        values go on; the rest is stopped, once their calls have ended, or started. With `reload`
        what goes on says so, and what is dead or has failed is started again. A set that stops
        stays as it is.
        """
        if self._launcher.is_stopping:
            return
        before, self.servers = self.servers, {}
        self.settings = settings
        fresh = []
        for name, config in settings.servers.items():
            server = before.get(name)
            is_same = server is not None and server.config == config
            is_announced = reload and not (
                config.is_registered and server is not None and server.lives
            )
            if server is not None and is_same and not is_announced:
                # Of what was registered at run time a reload says nothing new.
                del before[name]
            elif server is not None and config.enabled and server.fits(config, self._launcher.cwd):
                del before[name]
                server.reuse(config, announce=reload)
            else:
                server = self._replace(server, config)
                fresh.append(server)
            self.servers[name] = server
        for server in before.values():
            self._launcher.retire(server)
        self._launcher.launch_soon(fresh)

    def _replace(self, old: McpServer | None, config: ServerConfig) -> McpServer:
        is_registered = old is not None and old.config.is_registered and config.is_registered
        if old is None or not is_registered or not config.enabled:
            return self._make(config, old)
        if config.known is not None and old.config.known is not None:
            # Nothing starts: it goes on by another way, and says so if it has other tools.
            is_same = config.known == old.config.known
            say: SayStep = self._news.say_nothing if is_same else self._news.say_ready
            return McpServer(config, self._pool, say, self._asks)
        server = self._make(config, old)
        # Until it is ready the model is shown what there was, so that no turn is without.
        if server.listing is None:
            server.listing, server.stands_in = old.listing, True
        return server

    def revive(self, *names: str) -> None:
        """Start processes again that have died, and lazy servers whose tools are unknown.

        All of them or those named; never waits. One that then does not become ready is left as it
        is. The tools that were listed before stay until the new list is there.
        """
        for name in names or list(self.servers):
            server = self.servers.get(name)
            if server is None:
                continue
            server.wanted.set()
            is_process = isinstance(server.config.transport, StdioTransport)
            if is_process and server.has_died and not server.stop.is_set():
                self._start_again(server)

    def restart(self, name: str) -> None:
        """Start a server afresh; calls that run end on the old one; never waits.

        The tools that were listed before stay until the new list is there. One that is shared, or
        started by its first call, starts with the next call of any thread.

        Raises:
            UnknownServer: there is none of this name, or it may not start.
        """
        old = self.server(name)
        if self._launcher.is_stopping or not old.startable:
            raise UnknownServer(name)
        if old.instance is not None:
            old.instance.restart()
            if old.status == "connected":
                return
        server = self.servers[name] = self._make(old.config, old)
        if server.listing is None:
            server.listing, server.stands_in = old.listing, True
        self._go_on(server, old)
        self._launcher.retire(old)
        self._launcher.launch(server)

    def signed_in(self, name: str) -> None:
        """Start a server again that waits for a sign-in; never waits."""
        server = self.servers.get(name)
        if server is not None and server.status == "authenticationRequired":
            self._start_again(server)

    def _environment_is_back(self, server: McpServer) -> None:
        if self.servers.get(server.config.name) is server:
            self._start_again(server, returns=server.returns + 1)

    def _start_again(self, ended: McpServer, returns: int = 0) -> None:
        if self._launcher.is_stopping:
            return
        server = self.servers[ended.config.name] = self._make(ended.config)
        ended.owner_share.leave()
        server.listing = ended.listing
        self._go_on(server, ended)
        server.returns = returns
        self._launcher.launch(server)

    @staticmethod
    def _go_on(server: McpServer, ended: McpServer) -> None:
        """Go on with the record of a server; an instance has its own, and counts its starts."""
        if ended.instance is None:
            # It may have another revision now; what the ended one still says counts no more.
            ended.learned.protocol_version = None
            ended.learned = Learned()
            server.record = ended.record
            server.record.restarts += 1

    def cancel_starting(self) -> None:
        """Give up the starts that are not decided yet."""
        for server in self.servers.values():
            if not (server.config.lazy and server.status == "notStarted"):
                server.cancel_start()

    def _listed(self) -> list[tuple[ServerConfig, Listing]]:
        return [
            (server.config, server.listing)
            for server in self.servers.values()
            if server.listing is not None and server.config.shows_tools_on(self.settings.surface)
        ]

    @property
    def is_in_use(self) -> bool:
        """Whether anybody waits for a server, also for one that was replaced."""
        servers = (*self.servers.values(), *self._launcher.retired)
        return any(server.is_in_use for server in servers)

    @property
    def table(self) -> McpToolTable:
        """The last table that `tools` made; the servers may list other tools by now."""
        return self._tables.last

    @property
    def is_empty(self) -> bool:
        """Whether there is no server, nor a table of tools of servers that were there before."""
        return not self.servers and self._tables.last is NO_TOOLS

    def tools(self) -> McpToolTable:
        """Return what the model sees of servers that have started; tools of a dead one stay."""
        if self.is_empty:
            return NO_TOOLS
        return self._tables.make(self.settings.surface, self._listed())

    async def prepare_tools(self) -> McpToolTable:
        """Return the same as `tools`, made in a worker thread if there are many."""
        return await self._tables.prepare(self.settings.surface, self._listed())

    def environment_instance(self, environment_id: str) -> str | None:
        """Return an id of what an environment is now; None if it is unknown."""
        return self._pool.processes.instance_of(environment_id)

    def server(self, name: str) -> McpServer:
        """Find a server.

        Raises:
            UnknownServer: there is none of this name.
        """
        server = self.servers.get(name)
        if server is None:
            raise UnknownServer(name)
        return server

    async def decided(self, name: str) -> McpServer:
        """Find a server once its start, or that of what replaced it, has been decided.

        Raises:
            UnknownServer: there is none of this name.
        """
        while not (server := self.server(name)).settled.is_set():
            server.wanted.set()
            await server.settled.wait()
        return server
