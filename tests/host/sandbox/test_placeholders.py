"""What a sandbox puts where something protected is not there: nobody takes it for a project."""

import asyncio
import fcntl
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from app_server.config.values import Config
from app_server.extensions.plugins.marketplace import find_marketplaces
from app_server.host.commands.local_commands import RECORDS, LocalCommands
from app_server.host.repository import RepositoryState, read_repository
from app_server.host.sandbox.linux.placeholders import Placeholder, PlaceholderRecords
from app_server.host.sandbox.wrapped_command import SandboxUnavailable
from app_server.permissions.sandbox.policy import PLACEHOLDER_MODE, EffectivePolicy, is_there
from app_server.permissions.trust import project_trust
from app_server.runtime.files.repository import repository_of
from app_server.sessions.agents_files import project_folders
from tests.support.harness import WAIT_S, claim
from tests.support.host.commands import Printed, sh
from tests.support.host.sandboxes import working_sandbox
from tests.support.turn_tools.turn_commands import desk

SHA = "a" * 40


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a repository with a folder in it."""
    root = tmp_path.resolve() / "project"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text(SHA)
    (root / "sub").mkdir()
    return root


@pytest.fixture
def sub(project: Path) -> Iterator[Path]:
    """Let commands be confined to the folder."""
    folder = os.open(project / "sub", os.O_RDONLY)
    laid = [Placeholder(folder, name) for name in (".git", ".codex", ".agents")]
    os.close(folder)
    yield project / "sub"
    for placeholder in laid:
        placeholder.release()
    assert list((project / "sub").iterdir()) == []


def test_the_repository_around_it_is_found(project: Path, sub: Path) -> None:
    assert repository_of(sub) == project
    assert read_repository(sub) == RepositoryState(SHA, None, None)
    assert project_folders(sub, [".git", ".codex"]) == [project, sub]
    trusted = Config({"projects": {str(project): {"trust_level": "trusted"}}})
    assert project_trust(trusted, str(sub)) == "trusted"
    file = project / ".agents" / "plugins" / "marketplace.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert list(find_marketplaces([sub], project.parent, [])) == [file]


def test_what_others_made_is_there(project: Path) -> None:
    link = project / "link"
    link.symlink_to("nowhere")
    assert [is_there(path) for path in (link, project / ".git", project / "no")] == [
        True,
        True,
        False,
    ]


@pytest.mark.process
@claim("sandbox:missing")
async def test_nothing_is_left_in_the_folder_when_a_command_is_known_to_have_ended(
    tmp_path: Path,
) -> None:
    working_sandbox()
    async with desk(tmp_path, "workspace-write") as at:
        for _ in range(5):
            told = await at.run("ls -A")
            assert told.output == ".agents\n.codex\n.git\n"
            # Of all messages the item's end was the first after which a client may have looked.
            assert list(at.folder.iterdir()) == []
        ended = await at.client.call(
            "command/exec",
            {
                "command": ["ls", "-A"],
                "cwd": str(at.folder),
                "sandboxPolicy": {"type": "workspaceWrite"},
            },
        )
        assert (ended["stdout"], list(at.folder.iterdir())) == (".agents\n.codex\n.git\n", [])
        records = at.served.home / RECORDS
    assert list(records.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
import anyio
from app_server.host.commands.local_commands import LocalCommands
from app_server.permissions.sandbox.policy import EffectivePolicy
from tests.support.host.commands import Printed, sh

async def main(folder, home):
    protected = tuple(f"{folder}/{name}" for name in (".git", ".codex", ".agents"))
    machine = LocalCommands(home=Path(home))
    sandbox_policy = EffectivePolicy(writable=(folder,), protected=protected)
    printed = anyio.Event()
    await machine.start(
        sh("echo x; exec sleep 1000", cwd=folder), sandbox_policy, lambda *_: printed.set()
    )
    await printed.wait()
    os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main, *sys.argv[1:])
"""


@pytest.mark.process
@claim("sandbox:missing")
async def test_a_killed_server_leaves_nothing_in_the_folder(tmp_path: Path) -> None:
    working_sandbox()
    folder, home = tmp_path.resolve() / "work", tmp_path.resolve() / "home"
    folder.mkdir()
    killed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", KILLED, str(folder), str(home))
    )
    with anyio.fail_after(WAIT_S):
        assert await killed.wait() == -signal.SIGKILL
        # The supervisor ends the command first, and the last folder has its lock until then.
        with suppress(FileNotFoundError):
            last = os.open(folder / ".git", os.O_RDONLY)
            await anyio.to_thread.run_sync(fcntl.flock, last, fcntl.LOCK_EX)
            os.close(last)
    assert list(folder.iterdir()) == []
    machine = LocalCommands(home=home)
    assert len(list((home / RECORDS).iterdir())) == 1
    await machine.load_sandbox()
    assert list((home / RECORDS).iterdir()) == []
    await machine.aclose()


def left_by(folder: Path, home: Path, *, has_identities: bool = True) -> list[Path]:
    """Leave behind what a server leaves that was killed with all its processes; gives where."""
    paths = [folder / name for name in (".git", ".codex", ".agents")]
    for path in paths:
        path.mkdir()
        path.chmod(PLACEHOLDER_MODE)
    lines: list[list[Any]] = [[str(path) for path in paths]]
    if has_identities:
        lines.append([[path.stat().st_dev, path.stat().st_ino] for path in paths])
    (home / RECORDS).mkdir(parents=True, exist_ok=True)
    (home / RECORDS / "0123.0").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return paths


@claim("sandbox:missing")
@pytest.mark.parametrize("has_identities", [True, False])
@pytest.mark.parametrize("moment", ["start", "load", "command"])
async def test_what_a_dead_server_left_is_removed(
    tmp_path: Path, moment: str, has_identities: bool
) -> None:
    folder, home = tmp_path.resolve() / "work", tmp_path.resolve() / "home"
    (folder / "sub").mkdir(parents=True)
    left_by(folder, home, has_identities=has_identities)
    machine = LocalCommands(home=home)
    sandbox_policy = EffectivePolicy(writable=(str(folder / "sub"),))
    if moment == "start":
        await machine.load_sandbox()
    elif moment == "load":
        await machine.pin_roots(sandbox_policy)
    else:
        working_sandbox()
        started = await machine.start(sh("true", cwd="/"), sandbox_policy, lambda *_: None)
        await started.finished.wait()
    assert [path.name for path in folder.iterdir()] == ["sub"]
    assert list((home / RECORDS).iterdir()) == []
    await machine.aclose()


async def test_what_users_made_of_it_stays(tmp_path: Path) -> None:
    folder, home = tmp_path.resolve() / "work", tmp_path.resolve() / "home"
    folder.mkdir()
    git, codex, agents = left_by(folder, home)
    # Used, made anew by a user, and put there by one of the same mode.
    (git / "HEAD").write_text(SHA)
    (folder / "kept").mkdir()
    codex.rmdir()
    codex.mkdir()
    (folder / "made").mkdir()
    (folder / "made").chmod(PLACEHOLDER_MODE)
    agents.rename(folder / "moved")
    (folder / "made").rename(agents)
    records = PlaceholderRecords(home / RECORDS)
    records.remove_left()
    assert {path.name for path in folder.iterdir()} == {
        *(".git", ".codex", ".agents", "kept", "moved")
    }
    assert list((home / RECORDS).iterdir()) == []


def test_what_somebody_holds_stays_with_its_record(tmp_path: Path) -> None:
    folder, home = tmp_path.resolve() / "work", tmp_path.resolve() / "home"
    folder.mkdir()
    mine, others = (PlaceholderRecords(home / RECORDS) for _ in range(2))
    inside = os.open(folder, os.O_RDONLY)
    with mine.written([str(folder / ".git")]) as record:
        # Nothing is there yet, and its server lives.
        others.remove_left()
        assert len(list((home / RECORDS).iterdir())) == 1
        held = Placeholder(inside, ".git")
        record.add([held.identity])
        others.remove_left()
    assert list((home / RECORDS).iterdir()) == []
    (home / RECORDS / "0123.0").write_text(f"{json.dumps([str(folder / '.git')])}\n")
    others.remove_left()
    assert [path.name for path in (home / RECORDS).iterdir()] == ["0123.0"]
    held.release()
    assert list(folder.iterdir()) == []
    others.remove_left()
    assert list((home / RECORDS).iterdir()) == []
    os.close(inside)


@pytest.mark.parametrize("content", ["", "x", '["/nowhere/.git", 1]\n', '["a"]\n[[1]]\n', "[]\n\n"])
def test_a_record_that_makes_no_sense_is_dropped(tmp_path: Path, content: str) -> None:
    (tmp_path / "0123.0").write_text(content)
    (tmp_path / "0124.0").symlink_to("0125.0")
    PlaceholderRecords(tmp_path).remove_left()
    assert [path.name for path in tmp_path.iterdir()] == ["0124.0"]


def test_placeholders_are_made_where_nothing_can_be_written_down(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    records = PlaceholderRecords(tmp_path / "file" / "records")
    with records.written(["/nowhere"]) as record:
        record.add([[1, 2]])
    records.remove_left()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.process
async def test_a_lock_of_a_command_does_not_hold_up_others(tmp_path: Path) -> None:
    working_sandbox()
    machine, place = LocalCommands(), tmp_path.resolve() / "sub" / ".git"
    place.mkdir(parents=True)
    # As a command of another thread can make it, whose folder is around this one.
    place.chmod(PLACEHOLDER_MODE)
    locked = os.open(place, os.O_RDONLY)
    fcntl.flock(locked, fcntl.LOCK_EX)
    try:
        sandbox_policy = EffectivePolicy(
            writable=(str(place.parent),), protected=(str(place),), network=False
        )
        with anyio.fail_after(WAIT_S), pytest.raises(SandboxUnavailable) as refused:
            await machine.start(sh("true", cwd=str(place.parent)), sandbox_policy, Printed().take)
        assert str(refused.value) == (
            f"the sandbox cannot be made: `{place}` cannot be held: another program has locked it"
        )
    finally:
        os.close(locked)
        await machine.aclose()
