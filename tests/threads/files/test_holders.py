"""Who holds a thread, as the store says it."""

from pathlib import Path

import pytest

from app_server.threads.failures import ThreadBusy
from app_server.threads.files.locks import WriterLock
from app_server.threads.files.store import FileStore
from tests.support.threads.stores import created

THREAD = "019b0000-0000-7000-8000-000000000001"


async def test_a_lock_that_the_process_itself_holds_for_a_moment_is_no_other_server(
    tmp_path: Path,
) -> None:
    store = FileStore(tmp_path, "ws://127.0.0.1:1")
    await store.open()
    thread = await store.create(created(thread_id=THREAD))
    await store.require_free(THREAD)
    await store.unload(thread)
    path = tmp_path / "locks" / f"{THREAD}.lock"
    for address in ("ws://127.0.0.1:1", None):
        lock = WriterLock(path, address)
        await store.require_free(THREAD)
        lock.release()
    lock = WriterLock(path, "ws://127.0.0.1:2")
    with pytest.raises(ThreadBusy):
        await store.require_free(THREAD)
    lock.release()
    await store.require_free(THREAD)
    await store.aclose()
