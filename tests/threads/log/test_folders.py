"""Folders of logs: made with all above them, and on disk."""

from pathlib import Path

import pytest

from app_server.threads.log.file import folders


def test_all_that_are_missing_are_made_before_the_disk_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = tmp_path / "threads" / "2026" / "08"
    synced: list[tuple[Path, bool]] = []
    monkeypatch.setattr(folders, "sync_folder", lambda path: synced.append((path, day.is_dir())))
    folders.make_folder(day)
    assert synced == [(folder, True) for folder in (tmp_path, day.parents[1], day.parent)]
    assert {folder.stat().st_mode & 0o777 for folder in (day, *day.parents[:2])} == {0o700}
    synced.clear()
    folders.make_folder(day)
    assert synced == []
