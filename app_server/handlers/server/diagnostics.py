"""server/diagnostics: figures of the process, without a word of what is in it.

Source: docs/operations.md, "Diagnostics".
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio.to_thread

from app_server.handlers.server.queue_fill import queue_fill
from app_server.handlers.services import Services
from app_server.observability.analytics.counts import UseCounts
from app_server.observability.telemetry.metrics import ServerMetrics
from app_server.rpc.connection import ConnectionLoad
from app_server.rpc.context import RequestContext, Routes
from app_server.runtime.open_files import open_files
from app_server.sessions.session import ThreadSession
from protocol.server.diagnostics import (
    ServerDiagnosticsBucket,
    ServerDiagnosticsConnection,
    ServerDiagnosticsFailure,
    ServerDiagnosticsGauge,
    ServerDiagnosticsMcpServers,
    ServerDiagnosticsMethod,
    ServerDiagnosticsParams,
    ServerDiagnosticsProcess,
    ServerDiagnosticsResponse,
    ServerDiagnosticsServer,
    ServerDiagnosticsSignals,
    ServerDiagnosticsThreads,
)
from protocol.server.lifecycle import PROTOCOL_VERSION
from protocol.threads.thread import ActiveThreadStatus

logger = logging.getLogger(__name__)

STATUS = Path("/proc/self/statm")

MAX_CONNECTIONS = 256
MAX_NAMES = 64
"""Of MCP servers with one status."""
MAX_LABEL_CHARS = 128
"""Of what clients and the configuration call something."""


class DiagnosticsHandlers:
    """How the server is doing."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._hub = services.hub
        self._sessions = services.sessions
        self._memory = services.memory
        self._loads = services.connection_loads
        self.routes: Routes = {"server/diagnostics": self.read}

    async def read(
        self, context: RequestContext, params: ServerDiagnosticsParams
    ) -> ServerDiagnosticsResponse:
        """Measure now."""
        services = self._services
        resident = await anyio.to_thread.run_sync(_resident_bytes)
        files = await anyio.to_thread.run_sync(open_files)
        gauges = await self._gauges()
        signals = await self._signals()
        sessions = list(self._sessions)
        return ServerDiagnosticsResponse(
            process=ServerDiagnosticsProcess(id=os.getpid(), resident_memory_bytes=resident),
            gauges=_gauges(gauges),
            server=ServerDiagnosticsServer(
                version=services.version,
                protocol_version=PROTOCOL_VERSION,
                started_at_ms=services.metrics.started_at_ms,
                uptime_ms=services.metrics.uptime_ms,
            ),
            connections=_connections(self._loads()),
            threads=_threads(sessions, services.metrics),
            queues=queue_fill(services, files),
            mcp_servers=_mcp_servers(sessions),
            methods=_methods(services.metrics),
            signals=signals,
            failures=[
                ServerDiagnosticsFailure.model_validate(failure, from_attributes=True)
                for failure in services.metrics.failures
            ],
            analytics=_analytics(services.use_counts),
        )

    async def _gauges(self) -> dict[str, int]:
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
            "app.questions.open": self._hub.server_requests.count,
            "app.subscriptions": self._hub.subscribers.count,
            "core.turns.running": sum(s.slot.active_turn_id is not None for s in sessions),
            "core.inputs.queued": sum(len(s.thread.state.queued) for s in sessions),
            "memory.budget_bytes": memory.budget,
            "memory.events_bytes": memory.streams,
            "memory.events": self._hub.streams.total_events,
            "memory.histories_bytes": memory.histories,
            "runtime.tasks": len(asyncio.all_tasks()),
        }

    async def _signals(self) -> list[ServerDiagnosticsSignals]:
        try:
            stages = await self._services.signals.stages()
        except OSError as exc:
            # The other figures are wanted most when the disk fails.
            logger.warning("signals cannot be counted: %s", exc)
            stages = {}
        return [
            ServerDiagnosticsSignals(stage=stage, count=count)
            for stage, count in sorted(stages.items())
        ]


def _analytics(counts: UseCounts | None) -> list[ServerDiagnosticsGauge] | None:
    if counts is None:
        return None
    return _gauges(dict(sorted(counts.read().items())))


def _gauges(values: Mapping[str, int]) -> list[ServerDiagnosticsGauge]:
    return [ServerDiagnosticsGauge(name=name, value=value) for name, value in values.items()]


def _connections(loads: Sequence[ConnectionLoad]) -> list[ServerDiagnosticsConnection]:
    oldest = sorted(loads, key=lambda load: load.id)[:MAX_CONNECTIONS]
    return [
        ServerDiagnosticsConnection(
            id=load.id,
            client_name=None if load.client is None else load.client.name[:MAX_LABEL_CHARS],
            client_version=None if load.client is None else load.client.version[:MAX_LABEL_CHARS],
            requests_in_flight=load.in_flight,
            waiting_messages=load.messages,
            waiting_chars=load.chars,
        )
        for load in oldest
    ]


def _threads(sessions: Sequence[ThreadSession], metrics: ServerMetrics) -> ServerDiagnosticsThreads:
    active = [
        status for session in sessions if isinstance(status := session.status, ActiveThreadStatus)
    ]
    return ServerDiagnosticsThreads(
        loaded=len(sessions),
        running=len(active),
        waiting_for_user=sum(bool(status.active_flags) for status in active),
        turns_completed=metrics.turns["completed"],
        turns_failed=metrics.turns["failed"],
        turns_interrupted=metrics.turns["interrupted"],
    )


def _mcp_servers(sessions: Sequence[ThreadSession]) -> list[ServerDiagnosticsMcpServers]:
    found = [one for session in sessions for one in session.mcp.statuses()]
    counts = Counter(status for _, status in found)
    return [
        ServerDiagnosticsMcpServers(
            status=status,
            count=count,
            names=sorted({name[:MAX_LABEL_CHARS] for name, each in found if each == status})[
                :MAX_NAMES
            ],
        )
        for status, count in sorted(counts.items())
    ]


def _methods(metrics: ServerMetrics) -> list[ServerDiagnosticsMethod]:
    return [
        ServerDiagnosticsMethod(
            method=method,
            count=each.latency.count,
            failed=each.failed,
            p50_us=each.latency.quantile_us(0.5),
            p99_us=each.latency.quantile_us(0.99),
            max_us=round(each.latency.max_us),
            buckets=[
                ServerDiagnosticsBucket(up_to_us=up_to_us, count=count)
                for up_to_us, count in each.latency.buckets()
            ],
        )
        for method, each in sorted(metrics.methods.items())
    ]


def _resident_bytes() -> int | None:
    try:
        return int(STATUS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
