"""Writing to config.toml: whole or not at all, comments and mode kept.

Source: docs/config.md, "What the server writes".
"""

import contextlib
import importlib
import os
import stat
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from app_server.config import ConfigError, read_config
from app_server.mcp.naming import RawName
from app_server.turns.ports import NotRecorded


class ConfigFile:
    """config.toml below a home directory, as something to write."""

    def __init__(self, home: Path) -> None:
        self._file = home / "config.toml"
        self._writing = anyio.Lock()

    async def approve(self, tool: RawName) -> None:
        """Let a tool run without asking from now on, if the file is where its server is defined.

        Cancelling waits for a write that has begun.

        Raises:
            NotRecorded: the file cannot be read, changed or written; it is as it was.
        """
        keys = ("mcp_servers", tool.server, "tools", tool.tool, "approval_mode")
        async with self._writing:
            await anyio.to_thread.run_sync(partial(_write, self._file, keys, "approve", keys[:2]))

    async def write(self, keys: Sequence[str], value: str) -> None:
        """Set a string at a path; a file that is not there is made, for its owner alone.

        Cancelling waits for a write that has begun.

        Raises:
            NotRecorded: the file cannot be read, changed or written; it is as it was.
        """
        async with self._writing:
            await anyio.to_thread.run_sync(partial(_write, self._file, keys, value))


def _write(
    file: Path, keys: Sequence[str], value: str, needed: Sequence[str] | None = None
) -> None:
    # A link stays a link: what it leads to is replaced.
    path = Path(os.path.realpath(file))
    try:
        if needed is None:
            path.touch(mode=0o600)
        config = read_config(path)
        if needed is not None and not _has(config.document, needed):
            return
        edit = importlib.import_module("app_server.handlers.config_edit")
        try:
            text: str = edit.set_value(config.text, keys, value)
        except edit.NotEditable as exc:
            raise NotRecorded(f"{path}: {exc}") from exc
        _replace(path, config.text.encode(), text.encode())
    except ConfigError as exc:
        raise NotRecorded(str(exc)) from exc
    except OSError as exc:
        raise NotRecorded(f"{path}: {exc.strerror}") from exc


def _has(document: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(document, dict) or key not in document:
            return False
        document = document[key]
    return True


def _replace(path: Path, old: bytes, content: bytes) -> None:
    with path.open("r+b") as current:
        # Opened for writing, so that a file which is not to be written is refused.
        before = os.fstat(current.fileno())
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
        try:
            os.fchmod(new.fileno(), stat.S_IMODE(before.st_mode))
            with contextlib.suppress(PermissionError):
                os.fchown(new.fileno(), before.st_uid, before.st_gid)
            new.write(content)
            new.flush()
            os.fsync(new.fileno())
            if path.read_bytes() != old:
                raise NotRecorded(f"{path}: it has been changed by somebody else meanwhile")
            Path(new.name).replace(path)
        except BaseException:
            Path(new.name).unlink(missing_ok=True)
            raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
