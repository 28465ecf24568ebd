"""Logs that several servers write: torn lines, disks that refuse, locks that others hold."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from app_server.threads.files import filing
from app_server.threads.files.filing import Filing, LogLocked, NewLines, SharedLog
from app_server.threads.organization import FilingState
from protocol.log.filing import ProjectDeleted, ProjectMoved, ProjectPut
from tests.support.harness import WAIT_S, Served, WireClient, WireError, serve
from tests.support.threads.organization import project


def test_a_torn_line_of_a_shared_log_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    first, second = SharedLog(path), SharedLog(path)
    assert first.read_new().lines == []
    first.append(lambda _: [b"1\n"])
    with path.open("ab") as file:
        file.write(b"torn")
    assert second.read_new().lines == [b"1\n"]
    seen: list[bytes] = []

    def decide(new: NewLines) -> list[bytes]:
        seen.extend(new.lines)
        return [b"2\n", b"3\n"]

    second.append(decide)
    assert seen == []
    assert path.read_bytes() == b"1\n2\n3\n"
    assert first.read_new().lines == [b"2\n", b"3\n"]


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


def test_lines_that_are_taken_back_are_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    first, second = SharedLog(path), SharedLog(path)
    first.append(lambda _: [b"1\n"])
    assert second.read_new().lines == [b"1\n"]
    monkeypatch.setattr(filing, "LOCK_WAIT_S", 0)

    def broken_disk(_: int) -> None:
        assert path.read_bytes() == b"1\n22\n33\n"
        with pytest.raises(LogLocked):
            second.read_new()
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", broken_disk)
        with pytest.raises(OSError, match="Input/output error"):
            first.append(lambda _: [b"22\n", b"33\n"])
    assert second.read_new().lines == []
    first.append(lambda _: [b"4\n"])
    assert second.read_new().lines == [b"4\n"]
    second.append(lambda new: [*new.lines, b"5\n"])
    assert path.read_bytes() == b"1\n4\n5\n"


def refuse_to_sync_and_cut(patched: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    patched.setattr(os, "fsync", refuse)
    patched.setattr(os, "ftruncate", refuse)


@pytest.mark.parametrize("is_torn", [False, True])
def test_lines_that_were_refused_and_cannot_be_cut_off_do_not_count(
    is_torn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    log, other = SharedLog(path), SharedLog(path)
    log.append(lambda _: [b"1\n"])
    left = b"22\n" if is_torn else b"22\n33\n"
    real_write = os.write

    def write(file: int, content: bytes) -> int:
        if len(content) < 6:
            raise OSError(errno.EIO, "Input/output error")
        return real_write(file, left)

    with monkeypatch.context() as patched:
        refuse_to_sync_and_cut(patched)
        patched.setattr(os, "write", write)
        with pytest.raises(OSError, match="Input/output error"):
            log.append(lambda _: [b"22\n", b"33\n"])
        assert path.read_bytes() == b"1\n" + left
        assert log.read_new() == NewLines([])
        # Nothing can be added while it is there.
        with pytest.raises(OSError, match="Input/output error"):
            log.append(lambda _: [b"4\n"])
        assert log.read_new() == NewLines([])
    assert other.read_new().lines == [b"1\n", *left.splitlines(keepends=True)]
    log.append(lambda _: [b"5\n"])
    assert path.read_bytes() == b"1\n5\n"
    assert other.has_new()
    other.append(lambda new: [b"all\n"] if new == NewLines([b"1\n", b"5\n"], is_all=True) else [])
    assert log.read_new() == NewLines([b"all\n"])


def test_lines_that_were_refused_count_once_others_have_added_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.touch()
    log, other = SharedLog(path), SharedLog(path)
    with monkeypatch.context() as patched:
        refuse_to_sync_and_cut(patched)
        with pytest.raises(OSError, match="Input/output error"):
            log.append(lambda _: [b"1\n"])
    other.append(lambda new: [*new.lines, b"2\n"])
    assert log.read_new().lines == [b"1\n", b"1\n", b"2\n"]


async def test_a_log_that_was_replaced_or_removed_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "filing.jsonl"
    filing = Filing(path)
    await filing.change(lambda _: [ProjectPut(at_ms=1, project=project("a"))])
    backup = path.read_bytes()
    await filing.change(lambda _: [ProjectPut(at_ms=1, project=project("b"))])
    path.write_bytes(backup)
    assert list((await filing.refresh()).projects) == ["a"]
    path.unlink()
    assert (await filing.refresh()) == FilingState()
    path.write_bytes(backup)
    await filing.change(lambda _: [ProjectPut(at_ms=1, project=project("c"))])
    assert list(filing.state.projects) == ["a", "c"]
    path.unlink()
    await filing.change(lambda _: [ProjectPut(at_ms=1, project=project("d"))])
    assert list(filing.state.projects) == ["d"]
    assert (await Filing(path).refresh()) == filing.state


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
    monkeypatch.setattr(filing, "LOCK_WAIT_S", 0)
    with pytest.raises(LogLocked):
        log.append(lambda _: [b"mine\n"])
    release.set()
    monkeypatch.undo()
    log.append(lambda new: [*new.lines, b"mine\n"])
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


async def test_threads_are_listed_and_searched_while_the_log_of_projects_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        made = (
            await client.call("project/create", {"name": "x", "roots": [], "idempotencyKey": "x"})
        )["project"]["id"]
        thread_id = await client.start_thread(projectId=made)
        await client.turn(thread_id, "hello")
        log = served.home / "filing.jsonl"
        log.rename(served.home / "elsewhere")
        log.mkdir()
        for _ in range(2):
            (listed,) = (await client.call("thread/list", {}))["data"]
            (found,) = (await client.call("thread/search", {"searchTerm": "hello"}))["data"]
            assert {listed["projectId"], found["thread"]["projectId"]} == {made}
        update = {"threadId": thread_id, "gitInfo": {"branch": "main"}}
        assert (await client.call("thread/metadata/update", update))["thread"]["id"] == thread_id
        for method, params in (
            ("thread/list", {"projectId": made}),
            ("thread/list", {"sectionId": None}),
            ("thread/start", {"projectId": made}),
            ("thread/metadata/update", {"threadId": thread_id, "projectId": made}),
            ("project/list", {}),
            ("threadSection/list", {}),
        ):
            refused = await client.refusal(method, params)
            assert (refused.code, refused.data["code"]) == (-32603, "storageFailed")
            assert refused.message == (
                "projects and sections cannot be read: Is a directory; they are in filing.jsonl in "
                "the home folder"
            )
    told = [line for line in caplog.messages if "projects and sections" in line]
    assert told == [f"projects and sections ({log}): Is a directory"]
