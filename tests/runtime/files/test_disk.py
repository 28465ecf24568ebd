"""Folders that are made with all above them, and are on disk."""

import fcntl
import threading
from pathlib import Path

import pytest

from app_server.runtime.files import disk


def test_all_that_are_missing_are_made_before_the_disk_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = tmp_path / "threads" / "2026" / "08"
    synced: list[tuple[Path, bool]] = []
    monkeypatch.setattr(disk, "sync_folder", lambda path: synced.append((path, day.is_dir())))
    disk.make_folder(day)
    assert synced == [(folder, True) for folder in (tmp_path, day.parents[1], day.parent)]
    assert {folder.stat().st_mode & 0o777 for folder in (day, *day.parents[:2])} == {0o700}
    synced.clear()
    disk.make_folder(day)
    assert synced == []


def test_what_is_written_whole_is_there_as_a_whole_or_not(tmp_path: Path) -> None:
    path, draft = tmp_path / "file", tmp_path / "draft"
    with disk.atomic_write(path, draft) as file:
        file.write(b"one")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"one", 0o600)
    with pytest.raises(ZeroDivisionError), disk.atomic_write(path, draft) as file:
        file.write(b"two")
        raise ZeroDivisionError
    assert [(left.name, left.read_bytes()) for left in tmp_path.iterdir()] == [("file", b"one")]


def test_a_held_lock_is_waited_for_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("wb") as held, path.open("rb") as other:
        assert disk.try_lock(held.fileno())
        assert not disk.lock_within(other.fileno(), 0)
        threading.Timer(0.05, fcntl.flock, (held.fileno(), fcntl.LOCK_UN)).start()
        assert disk.lock_within(other.fileno(), 30)
