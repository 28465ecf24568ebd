"""`app-server inspect` as users run it."""

import asyncio
import signal
import socket
import sys
from pathlib import Path

import anyio
import pytest

from app_server.cli.inspect import main
from app_server.clients.inspector.upstream import parse_upstream
from app_server.peer.address import ServerAddress
from tests.support.harness import WAIT_S
from tests.support.processes import running


async def start(*words: str) -> asyncio.subprocess.Process:
    """Run the command in a process of its own."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app_server.cli.serve", "inspect", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
async def test_the_address_is_printed_and_a_signal_ends_it(end: signal.Signals) -> None:
    process = await start("ws://127.0.0.1:9")
    assert process.stdout is not None
    with anyio.fail_after(WAIT_S):
        url = (await process.stdout.readline()).decode().strip()
        process.send_signal(end)
        out, err = await process.communicate()
    start_of_url, _, token = url.partition("/#token=")
    assert start_of_url.startswith("http://127.0.0.1:")
    assert len(token) == 43
    assert (process.returncode, out, err) == (0, b"", b"inspecting ws://127.0.0.1:9\n")


@pytest.mark.process
async def test_without_an_address_it_is_the_server_that_runs(tmp_path: Path) -> None:
    token = tmp_path / "token"
    listen = ("stdio://", "ws://127.0.0.1:0")
    async with running(tmp_path, *listen, options=("--token-file", str(token))) as server:
        process = await start("--home", str(tmp_path))
        assert process.stdout is not None
        with anyio.fail_after(WAIT_S):
            await process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            _, err = await process.communicate()
    (url,) = [url for url in server.urls if url.startswith("ws://")]
    assert err.decode() == f"inspecting {url}\n"


@pytest.mark.slow
async def test_without_a_server_the_error_says_how_to_start_one(tmp_path: Path) -> None:
    process = await start("--home", str(tmp_path))
    with anyio.fail_after(WAIT_S):
        out, err = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert err.decode() == (
        f"app-server inspect: no server runs with {tmp_path}. Start one:\n"
        f"  app-server --home {tmp_path} --listen ws://127.0.0.1:4500 &\n"
        f"  app-server inspect --home {tmp_path}\n"
        "To wait for a server that does not run yet, name its address: app-server inspect URL\n"
    )


async def test_the_page_is_opened_in_the_browser_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    # What it gets is the address of a file, as others can read its arguments.
    browser.write_text(f'#!/bin/sh\necho "$1" >{opened}\ncat "${{1#file://}}" >>{opened}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    process = await start("--open", "ws://127.0.0.1:9")
    assert process.stdout is not None
    with anyio.fail_after(WAIT_S):
        url = (await process.stdout.readline()).decode().strip()
        # A browser is started and waited for before signals are looked at.
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    address, content = opened.read_text().splitlines()
    assert content == f'<!doctype html><meta http-equiv="refresh" content="0; url={url}">'
    assert url.partition("token=")[2] not in address
    folder = Path(address.removeprefix("file://")).parent
    assert not folder.exists()


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await start("--port", str(port), "ws://127.0.0.1:9")
        with anyio.fail_after(WAIT_S):
            out, err = await process.communicate()
    assert (process.returncode, out) == (1, b"")
    assert f"app-server inspect: cannot listen on port {port}: " in err.decode()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["http://127.0.0.1:1"], "use ws://127.0.0.1:PORT or unix://PATH"),
        (["ws://example.com:1"], "use ws://127.0.0.1:PORT or unix://PATH"),
        (["ws://127.0.0.1"], "use ws://127.0.0.1:PORT or unix://PATH"),
        (["unix://"], "use ws://127.0.0.1:PORT or unix://PATH"),
        (["ws://127.0.0.1:1/?secret"], "cannot inspect 'ws://127.0.0.1:1/': nothing may"),
        (["ws://127.0.0.1?secret"], "cannot inspect 'ws://127.0.0.1': use ws://127.0.0.1:PORT"),
        (["ws://127.0.0.1:1/path"], "nothing may stand beside host and port"),
        (["ws://user@127.0.0.1:1"], "the address of a server has no user"),
        (["ws://127.0.0.1:65536"], "use ws://127.0.0.1:PORT or unix://PATH"),
        (["ws://[::1:1"], "use ws://127.0.0.1:PORT or unix://PATH"),
        (["--port", "65536"], "argument --port: must be a whole number from 0 to 65535"),
        (["--port", "-1"], "argument --port: must be a whole number from 0 to 65535"),
        (["--port", "x"], "argument --port: must be a whole number from 0 to 65535"),
    ],
)
def test_a_wrong_call_gets_a_line_with_what_is_wrong(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    "url", ["ws://127.0.0.1:4500", "ws://localhost:4500/", "ws://[::1]:4500", "unix:///run/s"]
)
def test_servers_of_this_machine_can_be_inspected(url: str) -> None:
    assert parse_upstream(url) == ServerAddress(url)


def test_help_teaches_the_first_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for part in ("examples:", "first steps on the page:", "who can open it:", "exit status"):
        assert part in out
