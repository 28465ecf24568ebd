"""thread/attachment/*, thread/attachmentOwner/list: what is attached to threads."""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Json, OpenEnum, UInt32, WireModel
from protocol.thread_ids import ThreadIdParam
from protocol.threads.thread import ThreadAttachment


class ThreadAttachmentAddParams(WireModel):
    """Attach something to a thread, unless the thread has it already."""

    thread_id: ThreadIdParam
    attachment_type: str
    identity_key: str
    """Together with `attachmentType` it is unique within the thread."""
    payload: Json


ThreadAttachmentAddOutcome = TypeAliasType(
    "ThreadAttachmentAddOutcome", OpenEnum[Literal["created", "existing"]]
)
"""Whether the attachment is new or was there already."""


class ThreadAttachmentAddResponse(WireModel):
    """The attachment, new or found."""

    outcome: ThreadAttachmentAddOutcome
    attachment: ThreadAttachment


class ThreadAttachmentListParams(WireModel):
    """Page through a thread's attachments."""

    thread_id: ThreadIdParam
    cursor: str | None = None
    limit: UInt32 | None = None
    """Attachments a page; null lets the server choose."""


class ThreadAttachmentListResponse(WireModel):
    """One page of a thread's attachments."""

    data: list[ThreadAttachment]
    next_cursor: str | None = None
    """Null at the end."""


class ThreadAttachmentRemoveParams(WireModel):
    """Take an attachment off a thread."""

    thread_id: ThreadIdParam
    attachment_type: str
    identity_key: str


class ThreadAttachmentRemoveResponse(WireModel):
    """Nothing."""


class ThreadAttachmentOwnerListParams(WireModel):
    """Page through the threads that have a given attachment."""

    attachment_type: str
    identity_key: str
    archived: bool | None = None
    """False leaves out archived threads; null means all threads."""
    cursor: str | None = None
    limit: UInt32 | None = None
    """Threads a page; null lets the server choose."""


class ThreadAttachmentOwner(WireModel):
    """A thread that has the attachment."""

    thread_id: str
    archived: bool


class ThreadAttachmentOwnerListResponse(WireModel):
    """One page of threads that have the attachment."""

    data: list[ThreadAttachmentOwner]
    next_cursor: str | None = None
    """Null at the end."""


ThreadAttachmentOperation = TypeAliasType(
    "ThreadAttachmentOperation", OpenEnum[Literal["created", "deleted"]]
)
"""What happened to an attachment."""


class ThreadAttachmentUpdatedNotification(WireModel):
    """A thread gained or lost an attachment."""

    thread_id: str
    attachment_type: str
    identity_key: str
    attachment_id: str
    operation: ThreadAttachmentOperation
