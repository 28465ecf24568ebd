"""A conversation on stdio whose ends are files, not pipes."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.harness import environment_without
from tests.support.processes import EXECUTABLE, START_S

pytestmark = pytest.mark.process

ASKED = [
    {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "file", "version": "1"}}},
    {"method": "initialized"},
    {"id": 2, "method": "thread/list", "params": {}},
    {"id": 3, "method": "thread/loaded/list", "params": {}},
]


def converse(home: Path, asked: Path) -> set[int]:
    """Run the executable from a file into a file; gives the ids that have a result."""
    answers = home / "answers"
    with asked.open("rb") as source, answers.open("wb") as sink:
        ended = subprocess.run(
            [str(EXECUTABLE), "--home", str(home)],
            env=environment_without("OPENAI_API_KEY"),
            stdin=source,
            stdout=sink,
            stderr=subprocess.PIPE,
            text=True,
            timeout=START_S,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (0, "listening on: stdio://\n")
    said = [json.loads(line) for line in answers.read_text().splitlines()]
    return {message["id"] for message in said if "result" in message}


@pytest.mark.parametrize("last", ["\n", ""], ids=["a line end", "no line end"])
def test_requests_of_a_file_are_answered_into_a_file(tmp_path: Path, last: str) -> None:
    asked = tmp_path / "asked.jsonl"
    # More than a pipe holds.
    padding = "\n" * 300_000
    asked.write_text(padding + "\n".join(json.dumps(message) for message in ASKED) + last)
    assert converse(tmp_path, asked) == {1, 2, 3}


@pytest.mark.parametrize(("number", "name"), [(0, "stdin"), (1, "stdout")])
def test_one_that_is_closed_is_named(tmp_path: Path, number: int, name: str) -> None:
    ended = subprocess.run(
        ["sh", "-c", f'exec "$0" --home "$1" {number}>&-', str(EXECUTABLE), str(tmp_path)],
        env=environment_without("OPENAI_API_KEY"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr.splitlines()) == (
        1,
        ["listening on: stdio://", f"app-server: {name} is closed, and stdio:// needs it"],
    )


def test_a_client_that_says_nothing_ends_the_conversation(tmp_path: Path) -> None:
    assert converse(tmp_path, Path("/dev/null")) == set()
