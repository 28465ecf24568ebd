"""Where threads stand in projects and sections, read from the index. Everything here blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from app_server.threads.index.file import IndexFile


class NotInSection(Exception):
    """A thread is not where it was believed to be."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A thread that has an attachment."""

    id: str
    archived: bool


class Placement:
    """Reads rows of one index; safe to call from any worker thread."""

    def __init__(self, file: IndexFile) -> None:
        self._file = file

    def neighbours(
        self, section_id: str, moved: str, before: str | None
    ) -> tuple[str | None, str | None]:
        """Return the ranks between which a thread goes: before another one, or at the end.

        Raises:
            NotInSection: the other thread is not in this section.
        """
        bound = ""
        values: list[Any] = [section_id, moved]
        high = None
        with self._file.reading() as database:
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

    def project_recency(self) -> Mapping[str, int]:
        """Return when an unarchived thread of each project was last active, in milliseconds."""
        with self._file.reading() as database:
            return dict(
                database.execute(
                    "SELECT project_id, max(recency_at_ms) FROM threads "
                    "WHERE project_id IS NOT NULL AND NOT archived AND has_content "
                    "GROUP BY project_id"
                ).fetchall()
            )

    def owners(
        self, attachment: tuple[str, str], archived: bool | None, after: str, limit: int
    ) -> Sequence[Owner]:
        """Return threads with an attachment of this type and key, by id, from `after` on."""
        which = "" if archived is None else " AND archived = ?"
        values = [to_json(attachment).decode(), after, *([] if archived is None else [archived])]
        with self._file.reading() as database:
            found = database.execute(
                "SELECT id, archived FROM threads WHERE attachments <> '[]' AND EXISTS "
                "(SELECT 1 FROM json_each(attachments) AS each WHERE each.value = json(?)) "
                f"AND id > ?{which} ORDER BY id LIMIT ?",
                (*values, limit),
            ).fetchall()
        return [Owner(thread_id, bool(is_archived)) for thread_id, is_archived in found]
