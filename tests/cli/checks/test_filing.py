"""What doctor says of the log of projects and sections."""

import errno
import fcntl
import json
import os
from pathlib import Path

import anyio.to_thread
import pytest

from app_server.cli import doctor as command
from app_server.threads.checks import Check
from app_server.threads.files import repair
from app_server.threads.opening.checks import store_checks
from tests.support.harness import claim, serve

READABLE = (
    "let {} be a file that this user can read and write; threads are there meanwhile, and requests "
    "about projects and sections are refused"
)


def checked(home: Path) -> Check:
    return store_checks(home).filing()


async def make(home: Path) -> Path:
    """Let a server store a project and a section, and return the log."""
    async with serve(home) as served, served.client() as client:
        await client.call("project/create", {"name": "p", "roots": [], "idempotencyKey": "k"})
        await client.call("threadSection/create", {"name": "s"})
        # Beside the server that has it open.
        assert (await anyio.to_thread.run_sync(checked, home)).status == "ok"
    return home / "filing.jsonl"


@claim("doctor:filing")
async def test_a_log_in_order_is_well_and_left_as_it_is(tmp_path: Path) -> None:
    assert checked(tmp_path) == Check("filing", message="there are no projects and sections yet")
    path = await make(tmp_path)
    before = path.read_bytes()
    assert checked(tmp_path) == Check("filing", message="1 projects, 2 sections")
    assert path.read_bytes() == before


@claim("doctor:filing")
async def test_torn_damaged_and_newer_lines_are_named(tmp_path: Path) -> None:
    path = await make(tmp_path)
    lines = b'\0\n{"v":1,"type":"new"}\n{"v":2,"type":"sectionDeleted"}\n[]\ntorn'
    path.write_bytes(path.read_bytes() + lines)
    before = path.read_bytes()
    assert checked(tmp_path) == Check(
        "filing",
        "warning",
        "1 projects, 2 sections",
        "nothing: the next change cuts the torn line off; look whether a project or a section is "
        "missing: put back a copy of the file, or make it again; run the newer version that shares "
        "this home: it knows what its lines say",
        [
            f"{path}: a crash tore the last line (4 bytes); it was never acknowledged, and it is "
            "left out",
            f"{path}: 2 lines (3, 6) are damaged; skipped, and kept in the file",
            f"{path}: 2 lines (4, 5) are of a newer version; skipped, and kept in the file",
        ],
    )
    assert path.read_bytes() == before


@claim("doctor:filing")
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("folder", "it is no file"),
        ("pipe", "it is no file"),
        ("loop", os.strerror(errno.ELOOP)),
    ],
)
def test_a_log_that_cannot_be_read(
    kind: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "filing.jsonl"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case _:
            path.symlink_to(path.name)
    assert command.main(["--home", str(tmp_path), "--only", "filing", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["checks"] == [
        {
            "name": "filing",
            "status": "error",
            "message": "projects and sections",
            "todo": READABLE.format(path),
            "details": [f"{path} cannot be read: {reason}"],
            "more": 0,
        }
    ]


@claim("doctor:filing")
def test_a_home_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    check = checked(tmp_path / "home")
    assert check.details == [f"{tmp_path}/home/filing.jsonl cannot be read: Not a directory"]


@claim("doctor:filing")
def test_a_log_that_another_process_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "LOCK_WAIT_S", 0)
    path = tmp_path / "filing.jsonl"
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        check = checked(tmp_path)
    assert (check.status, check.details) == (
        "error",
        [f"another process has held the lock of {path} for 0 s"],
    )


@claim("doctor:filing")
def test_a_log_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "filing.jsonl"
    path.touch()
    # Root may write what has no right to be written.
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    check = checked(tmp_path)
    assert (check.status, check.details, check.todo) == (
        "error",
        [f"{path} cannot be written"],
        f"give this user the right to write to {path}",
    )
