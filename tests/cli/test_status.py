"""app-server status: which servers run with a home, and which were killed."""

import fcntl
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from app_server import VERSION
from app_server.cli.status import Process, as_json, render, render_nodes
from app_server.runtime.clock import STARTED_AT
from app_server.threads.failures import Holder
from app_server.threads.files.servers import MAX_FILES, announced, servers_of
from app_server.threads.nodes import Node
from app_server.threads.servers import FoundServer, ServerEntry
from app_server.transport.address import Address, TcpAddress, UnixAddress
from app_server.transport.guards import ListenerGuards
from tests.support.harness import serve
from tests.support.processes import run_cli, started

NOW = 1_800_000_000


def entry(pid: int = 7, started_at: int = NOW, **more: Any) -> ServerEntry:
    members = {"version": "1.0", "addresses": ["ws://127.0.0.1:1"], **more}
    return ServerEntry(pid=pid, started_at=started_at, **members)


# The list.


def test_a_list_for_people_says_what_each_server_does() -> None:
    servers = [
        FoundServer(entry(7, NOW - 93_784, token_file="/home/me/token"), is_running=True),
        FoundServer(entry(8, NOW - 61, addresses=[]), is_running=True),
        FoundServer(entry(9, NOW - 5), is_running=False),
    ]
    threads: dict[Process, int] = {
        (7, NOW - 93_784): 3,
        (8, NOW - 61): 1,
        (9, NOW - 5): 4,
        (7, NOW): 5,
    }
    assert render(Path("/home"), servers, threads, NOW) == [
        "process 7  version 1.0  since 2027-01-14T05:56:56Z (1 d 2 h)  3 threads",
        "  ws://127.0.0.1:1",
        "  token: /home/me/token",
        "process 8  version 1.0  since 2027-01-15T07:58:59Z (1 min 1 s)  1 thread",
        "stale: process 9 was killed; it had started 2027-01-15T07:59:55Z",
    ]
    assert render(Path("/home"), servers[2:], {}, NOW)[0] == "no server runs with /home"
    assert render(Path("/home"), [], {}, NOW) == ["no server runs with /home"]


def test_a_list_for_programs_has_the_same() -> None:
    servers = [
        FoundServer(entry(7, token_file="/t"), is_running=True),
        FoundServer(entry(9), is_running=False),
    ]
    shared = {"version": "1.0", "startedAt": NOW, "addresses": ["ws://127.0.0.1:1"]}
    assert as_json(Path("/home"), servers, {(7, NOW): 3, (9, NOW): 2}) == {
        "home": "/home",
        "servers": [
            {"pid": 7, "state": "running", "threads": 3, "tokenFile": "/t", **shared},
            {"pid": 9, "state": "stale", "threads": 0, "tokenFile": None, **shared},
        ],
    }


def test_nodes_of_a_database_say_how_long_their_lease_lasts() -> None:
    def node(name: str, lease_left_s: float, threads: int, *, is_dead: bool = False) -> Node:
        holder = Holder(7, NOW - 61, "ws://10.0.0.1:4500")
        return Node(name, "host", holder, "1.0", "", is_dead, lease_left_s, threads)

    assert render_nodes(
        [node("a", 8.25, 1), node("b", -75, 2), node("c", -99, 3, is_dead=True)], NOW
    ) == [
        "node a  process 7 on host  version 1.0  since 1 min 1 s  lease 8.2 s  1 thread",
        "  ws://10.0.0.1:4500",
        "node b  process 7 on host  version 1.0  since 1 min 1 s  silent: its lease ran out "
        "1 min 15 s ago  2 threads",
        "  ws://10.0.0.1:4500",
        "dead: node c  process 7 on host; it left 3 threads to the others",
    ]


def test_a_database_that_cannot_be_asked_is_named_beside_the_list(tmp_path: Path) -> None:
    ended = run_cli(
        *("status", "--home", str(tmp_path)), APP_SERVER_STORE="postgresql://me:pass-w0rd@/t?host=/"
    )
    assert (ended.returncode, ended.stdout) == (1, f"no server runs with {tmp_path}\n")
    assert ended.stderr.startswith("app-server status: ")
    assert "pass-w0rd" not in ended.stderr
    wrong = run_cli("status", "--home", str(tmp_path), "--store", "mysql://h/d")
    assert (wrong.returncode, "--store" in wrong.stderr) == (1, True)


# The files.


def test_a_server_is_found_while_it_runs(tmp_path: Path) -> None:
    assert servers_of(tmp_path) == []
    first, second = entry(2, NOW), entry(1, NOW + 1)
    with announced(tmp_path, second), announced(tmp_path, first):
        found = [FoundServer(each, is_running=True) for each in (first, second)]
        assert servers_of(tmp_path) == found
        for path in (tmp_path / "servers").iterdir():
            assert path.stat().st_mode & 0o777 == 0o600
    assert list((tmp_path / "servers").iterdir()) == []


def left_behind(home: Path, content: str) -> Path:
    """Write what a server that was killed leaves: nobody holds it."""
    path = home / "servers" / "left.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return path


def test_a_server_that_was_killed_is_stale_until_the_next_one_starts(tmp_path: Path) -> None:
    stale = left_behind(tmp_path, json.dumps({
        "pid": 9, "version": "1.0", "started_at": NOW, "addresses": ["ws://127.0.0.1:1"],
        "token_file": None,
    }))  # fmt: skip
    assert servers_of(tmp_path) == [FoundServer(entry(9), is_running=False)]
    assert stale.exists()
    with announced(tmp_path, entry()):
        assert servers_of(tmp_path) == [FoundServer(entry(), is_running=True)]
    assert not stale.exists()


def test_a_draft_that_a_killed_server_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "servers"
    folder.mkdir()
    dead, others, alive = (
        folder / name for name in (f"{'a' * 16}.draft", "b.draft", f"{'c' * 16}.draft")
    )
    for path in (dead, others, alive):
        path.write_text("{")
    os.mkfifo(folder / f"{'d' * 16}.json")
    with alive.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with announced(tmp_path, entry()):
            assert len(servers_of(tmp_path)) == 1
    assert sorted(folder.iterdir()) == [others, alive]


def test_a_draft_that_was_taken_for_one_of_the_dead_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, removed = fcntl.flock, list[Path]()

    def lock_after_removal(file: int, kind: int) -> None:
        """Let another server start between the making of a draft and its lock."""
        drafts = list((tmp_path / "servers").glob("*.draft"))
        if drafts and len(removed) < 2:
            removed.extend(drafts)
            drafts[0].unlink()
        lock(file, kind)

    monkeypatch.setattr(fcntl, "flock", lock_after_removal)
    with announced(tmp_path, entry()):
        assert [found.entry for found in servers_of(tmp_path)] == [entry()]
    assert len(removed) == 2
    assert list((tmp_path / "servers").iterdir()) == []


@pytest.mark.parametrize(
    "content",
    ["", "[]", "5", "{}", '{"pid": "9"}', "\0" * 70_000, "[" * 60_000, json.dumps({
        "pid": 9, "version": 1, "started_at": NOW, "addresses": "ws://", "token_file": None,
    })],
)  # fmt: skip
def test_a_file_that_no_server_wrote_is_passed_over(tmp_path: Path, content: str) -> None:
    left_behind(tmp_path, content)
    # To open it would wait for somebody who writes into it.
    os.mkfifo(tmp_path / "servers" / "pipe.json")
    (tmp_path / "servers" / "folder.json").mkdir()
    assert servers_of(tmp_path) == []


def test_files_are_looked_at_up_to_a_bound(tmp_path: Path) -> None:
    with announced(tmp_path, entry(1)):
        [file] = (tmp_path / "servers").iterdir()
        for number in range(MAX_FILES):
            (file.parent / f"copy{number}.json").write_bytes(file.read_bytes())
        assert len(servers_of(tmp_path)) == MAX_FILES


def test_a_folder_that_cannot_be_used_keeps_no_server_from_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "servers").write_text("")
    with announced(tmp_path, entry()):
        assert "will not be shown by `app-server status`" in caplog.text
    with pytest.raises(NotADirectoryError):
        servers_of(tmp_path)


# Servers.


async def test_a_server_says_where_it_listens_and_how_many_threads_it_has(tmp_path: Path) -> None:
    home, token = tmp_path / "home", tmp_path / "token"
    listen: list[Address] = [TcpAddress("127.0.0.1", 0), UnixAddress(tmp_path / "socket")]
    async with serve(home, listen=listen, guards=ListenerGuards(token_file=token)) as served:
        (found,) = servers_of(home)
        assert found == FoundServer(
            ServerEntry(os.getpid(), VERSION, STARTED_AT, list(served.urls), str(token)),
            is_running=True,
        )
    assert servers_of(home) == []


@pytest.mark.slow
@pytest.mark.process
async def test_the_command_shows_who_runs_and_who_was_killed(tmp_path: Path) -> None:
    home = ("--home", str(tmp_path))
    none = run_cli("status", *home)
    assert (none.returncode, none.stdout) == (1, f"no server runs with {tmp_path}\n")
    async with started(tmp_path) as first, started(tmp_path) as second:
        # Whoever answers has written its file.
        async with first.client() as client, second.client():
            for _ in range(2):
                await client.call("thread/start", {})
            # Once it serves requests it has written down that it runs.
            async with second.client():
                pass
            os.kill(second.process.pid, signal.SIGKILL)
            await second.ended()
            shown = run_cli("app-server", "status", *home)
            listed = run_cli("status", *home, "--json")
        assert (shown.returncode, listed.returncode) == (0, 0)
        lines = [re.sub(r"since \S+ \(.*?\)", "since", line) for line in shown.stdout.splitlines()]
        assert lines[:2] == [
            f"process {first.process.pid}  version {VERSION}  since  2 threads",
            f"  {first.urls[0]}",
        ]
        assert lines[2].startswith(f"stale: process {second.process.pid} was killed; ")
        told = [(one["pid"], one["state"]) for one in json.loads(listed.stdout)["servers"]]
        assert told == [(first.process.pid, "running"), (second.process.pid, "stale")]
