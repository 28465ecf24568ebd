"""server/diagnostics: figures of the process, without a word of what is in it.

Source: docs/operations.md, "Diagnostics".
"""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import anyio.to_thread

from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.observability.telemetry.metrics import ServerMetrics
from app_server.observability.use_counts import UseCounts
from app_server.rpc.connection import ConnectionLoad
from app_server.rpc.message_stream import ConnectionLimits
from app_server.runtime.loader import IMPORTER, MAX_WAITING
from app_server.runtime.open_files import limit, open_files
from app_server.sessions.out_of_band import MAX_OPEN
from app_server.sessions.session import ThreadSession
from app_server.threads.log.state import MAX_ENTRIES, MAX_QUEUE_BYTES
from protocol.server.diagnostics import (
    ServerDiagnosticsBucket,
    ServerDiagnosticsConnection,
    ServerDiagnosticsFailure,
    ServerDiagnosticsGauge,
    ServerDiagnosticsMcpServers,
    ServerDiagnosticsMethod,
    ServerDiagnosticsParams,
    ServerDiagnosticsProcess,
    ServerDiagnosticsQueue,
    ServerDiagnosticsResponse,
    ServerDiagnosticsServer,
    ServerDiagnosticsSignals,
    ServerDiagnosticsThreads,
)
from protocol.server.lifecycle import PROTOCOL_VERSION
from protocol.signals.delivery import MAX_WAITING_SIGNALS
from protocol.threads.thread import ActiveThreadStatus

logger = logging.getLogger(__name__)

STATUS = Path("/proc/self/statm")

MAX_CONNECTIONS = 256

MAX_NAMES = 64
"""Of MCP servers with one status."""

MAX_LABEL_CHARS = 128
"""Of what clients and the configuration call something."""


@serves("server/diagnostics")
async def read_diagnostics(
    context: RequestContext, params: ServerDiagnosticsParams
) -> ServerDiagnosticsResponse:
    """Return the gauges, queues, connections and threads as of now."""
    services = context.services
    resident = await anyio.to_thread.run_sync(_resident_bytes)
    files = await anyio.to_thread.run_sync(open_files)
    values = await _measure(services)
    signals = await _signals(services)
    sessions = list(services.sessions)
    return ServerDiagnosticsResponse(
        process=ServerDiagnosticsProcess(id=os.getpid(), resident_memory_bytes=resident),
        gauges=_gauges(values),
        server=ServerDiagnosticsServer(
            version=services.version,
            protocol_version=PROTOCOL_VERSION,
            started_at_ms=services.metrics.started_at_ms,
            uptime_ms=services.metrics.uptime_ms,
        ),
        connections=_connections(services.conversations.loads()),
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


async def _measure(services: Services) -> dict[str, int]:
    memory = await services.memory.measure()
    loads = list(services.conversations.loads())
    sessions = list(services.sessions)
    return {
        "app.requests.in_flight": sum(load.in_flight for load in loads),
        "core.threads.live": len(sessions),
        "app.connections": len(loads),
        "app.connections.of_nodes": len(services.hub.connections.of_nodes),
        "app.outbox.messages": sum(load.messages for load in loads),
        "app.outbox.chars": sum(load.chars for load in loads),
        "app.outbox.longest": max((load.messages for load in loads), default=0),
        "app.questions.open": services.hub.server_requests.count,
        "app.subscriptions": services.hub.subscribers.count,
        "core.turns.running": sum(s.slot.active_turn_id is not None for s in sessions),
        "core.inputs.queued": sum(len(s.log.state.pending_input) for s in sessions),
        "memory.budget_bytes": memory.budget,
        "memory.events_bytes": memory.streams,
        "memory.events": services.hub.streams.total_events,
        "memory.histories_bytes": memory.histories,
        "runtime.tasks": len(asyncio.all_tasks()),
        **services.store.figures,
        **await _notifications(services),
    }


async def _notifications(services: Services) -> Mapping[str, int]:
    try:
        counts = await services.notifications.counts()
    except OSError as exc:
        logger.warning("notifications cannot be counted: %s", exc)
        return {"notifications.unwritten": services.notifications.unwritten}
    return {f"notifications.{name}": count for name, count in counts.items()}


async def _signals(services: Services) -> list[ServerDiagnosticsSignals]:
    try:
        stages = await services.signals.stages()
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
    found = [one for session in sessions for one in session.servers.statuses()]
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


def queue_fill(services: Services, files: int | None) -> list[ServerDiagnosticsQueue]:
    """Measure what connections, threads and the process hold; `files` are open. Never waits."""
    loads = services.conversations.loads()
    bounds = loads[0].limits if loads else ConnectionLimits()
    texts = bounds.max_in_flight_chars
    outbox, streams = bounds.outbox, services.hub.streams
    fills = streams.fills()
    sessions = list(services.sessions)
    queues = [session.log.state.queue for session in sessions]
    asked = [session.out_of_band.count for session in sessions]
    workers = anyio.to_thread.current_default_thread_limiter()
    threads, waiting = int(workers.total_tokens), workers.statistics().tasks_waiting
    rows: list[tuple[str, str, int | None, Collection[int]]] = [
        ("connection.requests", "requests", bounds.max_in_flight, [one.in_flight for one in loads]),
        ("connection.requestTexts", "characters", texts, [one.in_flight_chars for one in loads]),
        ("connection.outbox", "messages", outbox.max_messages, [one.messages for one in loads]),
        ("connection.outboxTexts", "characters", outbox.max_chars, [one.chars for one in loads]),
        ("thread.events", "events", streams.limits.max_events, [events for events, _ in fills]),
        ("thread.eventBytes", "bytes", streams.limits.max_bytes, [size for _, size in fills]),
        ("thread.queue", "entries", MAX_ENTRIES, [len(queue.entries) for queue in queues]),
        ("thread.queueBytes", "bytes", MAX_QUEUE_BYTES, [sum(q.sizes.values()) for q in queues]),
        ("thread.outOfBandElicitations", "questions", MAX_OPEN, asked),
        ("thread.signals", "signals", MAX_WAITING_SIGNALS, services.signals.unseen()),
        ("process.imports", "requests", MAX_WAITING, [IMPORTER.waiting]),
        ("process.workerThreads", "threads", threads, [workers.borrowed_tokens]),
        ("process.waitForWorker", "tasks", None, [waiting]),
    ]
    if files is not None:
        rows.append(("process.files", "files", limit(), [files]))
    return [
        ServerDiagnosticsQueue(
            name=name,
            unit=unit,
            bound=bound,
            fullest=max(fills, default=0),
            total=sum(fills),
            owners=len(fills),
        )
        for name, unit, bound, fills in rows
    ]
