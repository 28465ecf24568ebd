"""Commands on stdio that cannot start say why in one line."""

import subprocess
from pathlib import Path

import pytest

from tests.support.harness import environment_without
from tests.support.receiver.processes import EXECUTABLE, START_S

pytestmark = pytest.mark.process


def ended(line: str, home: Path, *words: str) -> tuple[int, list[str]]:
    """Run a command by a line of the shell; returns its exit status and its stderr."""
    done = subprocess.run(
        ["sh", "-c", line, str(EXECUTABLE), *words, "--home", str(home)],
        env=environment_without("OPENAI_API_KEY"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=START_S,
        check=False,
    )
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("command", ["mcp-server", "receiver"])
@pytest.mark.parametrize(("number", "name"), [(0, "stdin"), (1, "stdout")])
def test_one_that_is_closed_is_named(tmp_path: Path, command: str, number: int, name: str) -> None:
    found = ended(f'exec "$0" "$@" {number}>&-', tmp_path, command)
    assert found == (1, [f"app-server: {name} is closed, and stdio:// needs it"])


def test_a_lock_of_the_receiver_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "receiver" / "Texi.lock"
    lock.mkdir(parents=True)
    status, lines = ended('exec "$0" "$@"', tmp_path, "receiver", "--session", "Texi")
    assert (status, lines) == (
        1,
        [
            f"app-server: {lock}: Is a directory",
            "Take away what is there in its place, or name another folder with --home.",
        ],
    )


def test_a_file_with_the_key_of_the_receiver_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    words = ("--router-url", "ws://127.0.0.1:1", "--key-file", str(tmp_path))
    found = ended('exec "$0" "$@"', tmp_path, "receiver", *words)
    assert found == (1, [f"app-server: the key file cannot be read: {tmp_path}: Is a directory"])


def test_a_token_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    words = ("--listen", "ws://127.0.0.1:0", "--token-file", str(tmp_path))
    found = ended('exec "$0" "$@"', tmp_path, *words)
    assert found == (1, [f"app-server: the token file cannot be made: {tmp_path}: Is a directory"])


def test_a_home_that_is_a_file_is_named(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.touch()
    status, (line,) = ended('exec "$0" "$@"', home, "mcp-server")
    assert status == 1
    assert line.startswith("app-server: the home folder cannot be used: File exists ")


def test_a_home_that_cannot_be_looked_at_is_named_also_with_a_profile(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 100)
    status, (line,) = ended('exec "$0" "$@"', home, "--profile", "work")
    assert status == 1
    assert line.startswith("app-server: the home folder cannot be used: File name too long ")
