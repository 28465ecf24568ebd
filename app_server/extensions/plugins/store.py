"""Store of installed plugins: a folder for each plugin and version below the home folder.

Everything here blocks: call it in a worker thread.
Source: docs/plugins.md, "Installing".
"""

import errno
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from app_server.extensions.plugins.file_members import NAME
from app_server.runtime.files.opening import BrokenFiles
from app_server.runtime.loader import load_from_worker

LEFT_AFTER_S = 3_600.0
"""A folder that is older was left by a process that was killed."""


def make_staging(parent: Path) -> Path:
    """Make a staging folder below `parent`, and delete old ones.

    Raises:
        OSError
    """
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in parent.iterdir():
        # Another process may clear away, too.
        with suppress(FileNotFoundError):
            if folder.lstat().st_mtime < time.time() - LEFT_AFTER_S:
                shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(dir=parent))


def put_in_place(new: Path, place: Path) -> None:
    """Move a folder to its target; the former content is at `new` afterwards.

    Whoever looks sees the old folder or the new one, and so does who looks after this process was
    killed. Only a file system that cannot exchange two names has a moment with neither.

    Raises:
        OSError: nothing has changed.
    """
    if not os.path.lexists(place):
        new.rename(place)
        return
    exchange = load_from_worker(_exchange)
    failure = errno.ENOSYS if exchange is None else exchange(os.fsencode(new), os.fsencode(place))
    if failure in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        _put_in_steps(new, place)
    elif failure != 0:
        raise OSError(failure, os.strerror(failure), str(place))


def _put_in_steps(new: Path, place: Path) -> None:
    aside = new.with_name(f"{new.name}.aside")
    place.rename(aside)
    try:
        new.rename(place)
    except OSError:
        aside.rename(place)
        raise
    aside.rename(new)


Exchange: TypeAlias = Callable[[bytes, bytes], int]
"""Exchanges two names in one step; returns 0 or an errno."""

AT_FDCWD = -100
EXCHANGE = 2
"""RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS."""


def _exchange() -> Exchange | None:
    """Return the system call that exchanges two paths: renameat2(2), renamex_np(2) of macOS."""
    # Most servers put nothing in place.
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def linux(one: bytes, other: bytes) -> int:
        done = libc.renameat2(AT_FDCWD, one, AT_FDCWD, other, EXCHANGE)
        return 0 if done == 0 else ctypes.get_errno()

    def macos(one: bytes, other: bytes) -> int:
        return 0 if libc.renamex_np(one, other, EXCHANGE) == 0 else ctypes.get_errno()

    if sys.platform == "darwin":
        return macos
    return linux if hasattr(libc, "renameat2") else None


MAX_INSTALLED = 256
"""Plugins; those behind them are not loaded."""

MAX_FILES = 4096
MAX_BYTES = 256 * 1024 * 1024
"""Of one plugin that is installed."""

MANIFEST_FOLDERS = (".codex-plugin", ".claude-plugin")
"""Of a plugin, with its manifest."""

UNVERSIONED = "local"
"""In the place of a version, for a plugin that names none; before all versions."""

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")


@dataclass(frozen=True, slots=True, order=True)
class PluginId:
    """A plugin of a marketplace."""

    marketplace: str
    name: str

    def __str__(self) -> str:
        return f"{self.name}@{self.marketplace}"

    @classmethod
    def parse(cls, text: str) -> "PluginId":
        """Read `name@marketplace`.

        Raises:
            ValueError: it is something else.
        """
        name, separator, marketplace = text.partition("@")
        if not (separator and NAME.fullmatch(name) and NAME.fullmatch(marketplace)):
            raise ValueError(text)
        return cls(marketplace, name)


class PluginStore:
    """The installed plugins of one home folder."""

    def __init__(self, home: Path) -> None:
        self._cache = home / "plugins" / "cache"
        self._staging = home / "plugins" / ".staging"
        self.clones = ClonedMarketplaces(home)
        """Marketplaces of repositories."""

    def installed(self) -> Mapping[PluginId, Path]:
        """Return the folder of each plugin, that of its newest version, by marketplace and name."""
        found: dict[PluginId, Path] = {}
        for marketplace in _folders(self._cache):
            for plugin in _folders(marketplace):
                versions = _folders(plugin)
                if versions and len(found) < MAX_INSTALLED:
                    newest = max(versions, key=lambda folder: _order(folder.name))
                    found[PluginId(marketplace.name, plugin.name)] = newest
        return found

    def folders(self) -> list[Path]:
        """Return the folders in which a change may be one of the installed plugins."""
        markets = _folders(self._cache)
        names = [name for market in markets for name in _folders(market)]
        roots = list(self.installed().values())
        manifests = [root / folder for root in roots for folder in MANIFEST_FOLDERS]
        return [self._cache, *markets, *names, *roots, *manifests]

    def install(self, source: Path, plugin: PluginId, version: str | None) -> Path:
        """Copy a plugin; readers see the old folder or the new one, whole.

        Raises:
            BrokenFiles: it has links or special files, or is too large, or its version is no name.
            OSError: the disk refused; what was installed stays.
        """
        name = UNVERSIONED if version is None else version
        if not _VERSION.fullmatch(name):
            raise BrokenFiles(f"invalid plugin version `{name}`")
        target = self._cache / plugin.marketplace / plugin.name / name
        with self._staged() as staging:
            _copy(source, staging / "new")
            target.parent.mkdir(parents=True, exist_ok=True)
            old = _folders(target.parent)
            put_in_place(staging / "new", target)
            for folder in old:
                if folder != target:
                    shutil.rmtree(folder, ignore_errors=True)
        return target

    def remove(self, plugin: PluginId) -> None:
        """Delete all versions of a plugin; one that is not installed is no failure.

        Raises:
            OSError: the disk refused.
        """
        folder = self._cache / plugin.marketplace / plugin.name
        if not folder.is_dir():
            return
        with self._staged() as staging:
            folder.rename(staging / "old")
        if not _folders(folder.parent):
            folder.parent.rmdir()

    @contextmanager
    def _staged(self) -> Iterator[Path]:
        staging = make_staging(self._staging)
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _folders(path: Path) -> list[Path]:
    """Return the folders in a folder, by name; links are none."""
    try:
        with os.scandir(path) as entries:
            return sorted(Path(one.path) for one in entries if one.is_dir(follow_symlinks=False))
    except OSError:
        return []


def _order(version: str) -> tuple[bool, list[tuple[bool, int, str]]]:
    parts = re.split(r"[.+-]", version)
    numbers = [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
    return version == UNVERSIONED, numbers


def _copy(source: Path, target: Path) -> None:
    left_files, left_bytes = MAX_FILES, MAX_BYTES
    for folder, names, files in os.walk(source, onerror=_raise):
        names[:] = [name for name in names if name != ".git"]
        here = target / os.path.relpath(folder, source)
        here.mkdir(parents=True)
        for name in (*names, *files):
            path = Path(folder) / name
            found = path.lstat()
            if not (stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)):
                shown = path.relative_to(source)
                raise BrokenFiles(f"`{shown}` is neither a file nor a folder")
            left_files -= 1
            left_bytes -= found.st_size if stat.S_ISREG(found.st_mode) else 0
        if left_files < 0 or left_bytes < 0:
            raise BrokenFiles(f"more than {MAX_FILES} files and folders or {MAX_BYTES} bytes")
        for name in files:
            shutil.copy2(Path(folder) / name, here / name, follow_symlinks=False)


def _raise(error: OSError) -> None:
    raise error


# Marketplaces that were fetched from repositories: a folder for each below the home folder.
#
# Everything here blocks: call it in a worker thread. Paths are those of Codex.
# Source: docs/plugins.md, "Repositories".


class ClonedMarketplaces:
    """The fetched marketplaces of one home folder."""

    def __init__(self, home: Path) -> None:
        self.root = home / ".tmp" / "marketplaces"

    def folder(self, name: str) -> Path:
        """Return where a marketplace is, or would be."""
        return self.root / name

    def make_staging(self) -> Path:
        """Make a folder with the folder `new` in it, on the same disk; the caller removes it.

        Raises:
            OSError
        """
        staging = make_staging(self.root / ".staging")
        (staging / "new").mkdir()
        return staging

    def put(self, staging: Path, name: str) -> None:
        """Replace a marketplace by `new` as a whole; the former content is at `new` afterwards.

        Raises:
            OSError: nothing has changed.
        """
        put_in_place(staging / "new", self.folder(name))

    def put_back(self, staging: Path, name: str) -> None:
        """Undo `put`.

        Raises:
            OSError
        """
        folder, old = self.folder(name), staging / "new"
        if old.exists():
            put_in_place(old, folder)
        else:
            folder.rename(old)

    def remove(self, name: str) -> Path | None:
        """Delete a marketplace; returns where it was, None if it was not there.

        Raises:
            OSError
        """
        folder = self.folder(name)
        if not folder.is_dir():
            return None
        staging = self.make_staging()
        try:
            folder.rename(staging / "old")
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return folder
