"""The table of environments: this machine, and those that clients have added.

An environment that was added is connected to at once, and again whenever it is needed after the
connection was lost. Adding it anew ends the connection, and what ran over it.
Source: docs/environments.md.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import anyio.abc

from app_server.host.exec_address import ExecAddress
from app_server.host.exec_client import ExecConnection, open_exec_connection
from app_server.host.processes import LocalProcess, LocalProcesses
from app_server.host.remote_process import RemoteProcess
from app_server.host.shell import default_shell
from app_server.launch import Launch
from protocol.exec_server import ExecEnvironmentInfoResponse

logger = logging.getLogger(__name__)

LOCAL = "local"

REPLACED = "the environment was replaced"

MAX_ENVIRONMENTS = 64
MAX_ID_CHARS = 1024

Status: TypeAlias = Literal["ready", "pending", "disconnected", "unknown"]

ConnectionCallback: TypeAlias = Callable[[str, bool], None]
"""Hears the id of an environment, and whether it is connected now."""


class UnknownEnvironment(Exception):
    """No environment has this id."""

    def __init__(self, environment_id: str) -> None:
        super().__init__(f"unknown environment id `{environment_id}`")


class NotAdded(Exception):
    """An environment cannot be added; the text says why."""


class RemoteEnvironment:
    """One exec server, with at most one connection to it."""

    def __init__(self, address: ExecAddress, told: Callable[[bool], None]) -> None:
        """`told` hears when it is connected, and when it is not any more."""
        self.status: Status = "pending"
        self.error: str | None = None
        """Why it is disconnected."""
        self._address = address
        self._told = told
        self._connection: ExecConnection | None = None
        self._connecting = anyio.Lock()
        self._replaced = False

    async def connection(self, tasks: anyio.abc.TaskGroup) -> ExecConnection:
        """Return the connection; make one in `tasks` if there is none.

        Raises:
            OSError: see open_exec_connection.
        """
        async with self._connecting:
            if self._replaced:
                raise ConnectionError(REPLACED)
            if self._connection is None or self._connection.closed.is_set():
                self._connection = await self._connect(tasks)
            return self._connection

    async def _connect(self, tasks: anyio.abc.TaskGroup) -> ExecConnection:
        self.status, self.error = "pending", None
        try:
            connection: ExecConnection = await tasks.start(self._hold)
        except OSError as exc:
            self._disconnected(f"exec-server connection attempt failed: {exc}")
            raise type(exc)(self.error) from exc
        except BaseException:
            self._disconnected("exec-server connection attempt failed: it was given up")
            raise
        if self._replaced:
            connection.close(REPLACED)
            raise ConnectionError(REPLACED)
        return connection

    async def _hold(self, *, task_status: anyio.abc.TaskStatus[ExecConnection]) -> None:
        async with open_exec_connection(self._address) as connection:
            self.status = "ready"
            task_status.started(connection)
            self._told(True)
            try:
                await connection.run()
            finally:
                self._disconnected(connection.loss)
                self._told(False)

    def _disconnected(self, why: str) -> None:
        self.status, self.error = "disconnected", why

    def replace(self) -> None:
        """End the connection, and with it whatever runs there."""
        self._replaced = True
        if self._connection is not None:
            self._connection.close(REPLACED)


class Environments:
    """All environments of one server."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        """`tasks` owns the connections."""
        self._tasks = tasks
        self._local = LocalProcesses()
        self._remote: dict[str, RemoteEnvironment] = {}
        self.on_connection: ConnectionCallback = lambda environment_id, connected: None

    def add(self, environment_id: str, address: ExecAddress) -> None:
        """Make an exec server known, in place of the one that had this id; never waits.

        Raises:
            NotAdded: the id is empty, too long, or that of this machine; or there are too many.
        """
        if not environment_id:
            raise NotAdded("environment id cannot be empty")
        if environment_id == LOCAL:
            raise NotAdded("environment id `local` is reserved for EnvironmentManager")
        if len(environment_id) > MAX_ID_CHARS:
            raise NotAdded(f"environment id must have at most {MAX_ID_CHARS} characters")
        before = self._remote.get(environment_id)
        if before is None and len(self._remote) >= MAX_ENVIRONMENTS:
            raise NotAdded(f"there are {MAX_ENVIRONMENTS} environments already")
        if before is not None:
            before.replace()
        environment = RemoteEnvironment(
            address, lambda connected: self.on_connection(environment_id, connected)
        )
        self._remote[environment_id] = environment
        self._tasks.start_soon(self._try, environment_id, environment)

    async def _try(self, environment_id: str, environment: RemoteEnvironment) -> None:
        try:
            await environment.connection(self._tasks)
        except OSError as exc:
            logger.info("environment %s: %s", environment_id, exc)

    def has(self, environment_id: str) -> bool:
        """Whether this environment is known."""
        return environment_id == LOCAL or environment_id in self._remote

    def status(self, environment_id: str) -> tuple[Status, str | None]:
        """Say how an environment is, and why it is no better; does not connect."""
        if environment_id == LOCAL:
            return "ready", None
        if environment_id not in self._remote:
            return "unknown", str(UnknownEnvironment(environment_id))
        environment = self._remote[environment_id]
        return environment.status, environment.error

    async def info(self, environment_id: str) -> ExecEnvironmentInfoResponse:
        """Ask an environment for its shell and its working folder; connects if need be.

        Raises:
            UnknownEnvironment: there is none of this id.
            OSError: it is out of reach.
        """
        if environment_id == LOCAL:
            return ExecEnvironmentInfoResponse(shell=default_shell(), cwd=str(Path.cwd()))
        connection = await self._find(environment_id).connection(self._tasks)
        return await connection.info()

    @asynccontextmanager
    async def run(
        self, environment_id: str, launch: Launch
    ) -> AsyncIterator[LocalProcess | RemoteProcess]:
        """Run a process there for as long as the context lasts; leaving ends it within a bound.

        Raises:
            ConnectionError: the environment is out of reach; this may pass by itself.
            OSError: the process cannot be started.
        """
        if environment_id == LOCAL:
            async with self._local.run(launch) as local:
                yield local
            return
        try:
            environment = self._find(environment_id)
        except UnknownEnvironment as exc:
            raise OSError(str(exc)) from exc
        connection = await environment.connection(self._tasks)
        async with connection.run_process(launch) as remote:
            yield remote

    async def aclose(self) -> None:
        """Let everything go, once all processes have been stopped."""
        for environment in self._remote.values():
            environment.replace()
        await self._local.aclose()

    def _find(self, environment_id: str) -> RemoteEnvironment:
        try:
            return self._remote[environment_id]
        except KeyError:
            raise UnknownEnvironment(environment_id) from None
