"""server/diagnostics: figures of the process, without a word of what is in it."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread

from app_server.handlers.services import Services
from app_server.rpc.context import Handler, RequestContext
from protocol.lifecycle import (
    ServerDiagnosticsGauge,
    ServerDiagnosticsParams,
    ServerDiagnosticsProcess,
    ServerDiagnosticsResponse,
)

STATUS = Path("/proc/self/statm")


class DiagnosticsHandlers:
    """How the server is doing."""

    def __init__(self, services: Services) -> None:
        self._hub = services.hub
        self._sessions = services.sessions
        self._memory = services.memory
        self._loads = services.connection_loads

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {"server/diagnostics": self.read}

    async def read(
        self, context: RequestContext, params: ServerDiagnosticsParams
    ) -> ServerDiagnosticsResponse:
        """Measure now."""
        resident = await anyio.to_thread.run_sync(_resident_bytes)
        figures = await self._figures()
        return ServerDiagnosticsResponse(
            process=ServerDiagnosticsProcess(id=os.getpid(), resident_memory_bytes=resident),
            gauges=[
                ServerDiagnosticsGauge(name=name, value=value) for name, value in figures.items()
            ],
        )

    async def _figures(self) -> dict[str, int]:
        memory = await self._memory.measure()
        loads = list(self._loads())
        sessions = list(self._sessions)
        return {
            "app.requests.in_flight": sum(load.in_flight for load in loads),
            "core.threads.live": len(sessions),
            "app.connections": len(loads),
            "app.outbox.messages": sum(load.messages for load in loads),
            "app.outbox.chars": sum(load.chars for load in loads),
            "app.outbox.longest": max((load.messages for load in loads), default=0),
            "app.questions.open": self._hub.open_questions,
            "app.subscriptions": self._hub.subscriptions,
            "core.turns.running": sum(s.active_turn_id is not None for s in sessions),
            "core.inputs.queued": sum(len(s.thread.state.queued) for s in sessions),
            "memory.budget_bytes": memory.budget,
            "memory.events_bytes": memory.streams,
            "memory.events": self._hub.streams.total_events,
            "memory.histories_bytes": memory.histories,
            "runtime.tasks": len(asyncio.all_tasks()),
        }


def _resident_bytes() -> int | None:
    try:
        return int(STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
