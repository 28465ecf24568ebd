"""Fingerprints of plugins: those of Codex, and what has none."""

import json
import os
from pathlib import Path

import pytest

from app_server.extensions.hooks import fingerprint as fingerprints
from app_server.extensions.hooks.fingerprint import NoFingerprint, fingerprint
from tests.support.files.descriptors import open_below


def plugin(tmp_path: Path) -> Path:
    manifest = tmp_path / "p/.codex-plugin/plugin.json"
    manifest.parent.mkdir(parents=True)
    stop = {"Stop": [{"hooks": [{"type": "command", "command": "echo"}]}]}
    manifest.write_text(json.dumps({"name": "e", "hooks": {"hooks": stop}}))
    return tmp_path / "p"


def test_a_plugin_has_the_fingerprint_that_codex_gives_it(tmp_path: Path) -> None:
    root = plugin(tmp_path)
    # Recorded with Codex 0.169.0, their beginnings.
    assert fingerprint(root).startswith("13cbdb3fce6b6")
    (root / "empty").mkdir()
    assert fingerprint(root).startswith("39bcc79e343c1")
    (root / "empty").rmdir()
    (root / "empty").touch()
    assert fingerprint(root).startswith("a0cd3bb145a77")
    (root / "empty").unlink()
    (root / ".git").mkdir()
    (root / ".git/x").write_text("1")
    assert fingerprint(root).startswith("b59c34d2f4eed")


def test_modes_and_times_do_not_count(tmp_path: Path) -> None:
    root = plugin(tmp_path)
    manifest = root / ".codex-plugin/plugin.json"
    manifest.chmod(0o755)
    manifest.parent.chmod(0o700)
    os.utime(manifest, (1, 1))
    assert fingerprint(root).startswith("13cbdb3fce6b6")


def test_a_file_that_was_written_with_its_old_time_is_read_again(tmp_path: Path) -> None:
    root = plugin(tmp_path)
    file = root / "script"
    file.write_text("one")
    before, times = fingerprint(root), file.stat()
    file.write_text("two")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert fingerprint(root) != before
    file.write_text("one")
    assert fingerprint(root) == before


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "missing", "outside"])
def test_links_and_special_files_have_none(tmp_path: Path, kind: str) -> None:
    root = plugin(tmp_path)
    match kind:
        case "link":
            (root / "odd").symlink_to(".codex-plugin/plugin.json")
        case "dangling":
            (root / "odd").symlink_to("nowhere")
        case "pipe":
            os.mkfifo(root / "odd")
        case "missing":
            root = root / "odd"
        case "outside":
            (root / "odd").symlink_to(tmp_path)
    with pytest.raises(NoFingerprint, match="odd"):
        fingerprint(root)


def test_a_file_that_becomes_a_folder_is_refused_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = plugin(tmp_path)
    (root / "script").write_text("one")
    look = os.lstat

    def look_and_replace(path: Path) -> os.stat_result:
        found = look(path)
        if path.name == "script":
            path.unlink()
            path.mkdir()
        return found

    monkeypatch.setattr(os, "lstat", look_and_replace)
    with pytest.raises(NoFingerprint, match="script"):
        fingerprint(root)
    assert open_below(root) == []


def test_what_is_too_large_has_none(tmp_path: Path) -> None:
    root = plugin(tmp_path)
    assert fingerprint(root, max_entries=2)
    (root / "more").touch()
    with pytest.raises(NoFingerprint, match="more than 2 files, or"):
        fingerprint(root, max_entries=2)
    (root / "more").unlink()
    with pytest.raises(NoFingerprint, match="or 10 bytes"):
        fingerprint(root, max_bytes=10)


def test_a_bounded_number_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "MAX_KNOWN", 2)
    roots = [plugin(tmp_path / str(number)) for number in range(3)]
    for root in roots:
        fingerprint(root)
    assert [root for root in roots if root in fingerprints._KNOWN] == roots[1:]
