"""gitDiffToRemote, getConversationSummary, getAuthStatus: methods from before the present ones."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.accounts.account import server
from tests.support.harness import claim, serve

pytestmark = pytest.mark.process

TOO_LONG = Path("/" + "x" * 300)
"""No file system has such a name."""


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a clone with a commit of its own, a change and an untracked file."""
    work, remote = tmp_path / "work", tmp_path / "remote"
    git(tmp_path, "init", "-q", "--bare", str(remote))
    git(tmp_path, "init", "-q", str(work))
    (work / "f").write_text("a\n")
    git(work, "add", "f")
    git(work, "commit", "-qm", "one")
    git(work, "remote", "add", "origin", str(remote))
    git(work, "push", "-q", "origin", "HEAD:main")
    git(work, "fetch", "-q")
    (work / "g").write_text("two\n")
    git(work, "add", "g")
    git(work, "commit", "-qm", "two")
    (work / "f").write_text("a\nb\n")
    (work / "folder").mkdir()
    (work / "folder" / "new file").write_text("new\n")
    (work / ".gitignore").write_text("ignored\n")
    (work / "ignored").touch()
    return work


DIFF = """\
diff --git a/f b/f
--- a/f
+++ b/f
@@ -1 +1,2 @@
 a
+b
diff --git a/g b/g
new file mode 100644
--- /dev/null
+++ b/g
@@ -0,0 +1 @@
+two
diff --git a/.gitignore b/.gitignore
new file mode 100644
--- /dev/null
+++ b/.gitignore
@@ -0,0 +1 @@
+ignored
diff --git a/folder/new file b/folder/new file
new file mode 100644
--- /dev/null
+++ b/folder/new file\t
@@ -0,0 +1 @@
+new
"""


@claim("legacy:git-diff")
async def test_a_checkout_is_compared_with_what_a_remote_has(
    tmp_path: Path, checkout: Path
) -> None:
    trap = tmp_path / "trap"
    git(checkout, "worktree", "add", "-q", str(tmp_path / "other"), "HEAD~1")
    pushed = git(checkout, "rev-parse", "HEAD~1")
    git(checkout, "config", "filter.trap.clean", f"touch {trap}; cat")
    (checkout / ".git" / "info" / "attributes").write_text("* filter=trap\n")
    git(checkout, "config", "core.fsmonitor", f"touch {trap}")
    async with serve(tmp_path / "home") as served, served.client() as client:
        for cwd in (checkout, checkout / "folder"):
            answer = await client.call("gitDiffToRemote", {"cwd": str(cwd)})
            assert answer["sha"] == pushed
            assert re.sub(r"index \w+\.\.\w+( \d+)?\n", "", answer["diff"]) == DIFF
        other = await client.call("gitDiffToRemote", {"cwd": str(tmp_path / "other")})
        assert other == {"sha": pushed, "diff": ""}
        assert not trap.exists()
        git(tmp_path, "init", "-q", str(tmp_path / "alone"))
        for nowhere in (tmp_path / "alone", tmp_path / "home", tmp_path / "gone", TOO_LONG):
            error = await client.refusal("gitDiffToRemote", {"cwd": str(nowhere)})
            assert (error.code, error.message, error.data["code"]) == (
                -32600,
                f'failed to compute git diff to remote for cwd: "{nowhere}"',
                "noGitDiff",
            )


@claim("legacy:summary")
async def test_a_thread_is_summarized_by_its_id_and_its_file(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        started = (await client.call("thread/start", {"cwd": str(tmp_path)}))["thread"]
        await client.turn(started["id"], "hello there")
        expected = {
            "conversationId": started["id"],
            "path": started["path"],
            "preview": "hello there",
            "modelProvider": "scripted",
            "cwd": str(tmp_path),
            "cliVersion": started["cliVersion"],
            "source": started["source"],
            "gitInfo": None,
        }
        by_id: dict[str, Any] = {"conversationId": started["id"]}
        for params in (by_id, {"rolloutPath": started["path"]}):
            summary = (await client.call("getConversationSummary", params))["summary"]
            times = summary.pop("timestamp"), summary.pop("updatedAt")
            assert summary == expected
            assert times[0] < times[1]
            for time in times:
                assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
        unknown = "00000000-0000-7000-8000-000000000000"
        for params, message in (
            ({"conversationId": unknown}, f"no rollout found for conversation id {unknown}"),
            ({"conversationId": "none"}, "invalid thread id: none"),
            (
                {"rolloutPath": "/etc/passwd"},
                "failed to resolve rollout path `/etc/passwd`: file does not exist",
            ),
        ):
            error = await client.refusal("getConversationSummary", params)
            assert (error.code, error.message) == (-32600, message)
    async with serve(tmp_path) as served, served.client() as client:
        summary = (await client.call("getConversationSummary", by_id))["summary"]
        assert summary["preview"] == "hello there"


@claim("legacy:auth-status")
async def test_the_auth_status_is_how_the_server_signs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path / "other") as served, served.client() as client:
        nobody = {"authMethod": None, "authToken": None, "requiresOpenaiAuth": False}
        assert await client.call("getAuthStatus", {"includeToken": True}) == nobody
    async with server(tmp_path, monkeypatch) as (_, _, client):
        required = {"authMethod": None, "authToken": None, "requiresOpenaiAuth": True}
        assert await client.call("getAuthStatus", {}) == required
        await client.call("account/login/start", {"type": "apiKey", "apiKey": "sk-test"})
        signed_in = {**required, "authMethod": "apikey"}
        assert await client.call("getAuthStatus", {}) == signed_in
        with_token = {"includeToken": True, "refreshToken": True}
        assert await client.call("getAuthStatus", with_token) == {
            **signed_in,
            "authToken": "sk-test",
        }
