"""The agent's side: where its app-server is, and which of its threads is meant.

Source: docs/receiver.md, "The app-server".
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.abc
import anyio.to_thread
from websockets.exceptions import WebSocketException

from app_server.clients.app_connection import AppConnection, ConnectionLost
from app_server.clients.receiver.agent.environment import (
    MODE_VARIABLE,
    MODES,
    SURFACE,
    SURFACE_VARIABLE,
    THREAD_VARIABLE,
    URL_VARIABLE,
    check_url,
)
from app_server.clients.receiver.agent.item import PENDING_TOOL, Presence
from app_server.clients.receiver.agent.strategies import (
    DELIVER_S,
    AppServerInjectStrategy,
    PiggybackStrategy,
    Route,
    Strategy,
    follow,
    settle,
)
from app_server.clients.receiver.agent.thread_link import Recipient, ThreadLink
from app_server.clients.receiver.ledger import Entry, Ledger
from app_server.peer.address import ServerAddress
from app_server.peer.token_file import NoToken, chosen_token_file
from app_server.threads.opening.servers import running_servers
from protocol.jsonrpc.errors import RpcError

MAX_ANCESTORS = 4
"""Processes that are looked at: between a server and its receiver is a shell or a launcher."""


def found_server(home: Path, token_file: Path | None) -> ServerAddress | None:
    """Find a server without an address: the parent of this process, or that of the home.

    `token_file` is what the environment says, which is stronger.

    Raises:
        OSError: the list of running servers cannot be read.
    """
    if (above := _server_above(home)) is not None:
        return above if token_file is None else replace(above, token_file=token_file)
    path = home / "app-server.sock"
    return ServerAddress(f"unix://{path}", token_file) if path.is_socket() else None


def _server_above(home: Path) -> ServerAddress | None:
    """Return the server with this home that this process runs in, as one of its MCP servers.

    Only on Linux a process between the two is looked through.
    """
    running = {
        found.entry.pid: found.entry for found in running_servers(home).all() if found.is_running
    }
    for above in _ancestors():
        if above in running and (found := running[above].for_clients) is not None:
            url, token_file = found
            return ServerAddress(url, None if token_file is None else Path(token_file), above)
    return None


def _ancestors() -> Iterator[int]:
    parent = os.getppid()
    for _ in range(MAX_ANCESTORS):
        if parent <= 1:
            return
        yield parent
        parent = _parent_of(parent)


def _parent_of(pid: int) -> int:
    """Return the process that a process runs in; 0 where that is not known."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        # The name before it may hold anything, parentheses too.
        return int(status.rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


logger = logging.getLogger(__name__)

CLIENT = {"name": "app-server-receiver", "title": "Receiver", "version": "1"}
"""Client info of the receiver."""

CONNECT_S = 5.0
"""For the connection, the handshake and the search for the thread."""

SETTLE_S = 2.0
"""For a server to say what has become of signals; the agent may be waiting for a tool result."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
CLOSE_S = 1.0
PING_S = 20.0
"""Between pings, and for the pong; then the server counts as gone."""


@dataclass(frozen=True, slots=True)
class SurfaceContext:
    """Context of an agent session."""

    environ: Mapping[str, str]
    cwd: Path
    home: Path
    """Home in which a server has its Unix socket."""


class CodexSurface:
    """One agent session: a connection and a thread, when there are any."""

    def __init__(
        self, ledger: Ledger, tasks: anyio.abc.TaskGroup, *, deadline_s: float = DELIVER_S
    ) -> None:
        """`tasks` reads from the connection for as long as that is open."""
        self._ledger = ledger
        self._tasks = tasks
        self._deadline_s = deadline_s
        self._context: SurfaceContext | None = None
        self._link: ThreadLink | None = None
        self._recipient: Recipient | None = None
        self._changing = anyio.Lock()
        self._logged: str | None = None
        self._tools_listed = anyio.Event()

    @property
    def is_connected(self) -> bool:
        """Whether an app-server answers."""
        return self._link is not None and self._link.is_open

    @property
    def thread_id(self) -> str | None:
        """The thread that signals go to; None while there is none."""
        return self._recipient.thread_id if self.is_connected and self._recipient else None

    def tools_were_listed(self) -> None:
        """Note that the agent has the receiver's tools: from now on signals may name them."""
        self._tools_listed.set()

    async def until_tools_listed(self) -> None:
        """Wait until the agent has the receiver's tools."""
        await self._tools_listed.wait()

    async def on_bootstrap(self, context: SurfaceContext) -> None:
        """Begin a session: connect and find the thread, unless the mode is `off`.

        No failure gets out; they are logged and leave signals for tool results. Twice is harmless.
        """
        self._context = context
        await self.refresh()

    async def refresh(self) -> None:
        """Connect if there is no connection, and find the thread anew; no failure gets out."""
        async with self._changing:
            context = self._context
            server = None if context is None else await self._server(context)
            if context is None or server is None:
                return
            try:
                with anyio.fail_after(CONNECT_S):
                    if not self.is_connected:
                        self._link = await self._connect(server.url, server.token_file)
                    assert self._link is not None
                    named = context.environ.get(THREAD_VARIABLE) or None
                    self._recipient = await self._link.find(named, context.cwd)
                if self._recipient is None:
                    self._log_reason("no loaded thread of this folder")
                else:
                    self._logged = None
            except ValueError as exc:
                self._log_reason(str(exc))
            except (ConnectionLost, RpcError, TimeoutError) as exc:
                self._log_reason(f"it does not answer ({type(exc).__name__})")
                await self._let_go()

    def signal_strategy(self) -> Strategy:
        """Return the way for the next signal; asked anew for each."""
        if self._link is None or not self._link.is_open or self._recipient is None:
            return PiggybackStrategy(self._ledger)
        tool = PENDING_TOOL if self._tools_listed.is_set() else None
        route = Route(self._link, self._recipient, self._let_go, self._deadline_s, tool)
        return AppServerInjectStrategy(self._ledger, route)

    async def settle(self, entry: Entry) -> None:
        """Determine the outcome of an uncertain injection, if possible."""
        if await settle(self._ledger, entry) is Presence.UNKNOWN:
            await self.follow([entry])

    async def follow(self, entries: Sequence[Entry]) -> None:
        """Ask the server for the state of open signals, for at most 2 s."""
        link = self._link
        if link is None:
            return
        with suppress(ConnectionLost), anyio.move_on_after(SETTLE_S):
            for entry in entries:
                await follow(self._ledger, entry, link)

    async def on_wrap(self, context: SurfaceContext) -> None:
        """End a session: close the connection, forget the thread. Twice is harmless.

        The server goes on: it was started by others.
        """
        async with self._changing:
            self._context = None
            await self._let_go()

    async def _connect(self, url: str, token_file: Path | None) -> ThreadLink:
        connection = await connect_app(url, token_file)
        await self._tasks.start(connection.run)
        try:
            await connection.initialize(**CLIENT)
            link = ThreadLink(connection)
            await link.ask_what_it_can()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await connection.aclose()
            raise
        return link

    async def _let_go(self) -> None:
        link, self._link, self._recipient = self._link, None, None
        if link is not None:
            await link.aclose()

    async def _server(self, context: SurfaceContext) -> ServerAddress | None:
        """Return where the server is; None: nowhere, or it is not to be used."""
        environ = context.environ
        if environ.get(SURFACE_VARIABLE, SURFACE) != SURFACE:
            return None
        mode = environ.get(MODE_VARIABLE) or "auto"
        if MODES.get(mode) is None:
            self._log_reason(f"{MODE_VARIABLE} is none of {', '.join(MODES)}")
            return None
        if mode == "off":
            return None
        token_file = chosen_token_file(None, environ)
        if url := environ.get(URL_VARIABLE):
            try:
                return ServerAddress(check_url(url), token_file)
            except ValueError as exc:
                self._log_reason(f"{URL_VARIABLE}: {exc}")
                return None
        try:
            found = await anyio.to_thread.run_sync(found_server, context.home, token_file)
        except OSError as exc:
            self._log_reason(f"the running servers cannot be read: {exc.strerror}")
            return None
        if found is None:
            self._log_reason(f"{URL_VARIABLE} is not set, and no server started this receiver")
        return found

    def _log_reason(self, why: str) -> None:
        """Log why signals wait for tool results, once for each reason in a row."""
        if why != self._logged:
            self._logged = why
            logger.warning("signals wait for tool results: app-server: %s", why)


async def connect_app(url: str, token_file: Path | None = None) -> AppConnection:
    """Connect, without shaking hands; callers set the deadline.

    Raises:
        ValueError: the URL is of another machine, or there is no token in the file.
        ConnectionLost: nobody answers there.
    """
    try:
        connection = await ServerAddress(check_url(url), token_file).connection(
            max_size=MAX_MESSAGE_BYTES,
            open_timeout=None,
            close_timeout=CLOSE_S,
            ping_interval=PING_S,
            ping_timeout=PING_S,
        )
        return AppConnection(await connection)
    except NoToken as exc:
        raise ValueError(str(exc)) from exc
    except (OSError, WebSocketException) as exc:
        raise ConnectionLost from exc
