"""Projects and sections, the threads in them, and their ranks.

All disk work runs in worker threads.

A rank is a fraction below 1 in base 36, without its point and without zeros at its end: a string
that sorts, with room between any two, so that an order is never renumbered. Both ends of an order
have room for two billion ranks of six digits; each further one at one spot in between costs about a
fifth of a digit.
Source: docs/threads.md.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from app_server.threads.filing import Filing
from app_server.threads.index.follower import IndexFollower
from app_server.threads.index.index import ThreadIndex

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
BASE = len(DIGITS)
ENDS = 6
"""Digits of ranks at the ends."""


def rank_between(low: str | None, high: str | None) -> str:
    """Make a rank above `low` and below `high`; None stands for the end of the order.

    Raises:
        ValueError: `low` is not below `high`.
    """
    if low is None and high is None:
        return DIGITS[BASE // 2]
    if high is None and (above := _floor(low or "", ENDS) + 1) < BASE**ENDS:
        return _render(above, ENDS)
    if low is None and high is not None and (below := _ceiling(high, ENDS) - 1) > 0:
        return _render(below, ENDS)
    if low is not None and high is not None and low >= high:
        raise ValueError(f"{low} is not below {high}")
    for places in itertools.count(1):
        bottom = _floor(low or "", places)
        top = BASE**places if high is None else _ceiling(high, places)
        if top - bottom > 1:
            return _render((bottom + top) // 2, places)
    raise AssertionError("fractions are dense")


def _floor(rank: str, places: int) -> int:
    return int(rank[:places].ljust(places, "0"), BASE)


def _ceiling(rank: str, places: int) -> int:
    return _floor(rank, places) + (len(rank) > places)


def _render(number: int, places: int) -> str:
    digits: list[str] = []
    for _ in range(places):
        number, digit = divmod(number, BASE)
        digits.append(DIGITS[digit])
    return "".join(reversed(digits)).rstrip("0")


class NotInSection(Exception):
    """A thread is not where it was believed to be."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A thread that has an attachment."""

    id: str
    archived: bool


class Organization(Filing):
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
