"""threads: forks, reverts and deletions as clients use them."""

import json
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.models.prompt.request import INTERRUPTED
from app_server.threads.files.writers import FileLog
from app_server.threads.log.reading import ForkPoint, load_state
from app_server.threads.log.state import ThreadState
from protocol.log.rollout import (
    HistoryAppended,
    SignalMark,
    SignalRecalled,
    TurnsReverted,
)
from tests.support.harness import WAIT_S, claim, methods_of, serve
from tests.support.model import Gate, says
from tests.support.threads.histories import turn, whole
from tests.support.threads.stores import CLOCK, created, open_store, raw


async def ids_of(client: Any, thread_id: str) -> list[str]:
    page = await client.call("thread/turns/list", {"threadId": thread_id, "sortDirection": "asc"})
    return [one["id"] for one in page["data"]]


@claim("threads:fork")
async def test_a_fork_has_the_history_of_its_source_and_a_life_of_its_own(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        source = await client.start_thread(developerInstructions="be kind", model="m1")
        turns = [(await client.turn(source, f"q{number}"))["id"] for number in range(3)]
        await client.call("thread/name/set", {"threadId": source, "name": "the source"})
        await client.wait_for("thread/name/updated")
        result = await client.call(
            "thread/fork", {"threadId": source, "approvalPolicy": "never", "threadSource": "user"}
        )
        fork = result["thread"]
        assert (fork["forkedFromId"], fork["sessionId"]) == (source, fork["id"])
        shown = fork["name"], fork["preview"], fork["threadSource"]
        assert shown == ("the source", "q0", "user")
        assert (fork["status"], result["model"]) == ({"type": "idle"}, "m1")
        assert result["approvalPolicy"] == "never"
        read = await client.call("thread/read", {"threadId": source, "includeTurns": True})
        assert fork["turns"] == read["thread"]["turns"]
        following = await client.until("thread/started")
        assert methods_of(following) == ["thread/tokenUsage/updated", "thread/started"]
        assert following[0]["params"]["threadId"] == fork["id"]
        assert following[0]["params"]["turnId"] == turns[-1]
        assert following[1]["params"]["thread"] == fork | {"turns": []}
        started = await other.wait_for("thread/started", lambda p: p["thread"]["id"] == fork["id"])
        assert started["params"] == following[1]["params"]
        await client.turn(fork["id"], "on its own")
        assert served.model.inputs() == [
            ("developer", "be kind"),
            *(
                (role, text)
                for number in range(3)
                for role, text in (("user", f"q{number}"), ("assistant", "ok"))
            ),
            ("user", "on its own"),
        ]
        assert (await ids_of(client, fork["id"]))[:3] == await ids_of(client, source) == turns
        listed = (await client.call("thread/list", {}))["data"]
        assert [one["id"] for one in listed] == [fork["id"], source]
    async with serve(tmp_path) as served, served.client() as client:
        again = await client.call("thread/read", {"threadId": fork["id"]})
        assert again["thread"]["forkedFromId"] == source
        # Of a stored thread, at a turn.
        for point, expected in (
            ({"lastTurnId": turns[1]}, turns[:2]),
            ({"beforeTurnId": turns[1]}, turns[:1]),
            ({"beforeTurnId": turns[0]}, []),
        ):
            result = await client.call(
                "thread/fork", {"threadId": source, "excludeTurns": True, **point}
            )
            assert result["thread"]["turns"] == []
            assert await ids_of(client, result["thread"]["id"]) == expected
        loaded = (await client.call("thread/loaded/list", {}))["data"]
        assert source not in loaded


def repository(folder: Path, branch: str) -> dict[str, Any]:
    """Make a repository, and say what clients are shown of it."""
    folder.mkdir()
    run_git(folder, "init", "-q", "-b", branch)
    run_git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    url = f"https://example.com/{branch}.git"
    run_git(folder, "remote", "add", "origin", url)
    sha = run_git(folder, "rev-parse", "HEAD").strip()
    return {"sha": sha, "branch": branch, "originUrl": url}


def run_git(folder: Path, *words: str) -> str:
    names = "-c", "user.name=t", "-c", "user.email=t@example.com"
    done = subprocess.run(
        ["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout


@claim("threads:fork-named")
@pytest.mark.parametrize("is_loaded", [True, False])
@pytest.mark.parametrize("ephemeral", [True, False])
async def test_a_fork_has_the_name_of_its_source_and_the_repository_of_its_folder(
    tmp_path: Path, is_loaded: bool, ephemeral: bool
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    git_here, git_there = repository(here, "one"), repository(there, "two")
    async with serve(tmp_path / "home") as served, served.client() as client:
        source = await client.start_thread(cwd=str(here))
        await client.turn(source, "hello")
        await client.call("thread/name/set", {"threadId": source, "name": "first name"})
        if is_loaded:
            # What was chosen for the source is about the source.
            git = {"branch": "chosen"}
            await client.call("thread/metadata/update", {"threadId": source, "gitInfo": git})
        else:
            await client.call("thread/unsubscribe", {"threadId": source, "unload": True})
        forks = []
        for folder, git in ((here, git_here), (there, git_there)):
            asked = {"threadId": source, "cwd": str(folder), "ephemeral": ephemeral}
            fork = (await client.call("thread/fork", asked))["thread"]
            assert (fork["name"], fork["gitInfo"]) == ("first name", git)
            started = await client.wait_for("thread/started")
            assert started["params"]["thread"] == fork | {"turns": []}
            forks.append(fork)
        if ephemeral:
            return
        await client.call("thread/name/set", {"threadId": forks[0]["id"], "name": "another"})
    async with serve(tmp_path / "home") as served, served.client() as client:
        named = {}
        for thread in (await client.call("thread/list", {}))["data"]:
            named[thread["id"]] = thread["name"]
            read = await client.call("thread/read", {"threadId": thread["id"]})
            assert read["thread"]["name"] == thread["name"]
        assert named == {
            source: "first name",
            forks[0]["id"]: "another",
            forks[1]["id"]: ("first name"),
        }


@claim("threads:fork-running")
async def test_a_turn_that_runs_is_copied_as_if_it_had_been_interrupted(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        source = await client.start_thread()
        first = await client.turn(source, "before")
        gate = Gate()
        served.model.scripts.append([*says("thinking")[:3], gate])
        begun = await client.call(
            "turn/start", {"threadId": source, "input": [{"type": "text", "text": "long"}]}
        )
        running = begun["turn"]["id"]
        await gate.wait_until_reached()
        fork = (await client.call("thread/fork", {"threadId": source}))["thread"]
        assert [(one["id"], one["status"]) for one in fork["turns"]] == [
            (first["id"], "completed"),
            (running, "interrupted"),
        ]
        assert [item["type"] for item in fork["turns"][1]["items"]] == ["userMessage"]
        before = await client.call("thread/fork", {"threadId": source, "beforeTurnId": running})
        assert [one["id"] for one in before["thread"]["turns"]] == [first["id"]]
        refused = await client.refusal("thread/fork", {"threadId": source, "lastTurnId": running})
        assert (refused.code, refused.message) == (
            -32600,
            f"lastTurnId '{running}' identifies an in-progress turn",
        )
        gate.opened.set()
        await client.turn(fork["id"], "go on")
        sent = [text for _, text in served.model.inputs()]
        assert (sent[:3], sent[-1]) == (["before", "ok", "long"], "go on")
        assert sent[3] == INTERRUPTED


@claim("threads:fork-ephemeral")
async def test_a_fork_can_live_in_memory_alone(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        source = await client.start_thread()
        await client.turn(source, "hello")
        logs = sorted(tmp_path.rglob("*.jsonl"))
        result = await client.call(
            "thread/fork", {"threadId": source, "ephemeral": True, "excludeTurns": True}
        )
        fork = result["thread"]
        assert (fork["ephemeral"], fork["path"], fork["preview"]) == (True, None, "hello")
        await client.turn(fork["id"], "and now?")
        assert [text for _, text in served.model.inputs()] == ["hello", "ok", "and now?"]
        assert sorted(tmp_path.rglob("*.jsonl")) == logs
        for method, params, text in (
            ("thread/fork", {}, f"no rollout found for thread id {fork['id']}"),
            (
                "thread/revert",
                {"beforeTurnId": "x"},
                "ephemeral threads do not support thread/revert",
            ),
            (
                "thread/delete",
                {},
                f"thread is not persisted and cannot be deleted: {fork['id']}",
            ),
        ):
            refused = await client.refusal(method, {"threadId": fork["id"], **params})
            assert (refused.code, refused.message) == (-32600, text)


async def test_a_fork_whose_places_cannot_be_held_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")

        async def refuse(sandbox_policy: Any, *, anew: bool = True) -> None:
            if anew:
                raise OSError(28, "No space left on device")

        monkeypatch.setattr(served.services.commands, "pin_roots", refuse)
        await client.refusal("thread/fork", {"threadId": thread_id, "cwd": str(tmp_path)})
        loaded = await client.call("thread/loaded/list", {})
    assert loaded["data"] == [thread_id]


@claim("threads:fork-refusals")
async def test_what_cannot_be_forked_reverted_or_deleted_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        unknown = CLOCK.new_id()
        both = {"beforeTurnId": "a", "lastTurnId": "a"}
        for method, params, code, text in (
            ("thread/fork", both, -32600, "`beforeTurnId` cannot be combined with `lastTurnId`"),
            ("thread/fork", {"lastTurnId": "nope"}, -32600, "turn not found: nope"),
            ("thread/fork", {"beforeTurnId": "nope"}, -32600, "turn not found: nope"),
            (
                "thread/fork",
                {"attachToSource": True},
                -32602,
                "Invalid params: `attachToSource` is not supported by this server",
            ),
            ("thread/revert", {"beforeTurnId": "nope"}, -32600, "turn not found: nope"),
            ("thread/fork", {"threadId": "zz"}, -32600, "invalid thread id: zz"),
            ("thread/delete", {"threadId": "zz"}, -32600, "invalid thread id: zz"),
            (
                "thread/fork",
                {"threadId": unknown},
                -32600,
                f"no rollout found for thread id {unknown}",
            ),
            (
                "thread/delete",
                {"threadId": unknown},
                -32600,
                f"no rollout found for thread id {unknown}",
            ),
            (
                "thread/revert",
                {"threadId": unknown, "beforeTurnId": "x"},
                -32600,
                f"thread not found: {unknown}",
            ),
        ):
            refused = await client.refusal(method, {"threadId": thread_id, **params})
            assert (refused.code, refused.message) == (code, text)
        await client.call("thread/archive", {"threadId": thread_id})
        refused = await client.refusal("thread/fork", {"threadId": thread_id})
        assert refused.data == {"code": "threadArchived", "threadId": thread_id}


# Reverts, as clients use them.


@claim("threads:revert")
async def test_a_revert_drops_a_turn_and_all_after_it(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        turns = [(await client.turn(thread_id, f"q{number}"))["id"] for number in range(3)]
        log = Path((await client.call("thread/read", here))["thread"]["path"])
        before = log.read_bytes()
        result = await client.call("thread/revert", {**here, "beforeTurnId": turns[1]})
        assert (result["thread"]["id"], result["thread"]["turns"]) == (thread_id, [])
        assert result["thread"]["status"] == {"type": "idle"}
        assert (await other.wait_for("thread/reverted"))["params"] == here
        assert (await client.wait_for("thread/reverted"))["params"] == here
        page = await client.call(
            "thread/turns/list", {**here, "cursor": result["turnsBackwardsCursor"]}
        )
        assert [one["id"] for one in page["data"]] == turns[:1]
        items = await client.call(
            "thread/items/list",
            {**here, "cursor": result["itemsBackwardsCursor"], "sortDirection": "desc"},
        )
        assert [entry["item"]["type"] for entry in items["data"]] == ["agentMessage", "userMessage"]
        assert log.read_bytes().startswith(before)
        await client.turn(thread_id, "instead")
        assert [text for _, text in served.model.inputs()] == ["q0", "ok", "instead"]
        shown = (await client.call("thread/read", {**here, "includeTurns": True}))["thread"]
    async with serve(tmp_path) as served, served.client() as client:
        stored = (await client.call("thread/read", {**here, "includeTurns": True}))["thread"]
        assert stored["turns"] == shown["turns"]
        await client.call("thread/resume", here)
        result = await client.call("thread/revert", {**here, "beforeTurnId": turns[0]})
        assert result["turnsBackwardsCursor"] is result["itemsBackwardsCursor"] is None
        await client.turn(thread_id, "from the beginning")
        assert [text for _, text in served.model.inputs()] == ["from the beginning"]


@claim("threads:revert-running")
async def test_a_revert_ends_the_running_turn_first(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        await client.turn(thread_id, "first")
        gate = Gate()
        served.model.scripts.append([gate])
        begun = await client.call(
            "turn/start", {**here, "input": [{"type": "text", "text": "second"}]}
        )
        await gate.wait_until_reached()
        params = {**here, "beforeTurnId": begun["turn"]["id"]}
        request = await client.request("thread/revert", params)
        with anyio.fail_after(WAIT_S):
            messages = await client.until("thread/reverted")
        gate.opened.set()
        ended = [one for one in messages if one.get("method") == "turn/completed"]
        assert [one["params"]["turn"]["status"] for one in ended] == ["interrupted"]
        order = methods_of(messages)
        assert order.index("turn/completed") < order.index("answer")
        answer = next(one for one in messages if one.get("id") == request)
        assert "result" in answer, json.dumps(answer)
        await client.turn(thread_id, "third")
        assert [text for _, text in served.model.inputs()] == ["first", "ok", "third"]


# Deletions, as clients use them.


@claim("threads:delete")
@pytest.mark.parametrize("how", ["loaded", "running", "stored", "unused"])
async def test_a_deleted_thread_leaves_nothing(tmp_path: Path, how: str) -> None:
    async with serve(tmp_path) as served, served.client() as client, served.client() as other:
        thread_id = await client.start_thread()
        here = {"threadId": thread_id}
        gate = Gate()
        if how != "unused":
            await client.turn(thread_id, "hello")
        if how == "running":
            served.model.scripts.append([gate])
            await client.call("turn/start", {**here, "input": [{"type": "text", "text": "long"}]})
            await gate.wait_until_reached()
        if how == "stored":
            await client.call("thread/archive", here)
            await client.wait_for("thread/archived")
            await other.wait_for("thread/archived")
        assert await client.call("thread/delete", here) == {}
        messages = await client.until("thread/deleted")
        gate.opened.set()
        assert messages[-1]["params"] == here
        told_of = [
            one["params"].get("turn", one["params"]).get("status")
            for one in messages
            if one["method"] in ("turn/completed", "thread/status/changed")
        ]
        gone = {"type": "notLoaded"}
        assert told_of[-3:] == {
            "running": [{"type": "idle"}, "interrupted", gone],
            "stored": [],
        }.get(how, [gone])
        assert (await other.wait_for("thread/deleted"))["params"] == here
        for method, text in (
            ("thread/read", f"thread not loaded: {thread_id}"),
            ("thread/resume", f"no rollout found for thread id {thread_id}"),
            ("thread/turns/list", f"thread not loaded: {thread_id}"),
            ("thread/delete", f"no rollout found for thread id {thread_id}"),
        ):
            assert (await client.refusal(method, here)).message == text
        assert (await client.call("thread/list", {"archived": how == "stored"}))["data"] == []
        assert not [path for path in tmp_path.rglob("*") if thread_id in path.name]
        assert (await client.call("thread/loaded/list", {}))["data"] == []


# Signals in threads that are forked and reverted.


def signal_in(number: int, *, woke: bool = False) -> HistoryAppended:
    mark = SignalMark(source="s", id=f"{number}", item_id=f"i{number}", woke=woke)
    return HistoryAppended(at_ms=1, items=[raw(f"signal {number}", "developer")], signals=[mark])


def stages(state: ThreadState) -> dict[str, str]:
    return {signal_id: place.stage for (_, signal_id), place in state.signals}


class StageFollower:
    """Follows a log and keeps the stages of its signals after each append."""

    def __init__(self) -> None:
        self.stages: list[dict[str, str]] = []

    def log_grew(self, state: ThreadState) -> None:
        self.stages.append(stages(state))


@claim("history:revert-signals")
async def test_signals_that_a_revert_drops_are_taken_back_and_stay_so(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        thread = await store.create(created())
        follower = StageFollower()
        thread.followers = [follower]
        answer = HistoryAppended(at_ms=2, items=[raw("seen", "assistant")])
        first, second = turn(1), turn(2)
        await thread.append(*first[:1], signal_in(1), answer, *first[1:])
        await thread.append(signal_in(2), *second[:1], signal_in(3, woke=True), *second[1:])
        assert stages(thread.state) == {"1": "answered", "2": "visible", "3": "visible"}
        await thread.append(SignalRecalled(at_ms=3, source="s", id="2"))
        await thread.revert(TurnsReverted(at_ms=4, before_turn_id="t2"))
        expected = {"1": "answered", "2": "recalled", "3": "recalled"}
        assert follower.stages[-1] == stages(thread.state) == expected
        assert thread.state.history == [
            raw("signal 1", "developer"),
            raw("seen", "assistant"),
            raw("question 1"),
        ]
        path = Path(store.shown_path(thread.id))
        assert stages(load_state(FileLog(path))) == stages(whole(path)) == expected
        assert stages(load_state(FileLog(path), with_history=False)) == expected
        fork = created()
        copy = await store.fork(thread.id, ForkPoint(), fork)
        assert copy.state.history == thread.state.history
        await store.unload(copy)
        await store.unload(thread)
