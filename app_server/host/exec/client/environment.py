"""One environment that is an exec server elsewhere, with at most one connection to it.

It is connected to at once, and again whenever it is needed after the connection was lost. Importing
this module brings the WebSocket client: app_server/handlers/host/environments.py does it.
Source: docs/environments.md.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

import anyio
import anyio.abc

from app_server.host.exec.client.address import ExecAddress
from app_server.host.exec.client.client import ExecConnection, open_exec_connection
from app_server.host.exec.client.process import RemoteProcess
from app_server.host.exec.client.starts import Start, file_open
from app_server.observability.log_context import bind_request, start_apart
from protocol.exec.files import FileProfile
from protocol.exec.processes import WorkPolicy
from protocol.host.environments import EnvironmentShellInfo

logger = logging.getLogger(__name__)

REPLACED = "the environment was replaced"

Status: TypeAlias = Literal["ready", "pending", "disconnected", "unknown"]


class RemoteEnvironment:
    """An exec server that clients have added."""

    def __init__(
        self,
        address: ExecAddress,
        tasks: anyio.abc.TaskGroup,
        notify: Callable[[bool], None],
        retry_waits_s: tuple[float, float] = (1.0, 30.0),
    ) -> None:
        """`tasks` owns the connection; `notify` says when there is one, and when there is none.

        While somebody waits for it a connection is tried again after the first of `retry_waits_s`,
        then after twice as long each time, up to the second. All waiters share one try.
        """
        self._retry_waits_s = retry_waits_s
        self.status: Status = "pending"
        self.error: str | None = None
        """Why it is disconnected."""
        self._address = address
        self._tasks = tasks
        self._notify = notify
        self._connection: ExecConnection | None = None
        self._connecting = anyio.Lock()
        self._attempts = 0
        self._failure: tuple[int, OSError] | None = None
        """The last attempt that failed, by its number."""
        self._replaced = False
        self._waiting = 0
        self._trying = False
        self._reachable = anyio.Event()
        """Set while there is a connection, and when there never will be one."""

    async def connect(self) -> None:
        """Connect, and leave it at that if it does not work."""
        try:
            await self._connected()
        except OSError as exc:
            logger.info("environment: %s", exc)
        except Exception:
            # Nobody waits for this attempt who could be told.
            logger.exception("environment: connecting to its exec server broke")

    async def info(self) -> tuple[EnvironmentShellInfo, str]:
        """Ask for shell and working folder; connects if need be.

        Raises:
            OSError: it is out of reach.
        """
        answer = await (await self._connected()).info()
        return answer.shell, answer.cwd

    @asynccontextmanager
    async def start(self, start: Start) -> AsyncIterator[RemoteProcess]:
        """Run something there for as long as the context lasts; connects if need be.

        Raises:
            ConnectionError: it is out of reach.
            OSError: it cannot be started there.
        """
        connection = await self._connected()
        async with connection.start(start) as process:
            yield process

    @asynccontextmanager
    async def open_file(
        self, path: str, policy: WorkPolicy, profile: FileProfile | None = None
    ) -> AsyncIterator[RemoteProcess]:
        """Read a file there, see Environments.open_file; connects if need be."""
        async with self.start(file_open(path, policy, profile)) as file:
            yield file

    async def wait_until_reachable(self) -> None:
        """Wait for a connection, or until this has been replaced; tries to connect meanwhile."""
        if self._reachable.is_set():
            return
        self._waiting += 1
        try:
            if not self._trying:
                self._trying = True
                start_apart(self._tasks, self._try_again)
            await self._reachable.wait()
        finally:
            self._waiting -= 1

    async def _try_again(self) -> None:
        wait_s, longest_s = self._retry_waits_s
        try:
            while self._waiting and not self._reachable.is_set():
                with anyio.move_on_after(wait_s):
                    await self._reachable.wait()
                if self._waiting and not self._reachable.is_set():
                    await self.connect()
                wait_s = min(2 * wait_s, longest_s)
        finally:
            self._trying = False

    def replace(self) -> None:
        """End the connection, and with it whatever runs there."""
        self._replaced = True
        self._reachable.set()
        if self._connection is not None:
            self._connection.close(REPLACED)

    async def _connected(self) -> ExecConnection:
        joined = self._attempts if self._connecting.locked() else None
        async with self._connecting:
            if self._replaced:
                raise ConnectionError(REPLACED)
            if self._connection is not None and not self._connection.closed.is_set():
                return self._connection
            if joined is not None and self._failure is not None and self._failure[0] >= joined:
                # Whoever waited for an attempt has its result, and does not begin another one.
                failure = self._failure[1]
                raise type(failure)(*failure.args)
            self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> ExecConnection:
        self.status, self.error = "pending", None
        self._attempts += 1
        try:
            connection: ExecConnection = await self._tasks.start(self._hold)
        except OSError as exc:
            self._disconnected(f"exec-server connection attempt failed: {exc}")
            failure = type(exc)(self.error)
            self._failure = self._attempts, failure
            raise failure from exc
        except BaseException:
            self._disconnected("exec-server connection attempt failed: it was given up")
            raise
        if self._replaced:
            connection.close(REPLACED)
            raise ConnectionError(REPLACED)
        return connection

    async def _hold(self, *, task_status: anyio.abc.TaskStatus[ExecConnection]) -> None:
        # It outlives whoever needs it first.
        bind_request(None)
        async with open_exec_connection(self._address) as connection:
            self.status = "ready"
            self._reachable.set()
            task_status.started(connection)
            self._notify(True)
            try:
                await connection.run()
            except Exception:
                # One environment must not take the others, and the server, along.
                logger.exception("environment: the connection to its exec server broke")
            finally:
                self._disconnected(connection.loss)
                self._notify(False)

    def _disconnected(self, why: str) -> None:
        self.status, self.error = "disconnected", why
        if self._reachable.is_set() and not self._replaced:
            self._reachable = anyio.Event()
