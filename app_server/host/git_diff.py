"""The diff of a checkout, untracked files included, to the nearest commit of a remote.

Git runs in a sandbox that reads only: the settings of a repository may name programs of its own.
Source: docs/tools.md, "Host methods"; git-diff(1), git-rev-list(1).
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import anyio

from app_server.host.commands.local_commands import CommandLaunch, LocalCommands
from app_server.host.commands.output import KeptOutput, Stream
from app_server.permissions.environment import CREDENTIALS
from app_server.permissions.sandbox.policy import EffectivePolicy, git_folders
from app_server.runtime.files.repository import repository_of

TIMEOUT_S = 30.0
"""For all commands of Git together."""

MAX_BYTES = 24 * 1024 * 1024
"""Of the difference; a larger one is none."""

_OBJECT_NAME = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")

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
