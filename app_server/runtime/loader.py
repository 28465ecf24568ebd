"""Late imports, and the values made of them: one thread imports, and a failure is not final.

Two threads that import modules which import each other can find each other waiting, and Python ends
that with a `_DeadlockError` in one of them. So nothing is imported on any other thread once the
listeners are open: whoever needs a module asks the one importer of the process, which takes
requests in their order. What is made once of such modules is a `Lazy`.
Knows: threads and the event loop. Does not know: what is loaded.
Source: docs/architecture.md, "What is loaded late"; https://docs.python.org/3/library/importlib.html.
"""

import asyncio
import atexit
import importlib
import logging
import queue
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from functools import partial
from types import ModuleType
from typing import Any, Generic, TypeVar, TypeVarTuple

logger = logging.getLogger(__name__)

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

MAX_WAITING = 1024
"""Requests to the importer that wait for their turn; what comes then is refused."""

IMPORT_S = 60.0
"""For an import that a worker thread waits for."""

END_S = 10.0
"""At the end of the process, for the import that is going on."""

RETRY_FIRST_S = 1.0
RETRY_MOST_S = 60.0
"""Most seconds between two background attempts; RETRY_FIRST_S is doubled up to it."""


class LoadFailed(Exception):
    """Something could not be loaded now. The next use tries it again."""


class Importer:
    """The thread that imports. It begins with the first request and lasts as long as the process.

    A failure of one request is that request's alone, whatever it is.
    """

    def __init__(self, max_waiting: int = MAX_WAITING) -> None:
        """Refuse requests while `max_waiting` of them wait."""
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(max_waiting)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.has_ended = False
        """Whether nothing is imported here any more, as the process ends."""

    def request(self, work: Callable[[], T]) -> Future[T]:
        """Have `work` done on the importer's thread; never waits.

        The future gives its value, or LoadFailed with what it raised as the cause. A future that is
        cancelled before its turn is passed over.

        Raises:
            LoadFailed: too much waits already.
        """
        self._start()
        future: Future[T] = Future()
        try:
            self._waiting.put_nowait(partial(_fulfil, future, work))
        except queue.Full:
            raise LoadFailed("too much is being loaded at once; try again") from None
        return future

    @property
    def waiting(self) -> int:
        """Number of queued requests."""
        return self._waiting.qsize()

    def is_here(self) -> bool:
        """Whether the caller runs on the importer's thread."""
        return threading.current_thread() is self._thread

    def end(self) -> None:
        """Wait for the running import, for at most END_S, and start none after it."""
        self.has_ended = True
        if self._thread is None:
            return
        while True:
            try:
                self._waiting.put_nowait(None)
                break
            except queue.Full:
                self._waiting.get_nowait()
        self._thread.join(END_S)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="importer", daemon=True)
                self._thread.start()
                # Code of an extension module must not meet the interpreter's end.
                atexit.register(self.end)

    def _run(self) -> None:
        # Threads that resolve names of hosts would import it. Where no descriptor is left that is
        # an OSError, and all that is ever loaded waits for this thread.
        with suppress(ImportError, OSError):
            importlib.import_module("encodings.idna")
        while (work := self._waiting.get()) is not None:
            work()


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = work()
    # A module may raise anything, SystemExit too; the thread has to outlive it.
    except BaseException as exc:  # noqa: BLE001
        failed = LoadFailed(f"{type(exc).__name__}: {exc}; the next use tries again")
        failed.__cause__ = exc
        future.set_exception(failed)
    else:
        future.set_result(value)


IMPORTER = Importer()
"""The one of this process."""


async def load(work: Callable[[*Arguments], T], *args: *Arguments) -> T:
    """Call `work`, which imports, on the importer's thread, and return its result.

    Who is cancelled while it runs leaves it running.

    Raises:
        LoadFailed: it raised something, which is the cause.
    """
    return await asyncio.wrap_future(IMPORTER.request(partial(work, *args)))


async def load_module(name: str) -> ModuleType:
    """Import a module by its name.

    Raises:
        LoadFailed: it cannot be imported now.
    """
    return await load(importlib.import_module, name)


def load_from_worker(work: Callable[[], T], *, import_s: float = IMPORT_S) -> T:
    """Do as `load` does for a worker thread, which waits. Never called on an event loop's thread.

    Raises:
        LoadFailed: it raised something, or did not end within `import_s` seconds.
    """
    if IMPORTER.is_here() or IMPORTER.has_ended:
        return work()
    future = IMPORTER.request(work)
    try:
        return future.result(import_s)
    except TimeoutError:
        future.cancel()
        raise LoadFailed(f"not imported within {import_s:g} s; the next use tries again") from None


class Lazy(Generic[T]):
    """A value that is made when it is first asked for, once, by a task of its own.

    All who ask while it is made wait for the same attempt; who is cancelled takes nothing from the
    others. An attempt that fails is logged and raised to all who waited for it, and forgotten.
    """

    def __init__(self, what: str, make: Callable[[], Awaitable[T]]) -> None:
        """Name the value for the log as `what`; it is made with the first use."""
        self._what = what
        self._make = make
        self._value: T | None = None
        self._attempt: asyncio.Task[T] | None = None
        self._made = asyncio.Event()
        self._is_closed = False

    @property
    def value(self) -> T | None:
        """The value, None unless it has been made."""
        return self._value

    async def get(self) -> T:
        """Return the value; make it first if need be.

        Raises:
            LoadFailed: what it is made of cannot be imported, or `close` was called.
            Exception: whatever else `make` raises.
        """
        if self._made.is_set():
            return self._value  # type: ignore[return-value]  # T may be an optional type itself
        if self._is_closed:
            raise LoadFailed(f"{self._what}: this is closed")
        if self._attempt is None:
            self._attempt = asyncio.create_task(self._try(), context=Context())
            self._attempt.add_done_callback(self._tried)
        return await asyncio.shield(self._attempt)

    async def get_at_last(self) -> T:
        """Retry until the value is there, for work in the background.

        Waits RETRY_FIRST_S after the first failure, then twice as long each time up to
        RETRY_MOST_S. An attempt of somebody else ends a wait.

        Raises:
            LoadFailed: `close` was called.
        """
        wait_s = RETRY_FIRST_S
        while True:
            try:
                return await self.get()
            except Exception:
                if self._is_closed:
                    raise
            try:
                async with asyncio.timeout(wait_s):
                    await self._made.wait()
            except TimeoutError:
                wait_s = min(2 * wait_s, RETRY_MOST_S)

    async def close(self) -> T | None:
        """Close it: no new attempt; waits for the running one.

        Returns what has been made, for the caller to close; None if nothing was.
        """
        self._is_closed = True
        if self._attempt is not None:
            await asyncio.wait([self._attempt])
        return self._value

    async def _try(self) -> T:
        self._value = await self._make()
        self._made.set()
        return self._value

    def _tried(self, attempt: asyncio.Task[Any]) -> None:
        self._attempt = None
        # Reading the failure says that somebody has: all who asked may have left.
        if not attempt.cancelled() and (error := attempt.exception()) is not None:
            logger.warning("%s cannot be loaded: %s", self._what, error, exc_info=error)
