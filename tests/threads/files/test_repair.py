"""app-server doctor: what it finds, beside a running server too, and what it leaves alone."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from app_server.cli.doctor import render
from app_server.runtime.clock import SystemClock
from app_server.threads.checks import MAX_DETAILS, Check
from app_server.threads.files import repair
from app_server.threads.files.index.index import SCHEMA_VERSION
from app_server.threads.files.locks import WriterLock
from app_server.threads.files.repair import (
    NoIndex,
    check_home,
    examine,
    index_path,
    read_index,
    rebuild_index,
)
from app_server.threads.files.writers import LogWriter
from protocol.log.rollout import ItemCompleted, NameChanged, TurnStarted
from tests.support.harness import claim, serve, write_config
from tests.support.model import ScriptedModel
from tests.support.processes import run_cli, running
from tests.support.threads.stores import created, open_store, user_message

CLOCK = SystemClock()
DOCTOR = ("doctor", "--only", "threads", "--home")


@pytest.fixture(autouse=True)
def _without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "SECOND_LOOK_S", 0)


def quiet(text: str) -> None:
    """Hear of progress."""


async def a_thread(home: Path, text: str = "hello") -> tuple[str, Path]:
    """Store a thread and return its id and log."""
    async with open_store(home) as store:
        thread = await store.create(created())
        await thread.append(
            TurnStarted(at_ms=5, turn_id="t"),
            ItemCompleted(at_ms=5, turn_id="t", item=user_message(text)),
        )
        await store.unload(thread)
        return thread.id, Path(store.shown_path(thread.id))


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def everything(home: Path) -> dict[Path, bytes]:
    """Every file of a home but what SQLite keeps beside its database."""
    return {
        path: path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    }


@claim("doctor:well")
async def test_a_home_in_order_is_well_and_left_as_it_is(tmp_path: Path) -> None:
    await a_thread(tmp_path)
    before = everything(tmp_path)
    checks = examine(tmp_path, quiet)
    assert [(check.name, check.status, check.todo) for check in checks] == [
        (name, "ok", None) for name in ("home", "logs", "locks", "index", "history", "codex")
    ]
    assert by_name(checks)["index"].message == "1 row, 0 of them unlike the logs"
    assert everything(tmp_path) == before


@claim("doctor:logs")
async def test_torn_damaged_and_newer_logs_are_named(tmp_path: Path) -> None:
    _, path = await a_thread(tmp_path)
    path.write_bytes(path.read_bytes() + b"\0\n" + b'{"v":1,"type":"new"}\n' + b"torn")
    newer = path.with_name(f"{CLOCK.new_id()}.jsonl")
    newer.write_bytes(b'{"v":2,"type":"threadCreated"}\n')
    stray = path.with_name("stray.jsonl")
    stray.write_text("nothing\n")
    folder = path.with_name("folder.jsonl")
    folder.mkdir()
    left = path.with_suffix(".importing")
    left.touch()
    fork = path.with_suffix(".part")
    fork.touch()
    before = everything(tmp_path)
    logs = by_name(examine(tmp_path, quiet))["logs"]
    assert logs.status == "warning"
    assert logs.details == [
        f"{path}: a crash tore the last line (4 bytes); it was never acknowledged, and it is left "
        "out",
        f"{path}: line 4 is damaged; skipped, and kept in the file",
        f"{path}: line 5 is of a newer version; skipped, and kept in the file",
        f"{newer} was written by a newer version of this server",
        f"{folder} cannot be read: Is a directory",
        f"{stray} does not begin as the log of a thread",
        f"{stray}: line 1 is damaged; skipped, and kept in the file",
        f"{left} is left of an import that was cut off",
        f"{fork} is left of a fork that was cut off",
    ]
    assert everything(tmp_path) == before


def change_row(home: Path, statement: str) -> None:
    with closing(sqlite3.connect(index_path(home))) as database, database:
        database.execute(statement)


@claim("doctor:index")
async def test_rows_that_differ_from_the_logs_are_named_and_a_rebuild_makes_them_equal(
    tmp_path: Path,
) -> None:
    first, _ = await a_thread(tmp_path)
    second, _ = await a_thread(tmp_path, "x" * 90)
    third, path = await a_thread(tmp_path)
    before = read_index(index_path(tmp_path)).rows
    change_row(tmp_path, f"UPDATE threads SET name = 'wrong', archived = 1 WHERE id = '{first}'")
    change_row(tmp_path, f"DELETE FROM threads WHERE id = '{second}'")
    path.unlink()
    index = by_name(examine(tmp_path, quiet))["index"]
    assert (index.status, index.todo) == ("error", "run doctor --rebuild")
    assert index.message == "2 rows, 3 of them unlike the logs"
    assert sorted(index.details) == sorted(
        [
            f"{first} name is 'wrong', the log says None; archived is True, the log says False",
            f"{second} is missing in the index",
            f"{third} is in the index, and there is no log of it",
        ]
    )
    said: list[str] = []
    rebuilt = rebuild_index(tmp_path, said.append)
    assert rebuilt.message.startswith("2 threads in ")
    del before[third]
    assert read_index(index_path(tmp_path)).rows == before
    assert by_name(examine(tmp_path, quiet))["index"].status == "ok"


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.unlink(), "it is missing"),
        (lambda path: path.write_bytes(b"x" * 5000), "it cannot be read: file is not a database"),
        (
            lambda path: change_row(path.parent.parent, "PRAGMA user_version = 77"),
            "it is of version 77, not ",
        ),
        (
            lambda path: change_row(path.parent.parent, f"PRAGMA user_version = {-SCHEMA_VERSION}"),
            "it is being made, or that was cut off",
        ),
    ],
)
async def test_an_index_that_cannot_be_used_is_reported_and_made_anew(
    tmp_path: Path, harm: Callable[[Path], None], message: str
) -> None:
    await a_thread(tmp_path)
    rows = read_index(index_path(tmp_path)).rows
    harm(index_path(tmp_path))
    index = by_name(examine(tmp_path, quiet))["index"]
    assert (index.status, index.message[: len(message)]) == ("warning", message)
    assert rebuild_index(tmp_path, quiet).message.startswith("1 thread in ")
    assert read_index(index_path(tmp_path)).rows == rows
    assert by_name(examine(tmp_path, quiet))["index"].status == "ok"


async def test_what_a_crash_left_behind_in_the_index_is_no_error(tmp_path: Path) -> None:
    thread_id, path = await a_thread(tmp_path)
    change_row(tmp_path, "UPDATE threads SET open = 1")
    lock = WriterLock(tmp_path / "locks" / f"{thread_id}.lock")
    writer = LogWriter(path, lock)
    writer.append([NameChanged(at_ms=9, name="n")], sync=True)
    locks, index = (by_name(examine(tmp_path, quiet))[name] for name in ("locks", "index"))
    # While somebody holds the thread, its row is his.
    assert index.details == []
    assert locks.details == [f"{thread_id} is held by process {os.getpid()}"]
    assert rebuild_index(tmp_path, quiet).details == ["1 thread of running processes, left to them"]
    os.close(lock._file)
    locks, index = (by_name(examine(tmp_path, quiet))[name] for name in ("locks", "index"))
    assert locks.details == [f"{thread_id}: its process has died; whoever comes next takes it"]
    assert index.status == "ok"
    assert index.details == [
        f"{thread_id} name is None, the log says 'n' (repaired at the next start)"
    ]


def test_folders_rights_and_space_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = check_home(tmp_path / "none")
    assert (missing.status, missing.details) == ("error", ["it does not exist"])
    assert [check.name for check in examine(tmp_path / "none", quiet)] == ["home"]
    nameless = tmp_path / ("n" * 300)
    (unlooked,) = examine(nameless, quiet)
    assert unlooked.details == [f"{nameless}: File name too long"]
    (tmp_path / "locks").touch()
    (tmp_path / "index").mkdir(mode=0o700)
    (tmp_path / "index").chmod(0o777)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1 << 20))
    check = check_home(tmp_path)
    assert (check.status, check.details) == (
        "error",
        [
            f"{tmp_path / 'locks'} is no folder",
            f"others can write to {tmp_path / 'index'}",
            "1 MiB are free",
        ],
    )


def test_details_are_bounded() -> None:
    check = Check("logs")
    for number in range(MAX_DETAILS + 7):
        check.add("warning", str(number))
    assert (len(check.details), check.more) == (MAX_DETAILS, 7)
    assert render([check])[-1] == "        - and 7 more"


def test_an_index_that_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    with pytest.raises(NoIndex, match="missing"):
        read_index(index_path(tmp_path))
    assert not list(tmp_path.iterdir())


@claim("doctor:beside")
async def test_beside_a_server_it_leaves_what_that_holds_alone(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        held, free = await client.start_thread(), await client.start_thread()
        await client.turn(held, "one")
        await client.turn(free, "two")
        await client.call("thread/archive", {"threadId": free})
        change_row(tmp_path, f"UPDATE threads SET name = 'wrong' WHERE id = '{free}'")
        rebuilt = await anyio.to_thread.run_sync(rebuild_index, tmp_path, quiet)
        assert (rebuilt.status, rebuilt.details) == (
            "ok",
            ["1 thread of running processes, left to them"],
        )
        checks = by_name(await anyio.to_thread.run_sync(examine, tmp_path, quiet))
        assert {check.status for check in checks.values()} == {"ok"}
        where = f"process {os.getpid()} at {served.urls[0]}"
        assert checks["locks"].details == [f"{held} is held by {where}"]
        (shown,) = (await client.call("thread/list", {"archived": True}))["data"]
        assert (shown["id"], shown["name"]) == (free, None)
        assert (await client.turn(held, "three"))["status"] == "completed"


@pytest.mark.slow
@claim("doctor:beside")
@pytest.mark.process
async def test_it_works_beside_a_running_server_and_leaves_its_threads_alone(
    tmp_path: Path,
) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        async with running(tmp_path) as server, server.client() as client:
            held, free = await client.start_thread(), await client.start_thread()
            await client.turn(held, "one")
            await client.turn(free, "two")
            await client.call("thread/archive", {"threadId": free})
            change_row(tmp_path, f"UPDATE threads SET name = 'wrong' WHERE id = '{free}'")
            result = run_cli(*DOCTOR, str(tmp_path), "--rebuild", "--json")
            assert result.returncode == 0, result.stdout
            report: dict[str, Any] = json.loads(result.stdout)
            checks = {check["name"]: check for check in report["checks"]}
            assert (report["home"], report["ok"]) == (str(tmp_path), True)
            assert checks["rebuild"]["details"] == ["1 thread of running processes, left to them"]
            where = f"process {server.process.pid} at {server.urls[0]}"
            assert checks["locks"]["details"] == [f"{held} is held by {where}"]
            (shown,) = (await client.call("thread/list", {"archived": True}))["data"]
            assert (shown["id"], shown["name"]) == (free, None)
            assert (await client.turn(held, "three"))["status"] == "completed"


@pytest.mark.process
@pytest.mark.slow
async def test_the_report_is_for_people_and_its_status_for_programs(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread = (await client.call("thread/start", {}))["thread"]
        await client.turn(thread["id"], "one")
    log = Path(thread["path"])
    log.write_bytes(log.read_bytes() + b"torn")
    result = run_cli(*DOCTOR, str(tmp_path))
    assert (result.returncode, result.stderr) == (1, "")
    lines = result.stdout.splitlines()
    assert lines[0] == f"ok      home: {tmp_path}"
    assert lines[1].startswith("warning logs: 1 log, ")
    assert lines[2] == (
        f"        - {log}: a crash tore the last line (4 bytes); it was never acknowledged, and it "
        "is left out"
    )
    assert lines[3].startswith("        what to do: nothing is lost")
    assert run_cli(*DOCTOR, str(tmp_path / "none"), "--rebuild").returncode == 1
    assert run_cli("doctor", "--frob").returncode == 2
    assert "examples:" in run_cli("doctor", "--help").stdout
