"""A bridge from its start to its end: ledger, stream, surface and tools joined.

Source: docs/receiver.md, "Start and end".
"""

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from urllib.parse import quote

import anyio

from app_server.clients.receiver.agent.surface import CodexSurface, SurfaceContext
from app_server.clients.receiver.backoff import Backoff
from app_server.clients.receiver.bridge import Bridge, BridgeSession
from app_server.clients.receiver.ledger import Ledger
from app_server.clients.receiver.router.envelope import Mode
from app_server.clients.receiver.router.session_stream import SessionStream
from app_server.clients.receiver.router.wire import RouterAddress
from app_server.runtime.clock import SystemClock
from app_server.runtime.files.secret import wait_for_lock
from app_server.runtime.loader import load
from app_server.transport.stdio import StdioStream, open_stdio

AGENT_S = 5.0
"""For the agent to ask for the tools; then signals are injected without naming one."""

WRAP_S = 5.0
"""For the connection to the app-server to be closed."""


@dataclass(frozen=True, slots=True)
class ReceiverSettings:
    """One bridge."""

    session: str
    home: Path
    cwd: Path
    environ: Mapping[str, str] = field(repr=False)
    router: RouterAddress | None = None
    modes: Mapping[str, Mode] = field(default_factory=dict)
    """Types of signals that wake, or do not, whatever their envelope says."""

    @property
    def ledger_path(self) -> Path:
        """The ledger of this session."""
        return self.home / "receiver" / f"{quote(self.session, safe='')}.sqlite3"

    @property
    def lock_path(self) -> Path:
        """Of several bridges of this session one holds it: the one that carries."""
        return self.ledger_path.with_suffix(".lock")


async def serve(settings: ReceiverSettings, ledger: Ledger, lock: int, version: str) -> None:
    """Serve the agent on stdin and stdout until it has gone, or SIGTERM or SIGINT.

    `lock` is the open file at `lock_path`.

    Raises:
        OSError: stdin or stdout is closed.
    """
    lines = await open_stdio()
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with anyio.create_task_group() as tasks:

            async def end_when_signalled() -> None:
                async for _ in signals:
                    tasks.cancel_scope.cancel()

            tasks.start_soon(end_when_signalled)
            await _serve(settings, ledger, lock, version, lines)
            tasks.cancel_scope.cancel()


async def _serve(
    settings: ReceiverSettings, ledger: Ledger, lock: int, version: str, lines: StdioStream
) -> None:
    context = SurfaceContext(settings.environ, settings.cwd, settings.home)
    async with anyio.create_task_group() as tasks:
        surface = CodexSurface(ledger, tasks)
        bridge = Bridge(ledger, surface, Backoff(), _now, settings.modes)
        stream = None
        if settings.router is not None:
            stream = SessionStream(settings.router, bridge, Backoff())
        session = BridgeSession(settings.session, stream, surface, _now)

        async def be_in_charge() -> None:
            # Agents may start a bridge a thread: one of them carries, the others show signals.
            await wait_for_lock(lock)
            session.is_in_charge = True
            if stream is not None:
                tasks.start_soon(stream.run)
            await surface.on_bootstrap(context)
            # What waited at the router names the tool too, if there is an agent that has it.
            with anyio.move_on_after(AGENT_S):
                await surface.until_tools_listed()
            await bridge.carry()

        tasks.start_soon(be_in_charge)
        try:
            # Takes half a second: signals need not wait for it.
            tools = await load(_tools)
            await tools.serve(lines, tools.Tools(bridge, session, SystemClock().new_id), version)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(WRAP_S):
                await surface.on_wrap(context)
            tasks.cancel_scope.cancel()


def _tools() -> ModuleType:
    from app_server.clients.receiver import tools

    return tools


def _now() -> int:
    return int(time.time())
