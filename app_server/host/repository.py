"""The commit, branch and origin of a Git repository, and the diff of its checkout to a remote.

The former are read from its files: no command runs, and everything blocks. At most 1 MiB of a file
is read, 16 MiB of packed references. What cannot be read is not known: no file of a repository
makes a thread fail. For the diff Git runs in a sandbox that reads only, as the settings of a
repository may name programs of its own; untracked files are in it.
Source: gitrepository-layout(5), git-config(1), git-diff(1), git-rev-list(1); docs/threads.md,
"Git"; docs/tools.md, "Host methods".
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import anyio

from app_server.host.commands.local_commands import CommandLaunch, LocalCommands
from app_server.host.commands.output import KeptOutput, Stream
from app_server.permissions.environment import CREDENTIALS
from app_server.permissions.sandbox.policy import EffectivePolicy, git_folders
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


TIMEOUT_S = 30.0
"""For all commands of Git together."""

MAX_BYTES = 24 * 1024 * 1024
"""Of the difference; a larger one is none."""

# The nearest commit is the one from which the fewest lead to HEAD. Untracked files are compared
# with nothing, one after the other.
_SCRIPT = """
cd "$(git rev-parse --show-toplevel)" || exit 1
head=$(git rev-parse --verify -q HEAD) || exit 1
[ -n "$(git for-each-ref --count=1 refs/remotes)" ] || exit 1
sha=$head
if [ "$(git rev-list --count HEAD --not --remotes)" != 0 ]; then
  sha= least=
  for one in $(git rev-list --boundary HEAD --not --remotes | sed -n 's/^-//p' | head -n 50); do
    count=$(git rev-list --count "$one..HEAD")
    if [ -z "$sha" ] || [ "$count" -lt "$least" ]; then sha=$one least=$count; fi
  done
  [ -n "$sha" ] || exit 1
fi
echo "$sha"
git diff --no-color --no-textconv --no-ext-diff --binary "$sha" || exit 1
git ls-files -z --others --exclude-standard |
  xargs -0 -r -n 1 git diff --no-color --no-textconv --no-ext-diff --binary --no-index -- /dev/null
exit 0
"""

_SETTINGS = {
    "core.fsmonitor": "false",
    "core.quotePath": "true",
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
}
"""Git settings that override the ones of the user and of the repository."""


class NoDifference(Exception):
    """There is no repository, no remote, or the difference is too large or took too long."""


def shown_folders(cwd: str) -> list[str]:
    """Return the folders that Git has to see for a checkout; blocks."""
    root = repository_of(Path(os.path.realpath(cwd)))
    return [cwd] if root is None else [str(root), *git_folders(str(root / ".git"))]


async def diff_to_remote(
    commands: LocalCommands, sandbox_policy: EffectivePolicy, cwd: str
) -> tuple[str, str]:
    """Return the commit and the difference of the working tree to it, untracked files included.

    Raises:
        NoDifference: it cannot be told.
        SandboxUnavailable: Git cannot be confined on this machine.
        OSError: Git cannot be started.
    """
    kept = KeptOutput(2 * MAX_BYTES)

    def take(stream: Stream, data: bytes) -> None:
        if stream == "stdout":
            kept.add(data)

    launch = CommandLaunch(
        argv=["/bin/sh", "-c", _SCRIPT],
        env=_environment(os.environ),
        cwd=cwd,
        merges_stderr=False,
    )
    command = await commands.start(launch, sandbox_policy, take)
    try:
        with anyio.move_on_after(TIMEOUT_S):
            await command.finished.wait()
    finally:
        command.terminate()
    sha, _, difference = kept.all().partition(b"\n")
    if command.returncode != 0 or kept.total > MAX_BYTES:
        raise NoDifference
    name = sha.decode("ascii", errors="replace")
    if not _OBJECT_NAME.fullmatch(name):
        raise NoDifference
    return name, difference.decode(errors="replace")


def _environment(parent: Mapping[str, str]) -> dict[str, str]:
    names = [name for name in parent if name not in CREDENTIALS and not name.startswith("GIT_")]
    settings = {"GIT_CONFIG_COUNT": str(len(_SETTINGS))}
    for number, (key, value) in enumerate(_SETTINGS.items()):
        settings[f"GIT_CONFIG_KEY_{number}"] = key
        settings[f"GIT_CONFIG_VALUE_{number}"] = value
    return {
        **{name: parent[name] for name in names},
        **settings,
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }
