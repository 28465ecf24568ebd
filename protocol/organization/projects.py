"""project/*, thread/project/updated: named sets of folders that threads belong to."""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int64, OpenEnum, UInt32, WireModel
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


ProjectChangeType = TypeAliasType(
    "ProjectChangeType", OpenEnum[Literal["created", "updated", "deleted"]]
)
"""What happened to a project."""


class ProjectChangedNotification(WireModel):
    """A project was created, changed or deleted."""

    project_id: str
    change_type: ProjectChangeType


class ThreadProjectUpdatedNotification(WireModel):
    """A thread changed its project."""

    thread_id: str
    project_id: str | None
    """Null if the thread is in none now."""
