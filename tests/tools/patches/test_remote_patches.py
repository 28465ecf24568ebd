"""patch: files of another environment."""

import threading
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from app_server.host.exec import protocol as exec_protocol
from app_server.host.exec.server import server as exec_server
from app_server.patch.plan import Plan
from app_server.patch.write import write_plan
from app_server.runtime.machine import machine_name
from tests.support.harness import WAIT_S, claim, serve, write_config
from tests.support.host.elsewhere import add, entry
from tests.support.host.exec_conversations import listening
from tests.support.host.exec_peer import exec_here
from tests.support.model import ScriptedModel, says
from tests.support.processes import running
from tests.support.turn_tools.patch_items import (
    ADD,
    ADDED,
    ADDED_DIFF,
    EDIT,
    END,
    ONE_TWO,
    READ_ONLY,
    SUCCESS,
    sent,
    update,
    without_time,
)
from tests.support.turn_tools.patches import (
    QUESTION,
    answer_of,
    custom_call,
    patch_of,
    workspace,
    workspace_there,
)
from tests.support.turn_tools.turn_commands import Desk, command
from tests.support.turns import start_turn

EDITED = [update("@@ -1 +1 @@\n-hello\n+goodbye\n")]


@claim("environment:patches")
async def test_a_patch_changes_files_there_and_is_shown_as_one_here(tmp_path: Path) -> None:
    # A repository of this machine is none of the other one's.
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    async with workspace_there(tmp_path) as work:
        assert await work.apply(ADD) == [
            *sent(ADDED),
            ("turn/diff/updated", ADDED_DIFF),
            END,
        ]
        assert without_time(work.output()) == f"{SUCCESS}A new.txt\n"
        assert (work.folder / "new.txt").read_text() == "one\ntwo\n"
        [noted] = [record for record in work.log() if record["type"] == "filesChanging"]
        assert noted.pop("machine", None) == machine_name()
        assert noted == {
            **{member: noted[member] for member in ("v", "atMs", "turnId")},
            "type": "filesChanging",
            "itemId": "call_1",
            "environmentId": "there",
            "files": [{"path": str(work.folder / "new.txt"), "before": None, "after": ONE_TWO}],
        }
        move = patch_of("*** Update File: new.txt", "*** Move to: sub/b.txt", "-one", "+1")
        gone = patch_of("*** Delete File: a.txt")
        shown = await work.apply(move, gone)
        kinds = [item[1][1][0]["kind"]["type"] for item in shown if item[0] == "item/completed"]
        assert kinds == ["update", "delete"]
        assert [str(path.relative_to(work.folder)) for path in work.folder.rglob("*")] == [
            "sub",
            "sub/b.txt",
        ]
        assert (work.folder / "sub/b.txt").read_text() == "1\ntwo\n"


@claim("environment:patches")
@pytest.mark.parametrize(
    ("patch", "output"),
    [
        (
            patch_of("*** Add File: b.txt", "+x", "*** Update File: a.txt", "-none", "+x"),
            "apply_patch verification failed: Failed to find expected lines in WS/a.txt:\nnone",
        ),
        (
            patch_of("*** Update File: none.txt", "-a"),
            "apply_patch verification failed: Failed to read file to update WS/none.txt: "
            "No such file or directory",
        ),
        (
            "no patch",
            "apply_patch verification failed: invalid patch: The first line of the patch "
            "must be '*** Begin Patch'",
        ),
        (patch_of(), "patch rejected: empty patch"),
        (
            patch_of("*** Environment ID: box", "*** Delete File: a.txt"),
            "apply_patch environment selection is unavailable for this turn",
        ),
    ],
)
async def test_what_does_not_fit_changes_nothing_there(
    tmp_path: Path, patch: str, output: str
) -> None:
    async with workspace_there(tmp_path) as work:
        assert await work.apply(patch) == [END]
        assert work.output() == output
        assert {path.name for path in work.folder.iterdir()} == {"a.txt"}
        assert (work.folder / "a.txt").read_text() == "hello\n"


@claim("environment:patches")
async def test_the_user_is_asked_about_what_may_not_be_written_there(tmp_path: Path) -> None:
    async with workspace_there(tmp_path, sandbox_policy=READ_ONLY) as work:
        await work.begin(EDIT)
        question = await work.answer("acceptForSession")
        assert question["reason"] == "in environment `there`"
        shown = await work.rest()
        assert shown[-3][1] == ("completed", EDITED)
        back = patch_of("*** Update File: a.txt", "@@", "-goodbye", "+hello")
        await work.apply(back)
        assert (work.folder / "a.txt").read_text() == "hello\n"
        await work.begin(patch_of("*** Add File: b.txt", "+x"))
        await work.answer("decline")
        assert (await work.rest())[-2][1][0] == "declined"
        assert work.output() == "patch rejected by user"
        assert {path.name for path in work.folder.iterdir()} == {"a.txt"}


@claim("environment:patches")
async def test_policy_refuses_there_as_here(tmp_path: Path) -> None:
    async with workspace_there(tmp_path, approvalPolicy="never") as work:
        (work.folder / "out").symlink_to(tmp_path)
        for path in ("../out.txt", "out/x.txt", ".git/hooks/x"):
            assert await work.apply(patch_of(f"*** Add File: {path}", "+x")) == [END]
            assert "rejected by user approval settings" in work.output()
        assert {path.name for path in work.folder.iterdir()} == {"a.txt", "out"}
        assert not (tmp_path / "x.txt").exists()


@claim("environment:patches")
async def test_a_file_that_changed_while_the_user_was_asked_is_left(tmp_path: Path) -> None:
    async with workspace_there(tmp_path, approvalPolicy="untrusted") as work:
        both = patch_of("*** Add File: b.txt", "+x", *EDIT.splitlines()[1:-1])
        await work.begin(both)
        question = await work.client.wait_for(QUESTION)
        (work.folder / "a.txt").write_text("else\n")
        await work.client.send({"id": question["id"], "result": {"decision": "accept"}})
        assert [item[1][0] for item in (await work.rest())[:-1]] == ["failed"]
        assert without_time(work.output()) == (
            "Exit code: 1\nWall time: 0 seconds\nOutput:\n"
            "Failed to write file WS/a.txt: it has changed meanwhile\n"
        )
        assert {path.name for path in work.folder.iterdir()} == {"a.txt"}


@claim("environment:patches")
async def test_a_command_that_is_a_patch_changes_files_there(tmp_path: Path) -> None:
    async with workspace_there(tmp_path) as work:
        (work.folder / "sub").mkdir()
        at = Desk(work.served, work.client, work.thread_id, work.folder)
        line = f"cd sub && apply_patch <<'EOF'\n{ADD}\nEOF\n"
        [output] = await at.turn(command(line))
        assert output.startswith("Wall time: ")
        assert output.endswith("A new.txt\n")
        assert (work.folder / "sub/new.txt").read_text() == "one\ntwo\n"


@claim("environment:patches")
async def test_a_patch_names_one_of_several_environments(tmp_path: Path) -> None:
    far = tmp_path / "far"
    far.mkdir()
    async with listening() as url, workspace(tmp_path) as work:
        await add(work.client, url)
        chosen = [entry(work.folder, "local"), entry(far)]
        await work.client.call(
            "thread/settings/update", {"threadId": work.thread_id, "environments": chosen}
        )
        named = patch_of("*** Environment ID: there", *ADD.splitlines()[1:-1])
        nowhere = patch_of("*** Environment ID: box", *ADD.splitlines()[1:-1])
        shown = await work.apply(named, EDIT, nowhere)
        assert work.output() == (
            "apply_patch failed: unknown environment `box`; this thread has: `local`, `there`"
        )
        assert (far / "new.txt").read_text() == "one\ntwo\n"
        assert (work.folder / "a.txt").read_text() == "goodbye\n"
        diffs = [shown_as for method, shown_as in shown if method == "turn/diff/updated"]
        assert [line for line in diffs[-1].splitlines() if line.startswith("diff ")] == [
            "diff --git a/local/a.txt b/local/a.txt",
            "diff --git a/there/new.txt b/there/new.txt",
        ]
        [tool] = [
            tool
            for tool in work.served.model.requests[-1]["tools"]
            if tool["name"] == "apply_patch"
        ]
        assert "environment?" in tool["format"]["definition"]
        assert tool["description"].endswith("of `local`; the names are: `local`, `there`.")


@claim("environment:patches")
async def test_what_was_allowed_for_the_session_is_allowed_on_that_machine_alone(
    tmp_path: Path,
) -> None:
    async with listening() as url, workspace(tmp_path, approvalPolicy="untrusted") as work:
        await add(work.client, url)
        # Both machines have a folder of that path.
        chosen = [entry(work.folder), entry(work.folder, "local")]
        await work.client.call(
            "thread/settings/update", {"threadId": work.thread_id, "environments": chosen}
        )
        await work.begin(EDIT)
        assert (await work.answer("acceptForSession"))["reason"] == "in environment `there`"
        await work.rest()
        back = ("*** Update File: a.txt", "@@", "-goodbye", "+hello")
        assert (await work.apply(patch_of(*back)))[-1] == END
        assert (work.folder / "a.txt").read_text() == "hello\n"
        await work.begin(patch_of("*** Environment ID: local", *EDIT.splitlines()[1:-1]))
        assert (await work.answer("decline"))["reason"] is None
        assert (await work.rest())[-2][1][0] == "declined"


@claim("environment:patches")
async def test_a_patch_of_an_environment_that_is_away_fails(tmp_path: Path) -> None:
    async with workspace_there(tmp_path) as work:
        async with listening() as url:
            pass
        await add(work.client, url)
        assert await work.apply(ADD) == [END]
        assert work.output().startswith("apply_patch failed: environment `there`: ")


@claim("environment:patches")
async def test_a_connection_that_is_lost_while_the_user_is_asked_changes_nothing(
    tmp_path: Path,
) -> None:
    async with workspace_there(tmp_path, approvalPolicy="untrusted") as work:
        await work.begin(EDIT)
        question = await work.client.wait_for(QUESTION)
        async with listening() as url:
            # Adding it anew ends the connection to the old one.
            await add(work.client, url)
            await work.client.send({"id": question["id"], "result": {"decision": "accept"}})
            assert [item[1][0] for item in (await work.rest())[:-1]] == ["failed"]
        assert "the connection to the exec server was lost" in work.output()
        assert (work.folder / "a.txt").read_text() == "hello\n"


@claim("environment:patches")
@pytest.mark.process
async def test_the_next_server_ends_the_item_of_a_patch_that_was_being_written_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, written = threading.Event(), threading.Event(), threading.Event()

    def slowly(plan: Plan, token: str) -> None:
        begun.set()
        assert go_on.wait(WAIT_S)
        write_plan(plan, token)
        written.set()

    monkeypatch.setattr(exec_server, "write_plan", slowly)
    folder, home = tmp_path / "work", tmp_path / "home"
    folder.mkdir()
    (folder / "a.txt").write_text("hello\n")
    async with ScriptedModel().serve() as model, listening() as url:
        write_config(home, model.url)
        async with running(home) as server, server.client() as client:
            await add(client, url)
            thread_id = await client.start_thread(
                environments=[entry(folder)], model="gpt-5.5", sandbox="workspace-write"
            )
            model.scripts.append(answer_of(custom_call(EDIT)))
            await start_turn(client, thread_id, "go")
            assert await anyio.to_thread.run_sync(begun.wait, WAIT_S)
            server.process.kill()
            assert await server.ended() == -9
        go_on.set()
        assert await anyio.to_thread.run_sync(written.wait, WAIT_S)
        assert (folder / "a.txt").read_text() == "goodbye\n"
        # What is at the same place of this machine says nothing.
        (folder / "a.txt").write_text("else\n")
        async with serve(home, model=model) as served, served.client() as client:
            found = await client.call("thread/resume", {"threadId": thread_id})
            (turn,) = found["thread"]["turns"]
            (item,) = [one for one in turn["items"] if one["type"] == "fileChange"]
            changed = {"path": str(folder / "a.txt"), "kind": {"type": "update", "move_path": None}}
            assert item == {
                **{member: item[member] for member in ("startedAtMs", "completedAtMs")},
                "type": "fileChange",
                "id": "call_1",
                "changes": [{**changed, "diff": ""}],
                "status": "failed",
            }
            assert turn["status"] == "interrupted"


@claim("environment:patches")
async def test_what_is_too_large_for_a_connection_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with workspace_there(tmp_path) as work:
        with monkeypatch.context() as patched:
            patched.setattr(exec_server, "MAX_PLAN_BYTES", 300)
            assert await work.apply(ADD) == [END]
        assert "too large for another environment" in work.output()
        monkeypatch.setattr("app_server.host.exec.client.remote_patch.MAX_PATCH_BYTES", 50)
        assert await work.apply(ADD) == [END]
        assert work.output() == (
            "apply_patch verification failed: The patch has more than 50 bytes"
        )
        assert exec_protocol.MAX_PATCH_BYTES == 16 * 1_048_576


@claim("environment:patches")
async def test_in_plan_mode_nothing_is_written_there(tmp_path: Path) -> None:
    async with workspace_there(tmp_path) as work:
        mode: Any = {"mode": "plan", "settings": {"model": "gpt-5.5"}}
        work.served.model.scripts += [answer_of(custom_call(ADD)), says("done")]
        await start_turn(work.client, work.thread_id, "plan", collaborationMode=mode)
        await work.rest()
        assert work.output().startswith("patch rejected: in plan mode nothing is written")


@claim("environment:patches")
async def test_an_interrupt_while_the_user_is_asked_lets_the_patch_go(tmp_path: Path) -> None:
    far = tmp_path / "far"
    far.mkdir()
    async with exec_here() as (url, server), workspace(tmp_path) as work:
        await add(work.client, url)
        await work.client.call(
            "thread/settings/update",
            {
                "threadId": work.thread_id,
                "environments": [entry(far)],
                "approvalPolicy": "untrusted",
            },
        )
        turn_id = await work.begin(ADD)
        await work.client.wait_for(QUESTION)
        assert server.running == 1
        await work.client.call("turn/interrupt", {"threadId": work.thread_id, "turnId": turn_id})
        assert (await work.rest())[-1] == ("turn/completed", "interrupted")
        assert (server.running, list(far.iterdir())) == (0, [])
