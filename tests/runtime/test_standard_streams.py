"""Programs whose stdout or stderr is closed, full, or read by nobody."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app_server import VERSION
from tests.support.harness import environment_without
from tests.support.receiver.processes import EXECUTABLE, START_S

pytestmark = pytest.mark.process

CODER = EXECUTABLE.with_name("coder")
FULL = "No space left on device"
INITIALIZE = {
    "id": 1, "method": "initialize", "params": {"clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")


def ended(
    home: Path, redirection: str, *words: str, program: Path = EXECUTABLE, said: str = ""
) -> tuple[int, list[str], list[str]]:
    """Run a command with a redirection of the shell: status, stdout, stderr."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" "$@" {redirection}', str(program), *words],
        env=environment_without("OPENAI_API_KEY", "APP_SERVER_URL")
        | {"APP_SERVER_HOME": str(home)},
        input=said,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


@on_linux
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (EXECUTABLE, ["--version"]),
        (EXECUTABLE, ["doctor", "--help"]),
        (EXECUTABLE, ["mcp", "list", "--json"]),
        (CODER, ["-dry-run"]),
    ],
)
def test_a_full_disk_for_stdout_is_named(tmp_path: Path, program: Path, words: list[str]) -> None:
    found = ended(tmp_path, ">/dev/full", *words, program=program)
    assert found == (1, [], [f"{program.name}: stdout cannot be written: {FULL}"])


@on_linux
def test_who_cannot_say_where_it_serves_does_not_serve(tmp_path: Path) -> None:
    url = "ws://127.0.0.1:1"
    status, _, lines = ended(tmp_path, ">/dev/full", "inspect", url)
    assert (status, lines) == (
        1,
        [f"inspecting {url}", f"app-server: stdout cannot be written: {FULL}"],
    )


@pytest.mark.parametrize("words", [["--version"], ["doctor", "--only", "clock", "--json"]])
def test_who_has_read_enough_gets_no_complaint(tmp_path: Path, words: list[str]) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [EXECUTABLE, *words],
        env=environment_without() | {"APP_SERVER_HOME": str(tmp_path)},
        stdout=writes,
        stderr=subprocess.PIPE,
        timeout=START_S,
        check=False,
    )
    os.close(writes)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("redirection", ["2>&-", pytest.param("2>/dev/full", marks=on_linux)])
def test_a_server_whose_stderr_takes_nothing_serves_and_says_nothing_to_clients(
    tmp_path: Path, redirection: str
) -> None:
    status, lines, _ = ended(tmp_path, redirection, said=json.dumps(INITIALIZE) + "\n")
    answers: list[Any] = [json.loads(line) for line in lines]
    assert (status, [answer.get("id") for answer in answers if "result" in answer]) == (0, [1])
    assert all(isinstance(answer, dict) for answer in answers)


@pytest.mark.parametrize(("words", "status"), [(["--version"], 0), (["--nonsense"], 2)])
@pytest.mark.parametrize("redirection", ["2>&-", pytest.param("2>/dev/full", marks=on_linux)])
def test_the_status_does_not_depend_on_stderr(
    tmp_path: Path, redirection: str, words: list[str], status: int
) -> None:
    said = [f"app-server {VERSION}"] if status == 0 else []
    assert ended(tmp_path, redirection, *words) == (status, said, [])


LOCAL = "ws://127.0.0.1:1"
NO_FOLDER = "the working directory is not there any more: change to another one"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (EXECUTABLE, []),
        (EXECUTABLE, ["mcp", "list"]),
        (EXECUTABLE, ["doctor", "--only", "clock"]),
        (EXECUTABLE, ["signal", "send", "--cwd", ".", "--from", "a", "--type", "T", "hi"]),
        (EXECUTABLE, ["generate-ts", "--out", "types"]),
        (EXECUTABLE, ["inspect", "ws://127.0.0.1:1", "--token-file", "token"]),
        (EXECUTABLE, ["signal", "--url", "ws://127.0.0.1:1", "--token-file", "token", "list"]),
        (EXECUTABLE, ["bench", "ws://127.0.0.1:1", "--token-file", "token"]),
        (EXECUTABLE, ["receiver", "--cd", "src"]),
        (EXECUTABLE, ["signal", "--url", "unix://x", "list"]),
        (EXECUTABLE, ["receiver", "--cd", "/", "--key-file", "key", "--router-url", LOCAL]),
        (EXECUTABLE, ["receiver", "--demo-router", "--key-file", "key"]),
        (EXECUTABLE, ["schema", "--check"]),
        (EXECUTABLE, ["exec-server", "--token-file", "token"]),
        (CODER, ["-dry-run", "-cd", "src"]),
    ],
)
def test_a_working_directory_that_was_removed_is_named(
    tmp_path: Path, program: Path, words: list[str]
) -> None:
    assert run_without_folder(tmp_path, program, *words) == (1, [f"{program.name}: {NO_FOLDER}"])


@pytest.mark.parametrize(("program", "words"), [(EXECUTABLE, ["receiver"]), (CODER, ["-dry-run"])])
def test_who_works_in_a_folder_that_was_removed_can_name_another_one(
    tmp_path: Path, program: Path, words: list[str]
) -> None:
    shown = " ".join([program.name, *(word for word in words if word.isalpha())])
    assert run_without_folder(tmp_path, program, *words) == (
        1,
        [f"{shown}: {NO_FOLDER}, or name one with --cd"],
    )
    status, lines = run_without_folder(tmp_path, program, *words, "--cd", str(tmp_path))
    # A receiver without a server of its own says so.
    unexpected = [line for line in lines if "signals wait for tool results" not in line]
    assert (status, unexpected) == (0, [])


def run_without_folder(tmp_path: Path, program: Path, *words: str) -> tuple[int, list[str]]:
    """Run a command in a folder that is removed before: status, stderr."""
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        ["sh", "-c", 'cd gone; rmdir ../gone; shift; exec "$@"', "sh", "-", program, *words],
        env=environment_without() | {"APP_SERVER_HOME": str(tmp_path)},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()
