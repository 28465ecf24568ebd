"""threadSection/*, thread/section/*: the sections in which clients show threads."""

from protocol.model import UInt32, WireModel
from protocol.thread_ids import ThreadIdParam
from protocol.threads.thread import ThreadSection, ThreadSectionAppearance


class ThreadSectionMoveParams(WireModel):
    """Put a thread into a section, move it within one, or take it out."""

    thread_id: ThreadIdParam
    section_id: str | None
    """Null takes the thread out of its section."""
    before_thread_id: ThreadIdParam | None = None
    """The thread to insert it before; null puts it at the end."""


class ThreadSectionMoveResponse(WireModel):
    """Nothing."""


class ThreadSectionCreateParams(WireModel):
    """Create a section to file threads in."""

    name: str
    """Not empty."""
    appearance: ThreadSectionAppearance | None = None


class ThreadSectionCreateResponse(WireModel):
    """The new section."""

    section: ThreadSection


class ThreadSectionDeleteParams(WireModel):
    """Delete a section; its threads stay, without one."""

    section_id: str


class ThreadSectionDeleteResponse(WireModel):
    """Nothing."""


class ThreadSectionListParams(WireModel):
    """Page through the sections."""

    cursor: str | None = None
    limit: UInt32 | None = None
    """Sections a page; null lets the server choose."""


class ThreadSectionListResponse(WireModel):
    """One page of sections."""

    data: list[ThreadSection]
    next_cursor: str | None = None
    """Null at the end."""


class ThreadSectionUpdateParams(WireModel):
    """Rename a section, and change how it looks if asked to."""

    section_id: str
    name: str
    appearance: ThreadSectionAppearance | None = None
    """Absent keeps it, null removes it."""


class ThreadSectionUpdateResponse(WireModel):
    """The section after the change."""

    section: ThreadSection


class ThreadSectionChangedNotification(WireModel):
    """A thread was moved into, within or out of a section."""

    thread_id: str
    section_id: str | None
    """Null if the thread is in none now."""
