"""What the process that comes next makes of a patch that the one before died with."""

import os
import stat
from pathlib import Path

import pytest

from app_server.patch.plan import PlannedChange
from app_server.patch.unified import blob_name
from app_server.patch.write import changing_files, recover, temporary_name
from app_server.runtime.machine import machine_name
from protocol.log.rollout import ChangingFile, FilesChanging
from tests.patch.folders import patch_of, plan

ALL = patch_of(
    "*** Add File: new",
    "+1",
    "*** Delete File: gone",
    "*** Update File: changed",
    "-old",
    "+new",
    "*** Update File: moved",
    "*** Move to: there",
    "-m",
    "+n",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = Path(os.path.realpath(tmp_path)) / "work"
    folder.mkdir()
    for name, text in (("gone", "g\n"), ("changed", "old\n"), ("moved", "m\n")):
        (folder / name).write_text(text)
    return folder


def blob(text: str) -> str:
    return blob_name(text.encode())


def record(
    files: list[ChangingFile], environment_id: str | None = None, machine: str | None = None
) -> FilesChanging:
    return FilesChanging(
        at_ms=1,
        turn_id="t",
        item_id="i",
        files=files,
        environment_id=environment_id,
        machine=machine,
    )


def test_a_plan_is_written_down_with_what_each_file_was_and_is_to_be(folder: Path) -> None:
    planned = plan(folder, ALL)

    def changing(name: str, before: str | None, after: str | None, number: int) -> ChangingFile:
        place = f"{folder}/{name}"
        return ChangingFile(
            path=place,
            before=None if before is None else blob(before),
            after=None if after is None else blob(after),
            temporary=None if after is None else temporary_name(place, "token", number),
        )

    files = [
        changing("new", None, "1\n", 0),
        changing("gone", "g\n", None, 1),
        changing("changed", "old\n", "new\n", 2),
        changing("moved", "m\n", None, 3),
        changing("there", None, "n\n", 3),
    ]
    assert changing_files(planned, "token") == files
    elsewhere = changing_files(planned, None)
    assert [(file.path, file.before, file.after) for file in elsewhere] == [
        (file.path, file.before, file.after) for file in files
    ]
    assert {file.temporary for file in elsewhere} == {None}


def recovered(changing: FilesChanging) -> list[tuple[str, str]]:
    """Recover, and return the names of files that are said to have changed, and how."""
    item = recover(changing)
    assert (item.id, item.status) == ("i", "failed")
    assert {change.diff for change in item.changes} <= {""}
    kinds = [change.model_dump()["kind"]["type"] for change in item.changes]
    paths = [os.path.basename(change.path) for change in item.changes]
    return list(zip(paths, kinds, strict=True))


def test_files_that_are_as_they_were_to_be_are_named_in_order(folder: Path) -> None:
    changing = record(changing_files(plan(folder, ALL), "token"))
    assert recovered(changing) == []
    (folder / "new").write_text("1\n")
    assert recovered(changing) == [("new", "add")]
    (folder / "gone").unlink()
    (folder / "changed").write_text("new\n")
    assert recovered(changing) == [("changed", "update"), ("gone", "delete"), ("new", "add")]
    # Somebody has changed it since: it is not what the patch made.
    (folder / "changed").write_text("other\n")
    (folder / "new").unlink()
    (folder / "new").symlink_to("changed")
    assert recovered(changing) == [("gone", "delete")]
    descriptors = os.listdir("/dev/fd")
    (folder / "gone").mkdir()
    assert recovered(changing) == []
    assert os.listdir("/dev/fd") == descriptors


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    changing = record(changing_files(plan(folder, ALL), "token"))
    os.mkfifo(folder / "new")
    assert recovered(changing) == []
    (folder / "new").unlink()
    # A link that goes is one by its target.
    (folder / "link").symlink_to("somewhere")
    linked = record(changing_files(plan(folder, patch_of("*** Delete File: link")), None))
    assert linked.files[0].before == blob("somewhere")
    back = linked.files[0].model_copy(update={"before": None, "after": blob("somewhere")})
    assert recovered(record([back])) == [("link", "add")]


def test_a_file_that_stays_as_it_was_is_not_named(folder: Path) -> None:
    same = ChangingFile(path=f"{folder}/gone", before=blob("g\n"), after=blob("g\n"))
    assert recovered(record([same])) == []


@pytest.mark.parametrize("place", [{"environment_id": "other"}, {"machine": "other"}])
def test_of_another_machine_every_file_is_named(folder: Path, place: dict[str, str]) -> None:
    files = changing_files(plan(folder, ALL), "token")
    for file in files:
        if file.temporary is not None:
            (folder / file.temporary).write_text("theirs")
    assert recovered(record(files, machine=machine_name())) == []
    for file in files:
        if file.temporary is not None:
            (folder / file.temporary).write_text("theirs")
    assert recovered(record(files, **place)) == [
        *(("changed", "update"), ("gone", "delete"), ("moved", "delete")),
        *(("new", "add"), ("there", "add")),
    ]
    # What has these names here is not of that patch.
    assert len(list(folder.glob(".*"))) == 3


def test_temporary_files_are_removed_and_nothing_else(folder: Path) -> None:
    files = changing_files(plan(folder, ALL), "token")
    for file in files:
        if file.temporary is not None:
            (folder / file.temporary).write_text("half")
    (folder / ".other.app-server-patch").touch()
    before = os.listdir("/dev/fd")
    recover(record(files))
    assert {path.name for path in folder.iterdir()} == {
        *("gone", "changed", "moved", ".other.app-server-patch"),
    }
    recover(record(files))
    assert os.listdir("/dev/fd") == before


def test_a_log_cannot_name_a_file_in_another_folder(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "kept").touch()
    file = ChangingFile(path=f"{folder}/new", before=None, after=None, temporary="sub/kept")
    other = ChangingFile(path=f"{folder}/new", before=None, after=None, temporary="../work/gone")
    recover(record([file]))
    assert (folder / "sub" / "kept").exists()
    recover(record([other]))
    # Its name alone counts, in the folder of the file.
    assert not (folder / "gone").exists()
    # A link on the way is not followed.
    (folder / "link").symlink_to("sub")
    linked = ChangingFile(path=f"{folder}/link/x", before=None, after=None, temporary="kept")
    recover(record([linked]))
    assert (folder / "sub" / "kept").exists()


# The places of a plan.


def test_a_change_writes_its_place_and_that_of_its_new_name(folder: Path) -> None:
    changes = plan(folder, ALL).changes
    written = [{Path(place).name: Path(path).name for place, path in change.written.items()}
               for change in changes]  # fmt: skip
    assert written == [
        *({"new": "new"}, {"gone": "gone"}, {"changed": "changed"}),
        {"moved": "moved", "there": "there"},
    ]
    moved = changes[3]
    assert isinstance(moved, PlannedChange)
    assert moved.before is not None
    assert not moved.before.is_link
    assert not moved.before.is_executable
    (folder / "moved").chmod(stat.S_IXUSR | stat.S_IRUSR | stat.S_IWUSR)
    again = plan(folder, ALL).changes[3].before
    assert again is not None
    assert again.is_executable
    assert not again.is_same(moved.before.status)
    assert not again.is_same(None)
    assert again.is_same(os.stat(folder / "moved"))
