"""Files of a repository elsewhere: one revision, bounded, without history, hooks or questions.

Source: docs/plugins.md, "Repositories"; git-fetch(1), git-ls-remote(1), git-config(1).
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.host.commands.local_commands import CommandLaunch, LocalCommands
from app_server.host.commands.output import KeptOutput, Stream
from app_server.permissions.environment import CREDENTIALS
from app_server.permissions.sandbox.policy import UNRESTRICTED

FETCH_S = 120.0
"""For all commands of Git that one fetch takes."""

MAX_FILES = 16_384
MAX_BYTES = 256 * 1024 * 1024
"""Of the files of a revision; what Git downloads for them has the same bound."""

MAX_MEMORY_BYTES = 2 * 1024 * 1024 * 1024
"""Of addresses that one process of Git may use, where the system can bound them."""

MAX_AT_ONCE = 2
"""Repositories that are fetched at a time; others wait."""

MAX_LISTING_BYTES = 16 * 1024 * 1024
"""Of what Git says of the files."""

MAX_REASON_CHARS = 300

_OBJECT_NAME = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")

_SETTINGS = {
    "core.askPass": "",
    # Larger files go to the disk as they come, not through memory: a download of 1 MB may be 1 GB.
    "core.bigFileThreshold": "1m",
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "fetch.recurseSubmodules": "false",
    "fetch.unpackLimit": "1",
    "gc.auto": "0",
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "30",
    "init.templateDir": "",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
}
"""Git settings that override the user's."""

_VARIABLES = {
    "GCM_INTERACTIVE": "never",
    "GIT_ALLOW_PROTOCOL": "http:https:ssh",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=30",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GitLimits:
    """Bounds of one fetch."""

    fetch_s: float = FETCH_S
    """Seconds for all commands of Git together."""
    max_files: int = MAX_FILES
    max_bytes: int = MAX_BYTES
    """Of the files of a revision; what Git downloads for them has the same bound."""
    max_memory_bytes: int = MAX_MEMORY_BYTES
    """Of addresses that one process of Git may use, where the system can bound them."""


class GitFetchFailed(Exception):
    """A revision cannot be had; the text says why, in a line, and clients may read it."""


class GitFetch:
    """Fetches for one server; the user's own settings and keys are used."""

    def __init__(self, commands: LocalCommands, limits: GitLimits | None = None) -> None:
        self._commands = commands
        self._limits = limits or GitLimits()
        self._slots = anyio.CapacityLimiter(MAX_AT_ONCE)

    async def revision_of(self, url: str, ref: str | None, folder: Path) -> str:
        """Return the commit that a branch or a tag is now; of a commit itself.

        `ref` None is the repository's HEAD. `folder` is any that is in no repository. Neither URL
        nor `ref` begins with `-`.

        Raises:
            GitFetchFailed, OSError
        """
        if ref is not None and _OBJECT_NAME.fullmatch(ref):
            return ref
        name = ref or "HEAD"
        async with self._slots:
            with anyio.move_on_after(self._limits.fetch_s):
                listed = await self._git(folder, "ls-remote", url, name, f"{name}^{{}}")
                commits = dict(line.split("\t")[::-1] for line in listed.splitlines())
                # As gitrevisions(7) has it; of a tag the commit that it stands for comes first.
                tag = f"refs/tags/{name}"
                exact = (f"{name}^{{}}", name, f"refs/{name}")
                for one in (*exact, f"{tag}^{{}}", tag, f"refs/heads/{name}"):
                    if _OBJECT_NAME.fullmatch(commit := commits.get(one, "")):
                        return commit
                raise GitFetchFailed(f"the repository has no `{name}`")
        raise _too_slow(self._limits)

    async def fetch(
        self, url: str, ref: str | None, sparse_paths: Sequence[str], folder: Path
    ) -> str:
        """Put the files of a revision into an empty folder; returns the commit.

        `ref` is a branch, a tag or a commit; None is the repository's HEAD. With `sparse_paths`
        only these folders are wanted, and the files beside and above them. None of these begins
        with `-`. Git's own folder is not left there. What is there after a failure is for the
        caller to remove.

        Raises:
            GitFetchFailed, OSError
        """
        async with self._slots:
            with anyio.move_on_after(self._limits.fetch_s):
                return await self._fetch(url, ref or "HEAD", sparse_paths, folder)
        raise _too_slow(self._limits)

    async def _fetch(self, url: str, ref: str, sparse_paths: Sequence[str], folder: Path) -> str:
        await self._git(folder, "init", "--quiet")
        await self._git(folder, "fetch", "--quiet", "--depth=1", "--no-tags", url, ref)
        commit = (await self._git(folder, "rev-parse", "--verify", "FETCH_HEAD^{commit}")).strip()
        if _OBJECT_NAME.fullmatch(ref) and commit != ref:
            raise GitFetchFailed(f"the repository gave another commit than `{ref}`")
        if sparse_paths:
            await self._git(folder, "sparse-checkout", "set", *sparse_paths)
        check_size(
            await self._git(folder, "ls-tree", "-rlz", commit, "--", *sparse_paths), self._limits
        )
        await self._git(folder, "checkout", "--quiet", "--detach", commit)
        await anyio.to_thread.run_sync(shutil.rmtree, folder / ".git")
        return commit

    async def _git(self, folder: Path, *arguments: str) -> str:
        output = {"stdout": KeptOutput(MAX_LISTING_BYTES), "stderr": KeptOutput(16 * 1024)}
        waiting = anyio.CancelScope()

        def keep(stream: Stream, data: bytes) -> None:
            output[stream].add(data)
            # Folders that are in folders many times have more files than can ever be listed.
            if output["stdout"].lost_bytes:
                waiting.cancel()

        settings = [part for pair in _SETTINGS.items() for part in ("-c", "=".join(pair))]
        launch = CommandLaunch(
            # No file that Git writes gets larger; the unit is 512 bytes (POSIX, ulimit). Not every
            # system can bound addresses, in KiB.
            argv=[
                "/bin/sh",
                "-c",
                f"ulimit -v {self._limits.max_memory_bytes // 1024} 2>/dev/null; "
                f'ulimit -f {self._limits.max_bytes // 512} && exec git "$@"',
                *("git", *settings, *arguments),
            ],
            env=_environment(os.environ, folder),
            cwd=str(folder),
            merges_stderr=False,
        )
        command = await self._commands.start(launch, UNRESTRICTED, keep)
        try:
            with waiting:
                await command.finished.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await command.stop()
        if output["stdout"].lost_bytes:
            raise GitFetchFailed(f"more than {self._limits.max_files} files")
        if command.returncode == 127:
            raise GitFetchFailed("there is no `git` on this machine")
        if command.returncode != 0:
            raise GitFetchFailed(f"git {arguments[0]} failed: {_reason(output['stderr'])}")
        return output["stdout"].all().decode(errors="replace")


def check_size(listed: str, limits: GitLimits) -> None:
    """Check the size of a revision by its files, as `git ls-tree -rlz` lists them.

    Raises:
        GitFetchFailed: there are more than `max_files`, or they have more than `max_bytes`.
    """
    entries = listed.split("\0")[:-1]
    # MODE TYPE OBJECT SIZE, a tab, the path; submodules have no size.
    sizes = [entry.partition("\t")[0].split()[-1] for entry in entries]
    total = sum(int(size) for size in sizes if size.isdecimal())
    if len(entries) > limits.max_files or total > limits.max_bytes:
        raise GitFetchFailed(f"more than {limits.max_files} files or {limits.max_bytes} bytes")


def _reason(stderr: KeptOutput) -> str:
    """Return the line in which Git says why it failed; it has neither a password nor a prompt."""
    lines = stderr.text().splitlines()
    fatal = [line for line in lines if line.startswith(("fatal: ", "error: "))] or lines[-1:]
    text = "".join(one if one.isprintable() else " " for one in (fatal or ["no reason given"])[0])
    return text[:MAX_REASON_CHARS]


def _too_slow(limits: GitLimits) -> GitFetchFailed:
    return GitFetchFailed(f"it took more than {limits.fetch_s:g} s")


def _environment(parent: Mapping[str, str], folder: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in parent.items()
        if name not in CREDENTIALS and not name.startswith("GIT_")
    }
    return {**kept, **_VARIABLES, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
