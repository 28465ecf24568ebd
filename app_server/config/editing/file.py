"""Writing to config.toml: whole or not at all, comments and mode kept, one process at a time.

Source: docs/config.md, "What the server writes".
"""

import contextlib
import errno
import glob
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import anyio.to_thread

from app_server.config.config_toml import MAX_FILE_BYTES, read_config
from app_server.config.values import Config, ConfigError, NotRecorded, has
from app_server.runtime.files.disk import lock_within, sync_folder
from app_server.runtime.loader import LoadFailed, load_from_worker

LOCK_S = 10.0
"""For another server to finish its write; a write takes milliseconds."""

UNFINISHED = ".unfinished"
"""With what the name of a new text ends until it is in its place."""


class ChangedMeanwhile(NotRecorded):
    """Another process wrote to the file between reading and writing."""


class ConfigFile:
    """config.toml below a home directory, or a profile beside it, as something to write."""

    def __init__(self, home: Path, name: str = "config.toml", over: Path | None = None) -> None:
        """Write the file of this name; `over` is a profile over it, which may define servers."""
        self._file = home / name
        self._over = over
        self._writing = anyio.Lock()

    @property
    def path(self) -> Path:
        """Path of the file, whether it exists or not."""
        return self._file.absolute()

    async def approve(self, server: str, tool: str) -> None:
        """Write the approval of an MCP server's tool, if a file defines the server.

        It is written where the server is defined, in the profile before the file below it.
        Cancelling waits for a write that has begun.

        Raises:
            NotRecorded: the file cannot be read, changed or written; it is as it was.
        """
        keys = ("mcp_servers", server, "tools", tool, "approval_mode")
        files = [self._file] if self._over is None else [self._over, self._file]
        async with self._writing:
            await anyio.to_thread.run_sync(partial(_approve, files, keys))

    async def write(self, keys: Sequence[str], value: str | bool) -> None:
        """Set a value at a path; see `write_all`."""
        await self.write_all([(keys, value)])

    async def write_all(self, values: Sequence[tuple[Sequence[str], str | bool]]) -> None:
        """Set values at paths, all or none; a file that is not there is made, for its owner alone.

        Cancelling waits for a write that has begun.

        Raises:
            NotRecorded: the file cannot be read, changed or written; it is as it was.
        """
        async with self._writing:
            await anyio.to_thread.run_sync(partial(_set, self._file, values))

    async def change(self, changed: Callable[[Any, Config], str]) -> None:
        """Replace the file by the text that `changed` makes of its content.

        `changed` runs in a worker thread, with the module `toml_edit` beside this one and the file
        as it is; nobody else writes meanwhile. What it raises passes, and nothing is
        written; nor is anything for a text that is the same. Cancelling waits for a write that has
        begun.

        Raises:
            ConfigError: the file cannot be read.
            NotRecorded: it cannot be changed or written; it is as it was.
        """
        async with self._writing:
            await anyio.to_thread.run_sync(partial(_change, self._file, changed))

    async def remove(self, keys: Sequence[str]) -> None:
        """Take away the value at a path; one that is not there is no failure.

        Raises:
            NotRecorded: see `write_all`.
        """
        async with self._writing:
            await anyio.to_thread.run_sync(partial(_remove, self._file, keys))


def _approve(files: Sequence[Path], keys: Sequence[str]) -> None:
    for file in files:
        try:
            defines_it = has(read_config(file).document, keys[:2])
        except ConfigError as exc:
            raise NotRecorded(str(exc)) from exc
        if defines_it:
            _set(file, [(keys, "approve")], keys[:2])
            return


def _set(
    file: Path,
    values: Sequence[tuple[Sequence[str], str | bool]],
    needed: Sequence[str] | None = None,
) -> None:
    def edited(edit: Any, text: str) -> str:
        for keys, value in values:
            text = edit.set_value(text, keys, value)
        return text

    _write(file, edited, needed)


def _remove(file: Path, keys: Sequence[str]) -> None:
    def edited(edit: Any, text: str) -> str:
        without: str = edit.remove(text, keys)
        return without

    _write(file, edited, keys)


def _write(
    file: Path, edited: Callable[[Any, str], str], needed: Sequence[str] | None = None
) -> None:
    def changed(edit: Any, config: Config) -> str:
        if needed is not None and not has(config.document, needed):
            return config.text
        return edited(edit, config.text)

    try:
        _change(file, changed)
    except ConfigError as exc:
        raise NotRecorded(str(exc)) from exc


def _change(file: Path, changed: Callable[[Any, Config], str]) -> None:
    # A link stays a link: what it leads to is replaced.
    path = Path(os.path.realpath(file))
    try:
        edit = load_from_worker(_toml_edit)
        with _lock_held(path.parent):
            config = read_config(path)
            try:
                text = changed(edit, config)
            except edit.NotEditable as exc:
                raise NotRecorded(f"{path}: {exc}") from exc
            if text == config.text:
                return
            content = f"{config.mark}{text}".encode()
            if len(content) > MAX_FILE_BYTES:
                raise NotRecorded(f"{path}: it would be larger than {MAX_FILE_BYTES} bytes")
            path.touch(mode=0o600)
            _replace(path, f"{config.mark}{config.text}".encode(), content)
    except LoadFailed as exc:
        raise NotRecorded(f"{path}: what edits it cannot be loaded: {exc}") from exc
    except OSError as exc:
        raise NotRecorded(f"{path}: {exc.strerror}") from exc


def _toml_edit() -> ModuleType:
    from app_server.config.editing import toml_edit

    return toml_edit


@contextlib.contextmanager
def _lock_held(folder: Path) -> Iterator[None]:
    """Lock out other servers that write to files in a folder."""
    number = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            is_held = lock_within(number, LOCK_S)
        except OSError as exc:
            # Some network file systems lock no folders; `_replace` looks at the file again anyway.
            is_held = exc.errno in (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP)
            if not is_held:
                raise
        if not is_held:
            raise NotRecorded(f"{folder}: another process has held it for {LOCK_S:.0f} s")
        yield
    finally:
        os.close(number)


def _clear_away(path: Path) -> None:
    """Remove temporary files of killed writers; the lock excludes running ones."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{UNFINISHED}"):
        left.unlink(missing_ok=True)


def _replace(path: Path, old: bytes, content: bytes) -> None:
    with path.open("r+b") as current:
        # Opened for writing, so that a file which is not to be written is refused.
        before = os.fstat(current.fileno())
    _clear_away(path)
    with tempfile.NamedTemporaryFile(
        dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED, delete=False
    ) as new:
        try:
            os.fchmod(new.fileno(), stat.S_IMODE(before.st_mode))
            with contextlib.suppress(PermissionError):
                os.fchown(new.fileno(), before.st_uid, before.st_gid)
            new.write(content)
            new.flush()
            os.fsync(new.fileno())
            if path.read_bytes() != old:
                raise ChangedMeanwhile(f"{path}: it has been changed by somebody else meanwhile")
            Path(new.name).replace(path)
        except BaseException:
            Path(new.name).unlink(missing_ok=True)
            raise
    sync_folder(path.parent)
