"""fs/watch and fs/unwatch, over real sockets and with real files."""

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.host.files import watching
from app_server.host.files.watching import MAX_PATHS, MAX_WATCHES, FileWatches
from tests.support.harness import WAIT_S, WireClient, claim, serve


async def changes(client: WireClient, watch_id: str, *expected: Path) -> None:
    """Wait until all of these have been told for a watch, and nothing else."""
    missing = set(map(str, expected))
    while missing:
        params = await client.wait_for("fs/changed", lambda p: p["watchId"] == watch_id)
        told = params["params"]["changedPaths"]
        assert set(told) <= set(map(str, expected))
        assert told == sorted(told)
        missing -= set(told)


async def watch(client: WireClient, watch_id: str, path: Path) -> None:
    answer = await client.call("fs/watch", {"watchId": watch_id, "path": str(path)})
    assert answer == {"path": os.path.normpath(path)}


@claim("watch:folder")
async def test_a_folder_is_watched_with_what_is_directly_in_it(tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "inner").mkdir(parents=True)
    (place / "old").touch()
    async with serve(tmp_path / "home") as served, served.client() as client:
        await watch(client, "w", place / "inner" / "..")
        (place / "inner" / "deep").touch()
        (place / "new").touch()
        await changes(client, "w", place / "new")
        (place / "old").rename(place / "renamed")
        await changes(client, "w", place / "old", place / "renamed")
        (place / "new").unlink()
        await changes(client, "w", place / "new")


@claim("watch:file")
async def test_a_file_is_watched_while_it_is_replaced_removed_and_made_again(
    tmp_path: Path,
) -> None:
    file, other = tmp_path / "place" / "file", tmp_path / "place" / "other"
    file.parent.mkdir()
    file.touch()
    async with serve(tmp_path / "home") as served, served.client() as client:
        await watch(client, "w", file)
        for _ in range(2):
            other.write_text("replaced")
            other.rename(file)
            await changes(client, "w", file)
            file.unlink()
            await changes(client, "w", file)
            file.write_text("again")
            await changes(client, "w", file)


@claim("watch:file")
async def test_what_does_not_exist_is_watched_until_it_does(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "file"
    async with serve(tmp_path / "home") as served, served.client() as client:
        await watch(client, "w", file)
        file.parent.mkdir(parents=True)
        file.touch()
        await changes(client, "w", file)
        file.write_text("more")
        await changes(client, "w", file)


@claim("watch:folder")
async def test_a_link_is_watched_as_what_it_points_to(tmp_path: Path) -> None:
    folder, link, to_file = tmp_path / "folder", tmp_path / "link", tmp_path / "to_file"
    folder.mkdir()
    (folder / "file").touch()
    link.symlink_to("folder")
    to_file.symlink_to("folder/file")
    async with serve(tmp_path / "home") as served, served.client() as client:
        await watch(client, "folder", link)
        await watch(client, "file", to_file)
        (folder / "file").write_text("changed")
        await changes(client, "folder", link / "file")
        (folder / "file").write_text("changed again")
        await changes(client, "file", to_file)


@claim("watch:merged")
async def test_many_changes_are_sent_as_one_of_the_folder(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    done, told = anyio.Event(), list[str]()

    def on_change(paths: Any) -> None:
        told.extend(paths)
        if str(place) in paths:
            done.set()

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            watches = FileWatches(tasks)
            await watches.add("owner", "w", place, on_change)
            while not done.is_set():
                # How many are found together depends on how busy the machine is.
                await anyio.to_thread.run_sync(make_and_remove, place, 2 * MAX_PATHS)
            tasks.cancel_scope.cancel()
    assert str(place) in told


def make_and_remove(place: Path, count: int) -> None:
    for number in range(count):
        (place / str(number)).touch()
    for number in range(count):
        (place / str(number)).unlink()


@claim("watch:refused")
async def test_ids_are_taken_once_and_watches_are_counted(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        for number in range(MAX_WATCHES):
            await watch(client, str(number), tmp_path)
        too_many = await client.refusal("fs/watch", {"watchId": "more", "path": str(tmp_path)})
        assert (too_many.code, too_many.message, too_many.data) == (
            -32600,
            f"a connection has at most {MAX_WATCHES} watches",
            {"code": "fileRefused"},
        )
        taken = await client.refusal("fs/watch", {"watchId": "1", "path": str(tmp_path)})
        assert (taken.code, taken.message) == (-32600, "watchId already exists: 1")
        await watch(other, "1", tmp_path)
        for _ in range(2):
            assert await client.call("fs/unwatch", {"watchId": "1"}) == {}
        await watch(client, "more", tmp_path)


@claim("watch:ended")
async def test_watches_end_when_they_are_unwatched_and_with_their_connection(
    tmp_path: Path,
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    async with serve(tmp_path / "home") as served, served.client() as client:
        await watch(client, "first", place)
        await watch(client, "second", place)
        await client.call("fs/unwatch", {"watchId": "first"})
        (place / "new").touch()
        await changes(client, "second", place / "new")
        assert [m for m in client.take_kept() if m["params"].get("watchId") == "first"] == []
    told: list[Any] = []
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            watches = FileWatches(tasks)
            await watches.add("owner", "1", place, told.append)
            await watches.add("owner", "2", place / "gone", told.append)
            assert watches.count == 2
            watches.remove_all("owner")
            # The task group ends: nothing is read any more.
        assert watches.count == 0


@claim("watch:ended")
async def test_a_connection_that_ends_takes_its_watches_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = list[Any]()
    monkeypatch.setattr(FileWatches, "remove_all", lambda watches, owner: ended.append(owner))
    async with serve(tmp_path) as served, served.client() as client:
        await watch(client, "w", tmp_path)
        await watch(client, "v", tmp_path)
        assert ended == []
    assert len(ended) == 1


@claim("watch:folder")
async def test_notifications_that_fail_are_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    read, failures = watching._read_native, [RuntimeError("no more notifications")]

    def fail_once(*arguments: Any, **more: Any) -> Any:
        if failures:
            raise failures.pop()
        return read(*arguments, **more)

    async with serve(tmp_path / "home") as served, served.client() as client:
        monkeypatch.setattr(watching, "_read_native", fail_once)
        await watch(client, "w", place)
        await changes(client, "w", place)
        (place / "new").touch()
        await changes(client, "w", place / "new")
