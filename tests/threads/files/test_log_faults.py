"""threads.rollout and its faults: logs that a crash, a disk or a newer version left behind."""

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.threads.files.locks import WriterLock
from app_server.threads.files.writers import LogWriter
from app_server.threads.log.faults import LogFaults, LogTooNew
from app_server.threads.log.reading import Line, read_lines
from app_server.threads.log.state import replay
from protocol.log.rollout import NameChanged, is_newer, parse_record, render_record
from tests.support.harness import WAIT_S, claim, serve
from tests.support.threads.damaged_logs import DAMAGED, NEWER_KIND, NEWER_VERSION
from tests.support.threads.rollouts import read_rollout
from tests.support.threads.stores import created


@pytest.mark.parametrize(
    ("line", "newer"),
    [
        (NEWER_KIND, True),
        (NEWER_VERSION, True),
        (DAMAGED, False),
        (b"\0\0\0\n", False),
        (b"[]\n", False),
        (b'{"v":9}\n', False),
        (b'{"v":2,"atMs":1,"type":"name\n', False),
    ],
)
def test_lines_of_newer_versions_are_distinguished_from_damaged_ones(
    line: bytes, newer: bool
) -> None:
    assert parse_record(line) is None
    assert is_newer(line) is newer


def test_what_a_log_has_lost_is_counted_and_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [render_record(created()), NEWER_KIND, *[DAMAGED] * 6, NEWER_VERSION]
    path.write_bytes(b"".join([*lines, render_record(NameChanged(at_ms=2, name="n")), b"torn"]))
    faults = LogFaults()
    assert replay(read_rollout(path, faults)).name == "n"
    assert faults == LogFaults(4, 6, 2, [3, 4, 5, 6, 7], [2, 9])
    assert faults.texts(path) == [
        f"{path}: a crash tore the last line (4 bytes); it was never acknowledged, and it is left "
        "out",
        f"{path}: 6 lines (3, 4, 5, 6, 7, ...) are damaged; skipped, and kept in the file",
        f"{path}: 2 lines (2, 9) are of a newer version; skipped, and kept in the file",
    ]
    assert LogFaults().texts(path) == []


def test_a_log_that_a_newer_version_began_is_not_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(render_record(created()).replace(b'"v":1', b'"v":2') + DAMAGED)
    with pytest.raises(LogTooNew):
        replay(read_rollout(path))


def test_lines_are_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"ab\n" + b"x" * 20 + b"\nabc\n" + b"y" * 20)
    with path.open("rb") as file:
        assert list(read_lines(file, 4)) == [
            Line(1, b"ab\n", True),
            Line(2, None, True),
            Line(3, b"abc\n", True),
            Line(4, None, False),
        ]


def test_a_log_and_the_folders_above_it_are_on_the_disk_when_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    real = os.fsync

    def noted(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink())
        real(file)

    monkeypatch.setattr(os, "fsync", noted)
    for name in ("first", "second"):
        path = tmp_path / "threads" / "2026" / "11" / name
        LogWriter(path, WriterLock(tmp_path / "lock")).close()
    folder = tmp_path / "threads" / "2026"
    assert synced == [tmp_path, folder.parent, folder, folder / "11", folder / "11"]


async def stored_thread(home: Path, *extra: bytes) -> tuple[str, Path]:
    """Run a turn in a thread, put it away, and add lines to its log."""
    async with serve(home) as served, served.client() as client:
        thread = (await client.call("thread/start", {}))["thread"]
        await client.turn(thread["id"], "hello")
    path = Path(thread["path"])
    path.write_bytes(b"".join([path.read_bytes(), *extra]))
    return thread["id"], path


@claim("rollout:reported")
async def test_who_resumes_a_thread_first_gets_a_warning_of_what_its_log_has_lost(
    tmp_path: Path,
) -> None:
    thread_id, path = await stored_thread(tmp_path, DAMAGED, NEWER_KIND, b'{"v":1,"at')
    before = path.read_bytes()
    lines = before.count(b"\n")
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        assert len(read["thread"]["turns"]) == 1
        assert path.read_bytes() == before
        await client.call("thread/resume", {"threadId": thread_id})
        warnings = [(await client.wait_for("warning"))["params"] for _ in range(3)]
        assert warnings == [
            {"threadId": thread_id, "message": f"{path}: {text}"}
            for text in (
                "a crash tore the last line (10 bytes); it was never acknowledged, and it is "
                "left out",
                f"line {lines - 1} is damaged; skipped, and kept in the file",
                f"line {lines} is of a newer version; skipped, and kept in the file",
            )
        ]
        assert path.read_bytes() == before[: -len(b'{"v":1,"at')]
        # It goes on behind what it could not read, and nobody is told twice.
        assert (await client.turn(thread_id, "again"))["status"] == "completed"
        assert path.read_bytes().startswith(before[: -len(b'{"v":1,"at')])
        await other.call("thread/resume", {"threadId": thread_id})
        await other.call("thread/unsubscribe", {"threadId": thread_id})
        assert not any('"warning"' in line for line in other.transcript)


@claim("rollout:newer")
async def test_a_thread_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    thread_id, path = await stored_thread(tmp_path)
    first, rest = path.read_bytes().split(b"\n", 1)
    members: dict[str, Any] = json.loads(first)
    path.write_bytes(json.dumps(members | {"v": 2}).encode() + b"\n" + rest + b"torn")
    before = path.read_bytes()
    for file in (tmp_path / "index").iterdir():
        file.unlink()
    async with serve(tmp_path) as served, served.client() as client:
        for method, params in (
            ("thread/read", {}),
            ("thread/resume", {}),
            ("thread/name/set", {"name": "n"}),
            ("thread/archive", {}),
            ("thread/unarchive", {}),
            ("thread/turns/list", {}),
            ("thread/fork", {}),
            ("thread/delete", {}),
        ):
            error = await client.refusal(method, {"threadId": thread_id, **params})
            assert (error.code, error.data) == (
                -32600,
                {"code": "threadTooNew", "threadId": thread_id},
            )
            assert error.message == (
                f"thread {thread_id} was written by a newer version of this server"
            )
        assert (await client.call("thread/list", {}))["data"] == []
    assert path.read_bytes() == before
    assert not list((tmp_path / "locks").iterdir())


@claim("rollout:damaged-first")
async def test_a_thread_whose_first_line_is_damaged_is_refused_alike_and_can_be_deleted(
    tmp_path: Path,
) -> None:
    thread_id, path = await stored_thread(tmp_path)
    path.write_bytes(DAMAGED + path.read_bytes().split(b"\n", 1)[1])
    before = path.read_bytes()
    async with serve(tmp_path) as served, served.client() as client:
        for method, params in (
            ("thread/read", {}),
            ("thread/read", {"includeTurns": True}),
            ("thread/turns/list", {}),
            ("thread/items/list", {}),
            ("thread/timeline/list", {}),
            ("thread/searchOccurrences", {"searchTerm": "hello"}),
            ("thread/queue/list", {}),
            ("thread/resume", {}),
            ("thread/name/set", {"name": "n"}),
            ("thread/archive", {}),
            ("thread/unarchive", {}),
            ("thread/fork", {}),
        ):
            error = await client.refusal(method, {"threadId": thread_id, **params})
            assert (method, error.code, error.data) == (
                method,
                -32600,
                {"code": "threadDamaged", "threadId": thread_id},
            )
        assert path.read_bytes() == before
        # Whoever looked at the log in the background lets it go soon.
        with anyio.fail_after(WAIT_S):
            while list((tmp_path / "locks").iterdir()):
                await client.call("thread/loaded/list", {})
        assert await client.call("thread/delete", {"threadId": thread_id}) == {}
        assert (await client.call("thread/list", {}))["data"] == []
    assert not path.exists()
