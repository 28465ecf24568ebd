"""Projects and sections in the database, and what the rows of threads say of them.

Source: docs/threads.md, "Projects and sections"; docs/scale.md, "Tables".
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from pydantic_core import to_json

from app_server.threads.failures import InvalidThreadId, uuid_of
from app_server.threads.organization import FilingState, NotInSection, Owner, rank_between
from app_server.threads.postgresql.database import Connection, Database, storable
from app_server.threads.postgresql.lists import PostgresLists
from protocol.log.filing import FilingRecord, parse_filing_record
from protocol.log.rollout import render_record

logger = logging.getLogger(__name__)

FILING_LOCK = 0x66696C65
"""Class of the advisory lock that orders changes, one for each tenant."""

_OF_TENANT = "tenant = (SELECT current_tenant())"


class PostgresOrganization:
    """The projects and sections that threads can be in; servers of a database share them."""

    def __init__(self, database: Database, lists: PostgresLists) -> None:
        self.state = FilingState()
        self._database = database
        self._lists = lists
        self._read_to = -1
        """Position of the newest line that `state` has."""
        self._problem: str | None = None
        """Why the lines cannot be read; logged once."""
        self._turn = anyio.Lock()

    async def refresh(self) -> FilingState:
        """Take over what other servers have added.

        Raises:
            StoreUnavailable
        """
        async with self._turn:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._read)
        return self.state

    def _read(self) -> None:
        with self._database.connection() as connection:
            self._take_in(connection)

    def _take_in(self, connection: Connection) -> None:
        found = connection.execute(
            f"SELECT position, body FROM filing WHERE {_OF_TENANT} AND position > %s "
            "ORDER BY position",
            (self._read_to,),
        ).fetchall()
        records = [parse_filing_record(body) for _, body in found]
        self.state = self.state.after(record for record in records if record is not None)
        if found:
            self._read_to = found[-1][0]

    async def latest(self) -> FilingState:
        """Do as `refresh`; while the store cannot be read, return what was read of it before."""
        try:
            state = await self.refresh()
        except OSError as exc:
            if exc.strerror != self._problem:
                self._problem = exc.strerror
                logger.warning("projects and sections: %s", exc)
            return self.state
        self._problem = None
        return state

    async def change(
        self, decide: Callable[[FilingState], Sequence[FilingRecord]]
    ) -> Sequence[FilingRecord]:
        """Add what `decide` makes of the state; see Organization.change."""
        async with self._turn:
            with anyio.CancelScope(shield=True):
                added = await anyio.to_thread.run_sync(self._change, decide)
        return added

    def _change(
        self, decide: Callable[[FilingState], Sequence[FilingRecord]]
    ) -> Sequence[FilingRecord]:
        with self._database.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s, current_tenant())", (FILING_LOCK,))
            self._take_in(connection)
            added = decide(self.state)
            position = self._read_to
            for record in added:
                position += 1
                connection.execute(
                    "INSERT INTO filing (position, body) VALUES (%s, %s)",
                    (position, render_record(record)),
                )
        self.state, self._read_to = self.state.after(added), position
        return added

    async def rank_in_section(self, section_id: str, moved: str, before: str | None) -> str:
        """Find a place for a thread in a section: before another one, or at the end.

        Raises:
            NotInSection: the other thread is not in this section.
        """
        await self._lists.flush()
        find = partial(self._neighbours, section_id, moved, before)
        low, high = await anyio.to_thread.run_sync(find)
        return rank_between(low, high)

    def _neighbours(
        self, section_id: str, moved: str, before: str | None
    ) -> tuple[str | None, str | None]:
        bound, high = "", None
        values: list[Any] = [storable(section_id), moved]
        with self._database.connection() as connection:
            if before is not None:
                found = _row_in(connection, before, section_id)
                if found is None:
                    raise NotInSection(before)
                (high,) = found
                bound = " AND (section_rank, id) < (%s, %s::uuid)"
                values += [high, before]
            statement = (
                f"SELECT max(section_rank) FROM threads WHERE {_OF_TENANT} AND section_id = %s "
                f"AND id <> %s::uuid{bound}"
            )
            row = connection.execute(statement.encode(), values).fetchone()
        low = None if row is None else row[0]
        # Two servers may have given the same rank: the new one then goes behind both.
        return (low, high) if high is None or low is None or low < high else (low, None)

    async def project_recency(self) -> Mapping[str, int]:
        """Return when an unarchived thread of each project was last active, in milliseconds."""
        await self._lists.flush()
        return await anyio.to_thread.run_sync(self._project_recency)

    def _project_recency(self) -> Mapping[str, int]:
        with self._database.connection() as connection:
            found = connection.execute(
                f"SELECT project_id, max(recency_at_ms) FROM threads WHERE {_OF_TENANT} "
                "AND project_id IS NOT NULL AND NOT archived AND has_content GROUP BY project_id"
            )
            return dict(found.fetchall())

    async def owners(
        self, attachment: tuple[str, str], archived: bool | None, after: str, limit: int
    ) -> Sequence[Owner]:
        """Return threads with an attachment of this type and key, by id, from `after` on."""
        await self._lists.flush()
        find = partial(self._owners, attachment, archived, after, limit)
        return await anyio.to_thread.run_sync(find)

    def _owners(
        self, attachment: tuple[str, str], archived: bool | None, after: str, limit: int
    ) -> Sequence[Owner]:
        # The column is a list of pairs as they are rendered here, and quotes in them are escaped.
        values: list[Any] = [storable(to_json(attachment).decode()), after]
        which = ""
        if archived is not None:
            which = " AND archived = %s"
            values.append(archived)
        statement = (
            f"SELECT id::text, archived FROM threads WHERE {_OF_TENANT} AND attachments <> '[]' "
            f'AND strpos(attachments, %s) > 0 AND id::text COLLATE "C" > %s{which} '
            "ORDER BY id LIMIT %s"
        )
        with self._database.connection() as connection:
            found = connection.execute(statement.encode(), [*values, limit]).fetchall()
        return [Owner(thread_id, is_archived) for thread_id, is_archived in found]


def _row_in(connection: Connection, thread_id: str, section_id: str) -> tuple[Any, ...] | None:
    try:
        known = uuid_of(thread_id)
    except InvalidThreadId:
        return None
    return connection.execute(
        "SELECT section_rank FROM threads WHERE id = %s AND section_id = %s",
        (known, storable(section_id)),
    ).fetchone()
