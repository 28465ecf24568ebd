"""The commit, branch and origin of a Git repository, read from its files: no command runs.

Everything here blocks. At most 1 MiB of a file is read, 16 MiB of packed references. What cannot be
read is not known: no file of a repository makes a thread fail.
Source: gitrepository-layout(5), git-config(1); docs/threads.md, "Git".
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from app_server.runtime.files.repository import repository_of

READ_BYTES = 1 << 20
PACKED_BYTES = 16 << 20

_OBJECT_NAME = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class RepositoryState:
    """The known state of a repository; at least one of the three."""

    sha: str | None
    branch: str | None
    """None while no branch is checked out."""
    origin_url: str | None
    """Without a name or a password."""


def read_repository(folder: Path) -> RepositoryState | None:
    """Read the repository of a folder; None without one, or if it cannot be read."""
    try:
        git = _git_folder(folder)
        if git is None:
            return None
        head = _read(git / "HEAD")
        common = git / (_read(git / "commondir") or ".")
        branch = head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else None
        state = RepositoryState(
            sha=_commit(git, common, head), branch=branch or None, origin_url=_origin(common)
        )
    except (OSError, ValueError):
        return None
    known = (state.sha, state.branch, state.origin_url)
    return state if any(part is not None for part in known) else None


def _git_folder(folder: Path) -> Path | None:
    root = repository_of(folder)
    if root is None:
        return None
    git = root / ".git"
    return git if git.is_dir() else root / _read(git).removeprefix("gitdir: ")


def _commit(git: Path, common: Path, head: str) -> str | None:
    if not head.startswith("ref: "):
        return _object_name(head)
    name = head.removeprefix("ref: ")
    if ".." in name:
        return None
    for folder in (git, common):
        found = _object_name(_read(folder / name))
        if found is not None:
            return found
    for line in _read(common / "packed-refs", PACKED_BYTES).splitlines():
        sha, _, packed = line.partition(" ")
        if packed == name:
            return _object_name(sha)
    return None


def _object_name(text: str) -> str | None:
    return text if _OBJECT_NAME.fullmatch(text) else None


def _origin(common: Path) -> str | None:
    for key, value in _section(_read(common / "config"), '[remote "origin"]'):
        if key.lower() == "url":
            return _without_secrets(value)
    return None


def _section(config: str, title: str) -> Iterator[tuple[str, str]]:
    inside = False
    for raw in config.splitlines():
        line = raw.strip()
        if line.startswith("["):
            inside = line == title
        elif inside and "=" in line:
            key, _, value = line.partition("=")
            yield key.strip(), value.strip().strip('"')


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    if not parts.scheme or "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _read(path: Path, limit: int = READ_BYTES) -> str:
    try:
        with path.open("rb") as file:
            return file.read(limit).decode(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""
