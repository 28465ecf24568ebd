"""The operations of a group of servers, in a table. Blocks, but for opening it.

Source: docs/sending_again.md, "Ledger".
"""

from app_server.threads.failures import StoreUnavailable
from app_server.threads.operations import KEEP_MS, MAX_KEPT, Operation
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.nodes import PostgresNodes

_OLD = """
DELETE FROM operations WHERE at_ms <= %s OR number <= (
    SELECT number FROM operations ORDER BY number DESC LIMIT 1 OFFSET %s
)
"""
_BEGIN = """
INSERT INTO operations (id, method, digest, at_ms, holder) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (tenant, id) DO NOTHING
"""
_FIND = "SELECT id, method, digest, at_ms, holder, is_done, answer FROM operations WHERE id = %s"
_FINISH = "UPDATE operations SET is_done = true, answer = %s WHERE id = %s"
_TAKE = "UPDATE operations SET holder = %s WHERE id = %s AND holder = %s AND NOT is_done"
MAX_TRIES = 3
"""To begin an operation that other servers begin and forget meanwhile."""
_LIVES = "SELECT 1 FROM nodes WHERE id::text = %s AND NOT dead"


class PostgresOperations:
    """The ledger of a database; it is always there."""

    def __init__(self, database: Database, nodes: PostgresNodes) -> None:
        """Take the database, which the store of threads opens and closes, and its servers."""
        self._database = database
        self._nodes = nodes

    async def open(self) -> "PostgresOperationLedger":
        """Return the ledger."""
        return PostgresOperationLedger(self._database, self._nodes)


class PostgresOperationLedger:
    """Operations in a table; every method raises StoreUnavailable."""

    def __init__(
        self, database: Database, nodes: PostgresNodes, *, max_kept: int = MAX_KEPT
    ) -> None:
        """Keep the newest `max_kept` operations."""
        self._database = database
        self._nodes = nodes
        self._max_kept = max_kept

    @property
    def own_id(self) -> str:
        """The id of this server."""
        return self._nodes.own_id

    def begin(self, operation: Operation) -> Operation | None:
        """Note an operation, unless there is one of its id; see OperationLedger.begin."""
        values = operation.id, operation.method, operation.digest, operation.at_ms, operation.holder
        with self._database.transaction() as connection:
            connection.execute(_OLD, (operation.at_ms - KEEP_MS, self._max_kept))
            for _ in range(MAX_TRIES):
                if connection.execute(_BEGIN, values).rowcount == 1:
                    return None
                row = connection.execute(_FIND, (operation.id,)).fetchone()
                if row is not None:
                    return Operation(*row)
                # Another server has forgotten it in between: its id is free.
        raise StoreUnavailable(
            "an operation is begun and forgotten again and again", "databaseBusy", retriable=True
        )

    def finish(self, operation_id: str, answer: str | None) -> None:
        """Note that an operation is done; see OperationLedger.finish."""
        # PostgreSQL's text has no U+0000; in JSON it is written as an escape.
        self._execute(_FINISH, answer, operation_id)

    def forget(self, operation_id: str) -> None:
        """Forget an operation that was refused; see OperationLedger.forget."""
        self._execute("DELETE FROM operations WHERE id = %s", operation_id)

    def take_over(self, operation: Operation) -> bool:
        """Become the holder of an operation; see OperationLedger.take_over."""
        return self._execute(_TAKE, self.own_id, operation.id, operation.holder) == 1

    def is_living(self, holder: str) -> bool:
        """Whether the server still runs that holds an operation."""
        with self._database.connection() as connection:
            return connection.execute(_LIVES, (holder,)).fetchone() is not None

    def _execute(self, statement: str, *values: str | None) -> int:
        with self._database.connection() as connection:
            return connection.execute(statement.encode(), values).rowcount

    def close(self) -> None:
        """Do nothing: the store of threads closes the database."""
