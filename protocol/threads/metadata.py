"""thread/name/set, thread/metadata/update, thread/memory*: what is said of a thread."""

from protocol.model import WireModel, experimental
from protocol.thread_ids import ThreadIdParam
from protocol.threads.thread import Thread, ThreadMemoryMode


class ThreadMemoryReadParams(WireModel):
    """Read what is remembered for a loaded thread."""

    thread_id: ThreadIdParam


class ThreadMemoryReadResponse(WireModel):
    """The memory, summed up."""

    summary: str | None = None
    """Null when memories are off or there are none."""


class ThreadMemoryModeSetParams(WireModel):
    """Switch memories on or off for a thread."""

    thread_id: ThreadIdParam
    mode: ThreadMemoryMode


class ThreadMemoryModeSetResponse(WireModel):
    """Nothing."""


class ThreadMetadataGitInfoUpdateParams(WireModel):
    """What to change of the stored Git data: left out keeps, null clears."""

    sha: str | None = None
    branch: str | None = None
    origin_url: str | None = None


class ThreadMetadataUpdateParams(WireModel):
    """Change what is stored about a thread; what is left out stays."""

    thread_id: ThreadIdParam
    project_id: str | None = experimental()
    """An existing project; empty takes the thread out of its project."""
    git_info: ThreadMetadataGitInfoUpdateParams | None = None
    daybreak_enabled: bool | None = experimental()
    """Only kept for the client; turns do not go by it."""


class ThreadMetadataUpdateResponse(WireModel):
    """The thread as it is now."""

    thread: Thread


class ThreadSetNameParams(WireModel):
    """Give a thread a name of at least one visible character."""

    thread_id: ThreadIdParam
    name: str


class ThreadSetNameResponse(WireModel):
    """Nothing: the name is in the log."""
