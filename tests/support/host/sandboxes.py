"""Commands in a real sandbox, and a machine in a folder that they try to get out of."""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from app_server.host.sandbox.machine_sandbox import MachineSandbox
from app_server.host.sandbox.wrapped_command import SandboxUnavailable, WrappedCommand
from app_server.permissions.sandbox.policy import (
    EffectivePolicy,
    effective_policy_for,
    resolved,
)
from app_server.permissions.sandbox.roots import MachinePaths
from protocol.turns.policy import SandboxPolicy, WorkspaceWriteSandboxPolicy
from tests.support.harness import WAIT_S

KNOWN = "APP_SERVER_TESTS_NO_USER_NAMESPACES"
"""Set to 1 where it is known that the kernel allows no user namespaces."""

PYTHON = (sys.executable, "-I", "-S", "-c")

SANDBOX = MachineSandbox()


def working_sandbox() -> MachineSandbox:
    """Return the wrapper of this machine; without a sandbox here the test fails."""
    try:
        SANDBOX.sandbox()
    except SandboxUnavailable:
        if os.environ.get(KNOWN) == "1":
            pytest.skip("the kernel of this machine allows no user namespaces, as is known")
        raise
    return SANDBOX


@dataclass(frozen=True)
class Ended:
    """What came of a command."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Victim:
    """A machine in a folder: a project, what is beside it, a home of a server and one of a user."""

    root: Path

    @property
    def work(self) -> Path:
        """The project."""
        return self.root / "work"

    @property
    def outside(self) -> Path:
        """A folder that no policy here names."""
        return self.root / "outside"

    @property
    def machine_paths(self) -> MachinePaths:
        """Where its homes are."""
        home, user = self.root / "home", self.root / "user"
        secrets = (home / "auth.json", user / ".ssh", user / ".netrc", self.root / "keyring")
        return MachinePaths(str(home), str(user), None, tuple(map(str, secrets)))

    def sandbox_policy(
        self, policy: SandboxPolicy | None = None, roots: Sequence[Path] | None = None
    ) -> EffectivePolicy:
        """Confine to the project; `/tmp`, where all of this is, stays to be seen."""
        if policy is None:
            policy = WorkspaceWriteSandboxPolicy(
                exclude_slash_tmp=True, exclude_tmpdir_env_var=True
            )
        chosen = [str(root) for root in roots or [self.work]]
        return replace(
            resolved(effective_policy_for(policy, chosen, self.machine_paths)), scratch=()
        )

    def seen(self) -> dict[str, str]:
        """Return all that is not in the project, with contents."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            if not path.is_relative_to(self.work):
                name = str(path.relative_to(self.root))
                found[name] = path.read_text() if path.is_file() else f"{path.lstat().st_mode:o}"
        return found


def make_victim(root: Path) -> Victim:
    """Make the folders and what is in them."""
    victim = Victim(root.resolve())
    for folder in ("work/.git/hooks", "work/.agents", "outside", "home/rules", "user/.ssh"):
        (victim.root / folder).mkdir(parents=True)
    for name in (
        "work/.git/config",
        "work/inside.txt",
        "outside/file.txt",
        "home/auth.json",
        "home/config.toml",
        "user/.ssh/id",
        "user/.netrc",
    ):
        (victim.root / name).write_text(f"content of {name}")
    (victim.work / "link").symlink_to(victim.outside)
    return victim


async def run_confined(
    command: Sequence[str],
    cwd: Path,
    sandbox_policy: EffectivePolicy,
    *,
    before: Sequence[str] = (),
    env: dict[str, str] | None = None,
    wrapper: MachineSandbox | None = None,
) -> Ended:
    """Run a command to its end; `before` runs what starts it."""
    used = wrapper or working_sandbox()
    wrapped = WrappedCommand(command)
    if sandbox_policy.is_restricted:
        wrapped = await anyio.to_thread.run_sync(used.wrap, command, str(cwd), sandbox_policy)
    try:
        process = await asyncio.create_subprocess_exec(
            *before,
            *wrapped.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=wrapped.pass_fds,
            cwd=cwd,
            env=os.environ | (env or {}),
            start_new_session=True,
        )
        wrapped.started()
        try:
            with anyio.fail_after(WAIT_S):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    finally:
        await anyio.to_thread.run_sync(wrapped.close)
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
