"""What the work that goes on now belongs to, for every line of the log that it writes.

The values follow the work: tasks and worker threads that it starts begin with them. What outlives
it is started apart.
"""

from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVarTuple, Unpack

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

Arguments = TypeVarTuple("Arguments")

RequestOrigin: TypeAlias = tuple[int, str | int, str]
"""The connection's number, the id of the request in it, and the method."""

REQUEST: ContextVar[RequestOrigin | None] = ContextVar("request", default=None)
THREAD: ContextVar[str | None] = ContextVar("thread", default=None)
TURN: ContextVar[str | None] = ContextVar("turn", default=None)


def bind_request(request: RequestOrigin | None) -> None:
    """Let what goes on now, whatever it was before, belong to a request alone, or to nothing."""
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
    """Start a task that outlives the work that goes on now: it has none of its context variables.

    With `thread_id` its lines are about that thread.
    """
    context = Context()
    if thread_id is not None:
        context.run(THREAD.set, thread_id)
    context.run(lambda: tasks.start_soon(work, *arguments))


MAX_ID_CHARS = 128
"""Of an id that a client chose, in a line of the log."""


def ids_in(context: Context) -> dict[str, str | int]:
    """Return the ids that a context has, by their names on the wire."""
    ids: dict[str, str | int] = {}
    request = context.get(REQUEST)
    if request is not None:
        connection, request_id, method = request
        ids["connectionId"] = connection
        ids["requestId"] = _brief(request_id)
        ids["method"] = _brief(method)
    for name, variable in (("threadId", THREAD), ("turnId", TURN)):
        value = context.get(variable)
        if value is not None:
            ids[name] = value
    return ids


def _brief(value: str | int) -> str | int:
    return value[:MAX_ID_CHARS] if isinstance(value, str) else value
