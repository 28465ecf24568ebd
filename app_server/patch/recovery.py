"""Patches that a process died with: what it wrote down before, and what the next one makes of it.

What is here reads files and blocks: call it in a worker.
Source: docs/tools.md, "Patches".
"""

import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress

from app_server.patch.plan import MAX_FILE_BYTES, Plan
from app_server.patch.shown import touched
from app_server.patch.unified import blob_name
from app_server.patch.write import temporary_name
from app_server.runtime.files.reaching import NotReached, Reached, reached
from protocol.log.rollout import ChangingFile, FilesChanging
from protocol.turns.items import (
    AddPatchChangeKind,
    DeletePatchChangeKind,
    FileChangeThreadItem,
    FileUpdateChange,
    PatchChangeKind,
    UpdatePatchChangeKind,
)


def changing_files(plan: Plan, token: str | None) -> list[ChangingFile]:
    """Say what a plan is about to do, for who comes after a death.

    `token` is that of `write_plan`; None where another machine writes the plan.
    """
    files: list[ChangingFile] = []
    for number, change in enumerate(plan.changes):
        for one in touched([change]):
            before, after = (
                None if file is None else blob_name(file.text.encode())
                for file in (one.before, one.after)
            )
            temporary = None
            if token is not None and after is not None:
                temporary = temporary_name(one.path, token, number)
            files.append(
                ChangingFile(path=one.path, before=before, after=after, temporary=temporary)
            )
    return files


def recover(record: FilesChanging) -> FileChangeThreadItem:
    """Remove what a dead process left beside the files, and say which of them it changed.

    The item has failed. It names the files that are as they were to be, with an empty diff, as the
    old texts are not known any more. Of another machine it names all files that were to change.
    """
    is_here = record.environment_id is None
    if is_here:
        _remove_temporaries(record.files)
    changes = [
        FileUpdateChange(path=file.path, kind=_kind(file), diff="")
        for file in sorted(record.files, key=lambda one: one.path)
        if file.before != file.after and (not is_here or _blob_at(file.path) == file.after)
    ]
    return FileChangeThreadItem(id=record.item_id, changes=changes, status="failed")


def _remove_temporaries(files: Iterable[ChangingFile]) -> None:
    for file in files:
        if file.temporary is None:
            continue
        # No name of a folder gets in here from a log that somebody else has written.
        place = f"{os.path.dirname(file.path)}/{os.path.basename(file.temporary)}"  # noqa: PTH119, PTH120
        with (
            suppress(NotReached, OSError),
            reached(place, place.__eq__, follows=False) as there,
        ):
            os.unlink(there.name, dir_fd=there.folder)


def _blob_at(path: str) -> str | None:
    """Return what git calls the content of a file; None where there is no file."""
    with suppress(NotReached, OSError), reached(path, path.__eq__, follows=False) as there:
        return blob_name(_content(there))
    return None


def _content(there: Reached) -> bytes:
    assert there.found is not None
    if stat.S_ISLNK(there.found.st_mode):
        return os.fsencode(os.readlink(there.name, dir_fd=there.folder))
    # A folder would be opened, and its descriptor stay open as no file can be made of it.
    if not stat.S_ISREG(there.found.st_mode):
        return b""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(there.name, flags, dir_fd=there.folder), "rb") as file:
        return file.read(MAX_FILE_BYTES)


def _kind(file: ChangingFile) -> PatchChangeKind:
    if file.before is None:
        return AddPatchChangeKind()
    if file.after is None:
        return DeletePatchChangeKind()
    return UpdatePatchChangeKind()


def recover_all(records: Sequence[FilesChanging]) -> list[FileChangeThreadItem]:
    """Recover several patches, in their order."""
    return [recover(record) for record in records]
