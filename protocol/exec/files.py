"""Files in the exec protocol: read, and changed by patches.

Not part of the app-server's own wire, and not in its schema.
Source: docs/environments.md, "The exec protocol".
"""

from typing import Annotated, Literal

from pydantic import Field

from protocol.exec.processes import ProcessNumber, WorkPolicy
from protocol.model import JsonObject, WireModel

MAX_PATH_CHARS = 4096

AbsolutePath = Annotated[
    str, Field(min_length=1, max_length=MAX_PATH_CHARS, pattern=r"^/[^\x00]*$")
]


class FileProfile(WireModel):
    """A permission profile in the form in which MCP servers are told of it."""

    profile: JsonObject
    cwd: AbsolutePath
    """The folder of the project, and where relative patterns begin."""


class FileOpenParams(WorkPolicy):
    """Read a regular file: its bytes are stdout, the end of which ends the process."""

    process_id: ProcessNumber
    path: AbsolutePath
    profile: FileProfile | None = None
    """It has to let the file be read too."""


class PatchStartParams(WorkPolicy):
    """Plan a patch, and write it when it is allowed: see `PatchText` for what is said over it."""

    process_id: ProcessNumber
    cwd: AbsolutePath
    """Where the paths of the patch begin."""


class PatchText(WireModel):
    """The first line of stdin: what the model wrote."""

    patch: str


class FileText(WireModel):
    """A file as it is before a patch."""

    text: str
    """Of a link its target."""
    mode: int
    """Type and rights, as the system has them."""


class PlannedFile(WireModel):
    """One file that a patch changes; a place is where an absolute path leads to, without links."""

    kind: Literal["add", "delete", "update"]
    named: str
    """Its path as the patch has it; of a move the new one."""
    path: str
    """The absolute one."""
    place: str
    before: FileText | None
    """Null: there is no file yet."""
    after: str | None
    """The text that it becomes; null: it goes."""
    move_path: str | None = None
    """The absolute path of the new name; null: it keeps its name."""
    move_place: str | None = None
    replaced: FileText | None = None
    """What has the new name so far."""


class PatchPlanned(WireModel):
    """The first line of stdout: what the patch would do, or why it cannot be."""

    failure: str | None = None
    """Why not, for the model; then nothing else follows."""
    is_empty: bool = False
    """Whether it fails for naming no file."""
    files: list[PlannedFile] = []
    outside: dict[str, str] = {}
    """Places that the policy does not let be written, each with the path that leads there."""
    locked: list[str] = []
    """Paths of files that nobody may write, by their rights; empty where nothing is confined."""


class PatchAllowed(WireModel):
    """The second line of stdin: the patch is to be written. Without it nothing is."""

    write: Literal[True] = True


class PatchWritten(WireModel):
    """The second line of stdout: what became of it."""

    failure: str | None = None
    changed: list[int] = []
    """With a failure: the files that had been changed by then, as numbers in `files`."""
