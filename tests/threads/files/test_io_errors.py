"""A log on a disk that fails (EIO): nothing is half there, and what comes next is whole."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app_server.threads.files import writers
from protocol.log.rollout import NameChanged
from tests.support.threads.stores import created, listed, open_store


def failing(real: Callable[..., Any], *, after: int = 0) -> Callable[..., Any]:
    """Let a call of the system fail with EIO, from its `after`-th time on."""
    left = after

    def call(*args: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*args)

    return call


def in_part(file: int, content: bytes) -> int:
    return os.pwrite(file, content[:5], os.fstat(file).st_size)


@pytest.mark.parametrize("cut_fails", [False, True])
@pytest.mark.parametrize("where", ["write", "second write", "sync"])
async def test_a_write_that_fails_is_taken_back_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, cut_fails: bool
) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        await thread.append(NameChanged(at_ms=5, name="kept"))
        path = Path(store.shown_path(thread.id))
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            if where == "sync":
                patch.setattr(writers, "_sync_file", failing(os.fsync))
            else:
                real = in_part if where == "second write" else os.write
                patch.setattr(os, "write", failing(real, after=int(where == "second write")))
            if cut_fails:
                patch.setattr(os, "ftruncate", failing(os.ftruncate))
            with pytest.raises(OSError, match="Input/output error"):
                await thread.append(NameChanged(at_ms=6, name="lost"))
        assert thread.state.name == "kept"
        assert path.read_bytes().startswith(before)
        await thread.append(NameChanged(at_ms=7, name="after"))
        assert b"lost" not in path.read_bytes()
        assert (await store.read(thread.id)).name == "after"
        await store.unload(thread)


async def test_a_thread_whose_first_line_fails_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(tmp_path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(writers, "_sync_file", failing(os.fsync))
            with pytest.raises(OSError, match="Input/output error"):
                await store.create(created())
        assert await listed(store) == []
        assert not [path for path in (tmp_path / "threads").rglob("*") if path.is_file()]
        thread = await store.create(created())
        await store.unload(thread)
