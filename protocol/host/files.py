"""fs/*: files and folders of the server's machine, and news of their changes."""

from protocol.model import Int64, WireModel
from protocol.values import AbsolutePathBuf


class FsCopyParams(WireModel):
    """Copy a file, or a directory with all that is in it."""

    source_path: AbsolutePathBuf
    destination_path: AbsolutePathBuf
    recursive: bool = False
    """Needed for directories; ignored for files."""


class FsCopyResponse(WireModel):
    """Nothing."""


class FsCreateDirectoryParams(WireModel):
    """Create a directory."""

    path: AbsolutePathBuf
    recursive: bool | None = None
    """Create missing parents too; null means true."""


class FsCreateDirectoryResponse(WireModel):
    """Nothing."""


class FsGetMetadataParams(WireModel):
    """Ask what is at a path."""

    path: AbsolutePathBuf


class FsGetMetadataResponse(WireModel):
    """What is at the path."""

    is_directory: bool
    """After following a symbolic link."""
    is_file: bool
    """A regular file, after following a symbolic link."""
    is_symlink: bool
    """Whether the path itself is a link."""
    created_at_ms: Int64
    """Unix milliseconds; 0 if not known."""
    modified_at_ms: Int64
    """Unix milliseconds; 0 if not known."""


class FsReadDirectoryParams(WireModel):
    """List what is directly in a directory."""

    path: AbsolutePathBuf


class FsReadDirectoryEntry(WireModel):
    """One file or directory in a directory."""

    file_name: str
    """Without the path of the directory."""
    is_directory: bool
    """After following a symbolic link."""
    is_file: bool


class FsReadDirectoryResponse(WireModel):
    """What is directly in the directory."""

    entries: list[FsReadDirectoryEntry]


class FsReadFileParams(WireModel):
    """Read a whole file."""

    path: AbsolutePathBuf


class FsReadFileResponse(WireModel):
    """The bytes of the file."""

    data_base64: str


class FsRemoveParams(WireModel):
    """Delete a file or a directory."""

    path: AbsolutePathBuf
    recursive: bool | None = None
    """Delete what is in the directory too; null means true."""
    force: bool | None = None
    """Accept that there is nothing at the path; null means true."""


class FsRemoveResponse(WireModel):
    """Nothing."""


class FsUnwatchParams(WireModel):
    """Stop watching a path."""

    watch_id: str
    """The one given to `fs/watch`."""


class FsUnwatchResponse(WireModel):
    """Nothing."""


class FsWatchParams(WireModel):
    """Watch a file or directory: changes arrive as `fs/changed`."""

    watch_id: str
    """Chosen by the client, for its connection."""
    path: AbsolutePathBuf


class FsWatchResponse(WireModel):
    """What is being watched."""

    path: AbsolutePathBuf
    """The canonical form of the path that was given."""


class FsWriteFileParams(WireModel):
    """Write a file."""

    path: AbsolutePathBuf
    data_base64: str
    """All that the file is to hold."""


class FsWriteFileResponse(WireModel):
    """Nothing."""


class FsChangedNotification(WireModel):
    """Something changed at a watched path."""

    watch_id: str
    """The one given to `fs/watch`."""
    changed_paths: list[AbsolutePathBuf]
