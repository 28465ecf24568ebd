"""The running of the servers of one set: started some at a time, and ended with their last call.

Source: docs/mcp.md, "Connections".
"""

from collections.abc import Callable, Iterable, Sequence

import anyio
import anyio.abc
import anyio.lowlevel

from app_server.mcp.loading import load_client
from app_server.mcp.processes import Processes
from app_server.mcp.servers.server import McpServer
from app_server.observability.log_context import THREAD, start_apart

MAX_RETURN_S = 60.0
"""Between two starts of a server whose environment comes and goes."""

STARTS_AT_ONCE = 8
"""Servers that are started before others of the event loop have their turn."""


class Launcher:
    """Runs servers in a task group of its own, from `run` to `stop`."""

    def __init__(self, cwd: str, processes: Processes, again: Callable[[McpServer], None]) -> None:
        """`again` is called with a server that has failed and whose environment is back."""
        self.cwd = cwd
        self._processes = processes
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
            server.end()
            server.cancel_start()
        for server in servers:
            server.leave()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` has been called."""
        return self._stopping.is_set()

    def launch(self, server: McpServer) -> None:
        """Start a server, unless nothing runs now or it may not be started; never waits."""
        if self._tasks is None or not server.startable:
            return
        if server.config.known is not None:
            server.serve_on_demand(self._tasks, load_client, self.cwd)
        else:
            start_apart(self._tasks, self._run, server, thread_id=THREAD.get())

    def launch_soon(self, servers: Sequence[McpServer]) -> None:
        """Start servers, some at a time; never waits."""
        if self._tasks is not None:
            start_apart(self._tasks, self._launch_all, servers, thread_id=THREAD.get())

    async def _launch_all(self, servers: Sequence[McpServer]) -> None:
        # A hundred starts at once hold up everybody else.
        for number, server in enumerate(servers, 1):
            self.launch(server)
            if number % STARTS_AT_ONCE == 0:
                await anyio.lowlevel.checkpoint()

    async def _run(self, server: McpServer) -> None:
        """Run a server; one whose environment was out of reach starts again when that is back."""
        await server.run(load_client, self.cwd)
        if not server.waits_for_environment:
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
        server.leave()
        server.cancel_start()
        if not server.is_in_use:
            server.end()
        elif self._tasks is not None:
            self.retired.add(server)
            start_apart(self._tasks, self._end_retired, server, thread_id=THREAD.get())

    async def _end_retired(self, server: McpServer) -> None:
        await server.retire()
        self.retired.discard(server)
