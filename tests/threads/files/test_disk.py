"""Full disks and folders that cannot be written, by limits on the size of files and by rights."""

import ctypes
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.files.full_disk import NO_BYTECODE, full_disk
from tests.support.harness import WireClient, claim, environment_without, serve, write_config
from tests.support.model import Gate, ScriptedModel, says
from tests.support.processes import EXECUTABLE, START_S, started

pytestmark = pytest.mark.process

CAP_DAC_OVERRIDE = 1
PR_CAPBSET_DROP = 24


def item(text: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "role": "developer", "content": content}


async def refused(client: WireClient, method: str, **params: Any) -> None:
    """Call what cannot be stored, and look whether the error says so and what to do."""
    error = await client.refusal(method, params)
    todo = "make room on the disk of the home folder, then try again"
    assert (error.code, error.data["code"]) == (-32603, "storageFailed")
    assert error.data["reason"] == "diskFull"
    assert error.message == f"the thread cannot be stored: {error.data['detail']}; {todo}"


@claim("errors:disk-full")
async def test_a_full_disk_refuses_what_it_cannot_keep_and_harms_nothing(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        async with started(tmp_path, **NO_BYTECODE) as server, server.client() as client:
            thread = (await client.call("thread/start", {}))["thread"]
            path, here = Path(thread["path"]), {"threadId": thread["id"]}
            await client.call("thread/inject_items", {**here, "items": [item("kept")]})
            assert len((await client.call("thread/list", {}))["data"]) == 1
            before, logs = path.read_bytes(), sorted((tmp_path / "threads").rglob("*.jsonl"))
            with full_disk(server.process.pid, len(before) + 100):
                lost = [item("lost" * 100)]
                await refused(client, "thread/inject_items", **here, items=lost)
                text = [{"type": "text", "text": "lost"}]
                await refused(client, "turn/start", **here, input=text)
                await refused(client, "thread/name/set", **here, name="n" * 200)
                # SQLite does not say that a file may not grow; a log that nobody knows of goes.
                error = await client.refusal("thread/start", {})
                assert (error.data["code"], error.data["reason"]) == ("storageFailed", "ioError")
                assert path.read_bytes() == before
                assert sorted((tmp_path / "threads").rglob("*.jsonl")) == logs
                # What is there can be read.
                assert (await client.call("thread/read", here))["thread"]["id"] == thread["id"]
                assert len((await client.call("thread/list", {}))["data"]) == 1
            await client.call("thread/name/set", {**here, "name": "room again"})
            assert (await client.turn(thread["id"], "after"))["status"] == "completed"
            assert model.inputs() == [("developer", "kept"), ("user", "after")]
            other = await client.start_thread()
            await client.turn(other, "more")
        async with serve(tmp_path, model=model) as served, served.client() as client:
            threads = (await client.call("thread/list", {}))["data"]
            assert {thread["id"]: thread["name"] for thread in threads} == {
                thread["id"]: "room again",
                other: None,
            }


@claim("errors:disk-full-turn")
async def test_the_end_of_a_turn_that_the_disk_refused_is_written_when_there_is_room(
    tmp_path: Path,
) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        gate, script = Gate(), says("an answer " * 20)
        model.scripts.append([*script[:2], gate, *script[2:]])
        async with started(tmp_path, **NO_BYTECODE) as server, server.client() as client:
            thread = (await client.call("thread/start", {}))["thread"]
            path, here = Path(thread["path"]), {"threadId": thread["id"]}
            text = [{"type": "text", "text": "go"}]
            await client.call("turn/start", {**here, "input": text})
            await gate.wait_until_reached()
            with full_disk(server.process.pid, path.stat().st_size):
                gate.opened.set()
                end = (await client.wait_for("turn/completed"))["params"]["turn"]
                assert end["status"] == "failed"
                assert end["error"]["message"] == "the log cannot be written: File too large"
                read = await client.call("thread/read", here)
                assert read["thread"]["status"] == {"type": "systemError"}
            assert (await client.turn(thread["id"], "after"))["status"] == "completed"
            params = {**here, "includeTurns": True}
            live = (await client.call("thread/read", params))["thread"]["turns"]
        assert [turn["status"] for turn in live] == ["failed", "completed"]
        async with serve(tmp_path, model=model) as served, served.client() as client:
            assert (await client.call("thread/read", params))["thread"]["turns"] == live


@claim("threads:archive-refused")
async def test_an_archive_that_the_disk_refuses_leaves_the_thread_at_work(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        gate, script = Gate(), says("an answer")
        model.scripts.append([*script[:2], gate, *script[2:]])
        async with started(tmp_path, **NO_BYTECODE) as server, server.client() as client:
            thread = (await client.call("thread/start", {}))["thread"]
            path, here = Path(thread["path"]), {"threadId": thread["id"]}
            await client.call("turn/start", {**here, "input": [{"type": "text", "text": "go"}]})
            await gate.wait_until_reached()
            before = path.read_bytes()
            with full_disk(server.process.pid, len(before)):
                await refused(client, "thread/archive", **here)
                assert (await client.call("thread/loaded/list", {}))["data"] == [thread["id"]]
                assert path.read_bytes() == before
            gate.opened.set()
            end = (await client.wait_for("turn/completed"))["params"]["turn"]
            assert end["status"] == "completed"
            assert await client.call("thread/archive", here) == {}
            assert (await client.call("thread/loaded/list", {}))["data"] == []
            archived = (await client.call("thread/list", {"archived": True}))["data"]
            assert [row["id"] for row in archived] == [thread["id"]]


def give_up_roots_rights() -> None:
    """Let rights on files count for root too, in a child before it becomes another program."""
    if os.geteuid() == 0:
        ctypes.CDLL(None, use_errno=True).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


def run_without_rights(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the executable as somebody for whom rights on files count."""
    return subprocess.run(
        [str(EXECUTABLE), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
        env=environment_without("OPENAI_API_KEY"),
        preexec_fn=give_up_roots_rights,
    )


@contextmanager
def read_only(*folders: Path) -> Iterator[None]:
    """Take the right to write to folders away."""
    for folder in folders:
        folder.chmod(0o500)
    try:
        yield
    finally:
        for folder in folders:
            folder.chmod(0o700)


@claim("errors:home")
def test_a_home_that_cannot_be_written_is_reported_at_the_start(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with read_only(home):
        result = run_without_rights("--home", str(home))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        f"app-server: the home folder cannot be used: Permission denied ({home}/index); "
        f"app-server doctor --home {home} says more\n"
    )
    assert not list(home.iterdir())


@claim("errors:home")
def test_a_home_that_has_become_read_only_is_reported_and_stays_as_it_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    lines = [
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "p", "version": "1"}}},
        {"id": 2, "method": "thread/start", "params": {}},
    ]
    stdin = "".join(json.dumps(line) + "\n" for line in lines)
    assert run_without_rights("--home", str(home), stdin=stdin).returncode == 0
    folders = [home, *(path for path in home.rglob("*") if path.is_dir())]
    files = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    for path in files:
        path.chmod(0o400)
    with read_only(*folders):
        result = run_without_rights("--home", str(home), stdin=stdin)
        doctor = run_without_rights("doctor", "--home", str(home), "--only", "disk")
        assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == files
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == (
        f"app-server: the home folder cannot be used: Permission denied ({home}/index/users.lock); "
        f"app-server doctor --home {home} says more"
    )
    assert doctor.returncode == 1
    assert "what to do: give this user the right to write there" in doctor.stdout


@claim("errors:read-only")
@pytest.mark.slow
def test_folders_that_cannot_be_written_leave_reading_and_lists(tmp_path: Path) -> None:
    def conversation(*requests: tuple[str, dict[str, Any]]) -> dict[int, Any]:
        info = {"clientInfo": {"name": "pipe", "version": "1"}}
        all_requests = [("initialize", info), *requests]
        lines = [
            json.dumps({"id": number, "method": method, "params": params})
            for number, (method, params) in enumerate(all_requests)
        ]
        command = [str(EXECUTABLE), "--home", str(tmp_path)]
        answers: dict[int, Any] = {}
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment_without("OPENAI_API_KEY"),
            preexec_fn=give_up_roots_rights,
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write("".join(line + "\n" for line in lines))
            server.stdin.flush()
            # Once its client has ended it gives what still runs only seconds.
            while len(answers) < len(lines):
                answer = json.loads(server.stdout.readline())
                if "id" in answer:
                    answers[answer["id"]] = answer
            server.stdin.close()
            assert server.wait() == 0
        return answers

    start = ("thread/start", {"ephemeral": False})
    thread_id = conversation(start)[1]["result"]["thread"]["id"]
    here = {"threadId": thread_id}
    conversation(("thread/name/set", {**here, "name": "before"}))
    log = next((tmp_path / "threads").rglob("*.jsonl"))
    before = log.read_bytes()
    with read_only(log.parent, tmp_path / "threads", tmp_path / "locks"):
        answers = conversation(
            ("thread/read", here),
            ("thread/list", {}),
            ("thread/name/set", {**here, "name": "after"}),
            ("thread/resume", here),
            start,
        )
    assert answers[1]["result"]["thread"]["name"] == "before"
    assert [thread["id"] for thread in answers[2]["result"]["data"]] == [thread_id]
    for number in (3, 4, 5):
        data = answers[number]["error"]["data"]
        assert (data["code"], data["reason"]) == ("storageFailed", "notWritable")
        assert data["detail"] == "Permission denied"
        assert re.search("let the server write", answers[number]["error"]["message"])
    assert log.read_bytes() == before
    after = conversation(("thread/name/set", {**here, "name": "after"}))
    assert after[1]["result"] == {}
