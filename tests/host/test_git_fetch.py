"""Files of a repository elsewhere: which revision, how much, and nothing that asks or runs."""

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from app_server.host import git_fetch
from app_server.host.commands.local_commands import LocalCommands
from app_server.host.git_fetch import GitFetch, GitFetchFailed, GitLimits
from tests.support.host.git_peer import GitPeer, Repository, serve_git


@pytest.fixture(autouse=True)
def plain_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "user"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("NO_PROXY", "*")
    return home


@asynccontextmanager
async def peer_of(
    tmp_path: Path, limits: GitLimits | None = None
) -> AsyncIterator[tuple[GitFetch, GitPeer, Repository, Path]]:
    repository = Repository(tmp_path / "served/shop")
    (repository.folder / "a.txt").write_text("one")
    (repository.folder / "deep/er").mkdir(parents=True)
    (repository.folder / "deep/er/b.txt").write_text("b")
    (repository.folder / "other").mkdir()
    (repository.folder / "other/c.txt").write_text("c")
    repository.commit("v1")
    folder = tmp_path / "into"
    folder.mkdir()
    commands = LocalCommands()
    try:
        async with serve_git(tmp_path / "served") as peer:
            yield GitFetch(commands, limits), peer, repository, folder
    finally:
        await commands.aclose()


def files(folder: Path) -> dict[str, str]:
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_text() for path in found}


ALL = {"a.txt": "one", "deep/er/b.txt": "b", "other/c.txt": "c"}


@pytest.mark.parametrize("ref", [None, "main", "v1", "refs/tags/v1", "COMMIT"])
async def test_the_files_of_a_revision_are_fetched_without_git_s_own(
    tmp_path: Path, ref: str | None
) -> None:
    async with peer_of(tmp_path) as (git, peer, repository, folder):
        first = repository.git("rev-parse", "HEAD")
        name = first if ref == "COMMIT" else ref
        assert await git.revision_of(peer.url("shop"), name, tmp_path) == first
        assert await git.fetch(peer.url("shop"), name, (), folder) == first
        assert files(folder) == ALL


async def test_a_revision_that_has_moved_is_found_and_an_old_commit_can_still_be_fetched(
    tmp_path: Path,
) -> None:
    async with peer_of(tmp_path) as (git, peer, repository, folder):
        first = repository.git("rev-parse", "HEAD")
        (repository.folder / "a.txt").write_text("two")
        second = repository.commit()
        assert await git.revision_of(peer.url("shop"), "main", tmp_path) == second
        assert await git.revision_of(peer.url("shop"), "v1", tmp_path) == first
        assert await git.fetch(peer.url("shop"), first, (), folder) == first
        assert files(folder)["a.txt"] == "one"


async def test_a_branch_whose_name_ends_alike_is_another_one(tmp_path: Path) -> None:
    async with peer_of(tmp_path) as (git, peer, repository, _):
        first = repository.git("rev-parse", "HEAD")
        repository.git("checkout", "-q", "-b", "a/main")
        repository.commit()
        assert await git.revision_of(peer.url("shop"), "main", tmp_path) == first


async def test_only_the_folders_that_are_wanted_come(tmp_path: Path) -> None:
    async with peer_of(tmp_path) as (git, peer, _, folder):
        await git.fetch(peer.url("shop"), None, ["deep/er"], folder)
        assert files(folder) == {"a.txt": "one", "deep/er/b.txt": "b"}


@pytest.mark.parametrize(
    ("name", "ref", "reason"),
    [
        ("gone", None, "git fetch failed: fatal: repository "),
        ("shop", "nope", "git fetch failed: fatal: couldn't find remote ref nope"),
        ("shop", "0" * 40, "git fetch failed: "),
    ],
)
async def test_what_is_not_there_says_so(
    tmp_path: Path, name: str, ref: str | None, reason: str
) -> None:
    async with peer_of(tmp_path) as (git, peer, _, folder):
        with pytest.raises(GitFetchFailed) as caught:
            await git.fetch(peer.url(name), ref, (), folder)
        assert str(caught.value).startswith(reason)
        if ref == "nope":
            with pytest.raises(GitFetchFailed, match="the repository has no `nope`"):
                await git.revision_of(peer.url(name), ref, tmp_path)


@pytest.mark.parametrize(("bound", "value"), [("max_files", 2), ("max_bytes", 4)])
async def test_what_is_too_much_is_not_checked_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    async with peer_of(tmp_path) as (git, peer, _, folder):
        check = git_fetch.check_size

        def checked(listed: str, limits: GitLimits) -> None:
            # No file that Git itself writes would fit.
            check(listed, replace(limits, **{bound: value}))

        monkeypatch.setattr(git_fetch, "check_size", checked)
        with pytest.raises(GitFetchFailed, match="more than "):
            await git.fetch(peer.url("shop"), None, (), folder)
        assert not (folder / "a.txt").exists()


async def test_a_download_that_is_too_large_is_cut_off(tmp_path: Path) -> None:
    limits = GitLimits(max_bytes=64 * 1024)
    async with peer_of(tmp_path, limits) as (git, peer, repository, folder):
        (repository.folder / "noise").write_bytes(os.urandom(256 * 1024))
        repository.commit()
        with pytest.raises(GitFetchFailed, match="git fetch failed: "):
            await git.fetch(peer.url("shop"), None, (), folder)


def tree(repository: Repository, *entries: tuple[str, str, str]) -> str:
    """Write a tree as it is given, whatever its names are; gives its name."""
    raw = b"".join(
        f"{mode} {name}\0".encode() + bytes.fromhex(found) for mode, name, found in entries
    )
    command = ["hash-object", "-t", "tree", "-w", "--literally", "--stdin"]
    written = subprocess.run(
        ["git", "-C", str(repository.folder), *command], input=raw, check=True, capture_output=True
    )
    return written.stdout.decode().strip()


def commit_tree(repository: Repository, name: str) -> None:
    commit = repository.git("commit-tree", name, "-m", "hostile")
    repository.git("update-ref", "refs/heads/main", commit)


async def test_a_tree_that_explodes_is_given_up_at_once(tmp_path: Path) -> None:
    async with peer_of(tmp_path, GitLimits(fetch_s=30.0)) as (git, peer, repository, folder):
        inner = ("100644", "x", repository.git("rev-parse", "HEAD:a.txt"))
        for _ in range(12):
            name = tree(
                repository,
                *(
                    ("40000" if inner[0] == "40000" else "100644", f"{n:02}", inner[2])
                    for n in range(16)
                ),
            )
            inner = ("40000", "x", name)
        commit_tree(repository, inner[2])
        with pytest.raises(GitFetchFailed, match="more than 16384 files"):
            await git.fetch(peer.url("shop"), None, (), folder)


async def test_a_small_download_of_large_files_takes_little_memory(tmp_path: Path) -> None:
    limits = GitLimits(max_bytes=32 * 1024 * 1024, max_memory_bytes=160 * 1024 * 1024)
    async with peer_of(tmp_path, limits) as (git, peer, repository, folder):
        (repository.folder / "zeros").write_bytes(bytes(96 * 1024 * 1024))
        repository.commit()
        with pytest.raises(GitFetchFailed, match="more than 16384 files or 33554432 bytes"):
            await git.fetch(peer.url("shop"), None, (), folder)
        assert not (folder / "zeros").exists()


@pytest.mark.parametrize("name", ["..", ".git", ".GIT", "git~1", ".git\u200c", "a/../../b"])
async def test_names_that_lead_elsewhere_are_not_checked_out(tmp_path: Path, name: str) -> None:
    async with peer_of(tmp_path) as (git, peer, repository, folder):
        blob = repository.git("rev-parse", "HEAD:a.txt")
        below = tree(repository, ("100755", "post-checkout", blob))
        deep = tree(repository, ("40000", "hooks", below))
        commit_tree(repository, tree(repository, ("40000", name, deep)))
        before = files(tmp_path / "user")
        try:
            await git.fetch(peer.url("shop"), None, (), folder)
        except GitFetchFailed:
            pass
        else:
            # Where a name is harmless on this system, it is a name.
            assert files(folder) == {f"{name}/hooks/post-checkout": "one"}
            assert name not in ("..", ".git", "a/../../b")
        assert files(tmp_path / "user") == before
        assert not (tmp_path / "hooks").exists()
        assert not (tmp_path / "b").exists()


async def test_what_a_repository_wants_to_run_or_to_reach_does_not_count(tmp_path: Path) -> None:
    async with peer_of(tmp_path) as (git, peer, repository, folder):
        secret = tmp_path / "secret"
        secret.write_text("secret")
        other = Repository(tmp_path / "served/other")
        (other.folder / "x").write_text("x")
        commit = other.commit()
        ran = f"touch {tmp_path}/ran"
        (repository.folder / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
        (repository.folder / ".gitconfig").write_text(f'[filter "evil"]\n\tsmudge = {ran}\n')
        (repository.folder / ".gitmodules").write_text(
            "".join(
                f'[submodule "{name}"]\n\tpath = {name}\n\turl = {url}\n\tupdate = !{ran}\n'
                for name, url in (("sub", peer.url("other")), ("ext", f"ext::sh -c '{ran}'"))
            )
        )
        (repository.folder / "link").symlink_to(secret)
        (repository.folder / "away").symlink_to(tmp_path)
        repository.git("add", "-A")
        for name in ("sub", "ext"):
            repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},{name}")
        repository.git("commit", "-qm", "hostile")
        await git.fetch(peer.url("shop"), None, (), folder)
        assert (folder / "link").is_symlink()
        assert [*(folder / "sub").iterdir(), *(folder / "ext").iterdir()] == []
        assert not (tmp_path / "ran").exists()
        assert not any("other" in path for path in peer.requests)


async def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    commands = LocalCommands()
    git = GitFetch(commands, GitLimits(fetch_s=0.2))
    silent = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = silent.extra(anyio.abc.SocketAttribute.local_port)
    try:
        for work in (
            git.revision_of(f"http://127.0.0.1:{port}/x", None, tmp_path),
            git.fetch(f"http://127.0.0.1:{port}/x", None, (), tmp_path),
        ):
            with pytest.raises(GitFetchFailed, match=r"it took more than 0\.2 s"):
                await work
    finally:
        await silent.aclose()
        await commands.aclose()


async def test_hooks_templates_and_other_protocols_of_the_user_count_for_nothing(
    tmp_path: Path, plain_git: Path
) -> None:
    hooks = plain_git / "template/hooks"
    hooks.mkdir(parents=True)
    for folder in (hooks, plain_git / "hooks"):
        folder.mkdir(exist_ok=True)
        hook = folder / "post-checkout"
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        hook.chmod(0o700)
    (plain_git / ".gitconfig").write_text(
        f"[init]\ntemplateDir = {plain_git}/template\n[core]\nhooksPath = {plain_git}/hooks\n"
        f"[protocol]\nallow = always\n"
    )
    async with peer_of(tmp_path) as (git, peer, repository, folder):
        await git.fetch(peer.url("shop"), None, (), folder)
        assert files(folder) == ALL
        assert not (tmp_path / "ran").exists()
        for url in (f"file://{repository.folder}", f"ext::sh -c 'touch {tmp_path}/ran'"):
            with pytest.raises(GitFetchFailed, match=r"transport '(file|ext)' not allowed"):
                await git.revision_of(url, None, tmp_path)
        assert not (tmp_path / "ran").exists()


async def test_a_machine_without_git_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with peer_of(tmp_path) as (git, peer, _, folder):
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(GitFetchFailed, match="there is no `git` on this machine"):
            await git.fetch(peer.url("shop"), None, (), folder)


async def test_nobody_is_asked_for_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = tmp_path / "asks"
    asks.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\necho s3cr3t\n")
    asks.chmod(0o700)
    for name in ("GIT_ASKPASS", "SSH_ASKPASS"):
        monkeypatch.setenv(name, str(asks))
    async with peer_of(tmp_path) as (git, peer, _, folder):
        peer.wants_password = True
        with pytest.raises(GitFetchFailed, match="terminal prompts disabled"):
            await git.fetch(peer.url("shop"), None, (), folder)
        assert not (tmp_path / "asked").exists()
