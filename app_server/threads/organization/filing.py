"""The projects and sections of one home.

The state is replaced as a whole, never changed, so that whoever holds one sees one moment. Changes
of other servers on the same home are seen at the next `refresh`.
Source: docs/threads.md, "Projects and sections".
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import anyio
import anyio.to_thread

from app_server.threads.organization.shared_log import NewLines, SharedLog
from protocol.log.filing import (
    FiledProject,
    FilingRecord,
    ProjectDeleted,
    ProjectMoved,
    ProjectPut,
    SectionDeleted,
    SectionPut,
    parse_filing_record,
)
from protocol.log.rollout import render_record
from protocol.threads.thread import ThreadSection

logger = logging.getLogger(__name__)

PINNED = ThreadSection(id="01984de2-8f74-7c91-a3b2-5c5e937cf318", name="Pinned")
"""The section that is always there; clients know its id."""


@dataclass(frozen=True, slots=True)
class FilingState:
    """What there is at one moment."""

    sections: Mapping[str, ThreadSection] = field(
        default_factory=lambda: MappingProxyType({PINNED.id: PINNED})
    )
    projects: Mapping[str, FiledProject] = field(default_factory=lambda: MappingProxyType({}))
    """In their manual order."""
    keys: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What creations were named, to the project that came of each; it may be deleted."""

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


class Filing:
    """The log of projects and sections, and what it adds up to."""

    def __init__(self, path: Path) -> None:
        self.state = FilingState()
        self._path = path
        self._log = SharedLog(path)
        self._problem: str | None = None
        """Why the log cannot be read; it is told once."""
        self._turn = anyio.Lock()

    async def refresh(self) -> FilingState:
        """Take over what other servers have added.

        Raises:
            OSError: the log cannot be read, or another process held it for 5 s.
        """
        # While another task reads or writes, how far it has read is no sign of what `state` has.
        if not self._turn.locked() and not self._log.has_new():
            return self.state
        async with self._turn:
            with anyio.CancelScope(shield=True):
                new = await anyio.to_thread.run_sync(self._log.read_new)
            self.state = _after(self.state, new)
        return self.state

    async def latest(self) -> FilingState:
        """Do as `refresh`; while the log cannot be read, return what was read of it before."""
        try:
            state = await self.refresh()
        except OSError as exc:
            if exc.strerror != self._problem:
                self._problem = exc.strerror
                logger.warning("projects and sections (%s): %s", self._path, exc.strerror)
            return self.state
        self._problem = None
        return state

    async def change(
        self, decide: Callable[[FilingState], Sequence[FilingRecord]]
    ) -> Sequence[FilingRecord]:
        """Add what `decide` makes of the state; it is on disk when this returns.

        `decide` runs in a worker thread; what it raises comes out, and nothing was added. Returns
        what was added. Cancelling waits for a write that has begun.

        Raises:
            OSError: the disk refused, or other processes held the log for 5 s; nothing was added.
        """
        added: Sequence[FilingRecord] = ()
        state = self.state

        def append(new: NewLines) -> Sequence[bytes]:
            nonlocal added, state
            state = _after(state, new)
            added = decide(state)
            return [render_record(record) for record in added]

        async with self._turn:
            state = self.state
            try:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._log.append, append)
            finally:
                # What others had added counts also when ours was refused.
                self.state = state
            self.state = state.after(added)
        return added


def _after(state: FilingState, new: NewLines) -> FilingState:
    if not new.lines and not new.is_all:
        return state
    records = map(parse_filing_record, new.lines)
    before = FilingState() if new.is_all else state
    return before.after(record for record in records if record is not None)
