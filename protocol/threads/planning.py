"""project/*, threadSection/*, thread/{attachment,attachmentOwner,goal,queue,section}/*.

Also thread/compact/start and thread/prepareApprovedPlan: which threads and things belong together,
what a thread works towards, and what it does next.
"""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int64, Json, OpenEnum, UInt32, WireModel
from protocol.thread_ids import ThreadIdParam
from protocol.threads.facts import ThreadAttachment, ThreadGoal, ThreadGoalStatus
from protocol.threads.thread import ThreadSection, ThreadSectionAppearance
from protocol.turns.items import UserInput
from protocol.turns.turn import Turn
from protocol.values import AbsolutePathBuf, SortDirection


class ProjectRoot(WireModel):
    """A directory that belongs to a project."""

    path: AbsolutePathBuf


class ProjectCreateParams(WireModel):
    """Create a project."""

    name: str
    roots: list[ProjectRoot]
    """The order is kept."""
    metadata: dict[str, str] | None = None
    """Strings for the client's own use; the server only keeps them."""
    idempotency_key: str
    """Opaque, made by the client; a key used before returns the project it made."""


class Project(WireModel):
    """A named set of directories that threads can belong to. Times are Unix seconds."""

    id: str
    name: str
    roots: list[ProjectRoot]
    metadata: dict[str, str]
    position: Int64
    """Place in the manual order."""
    created_at: Int64
    updated_at: Int64
    recency_at: Int64 | None = None
    """When an unarchived thread of it was last active; null if it has none."""


class ProjectCreateResponse(WireModel):
    """The new project, or the one that the key made before."""

    project: Project


class ProjectDeleteParams(WireModel):
    """Delete a project; its threads and files stay."""

    project_id: str


class ProjectDeleteResponse(WireModel):
    """Nothing."""


class ProjectImportParams(WireModel):
    """Create a project and put existing threads into it."""

    name: str
    roots: list[ProjectRoot]
    metadata: dict[str, str] | None = None
    threads: list[str] | None = None
    """Ids of the threads that go in."""
    idempotency_key: str
    """As in `project/create`; a key used before assigns no threads again."""


class ProjectImportResponse(WireModel):
    """The new project, or the one that the key made before."""

    project: Project


ProjectSortKey = TypeAliasType("ProjectSortKey", Literal["position", "recencyAt"])
"""What projects are ordered by: the manual order, or the last activity."""


class ProjectListParams(WireModel):
    """Page through the projects."""

    cursor: str | None = None
    """Opaque: `nextCursor` of the page before; null starts over."""
    limit: UInt32 | None = None
    """Projects a page; null lets the server choose."""
    sort_key: ProjectSortKey | None = None
    """Null means `position`; `recencyAt` puts projects without threads last."""
    sort_direction: SortDirection | None = None
    """Needs `sortKey`; null means `asc` for `position`, `desc` for `recencyAt`."""


class ProjectListResponse(WireModel):
    """One page of projects."""

    data: list[Project]
    next_cursor: str | None = None
    """Null at the end."""


class ProjectMoveParams(WireModel):
    """Move a project within the manual order."""

    project_id: str
    before_project_id: str | None = None
    """The project to insert it before; null moves it to the end."""


class ProjectMoveResponse(WireModel):
    """Nothing."""


class ProjectReadParams(WireModel):
    """Look at one project."""

    project_id: str


class ProjectReadResponse(WireModel):
    """The project that was asked for."""

    project: Project


class ProjectUpdateParams(WireModel):
    """Change a project; members that are left out stay as they are."""

    project_id: str
    name: str | None = None
    roots: list[ProjectRoot] | None = None
    metadata: dict[str, str] | None = None


class ProjectUpdateResponse(WireModel):
    """The project after the change."""

    project: Project


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


class ThreadCompactStartParams(WireModel):
    """Compact a thread's history, in a turn of its own."""

    thread_id: ThreadIdParam


class ThreadCompactStartResponse(WireModel):
    """Nothing: the work shows as a turn with a `contextCompaction` item."""


ThreadGoalMutationOrigin = TypeAliasType("ThreadGoalMutationOrigin", Literal["user", "automatic"])
"""Whether the user asked for a change of the goal, or it came about by itself."""


class ThreadGoalClearParams(WireModel):
    """Remove a thread's goal."""

    thread_id: ThreadIdParam
    origin: ThreadGoalMutationOrigin | None = None
    """Without it the change does not count as one that the user asked for."""


class ThreadGoalClearResponse(WireModel):
    """Whether there was a goal to remove."""

    cleared: bool


class ThreadGoalGetParams(WireModel):
    """Look at a thread's goal."""

    thread_id: ThreadIdParam


class ThreadGoalGetResponse(WireModel):
    """The thread's goal."""

    goal: ThreadGoal | None = None
    """Null if the thread has none."""


class ThreadGoalSetParams(WireModel):
    """Give a thread a goal, or change the one it has."""

    thread_id: ThreadIdParam
    origin: ThreadGoalMutationOrigin | None = None
    """Without it the change does not count as one that the user asked for."""
    objective: str | None = None
    status: ThreadGoalStatus | None = None
    token_budget: Int64 | None = None
    """Tokens that the goal may cost; absent keeps the limit, null removes it."""


class ThreadGoalSetResponse(WireModel):
    """The goal as it is now."""

    goal: ThreadGoal


class ThreadPrepareApprovedPlanParams(WireModel):
    """Get an approved plan ready for the first turn of a fresh thread."""

    thread_id: ThreadIdParam
    markdown: str
    """The plan itself."""
    attachment_path: str | None = None
    """Absolute path of the server's copy of the plan, if there is one."""


class ThreadPrepareApprovedPlanResponse(WireModel):
    """What to begin the first turn with."""

    prompt: str
    """The first user message; a plan without a readable attachment is in the context."""


class ThreadQueueAddParams(WireModel):
    """Keep input until the thread is idle; it then starts a turn."""

    thread_id: ThreadIdParam
    input: list[UserInput]
    client_user_message_id: str
    """Chosen by the client, for the user message that comes of it."""
    responsesapi_client_metadata: dict[str, str] | None = None
    """Goes to the model's API with this input."""


class QueuedSubmission(WireModel):
    """Input that waits until the thread is idle."""

    id: str
    input: list[UserInput]
    client_user_message_id: str
    responsesapi_client_metadata: dict[str, str] | None = None
    """Stays with the input for as long as it waits."""


class ThreadQueueAddResponse(WireModel):
    """The input as it was queued."""

    queued_submission: QueuedSubmission


class ThreadQueueDeleteParams(WireModel):
    """Take an input out of a thread's queue."""

    thread_id: ThreadIdParam
    queued_submission_id: str


class ThreadQueueDeleteResponse(WireModel):
    """Whether the input was still in the queue."""

    deleted: bool


class ThreadQueueListParams(WireModel):
    """Page through a thread's queue."""

    thread_id: ThreadIdParam
    cursor: str | None = None
    limit: UInt32 | None = None
    """Inputs a page; null lets the server choose."""


class ThreadQueueListResponse(WireModel):
    """One page of queued inputs."""

    data: list[QueuedSubmission]
    next_cursor: str | None = None
    """Null at the end."""


class ThreadQueueReorderParams(WireModel):
    """Put a thread's queue into another order."""

    thread_id: ThreadIdParam
    queued_submission_ids: list[str]
    """In the new order."""


class ThreadQueueReorderResponse(WireModel):
    """Nothing."""


class ThreadQueueStartParams(WireModel):
    """Start a turn with a queued input; the thread must be idle."""

    thread_id: ThreadIdParam
    queued_submission_id: str | None = None
    """Null takes the first in the queue."""


class ThreadQueueStartResponse(WireModel):
    """The turn that took the input."""

    turn: Turn


class ThreadQueueUpdateParams(WireModel):
    """Change a queued input; its ids and its place stay."""

    thread_id: ThreadIdParam
    queued_submission_id: str
    input: list[UserInput]
    responsesapi_client_metadata: dict[str, str] | None = None
    """Replaces what the input has; absent or empty keeps it."""


class ThreadQueueUpdateResponse(WireModel):
    """The input after the change."""

    queued_submission: QueuedSubmission


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


ProjectChangeType = TypeAliasType(
    "ProjectChangeType", OpenEnum[Literal["created", "updated", "deleted"]]
)
"""What happened to a project."""


class ProjectChangedNotification(WireModel):
    """A project was created, changed or deleted."""

    project_id: str
    change_type: ProjectChangeType


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


class ContextCompactedNotification(WireModel):
    """A thread was compacted; deprecated for the `contextCompaction` item."""

    thread_id: str
    turn_id: str


class ThreadGoalClearedNotification(WireModel):
    """A thread's goal was removed."""

    thread_id: str


class ThreadProjectUpdatedNotification(WireModel):
    """A thread changed its project."""

    thread_id: str
    project_id: str | None
    """Null if the thread is in none now."""


class ThreadSectionChangedNotification(WireModel):
    """A thread was moved into, within or out of a section."""

    thread_id: str
    section_id: str | None
    """Null if the thread is in none now."""
