"""What has a bound in this process, and how full it is, for server/diagnostics."""

from collections.abc import Collection, Iterator

import anyio.to_thread

from app_server.handlers.services import Services
from app_server.rpc.limits import ConnectionLimits
from app_server.runtime.loader import IMPORTER, MAX_WAITING
from app_server.runtime.open_files import limit
from app_server.sessions.out_of_band import MAX_OPEN
from app_server.threads.log.state.queue import MAX_ENTRIES, MAX_QUEUE_BYTES
from protocol.diagnostics import ServerDiagnosticsQueue
from protocol.signals import MAX_WAITING_SIGNALS


def queue_fill(services: Services, files: int | None) -> Iterator[ServerDiagnosticsQueue]:
    """Measure what connections, threads and the process hold; `files` are open. Never waits."""
    loads = services.connection_loads()
    bounds = loads[0].limits if loads else ConnectionLimits()
    outbox = bounds.outbox
    yield _queue(
        "connection.requests", "requests", bounds.max_in_flight, [load.in_flight for load in loads]
    )
    yield _queue(
        "connection.requestTexts",
        "characters",
        bounds.max_in_flight_chars,
        [load.in_flight_chars for load in loads],
    )
    yield _queue(
        "connection.outbox", "messages", outbox.max_messages, [load.messages for load in loads]
    )
    yield _queue(
        "connection.outboxTexts", "characters", outbox.max_chars, [load.chars for load in loads]
    )
    streams = services.hub.streams
    fills = streams.fills()
    yield _queue(
        "thread.events", "events", streams.limits.max_events, [events for events, _ in fills]
    )
    yield _queue(
        "thread.eventBytes", "bytes", streams.limits.max_bytes, [size for _, size in fills]
    )
    sessions = list(services.sessions)
    queues = [session.thread.state.queue for session in sessions]
    yield _queue("thread.queue", "entries", MAX_ENTRIES, [len(queue.entries) for queue in queues])
    yield _queue(
        "thread.queueBytes", "bytes", MAX_QUEUE_BYTES, [sum(q.sizes.values()) for q in queues]
    )
    yield _queue(
        "thread.outOfBandElicitations",
        "questions",
        MAX_OPEN,
        [session.out_of_band.count for session in sessions],
    )
    yield _queue("thread.signals", "signals", MAX_WAITING_SIGNALS, services.signals.unseen())
    yield _queue("process.imports", "requests", MAX_WAITING, [IMPORTER.waiting])
    workers = anyio.to_thread.current_default_thread_limiter()
    yield _queue(
        "process.workerThreads", "threads", int(workers.total_tokens), [workers.borrowed_tokens]
    )
    yield _queue("process.waitForWorker", "tasks", None, [workers.statistics().tasks_waiting])
    if files is not None:
        yield _queue("process.files", "files", limit(), [files])


def _queue(
    name: str, unit: str, bound: int | None, fills: Collection[int]
) -> ServerDiagnosticsQueue:
    return ServerDiagnosticsQueue(
        name=name,
        unit=unit,
        bound=bound,
        fullest=max(fills, default=0),
        total=sum(fills),
        owners=len(fills),
    )
