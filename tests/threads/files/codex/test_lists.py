"""threads.codex: rollouts of Codex in lists."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app_server.threads.files.codex.rollouts import CodexNames, find_files, segments_of
from tests.support.harness import claim, serve
from tests.support.threads.codex_homes import (
    CONDENSED,
    FAILED,
    FORK,
    INTERRUPTED,
    codex_home,
    listed,
)
from tests.support.threads.codex_rollouts import (
    ARCHIVED,
    OLD,
    TOOLS,
    event,
    rollouts,
    write_rollout,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return codex_home(tmp_path)


@claim("codex:list")
async def test_threads_of_codex_stand_in_lists_with_their_names_and_archive(home: Path) -> None:
    async with serve(home) as served, served.client() as client:
        threads = await listed(client)
        assert [(thread["id"], thread["preview"], thread["name"]) for thread in threads] == [
            (INTERRUPTED, "interrupt me", None),
            (FAILED, "will fail", None),
            (FORK, "hello one", "My named thread"),
            (CONDENSED, "second thread", None),
            (TOOLS, "hello one", "My named thread"),
        ]
        assert [thread["id"] for thread in await listed(client, archived=True)] == [ARCHIVED]
        found = await listed(client, searchTerm="named")
        assert [thread["id"] for thread in found] == [FORK, TOOLS]
        for thread in threads:
            assert Path(thread["path"]).parent.parts[-4:] == ("sessions", "2026", "11", "21")
            one = await client.call("thread/read", {"threadId": thread["id"]})
            assert one["thread"] == thread


@claim("codex:fresh")
async def test_what_codex_writes_meanwhile_appears(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.threads.files.codex.threads.LOOK_S", 0)
    async with serve(home) as served, served.client() as client:
        assert len(await listed(client)) == 5
        path = write_rollout(home, OLD, event("user_message", message="new here"))
        newest = (await listed(client, sortKey="updated_at"))[0]
        assert (newest["id"], newest["preview"], newest["cwd"]) == (OLD, "new here", "/old")
        with (home / "session_index.jsonl").open("a") as file:
            file.write(json.dumps({"id": OLD, "thread_name": " renamed "}) + "\nnonsense\n")
        assert (await listed(client, sortKey="updated_at"))[0]["name"] == "renamed"
        path.rename(home / "archived_sessions" / path.name)
        assert len(await listed(client)) == 5
        assert len(await listed(client, archived=True)) == 2
        (home / "archived_sessions" / path.name).unlink()
        assert len(await listed(client, archived=True)) == 1


async def test_a_restart_reads_only_what_has_changed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(home) as served, served.client() as client:
        before = await listed(client)
    summarized: list[str] = []
    real = segments_of

    def noted(file: Any, files: Any) -> Any:
        summarized.append(file.thread_id)
        return real(file, files)

    monkeypatch.setattr("app_server.threads.files.codex.threads.segments_of", noted)
    changed = next(path for path in rollouts(home) if FAILED in path.name)
    os.utime(changed, ns=(1, 2_000_000_000_000_000_000))
    async with serve(home) as served, served.client() as client:
        after = await listed(client)
    assert summarized == [FAILED]
    times = {"updatedAt": 2_000_000_000, "recencyAt": 2_000_000_000}
    assert after == [thread | (times if thread["id"] == FAILED else {}) for thread in before]


async def test_files_that_are_no_rollouts_are_not_listed(tmp_path: Path) -> None:
    path = write_rollout(tmp_path, OLD, event("user_message", message="x"))
    path.write_text("nothing\n")
    path.with_name("notes.txt").write_text("x")
    path.with_name(f"rollout-2025-10-01T00-00-00-{TOOLS}.jsonl.zst").write_bytes(b"x")
    assert find_files(tmp_path).compressed == 1
    (tmp_path / "session_index.jsonl").mkdir()
    assert CodexNames(tmp_path).read() == {}
    async with serve(tmp_path) as served, served.client() as client:
        assert await listed(client) == []
        error = await client.refusal("thread/resume", {"threadId": OLD})
        assert error.data["code"] == "threadNotFound"
