"""A conversation on stdio whose ends are files, and one whose client says all at once."""

import json
import os
import subprocess
from pathlib import Path
from typing import IO, Any

import anyio
import pytest

from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.rpc.message_stream import ConnectionLimits
from app_server.server.app import AppServer
from app_server.server.settings import Settings
from app_server.transport.address import StdioAddress
from tests.support.harness import REQUIREMENTS, WAIT_S, environment_without
from tests.support.processes import EXECUTABLE, START_S

ASKED = [
    {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "file", "version": "1"}}},
    {"method": "initialized"},
    {"id": 2, "method": "thread/list", "params": {}},
    {"id": 3, "method": "thread/start", "params": {}},
]


async def converse(home: Path, source: IO[str], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Serve on `source` and a file until the conversation has ended; gives what was answered."""
    settings = Settings(
        home=home,
        listen=[StdioAddress()],
        requirements=home / REQUIREMENTS,
        cwd=home,
        user_home=home,
        # A busy machine may take longer for these requests than they have by default.
        connection=ConnectionLimits(finish_s=WAIT_S),
    )
    answers = home / "answers"
    urls: list[Any] = []
    with source, answers.open("w") as sink, monkeypatch.context() as patched:
        patched.setattr("sys.stdin", source)
        patched.setattr("sys.stdout", sink)
        with anyio.fail_after(2 * WAIT_S):
            await AppServer(settings, extensions=ExtensionRegistry()).run(urls.extend)
    assert urls == ["stdio://"]
    said = [json.loads(line) for line in answers.read_text().splitlines()]
    return sorted(message["id"] for message in said if "result" in message)


@pytest.mark.parametrize("last", ["\n", ""], ids=["a line end", "no line end"])
async def test_requests_of_a_file_are_answered_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    asked = tmp_path / "asked.jsonl"
    # More than a pipe holds.
    padding = "\n" * 300_000
    asked.write_text(padding + "\n".join(json.dumps(message) for message in ASKED) + last)
    assert await converse(tmp_path, asked.open(), monkeypatch) == [1, 2, 3]


async def test_requests_of_a_pipe_are_answered_though_it_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, sink = os.pipe()
    with os.fdopen(sink, "w") as pipe:
        pipe.writelines(f"{json.dumps(message)}\n" for message in ASKED)
    assert await converse(tmp_path, os.fdopen(source), monkeypatch) == [1, 2, 3]


@pytest.mark.process
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


@pytest.mark.process
def test_a_client_that_says_nothing_ends_the_conversation(tmp_path: Path) -> None:
    answers = tmp_path / "answers"
    with answers.open("wb") as sink:
        ended = subprocess.run(
            [str(EXECUTABLE), "--home", str(tmp_path)],
            env=environment_without("OPENAI_API_KEY"),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.PIPE,
            text=True,
            timeout=START_S,
            check=False,
        )
    assert (ended.returncode, ended.stderr, answers.read_bytes()) == (
        0,
        "listening on: stdio://\n",
        b"",
    )
