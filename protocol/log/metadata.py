"""The lines of a rollout that say something about a thread, and nothing of what was said in it.

None of them counts as work: a thread's `updatedAt` stays.
Source: docs/wire.md, "Rollout lines"; docs/threads.md.
"""

from typing import Literal

from protocol.log.base import RecordBase
from protocol.model import absent_if_none
from protocol.threads.thread import (
    BudgetLimits,
    GitInfo,
    ThreadAttachment,
    ThreadGoal,
    ThreadMemoryMode,
    ThreadUnreadPosition,
)


class GitInfoChanged(RecordBase):
    """Where the repository stood, as a client says; null: nothing is known."""

    type: Literal["gitInfoChanged"] = "gitInfoChanged"
    git_info: GitInfo | None


class DaybreakChanged(RecordBase):
    """A mark that is kept for clients."""

    type: Literal["daybreakChanged"] = "daybreakChanged"
    enabled: bool


class ProjectChanged(RecordBase):
    """The project that the thread belongs to from here on."""

    type: Literal["projectChanged"] = "projectChanged"
    project_id: str | None


class SectionChanged(RecordBase):
    """The thread's section from here on, and its place there."""

    type: Literal["sectionChanged"] = "sectionChanged"
    section_id: str | None
    rank: str | None = None
    """Sorts within the section (app_server/threads/organization.py)."""


class MemoryModeChanged(RecordBase):
    """Whether the thread takes part in memories from here on."""

    type: Literal["memoryModeChanged"] = "memoryModeChanged"
    mode: ThreadMemoryMode


class ReadStateChanged(RecordBase):
    """How far the user has read."""

    type: Literal["readStateChanged"] = "readStateChanged"
    first_unread: ThreadUnreadPosition | None
    revision: str


class GoalChanged(RecordBase):
    """The thread's goal from here on, with what it has cost so far; null: none."""

    type: Literal["goalChanged"] = "goalChanged"
    goal: ThreadGoal | None


class BudgetChanged(RecordBase):
    """The thread's budget from here on; null: none."""

    type: Literal["budgetChanged"] = "budgetChanged"
    budget: BudgetLimits | None
    goes_on: bool | None = absent_if_none()
    """Whether a turn that a budget has ended is to go on."""


class AttachmentAdded(RecordBase):
    """Something was attached to the thread."""

    type: Literal["attachmentAdded"] = "attachmentAdded"
    attachment: ThreadAttachment


class AttachmentRemoved(RecordBase):
    """Something was taken off the thread."""

    type: Literal["attachmentRemoved"] = "attachmentRemoved"
    attachment_id: str


class OperationLogged(RecordBase):
    """What was appended with this line belongs to a request that its client named."""

    type: Literal["operationLogged"] = "operationLogged"
    operation_id: str
    turn_id: str | None = None
    """The turn that ran then, or began with it."""
    lines: int = 0
    """Of the same append, behind this one: all are there, or none counts."""


MetadataRecord = (
    GitInfoChanged
    | DaybreakChanged
    | ProjectChanged
    | SectionChanged
    | MemoryModeChanged
    | ReadStateChanged
    | GoalChanged
    | BudgetChanged
    | AttachmentAdded
    | AttachmentRemoved
    | OperationLogged
)
