"""Connections to the database, and its failures as those of a store.

Statements run in autocommit: a server that is stopped in the middle holds no lock. What blocks
takes a connection of the pool, in a worker thread; appends have connections of their own, on the
event loop.
Source: docs/scale.md, "Connections", "Failures".
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolTimeout, TooManyRequests

from app_server.threads.failures import StoreUnavailable

MAX_CONNECTIONS = 8
"""Of the pool of one server."""
POOL_WAIT_S = 5.0
"""Seconds that a request waits for a connection of the pool."""
MAX_WAITING = 256
"""Requests that wait for one; what comes then is refused."""
CONNECT_S = 5
"""Seconds for one attempt to connect."""
STATEMENT_S = 30
"""Seconds that a statement may take."""
IDLE_IN_TRANSACTION_S = 5
"""Seconds after which PostgreSQL ends a transaction in which nothing is asked."""
NETWORK_MS = 10_000
"""Milliseconds without an answer to what was sent, after which a connection is lost."""

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
AsyncConnection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]

_REASONS = {
    "53100": ("databaseFull", True),
    "53200": ("databaseBusy", True),
    "53300": ("tooManyConnections", True),
    "57014": ("timedOut", True),
    "40001": ("databaseBusy", True),
    "40P01": ("databaseBusy", True),
    "55P03": ("databaseBusy", True),
    "25006": ("databaseReadOnly", True),
    "42501": ("notPermitted", False),
}
"""By SQLSTATE: the reason that clients are given, and whether a later try may succeed.

Source: https://www.postgresql.org/docs/15/errcodes-appendix.html.
"""
_UNAVAILABLE_CLASSES = ("08", "57P")
_TOO_MANY = re.compile(r"too many (clients|connections)|remaining connection slots are reserved")
"""Text of the refusal of a connection beyond PostgreSQL's bounds, in English. libpq has no SQLSTATE
of a connection that was refused; in another language it is `databaseUnavailable`."""


TODO = (
    "see that PostgreSQL runs there, and that host, port, database, role and password are those of "
    "the setting `store`, of PGPASSWORD or of ~/.pgpass"
)
"""To do about a connection that cannot be had; PostgreSQL says no code then."""
REPLACEMENT = "\ufffd"
"""Stands for U+0000, which PostgreSQL's text cannot hold."""


def storable(value: Any) -> Any:
    """Return a value as PostgreSQL can hold it."""
    return value.replace("\0", REPLACEMENT) if isinstance(value, str) else value


class Database:
    """A database, by the URL or connection string that libpq takes."""

    def __init__(self, url: str) -> None:
        """Nothing is connected yet.

        Raises:
            StoreUnavailable: libpq cannot read the URL; the text says what to do.
        """
        options = (
            f"-c statement_timeout={STATEMENT_S}s "
            f"-c idle_in_transaction_session_timeout={IDLE_IN_TRANSACTION_S}s"
        )
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as exc:
            raise StoreUnavailable(
                f"{failure_of(exc)}; correct the setting `store`", "databaseError", retriable=False
            ) from exc
        self._arguments: dict[str, Any] = {
            "connect_timeout": CONNECT_S,
            "tcp_user_timeout": NETWORK_MS,
            "application_name": "app-server",
            **given,
            "options": f"{given.get('options', '')} {options}".strip(),
        }
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            kwargs={**self._arguments, "autocommit": True},
            min_size=1,
            max_size=MAX_CONNECTIONS,
            max_waiting=MAX_WAITING,
            timeout=POOL_WAIT_S,
            # One that was lost since it was last used is not lent: a round trip of 40 µs.
            check=ConnectionPool.check_connection,
            open=False,
        )

    def open(self) -> None:
        """Connect. Blocks.

        Raises:
            StoreUnavailable: the database cannot be had.
        """
        # By itself: the pool does not say why it cannot connect.
        self.connect().close()
        with database_failures():
            self._pool.open(wait=True, timeout=POOL_WAIT_S)

    def close(self) -> None:
        """Close all connections of the pool. Blocks."""
        self._pool.close()

    def pool_figures(self) -> Mapping[str, int]:
        """Return how many requests wait for a connection, have waited so far, and how long."""
        found = self._pool.get_stats()
        return {
            "store.pool.waiting": found.get("requests_waiting", 0),
            "store.pool.waited": found.get("requests_queued", 0),
            "store.pool.waited_ms": found.get("requests_wait_ms", 0),
        }

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection of the pool; each statement is a transaction of its own. Blocks.

        Raises:
            StoreUnavailable: there is none, or a statement failed.
        """
        with database_failures(), self._pool.connection() as connection:
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Lend a connection of the pool for one transaction. Blocks.

        Raises:
            StoreUnavailable: there is none, or a statement failed; nothing was changed.
        """
        with self.connection() as connection, connection.transaction():
            yield connection

    def connect(self) -> Connection:
        """Open a connection beside the pool. Blocks; the caller closes it.

        Raises:
            StoreUnavailable: it cannot be had; the text says what to do.
        """
        try:
            return psycopg.connect(autocommit=True, **self._arguments)
        except psycopg.Error as exc:
            failure = failure_of(exc)
            raise StoreUnavailable(
                f"{failure}; {TODO}", failure.reason, retriable=failure.retriable
            ) from exc

    async def connect_async(self, *, synced: bool = True) -> AsyncConnection:
        """Open a connection for the event loop; the caller closes it.

        Without `synced`, PostgreSQL answers before what was written is on its disk.

        Raises:
            StoreUnavailable
        """
        arguments = dict(self._arguments)
        if not synced:
            arguments["options"] += " -c synchronous_commit=off"
        with database_failures():
            return await psycopg.AsyncConnection.connect(autocommit=True, **arguments)


class Connections(Protocol):
    """A source of connections."""

    def connection(self) -> AbstractContextManager[Connection]:
        """Lend a connection."""


class OneConnection:
    """A connection that is at hand, for what asks for one again: the pool could be empty."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend the connection."""
        yield self._connection


@contextmanager
def database_failures() -> Iterator[None]:
    """Raise psycopg's errors as failures of the store.

    Raises:
        StoreUnavailable
    """
    try:
        yield
    except psycopg.Error as exc:
        raise failure_of(exc) from exc


def failure_of(error: psycopg.Error) -> StoreUnavailable:
    """Say in one line what the database refuses, and whether it may be asked again."""
    state = error.sqlstate or ""
    text = " ".join((error.diag.message_primary or str(error)).split())
    if isinstance(error, PoolTimeout | TooManyRequests):
        reason, retriable = "databaseBusy", True
        text = f"no connection to the database was free in {POOL_WAIT_S:g} s"
    elif state in _REASONS:
        reason, retriable = _REASONS[state]
    elif not state and isinstance(error, psycopg.OperationalError) and _TOO_MANY.search(text):
        reason, retriable = _REASONS["53300"]
    elif state.startswith(_UNAVAILABLE_CLASSES) or (
        not state and isinstance(error, psycopg.OperationalError)
    ):
        reason, retriable = "databaseUnavailable", True
    else:
        reason, retriable = "databaseError", False
    return StoreUnavailable(text, reason, retriable=retriable)
