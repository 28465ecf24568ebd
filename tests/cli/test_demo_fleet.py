"""The demo of a fleet: whole, cut off at several places, and where what it needs is missing."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app_server.clients.demo import fleet_scenario
from app_server.clients.demo.fleet_scenario import NOT_FOUND, PROGRAMS, find_programs
from app_server.clients.demo.transcript import NotInstalled, Transcript, run_demo
from tests.support.harness import claim, environment_without
from tests.support.host.programs import wait_until_gone
from tests.support.postgresql import program
from tests.support.processes import EXECUTABLE, run_cli, tree_of

BOTH_RUN = "each has an address of its own"
FOLDER = re.compile(r"runs in (/tmp/app-server-demo-\w+)")
Ends = Callable[[subprocess.Popen[str]], None]


def _command_line(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def _interrupt(demo: subprocess.Popen[str]) -> None:
    # As a terminal does: all of its group.
    os.killpg(demo.pid, signal.SIGINT)


def _terminate(demo: subprocess.Popen[str]) -> None:
    demo.terminate()


def _kill_a_node(demo: subprocess.Popen[str]) -> None:
    nodes = [pid for pid in tree_of(demo.pid) if "--listen" in _command_line(pid)]
    os.kill(nodes[-1], signal.SIGKILL)


@contextmanager
def _shown(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the demo as a terminal does; its output is read by the test."""
    with subprocess.Popen(
        [str(EXECUTABLE), "demo", "--fleet"],
        env={**environment_without("OPENAI_API_KEY"), "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as demo:
        try:
            yield demo
        finally:
            demo.kill()


def _read_until(demo: subprocess.Popen[str], text: str) -> str:
    assert demo.stdout is not None
    said = ""
    for line in demo.stdout:
        said += line
        if text in line:
            return said
    raise AssertionError(said)


@claim("process:demo", "process:demo-fleet")
@pytest.mark.postgresql
@pytest.mark.process
def test_the_demo_of_a_fleet_checks_every_step(tmp_path: Path) -> None:
    # What the user has chosen for other databases changes nothing.
    result = run_cli(
        *("demo", "--fleet"),
        TMPDIR=str(tmp_path),
        PGPORT="1",
        PGHOST="nowhere",
        APP_SERVER_STORE="postgresql://x@nowhere/x",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    assert result.stdout.endswith("All 17 checks hold.\n")
    assert not list(tmp_path.iterdir())
    (folder,) = FOLDER.findall(result.stdout)
    assert not Path(folder).exists()


@pytest.mark.postgresql
@pytest.mark.process
@pytest.mark.parametrize(
    ("end", "status", "says"),
    [
        (_interrupt, 130, ""),
        (_terminate, 130, ""),
        (_kill_a_node, 1, "The demo failed: "),
    ],
)
async def test_a_demo_of_a_fleet_that_is_cut_off_leaves_nothing(
    tmp_path: Path, end: Ends, status: int, says: str
) -> None:
    with _shown(tmp_path) as demo:
        said = _read_until(demo, BOTH_RUN)
        processes = tree_of(demo.pid)
        names = {Path(_command_line(pid)[0]).name for pid in processes}
        assert "postgres" in names
        end(demo)
        rest, _ = demo.communicate()
        assert (demo.returncode, says in rest, "Traceback" in rest) == (status, True, False), rest
    for pid in processes:
        await wait_until_gone(pid)
    (folder,) = FOLDER.findall(said)
    assert not Path(folder).exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.postgresql
@pytest.mark.process
def test_a_demo_of_a_fleet_whose_database_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    # Who runs PostgreSQL for root does not get into the folder of the test.
    programs = Path(tempfile.mkdtemp(dir="/tmp"))
    programs.chmod(0o755)
    try:
        for name in PROGRAMS:
            _write_program(programs / name, f'exec "{program(name)}" "$@"')
        _write_program(programs / "createdb", "echo no room; exit 3")
        path = f"{programs}:{os.environ['PATH']}"
        result = run_cli("demo", "--fleet", TMPDIR=str(tmp_path), PATH=path)
    finally:
        shutil.rmtree(programs)
    failed = "The demo failed: RuntimeError: createdb ended with status 3: no room\n"
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.endswith(failed), result.stdout
    (folder,) = FOLDER.findall(result.stdout)
    assert not Path(folder).exists()
    assert not list(tmp_path.iterdir())
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert folder not in running.stdout


def _write_program(file: Path, line: str) -> None:
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)


def _write_programs(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    for name in PROGRAMS:
        _write_program(folder / name, f"echo '{name} (PostgreSQL) {version}'")
    return folder


async def test_without_postgresql_one_line_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    async def look(transcript: Transcript, folder: Path) -> None:
        await find_programs({}, places=())

    assert await run_demo(look) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"app-server demo: {NOT_FOUND}\n")
    assert "apt-get install postgresql" in said.err


@pytest.mark.parametrize("name", ["psycopg", "psycopg_pool"])
async def test_without_psycopg_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    assert await run_demo(fleet_scenario.run) == 1
    missing = "PostgreSQL's client library is missing; run pip install 'app-server[postgresql]'"
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"app-server demo: {missing}\n")


async def test_programs_are_taken_from_path_and_else_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [f"{tmp_path}/places/*/bin"]
    in_path = _write_programs(tmp_path / "path", "15.1")
    monkeypatch.setenv("PATH", str(in_path))
    _write_programs(tmp_path / "places" / "9" / "bin", "9.6.24")
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(tmp_path))
        with pytest.raises(NotInstalled, match="PostgreSQL 15 or newer was not found"):
            await find_programs({}, places)
    newest = _write_programs(tmp_path / "places" / "17" / "bin", "17.2 (Debian 17.2-1)")
    assert await find_programs({}, places) == in_path
    # A client's programs alone are not enough.
    (in_path / "postgres").unlink()
    assert await find_programs({}, places) == newest
