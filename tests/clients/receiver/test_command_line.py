"""The command line of the receiver."""

import asyncio
import os
import pty
import signal as signals
import subprocess
from pathlib import Path

import anyio
import pytest

from tests.support.receiver.processes import (
    EXECUTABLE,
    START_S,
    bridge,
    clean_environment,
    router_process,
)

pytestmark = pytest.mark.process


def run_receiver(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [str(EXECUTABLE), "receiver", *arguments],
        env=clean_environment(**environment),
        capture_output=True,
        text=True,
        timeout=START_S,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_a_wrong_call_ends_with_2_and_a_sentence(tmp_path: Path) -> None:
    home = ("--home", str(tmp_path))
    results = [
        run_receiver(*home, "--router-url", "ws://router.example.com"),
        run_receiver(*home, "--router-url", "wss://router.example.com", PRISM_API_KEY="ä"),
        run_receiver(*home, "--port", "4700"),
        run_receiver(*home, "--router-url", "wss://x.example", "--key-file", str(tmp_path / "no")),
    ]

    assert [result.returncode for result in results] == [2, 2, 2, 1]
    assert [result.stderr.splitlines()[-1] for result in results] == [
        "app-server receiver: error: ws:// would send the key in the clear: use wss://",
        "app-server receiver: error: the key must be 1 to 4096 printable ASCII characters on one "
        "line",
        "app-server receiver: error: --port is for --demo-router",
        f"app-server: the key file cannot be read: {tmp_path / 'no'}: No such file or directory",
    ]


def test_a_lock_that_is_a_link_is_refused_and_what_it_leads_to_is_not_made(tmp_path: Path) -> None:
    folder = tmp_path / "receiver"
    folder.mkdir(mode=0o700)
    for target in (tmp_path / "made", tmp_path / "there"):
        (tmp_path / "there").write_text("kept")
        link = folder / "mine.lock"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        result = run_receiver(
            *("--home", str(tmp_path), "--session", "mine", "--router-url", "ws://127.0.0.1:1")
        )
        assert (result.returncode, result.stderr.splitlines()[0]) == (
            1,
            f"app-server: {link}: a lock must not be a symbolic link",
        )
        assert not (tmp_path / "made").exists()
    assert (tmp_path / "there").read_text() == "kept"


async def test_who_starts_it_in_a_terminal_reads_what_it_waits_for(tmp_path: Path) -> None:
    terminal, inside = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(str(EXECUTABLE), "receiver", "--home", str(tmp_path)),
        env=clean_environment(),
        stdin=inside,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        with anyio.fail_after(2 * START_S):
            line = (await process.stderr.readline()).decode()
            os.kill(process.pid, signals.SIGTERM)
            assert await process.wait() in (0, -signals.SIGTERM)
    finally:
        os.close(terminal)
        os.close(inside)
    assert "an agent is expected on stdin" in line


def test_the_help_says_how_an_agent_is_configured() -> None:
    text = run_receiver("--help").stdout

    assert "[mcp_servers.prism]" in text
    assert "--demo-router --port 4700" in text
    assert "PRISM_CODEX_APP_SERVER_URL" in text


async def test_the_demo_router_makes_a_key_of_its_own_for_its_owner_alone(tmp_path: Path) -> None:
    key_file = tmp_path / "receiver" / "demo-router.key"
    async with router_process(tmp_path, PRISM_API_KEY="") as (router, _):
        pass
    # An empty key is none.
    key = key_file.read_text()
    assert key_file.stat().st_mode & 0o777 == 0o600
    async with (
        router_process(tmp_path, int(router.rpartition(":")[2]), PRISM_API_KEY="") as (again, _),
        bridge(tmp_path, router=again, PRISM_API_KEY=key) as texi,
    ):
        await texi.initialize()
        await texi.until_status(router="connected")
