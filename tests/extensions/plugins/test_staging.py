"""plugins: a folder takes the place of another one, whole, whatever happens to the process."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from app_server.extensions.plugins import store as staging
from app_server.extensions.plugins.store import (
    ClonedMarketplaces,
    PluginId,
    PluginStore,
    put_in_place,
)
from tests.support.files.plugins import write_plugin


class Killed(BaseException):
    """The process has ended: nothing is cleared away."""


def folder(path: Path, content: str) -> Path:
    path.mkdir(parents=True)
    (path / "content").write_text(content)
    return path


def content(path: Path) -> str | None:
    return (path / "content").read_text() if path.exists() else None


def upgrade(home: Path) -> None:
    clones = ClonedMarketplaces(home)
    staged = clones.make_staging()
    (staged / "new/content").write_text("new")
    clones.put(staged, "shop")


@pytest.mark.parametrize("rename", range(3))
def test_a_killed_upgrade_leaves_the_old_marketplace_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rename: int
) -> None:
    clones = ClonedMarketplaces(tmp_path)
    folder(clones.folder("shop"), "old")
    renames = iter([os.rename] * rename)

    def rename_or_end(source: Path, target: Path) -> None:
        if (go_on := next(renames, None)) is None:
            raise Killed
        go_on(source, target)

    monkeypatch.setattr(Path, "rename", rename_or_end)
    with suppress(Killed):
        upgrade(tmp_path)
    assert content(clones.folder("shop")) in ("old", "new")


def test_who_looks_meanwhile_always_sees_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, plugin = PluginStore(tmp_path / "home"), PluginId("shop", "p")
    source = write_plugin(tmp_path / "source", "p")
    installed = store.install(source, plugin, None)
    rename, seen = os.rename, []

    def look_and_rename(old: Path, new: Path) -> None:
        """Look before and after each step."""
        seen.append((installed / ".codex-plugin/plugin.json").exists())
        rename(old, new)
        seen.append((installed / ".codex-plugin/plugin.json").exists())

    monkeypatch.setattr(os, "rename", look_and_rename)
    assert store.install(source, plugin, None) == installed
    assert set(seen) <= {True}


def cannot(number: int) -> Callable[[], staging.Exchange]:
    return lambda: lambda one, other: number


@pytest.mark.parametrize("make", [lambda: None, cannot(errno.EINVAL), cannot(errno.ENOTSUP)])
def test_where_names_cannot_be_exchanged_they_are_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], staging.Exchange | None]
) -> None:
    monkeypatch.setattr(staging, "_exchange", make)
    new, place = folder(tmp_path / "new", "new"), folder(tmp_path / "place", "old")
    put_in_place(new, place)
    assert (content(place), content(new)) == ("new", "old")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "place"]
    new.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError):
        put_in_place(new, place)
    assert content(place) == "new"


def test_a_disk_that_refuses_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_exchange", cannot(errno.EROFS))
    new, place = folder(tmp_path / "new", "new"), folder(tmp_path / "place", "old")
    with pytest.raises(OSError, match="Read-only file system"):
        put_in_place(new, place)
    assert (content(place), content(new)) == ("old", "new")


@pytest.mark.parametrize("before", ["old", None])
def test_what_was_put_in_place_can_be_put_back(tmp_path: Path, before: str | None) -> None:
    clones = ClonedMarketplaces(tmp_path)
    if before is not None:
        folder(clones.folder("shop"), before)
    staged = clones.make_staging()
    (staged / "new/content").write_text("new")
    clones.put(staged, "shop")
    assert content(clones.folder("shop")) == "new"
    clones.put_back(staged, "shop")
    assert content(clones.folder("shop")) == before
