"""Context variables with the node, request, thread and turn that a line of the log is about.

Tasks and worker threads inherit them. What outlives a request is started apart.
Source: docs/operations.md, "Log".
"""

from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from logging import LogRecord
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVarTuple, Unpack

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

Arguments = TypeVarTuple("Arguments")

RequestOrigin: TypeAlias = tuple[int, str | int, str]
"""The connection's number, the id of the request in it, and the method."""

REQUEST: ContextVar[RequestOrigin | None] = ContextVar("request", default=None)
THREAD: ContextVar[str | None] = ContextVar("thread", default=None)
TURN: ContextVar[str | None] = ContextVar("turn", default=None)
NODE: ContextVar[Callable[[], str | None]] = ContextVar("node")
"""Returns the id that this server has in its group now; unset where there is none."""


def bind_request(request: RequestOrigin | None) -> None:
    """Set the request of the current context, or none; clear its thread and turn."""
    REQUEST.set(request)
    if THREAD.get() is not None:
        THREAD.set(None)
    if TURN.get() is not None:
        TURN.set(None)


def start_apart(
    tasks: "TaskGroup",
    work: Callable[[Unpack[Arguments]], Coroutine[Any, Any, object]],
    *arguments: *Arguments,
    thread_id: str | None = None,
) -> None:
    """Start a task in an empty context, for work that outlives the current request.

    With `thread_id` its lines are about that thread.
    """
    context = Context()
    if (node := NODE.get(None)) is not None:
        context.run(NODE.set, node)
    if thread_id is not None:
        context.run(THREAD.set, thread_id)
    context.run(lambda: tasks.start_soon(work, *arguments))


MAX_ID_CHARS = 128
"""Of an id that a client chose, in a line of the log."""


def current_ids() -> dict[str, str | int]:
    """Return the ids of the current context, by their names on the wire."""
    ids: dict[str, str | int] = {}
    node = NODE.get(None)
    if node is not None and (node_id := node()) is not None:
        ids["nodeId"] = node_id
    request = REQUEST.get()
    if request is not None:
        connection, request_id, method = request
        ids["connectionId"] = connection
        ids["requestId"] = _brief(request_id)
        ids["method"] = _brief(method)
    for name, variable in (("threadId", THREAD), ("turnId", TURN)):
        value = variable.get()
        if value is not None:
            ids[name] = value
    return ids


def add_ids(record: LogRecord) -> bool:
    """Add the ids of the current context to a record: a filter of `logging` that passes all."""
    record.__dict__["ids"] = current_ids()
    return True


def ids_of(record: LogRecord) -> dict[str, str | int]:
    """Return the ids of a record, which are empty for one that has none."""
    ids: dict[str, str | int] = record.__dict__.get("ids", {})
    return ids


def _brief(value: str | int) -> str | int:
    return value[:MAX_ID_CHARS] if isinstance(value, str) else value
