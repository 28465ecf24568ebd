"""Logs that several servers write: torn lines, disks that refuse, locks that others hold."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from app_server.threads.organization import shared_log
from app_server.threads.organization.filing import Filing, FilingState
from app_server.threads.organization.shared_log import LogLocked, SharedLog
from protocol.log.filing import ProjectDeleted, ProjectMoved, ProjectPut
from tests.support.harness import WAIT_S, Served, WireClient, WireError, serve
from tests.support.threads.organization import project


def test_a_torn_line_of_a_shared_log_is_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first, second = SharedLog(path), SharedLog(path)
    assert first.read_new() == []
    first.append(lambda _: [b"1\n"])
    with path.open("ab") as file:
        file.write(b"torn")
    assert second.read_new() == [b"1\n"]
    seen: list[bytes] = []

    def decide(added: Any) -> list[bytes]:
        seen.extend(added)
        return [b"2\n", b"3\n"]

    second.append(decide)
    assert seen == []
    assert path.read_bytes() == b"1\n2\n3\n"
    assert first.read_new() == [b"2\n", b"3\n"]


def test_a_shared_log_that_the_disk_refuses_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    log = SharedLog(path)
    log.append(lambda _: [b"1\n"])
    real_write = os.write

    def full_disk(file: int, content: bytes) -> int:
        if len(content) > 2:
            return real_write(file, content[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full_disk)
    with pytest.raises(OSError, match="No space left"):
        log.append(lambda _: [b"22\n"])
    monkeypatch.undo()
    assert path.read_bytes() == b"1\n"
    log.append(lambda _: [b"3\n"])
    assert path.read_bytes() == b"1\n3\n"


def test_lines_that_are_taken_back_are_read_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    first, second = SharedLog(path), SharedLog(path)
    first.append(lambda _: [b"1\n"])
    assert second.read_new() == [b"1\n"]
    monkeypatch.setattr(shared_log, "LOCK_WAIT_S", 0)

    def broken_disk(_: int) -> None:
        assert path.read_bytes() == b"1\n22\n33\n"
        with pytest.raises(LogLocked):
            second.read_new()
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken_disk)
        with pytest.raises(OSError, match="Input/output error"):
            first.append(lambda _: [b"22\n", b"33\n"])
    assert second.read_new() == []
    first.append(lambda _: [b"4\n"])
    assert second.read_new() == [b"4\n"]
    second.append(lambda added: [*added, b"5\n"])
    assert path.read_bytes() == b"1\n4\n5\n"


def test_a_shared_log_that_others_hold_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    log, other = SharedLog(path), SharedLog(path)
    held, release = threading.Event(), threading.Event()

    def hold(_: Any) -> list[bytes]:
        held.set()
        assert release.wait(WAIT_S)
        return [b"held\n"]

    holder = threading.Thread(target=other.append, args=(hold,))
    holder.start()
    assert held.wait(WAIT_S)
    monkeypatch.setattr(shared_log, "LOCK_WAIT_S", 0)
    with pytest.raises(LogLocked):
        log.append(lambda _: [b"mine\n"])
    release.set()
    monkeypatch.undo()
    log.append(lambda added: [*added, b"mine\n"])
    holder.join()
    assert path.read_bytes() == b"held\nheld\nmine\n"


async def test_changes_of_two_servers_meet_in_one_order(tmp_path: Path) -> None:
    path = tmp_path / "filing.jsonl"
    one, two = Filing(path), Filing(path)
    async with anyio.create_task_group() as tasks:
        for number in range(10):
            for filing, name in ((one, "a"), (two, "b")):
                record = ProjectPut(at_ms=1, project=project(f"{name}{number}"), key=f"{number}")
                tasks.start_soon(filing.change, lambda _, record=record: [record])
    states = [await filing.refresh() for filing in (one, two, Filing(path))]
    assert list(states[0].projects) == list(states[1].projects) == list(states[2].projects)
    assert len(states[0].projects) == 20
    assert states[0] == states[1] == states[2]


async def test_what_a_decision_raises_changes_nothing_and_keeps_what_others_did(
    tmp_path: Path,
) -> None:
    path = tmp_path / "filing.jsonl"
    one, two = Filing(path), Filing(path)
    await two.change(lambda _: [ProjectPut(at_ms=1, project=project("a"))])

    def refuse(state: FilingState) -> list[Any]:
        assert list(state.projects) == ["a"]
        raise KeyError("refused")

    with pytest.raises(KeyError, match="refused"):
        await one.change(refuse)
    assert list(one.state.projects) == ["a"]
    assert (await Filing(path).refresh()) == one.state
    path.write_bytes(path.read_bytes() + b"no record\n")
    assert (await one.refresh()) == two.state


def test_moves_of_projects_that_are_gone_change_nothing() -> None:
    state = FilingState().after([ProjectPut(at_ms=1, project=project(name)) for name in "abc"])
    assert list(state.after([ProjectMoved(at_ms=2, project_id="c", before_id="a")]).projects) == [
        "c",
        "a",
        "b",
    ]
    gone = state.after([ProjectDeleted(at_ms=2, project_id="a")])
    assert gone.after([ProjectMoved(at_ms=3, project_id="a", before_id=None)]) == gone
    moved = gone.after([ProjectMoved(at_ms=3, project_id="b", before_id="a")])
    assert list(moved.projects) == ["c", "b"]


async def test_a_log_of_projects_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        with pytest.raises(WireError, match="cannot be stored: Is a directory"):
            await _create_on_a_folder(served, client)


async def _create_on_a_folder(served: Served, client: WireClient) -> None:
    (served.home / "filing.jsonl").mkdir()
    await client.call("threadSection/create", {"name": "x"})
