"""Projects and sections: their state, and ranks in an order.

A rank is a fraction below 1 in base 36, without its point and without zeros at its end: a string
that sorts, with room between any two, so that an order is never renumbered. Both ends of an order
have room for two billion ranks of six digits; each further one at one spot in between costs about a
fifth of a digit.
Source: docs/threads.md.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from protocol.log.filing import (
    FiledProject,
    FilingRecord,
    ProjectDeleted,
    ProjectMoved,
    ProjectPut,
    SectionDeleted,
    SectionPut,
)
from protocol.threads.thread import ThreadSection

PINNED = ThreadSection(id="01984de2-8f74-7c91-a3b2-5c5e937cf318", name="Pinned")
"""The section that is always there; clients know its id."""


@dataclass(frozen=True, slots=True)
class FilingState:
    """Projects and sections at one moment."""

    sections: Mapping[str, ThreadSection] = field(
        default_factory=lambda: MappingProxyType({PINNED.id: PINNED})
    )
    projects: Mapping[str, FiledProject] = field(default_factory=lambda: MappingProxyType({}))
    """In their manual order."""
    keys: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Project id by the idempotency key of its creation; the project may be deleted."""

    def after(self, records: Iterable[FilingRecord]) -> "FilingState":
        """Return the state with some more records."""
        sections, projects, keys = dict(self.sections), dict(self.projects), dict(self.keys)
        for record in records:
            match record:
                case SectionPut():
                    sections[record.section.id] = record.section
                case SectionDeleted():
                    sections.pop(record.section_id, None)
                case ProjectPut():
                    projects[record.project.id] = record.project
                    if record.key is not None:
                        keys[record.key] = record.project.id
                case ProjectMoved():
                    projects = _moved(projects, record)
                case ProjectDeleted():
                    projects.pop(record.project_id, None)
        return replace(self, sections=sections, projects=projects, keys=keys)


def _moved(projects: dict[str, FiledProject], record: ProjectMoved) -> dict[str, FiledProject]:
    moved = projects.get(record.project_id)
    if moved is None:
        return projects
    order = [project_id for project_id in projects if project_id != moved.id]
    place = order.index(record.before_id) if record.before_id in order else len(order)
    order.insert(place, moved.id)
    return {project_id: projects[project_id] for project_id in order}


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
