"""Writes what was planned: every file is replaced as a whole, and none before all can be.

First the new files are written beside the old ones, under names of their own; then it is checked
that nothing has changed since the plan was made; then they take the old ones' places, one after
another. A process that dies leaves each file as it was or as it should be, and perhaps files under
the other names. As git does with the files of a working tree, nobody waits for the disk: what a
machine that dies leaves behind is up to its file system. What a process that died wrote down
before, and what the next one makes of it, stands at the end.
What is here blocks: call it in a worker.
Source: docs/tools.md, "Patches".
"""

import os
import posixpath
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from app_server.patch.parse import NotWritten
from app_server.patch.plan import MAX_FILE_BYTES, FileState, Plan, PlannedChange
from app_server.patch.unified import blob_name
from app_server.runtime.files.reaching import NotReached, Reached, folders_made, reached
from app_server.runtime.machine import machine_name
from protocol.log.rollout import ChangingFile, FilesChanging
from protocol.turns.items import (
    AddPatchChangeKind,
    DeletePatchChangeKind,
    FileChangeThreadItem,
    FileUpdateChange,
    PatchChangeKind,
    UpdatePatchChangeKind,
)

TEMPORARY_SUFFIX = ".app-server-patch"
"""Suffix of temporary files."""

MAX_FOLDERS = 128
"""Folders that stay open while files in them are written; others are opened for each file."""

MAX_NAME_CHARS = 40
"""Of the name that a temporary name begins with."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def new_token() -> str:
    """Make the token in the names of the temporary files of one write."""
    return secrets.token_hex(4)


def temporary_name(place: str, token: str, number: int) -> str:
    """Return what the file that is to be at a place is called until then, in the same folder."""
    name = posixpath.basename(place)[:MAX_NAME_CHARS]
    return f".{name}.{token}-{number}{TEMPORARY_SUFFIX}"


def write_plan(plan: Plan, token: str) -> None:
    """Make all changes of a plan; blocks until they are made.

    The new files are called by `temporary_name` at first, with the numbers of their changes.
    Nothing is written to a place but the one that the plan names, whatever links are put in its
    way meanwhile; folders that are missing are made.

    Raises:
        NotWritten: the disk refused, or a file is not what it was; `changed` are the changes that
            had been made. Unless it names some, there are none.
    """
    with ExitStack() as open_folders:
        folders = _Folders(open_folders)
        staged = [
            _Staged(number, change, folders, token) for number, change in enumerate(plan.changes)
        ]
        try:
            for one in staged:
                one.write()
            for one in staged:
                one.check()
            for done, one in enumerate(staged):
                try:
                    one.replace()
                except NotWritten as exc:
                    raise NotWritten(str(exc), range(done)) from None
        finally:
            for one in staged:
                one.discard()


class _Folders:
    """The folders that are written in; the first of them stay open until all is done."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._open: dict[str, int] = {}

    @contextmanager
    def of(self, path: str, place: str) -> Iterator[tuple[int, str]]:
        """Open the folder of a place, made if it is missing; gives it, and the name in it.

        Raises:
            NotWritten: the system refuses that, or what is done while the context lasts.
        """
        parent, name = os.path.split(place)
        try:
            with self._folder(parent, place) as folder:
                yield folder, name
        except NotReached as exc:
            raise NotWritten(f"Failed to write file {path}: {exc}") from None
        except OSError as exc:
            reason = os.strerror(exc.errno) if exc.errno else str(exc)
            raise NotWritten(f"Failed to write file {path}: {reason}") from None

    @contextmanager
    def _folder(self, parent: str, place: str) -> Iterator[int]:
        folder = self._open.get(parent)
        if folder is None and len(self._open) < MAX_FOLDERS:
            folder = self._open[parent] = self._stack.enter_context(_folder_of(place))
        if folder is not None:
            yield folder
        else:
            with _folder_of(place) as opened:
                yield opened


@contextmanager
def _folder_of(place: str) -> Iterator[int]:
    with (
        reached(place, place.__eq__, follows=False, may_be_missing=True) as there,
        folders_made(there) as (made, _name),
    ):
        # The folders on the way are closed: each may lie below a hundred of them.
        folder = os.dup(made)
    try:
        yield folder
    finally:
        os.close(folder)


@dataclass(slots=True)
class _Staged:
    """One change, and the file that is to take its place."""

    number: int
    change: PlannedChange
    folders: _Folders
    token: str
    temporary: str | None = None

    @property
    def _target(self) -> tuple[str, str, FileState | None]:
        """The path and the place that are written, and what is there."""
        change = self.change
        if change.move_path is None or change.move_place is None:
            return change.path, change.place, change.before
        return change.move_path, change.move_place, change.replaced

    def write(self) -> None:
        """Write the new file, with the rights and the owner of the old one."""
        if self.change.after is None:
            return
        path, place, _ = self._target
        like = self.change.before
        temporary = temporary_name(place, self.token, self.number)
        with self.folders.of(path, place) as (folder, _name):
            number = os.open(temporary, _NEW, 0o666 if like is None else 0o600, dir_fd=folder)
            self.temporary = temporary
            with os.fdopen(number, "wb") as file:
                file.write(self.change.after.encode())
                if like is not None:
                    _dress(number, like)

    def check(self) -> None:
        """Make sure that everything is as it was planned with.

        Raises:
            NotWritten: it is not.
        """
        change = self.change
        expected = [(change.path, change.place, change.before)]
        if change.move_place is not None:
            expected.append(self._target)
        for path, place, before in expected:
            with self.folders.of(path, place) as (folder, name):
                found = _look(folder, name)
            if found is not None if before is None else not before.is_same(found):
                raise NotWritten(f"Failed to write file {path}: it has changed meanwhile")

    def replace(self) -> None:
        """Put the new file into its place, and take away what goes."""
        path, place, _ = self._target
        if self.temporary is not None:
            with self.folders.of(path, place) as (folder, name):
                os.rename(self.temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            self.temporary = None
        if self.change.after is None or self.change.move_place is not None:
            with self.folders.of(self.change.path, self.change.place) as (folder, name):
                os.unlink(name, dir_fd=folder)

    def discard(self) -> None:
        """Take away the new file if it is not in its place."""
        if self.temporary is not None:
            path, place, _ = self._target
            with suppress(NotWritten), self.folders.of(path, place) as (folder, _name):
                os.unlink(self.temporary, dir_fd=folder)


def _look(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _dress(number: int, like: FileState) -> None:
    """Give a file the owner, the rights and the attributes of another one.

    Raises:
        OSError: its owner cannot be kept.
    """
    wanted, now = like.status, os.fstat(number)
    if (wanted.st_uid, wanted.st_gid) != (now.st_uid, now.st_gid):
        os.fchown(number, wanted.st_uid, wanted.st_gid)
    for name, value in like.attributes.items():
        # Some belong to the system alone, which sets them by itself.
        with suppress(OSError):
            os.setxattr(number, name, value)
    os.fchmod(number, wanted.st_mode & 0o7777)


def changing_files(plan: Plan, token: str | None) -> list[ChangingFile]:
    """Say what a plan is about to do, for who comes after a death.

    `token` is that of `write_plan`; None where another machine writes the plan.
    """
    files: list[ChangingFile] = []
    for number, change in enumerate(plan.changes):
        for place, *states, _ in change.effects():
            before, after = (
                None if file is None else blob_name(file.text.encode()) for file in states
            )
            temporary = None
            if token is not None and after is not None:
                temporary = temporary_name(place, token, number)
            files.append(ChangingFile(path=place, before=before, after=after, temporary=temporary))
    return files


def recover(record: FilesChanging) -> FileChangeThreadItem:
    """Remove what a dead process left beside the files, and say which of them it changed.

    The item has failed. It names the files that are as they were to be, with an empty diff, as the
    old texts are not known any more. Of another machine it names all files that were to change.
    """
    is_here = record.environment_id is None and record.machine in (None, machine_name())
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
