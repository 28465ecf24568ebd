"""The sandbox around commands of real turns, and around output without an end."""

import os
import resource
from pathlib import Path

import anyio
import pytest

from app_server.host.commands.local_commands import CommandLaunch, LocalCommands
from app_server.transport.guards import CapabilityAuth, ListenerGuards
from app_server.transport.tokens import digest_of
from tests.support.harness import WireClient, claim, serve
from tests.support.host.sandboxes import make_victim, working_sandbox
from tests.support.turn_tools.turn_commands import desk

GIB = 1 << 30


@pytest.mark.process
@claim("sandbox:secrets", "sandbox:files", "sandbox:processes")
async def test_a_model_does_not_get_at_its_server(tmp_path: Path) -> None:
    working_sandbox()
    async with desk(tmp_path, "workspace-write") as at:
        home = at.served.home
        (home / "auth.json").write_text('{"OPENAI_API_KEY": "sk-secret"}')
        (home / "rules").mkdir(exist_ok=True)
        before = (home / "config.toml").read_text()
        script = (
            f"cat {home}/auth.json; echo x >{home}/config.toml; echo x >{home}/rules/default.rules;"
            f" echo x >{home}/new; kill -0 {os.getpid()}; cat /proc/{os.getpid()}/environ;"
            " mkdir .codex; ln -s / all; echo x >all/etc/escaped; unshare -U true; echo end"
        )
        told = await at.run(script)
        assert "sk-secret" not in told.output
        refused = [line for line in told.output.splitlines() if line != "end"]
        assert (told.exit_code, len(refused)) == (0, 9), told.output
        assert (home / "config.toml").read_text() == before
        assert list((home / "rules").iterdir()) == []
        assert not (home / "new").exists()
        folder = at.folder
    # What the sandbox had put there is gone at the latest when the server has ended.
    assert [path.name for path in folder.iterdir()] == ["all"]


@pytest.mark.process
@claim("sandbox:secrets", "listener:token-file")
async def test_a_confined_command_does_not_read_what_clients_show(tmp_path: Path) -> None:
    working_sandbox()
    made, given = tmp_path / "made", tmp_path / "given"
    given.write_text("given-token")
    auth = CapabilityAuth(digest_of("given-token"), given)
    guards = ListenerGuards(auth=auth, token_file=made)
    async with serve(tmp_path / "home", guards=guards) as served:
        headers = {"Authorization": f"Bearer {made.read_text().strip()}"}
        async with served.pipe(additional_headers=headers) as pipe:
            client = WireClient(pipe)
            await client.initialize()
            read = {
                "command": ["sh", "-c", f"cat {made} {given}; echo end"],
                "cwd": str(tmp_path),
                "sandboxPolicy": {"type": "readOnly", "networkAccess": True},
            }
            told = await client.call("command/exec", read)
    assert (told["exitCode"], told["stdout"]) == (0, "end\n")
    assert told["stderr"].count("Permission denied") == 2, told["stderr"]


async def counted(tmp_path: Path, size: int, commands: int = 1) -> int:
    """Have confined commands print that many bytes each, at once; returns how many came."""
    victim = make_victim(tmp_path / "machine")
    machine = LocalCommands()
    came = 0

    def count(stream: str, data: bytes) -> None:
        nonlocal came
        came += len(data)

    async def run() -> None:
        launch = CommandLaunch(
            argv=("head", "-c", str(size), "/dev/zero"),
            env={"PATH": os.environ["PATH"]},
            cwd=str(victim.work),
        )
        running = await machine.start(launch, victim.sandbox_policy(), count)
        with anyio.fail_after(600):
            await running.finished.wait()
        assert running.returncode == 0

    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(commands):
                tasks.start_soon(run)
    finally:
        await machine.aclose()
    return came


def used_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.process
@claim("sandbox:output")
async def test_output_does_not_pile_up(tmp_path: Path) -> None:
    working_sandbox()
    await counted(tmp_path / "first", 1 << 20)
    before = used_kib()
    # Two seconds: a command may print 64 MiB a second.
    assert await counted(tmp_path / "second", GIB // 8) == GIB // 8
    assert used_kib() - before < 50 * 1024


@pytest.mark.process
@pytest.mark.slow
@claim("sandbox:output")
async def test_ten_gigabytes_of_output_do_not_pile_up(tmp_path: Path) -> None:
    working_sandbox()
    await counted(tmp_path / "first", 1 << 20)
    before = used_kib()
    # One command alone may print 64 MiB a second.
    assert await counted(tmp_path / "second", GIB, commands=10) == 10 * GIB
    assert used_kib() - before < 50 * 1024
