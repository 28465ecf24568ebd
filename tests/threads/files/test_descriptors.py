"""How many files a server has open, and what happens when it may open no more."""

import errno
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from app_server.runtime.open_files import raise_limit
from app_server.threads.files.locks import SharedLock, WriterLock, holder_of, short_lock
from tests.support.harness import WireClient, claim, serve, write_config
from tests.support.model import ScriptedModel
from tests.support.processes import Running, running

process = pytest.mark.process

INDEX_LOCKS = ("users.lock",)


def open_files(server: Running) -> dict[int, Path]:
    """Return what the descriptors of a process are open for."""
    folder = Path(f"/proc/{server.process.pid}/fd")
    found = {}
    for link in folder.iterdir():
        # The index of the history reads one log at a time.
        with suppress(FileNotFoundError):
            found[int(link.name)] = link.readlink()
    return found


@contextmanager
def no_more_files(server: Running) -> Iterator[None]:
    """Let a process open nothing that it has not open."""
    taken = open_files(server)
    free = next(number for number in range(len(taken) + 1) if number not in taken)
    limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)


async def inject(client: WireClient, thread_id: str, text: str) -> Any:
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "developer", "content": content}
    return await client.call("thread/inject_items", {"threadId": thread_id, "items": [item]})


@process
@claim("threads:descriptors")
async def test_a_loaded_thread_takes_one_descriptor_and_is_written_when_none_is_left(
    tmp_path: Path,
) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        async with running(tmp_path) as server, server.client() as client:
            threads = [(await client.call("thread/start", {}))["thread"] for _ in range(20)]
            # Whatever a first use opens is open.
            await client.call("thread/list", {})
            files = list(open_files(server).values())
            assert len([path for path in files if path.suffix == ".lock"]) == 20 + len(INDEX_LOCKS)
            assert len([path for path in files if path.suffix == ".jsonl"]) <= 1
            logs = sorted((tmp_path / "threads").rglob("*.jsonl"))
            with no_more_files(server):
                for number, thread in enumerate(threads):
                    await inject(client, thread["id"], f"text {number}")
                await client.refusal("thread/start", {})
            assert sorted((tmp_path / "threads").rglob("*.jsonl")) == logs
            for number, thread in enumerate(threads):
                assert f'"text {number}"' in Path(thread["path"]).read_text()
            await client.call("thread/start", {})


@process
async def test_a_server_raises_its_limit_of_open_files_to_the_hard_one(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = len(os.listdir("/proc/self/fd")) + 200
    assert low < hard
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
        try:
            async with running(tmp_path) as server:
                limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
                os.kill(server.process.pid, signal.SIGTERM)
                await server.process.wait()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert limits == (hard, hard)


def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(kind: int, limits: tuple[int, int]) -> None:
        raise ValueError("current limit exceeds maximum limit")

    infinity = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, infinity))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_limit() == 256


# Whose files they are.


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Let everybody read what is made without a mode."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@claim("threads:private")
async def test_the_indexes_are_for_their_owner_alone(tmp_path: Path) -> None:
    def modes() -> dict[str, int]:
        return {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "index").iterdir()}

    async def use() -> dict[str, int]:
        async with serve(tmp_path) as served, served.client() as client:
            await client.turn(await client.start_thread(), "hello")
            await client.call("thread/search", {"searchTerm": "hello"})
            return modes()

    found = await use()
    assert {"threads.sqlite3", "threads.sqlite3-wal", "history.sqlite3"} <= set(found)
    assert found == dict.fromkeys(found, 0o600)
    # What an older version left.
    for file in (tmp_path / "index").iterdir():
        file.chmod(0o644)
    again = await use()
    databases = {name: mode for name, mode in again.items() if ".lock" not in name}
    assert databases == dict.fromkeys(databases, 0o600)


@claim("threads:private")
async def test_a_lock_that_is_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    async with serve(tmp_path / "home") as served, served.client() as client:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        await client.call("thread/unsubscribe", {**here, "unload": True})
        (tmp_path / "home" / "locks" / f"{thread_id}.lock").symlink_to(victim)
        for method, params in (
            ("thread/resume", {}),
            ("thread/name/set", {"name": "n"}),
            ("thread/archive", {}),
            ("thread/delete", {}),
        ):
            error = await client.refusal(method, {**here, **params})
            assert (error.code, error.data["code"]) == (-32603, "storageFailed")
        assert (await client.call("thread/read", here))["thread"]["id"] == thread_id
    assert victim.read_text() == "precious"


def test_a_lock_is_free_though_its_file_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    lock = WriterLock(tmp_path / "lock")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(PermissionError):
            lock.release()
    WriterLock(tmp_path / "lock").release()


def test_no_lock_follows_a_link(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("precious")
    link.symlink_to(victim)
    for take in (WriterLock, SharedLock, holder_of, lambda path: short_lock(path).__enter__()):
        with pytest.raises(OSError, match="symbolic links"):
            take(link)
    assert victim.read_text() == "precious"
