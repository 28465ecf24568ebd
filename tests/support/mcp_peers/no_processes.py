"""Where no process can be started: for servers behind URLs, and for starts that must fail."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app_server.mcp.processes import ChildProcess
from app_server.runtime.launch import Launch


class NoProcesses:
    """Knows this machine, and starts nothing on it."""

    def has(self, environment_id: str) -> bool:
        """Whether it is this machine."""
        return environment_id == "local"

    def instance_of(self, environment_id: str) -> str | None:
        """Return the one instance."""
        return "here" if self.has(environment_id) else None

    async def wait_until_reachable(self, environment_id: str) -> None:
        """Return at once."""

    @asynccontextmanager
    async def run(self, environment_id: str, launch: Launch) -> AsyncIterator[ChildProcess]:
        """Fail."""
        raise FileNotFoundError(errno.ENOENT, "no processes here", launch.command)
        yield

    @asynccontextmanager
    async def open_connection(
        self, environment_id: str, host: str, port: int
    ) -> AsyncIterator[ChildProcess]:
        """Fail."""
        raise ConnectionError("no connections here")
        yield
