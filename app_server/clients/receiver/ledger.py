"""A SQLite file for its owner alone, in which a commit outlives the machine.

Source: docs/receiver.md, "The ledger".
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeAlias, TypeVar

import anyio.to_thread

from app_server.clients.receiver.router.envelope import Envelope, parse_body, render_body
from app_server.runtime.files.sqlite import connect

Args = ParamSpec("Args")
Result = TypeVar("Result")

BUSY_S = 5.0
"""For another process to finish its transaction."""


class LedgerBroken(Exception):
    """The file is no ledger of this version, or cannot be used; every use of it may raise this."""


class SqliteFile:
    """One connection to the file; any worker may use it, one at a time."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Do several things or none. Blocks.

        Raises:
            sqlite3.Error
        """
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    async def rows(self, statement: str, *values: object) -> list[Any]:
        """Execute one statement in a transaction of its own; return its rows.

        Raises:
            LedgerBroken: SQLite failed.
        """
        return await self.run(_rows, statement, *values)

    async def run(
        self,
        work: Callable[Concatenate[sqlite3.Connection, Args], Result],
        *args: Args.args,
        **kwargs: Args.kwargs,
    ) -> Result:
        """Do `work`, which blocks, in one transaction and a worker thread; return its result.

        What `work` raises undoes the transaction.

        Raises:
            LedgerBroken: SQLite failed.
        """
        return await anyio.to_thread.run_sync(partial(self._run, work, *args, **kwargs))

    def _run(
        self,
        work: Callable[Concatenate[sqlite3.Connection, Args], Result],
        *args: Args.args,
        **kwargs: Args.kwargs,
    ) -> Result:
        try:
            with self.transaction() as sql:
                return work(sql, *args, **kwargs)
        except sqlite3.Error as exc:
            # The text may be of a statement, and holds no values.
            raise LedgerBroken(f"the ledger cannot be used: {exc}") from exc


def _rows(sql: sqlite3.Connection, statement: str, *values: object) -> list[Any]:
    return list(sql.execute(statement, values))


@contextmanager
def open_file(path: Path) -> Iterator[SqliteFile]:
    """Open a file or make it. Blocks.

    Raises:
        OSError, sqlite3.Error: it cannot be used.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The other side forgets what was acknowledged.
    with closing(connect(path, synchronous="FULL", busy_s=BUSY_S, autocommit=True)) as connection:
        yield SqliteFile(connection)


def read_number(sql: sqlite3.Connection, query: str, *values: object) -> int:
    """Return the one number that a query gives."""
    return int(sql.execute(query, values).fetchone()[0])


State: TypeAlias = Literal[
    "waiting", "injecting", "uncertain", "accepted", "shown", "injected", "acked", "expired"
]
"""The first five are open, the others are ends.

`waiting`: neither a thread nor a tool result has it. `injecting`: a request that may put it into
the thread is under way. `uncertain`: how that ended is not known. `accepted`: the server has it
in a ledger of its own, and puts it into the thread later, or says that it failed. `shown`: a tool
result has shown it, so it is never injected any more.
"""


class LedgerFull(Exception):
    """As many signals wait as may; the router keeps this one."""


@dataclass(frozen=True, slots=True)
class LedgerLimits:
    """Bounds of one ledger."""

    max_open: int = 1000
    """Unseen and unacknowledged signals; the next one is refused."""
    max_open_bytes: int = 16 * 1024 * 1024
    """The same, as bytes of their bodies."""
    max_settled: int = 10_000
    """Signals that are done with; the oldest are forgotten."""
    max_settled_bytes: int = 16 * 1024 * 1024
    """The same as bytes; beyond it the oldest lose their bodies and keep their ids."""
    max_dead: int = 100
    """Dead letters; the oldest are forgotten."""
    max_dead_bytes: int = 16 * 1024
    """Of one dead letter; it is cut there."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One signal in the ledger."""

    envelope: Envelope
    state: State
    is_doubtful: bool = False
    """A tool result shows it although it may be in the thread already."""
    log_path: str | None = None
    """Log of the last attempt, if that was by `thread/inject_items`."""
    log_was_there: bool = False
    thread_id: str | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """Waiting signals of one look."""

    entries: Sequence[Entry]
    more: int
    """Signals that did not fit."""


_DEAD_LETTERS = """
CREATE TABLE dead_letters (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    reason TEXT NOT NULL,
    content BLOB NOT NULL
);
"""


class DeadLetters:
    """The newest `max_dead` of one ledger, each cut at `max_dead_bytes`."""

    def __init__(self, file: SqliteFile, limits: LedgerLimits) -> None:
        self._file = file
        self._limits = limits

    async def add(self, reason: str, content: bytes, now: int) -> None:
        """Add a dead letter. `now` in Unix seconds.

        Raises:
            LedgerBroken: nothing was written.
        """
        content = content[: self._limits.max_dead_bytes]
        await self._file.run(_add_dead, now, reason, content, self._limits.max_dead)

    async def all(self) -> Sequence[tuple[int, str, bytes]]:
        """Return time, reason and content of each, the oldest first.

        Raises:
            LedgerBroken
        """
        query = "SELECT at, reason, content FROM dead_letters ORDER BY place"
        return await self._file.rows(query)


def _add_dead(
    sql: sqlite3.Connection, now: int, reason: str, content: bytes, max_dead: int
) -> None:
    sql.execute(
        "INSERT INTO dead_letters (at, reason, content) VALUES (?, ?, ?)", (now, reason, content)
    )
    sql.execute(
        "DELETE FROM dead_letters WHERE place <= (SELECT max(place) FROM dead_letters) - ?",
        (max_dead,),
    )


_CURSOR = """
CREATE TABLE cursor (one INTEGER PRIMARY KEY CHECK (one = 1), value TEXT NOT NULL);
"""
_MOVE = "INSERT INTO cursor VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET value = excluded.value"


class RouterCursor:
    """The one cursor of a ledger; its text means something to the router alone."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def read(self) -> str | None:
        """Return the cursor up to which everything was acknowledged; None before the first.

        Raises:
            LedgerBroken
        """
        query = "SELECT value FROM cursor"
        rows = await self._file.rows(query)
        return str(rows[0][0]) if rows else None

    async def move(self, cursor: str) -> None:
        """Note how far the router was answered.

        Raises:
            LedgerBroken: nothing was written.
        """
        await self._file.rows(_MOVE, cursor)


SCHEMA_VERSION = 1
MAX_ATTEMPTS = 5
"""Refused injections of one signal; after them it is for `prism_signals_pending` alone."""

DUE = 100
"""Signals that are read at a time in order to inject them."""

PRUNE_EVERY = 64
"""Signals settled between two looks at the bounds of what is settled."""

_OPEN = "('waiting', 'injecting', 'uncertain', 'accepted', 'shown')"
_SHOWABLE = "('waiting', 'uncertain', 'shown')"
_INJECTABLE = "('waiting', 'uncertain')"
_INJECTING = "('injecting')"

_SCHEMA = """
CREATE TABLE signals (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    body BLOB,
    bytes INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    doubtful INTEGER NOT NULL DEFAULT 0,
    expires_at INTEGER,
    log_path TEXT,
    log_was_there INTEGER NOT NULL DEFAULT 0,
    thread_id TEXT
);
CREATE INDEX by_state ON signals (state, place);
"""


class Ledger:
    """Ledger of signals, with the other tables of its file. Use `open_ledger`.

    Each method is one transaction; that is why there are many in one class.
    """

    def __init__(self, file: SqliteFile, limits: LedgerLimits) -> None:
        self.dead_letters = DeadLetters(file, limits)
        self.cursor = RouterCursor(file)
        self._file = file
        self._limits = limits
        self._settled = 0

    async def take(self, envelope: Envelope) -> bool:
        """Write a signal down; False if its id was there already. When this returns, it is on disk.

        Raises:
            LedgerFull: nothing was written.
        """
        return await self._file.run(self._take, envelope)

    async def entry(self, signal_id: str) -> Entry | None:
        """Return a signal whose body is still there."""
        return await self._file.run(_one, signal_id)

    async def due(self) -> Sequence[Entry]:
        """Return signals that may be injected, the oldest first."""
        where = f"state IN {_INJECTABLE} AND attempts < ? ORDER BY place LIMIT ?"
        return await self._file.run(_entries, where, MAX_ATTEMPTS, DUE)

    async def uncertain(self) -> Sequence[Entry]:
        """Return signals whose injection has an unknown outcome."""
        return await self._file.run(_entries, "state = 'uncertain' ORDER BY place")

    async def begin(
        self, signal_id: str, thread_id: str, log_path: str | None, *, log_was_there: bool
    ) -> bool:
        """Claim a signal for an injection; False if it is not for injecting any more."""
        changed = "state = 'injecting', thread_id = ?, log_path = ?, log_was_there = ?"
        values = (thread_id, log_path, log_was_there)
        return await self._change(signal_id, _INJECTABLE, changed, *values)

    async def injected(self, signal_id: str) -> None:
        """Note that a signal is in the thread."""
        await self._change(signal_id, _INJECTING, "state = 'injected', doubtful = 0")
        await self._prune_sometimes()

    async def give_back(self, signal_id: str, state: State) -> None:
        """Note that the server refused a signal that is in `state`: it is surely in no thread."""
        changed = "state = 'waiting', doubtful = 0, attempts = attempts + 1"
        await self._change(signal_id, f"('{state}')", changed)

    async def accepted(self, signal_id: str, state: State) -> None:
        """Note that the server has a signal in its own ledger, if the signal is in `state` here.

        The server alone delivers it from now on.
        """
        await self._change(signal_id, f"('{state}')", "state = 'accepted', doubtful = 0")

    async def with_server(self) -> Sequence[Entry]:
        """Return signals that a server has accepted, the oldest first."""
        return await self._file.run(_entries, "state = 'accepted' ORDER BY place")

    async def resolve(self, signal_id: str, state: State, *, is_in_thread: bool) -> None:
        """Note how an injection ended, if the signal is still in the `state` that it was read in.

        Another task may have begun a new injection since.
        """
        outcome = "injected" if is_in_thread else "waiting"
        await self._change(signal_id, f"('{state}')", f"state = '{outcome}', doubtful = 0")

    async def doubt(self, signal_id: str) -> None:
        """Note that the outcome of the injection is unknown."""
        await self._change(signal_id, _INJECTING, "state = 'uncertain', doubtful = 1")

    async def recover(self) -> None:
        """Recover from a process that died: signals that it was injecting are uncertain."""
        statement = "UPDATE signals SET state = 'uncertain', doubtful = 1 WHERE state = 'injecting'"
        await self._file.rows(statement)

    async def show(self, limit: int, limit_bytes: int) -> Shown:
        """Return waiting signals, the oldest first, and take them away from injections for good.

        The first is returned whatever its size. They come again until `ack`.
        """
        return await self._file.run(_show, _SHOWABLE, limit, limit_bytes, always_first=True)

    async def show_new(self, limit: int, limit_bytes: int) -> Shown:
        """Return unseen signals that fit, each once; otherwise like `show`.

        Nothing is returned ahead of an older signal that does not fit.
        """
        return await self._file.run(_show, "('waiting')", limit, limit_bytes, always_first=False)

    async def ack(self, signal_ids: Sequence[str]) -> Sequence[str]:
        """Settle signals that were shown; returns the ids that were."""
        acked = await self._file.run(_ack, signal_ids)
        await self._prune_sometimes()
        return acked

    async def expire(self, now: int) -> None:
        """Settle signals that are in no thread and whose time is over. `now` in Unix seconds."""
        statement = (
            "UPDATE signals SET state = 'expired'"
            " WHERE state IN ('waiting', 'accepted') AND expires_at IS NOT NULL AND expires_at <= ?"
        )
        await self._file.rows(statement, now)

    async def pending(self) -> int:
        """Count the signals that `show` would return, however long that took."""
        return await self._file.run(_pending)

    async def prune(self) -> None:
        """Forget the oldest settled signals beyond the bounds."""
        await self._file.run(self._prune)

    async def _change(self, signal_id: str, states: str, changed: str, *values: object) -> bool:
        return await self._file.run(_update, signal_id, states, changed, *values)

    def _take(self, sql: sqlite3.Connection, envelope: Envelope) -> bool:
        if read_number(sql, "SELECT count(*) FROM signals WHERE id = ?", envelope.id):
            return False
        body = render_body(envelope)
        count, size = sql.execute(
            f"SELECT count(*), coalesce(sum(bytes), 0) FROM signals WHERE state IN {_OPEN}"
        ).fetchone()
        if count >= self._limits.max_open or size + len(body) > self._limits.max_open_bytes:
            raise LedgerFull
        sql.execute(
            "INSERT INTO signals (id, body, bytes, state, expires_at) VALUES (?, ?, ?, ?, ?)",
            (envelope.id, body, len(body), "waiting", envelope.expires_at),
        )
        return True

    async def _prune_sometimes(self) -> None:
        self._settled += 1
        if self._settled % PRUNE_EVERY == 0:
            await self.prune()

    def _prune(self, sql: sqlite3.Connection) -> None:
        settled = f"state NOT IN {_OPEN}"
        sql.execute(
            f"DELETE FROM signals WHERE {settled} AND place <= (SELECT place FROM signals"
            f" WHERE {settled} ORDER BY place DESC LIMIT 1 OFFSET ?)",
            (self._limits.max_settled,),
        )
        sql.execute(
            f"UPDATE signals SET body = NULL, bytes = 0 WHERE {settled} AND place <= (SELECT place"
            " FROM (SELECT place, sum(bytes) OVER (ORDER BY place DESC) AS total FROM signals"
            f" WHERE {settled}) WHERE total > ? ORDER BY place DESC LIMIT 1)",
            (self._limits.max_settled_bytes,),
        )


@contextmanager
def open_ledger(path: Path, limits: LedgerLimits | None = None) -> Iterator[Ledger]:
    """Open a ledger, for its owner alone, or make it. Blocks.

    Raises:
        LedgerBroken: it cannot be used.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open_file(path))
            with file.transaction() as sql:
                _prepare(sql)
        except (OSError, sqlite3.Error) as exc:
            raise LedgerBroken(f"{path}: {exc}") from exc
        yield Ledger(file, limits or LedgerLimits())


def _prepare(sql: sqlite3.Connection) -> None:
    version = read_number(sql, "PRAGMA user_version")
    if version == 0:
        for statement in (_SCHEMA + _DEAD_LETTERS + _CURSOR).split(";"):
            sql.execute(statement)
        sql.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    elif version != SCHEMA_VERSION:
        raise LedgerBroken(f"a ledger of version {version}, not {SCHEMA_VERSION}")


_COLUMNS = "body, state, doubtful, log_path, log_was_there, thread_id"


def _entries(sql: sqlite3.Connection, where: str, *values: object) -> list[Entry]:
    query = f"SELECT {_COLUMNS} FROM signals WHERE {where}"
    return [
        Entry(parse_body(body), state, bool(doubtful), log_path, bool(was_there), thread_id)
        for body, state, doubtful, log_path, was_there, thread_id in sql.execute(query, values)
    ]


def _one(sql: sqlite3.Connection, signal_id: str) -> Entry | None:
    found = _entries(sql, "id = ? AND body IS NOT NULL", signal_id)
    return found[0] if found else None


def _update(
    sql: sqlite3.Connection, signal_id: str, states: str, changed: str, *values: object
) -> bool:
    statement = f"UPDATE signals SET {changed} WHERE id = ? AND state IN {states}"
    return sql.execute(statement, (*values, signal_id)).rowcount == 1


def _pending(sql: sqlite3.Connection) -> int:
    return read_number(sql, f"SELECT count(*) FROM signals WHERE state IN {_SHOWABLE}")


def _show(
    sql: sqlite3.Connection, states: str, limit: int, limit_bytes: int, *, always_first: bool
) -> Shown:
    chosen: list[str] = []
    size = 0
    for signal_id, length in sql.execute(
        f"SELECT id, bytes FROM signals WHERE state IN {states} ORDER BY place LIMIT ?", (limit,)
    ):
        size += length
        if size > limit_bytes and (chosen or not always_first):
            break
        chosen.append(signal_id)
    for signal_id in chosen:
        _update(sql, signal_id, _SHOWABLE, "state = 'shown'")
    entries = [entry for signal_id in chosen if (entry := _one(sql, signal_id)) is not None]
    return Shown(entries, _pending(sql) - len(entries))


def _ack(sql: sqlite3.Connection, signal_ids: Sequence[str]) -> list[str]:
    return [
        signal_id
        for signal_id in signal_ids
        if _update(sql, signal_id, "('shown')", "state = 'acked'")
    ]
