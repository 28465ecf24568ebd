"""The table of environments: this machine, and the ones that clients have added.

Adding an environment anew ends the connection to the old one, and what ran over it.
Source: docs/environments.md.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

import anyio
import anyio.abc

from app_server.host.commands.output import OnOutput
from app_server.host.commands.shell import default_shell
from app_server.host.exec.client.process import RemoteCommand, RemoteProcess
from app_server.host.exec.client.starts import (
    CommandOrder,
    command_start,
    connection_open,
    patch_start,
    process_start,
)
from app_server.host.processes import LocalProcess, LocalProcesses
from app_server.observability.log_context import start_apart
from app_server.runtime.launch import Launch
from protocol.exec.files import FileProfile
from protocol.exec.processes import WorkPolicy
from protocol.host.environments import EnvironmentShellInfo

if TYPE_CHECKING:
    # It brings the WebSocket client, which is imported with the first of them.
    from app_server.host.exec.client.address import ExecAddress
    from app_server.host.exec.client.environment import RemoteEnvironment, Status

LOCAL = "local"

MAX_ENVIRONMENTS = 64
"""Besides this machine."""
MAX_ID_CHARS = 1024

ConnectionCallback: TypeAlias = Callable[[str, bool], None]
"""Takes the id of an environment, and whether it is connected now."""


class UnknownEnvironment(Exception):
    """No environment has this id."""

    def __init__(self, environment_id: str) -> None:
        super().__init__(f"unknown environment id `{environment_id}`")


class NotAdded(Exception):
    """An environment cannot be added; the text says why."""


class Environments:
    """All environments of one server."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        """`tasks` owns the connections."""
        self._tasks = tasks
        self._local = LocalProcesses()
        self.max_count = MAX_ENVIRONMENTS
        """Environments besides this machine."""
        self.retry_waits_s = (1.0, 30.0)
        """Between tries to reach those that are added from now on, the first and the longest."""
        self._remote: dict[str, RemoteEnvironment] = {}
        self._instances = {LOCAL: uuid4().hex}
        self.on_connection: ConnectionCallback = lambda environment_id, connected: None

    def require_addable(self, environment_id: str) -> None:
        """Check that an environment of this id can be added.

        Raises:
            NotAdded: the id is empty, too long, or that of this machine; or there are too many.
        """
        if not environment_id:
            raise NotAdded("environment id cannot be empty")
        if environment_id == LOCAL:
            raise NotAdded("environment id `local` is reserved for EnvironmentManager")
        if len(environment_id) > MAX_ID_CHARS:
            raise NotAdded(f"environment id must have at most {MAX_ID_CHARS} characters")
        if environment_id not in self._remote and len(self._remote) >= self.max_count:
            raise NotAdded(f"there are {self.max_count} environments already")

    def add(
        self,
        environment_id: str,
        kind: "type[RemoteEnvironment]",
        address: "ExecAddress",
        *,
        connects: bool = True,
    ) -> None:
        """Make an environment known, in place of the one that had this id; never waits.

        `kind` is RemoteEnvironment, which is imported with the first of them. One that does not
        connect now does so when it is used.

        Raises:
            NotAdded: see `require_addable`.
        """
        self.require_addable(environment_id)
        if (before := self._remote.get(environment_id)) is not None:
            before.replace()
        place = kind(
            address,
            self._tasks,
            lambda connected: self.on_connection(environment_id, connected),
            self.retry_waits_s,
        )
        self._remote[environment_id] = place
        self._instances[environment_id] = uuid4().hex
        if connects:
            start_apart(self._tasks, place.connect)

    def has(self, environment_id: str) -> bool:
        """Whether this environment is known."""
        return environment_id == LOCAL or environment_id in self._remote

    def instance_of(self, environment_id: str) -> str | None:
        """Return an id that is another one after `add`; None for an unknown environment."""
        return self._instances.get(environment_id)

    def instance(self, environment_id: str, instance_id: str) -> "RemoteEnvironment | None":
        """Return an environment that is not this machine; None if it is another instance now.

        It stays the same one: when it is replaced, it is out of reach.
        """
        if self._instances.get(environment_id) != instance_id:
            return None
        return self._remote.get(environment_id)

    def status(self, environment_id: str) -> "tuple[Status, str | None]":
        """Say how an environment is, and why it is no better; does not connect."""
        if environment_id == LOCAL:
            return "ready", None
        if environment_id not in self._remote:
            return "unknown", str(UnknownEnvironment(environment_id))
        place = self._remote[environment_id]
        return place.status, place.error

    async def info(self, environment_id: str) -> tuple[EnvironmentShellInfo, str]:
        """Ask an environment for its shell and its working folder; connects if need be.

        Raises:
            UnknownEnvironment: there is none of this id.
            OSError: it is out of reach.
        """
        if environment_id == LOCAL:
            return default_shell(), str(Path.cwd())
        return await self._find(environment_id).info()

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
        else:
            async with self._find(environment_id).start(process_start(launch)) as remote:
                yield remote

    def open_connection(
        self, environment_id: str, host: str, port: int
    ) -> AbstractAsyncContextManager[RemoteProcess]:
        """Connect to a server of an environment that is not this machine, while the context lasts.

        Raises:
            UnknownEnvironment: there is none of this id.
            ConnectionError: on entering; it is out of reach, if there is no number of an error.
            OSError: on entering; nobody listens there.
        """
        return self._find(environment_id).start(connection_open(host, port))

    def open_file(
        self,
        environment_id: str,
        path: str,
        policy: WorkPolicy,
        profile: FileProfile | None = None,
    ) -> AbstractAsyncContextManager[RemoteProcess]:
        """Read a file of an environment that is not this machine, while the context lasts.

        `path` is absolute. Its bytes are `stdout`; if all of them came, `returncode` is 0.

        Raises:
            UnknownEnvironment: there is none of this id.
            ConnectionError: on entering; it is out of reach.
            OSError: on entering; the file is not there, is something else, or may not be read.
        """
        return self._find(environment_id).open_file(path, policy, profile)

    @asynccontextmanager
    async def start_patch(
        self, environment_id: str, cwd: str, policy: WorkPolicy
    ) -> AsyncIterator[RemoteProcess]:
        """Begin a patch in an environment that is not this machine; see remote_patch.py.

        Raises as `open_file` does.
        """
        async with self._find(environment_id).start(patch_start(cwd, policy)) as patch:
            yield patch

    @property
    def elsewhere(self) -> list[str]:
        """The ids of all environments but this machine."""
        return list(self._remote)

    async def start_command(
        self, environment_id: str, order: CommandOrder, on_output: OnOutput
    ) -> RemoteCommand:
        """Start a command in an environment that is not this machine; connects if need be.

        Raises:
            UnknownEnvironment: there is none of this id.
            OSError: it is out of reach, or the command cannot be started or confined there.
        """
        running = self._find(environment_id).start(command_start(order))
        return await RemoteCommand.start(running, on_output, self._tasks, takes_input=order.tty)

    async def wait_until_reachable(self, environment_id: str) -> None:
        """Wait until there is a connection to an environment, or to one that took its place.

        Tries to connect, ever more rarely; cancelling ends that. The environment is a known one.
        """
        if environment_id == LOCAL:
            return
        place: RemoteEnvironment | None = None
        while place is not (found := self._find(environment_id)):
            place = found
            await place.wait_until_reachable()

    async def aclose(self) -> None:
        """Close all connections, once all processes have been stopped."""
        for place in self._remote.values():
            place.replace()
        await self._local.aclose()

    def _find(self, environment_id: str) -> "RemoteEnvironment":
        try:
            return self._remote[environment_id]
        except KeyError:
            raise UnknownEnvironment(environment_id) from None
