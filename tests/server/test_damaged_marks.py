"""Files of servers and locks that were damaged stop neither a server nor a thread."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from app_server.server.running_servers import FOLDER, ServerEntry, announced, servers_of
from app_server.threads.log.file.locks import WriterLock
from tests.support.harness import claim
from tests.support.threads.damage import spoil
from tests.support.threads.stores import created, open_store

OURS = ServerEntry(os.getpid(), "1.0", 1_700_000_000, ["ws://127.0.0.1:4500"], None)
KILLED = '{"pid": 4000000, "version": "1.0", "started_at": 5, "addresses": [], "token_file": null}'
HELD = '{"pid": 4000000, "startedAt": 5, "address": "ws://127.0.0.1:4500"}'


@claim("home:damaged-marks")
@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 360), marks=pytest.mark.slow)], ids=["60", "300"]
)
async def test_damaged_files_of_servers_and_locks_stop_nobody(tmp_path: Path, seeds: range) -> None:
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
