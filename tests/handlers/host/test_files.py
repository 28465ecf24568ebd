"""fs/*: files of the server's machine, over a real socket."""

import base64
import errno
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.host.files import operations
from app_server.host.files.operations import MAX_DEPTH, MAX_READ_BYTES, copy, remove
from app_server.host.files.work import FileWork, PathRefused, Slots, Stop, Stopped
from app_server.rpc.message_stream import ConnectionLimits, OutboxLimits
from app_server.transport.websocket import FRAGMENT_CHARS
from tests.support.harness import WAIT_S, WireClient, WireError, claim, serve


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with a file, links, a pipe and a folder."""
    place = tmp_path / "place"
    (place / "full" / "inner").mkdir(parents=True)
    (place / "file").write_text("hi\n")
    (place / "full" / "inner" / "deep").write_text("deep\n")
    (place / "full" / "run").write_text("#!/bin/sh\n")
    (place / "full" / "run").chmod(0o755)
    (place / "full" / "link").symlink_to("../file")
    (place / "link").symlink_to("file")
    (place / "broken").symlink_to("nowhere")
    (place / "folder link").symlink_to("full")
    os.mkfifo(place / "pipe")
    return place


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def tree(folder: Path) -> dict[str, str]:
    """Name everything below a folder, with its content or the target of a link."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = path.read_text() if path.is_file() else "folder"
    return found


async def outcome(client: WireClient, method: str, params: dict[str, Any]) -> Any:
    """Call a method; a failure is its code, message and word."""
    try:
        return await client.call(method, params)
    except WireError as error:
        return error.code, error.message, error.data["code"]


def os_error(number: int) -> tuple[int, str, str]:
    """Return an error of the system as clients get it: the words of the reference on Linux."""
    return -32603, f"{os.strerror(number)} (os error {number})", "fileFailed"


NOT_FOUND = os_error(errno.ENOENT)
NOT_A_FOLDER = os_error(errno.ENOTDIR)
EXISTS = os_error(errno.EEXIST)


@claim("files:read")
async def test_files_folders_and_links_are_read(tmp_path: Path, folder: Path) -> None:
    async with serve(tmp_path / "home") as served, served.client() as client:

        async def ask(method: str, name: str) -> Any:
            return await outcome(client, method, {"path": f"{folder}/{name}"})

        not_a_file = (-32600, f"path `{folder}/full` is not a file", "fileRefused")
        assert await ask("fs/readFile", "file") == {"dataBase64": encoded("hi\n")}
        assert await ask("fs/readFile", "full/../link") == {"dataBase64": encoded("hi\n")}
        assert await ask("fs/readFile", "full") == not_a_file
        assert await ask("fs/readFile", "gone") == NOT_FOUND
        assert await ask("fs/readFile", "broken") == NOT_FOUND
        assert await ask("fs/readFile", "file/x") == NOT_A_FOLDER
        assert await ask("fs/readFile", "pipe") == (
            -32600,
            f"path `{folder}/pipe` is not a file",
            "fileRefused",
        )
        assert await ask("fs/readFile", "\0") == (
            -32600,
            "file name contained an unexpected NUL byte",
            "fileRefused",
        )
        assert await ask("fs/readDirectory", "file") == NOT_A_FOLDER
        assert await ask("fs/readDirectory", "gone") == NOT_FOUND
        entries = (await ask("fs/readDirectory", ""))["entries"]
        assert [tuple(entry.values()) for entry in entries] == [
            ("broken", False, False),
            ("file", False, True),
            ("folder link", True, False),
            ("full", True, False),
            ("link", False, True),
            ("pipe", False, False),
        ]
        found = {
            name: await ask("fs/getMetadata", name) for name in ("file", "folder link", "pipe")
        }
        modified = {
            name: (folder / name).stat().st_mtime_ns // 1_000_000
            for name in ("file", "folder link", "pipe")
        }
        kinds = {
            "file": (False, True, False),
            "folder link": (True, False, True),
            "pipe": (False, False, False),
        }
        born = {name: found[name].pop("createdAtMs") for name in found}
        assert all(ms >= 0 for ms in born.values())
        assert found == {
            name: {
                "isDirectory": kinds[name][0],
                "isFile": kinds[name][1],
                "isSymlink": kinds[name][2],
                "modifiedAtMs": modified[name],
            }
            for name in kinds
        }
        assert await ask("fs/getMetadata", "broken") == NOT_FOUND


@claim("files:read")
@pytest.mark.parametrize("bound", [10_000, pytest.param(MAX_READ_BYTES, marks=pytest.mark.slow)])
async def test_a_file_is_read_up_to_what_an_answer_can_carry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    monkeypatch.setattr(operations, "MAX_READ_BYTES", bound)
    large, larger = tmp_path / "large", tmp_path / "larger"
    for path, size in ((large, bound), (larger, bound + 1)):
        with path.open("wb") as file:
            file.truncate(size)
    async with serve(tmp_path / "home") as served, served.client() as client:
        answer = await client.call("fs/readFile", {"path": str(large)})
        assert base64.b64decode(answer["dataBase64"]) == bytes(bound)
        assert await outcome(client, "fs/readFile", {"path": str(larger)}) == (
            -32600,
            f"file is too large to read: limit is {bound} bytes",
            "fileRefused",
        )
        # Files of the kernel do not say their size.
        status = await client.call("fs/readFile", {"path": "/proc/self/status"})
        assert b"Name:" in base64.b64decode(status["dataBase64"])


@claim("files:read")
async def test_many_large_files_at_once_reach_a_client(tmp_path: Path) -> None:
    # Together half as much again as may wait for a client, as eight of 20 MiB would be.
    size, count = 1280 * 1024, 8
    limits = ConnectionLimits(outbox=OutboxLimits(max_large_chars=8 * 1024 * 1024))
    with (tmp_path / "large").open("wb") as file:
        file.truncate(size)
    served_there = serve(tmp_path / "home", connection=limits)
    async with served_there as served, served.client() as client:
        ids = [
            await client.request("fs/readFile", {"path": f"{tmp_path}/large"}) for _ in range(count)
        ]
        for request in ids:
            answer = await client.answer(request)
            assert len(answer["result"].pop("dataBase64")) == (size + 2) // 3 * 4


@claim("bounds:large")
async def test_a_large_answer_is_sent_in_pieces_between_which_others_run(tmp_path: Path) -> None:
    size = 3 * FRAGMENT_CHARS
    (tmp_path / "large").write_bytes(bytes(size))
    async with serve(tmp_path / "home") as served, served.pipe() as pipe:
        client = WireClient(pipe)
        await client.initialize()
        await client.request("fs/readFile", {"path": f"{tmp_path}/large"})
        pieces = [piece async for piece in pipe.socket.recv_streaming()]
    # An empty fragment ends the message.
    *whole, rest, end = (len(piece) for piece in pieces)
    assert (whole, 0 < rest <= FRAGMENT_CHARS, end) == ([FRAGMENT_CHARS] * 4, True, 0)
    assert len(json.loads("".join(map(str, pieces)))["result"]["dataBase64"]) == size // 3 * 4


@claim("files:absolute")
@pytest.mark.parametrize(
    ("method", "field", "params"),
    [
        ("fs/readFile", "path", {"path": "file"}),
        ("fs/readFile", "path", {"path": ""}),
        ("fs/readFile", "path", {"path": "~/file"}),
        ("fs/getMetadata", "path", {"path": "./file"}),
        ("fs/readDirectory", "path", {"path": "."}),
        ("fs/writeFile", "path", {"path": "file", "dataBase64": ""}),
        ("fs/createDirectory", "path", {"path": "new"}),
        ("fs/remove", "path", {"path": "file"}),
        ("fs/copy", "sourcePath", {"sourcePath": "a", "destinationPath": "/b"}),
        ("fs/copy", "destinationPath", {"sourcePath": "/a", "destinationPath": "b"}),
    ],
)
async def test_paths_are_absolute(
    tmp_path: Path, method: str, field: str, params: dict[str, Any]
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        assert (await client.refusal(method, params)).data == {
            "code": "invalidParams",
            "field": field,
            "rule": "must be an absolute path",
        }


@claim("files:write")
async def test_files_are_written_and_keep_their_mode(tmp_path: Path, folder: Path) -> None:
    async with serve(tmp_path / "home") as served, served.client() as client:

        async def write(name: str, data: str) -> Any:
            return await outcome(
                client, "fs/writeFile", {"path": f"{folder}/{name}", "dataBase64": data}
            )

        (folder / "hard").hardlink_to(folder / "file")
        assert await write("new", encoded("new")) == {}
        assert await write("full/run", encoded("changed")) == {}
        assert await write("link", encoded("through")) == {}
        assert await write("broken", encoded("made")) == {}
        assert (folder / "new").read_text() == "new"
        assert (folder / "full" / "run").read_text() == "changed"
        assert stat.S_IMODE((folder / "full" / "run").stat().st_mode) == 0o755
        assert (folder / "link").is_symlink()
        assert (folder / "file").read_text() == (folder / "hard").read_text() == "through"
        assert (folder / "nowhere").read_text() == "made"
        assert await write("gone/new", "") == NOT_FOUND
        assert await write("full", "") == os_error(errno.EISDIR)
        assert await write("pipe", "") == (
            -32600,
            f"path `{folder}/pipe` is not a file",
            "fileRefused",
        )
        for wrong in ("!!", "aGk", "aG k=", "aGk=\n", "_-8="):
            code, message, word = await write("new", wrong)
            assert (code, word) == (-32600, "invalidBase64")
            assert message.startswith("fs/writeFile requires valid base64 dataBase64: ")
        assert (folder / "new").read_text() == "new"
        assert not list(folder.rglob("*.tmp"))


@claim("files:write")
async def test_folders_are_made(tmp_path: Path, folder: Path) -> None:
    async with serve(tmp_path / "home") as served, served.client() as client:

        async def make(name: str, **options: Any) -> Any:
            params = {"path": f"{folder}/{name}", **options}
            return await outcome(client, "fs/createDirectory", params)

        assert await make("a/b/c") == await make("a/b/c") == {}
        assert await make("d", recursive=False) == await make("folder link") == {}
        assert await make("d", recursive=False) == EXISTS
        assert await make("e/f", recursive=False) == NOT_FOUND
        assert await make("file") == EXISTS
        assert await make("file/f", recursive=None) == NOT_A_FOLDER
        assert (folder / "a" / "b" / "c").is_dir()
        assert (folder / "d").is_dir()
        # As deep as a path may be; Python calls itself for each folder, if it is let.
        deep = "q/" * ((4_000 - len(str(folder))) // 2)
        assert await make(deep) == {}
        # Nor is removing them for `shutil.rmtree`, which cleans up behind tests.
        os.removedirs(folder / deep)
        assert await make("q/" * 2_100) == os_error(errno.ENAMETOOLONG)


@claim("files:copy")
async def test_files_links_and_folders_are_copied(tmp_path: Path, folder: Path) -> None:
    os.mkfifo(folder / "full" / "pipe")
    async with serve(tmp_path / "home") as served, served.client() as client:

        async def copy_to(source: str, destination: str, **options: Any) -> Any:
            paths = {
                "sourcePath": f"{folder}/{source}",
                "destinationPath": f"{folder}/{destination}",
            }
            return await outcome(client, "fs/copy", {**paths, **options})

        inside = (
            -32600,
            "fs/copy cannot copy a directory to itself or one of its descendants",
            "fileRefused",
        )
        kinds = (
            -32600,
            "fs/copy only supports regular files, directories, and symlinks",
            "fileRefused",
        )
        assert await copy_to("full/run", "run") == {}
        assert stat.S_IMODE((folder / "run").stat().st_mode) == 0o755
        assert await copy_to("file", "run") == {}
        assert (folder / "run").read_text() == "hi\n"
        assert await copy_to("file", "file") == {}
        assert (folder / "file").read_text() == "hi\n"
        assert await copy_to("link", "link 2") == {}
        assert (folder / "link 2").readlink() == Path("file")
        assert await copy_to("link", "link 2") == EXISTS
        assert await copy_to("full", "other", recursive=False) == (
            -32600,
            "fs/copy requires recursive: true when sourcePath is a directory",
            "fileRefused",
        )
        assert await copy_to("full", "new/other", recursive=True) == {}
        assert tree(folder / "new" / "other") == {
            "inner": "folder",
            "inner/deep": "deep\n",
            "link": "-> ../file",
            "run": "#!/bin/sh\n",
        }
        assert await copy_to("full", "new/other", recursive=True) == EXISTS
        assert await copy_to("full", "file", recursive=True) == EXISTS
        assert await copy_to("full", "full", recursive=True) == inside
        assert await copy_to("full", "full/in/side", recursive=True) == inside
        assert await copy_to("full", "folder link/inside", recursive=True) == inside
        assert await copy_to("gone", "other") == NOT_FOUND
        assert await copy_to("file", "gone/other") == NOT_FOUND
        assert await copy_to("file", "full") == os_error(errno.EISDIR)
        assert await copy_to("pipe", "other") == kinds


@claim("files:remove")
async def test_files_links_and_folders_are_removed(tmp_path: Path, folder: Path) -> None:
    (folder / "empty").mkdir()
    async with serve(tmp_path / "home") as served, served.client() as client:

        async def delete(name: str, **options: Any) -> Any:
            return await outcome(client, "fs/remove", {"path": f"{folder}/{name}", **options})

        assert await delete("gone") == {}
        assert await delete("gone", force=False) == NOT_FOUND
        assert await delete("file/x") == NOT_A_FOLDER
        assert await delete("full", recursive=False) == os_error(errno.ENOTEMPTY)
        assert await delete("empty", recursive=False) == {}
        assert await delete("folder link") == {}
        assert await delete("link", recursive=None, force=None) == {}
        assert tree(folder)["full/inner/deep"] == "deep\n"
        assert await delete("full") == {}
        assert sorted(path.name for path in folder.iterdir()) == ["broken", "file", "pipe"]
        assert (folder / "file").read_text() == "hi\n"


@claim("files:bounded")
def test_folders_are_entered_up_to_a_depth(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(MAX_DEPTH + 1):
        deep = deep / "d"
        deep.mkdir()
    with pytest.raises(PathRefused, match=f"folders are more than {MAX_DEPTH} deep"):
        remove(tmp_path / "d", recursive=True, force=True, stop=Stop())
    with pytest.raises(PathRefused, match=f"folders are more than {MAX_DEPTH} deep"):
        copy(tmp_path / "d", tmp_path / "copy", recursive=True, stop=Stop())
    deep.rmdir()
    remove(tmp_path / "d", recursive=True, force=True, stop=Stop())
    assert not (tmp_path / "d").exists()


class StopAfter(Stop):
    """Is set by its own checks: work is stopped in the middle, however fast it is."""

    def __init__(self, checks: int) -> None:
        super().__init__()
        self.left = checks

    def check(self) -> None:
        super().check()
        self.left -= 1
        if self.left == 0:
            self.set()


@claim("files:cancelled")
def test_removing_and_copying_stop_in_the_middle(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(100):
        (tmp_path / "many" / str(number)).touch()
    with pytest.raises(Stopped):
        copy(tmp_path / "many", tmp_path / "copy", recursive=True, stop=StopAfter(50))
    assert 40 <= len(list((tmp_path / "copy").iterdir())) <= 50
    with pytest.raises(Stopped):
        remove(tmp_path / "many", recursive=True, force=True, stop=StopAfter(50))
    assert 50 <= len(list((tmp_path / "many").iterdir())) <= 60


@claim("files:cancelled")
async def test_work_that_nobody_waits_for_stops_at_its_next_check() -> None:
    work, begun, ended = FileWork(), anyio.Event(), anyio.Event()

    def without_end(stop: Stop) -> None:
        anyio.from_thread.run_sync(begun.set)
        try:
            while True:
                stop.check()
        finally:
            anyio.from_thread.run_sync(ended.set)

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work.run, without_end)
            await begun.wait()
            tasks.cancel_scope.cancel()
        await ended.wait()


@claim("files:cancelled")
async def test_a_copy_for_a_client_that_has_gone_leaves_its_worker(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def without_end(reading: int, name: str, folder: int | None, stop: Stop) -> None:
        os.close(reading)
        begun.set()
        try:
            # A core that is busy with this would keep the client from leaving for seconds.
            while not ended.wait(0.001):
                stop.check()
        finally:
            ended.set()

    monkeypatch.setattr(operations, "_copy_file", without_end)
    limits = ConnectionLimits(finish_s=0.1)
    async with serve(tmp_path / "home", connection=limits) as served:
        async with served.client() as client:
            paths = {"sourcePath": f"{folder}/full", "destinationPath": f"{folder}/copy"}
            await client.request("fs/copy", {**paths, "recursive": True})
            assert await anyio.to_thread.run_sync(begun.wait, WAIT_S)
        assert await anyio.to_thread.run_sync(ended.wait, WAIT_S)


async def test_slots_are_counted_for_each_owner() -> None:
    slots = Slots(1)
    await slots.take("a")
    await slots.take("b")
    with anyio.move_on_after(0) as waited:
        await slots.take("a")
    assert waited.cancelled_caught
    slots.give("a")
    await slots.take("a")
