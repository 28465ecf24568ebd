"""The door to stored threads: what the server asks of a store, whatever keeps it.

No path, lock, database or count of bytes is in what it takes and returns; places in a log are
opaque. `app_server.threads.opening` makes the store that the settings name.
Source: docs/architecture.md, "Threads on disk".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar, TypeVarTuple

from app_server.threads.history.pages import HistoryReader
from app_server.threads.history.search import SearchPage, SearchQuery
from app_server.threads.log.live import LiveThread
from app_server.threads.log.reading import ForkPoint
from app_server.threads.log.state import ThreadState
from app_server.threads.organization import FilingState, Owner
from app_server.threads.rows import ThreadPage, ThreadQuery, ThreadRow
from app_server.threads.usage import UsageQuery, UsageSums
from protocol.log.filing import FilingRecord
from protocol.log.rollout import Record, ThreadCreated, UsageRecorded

Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")


class ThreadLists(Protocol):
    """Lists of all threads, with every change made before the call."""

    async def find(self, thread_id: str) -> ThreadRow:
        """Return a thread's row without opening its log.

        Raises:
            ThreadNotFound
        """

    async def page(self, query: ThreadQuery) -> ThreadPage:
        """Return one page of rows.

        Raises:
            InvalidCursor: the cursor was not given out by a page of this order.
        """

    async def usage(self, query: UsageQuery) -> UsageSums:
        """Sum up the usage of one thread, or of all, without opening a log.

        Raises:
            OSError: the store cannot be read.
        """


class ThreadHistory(Protocol):
    """History of all threads, loaded or not."""

    async def ask(
        self,
        thread_id: str,
        question: Callable[[HistoryReader, *Arguments], Answer],
        *arguments: *Arguments,
    ) -> Answer:
        """Call `question(reader, *arguments)` about one thread's history in a worker thread.

        The thread need not be loaded; a loaded one is seen as its log is by now.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadTooNew, ThreadDamaged, OSError
            And what `question` raises.
        """

    async def usage(self, thread_id: str) -> Sequence[UsageRecorded]:
        """Read what a thread's log says of its usage, in order.

        Raises:
            InvalidThreadId, ThreadNotFound, OSError
        """

    async def search(self, query: SearchQuery) -> tuple[SearchPage, Mapping[str, ThreadRow]]:
        """Return one page of threads by what was said in them, up to the call; and their rows.

        Raises:
            InvalidCursor: the cursor was not given out by a search in this order.
            OSError: the store cannot be read.
        """


class Organization(Protocol):
    """The projects and sections that threads can be in; all servers of a store share them."""

    @property
    def state(self) -> FilingState:
        """State as of the last look."""

    async def refresh(self) -> FilingState:
        """Take over what other servers have added.

        Raises:
            OSError: the store cannot be read.
        """

    async def latest(self) -> FilingState:
        """Do as `refresh`; while the store cannot be read, return what was read of it before."""

    async def change(
        self, decide: Callable[[FilingState], Sequence[FilingRecord]]
    ) -> Sequence[FilingRecord]:
        """Add what `decide` makes of the state; it is stored when this returns.

        `decide` runs in a worker thread; what it raises comes out, and nothing was added. Returns
        what was added. Cancelling waits for a write that has begun.

        Raises:
            OSError: the store refused; nothing was added.
        """

    async def rank_in_section(self, section_id: str, moved: str, before: str | None) -> str:
        """Find a place for a thread in a section: before another one, or at the end.

        Raises:
            NotInSection: the other thread is not in this section.
        """

    async def project_recency(self) -> Mapping[str, int]:
        """Return when an unarchived thread of each project was last active, in milliseconds."""

    async def owners(
        self, attachment: tuple[str, str], archived: bool | None, after: str, limit: int
    ) -> Sequence[Owner]:
        """Return threads with an attachment of this type and key, by id, from `after` on."""


class ThreadStore(Protocol):
    """All threads of a home, or of a group of servers."""

    @property
    def lists(self) -> ThreadLists:
        """Lists of all threads."""

    @property
    def history(self) -> ThreadHistory:
        """Pages of one thread, and searches over all."""

    @property
    def organization(self) -> Organization:
        """The projects and sections that threads can be in."""

    async def open(self) -> None:
        """Open the store, and repair what a crash left behind.

        Raises:
            OSError: it cannot be used.
        """

    async def run(self) -> None:
        """Keep what is derived of the threads up to date, until cancelled."""

    async def aclose(self) -> None:
        """Write what is behind, and close the store."""

    @property
    def figures(self) -> Mapping[str, int]:
        """Return what the store counts and measures, by name; none of one of files.

        Source: docs/operations.md, "Diagnostics".
        """

    async def create(self, created: ThreadCreated) -> LiveThread:
        """Begin a thread; when this returns, it is stored (unless it is ephemeral).

        Raises:
            InvalidThreadId: not a UUID in its usual form.
            ThreadExists: there is a thread of this id; nothing was changed.
            ThreadBusy: another process is at work on it.
            OSError: the store refused.
        """

    async def load(self, thread_id: str) -> LiveThread:
        """Bring a stored thread into memory, to write it.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew, ThreadDamaged, OSError
            ThreadArchived: another program has archived it, whose thread it is.
        """

    async def fork(self, source_id: str, point: ForkPoint, created: ThreadCreated) -> LiveThread:
        """Begin a thread with what another one's turns have written; load it.

        When this returns, it is stored (unless it is ephemeral). The source need not be loaded.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadArchived, ThreadTooNew, ThreadDamaged: of the
                source.
            TurnNotFound: the thread has no such turn, or has it no more.
            TurnInProgress: the last turn of the fork is still running.
            OSError: the store refused; there is no new thread.
        """

    async def delete(self, thread_id: str) -> None:
        """Remove a thread that is not loaded, for good.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew
            ThreadOfCodex: it belongs to a program whose files are never changed.
            OSError: the store refused; the thread is still there.
        """

    async def unload(self, thread: LiveThread, *, goes_on: bool = False) -> None:
        """Close a thread's log, with its final row in lists.

        With `goes_on` another server of the group is to begin what waits in it.
        """

    async def read(self, thread_id: str) -> ThreadState:
        """Read a thread without loading it, and without what the model sees.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadTooNew, ThreadDamaged, OSError
        """

    async def require_free(self, thread_id: str) -> None:
        """Look whether another process writes a thread that is not loaded here.

        Raises:
            ThreadBusy
        """

    async def change(
        self, thread_id: str, decide: Callable[[ThreadState], Sequence[Record]]
    ) -> tuple[ThreadState, Sequence[Record]]:
        """Add what `decide` makes of the state of a thread that is not loaded.

        Returns the state after it, and what was added. What `decide` raises comes out.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew, ThreadDamaged, OSError
        """

    async def exists(self, thread_id: str) -> bool:
        """Whether a thread is stored; those in memory alone are not.

        Raises:
            InvalidThreadId: not a UUID in its usual form.
        """

    def shown_path(self, thread_id: str) -> str | None:
        """Return what clients are shown as the file of a thread; None: it has none. No I/O.

        Raises:
            InvalidThreadId: not a UUID in its usual form.
        """

    def is_path_of(self, thread_id: str, path: str) -> bool:
        """Whether what a client names is the file of a thread; no I/O.

        Raises:
            InvalidThreadId: not a UUID in its usual form.
        """

    async def exported(self, thread_id: str, limit: int) -> bytes | None:
        """Return the lines of a thread's log, byte for byte, for a report.

        None: they are more than `limit` bytes.

        Raises:
            InvalidThreadId, ThreadNotFound, OSError
        """
