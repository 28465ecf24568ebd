"""A patch is checked as a whole, and then written as a whole, where it says and nowhere else."""

import os
import stat
from pathlib import Path

import pytest

from app_server.patch.parse import BadPatch, NotApplicable, NotWritten
from app_server.patch.plan import MAX_FILE_BYTES
from app_server.patch.write import TEMPORARY_SUFFIX, new_token, write_plan
from app_server.permissions.sandbox.policy import EffectivePolicy
from tests.patch.folders import apply, content, patch_of, plan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = Path(os.path.realpath(tmp_path)) / "work"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"hello\n")
    return folder


def test_all_kinds_of_changes_are_made(folder: Path) -> None:
    (folder / "d.txt").write_bytes(b"del\n")
    (folder / "m.txt").write_bytes(b"m\nrest\n")
    (folder / "r.txt").write_bytes(b"as it is\n")
    patch = patch_of(
        "*** Add File: new/er/z.txt",
        "+1",
        "*** Update File: a.txt",
        "-hello",
        "+bye",
        "*** Delete File: d.txt",
        "*** Update File: m.txt",
        "*** Move to: sub/n.txt",
        "-m",
        "+n",
        "*** Update File: r.txt",
        "*** Move to: renamed.txt",
    )
    apply(folder, patch)
    assert content(folder) == {
        "a.txt": b"bye\n",
        "new/er/z.txt": b"1\n",
        "renamed.txt": b"as it is\n",
        "sub/n.txt": b"n\nrest\n",
    }


def test_an_add_and_a_move_replace_what_is_there(folder: Path) -> None:
    (folder / "b.txt").write_bytes(b"other\n")
    (folder / "c.txt").write_bytes(b"third\n")
    apply(
        folder,
        patch_of("*** Add File: b.txt", "+x", "*** Update File: a.txt", "*** Move to: c.txt"),
    )
    assert content(folder) == {"b.txt": b"x\n", "c.txt": b"hello\n"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["*** Update File: a.txt", "-nothere", "+y"], "Failed to find expected lines in {}/a.txt"),
        (
            ["*** Update File: nope.txt", "-x"],
            "Failed to read file to update {}/nope.txt: No such file or directory",
        ),
        (
            ["*** Delete File: nope.txt"],
            "Failed to read {}/nope.txt: No such file or directory",
        ),
        (["*** Delete File: sub"], "Failed to read {}/sub: path `{}/sub` is not a file"),
        (["*** Add File: sub", "+x"], "Failed to write {}/sub: path `{}/sub` is not a file"),
        (["*** Add File: a.txt/b", "+x"], "Failed to write {}/a.txt/b: Not a directory"),
        (
            ["*** Update File: latin", "-x"],
            "Failed to read file to update {}/latin: it is no UTF-8 from byte 1 on, but perhaps "
            "ISO-8859-1 or Windows-1252; only UTF-8 can be changed",
        ),
        (["*** Update File: utf16", "-x"], "{}/utf16: it is UTF-16; only UTF-8 can be changed"),
        (["*** Delete File: utf32"], "{}/utf32: it is UTF-32; only UTF-8 can be changed"),
        (["*** Add File: binary", "+x"], "{}/binary: it is binary; only UTF-8 can be changed"),
        (["*** Update File: large", "-x"], "Failed to read file to update {}/large: it is too lar"),
        (["*** Delete File: pipe"], "Failed to read {}/pipe: path `{}/pipe` is not a file"),
    ],
)
def test_what_does_not_fit_changes_nothing(folder: Path, lines: list[str], message: str) -> None:
    (folder / "sub").mkdir()
    (folder / "latin").write_bytes("\xe9t\xe9".encode("latin-1").replace(b"\xe9t", b"x\xe9t"))
    (folder / "utf16").write_bytes("x\n".encode("utf-16"))
    (folder / "utf32").write_bytes("x\n".encode("utf-32"))
    (folder / "binary").write_bytes(b"\x00\xff\xfe")
    (folder / "large").touch()
    os.truncate(folder / "large", MAX_FILE_BYTES + 1)
    os.mkfifo(folder / "pipe")
    before = sorted(os.listdir(folder))
    with pytest.raises(NotApplicable) as refused:
        apply(folder, patch_of("*** Add File: first.txt", "+1", *lines))
    assert message.format(folder, folder) in str(refused.value)
    assert sorted(os.listdir(folder)) == before
    assert (folder / "a.txt").read_bytes() == b"hello\n"


def test_the_files_of_a_patch_have_a_bound_together(folder: Path) -> None:
    (folder / "b.txt").write_bytes(b"hello\n")
    patch = ["*** Update File: a.txt", "-hello", "*** Update File: b.txt", "-hello"]
    with pytest.raises(NotApplicable, match=r"b\.txt: it is too large"):
        apply(folder, patch_of(*patch), max_bytes=11)
    assert content(folder) == {"a.txt": b"hello\n", "b.txt": b"hello\n"}


@pytest.mark.parametrize(
    "second",
    [
        ["*** Update File: ./a.txt", "-hello"],
        ["*** Add File: new.txt", "+x", "*** Update File: new.txt", "-x"],
        ["*** Delete File: alias.txt"],
        ["*** Update File: b.txt", "*** Move to: a.txt"],
        ["*** Update File: link.txt", "-hello"],
    ],
)
def test_two_changes_of_one_file_are_refused(folder: Path, second: list[str]) -> None:
    (folder / "b.txt").write_bytes(b"b\n")
    (folder / "link.txt").symlink_to("a.txt")
    (folder / "here").symlink_to(".")
    second = [line.replace("alias.txt", "here/a.txt") for line in second]
    with pytest.raises(BadPatch, match="invalid patch: multiple operations target"):
        apply(folder, patch_of("*** Update File: a.txt", "-hello", "+x", *second))
    assert (folder / "a.txt").read_bytes() == b"hello\n"


def test_rights_owner_and_attributes_are_kept(folder: Path) -> None:
    file = folder / "a.txt"
    file.chmod(0o4751)
    if os.getuid() == 0:
        os.chown(file, 1234, 2345)
        file.chmod(0o4751)
    before = file.stat()
    try:
        os.setxattr(file, "user.origin", b"here")
    except OSError:
        attributes: list[str] = []
    else:
        attributes = ["user.origin"]
    apply(folder, patch_of("*** Update File: a.txt", "-hello", "+x"))
    after = file.stat()
    assert stat.S_IMODE(after.st_mode) == 0o4751
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert [name for name in os.listxattr(file) if name.startswith("user.")] == attributes
    apply(folder, patch_of("*** Update File: a.txt", "*** Move to: b.txt", "-x", "+y"))
    assert stat.S_IMODE((folder / "b.txt").stat().st_mode) == 0o4751


def test_a_new_file_has_the_rights_of_the_umask(folder: Path) -> None:
    umask = os.umask(0o027)
    try:
        apply(folder, patch_of("*** Add File: sub/new.txt", "+x"))
    finally:
        os.umask(umask)
    assert stat.S_IMODE((folder / "sub" / "new.txt").stat().st_mode) == 0o640


def test_a_link_is_written_through_and_stays(folder: Path) -> None:
    (folder / "ln.txt").symlink_to("a.txt")
    apply(folder, patch_of("*** Update File: ln.txt", "-hello", "+two"))
    assert (folder / "ln.txt").is_symlink()
    assert (folder / "a.txt").read_bytes() == b"two\n"


def test_a_link_that_is_deleted_leaves_its_file(folder: Path) -> None:
    (folder / "ln.txt").symlink_to("a.txt")
    (change,) = plan(folder, patch_of("*** Delete File: ln.txt")).changes
    assert change.before is not None
    assert (change.before.text, change.before.is_link) == ("a.txt", True)
    apply(folder, patch_of("*** Delete File: ln.txt"))
    assert content(folder) == {"a.txt": b"hello\n"}


def test_a_hard_link_elsewhere_keeps_its_content(folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere.txt"
    elsewhere.hardlink_to(folder / "a.txt")
    apply(folder, patch_of("*** Update File: a.txt", "-hello", "+x"))
    assert elsewhere.read_bytes() == b"hello\n"


def test_places_outside_are_named_by_where_they_lead(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (folder / "ln").symlink_to("../outside")
    (folder / ".git").mkdir()
    sandbox_policy = EffectivePolicy(writable=(str(folder),), protected=(str(folder / ".git"),))
    made = plan(
        folder,
        patch_of(
            "*** Add File: ln/new.txt",
            "+x",
            "*** Add File: .git/hooks/x",
            "+x",
            "*** Add File: sub/../../up.txt",
            "+x",
            "*** Update File: a.txt",
            "*** Move to: /var/b.txt",
        ),
        sandbox_policy,
    )
    assert made.outside == {
        str(outside / "new.txt"): str(folder / "ln" / "new.txt"),
        str(folder / ".git" / "hooks" / "x"): str(folder / ".git" / "hooks" / "x"),
        str(folder.parent / "up.txt"): str(folder.parent / "up.txt"),
        "/var/b.txt": "/var/b.txt",
    }


@pytest.mark.parametrize("there", [True, False])
def test_nobody_learns_what_is_where_nothing_may_be_read(folder: Path, there: bool) -> None:
    secret = folder / "secret"
    secret.mkdir()
    if there:
        (secret / "key").write_bytes(b"line\n")
    sandbox_policy = EffectivePolicy(denied=(str(secret),))
    for change in (["*** Update File: secret/key", "-line"], ["*** Delete File: secret/key"]):
        with pytest.raises(NotApplicable, match="not allowed by the sandbox"):
            plan(folder, patch_of(*change), sandbox_policy)


def test_a_link_that_is_put_in_the_way_later_is_not_followed(folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "f.txt").write_bytes(b"hello\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "f.txt").write_bytes(b"hello\n")
    update = plan(folder, patch_of("*** Update File: sub/f.txt", "-hello", "+x"))
    add = plan(folder, patch_of("*** Add File: sub/new.txt", "+x"))
    delete = plan(folder, patch_of("*** Delete File: sub/f.txt"))
    (folder / "sub").rename(folder / "was")
    (folder / "sub").symlink_to("../outside")
    for made in (update, add, delete):
        with pytest.raises(NotWritten, match="Failed to write file"):
            write_plan(made, new_token())
    assert content(outside) == {"f.txt": b"hello\n"}


def test_a_link_that_takes_the_place_of_a_file_is_not_followed(folder: Path) -> None:
    outside = folder.parent / "outside.txt"
    outside.write_bytes(b"hello\n")
    made = plan(folder, patch_of("*** Update File: a.txt", "-hello", "+x"))
    (folder / "a.txt").unlink()
    (folder / "a.txt").symlink_to("../outside.txt")
    with pytest.raises(NotWritten, match="it has changed meanwhile"):
        write_plan(made, new_token())
    assert outside.read_bytes() == b"hello\n"


@pytest.mark.parametrize("what", ["a.txt", "new.txt"])
def test_what_has_changed_since_it_was_planned_is_left_alone(folder: Path, what: str) -> None:
    patch = patch_of("*** Add File: new.txt", "+x", "*** Update File: a.txt", "-hello", "+y")
    made = plan(folder, patch)
    (folder / what).write_bytes(b"by somebody else\n")
    before = content(folder)
    with pytest.raises(NotWritten) as failed:
        write_plan(made, new_token())
    message = f"Failed to write file {folder}/{what}: it has changed meanwhile"
    assert (str(failed.value), failed.value.changed) == (message, ())
    assert content(folder) == before


def test_a_disk_that_refuses_late_leaves_what_was_done_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = patch_of("*** Add File: 1", "+1", "*** Add File: 2", "+2", "*** Delete File: a.txt")
    made = plan(folder, patch)
    real = os.rename

    def rename(source: str, target: str, **folders: int) -> None:
        if target == "2":
            raise OSError(28, "No space left on device")
        real(source, target, **folders)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(NotWritten, match="2: No space left on device") as failed:
        write_plan(made, new_token())
    assert failed.value.changed == (0,)
    assert content(folder) == {"1": b"1\n", "a.txt": b"hello\n"}


def test_a_disk_that_refuses_early_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = patch_of("*** Add File: 1", "+1", "*** Update File: a.txt", "-hello", "+2")
    made = plan(folder, patch)

    def fchmod(number: int, mode: int) -> None:
        raise OSError(28, "No space left on device")

    # The second file is that far when it fails.
    monkeypatch.setattr(os, "fchmod", fchmod)
    with pytest.raises(NotWritten, match="No space left on device") as failed:
        write_plan(made, new_token())
    assert failed.value.changed == ()
    assert content(folder) == {"a.txt": b"hello\n"}


def test_nothing_is_left_beside_the_files(folder: Path) -> None:
    apply(folder, patch_of("*** Add File: " + "n" * 200, "+1", "*** Update File: a.txt", "-hello"))
    assert not [name for name in os.listdir(folder) if name.endswith(TEMPORARY_SUFFIX)]
