"""Damaged files that can be made again stop no server, and its clients see what is right."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app_server.threads.files.locks import WriterLock
from app_server.threads.files.servers import FOLDER, announced, servers_of
from app_server.threads.servers import ServerEntry
from tests.support.apps.hosted import serve_hosted, sign_in
from tests.support.harness import WireClient, claim, serve
from tests.support.threads.codex_rollouts import RECORDED, TOOLS
from tests.support.threads.damage import spoil
from tests.support.threads.stores import created, open_store

OURS = ServerEntry(os.getpid(), "1.0", 1_700_000_000, ["ws://127.0.0.1:4500"], None)
KILLED = '{"pid": 4000000, "version": "1.0", "started_at": 5, "addresses": [], "token_file": null}'
HELD = '{"pid": 4000000, "startedAt": 5, "address": "ws://127.0.0.1:4500"}'


@claim("home:damaged-marks")
@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 360), marks=pytest.mark.slow)], ids=["60", "300"]
)
async def test_a_server_and_a_thread_start_over_damaged_marks_of_others(
    tmp_path: Path, seeds: range
) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        await store.unload(thread)
        log = Path(store.shown_path(thread.id))
        before = log.read_bytes()
        lock = tmp_path / "locks" / f"{thread.id}.lock"
        for seed in seeds:
            dead = tmp_path / FOLDER / f"{seed:016x}.json"
            dead.parent.mkdir(exist_ok=True)
            dead.write_text(KILLED)
            lock.write_text(HELD)
            kinds = spoil(dead, seed), spoil(lock, seed)
            assert not [found for found in servers_of(tmp_path) if found.is_running], (seed, kinds)
            with announced(tmp_path, OURS):
                running = [found.entry for found in servers_of(tmp_path) if found.is_running]
                assert running == [replace(OURS, addresses=[*OURS.addresses])], (seed, kinds)
            if lock.is_dir():
                # It is refused, and what is in it stays.
                with pytest.raises(IsADirectoryError):
                    WriterLock(lock)
                (lock / "kept").unlink()
                lock.rmdir()
            else:
                if lock.exists():
                    # One without rights is refused to all but root.
                    lock.chmod(0o600)
                await store.unload(await store.load(thread.id))
            for path in lock.parent.glob("*.lock-*"):
                path.unlink() if path.is_file() else shutil.rmtree(path)
        assert (await store.read(thread.id)).id == thread.id
        assert log.read_bytes() == before


# With a running server and its clients.

DAMAGED = 5
"""Files that each start finds damaged."""


async def shown(client: WireClient, thread_id: str) -> Any:
    """Return what a client sees of all that the damaged files are about."""
    apps = await client.call("app/list", {})
    listed = await client.call("thread/list", {})
    of_codex = await client.call("thread/turns/list", {"threadId": TOOLS, "itemsView": "full"})
    read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
    for message in client.take_kept():
        if message.get("method") == "app/list/updated":
            # The directory and the inventory come in any order.
            found = {app["id"]: {**app, "isAccessible": True} for app in message["params"]["data"]}
            assert (
                found.items()
                <= {app["id"]: {**app, "isAccessible": True} for app in apps["data"]}.items()
            )
    return apps["data"], listed["data"], of_codex, read["thread"]["turns"]


def derived(home: Path) -> dict[Path, bytes]:
    """Return the files that are damaged, one of each kind and two of apps."""
    found = [
        path
        for folder in ("cache/codex_apps_raw_tools", "cache/codex_app_directory", "index/codex")
        for path in (home / folder).iterdir()
    ]
    return {path: path.read_bytes() for path in found}


def removed(path: Path) -> None:
    """Remove whatever has a name."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@claim("home:damaged-marks", "apps:damaged-cache")
@pytest.mark.parametrize(
    "seeds",
    [range(4), pytest.param(range(100, 160), marks=pytest.mark.slow)],
    ids=["20 damages", "300 damages"],
)
async def test_clients_of_a_server_over_damaged_files_see_what_they_saw(
    tmp_path: Path, seeds: range
) -> None:
    home = tmp_path / "home"
    shutil.copytree(RECORDED, home)
    async with serve_hosted() as hosted:
        config = sign_in(home, hosted)
        async with serve(home, config=config, with_apps=True) as served, served.client() as client:
            # What is fetched a second time was fetched, and written, before.
            await client.call("app/list", {"forceRefetch": True})
            thread_id = await client.start_thread()
            await client.turn(thread_id, "hello")
            await shown(client, thread_id)
        async with serve(home, config=config, with_apps=True) as served, served.client() as client:
            expected = await shown(client, thread_id)
        files = derived(home)
        files[home / "servers" / "0123456789abcdef.json"] = KILLED.encode()
        files[home / "locks" / f"{thread_id}.lock"] = HELD.encode()
        assert len(files) == DAMAGED
        for seed in seeds:
            for folder in {path.parent for path in files}:
                for path in folder.iterdir():
                    removed(path)
            for path, content in files.items():
                path.write_bytes(content)
            how = {
                path.parent.name: spoil(path, seed * DAMAGED + n) for n, path in enumerate(files)
            }
            async with (
                serve(home, config=config, with_apps=True) as served,
                served.client() as client,
            ):
                assert await shown(client, thread_id) == expected, (seed, how)
                running = [found.entry for found in servers_of(home) if found.is_running]
                assert [entry.addresses for entry in running] == [list(served.urls)], (seed, how)
                if (home / "locks" / f"{thread_id}.lock").is_dir():
                    refusal = await client.refusal("thread/resume", {"threadId": thread_id})
                    assert refusal.data["code"] == "storageFailed", (seed, how)
                else:
                    resumed = await client.call("thread/resume", {"threadId": thread_id})
                    assert resumed["thread"]["turns"] == expected[-1], (seed, how)
