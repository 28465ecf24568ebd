"""app-server signal: which server it means, and what it says of one that is not for it."""

import asyncio
import os
from pathlib import Path

import pytest

from app_server.cli.signal import _told, make_parser
from app_server.runtime.http.peer_user import HOW_TO_LET_IN
from app_server.transport.address import Address, TcpAddress, UnixAddress
from tests.support.harness import WAIT_S, claim, environment_without, serve
from tests.support.other_user import STRANGER
from tests.support.receiver.processes import EXECUTABLE

pytestmark = pytest.mark.process


async def signal(home: Path, *words: str) -> tuple[int | None, list[str], list[str]]:
    """Run the command: exit status, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        str(EXECUTABLE),
        *("signal", *words),
        env=environment_without("APP_SERVER_URL") | {"APP_SERVER_HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 2 * WAIT_S)
    return process.returncode, out.decode().splitlines(), err.decode().splitlines()


async def test_an_address_right_behind_the_command_is_that_of_the_server(tmp_path: Path) -> None:
    home = tmp_path / "home"
    listen: list[Address] = [TcpAddress("127.0.0.1", 0), UnixAddress(tmp_path / "socket")]
    async with serve(home, listen=listen) as served, served.client() as client:
        thread_id = await client.start_thread()
        said = ("--from", "ann", "--type", "T", "--id", "one", "is it green?")
        for url in served.urls:
            # The home of the command is another one, where no server runs.
            for words in (("send", url, "--thread", thread_id, *said), ("list", url)):
                status, out, err = await signal(tmp_path, *words)
                assert (status, [line.split()[2] for line in out], err) == (0, ["one"], [])
        status, out, err = await signal(tmp_path, "recall", served.urls[0], "one")
        assert (status, [line.split()[1:3] for line in out], err) == (0, [["recalled", "one"]], [])
    assert "ws://127.0.0.1:4500" in make_parser().format_help()


@claim("wakes:cli")
async def test_wakes_are_set_listed_and_cancelled(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        of_thread = ("--thread", thread_id)
        file = tmp_path / "report"
        for words, shown in (
            (("--in", "3600", "Look."), "Look."),
            (("--every", "60", "--at", "2100-01-01T00:00:00Z"), None),
            (("--every", "60", "--until", "2100-01-01T00:00:00Z", "--queue"), "every=60"),
            (("--file", str(file), "--change", "created"), f"file={file} change=created"),
        ):
            status, out, err = await signal(tmp_path, "wake", "set", *of_thread, *words)
            if shown is None:
                rule = "must not be in the past, and at most 31622400 seconds away"
                text = f"app-server signal: Invalid params: `source.atMs` {rule}"
                assert (status, out, err) == (1, [], [text])
            else:
                assert (status, err) == (0, [])
                assert " armed " in out[0]
                assert shown in out[0]
        status, listed, _ = await signal(tmp_path, "wake", "list", served.urls[0], *of_thread)
        assert (status, len(listed)) == (0, 3)
        wake_id = listed[0].split()[2]
        status, out, _ = await signal(tmp_path, "wake", "cancel", *of_thread, wake_id)
        assert (status, out[0].split()[1:3]) == (0, ["cancelled", wake_id])
        status, out, _ = await signal(tmp_path, "wake", "list", "--state", "cancelled")
        assert [line.split()[2] for line in out] == [wake_id]


async def test_a_server_of_another_user_is_named_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path / "home") as served:
        (url,) = served.urls
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
        found = await signal(tmp_path, "--url", url, "list")
    refusal = f"This server belongs to another user of this machine. {HOW_TO_LET_IN}"
    assert found == (1, [], [f"app-server signal: {url} refuses this client: {refusal}"])


def test_a_socket_of_another_user_is_named_as_one() -> None:
    text = "unix:///x is of another user: only that user may connect"
    assert _told(PermissionError(13, "Permission denied"), "unix:///x") == text
