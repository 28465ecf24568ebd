"""The server as a service: what systemd is told, and the files in docs/deploy."""

import configparser
import re
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio.to_thread
import pytest

from app_server.cli.serve import make_parser
from app_server.runtime.service_manager import ServiceManager
from app_server.server.settings import DRAIN_S
from app_server.threads.files.servers import servers_of
from tests.support.harness import claim, write_config
from tests.support.model import Gate, ScriptedModel, says
from tests.support.paths import ROOT
from tests.support.processes import run_cli, started

UNIT = ROOT / "docs" / "deploy" / "app-server.service"
CONTAINER = ROOT / "docs" / "deploy" / "Containerfile"


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """Stand for systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(60)
        receiver.bind(str(path))
        yield receiver


@pytest.mark.process
@claim("service:notify")
async def test_systemd_is_notified_that_the_server_is_ready_lives_and_stops(tmp_path: Path) -> None:
    with listening(tmp_path / "notify") as receiver:

        async def next_state() -> str:
            return (await anyio.to_thread.run_sync(receiver.recv, 4096)).decode()

        async def next_change() -> str:
            while (state := await next_state()) == "WATCHDOG=1":
                pass
            return state

        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        async with started(tmp_path, **environment) as server:
            assert await next_change() == f"STATUS=listening on {server.urls[0]}"
            assert await next_change() == "READY=1"
            assert [found.entry.pid for found in servers_of(tmp_path)] == [server.process.pid]
            assert [await next_state() for _ in range(2)] == ["WATCHDOG=1"] * 2
            server.process.terminate()
            assert await next_change() == "STOPPING=1"
            assert await server.process.wait() == 0


@pytest.mark.process
@claim("service:notify")
async def test_systemd_is_notified_of_the_stop_while_a_turn_may_still_end(tmp_path: Path) -> None:
    gate = Gate()
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        model.scripts.append([gate, *says("done")])
        with listening(tmp_path / "notify") as receiver:
            environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
            async with started(tmp_path, **environment) as server, server.client() as client:
                thread_id = await client.start_thread()
                text = [{"type": "text", "text": "go"}]
                await client.call("turn/start", {"threadId": thread_id, "input": text})
                await gate.wait_until_reached()
                server.process.terminate()
                while await anyio.to_thread.run_sync(receiver.recv, 4096) != b"STOPPING=1":
                    pass
                gate.opened.set()
                turn = (await client.wait_for("turn/completed"))["params"]["turn"]
                assert turn["status"] == "completed"
                assert await server.ended() == 0


@pytest.mark.process
def test_a_server_that_listens_and_cannot_serve_is_never_ready(tmp_path: Path) -> None:
    (tmp_path / "index" / "schema.lock").mkdir(parents=True)
    with listening(tmp_path / "notify") as receiver:
        options = ("--home", str(tmp_path), "--listen", "ws://127.0.0.1:0")
        result = run_cli(*options, NOTIFY_SOCKET=str(tmp_path / "notify"))
        said = receiver.recv(4096).decode()
        receiver.setblocking(False)
        with pytest.raises(BlockingIOError):
            receiver.recv(4096)
    assert result.returncode == 1
    assert said.startswith("STATUS=listening on ws://127.0.0.1:")
    assert "the home folder cannot be used: Is a directory" in result.stderr


@pytest.mark.process
def test_a_start_that_fails_under_systemd_ends_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    address = f"unix://{tmp_path / 'file'}"
    result = run_cli(
        "--home", str(tmp_path), "--listen", address, NOTIFY_SOCKET=str(tmp_path / "notify")
    )
    assert (result.returncode, result.stderr) == (
        1,
        f"app-server: [Errno 17] exists and is not a socket: '{tmp_path / 'file'}'\n",
    )


def test_what_is_taken_of_the_environment_is_not_left_for_children() -> None:
    environ = {"NOTIFY_SOCKET": "@s", "WATCHDOG_USEC": "30000000", "PATH": "/bin"}
    assert ServiceManager.take(environ) == ServiceManager("@s", 30.0)
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("environ", "manager"),
    [
        ({}, None),
        ({"NOTIFY_SOCKET": "vsock:2:1"}, None),
        ({"NOTIFY_SOCKET": "/s"}, ServiceManager("/s")),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "soon"}, ServiceManager("/s")),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}, ServiceManager("/s")),
    ],
)
def test_what_makes_no_sense_is_passed_over(
    environ: dict[str, str], manager: ServiceManager | None
) -> None:
    assert ServiceManager.take(environ) == manager


def test_an_unread_notify_socket_blocks_nothing(tmp_path: Path) -> None:
    ServiceManager(str(tmp_path / "gone")).notify("READY=1")
    ServiceManager(f"@{tmp_path}/gone").notify("READY=1")
    with listening(tmp_path / "full"):
        for _ in range(10_000):
            ServiceManager(str(tmp_path / "full")).notify("READY=1")


def words_of_command(text: str) -> list[str]:
    """Return what follows the program."""
    words = shlex.split(text)
    return words[1:]


def test_the_unit_starts_a_server_and_gives_it_time_to_stop() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]  # keys have capitals
    unit.read(UNIT)
    service = unit["Service"]
    options = make_parser().parse_args(words_of_command(service["ExecStart"]))
    assert (options.listen, options.log_format) == (["unix://"], "json")
    assert (service["Type"], service["KillMode"]) == ("notify", "mixed")
    # What is left of it is for unloading, writing and closing.
    assert float(service["TimeoutStopSec"]) >= DRAIN_S + 20
    assert service["RestartPreventExitStatus"] == "2"


def test_the_container_starts_a_server_behind_a_token() -> None:
    text = CONTAINER.read_text()
    (command,) = re.findall(r"^CMD (\[.*?\])$", text, re.MULTILINE | re.DOTALL)
    options = make_parser().parse_args(re.findall(r'"([^"]*)"', command))
    assert options.listen == ["ws://0.0.0.0:4500"]
    assert (options.ws_auth, options.ws_token_file) == (
        "capability-token",
        "/run/secrets/app-server-token",
    )
    assert options.config == ["refuse_other_users=false"]
    # What settings can ask for without an image of one's own.
    assert "'.[otel,postgresql]'" in text
    copied = set(re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE))
    named = {name for names in copied for name in names.split()}
    assert named == {
        *("app_server", "protocol"),
        *("LICENSE", "constraints.txt", "pyproject.toml", "README.md"),
    }
    assert all((ROOT / name).exists() for name in named)
