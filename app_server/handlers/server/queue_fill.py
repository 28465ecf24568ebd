"""What has a bound in this process, and how full it is, for server/diagnostics."""

from collections.abc import Collection

import anyio.to_thread

from app_server.handlers.services import Services
from app_server.rpc.limits import ConnectionLimits
from app_server.runtime.loader import IMPORTER, MAX_WAITING
from app_server.runtime.open_files import limit
from app_server.sessions.out_of_band import MAX_OPEN
from app_server.threads.log.state.queue import MAX_ENTRIES, MAX_QUEUE_BYTES
from protocol.server.diagnostics import ServerDiagnosticsQueue
from protocol.signals.delivery import MAX_WAITING_SIGNALS


def queue_fill(services: Services, files: int | None) -> list[ServerDiagnosticsQueue]:
    """Measure what connections, threads and the process hold; `files` are open. Never waits."""
    loads = services.connection_loads()
    bounds = loads[0].limits if loads else ConnectionLimits()
    texts = bounds.max_in_flight_chars
    outbox, streams = bounds.outbox, services.hub.streams
    fills = streams.fills()
    sessions = list(services.sessions)
    queues = [session.thread.state.queue for session in sessions]
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
