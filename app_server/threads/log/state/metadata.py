"""What is stored about a thread besides what was said in it. No I/O.

Source: docs/threads.md.
"""

import uuid
from dataclasses import dataclass, field

from protocol.log.metadata import (
    AttachmentAdded,
    AttachmentRemoved,
    DaybreakChanged,
    GitInfoChanged,
    GoalChanged,
    MemoryModeChanged,
    MetadataRecord,
    ProjectChanged,
    ReadStateChanged,
    SectionChanged,
)
from protocol.threads.thread import (
    GitInfo,
    ThreadAttachment,
    ThreadGoal,
    ThreadMemoryMode,
    ThreadReadState,
    ThreadUnreadPosition,
    TurnThreadUnreadPosition,
)


@dataclass(slots=True)
class ThreadMetadata:
    """The sum of a thread's metadata records."""

    git_info: GitInfo | None = None
    daybreak_enabled: bool | None = None
    project_id: str | None = None
    """The project may have been deleted since; then the thread is in none."""
    section_id: str | None = None
    """As with projects."""
    section_rank: str | None = None
    section_entered_at_ms: int | None = None
    memory_mode: ThreadMemoryMode = "enabled"
    read_state: ThreadReadState | None = None
    goal: ThreadGoal | None = None
    attachments: list[ThreadAttachment] = field(default_factory=list)
    """Oldest first."""

    def apply(self, record: MetadataRecord) -> None:
        """Take one more record into account."""
        match record:
            case GitInfoChanged():
                self.git_info = record.git_info
            case DaybreakChanged():
                self.daybreak_enabled = record.enabled
            case ProjectChanged():
                self.project_id = record.project_id
            case SectionChanged():
                self._move(record)
            case MemoryModeChanged():
                self.memory_mode = record.mode
            case ReadStateChanged():
                self.read_state = ThreadReadState(
                    first_unread=record.first_unread, revision=record.revision
                )
            case GoalChanged():
                self.goal = record.goal
            case AttachmentAdded():
                self.attachments.append(record.attachment)
            case AttachmentRemoved():
                self.attachments = [a for a in self.attachments if a.id != record.attachment_id]

    def _move(self, record: SectionChanged) -> None:
        if record.section_id is None:
            self.section_entered_at_ms = None
        elif record.section_id != self.section_id:
            self.section_entered_at_ms = record.at_ms
        self.section_id, self.section_rank = record.section_id, record.rank

    def attachment(self, attachment_type: str, identity_key: str) -> ThreadAttachment | None:
        """Find what is attached under these two names."""
        for attachment in self.attachments:
            named = attachment.attachment_type, attachment.identity_key
            if named == (attachment_type, identity_key):
                return attachment
        return None


def initial_read_state(thread_id: str) -> ThreadReadState:
    """Say how far a thread has been read in which nothing ever became unread."""
    return ThreadReadState(first_unread=None, revision=f"initial:{thread_id}")


def unread_from(state: ThreadReadState | None, turn_id: str, at_ms: int) -> ReadStateChanged:
    """Note that a turn has something to read; what was unread before stays so."""
    position: ThreadUnreadPosition | None = None if state is None else state.first_unread
    return ReadStateChanged(
        at_ms=at_ms,
        first_unread=position or TurnThreadUnreadPosition(turn_id=turn_id),
        revision=new_revision(),
    )


def new_revision() -> str:
    """Make the name of a read state; clients compare it and nothing else."""
    return str(uuid.uuid4())
