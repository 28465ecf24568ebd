"""Threads of Codex in pages, searches, forks and deletes; what an import makes of them."""

import shutil
from pathlib import Path

import pytest

from app_server.threads.files.codex.copies import MAX_COPIES, CodexCopies
from app_server.threads.files.codex.threads import CodexThreads
from app_server.threads.files.writers import LogPaths
from tests.support.harness import WireError, claim, serve
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
from tests.support.threads.damage import spoil

SAID = next(
    part["text"]
    for item in TURNS[TOOLS][0]["items"]
    if item["type"] == "userMessage"
    for part in item["content"]
)
"""What the user said first in one of them."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make a home in which Codex has worked."""
    shutil.copytree(RECORDED, tmp_path / "home")
    return tmp_path / "home"


@claim("codex:pages")
async def test_pages_of_a_thread_of_codex_have_what_a_read_has(home: Path) -> None:
    before = rollouts(home)
    here = {"threadId": TOOLS}
    async with serve(home) as served, served.client() as client:
        params = {**here, "itemsView": "full", "sortDirection": "asc"}
        first = await client.call("thread/turns/list", {**params, "limit": 1})
        rest = await client.call("thread/turns/list", {**params, "cursor": first["nextCursor"]})
        assert [*first["data"], *rest["data"]] == TURNS[TOOLS]
        items = await client.call("thread/items/list", {**here, "sortDirection": "asc"})
        assert [one["item"] for one in items["data"]] == [
            item for turn in TURNS[TOOLS] for item in turn["items"]
        ]
    assert rollouts(home) == before
    assert not (home / "threads").exists()


@claim("codex:search")
async def test_what_was_said_in_codex_is_found_also_after_it_went_on(home: Path) -> None:
    path = write_rollout(home, OLD, event("task_started", turn_id="t"), message_item("a walrus"))
    with path.open("a") as file:
        file.write(line("user_message", message="a walrus"))
    async with serve(home) as served, served.client() as client:
        found = await client.call("thread/search", {"searchTerm": "WALRUS"})
        assert [one["thread"]["id"] for one in found["data"]] == [OLD]
        places = {"threadId": OLD, "searchTerm": "walrus"}
        assert len((await client.call("thread/searchOccurrences", places))["data"]) == 1
        with path.open("a") as file:
            file.write(line("user_message", message="and another walrus"))
        assert len((await client.call("thread/searchOccurrences", places))["data"]) == 2
    async with serve(home) as served, served.client() as client:
        found = await client.call("thread/search", {"searchTerm": "another walrus"})
        assert [one["thread"]["id"] for one in found["data"]] == [OLD]
        # What is imported is found once, with what is added here.
        await client.call("thread/resume", {"threadId": OLD})
        found = await client.call("thread/search", {"searchTerm": "another walrus"})
        assert [one["thread"]["id"] for one in found["data"]] == [OLD]
    assert [path.stem for path in (home / "threads").rglob("*.jsonl")] == [OLD]


def line(kind: str, **members: str) -> str:
    payload = ", ".join(f'"{name}": "{value}"' for name, value in members.items())
    return (
        '{"timestamp": "2025-10-01T00:01:00.000Z", "type": "event_msg", '
        f'"payload": {{"type": "{kind}", {payload}}}}}\n'
    )


@claim("codex:fork")
async def test_a_fork_of_a_thread_of_codex_has_its_turns(home: Path) -> None:
    before = rollouts(home)
    async with serve(home) as served, served.client() as client:
        fork = (await client.call("thread/fork", {"threadId": TOOLS}))["thread"]
        assert fork["forkedFromId"] == TOOLS
        assert fork["turns"] == TURNS[TOOLS]
        with pytest.raises(WireError) as caught:
            await client.call("thread/fork", {"threadId": ARCHIVED})
        listed = await client.call("thread/list", {})
        assert {TOOLS, fork["id"]} <= {one["id"] for one in listed["data"]}
        found = await client.call("thread/search", {"searchTerm": SAID})
        assert {TOOLS, fork["id"]} <= {one["thread"]["id"] for one in found["data"]}
        assert caught.value.data["code"] == "threadArchived"
    assert rollouts(home) == before


@claim("codex:delete")
async def test_a_thread_that_is_codex_s_alone_is_not_deleted(home: Path) -> None:
    before = rollouts(home)
    async with serve(home) as served, served.client() as client:
        with pytest.raises(WireError) as caught:
            await client.call("thread/delete", {"threadId": TOOLS})
        assert caught.value.data["code"] == "threadOfCodex"
        await client.call("thread/name/set", {"threadId": TOOLS, "name": "ours"})
        await client.call("thread/delete", {"threadId": TOOLS})
        shown = (await client.call("thread/read", {"threadId": TOOLS}))["thread"]
        assert shown["name"] != "ours"
        assert Path(shown["path"]) in before
        found = await client.call("thread/search", {"searchTerm": SAID})
        assert TOOLS in {one["thread"]["id"] for one in found["data"]}
    assert rollouts(home) == before


async def test_an_id_of_codex_is_taken_for_new_threads(home: Path) -> None:
    async with serve(home) as served, served.client() as client:
        with pytest.raises(WireError) as caught:
            await client.call("thread/start", {"threadId": TOOLS})
        assert caught.value.data["code"] == "threadIdTaken"
    assert not list((home / "threads").rglob("*.jsonl"))


def test_copies_are_made_once_for_each_change_and_old_ones_go(home: Path) -> None:
    folder = home / "index" / "codex"
    path = write_rollout(home, OLD, event("user_message", message="x"))
    copies = CodexCopies(folder, CodexThreads(home, LogPaths(home / "threads")))
    first = copies.path_of(OLD)
    made = first.stat().st_ino
    assert (copies.path_of(OLD), first.stat().st_ino) == (first, made)
    for number in range(MAX_COPIES + 3):
        (folder / f"{number}.jsonl").touch()
    with path.open("a") as file:
        file.write(line("user_message", message="y"))
    second = copies.path_of(OLD)
    left = list(folder.iterdir())
    assert (first in left, second in left, len(left)) == (False, True, MAX_COPIES)


@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 360), marks=pytest.mark.slow)], ids=["60", "300"]
)
def test_a_copy_damaged_in_any_way_is_made_again(home: Path, seeds: range) -> None:
    before = rollouts(home)
    folder = home / "index" / "codex"
    content = (
        CodexCopies(folder, CodexThreads(home, LogPaths(home / "threads")))
        .path_of(TOOLS)
        .read_bytes()
    )
    for seed in seeds:
        (copy,) = folder.glob(f"{TOOLS}.*.jsonl")
        how = spoil(copy, seed)
        made = CodexCopies(folder, CodexThreads(home, LogPaths(home / "threads"))).path_of(TOOLS)
        assert made.read_bytes() == content, (seed, how)
        # Whatever is no copy stays where it is, and a folder stays under another name.
        for path in folder.iterdir():
            if path != made:
                kept = path / "kept" if path.is_dir() else path
                assert kept.stat().st_size in (10, 40_000), (seed, how, path)
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert rollouts(home) == before


def test_a_damaged_copy_is_made_again(home: Path, tmp_path: Path) -> None:
    folder = home / "index" / "codex"
    write_rollout(home, OLD, event("user_message", message="what was said"))
    first = CodexCopies(folder, CodexThreads(home, LogPaths(home / "threads"))).path_of(OLD)
    content = first.read_bytes()
    damaged = [
        content.replace(b"was", b"saw"),
        content[:-9],
        content[:20] + b"damaged" + content[20:],
        b"",
    ]
    for spoiled in damaged:
        first.write_bytes(spoiled)
        again = CodexCopies(folder, CodexThreads(home, LogPaths(home / "threads"))).path_of(OLD)
        assert again.read_bytes() == content
    # What is no copy is not thrown away.
    first.unlink()
    first.mkdir()
    (first / "kept").touch()
    again = CodexCopies(folder, CodexThreads(home, LogPaths(home / "threads"))).path_of(OLD)
    assert again.read_bytes() == content
    assert (folder / f"{first.name}.damaged" / "kept").exists()
