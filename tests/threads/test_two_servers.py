"""Several server processes on one home: one writes a thread, all read and list it."""

import json
import os
import re
import signal
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.threads.failures import Holder
from app_server.threads.files.locks import LockBusy, WriterLock, holder_of
from tests.support.harness import WireClient, claim, serve, stdio_server, write_config
from tests.support.model import Gate, ScriptedModel, says
from tests.support.processes import running

pytestmark = pytest.mark.process

BOUND_S = 60.0
"""More than the 5 s after which rows of a dead process are made again."""
LOOK_S = 0.05

TEXT = [{"type": "text", "text": "hi"}]
CONTENT = [{"type": "input_text", "text": "hi"}]
ITEM = {"type": "message", "role": "developer", "content": CONTENT}
WRITING: dict[str, dict[str, Any]] = {
    "thread/resume": {},
    "thread/name/set": {"name": "n"},
    "thread/archive": {},
    "thread/inject_items": {"items": [ITEM]},
    "turn/start": {"input": TEXT},
    "turn/steer": {"input": TEXT, "expectedTurnId": "t"},
    "turn/interrupt": {"turnId": ""},
}


async def until_listed(client: WireClient, wanted: dict[str, str | None]) -> None:
    """List until names by thread id are what is wanted."""
    with anyio.fail_after(BOUND_S):
        while True:
            threads = (await client.call("thread/list", {}))["data"]
            if {thread["id"]: thread["name"] for thread in threads} == wanted:
                return
            await anyio.sleep(LOOK_S)


@claim("threads:busy", "threads:take-over")
async def test_another_server_reads_what_one_writes_and_takes_over_when_that_has_stopped(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as leaving:
        first = await leaving.enter_async_context(serve(tmp_path))
        client = await leaving.enter_async_context(first.client())
        async with serve(tmp_path) as second, second.client() as other:
            held = await client.start_thread()
            await client.turn(held, "one")
            await until_listed(other, {held: None})
            read = await other.call("thread/read", {"threadId": held, "includeTurns": True})
            assert [turn["status"] for turn in read["thread"]["turns"]] == ["completed"]
            for method, params in WRITING.items():
                error = await other.refusal(method, {"threadId": held, **params})
                holder = error.data.pop("holder")
                assert (error.code, error.message, error.data) == (
                    -32600,
                    f"thread {held} already has an active writer",
                    {"code": "threadBusy", "threadId": held},
                )
                assert (holder["pid"], holder["address"]) == (os.getpid(), first.urls[0])
            await client.call("thread/name/set", {"threadId": held, "name": "last words"})
            await leaving.aclose()
            await other.call("thread/resume", {"threadId": held})
            assert (await other.turn(held, "two"))["status"] == "completed"
            await until_listed(other, {held: "last words"})


@pytest.mark.slow
@claim("threads:busy", "threads:take-over")
async def test_another_process_reads_and_lists_and_takes_over_when_the_first_has_gone(
    tmp_path: Path,
) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        async with (
            running(tmp_path) as first,
            serve(tmp_path, model=model) as second,
            first.client() as client,
            second.client() as other,
        ):
            held, named = await client.start_thread(), await client.start_thread()
            await client.turn(held, "one")
            await client.turn(named, "two")
            await until_listed(other, {held: None, named: None})
            read = await other.call("thread/read", {"threadId": held, "includeTurns": True})
            assert [turn["status"] for turn in read["thread"]["turns"]] == ["completed"]

            for method, params in WRITING.items():
                error = await other.refusal(method, {"threadId": held, **params})
                assert (error.code, error.message) == (
                    -32600,
                    f"thread {held} already has an active writer",
                )
                holder = error.data.pop("holder")
                assert error.data == {"code": "threadBusy", "threadId": held}
                assert (holder["pid"], holder["address"]) == (first.process.pid, first.urls[0])

            # What was told last is in the log, and perhaps not yet in the index.
            await client.call("thread/name/set", {"threadId": named, "name": "last words"})
            first.process.send_signal(signal.SIGKILL)
            await first.ended()
            await other.call("thread/resume", {"threadId": held})
            assert (await other.turn(held, "three"))["status"] == "completed"
            await until_listed(other, {held: None, named: "last words"})


async def test_an_archived_thread_that_another_process_changes_is_busy_too(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "one")
        await client.call("thread/archive", {"threadId": thread_id})
        lock = WriterLock(tmp_path / "locks" / f"{thread_id}.lock", "ws://127.0.0.1:1")
        error = await client.refusal("thread/unarchive", {"threadId": thread_id})
        assert error.data["code"] == "threadBusy"
        assert error.data["holder"]["address"] == "ws://127.0.0.1:1"
        lock.release()
        await client.call("thread/unarchive", {"threadId": thread_id})


def descendants(pid: int) -> set[int]:
    """Return the processes below a process. Linux only."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found |= {int(child)} | descendants(int(child))
    return found


def files_of(pid: int) -> set[str]:
    """Return what the descriptors of a process point to."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        # It may close one meanwhile.
        with suppress(FileNotFoundError):
            found.add(os.readlink(link))
    return found


@claim("threads:no-leak")
async def test_no_descriptor_of_the_home_is_inherited(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "one")
        inherited = {}
        for number in os.listdir("/proc/self/fd"):
            # The one that lists them is closed again.
            with suppress(FileNotFoundError):
                path = os.readlink(f"/proc/self/fd/{number}")
                if path.startswith(f"{tmp_path}/"):
                    inherited[path] = os.get_inheritable(int(number))
    assert any(thread_id in path for path in inherited)
    assert set(inherited.values()) == {False}


@pytest.mark.slow
@claim("threads:no-leak")
async def test_no_child_inherits_a_lock_or_a_log(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        home = tmp_path / "home"
        write_config(home, model.url, stdio_server("raw"))
        async with running(home) as server, server.client() as client:
            thread_id = await client.start_thread()
            # The next thread's server starts while the first one's locks and logs are open.
            await client.call("thread/start", {})
            for _ in range(2):
                await client.wait_for(
                    "mcpServer/startupStatus/updated", lambda p: p["status"] == "ready"
                )
            ours = {name for name in files_of(server.process.pid) if str(home) in name}
            assert any(thread_id in name for name in ours)
            children = descendants(server.process.pid)
            assert len(children) >= 3  # Two MCP servers and the watchdog.
            for child in children:
                assert [name for name in files_of(child) if str(home) in name] == []


async def test_a_lock_belongs_to_its_process_and_not_to_what_its_file_says(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "thread.lock"
    path.parent.mkdir()
    for content in ("", "{", "[]", json.dumps({"pid": os.getpid(), "address": 5})):
        path.write_text(content)
        assert holder_of(path) is None
        lock = WriterLock(path, "ws://here")
        found = holder_of(path)
        assert found is not None
        assert (found.pid, found.address) == (os.getpid(), "ws://here")
        assert str(found) == f"process {os.getpid()} at ws://here"
        path.write_text(content)
        with pytest.raises(LockBusy) as caught:
            WriterLock(path)
        assert caught.value.holder == Holder(os.getpid() if "pid" in content else None)
        lock.release()
    assert str(Holder()) == "an unknown process"


@claim("threads:index-in-use")
async def test_an_index_in_use_is_not_replaced_by_another_version(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "one")
        as_newer = (
            "import sys; import app_server.threads.files.index.index as file; "
            "from app_server.cli import serve; file.SCHEMA_VERSION += 1; "
            "sys.exit(serve.main())"
        )
        process = await anyio.run_process(
            [sys.executable, "-c", as_newer, "--home", str(tmp_path), "--listen", "off"],
            check=False,
        )
        assert process.returncode == 1
        text = process.stderr.decode()
        assert "another process uses it, of another version" in text
        assert re.search(r"app-server doctor --home \S+ says more\n$", text)
        await until_listed(client, {thread_id: None})


@claim("threads:busy")
async def test_a_turn_that_runs_in_one_server_is_in_progress_at_another_one(
    tmp_path: Path,
) -> None:
    async with (
        serve(tmp_path) as first,
        serve(tmp_path) as second,
        first.client() as client,
        second.client() as other,
    ):
        gate = Gate()
        # The settings of the home name the model that was served last.
        second.model.scripts = [[gate, *says("one")]]
        thread_id = await client.start_thread()
        started = await client.call("turn/start", {"threadId": thread_id, "input": TEXT})
        await gate.wait_until_reached()

        async def statuses() -> list[str]:
            here = {"threadId": thread_id}
            listed = await other.call("thread/turns/list", here)
            read = await other.call("thread/read", {**here, "includeTurns": True})
            shown = [listed["data"][0], read["thread"]["turns"][0]]
            assert [turn["id"] for turn in shown] == [started["turn"]["id"]] * 2
            return [turn["status"] for turn in shown]

        assert await statuses() == ["inProgress"] * 2
        gate.opened.set()
        await client.until("turn/completed")
        assert await statuses() == ["completed"] * 2
