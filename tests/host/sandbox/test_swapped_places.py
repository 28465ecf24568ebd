"""Places of a sandbox that somebody confined moves away: nothing is written where a link leads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from app_server.host.commands.local_commands import LocalCommands
from app_server.host.sandbox.linux.sandbox import MAX_OPEN
from app_server.host.sandbox.machine_sandbox import MachineSandbox
from app_server.host.sandbox.wrapped_command import SandboxUnavailable
from app_server.patch.parse import NotApplicable, parse_patch
from app_server.patch.plan import plan_patch
from app_server.permissions.sandbox.policy import (
    EffectivePolicy,
    effective_policy_for,
    resolved,
)
from app_server.permissions.sandbox.roots import MachinePaths
from protocol.turns.policy import WorkspaceWriteSandboxPolicy
from tests.support.harness import WAIT_S, claim
from tests.support.host.commands import Printed, sh
from tests.support.host.sandboxes import PYTHON, run_confined, working_sandbox
from tests.support.turn_tools.turn_commands import command, desk

pytestmark = pytest.mark.process

SWAPS = """
import os, select, sys
place, target = sys.argv[1:]
swaps = 0
while not select.select([0], [], [], 0)[0]:
    os.rename(place, place + ".away")
    os.symlink(target, place)
    for _ in range(100): os.lstat(place)
    os.unlink(place)
    os.rename(place + ".away", place)
    for _ in range(100): os.lstat(place)
    swaps += 1
print(swaps)
"""


@dataclass
class Desks:
    """A machine in a folder, and commands on it that policies confine."""

    root: Path
    machine: LocalCommands = field(default_factory=LocalCommands)

    def __post_init__(self) -> None:
        for name in ("ws/sub/deep", "home", "tmp"):
            (self.root / name).mkdir(parents=True)
        self.machine_paths = MachinePaths(
            str(self.root / "server"), str(self.root / "home"), str(self.root / "tmp" / "x")
        )

    @property
    def ws(self) -> Path:
        return self.root / "ws"

    @property
    def user_home(self) -> Path:
        """What no policy here names."""
        return self.root / "home"

    def policy(self, *roots: Path, **more: Any) -> EffectivePolicy:
        policy = WorkspaceWriteSandboxPolicy(exclude_slash_tmp=True, **more)
        made = effective_policy_for(
            policy, list(map(str, roots)), self.machine_paths, str(roots[0])
        )
        # `/tmp`, where all of this is, stays to be seen.
        return replace(made, scratch=())

    async def run(
        self, line: str, sandbox_policy: EffectivePolicy, cwd: Path
    ) -> tuple[int | None, str]:
        """Run a line in a shell; gives its exit code and what it printed."""
        output = Printed()
        started = await self.machine.start(sh(line, cwd=str(cwd)), sandbox_policy, output.take)
        with anyio.fail_after(WAIT_S):
            await started.finished.wait()
        return started.returncode, output.of("stdout").decode()


@asynccontextmanager
async def desks(root: Path) -> AsyncIterator[Desks]:
    working_sandbox()
    made = Desks(root.resolve())
    try:
        yield made
    finally:
        await made.machine.aclose()


@claim("sandbox:places")
async def test_a_command_cannot_move_its_own_places(tmp_path: Path) -> None:
    async with desks(tmp_path) as at:
        (at.root / "tmp" / "x").mkdir()
        sandbox_policy = at.policy(at.ws, at.root / "tmp", at.ws / "sub" / "deep")
        for place in (at.root / "tmp" / "x", at.ws / "sub", at.ws / "sub" / "deep"):
            line = f"mv {place} {place}.2; rmdir {place}"
            _, printed = await at.run(f"{{ {line}; }} 2>&1", sandbox_policy, at.ws)
            assert printed.count("Device or resource busy") == 2, printed
        code, printed = await at.run(f"echo x >{at.root}/tmp/x/file; ls ..", sandbox_policy, at.ws)
        assert (code, printed) == (0, "home\ntmp\nws\n")
        assert list(at.user_home.iterdir()) == []


@claim("sandbox:places")
@pytest.mark.parametrize("target", ["home", "ws/sub.2", "nowhere", None])
@pytest.mark.parametrize("moved", ["sub", "sub/deep"])
async def test_a_place_that_another_thread_has_swapped_is_refused_by_name(
    tmp_path: Path, moved: str, target: str | None
) -> None:
    async with desks(tmp_path) as at:
        place = at.ws / "sub" / "deep"
        one, other = at.policy(at.ws), at.policy(place)
        assert await at.run("echo 1 >file", other, place) == (0, "")
        put = f"mkdir -p {place}" if target is None else f"ln -s {at.root}/{target} {moved}"
        assert await at.run(f"mv {moved} sub.2; {put}", one, at.ws) == (0, "")
        patch = parse_patch("*** Begin Patch\n*** Add File: new\n+x\n*** End Patch")
        for cwd in (place, at.ws):
            with pytest.raises(SandboxUnavailable, match=f"`{place}` (led to|is not the folder)"):
                await at.run("echo 2 >file", other, cwd)
            with pytest.raises(NotApplicable, match=f"`{place}` (led to|is not the folder)"):
                await anyio.to_thread.run_sync(plan_patch, patch, str(cwd), other)
        # Who moved it is not held up by that.
        assert await at.run(f"rm -r {moved}; mv sub.2 {moved}", one, at.ws) == (0, "")
        assert await at.run("cat file", other, place) == (0, "1\n")
        assert list(at.user_home.iterdir()) == []


@claim("sandbox:places")
async def test_a_folder_for_temporary_files_that_was_missing_is_no_link(tmp_path: Path) -> None:
    async with desks(tmp_path) as at:
        sandbox_policy, temporary = at.policy(at.ws, at.root / "tmp"), at.root / "tmp" / "x"
        assert await at.run(f"ln -s {at.user_home} {temporary}", sandbox_policy, at.ws) == (0, "")
        for _ in range(2):
            code, printed = await at.run(f"echo x >{temporary}/f 2>&1", sandbox_policy, at.ws)
            assert code != 0, printed
            await at.machine.pin_roots(sandbox_policy)
        assert await at.run(f"rm {temporary}; mkdir {temporary}", sandbox_policy, at.ws) == (0, "")
        assert await at.run(f"echo x >{temporary}/file", sandbox_policy, at.ws) == (0, "")
        _, printed = await at.run(f"mv {temporary} {temporary}.2 2>&1", sandbox_policy, at.ws)
        assert "Device or resource busy" in printed
        assert list(at.user_home.iterdir()) == []


@claim("sandbox:places")
async def test_a_folder_that_is_swapped_all_the_time_is_never_left(tmp_path: Path) -> None:
    async with desks(tmp_path) as at:
        place = at.ws / "sub"
        sandbox_policy = at.policy(place)
        await at.machine.pin_roots(sandbox_policy)
        swapping = await asyncio.create_subprocess_exec(
            *(*PYTHON, SWAPS, str(place), str(at.user_home)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        ended: list[int | str | None] = []
        try:
            for _ in range(60):
                try:
                    line = f"echo x >{at.user_home}/file; echo x >file; echo x >{place}/deep/file"
                    ended.append((await at.run(line, sandbox_policy, place))[0])
                except (SandboxUnavailable, OSError) as exc:
                    ended.append(str(exc))
        finally:
            swapped, _ = await swapping.communicate(b"x")
        assert int(swapped) > 10
        assert list(at.user_home.iterdir()) == [], ended
        assert sorted(path.name for path in at.root.iterdir()) == ["home", "tmp", "ws"]
        assert await at.run("echo x >file", sandbox_policy, place) == (0, "")


@claim("sandbox:places")
async def test_a_root_that_is_missing_is_left_out(tmp_path: Path) -> None:
    async with desks(tmp_path) as at:
        sandbox_policy = at.policy(at.ws, at.ws / "no", at.ws / "no" / "where", at.root / "no")
        code, _ = await at.run(f"echo x >file; mkdir {at.root}/no", sandbox_policy, at.ws)
        assert code != 0
        assert (at.ws / "file").read_text() == "x\n"
        # It is a place once it is there.
        (at.root / "no").mkdir()
        assert await at.run(f"echo x >{at.root}/no/file", sandbox_policy, at.ws) == (0, "")


async def test_a_workspace_that_the_user_makes_anew_is_used(tmp_path: Path) -> None:
    async with desks(tmp_path) as at:
        sandbox_policy = at.policy(at.ws)
        assert await at.run("echo x >file", sandbox_policy, at.ws) == (0, "")
        at.ws.rename(at.root / "old")
        at.ws.mkdir()
        assert await at.run("echo x >file", sandbox_policy, at.ws) == (0, "")
        assert [path.name for path in at.ws.iterdir()] == ["file"]


async def test_a_place_that_is_named_again_is_used_as_it_is(tmp_path: Path) -> None:
    async with desks(tmp_path) as at:
        one, other = at.policy(at.ws), at.policy(at.ws / "sub")
        await at.machine.pin_roots(other)
        assert await at.run("mv sub old; mkdir sub", one, at.ws) == (0, "")
        with pytest.raises(SandboxUnavailable, match="is not the folder that it was"):
            await at.run("true", other, at.ws / "sub")
        await at.machine.pin_roots(other)
        assert await at.run("echo x >file", other, at.ws / "sub") == (0, "")


@claim("sandbox:places")
async def test_no_descriptor_of_a_place_is_in_the_sandbox(tmp_path: Path) -> None:
    async with desks(tmp_path) as at:
        sandbox_policy = at.policy(at.ws, at.ws / "sub")
        # The shell that lists them, and what it reads the folder with.
        line = 'for fd in /proc/self/fd/*; do echo "${fd##*/}"; done'
        assert await at.run(line, sandbox_policy, at.ws) == (0, "0\n1\n2\n3\n")


async def test_more_places_than_descriptors_are_refused(tmp_path: Path) -> None:
    async with desks(tmp_path) as at:
        roots = [at.root / f"root{number}" for number in range(MAX_OPEN + 1)]
        for root in roots:
            root.mkdir()
        sandbox_policy = replace(at.policy(*roots), protected=())
        at_bound = replace(sandbox_policy, writable=tuple(map(str, roots[:-1])))
        assert await at.run("echo x >file", at_bound, roots[0]) == (0, "")
        with pytest.raises(SandboxUnavailable, match=f"{MAX_OPEN} folders .* this has 201"):
            await at.run("true", sandbox_policy, roots[0])


async def test_a_bubblewrap_that_takes_no_descriptors_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = working_sandbox().sandbox().program
    old = tmp_path / "bwrap"
    old.write_text(
        "#!/bin/sh\n"
        'for word; do case $word in *-bind-fd) echo "bwrap: Unknown option $word" >&2; exit 1;;'
        f' esac; done\nexec {working} "$@"\n'
    )
    old.chmod(0o755)
    found = [str(old), working]
    monkeypatch.setattr("app_server.host.sandbox.machine_sandbox.bubblewraps", lambda: found)
    wrapper = MachineSandbox()
    assert wrapper.sandbox().program == working
    sandbox_policy = resolved(EffectivePolicy(writable=(str(tmp_path),)))
    ended = await run_confined(("true",), tmp_path, sandbox_policy, wrapper=wrapper)
    assert ended.code == 0
    del found[1]
    with pytest.raises(SandboxUnavailable, match="Unknown option --bind-fd"):
        MachineSandbox().sandbox()


@claim("sandbox:places")
async def test_the_thread_whose_folder_was_swapped_is_refused_also_with_command_exec(
    tmp_path: Path,
) -> None:
    working_sandbox()
    async with desk(tmp_path.resolve(), "workspace-write") as at:
        sub, outside = at.folder / "sub", at.folder.parent / "outside"
        for folder in (sub, outside):
            folder.mkdir()
        served, client = at.served, at.client
        other = await client.start_thread(cwd=str(sub), sandbox="workspace-write")
        execute = {"command": ["sh", "-c", "echo x >file"], "cwd": str(sub)}
        policy = {"sandboxPolicy": {"type": "workspaceWrite", "excludeSlashTmp": True}}
        assert (await client.call("command/exec", {**execute, **policy}))["exitCode"] == 0
        (sub / "file").unlink()
        assert (await at.run(f"mv sub sub.2; ln -s {outside} sub")).exit_code == 0
        at.thread_id = other
        wanted = f"`{sub}` led to `{sub}` when the sandbox was set, and leads to `{outside}` now"
        patch = "*** Begin Patch\n*** Add File: file\n+x\n*** End Patch"
        texts = await at.turn(
            command("echo x >file"),
            {"name": "apply_patch", "arguments": {"input": patch}},
            {"name": "view_image", "arguments": {"path": "file"}},
        )
        assert [wanted in text for text in texts] == [True] * 3, texts
        params = {"threadId": other, "input": [{"type": "text", "text": "go"}], "cwd": str(sub)}
        served.model.scripts[:] = []
        await client.call("turn/start", params)
        await client.until("turn/completed")
        refused = await client.refusal("command/exec", {**execute, **policy})
        assert wanted in refused.message
        assert list(outside.iterdir()) == []
