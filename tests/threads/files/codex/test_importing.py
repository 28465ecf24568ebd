"""threads.codex: rollouts of Codex that become threads of ours."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from app_server.models.prompt.environment_context import FACTS, PERMISSIONS, kind_of
from app_server.threads.files.codex.copies import import_thread
from app_server.threads.files.codex.threads import CodexThreads
from app_server.threads.files.writers import LogPaths
from app_server.threads.log.faults import LogFaults
from tests.support.harness import claim, serve
from tests.support.threads.codex_homes import (
    CONDENSED,
    FAILED,
    INTERRUPTED,
    codex_home,
    listed,
    read,
)
from tests.support.threads.codex_rollouts import (
    ARCHIVED,
    OLD,
    RECORDED,
    TOOLS,
    TURNS,
    event,
    message_item,
    rollouts,
    write_rollout,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return codex_home(tmp_path)


@claim("codex:import")
async def test_resuming_imports_and_leaves_the_rollout_as_it_is(home: Path) -> None:
    before = rollouts(home)
    async with serve(home) as served, served.client() as client:
        (shown,) = (thread for thread in await listed(client) if thread["id"] == TOOLS)
        resumed = await client.call("thread/resume", {"threadId": TOOLS})
        assert resumed["thread"]["turns"] == TURNS[TOOLS]
        assert resumed["sandbox"]["type"] == "dangerFullAccess"
        path = Path(resumed["thread"]["path"])
        assert path.is_relative_to(home / "threads")
        first = json.loads(path.read_text().splitlines()[0])
        assert (first["type"], first["importedFrom"]) == ("threadCreated", shown["path"])
        assert resumed["thread"]["name"] == "My named thread"
        turn = {"threadId": TOOLS, "input": [{"type": "text", "text": "go on"}]}
        await client.call("turn/start", turn | {"model": "scripted", "cwd": str(home)})
    assert rollouts(home) == before
    async with serve(home) as served, served.client() as client:
        (ours,) = (thread for thread in await listed(client) if thread["id"] == TOOLS)
        assert ours["path"] == str(path)
        read = await client.call("thread/read", {"threadId": TOOLS, "includeTurns": True})
        assert read["thread"]["turns"][:3] == TURNS[TOOLS]
        assert len(read["thread"]["turns"]) == 4


async def test_the_model_sees_what_it_saw_before_the_import(home: Path) -> None:
    config = '[model_providers.mock]\nname = "mock"\nbase_url = "URL"\n'
    async with serve(home) as served, served.client() as client:
        table = config.replace("URL", served.model.url)
        (home / "config.toml").write_text((home / "config.toml").read_text() + table)
        await client.call("thread/resume", {"threadId": CONDENSED})
        assert (await client.turn(CONDENSED, "go on"))["status"] == "completed"
        before = read(RECORDED, CONDENSED).history
        sent = served.model.requests[-1]["input"]
        assert sent[: len(before)] == before
        # The environment context that Codex told are not ours: the model is told again.
        after = [(kind_of(item), item["content"][0]["text"]) for item in sent[len(before) :]]
        assert [kind for kind, _ in after] == [PERMISSIONS, FACTS, None]
        assert after[-1][1] == "go on"


@claim("codex:archived")
async def test_an_archived_thread_is_imported_when_it_is_brought_back(home: Path) -> None:
    before = rollouts(home)
    async with serve(home) as served, served.client() as client:
        error = await client.refusal("thread/resume", {"threadId": ARCHIVED})
        assert error.data["code"] == "threadArchived"
        assert not (home / "threads").exists()
        back = await client.call("thread/unarchive", {"threadId": ARCHIVED})
        assert back["thread"]["preview"] == "to be archived"
        assert len(await listed(client)) == 6
        await client.call("thread/name/set", {"threadId": FAILED, "name": "ours now"})
        await client.call("thread/archive", {"threadId": INTERRUPTED})
        names = {thread["id"]: thread["name"] for thread in await listed(client)}
        assert names[FAILED] == "ours now"
        assert INTERRUPTED not in names
    assert rollouts(home) == before


async def test_what_could_not_be_imported_is_reported_once(home: Path) -> None:
    path = next(path for path in rollouts(home) if FAILED in path.name)
    path.write_bytes(path.read_bytes() + b"\0\n")
    number = path.read_bytes().count(b"\n")
    async with serve(home) as served, served.client() as client:
        await client.call("thread/resume", {"threadId": FAILED})
        warning = await client.wait_for("warning")
        assert warning["params"]["message"] == (
            f"{path}: line {number} is damaged; skipped, and kept in the file"
        )


@claim("codex:memory")
def test_a_large_rollout_is_imported_in_bounded_memory(tmp_path: Path) -> None:
    large = message_item("x" * 100_000)
    path = write_rollout(tmp_path, OLD, event("user_message", message="first"), *[large] * 200)
    source = CodexThreads(tmp_path, LogPaths(tmp_path / "threads")).find(OLD)
    tracemalloc.start()
    import_thread(source, tmp_path / "log", LogFaults())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "log").stat().st_size > 200 * 100_000
    assert peak < path.stat().st_size / 4


async def test_an_import_that_the_disk_refuses_leaves_nothing_behind(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(record: Any) -> bytes:
        raise OSError(28, "No space left on device")

    async with serve(home) as served, served.client() as client:
        with monkeypatch.context() as patch:
            patch.setattr("app_server.threads.files.codex.copies.render_record", refuse)
            error = await client.refusal("thread/resume", {"threadId": TOOLS})
            assert error.data["code"] == "storageFailed"
        assert not [path for path in (home / "threads").rglob("*") if path.is_file()]
        assert not list((home / "locks").iterdir())
        assert await client.call("thread/resume", {"threadId": TOOLS})
