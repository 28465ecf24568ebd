"""The file of projects and sections, and what the index of threads says of them.

All disk work runs in worker threads.
Source: docs/threads.md.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from app_server.threads.files.filing import Filing
from app_server.threads.files.index.follower import IndexFollower
from app_server.threads.files.index.index import ThreadIndex
from app_server.threads.organization import NotInSection, Owner, rank_between


class FileOrganization(Filing):
    """The projects and sections that threads can be in; servers that share a home share them."""

    def __init__(self, path: Path, follower: IndexFollower) -> None:
        """`path` is the log of projects and sections."""
        super().__init__(path)
        self._follower = follower

    async def rank_in_section(self, section_id: str, moved: str, before: str | None) -> str:
        """Find a place for a thread in a section: before another one, or at the end.

        Raises:
            NotInSection: the other thread is not in this section.
        """
        low, high = await self._follower.ask(partial(_neighbours, section_id, moved, before))
        return rank_between(low, high)

    async def project_recency(self) -> Mapping[str, int]:
        """Return when an unarchived thread of each project was last active, in milliseconds."""
        return await self._follower.ask(_project_recency)

    async def owners(
        self, attachment: tuple[str, str], archived: bool | None, after: str, limit: int
    ) -> Sequence[Owner]:
        """Return threads with an attachment of this type and key, by id, from `after` on."""
        return await self._follower.ask(partial(_owners, attachment, archived, after, limit))


def _neighbours(
    section_id: str, moved: str, before: str | None, index: ThreadIndex
) -> tuple[str | None, str | None]:
    bound = ""
    values: list[Any] = [section_id, moved]
    high = None
    with index.reading() as database:
        if before is not None:
            found = database.execute(
                "SELECT section_rank FROM threads WHERE id = ? AND section_id = ?",
                (before, section_id),
            ).fetchone()
            if found is None:
                raise NotInSection(before)
            (high,) = found
            bound = " AND (section_rank, id) < (?, ?)"
            values.extend([high, before])
        (low,) = database.execute(
            f"SELECT max(section_rank) FROM threads WHERE section_id = ? AND id <> ?{bound}",
            values,
        ).fetchone()
    # Two processes may have given the same rank: the new one then goes behind both.
    return (low, high) if high is None or low is None or low < high else (low, None)


def _project_recency(index: ThreadIndex) -> Mapping[str, int]:
    with index.reading() as database:
        return dict(
            database.execute(
                "SELECT project_id, max(recency_at_ms) FROM threads "
                "WHERE project_id IS NOT NULL AND NOT archived AND has_content "
                "GROUP BY project_id"
            ).fetchall()
        )


def _owners(
    attachment: tuple[str, str], archived: bool | None, after: str, limit: int, index: ThreadIndex
) -> Sequence[Owner]:
    which = "" if archived is None else " AND archived = ?"
    values = [to_json(attachment).decode(), after, *([] if archived is None else [archived])]
    with index.reading() as database:
        found = database.execute(
            "SELECT id, archived FROM threads WHERE attachments <> '[]' AND EXISTS "
            "(SELECT 1 FROM json_each(attachments) AS each WHERE each.value = json(?)) "
            f"AND id > ?{which} ORDER BY id LIMIT ?",
            (*values, limit),
        ).fetchall()
    return [Owner(thread_id, bool(is_archived)) for thread_id, is_archived in found]
