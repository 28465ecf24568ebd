"""Where a thread's repository stands."""

import threading
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from app_server.handlers.threads import start
from app_server.handlers.threads.start import GitInfoReader
from app_server.host.folder_reads import FolderReads
from app_server.host.repository import RepositoryState, read_repository
from protocol.threads.thread import GitInfo
from tests.support.harness import (
    WAIT_S,
    claim,
    serve,
)
from tests.support.threads.metadata import seen

SHA = "5a0c40b27df6fea54a855392b2c3ed57e426f5f3"


def make_repository(folder: Path, head: str = "ref: refs/heads/main") -> Path:
    git = folder / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text(head + "\n")
    (git / "refs" / "heads" / "main").write_text(SHA + "\n")
    (git / "config").write_text(
        '[core]\n\turl = no\n[remote "other"]\n\turl = no\n[remote "origin"]\n'
        "\tfetch = +refs/heads/*:refs/remotes/origin/*\n\turl = https://u:secret@example.com/r.git\n"
    )
    return git


@claim("metadata:git")
async def test_a_new_thread_knows_where_its_repository_stands(tmp_path: Path) -> None:
    make_repository(tmp_path / "repo")
    folder = tmp_path / "repo" / "deep" / "down"
    folder.mkdir(parents=True)
    expected = {"sha": SHA, "branch": "main", "originUrl": "https://example.com/r.git"}
    async with serve(tmp_path / "home") as served, served.client() as client:
        started = await client.call("thread/start", {"cwd": str(folder)})
        assert started["thread"]["gitInfo"] == expected
        await client.turn(started["thread"]["id"], "hi")
        assert await seen(client, started["thread"]["id"], "gitInfo") == [expected] * 3
        plain = await client.call("thread/start", {"cwd": str(tmp_path)})
        assert plain["thread"]["gitInfo"] is None


def test_repositories_are_read_from_their_files(tmp_path: Path) -> None:
    git = make_repository(tmp_path)
    origin = "https://example.com/r.git"
    assert read_repository(tmp_path) == RepositoryState(SHA, "main", origin)
    (git / "refs" / "heads" / "main").unlink()
    assert read_repository(tmp_path) == RepositoryState(None, "main", origin)
    other = "b" * 40
    (git / "packed-refs").write_text(
        f"# pack-refs\n{SHA} refs/heads/mainly\n{other} refs/heads/main\n"
    )
    assert read_repository(tmp_path) == RepositoryState(other, "main", origin)
    (git / "HEAD").write_text(SHA)
    (git / "config").write_text('[remote "origin"]\n\turl = git@example.com:r.git\n')
    assert read_repository(tmp_path) == RepositoryState(SHA, None, "git@example.com:r.git")
    (git / "HEAD").write_text("ref: refs/heads/../../../secret")
    (git / "config").unlink()
    assert read_repository(tmp_path) == RepositoryState(None, "../../../secret", None)
    (git / "HEAD").write_text("nonsense")
    assert read_repository(tmp_path) is None


def test_a_worktree_is_read_through_its_common_folder(tmp_path: Path) -> None:
    git = make_repository(tmp_path / "main")
    own = git / "worktrees" / "side"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "commondir").write_text("../..\n")
    side = tmp_path / "side"
    side.mkdir()
    (side / ".git").write_text(f"gitdir: {own}\n")
    assert read_repository(side) == RepositoryState(SHA, "main", "https://example.com/r.git")
    (side / ".git").write_text("gitdir: /nowhere\n")
    assert read_repository(side) is None


async def test_a_disk_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_repository(tmp_path)
    expected = GitInfo(sha=SHA, branch="main", origin_url="https://example.com/r.git")
    released = threading.Event()

    def read(folder: Path) -> RepositoryState | None:
        if folder == Path("/hangs"):
            assert released.wait(WAIT_S)
        return read_repository(folder)

    monkeypatch.setattr(start, "read_repository", read)
    reads = FolderReads(read_s=WAIT_S, max_hanging=1)
    reader = GitInfoReader(reads)
    assert await reader.read(str(tmp_path)) == expected
    reads.read_s = 0.05
    while not reads.hanging:
        assert await reader.read("/hangs") is None
    reads.read_s = WAIT_S
    # While one hangs nothing is read: no threads pile up behind a disk.
    assert await reader.read(str(tmp_path)) is None
    released.set()
    with anyio.fail_after(WAIT_S):
        while await reader.read(str(tmp_path)) is None:
            await anyio.lowlevel.checkpoint()
    assert await reader.read(str(tmp_path)) == expected
