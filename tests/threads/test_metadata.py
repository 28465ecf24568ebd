"""What is stored about a thread besides what was said in it, and the settings of its turns."""

import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from app_server.handlers.threads import git_info
from app_server.handlers.threads.git_info import GitInfoReader
from app_server.host import folder_reads
from app_server.host.repository import RepositoryState, read_repository
from protocol.threads.thread import GitInfo
from tests.support.harness import (
    REQUIREMENTS,
    WAIT_S,
    Gate,
    Refusal,
    WireClient,
    calls,
    claim,
    says,
    serve,
)

NOBODY = "01990000-0000-7000-8000-000000000000"
SHA = "5a0c40b27df6fea54a855392b2c3ed57e426f5f3"
USER_INPUT = [{"type": "text", "text": "hi"}]


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


# Git.


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


async def seen(client: WireClient, thread_id: str, member: str) -> list[Any]:
    """Return a member of a thread as it is read, listed and resumed."""
    listed = (await client.call("thread/list", {}))["data"]
    return [
        (await client.call("thread/read", {"threadId": thread_id}))["thread"][member],
        *(thread[member] for thread in listed if thread["id"] == thread_id),
        (await client.call("thread/resume", {"threadId": thread_id}))["thread"][member],
    ]


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

    monkeypatch.setattr(git_info, "read_repository", read)
    monkeypatch.setattr(folder_reads, "MAX_HANGING", 1)
    reader = GitInfoReader()
    assert await reader.read(str(tmp_path)) == expected
    # While one hangs nothing is read: no threads pile up behind a disk.
    while await reader.read(str(tmp_path)) is not None:
        with monkeypatch.context() as hurry:
            hurry.setattr(folder_reads, "READ_S", 0.05)
            assert await reader.read("/hangs") is None
    released.set()
    with anyio.fail_after(WAIT_S):
        while await reader.read(str(tmp_path)) is None:
            await anyio.lowlevel.checkpoint()
    assert await reader.read(str(tmp_path)) == expected


# thread/metadata/update.


@claim("metadata:update")
async def test_what_is_given_changes_and_what_is_left_out_stays(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(daybreakEnabled=True)
        await client.turn(thread_id, "hi")
        before = (await client.call("thread/read", {"threadId": thread_id}))["thread"]

        async def update(**params: Any) -> Any:
            params = {"threadId": thread_id, **params}
            return (await client.call("thread/metadata/update", params))["thread"]

        changed = await update(gitInfo={"branch": " b ", "sha": "1"})
        assert changed == before | {"gitInfo": {"sha": "1", "branch": "b", "originUrl": None}}
        changed = await update(gitInfo={"branch": None, "originUrl": "u"}, daybreakEnabled=False)
        git = {"sha": "1", "branch": None, "originUrl": "u"}
        assert changed == before | {"gitInfo": git, "daybreakEnabled": False}
        assert await seen(client, thread_id, "gitInfo") == [git] * 3
        changed = await update(gitInfo={"sha": None, "originUrl": None})
        assert changed == before | {"daybreakEnabled": False}
        assert await seen(client, thread_id, "daybreakEnabled") == [False] * 3


@claim("metadata:refused")
async def test_metadata_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        ephemeral = await client.start_thread(ephemeral=True)
        git = {"branch": "b"}
        for params, message in (
            ({}, "thread metadata update must include at least one field"),
            ({"gitInfo": None}, "thread metadata update must include at least one field"),
            ({"gitInfo": {}}, "gitInfo must include at least one field"),
            ({"gitInfo": {"originUrl": " "}}, "gitInfo.originUrl must not be empty"),
            ({"gitInfo": {"sha": "x" * 4097}}, "gitInfo.sha must have at most 4096 characters"),
            ({"projectId": "nope"}, "project not found: nope"),
            ({"threadId": "x", "gitInfo": git}, "invalid thread id: x"),
            (
                {"threadId": NOBODY, "gitInfo": git},
                f"no rollout found for thread id {NOBODY}",
            ),
            (
                {"threadId": ephemeral, "gitInfo": git},
                f"ephemeral thread does not support metadata updates: {ephemeral}",
            ),
        ):
            error = await client.refusal(
                "thread/metadata/update", {"threadId": thread_id, **params}
            )
            assert (error.code, error.message) == (-32600, message)
        for start, message in (
            (
                {"ephemeral": True, "daybreakEnabled": False},
                "daybreakEnabled is not supported for ephemeral threads",
            ),
            ({"projectId": ""}, "projectId must not be empty"),
        ):
            error = await client.refusal("thread/start", start)
            assert (error.code, error.message) == (-32600, message)


@claim("metadata:stored")
async def test_threads_that_are_not_loaded_are_changed_in_their_logs(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
    async with serve(tmp_path) as served, served.client() as client:
        before = (await client.call("thread/read", {"threadId": thread_id}))["thread"]
        update = {"threadId": thread_id, "gitInfo": {"sha": "1"}, "daybreakEnabled": True}
        changed = (await client.call("thread/metadata/update", update))["thread"]
        git = {"sha": "1", "branch": None, "originUrl": None}
        assert changed == before | {"gitInfo": git, "daybreakEnabled": True}
        assert changed["status"] == {"type": "notLoaded"}
        assert (await client.call("thread/list", {}))["data"] == [changed]


async def test_changes_and_loads_of_one_thread_wait_for_each_other(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
    async with serve(tmp_path) as served, served.client() as one, served.client() as two:
        here = {"threadId": thread_id}
        for number in range(5):
            asked = [
                await one.request(
                    "thread/metadata/update", {**here, "gitInfo": {"sha": str(number)}}
                ),
                await one.request("thread/memoryMode/set", {**here, "mode": "disabled"}),
            ]
            resumed = await two.request("thread/resume", here)
            for answer in [await one.answer(request) for request in asked]:
                assert "error" not in answer
            assert "error" not in await two.answer(resumed)
            await two.call("thread/unsubscribe", here)
            await two.call("thread/archive", here)
            await two.call("thread/unarchive", here)
        state = await served.services.store.read(thread_id)
        assert state.metadata.git_info is not None
        assert state.metadata.git_info.sha == "4"


@claim("metadata:memory")
async def test_the_memory_mode_is_kept_and_there_are_no_memories(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        mode = {"threadId": thread_id, "mode": "disabled"}
        for _ in range(2):
            assert await client.call("thread/memoryMode/set", mode) == {}
        log = Path(served.services.store.shown_path(thread_id)).read_text()
        assert log.count('"type":"memoryModeChanged","mode":"disabled"') == 1
        state = await served.services.store.read(thread_id)
        assert state.metadata.memory_mode == "disabled"
        memory = await client.call("thread/memory/read", {"threadId": thread_id})
        assert memory == {"summary": None}
        error = await client.refusal("thread/memory/read", {"threadId": NOBODY})
        assert error.message == f"thread not found: {NOBODY}"
        error = await client.refusal("thread/memoryMode/set", mode | {"threadId": NOBODY})
        assert error.message == f"no rollout found for thread id {NOBODY}"


# What is unread.


async def read_state(client: WireClient, thread_id: str) -> Any:
    """Return a thread's read state, which lists show as well."""
    read = (await client.call("thread/read", {"threadId": thread_id}))["readState"]
    listed = await client.call("thread/list", {})
    assert listed["readStates"][thread_id] == read
    return read


@claim("unread:turns")
async def test_what_a_turn_said_is_unread_from_its_end_on(tmp_path: Path) -> None:
    async with (
        serve(tmp_path) as served,
        served.client() as client,
        served.client(experimental=False) as stable,
    ):
        thread_id = await client.start_thread()
        await stable.call("thread/resume", {"threadId": thread_id})
        unread = await client.call("thread/read", {"threadId": thread_id})
        assert unread["readState"] is None
        stopped = Gate()
        served.model.scripts.append([stopped])
        turn = await client.call("turn/start", {"threadId": thread_id, "input": USER_INPUT})
        await stopped.wait_until_reached()
        await client.call("turn/interrupt", {"threadId": thread_id, "turnId": turn["turn"]["id"]})
        told = await client.until("turn/completed")
        assert "thread/readState/changed" not in [message.get("method") for message in told]
        initial = {"firstUnread": None, "revision": f"initial:{thread_id}"}
        assert await read_state(client, thread_id) == initial
        served.model.scripts.append(Refusal(400, {"error": {"message": "no"}}))
        failed = await client.turn(thread_id, "fails")
        state = await read_state(client, thread_id)
        assert state["firstUnread"] == {"type": "turn", "turnId": failed["id"]}
        await client.call("turn/start", {"threadId": thread_id, "input": USER_INPUT})
        told = await client.until("turn/completed")
        marks = [
            each["params"] for each in told if each.get("method") == "thread/readState/changed"
        ]
        later = await read_state(client, thread_id)
        assert marks == [{"threadId": thread_id, "readState": later}]
        assert later["firstUnread"] == state["firstUnread"]
        assert later["revision"] != state["revision"]
        # Clients without the opt-in hear of turns, and not of what is unread.
        heard = [await stable.until("turn/completed") for _ in range(3)]
        assert "thread/readState/changed" not in [
            message.get("method") for messages in heard for message in messages
        ]
        shown = await stable.call("thread/read", {"threadId": thread_id})
        assert list(shown) == ["thread"]


@claim("unread:update")
async def test_a_read_state_changes_only_from_the_one_that_the_user_saw(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
        seen_state = await read_state(client, thread_id)

        async def update(kind: str, revision: str) -> Any:
            params = {
                "threadId": thread_id,
                "operation": {"type": kind},
                "expectedRevision": revision,
            }
            return await client.call("thread/readState/update", params)

        unread = (await update("unread", seen_state["revision"]))["readState"]
        assert unread["firstUnread"] == {"type": "threadStart"}
        told = await client.wait_for("thread/readState/changed")
        assert told["params"] == {"threadId": thread_id, "readState": unread}
        await client.turn(thread_id, "more")
        still = await read_state(client, thread_id)
        assert still["firstUnread"] == {"type": "threadStart"}
        params = {
            "threadId": thread_id,
            "operation": {"type": "read"},
            "expectedRevision": unread["revision"],
        }
        error = await client.refusal("thread/readState/update", params)
        assert (error.code, error.message) == (-32600, "read state changed")
        assert error.data == {
            "code": "readStateConflict",
            "reason": "readStateConflict",
            "readState": still,
        }
        read = (await update("read", still["revision"]))["readState"]
        assert read["firstUnread"] is None
        assert await read_state(client, thread_id) == read
        ephemeral = await client.start_thread(ephemeral=True)
        error = await client.refusal("thread/readState/update", params | {"threadId": ephemeral})
        assert error.message == "thread read state unavailable"
        # Only subscribers hear of it: the other client is told of the thread's end first.
        await client.call("thread/archive", {"threadId": thread_id})
        heard = [message["method"] for message in await other.until("thread/archived")]
        assert "thread/readState/changed" not in heard


# Settings.


async def change(client: WireClient, thread_id: str, **params: Any) -> None:
    params = {"threadId": thread_id, **params}
    assert await client.call("thread/settings/update", params) == {}


@claim("settings:thread")
async def test_settings_of_a_thread_hold_from_its_next_turn_on(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        gate = Gate()
        call = calls({"name": "nothing", "namespace": None})
        served.model.scripts.extend([[gate, *call], says("done")])
        await client.call("turn/start", {"threadId": thread_id, "input": USER_INPUT})
        await gate.wait_until_reached()
        await change(
            client,
            thread_id,
            model="other",
            effort="high",
            summary="detailed",
            serviceTier="flex",
            personality="friendly",
            cwd="/tmp/x/..",
            approvalPolicy="never",
            approvalsReviewer="auto_review",
            permissions=":workspace",
            disabledPluginIds=["p"],
        )
        told = (await client.wait_for("thread/settings/updated"))["params"]
        settings = told["threadSettings"]
        assert told["threadId"] == thread_id
        assert settings == {
            "disabledPluginIds": ["p"],
            "cwd": "/tmp",
            "environments": [
                {"environmentId": "local", "cwd": "/tmp", "runtimeWorkspaceRoots": ["/tmp"]}
            ],
            "approvalPolicy": "never",
            "approvalsReviewer": "auto_review",
            "sandboxPolicy": {
                "type": "workspaceWrite",
                "writableRoots": [],
                "networkAccess": False,
                "excludeTmpdirEnvVar": False,
                "excludeSlashTmp": False,
            },
            "activePermissionProfile": {"id": ":workspace", "extends": None},
            "model": "other",
            "modelProvider": "scripted",
            "serviceTier": "flex",
            "effort": "high",
            "summary": "detailed",
            "collaborationMode": {
                "mode": "default",
                "settings": {
                    "model": "other",
                    "reasoning_effort": "high",
                    "developer_instructions": None,
                },
            },
            "multiAgentMode": "explicitRequestOnly",
            "personality": "friendly",
        }
        gate.opened.set()
        await client.wait_for("turn/completed")
        await client.turn(thread_id, "again")
        asked = [request["model"] for request in served.model.requests]
        assert asked == ["scripted", "scripted", "other"]
        await change(client, thread_id, serviceTier=None, effort=None)
        await change(client, thread_id, model="other")
        mode = {"mode": "default", "settings": {"model": "m", "reasoning_effort": None}}
        await change(client, thread_id, collaborationMode=mode)
        changes = [
            (await client.wait_for("thread/settings/updated"))["params"]["threadSettings"]
            for _ in range(2)
        ]
        assert changes[0] == settings | {"serviceTier": None}
        assert (changes[1]["model"], changes[1]["effort"]) == ("m", None)
    async with serve(tmp_path) as served, served.client() as client:
        resumed = await client.call("thread/resume", {"threadId": thread_id})
        assert (resumed["model"], resumed["cwd"], resumed["disabledPluginIds"]) == (
            "m",
            "/tmp",
            ["p"],
        )


HERE = {"environmentId": "local", "cwd": "/"}


@claim("settings:refused")
async def test_settings_that_are_not_offered_or_not_allowed_are_refused(tmp_path: Path) -> None:
    (tmp_path / REQUIREMENTS).write_text('allowed_approval_policies = ["on-request"]\n')
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        read_only = {"type": "readOnly"}
        blank = {"mode": "plan", "settings": {"model": " ", "reasoning_effort": None}}
        elsewhere = {"environmentId": "nope", "cwd": "/"}
        for params, message in (
            ({"threadId": NOBODY, "model": "m"}, f"thread not found: {NOBODY}"),
            ({"model": " "}, "model must not be empty"),
            (
                {"permissions": ":workspace", "sandboxPolicy": read_only},
                "`permissions` cannot be combined with `sandboxPolicy`",
            ),
            (
                {"permissions": ":nope"},
                "failed to load configuration: default_permissions refers to unknown built-in "
                "profile `:nope`",
            ),
            ({"collaborationMode": blank}, "model must not be empty"),
            ({"environments": [elsewhere]}, "unknown turn environment id `nope`"),
            ({"environments": [HERE, HERE]}, "duplicate turn environment id `local`"),
            (
                {"disabledPluginIds": ["x"] * 1001},
                "disabledPluginIds accepts at most 1000 entries",
            ),
        ):
            error = await client.refusal(
                "thread/settings/update", {"threadId": thread_id, **params}
            )
            assert error.message == message
        error = await client.refusal(
            "thread/settings/update", {"threadId": thread_id, "approvalPolicy": "never"}
        )
        assert error.data["code"] == "settingNotAllowed"


@claim("settings:turn")
async def test_settings_of_a_turn_hold_from_its_next_request_to_its_end(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(config={"model_reasoning_effort": "low"})
        gate = Gate()
        call = calls({"name": "nothing", "namespace": None})
        served.model.scripts.extend([[gate, *call], says("done")])
        turn = await client.call("turn/start", {"threadId": thread_id, "input": USER_INPUT})
        turn_id = turn["turn"]["id"]
        await gate.wait_until_reached()
        here = {"threadId": thread_id, "turnId": turn_id}

        async def update(**params: Any) -> Any:
            return (await client.call("turn/settings/update", {**here, **params}))["status"]

        assert await update(turnId="other", model="m") == "targetUnavailable"
        assert await update(model="m", effort="high", serviceTier="flex") == "applied"
        assert await update(summary="concise") == "applied"
        gate.opened.set()
        await client.wait_for("turn/completed")
        assert await update(model="late") == "targetUnavailable"
        await client.turn(thread_id, "again")
        asked = [
            (request["model"], request.get("reasoning"), request.get("service_tier"))
            for request in served.model.requests
        ]
        assert asked == [
            ("scripted", {"effort": "low"}, None),
            ("m", {"effort": "high", "summary": "concise"}, "flex"),
            ("scripted", {"effort": "low"}, None),
        ]
        error = await client.refusal("turn/settings/update", {**here, "cwd": "/"})
        assert error.code == -32602
        error = await client.refusal("turn/settings/update", {**here, "threadId": NOBODY})
        assert error.message == f"thread not found: {NOBODY}"
