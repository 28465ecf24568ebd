"""patch: what a model's patch does, what clients see of it, and who is asked."""

import os
import threading
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from app_server.patch.plan import Plan
from app_server.patch.unified import blob_name
from app_server.patch.write import write_plan
from tests.support.harness import WAIT_S, calls, claim
from tests.support.turn_tools.patch_items import (
    ADD,
    ADDED,
    ADDED_DIFF,
    EDIT,
    END,
    HELLO,
    NOTHING,
    ONE_TWO,
    READ_ONLY,
    SUCCESS,
    sent,
    update,
    without_time,
)
from tests.support.turn_tools.patches import (
    INSIDE_ONLY,
    QUESTION,
    answer_of,
    custom_call,
    function_call,
    patch_of,
    workspace,
)
from tests.support.turns import start_turn


@claim("patch:add", "patch:turn-diff")
async def test_a_file_is_added(tmp_path: Path) -> None:
    async with workspace(tmp_path) as work:
        assert await work.apply(ADD) == [
            *sent(ADDED),
            ("turn/diff/updated", ADDED_DIFF),
            END,
        ]
        assert without_time(work.output()) == f"{SUCCESS}A new.txt\n"
        assert (work.folder / "new.txt").read_text() == "one\ntwo\n"


@claim("patch:changes")
@pytest.mark.parametrize(
    ("patch", "changes", "diff", "done"),
    [
        (
            EDIT,
            [update("@@ -1 +1 @@\n-hello\n+goodbye\n")],
            f"diff --git a/a.txt b/a.txt\nindex {HELLO}..{blob_name(b'goodbye' + bytes([10]))}\n"
            "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-hello\n+goodbye\n",
            "M a.txt\n",
        ),
        (
            patch_of("*** Delete File: a.txt"),
            [{"path": "WS/a.txt", "kind": {"type": "delete"}, "diff": "hello\n"}],
            f"diff --git a/a.txt b/a.txt\ndeleted file mode 100644\nindex {HELLO}..{NOTHING}\n"
            "--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-hello\n",
            "D a.txt\n",
        ),
        (
            patch_of("*** Update File: a.txt", "*** Move to: sub/b.txt", "-hello", "+one", "+two"),
            [
                update(
                    "@@ -1 +1,2 @@\n-hello\n+one\n+two\n\n\nMoved to: WS/sub/b.txt", "WS/sub/b.txt"
                )
            ],
            f"diff --git a/a.txt b/sub/b.txt\nindex {HELLO}..{ONE_TWO}\n"
            "--- a/a.txt\n+++ b/sub/b.txt\n@@ -1 +1,2 @@\n-hello\n+one\n+two\n",
            "M sub/b.txt\n",
        ),
        (
            patch_of("*** Update File: a.txt", "*** Move to: b.txt"),
            [update("\n\nMoved to: WS/b.txt", "WS/b.txt")],
            "diff --git a/a.txt b/b.txt\nsimilarity index 100%\nrename from a.txt\n"
            "rename to b.txt\n",
            "M b.txt\n",
        ),
        (
            patch_of("*** Add File: a.txt", "+one", "+two"),
            [{"path": "WS/a.txt", "kind": {"type": "add"}, "diff": "one\ntwo\n"}],
            f"diff --git a/a.txt b/a.txt\nindex {HELLO}..{ONE_TWO}\n"
            "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n-hello\n+one\n+two\n",
            "A a.txt\n",
        ),
    ],
    ids=["edit", "delete", "move and edit", "move", "add over"],
)
async def test_every_kind_of_change_is_shown(
    tmp_path: Path, patch: str, changes: list[Any], diff: str, done: str
) -> None:
    async with workspace(tmp_path) as work:
        shown = await work.apply(patch)
        assert shown == [*sent(changes), ("turn/diff/updated", diff), END]
        assert without_time(work.output()) == SUCCESS + done


@claim("patch:order")
async def test_clients_get_changes_by_path_and_the_model_by_kind(tmp_path: Path) -> None:
    async with workspace(tmp_path) as work:
        (work.folder / "d.txt").write_text("del\n")
        patch = patch_of(
            "*** Add File: z.txt", "+1", "*** Delete File: d.txt", *EDIT.split("\n")[1:-1]
        )
        shown = await work.apply(patch)
        paths = [change["path"] for change in shown[1][1][1]]
        assert paths == ["WS/a.txt", "WS/d.txt", "WS/z.txt"]
        assert without_time(work.output()) == f"{SUCCESS}A z.txt\nM a.txt\nD d.txt\n"


@claim("patch:turn-diff")
async def test_the_diff_of_a_turn_is_sent_once_per_change(tmp_path: Path) -> None:
    back = patch_of("*** Update File: a.txt", "-goodbye", "+hello")
    same = patch_of("*** Update File: a.txt", "-hello", "+hello")
    async with workspace(tmp_path) as work:
        shown = await work.apply(EDIT, ADD, back, same, patch_of("*** Delete File: new.txt"))
        diffs = [text for method, text in shown if method == "turn/diff/updated"]
        edited = diffs[0]
        assert edited.startswith("diff --git a/a.txt b/a.txt\n")
        assert diffs == [edited, edited + ADDED_DIFF, ADDED_DIFF, ""]
        # The next turn begins anew.
        shown = await work.apply(EDIT)
        assert [text for method, text in shown if method == "turn/diff/updated"] == [edited]


@claim("patch:turn-diff-root")
async def test_paths_of_the_diff_begin_at_the_repository(tmp_path: Path) -> None:
    async with workspace(tmp_path) as work:
        git = work.folder.parent / ".git"
        git.mkdir()
        # Empty, it is what a sandbox lays something over.
        assert ("turn/diff/updated", ADDED_DIFF) in await work.apply(ADD)
        (git / "HEAD").write_text("ref: refs/heads/main\n")
        (work.folder / "new.txt").unlink()
        shown = await work.apply(ADD)
        assert ("turn/diff/updated", ADDED_DIFF.replace("new.txt", "work/new.txt")) in shown


@claim("patch:refused")
@pytest.mark.parametrize(
    ("text", "output"),
    [
        (
            patch_of("*** Add File: q.txt", "+1", "*** Update File: a.txt", "@@", "-no", "-such"),
            "apply_patch verification failed: Failed to find expected lines in WS/a.txt:\nno\nsuch",
        ),
        (
            patch_of("*** Update File: none.txt", "-a"),
            "apply_patch verification failed: Failed to read file to update WS/none.txt: "
            "No such file or directory",
        ),
        (
            "no patch",
            "apply_patch verification failed: invalid patch: The first line of the patch must be "
            "'*** Begin Patch'",
        ),
        (patch_of(), "patch rejected: empty patch"),
        (
            patch_of("*** Environment ID: box", "*** Delete File: a.txt"),
            "apply_patch environment selection is unavailable for this turn",
        ),
        (None, "apply_patch takes the text of a patch"),
    ],
)
async def test_a_patch_that_does_not_fit_is_no_item(tmp_path: Path, text: Any, output: str) -> None:
    async with workspace(tmp_path) as work:
        work.served.model.scripts.append(answer_of(custom_call(text)))
        await start_turn(work.client, work.thread_id, "go")
        assert await work.rest() == [END]
        assert work.output() == output
        assert {path.name for path in work.folder.iterdir()} == {"a.txt"}
        assert (work.folder / "a.txt").read_text() == "hello\n"


FULL = {"type": "dangerFullAccess"}


def granular(*, sandbox: bool) -> Any:
    kinds = ("rules", "skill_approval", "request_permissions", "mcp_elicitations")
    return {"granular": {"sandbox_approval": sandbox, **dict.fromkeys(kinds, True)}}


@claim("patch:policy")
@pytest.mark.parametrize(
    ("policy", "sandbox", "path", "outcome"),
    [
        ("on-request", INSIDE_ONLY, "new.txt", "runs"),
        ("never", INSIDE_ONLY, "new.txt", "runs"),
        ("untrusted", INSIDE_ONLY, "new.txt", "asks"),
        ("untrusted", FULL, "new.txt", "asks"),
        ("on-request", FULL, "../out.txt", "runs"),
        ("never", FULL, "../out.txt", "runs"),
        ("on-request", INSIDE_ONLY, "../out.txt", "asks"),
        ("on-request", INSIDE_ONLY, ".git/hooks/x", "asks"),
        ("on-request", INSIDE_ONLY, ".codex/config.toml", "asks"),
        ("on-request", READ_ONLY, "new.txt", "asks"),
        (granular(sandbox=True), READ_ONLY, "new.txt", "asks"),
        (granular(sandbox=False), READ_ONLY, "new.txt", "writing is blocked by read-only sandbox"),
        ("never", READ_ONLY, "new.txt", "writing is blocked by read-only sandbox"),
        ("never", INSIDE_ONLY, "../out.txt", "writing outside of the project"),
    ],
)
async def test_policy_says_who_is_asked(
    tmp_path: Path, policy: Any, sandbox: Any, path: str, outcome: str
) -> None:
    async with workspace(tmp_path, approvalPolicy=policy, sandbox_policy=sandbox) as work:
        await work.begin(patch_of(f"*** Add File: {path}", "+x"))
        if outcome == "asks":
            question = await work.answer("accept")
            assert (question["reason"], question["grantRoot"]) == (None, None)
        shown = await work.rest()
        if outcome in ("asks", "runs"):
            assert (work.folder / path).read_text() == "x\n"
            assert shown[-3][1][0] == "completed"
        else:
            assert shown == [END]
            expected = f"patch rejected: {outcome}; rejected by user approval settings"
            assert work.output() == expected
            assert not (work.folder / path).exists()


@claim("patch:asked")
async def test_the_item_comes_before_the_question(tmp_path: Path) -> None:
    async with workspace(tmp_path, sandbox_policy=READ_ONLY) as work:
        turn_id = await work.begin(ADD)
        before = await work.client.until(QUESTION)
        assert [m["method"] for m in before[-3:]] == [
            "item/started",
            "thread/status/changed",
            QUESTION,
        ]
        question = before[-1]
        params = question["params"]
        assert params.pop("startedAtMs") > 0
        assert params == {
            "threadId": work.thread_id,
            "turnId": turn_id,
            "itemId": "call_1",
            "reason": None,
            "grantRoot": None,
        }
        await work.client.send({"id": question["id"], "result": {"decision": "accept"}})
        after = await work.client.until("turn/completed")
        assert [m["method"] for m in after[:4]] == [
            "serverRequest/resolved",
            "thread/status/changed",
            "item/completed",
            "turn/diff/updated",
        ]


@claim("patch:declined", "patch:cancelled")
@pytest.mark.parametrize(("decision", "end"), [("decline", "completed"), ("cancel", "interrupted")])
async def test_who_says_no_keeps_the_files(tmp_path: Path, decision: str, end: str) -> None:
    async with workspace(tmp_path, sandbox_policy=READ_ONLY) as work:
        await work.begin(ADD)
        await work.answer(decision)
        assert await work.rest() == [
            ("item/completed", ("declined", ADDED)),
            ("turn/completed", end),
        ]
        if decision == "decline":
            assert work.output() == "patch rejected by user"
        assert not (work.folder / "new.txt").exists()
        # The next turn works.
        assert (await work.apply())[-1] == END


@claim("patch:session")
async def test_files_that_were_accepted_for_the_session_are_not_asked_about_again(
    tmp_path: Path,
) -> None:
    async with workspace(tmp_path, sandbox_policy=READ_ONLY) as work:
        again = patch_of("*** Update File: new.txt", "-one", "+1")
        await work.begin(ADD, again, patch_of("*** Add File: other.txt", "+x"))
        await work.answer("acceptForSession")
        await work.answer("decline")
        await work.rest()
        assert work.output() == "patch rejected by user"
        assert (work.folder / "new.txt").read_text() == "1\ntwo\n"
        await work.apply(patch_of("*** Delete File: new.txt"))
        assert not (work.folder / "new.txt").exists()


@claim("patch:links")
async def test_a_link_that_leads_outside_is_asked_about_by_where_it_leads(tmp_path: Path) -> None:
    async with workspace(tmp_path) as work:
        outside = work.folder.parent / "outside"
        outside.mkdir()
        (work.folder / "ln").symlink_to("../outside")
        await work.begin(patch_of("*** Add File: ln/new.txt", "+x"))
        question = await work.answer("accept")
        assert question["reason"] == (
            f"{work.folder}/ln/new.txt leads to {outside}/new.txt, outside of the folders that may "
            "be written"
        )
        await work.rest()
        assert (outside / "new.txt").read_text() == "x\n"


@claim("patch:links")
async def test_a_link_that_is_made_while_it_is_asked_is_not_followed(tmp_path: Path) -> None:
    async with workspace(tmp_path, approvalPolicy="untrusted") as work:
        (work.folder / "sub").mkdir()
        outside = work.folder.parent / "outside"
        outside.mkdir()
        await work.begin(patch_of("*** Add File: sub/new.txt", "+x"))
        question = await work.client.wait_for(QUESTION)
        (work.folder / "sub").rmdir()
        (work.folder / "sub").symlink_to("../outside")
        await work.client.send({"id": question["id"], "result": {"decision": "accept"}})
        shown = await work.rest()
        assert shown[0][1][0] == "failed"
        assert shown[1:] == [END]
        assert work.output().startswith("Exit code: 1\nWall time: ")
        assert "Failed to write file WS/sub/new.txt: " in work.output()
        assert os.listdir(outside) == []


@claim("patch:locked")
@pytest.mark.parametrize("policy", ["on-request", "never"])
async def test_a_file_that_is_write_protected_is_asked_about(tmp_path: Path, policy: str) -> None:
    async with workspace(tmp_path, approvalPolicy=policy) as work:
        (work.folder / "a.txt").chmod(0o444)
        await work.begin(EDIT)
        if policy == "on-request":
            question = await work.answer("decline")
            assert question["reason"] == f"{work.folder}/a.txt is write-protected"
        await work.rest()
        if policy == "never":
            assert work.output() == (
                "patch rejected: WS/a.txt is write-protected; rejected by user approval settings"
            )
        assert (work.folder / "a.txt").read_text() == "hello\n"


@claim("patch:stale")
async def test_a_file_that_changes_while_it_is_asked_is_left_alone(tmp_path: Path) -> None:
    async with workspace(tmp_path, approvalPolicy="untrusted") as work:
        await work.begin(EDIT)
        question = await work.client.wait_for(QUESTION)
        (work.folder / "a.txt").write_text("hello\nand more\n")
        await work.client.send({"id": question["id"], "result": {"decision": "accept"}})
        shown = await work.rest()
        assert shown[0][1][0] == "failed"
        assert "Failed to write file WS/a.txt: it has changed meanwhile" in work.output()
        assert (work.folder / "a.txt").read_text() == "hello\nand more\n"


@claim("patch:secrets")
async def test_a_secret_is_neither_read_nor_asked_about(tmp_path: Path) -> None:
    async with workspace(tmp_path) as work:
        secret = work.served.home / "auth.json"
        secret.write_text("token\n")
        for lines in (
            [f"*** Update File: {secret}", "-token", "+x"],
            [f"*** Delete File: {secret}"],
        ):
            assert await work.apply(patch_of(*lines)) == [END]
            assert work.output().endswith(": not allowed by the sandbox")
        assert secret.read_text() == "token\n"


@claim("patch:declared")
async def test_models_are_offered_what_they_take(tmp_path: Path) -> None:
    async with workspace(tmp_path) as work:
        await work.apply()
        (tool,) = [t for t in work.served.model.requests[-1]["tools"] if t["name"] == "apply_patch"]
        assert (tool["type"], tool["format"]["syntax"]) == ("custom", "lark")
        assert "description" in tool
        await work.client.call(
            "thread/settings/update", {"threadId": work.thread_id, "model": "nobody-knows"}
        )
        work.served.model.scripts.append(answer_of(function_call(ADD)))
        await start_turn(work.client, work.thread_id, "go")
        assert ("turn/diff/updated", ADDED_DIFF) in await work.rest()
        assert without_time(work.output()) == f"{SUCCESS}A new.txt\n"
        (tool,) = [t for t in work.served.model.requests[-1]["tools"] if t["name"] == "apply_patch"]
        assert (tool["type"], tool["parameters"]["required"]) == ("function", ["input"])


@claim("patch:declared")
async def test_wrong_arguments_of_the_function_are_named(tmp_path: Path) -> None:
    async with workspace(tmp_path) as work:
        work.served.model.scripts.append(
            calls({"name": "apply_patch", "arguments": {"patch": ADD}})
        )
        await start_turn(work.client, work.thread_id, "go")
        assert await work.rest() == [END]
        assert work.output().startswith("failed to parse function arguments: input: ")


@claim("patch:log")
async def test_the_log_says_what_was_changed_and_who_let_it(tmp_path: Path) -> None:
    async with workspace(tmp_path, approvalPolicy="untrusted") as work:
        turn_id = await work.begin(ADD)
        await work.answer("accept")
        await work.rest()
        place = str(work.folder / "new.txt")
        kinds = ("approvalDecided", "filesChanging")
        records = [record for record in work.log() if record["type"] in kinds]
        times = [(record.pop("atMs"), record.pop("v")) for record in records]
        assert all(at > 0 for at, _ in times)
        temporary = records[1]["files"][0].pop("temporary")
        assert (temporary[:9], temporary[-17:]) == (".new.txt.", ".app-server-patch")
        assert records == [
            {
                "type": "approvalDecided",
                "turnId": turn_id,
                "itemId": "call_1",
                "action": "fileChange",
                "subject": place,
                "decision": "accept",
                "by": "user",
                "client": "test",
            },
            {
                "type": "filesChanging",
                "turnId": turn_id,
                "itemId": "call_1",
                "files": [{"path": place, "before": None, "after": ONE_TWO}],
            },
        ]
        items = [r["item"] for r in work.log() if r["type"] == "itemCompleted"]
        assert [i["status"] for i in items if i["type"] == "fileChange"] == ["completed"]


@claim("patch:interrupt")
async def test_an_interrupt_withdraws_the_question(tmp_path: Path) -> None:
    async with workspace(tmp_path, sandbox_policy=READ_ONLY) as work:
        turn_id = await work.begin(ADD)
        await work.client.wait_for(QUESTION)
        await work.client.call("turn/interrupt", {"threadId": work.thread_id, "turnId": turn_id})
        assert (await work.rest())[-1] == ("turn/completed", "interrupted")
        assert not (work.folder / "new.txt").exists()
        (decided,) = [r for r in work.log() if r["type"] == "approvalDecided"]
        assert (decided["decision"], decided["by"]) == ("cancel", "server")
        assert (await work.apply())[-1] == END


@claim("patch:begun")
async def test_an_interrupt_waits_for_a_patch_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(plan: Plan, token: str) -> None:
        begun.set()
        assert go_on.wait(WAIT_S)
        write_plan(plan, token)

    monkeypatch.setattr("app_server.tools.patches.planned.write_plan", slowly)
    async with workspace(tmp_path) as work:
        turn_id = await work.begin(ADD)
        assert await anyio.to_thread.run_sync(begun.wait, WAIT_S)
        await work.client.call("turn/interrupt", {"threadId": work.thread_id, "turnId": turn_id})
        go_on.set()
        assert await work.rest() == [
            *sent(ADDED),
            ("turn/diff/updated", ADDED_DIFF),
            ("turn/completed", "interrupted"),
        ]
        assert (work.folder / "new.txt").read_text() == "one\ntwo\n"
        items = [r["item"].get("status") for r in work.log() if r["type"] == "itemCompleted"]
        assert items == [None, "completed"]


@claim("patch:item-bound")
async def test_an_item_of_much_text_says_what_it_leaves_out(tmp_path: Path) -> None:
    async with workspace(tmp_path) as work:
        (work.folder / "large.txt").write_text("line\n" * 400_000)
        shown = await work.apply(patch_of("*** Delete File: large.txt"))
        (change,) = shown[1][1][1]
        assert len(change["diff"]) < 800_000
        assert change["diff"].endswith(" more characters are not shown")
        assert shown[2] == ("turn/diff/updated", "# 1 more changed file is not shown: too large\n")


def shell(script: str, **arguments: Any) -> dict[str, Any]:
    return {"name": "exec_command", "arguments": {"cmd": script, **arguments}}


@claim("patch:heredoc")
@pytest.mark.parametrize(
    ("script", "workdir", "name"),
    [
        (f"apply_patch <<'EOF'\n{ADD}\nEOF\n", None, "new.txt"),
        (f"apply_patch <<'EOF'\n{ADD}\nEOF\n", "sub", "sub/new.txt"),
        (f"cd 'sub dir' && apply_patch <<EOF\n{ADD}\nEOF", None, "sub dir/new.txt"),
        (f"cd dir && apply_patch <<'EOF'\n{ADD}\nEOF", "sub", "sub/dir/new.txt"),
    ],
)
async def test_a_patch_in_a_command_is_a_patch(
    tmp_path: Path, script: str, workdir: str | None, name: str
) -> None:
    async with workspace(tmp_path) as work:
        arguments = {} if workdir is None else {"workdir": workdir}
        work.served.model.scripts.append(calls(shell(script, **arguments)))
        await start_turn(work.client, work.thread_id, "go")
        changes = [{**ADDED[0], "path": f"WS/{name}"}]
        assert await work.rest() == [
            *sent(changes),
            ("turn/diff/updated", ADDED_DIFF.replace("new.txt", name)),
            END,
        ]
        head, _, output = work.output().partition("Exit code: 0\n")
        assert head == "Wall time: 0.0000 seconds\nOutput:\n"
        assert without_time(f"Exit code: 0\n{output}") == f"{SUCCESS}A new.txt\n"


@claim("patch:heredoc")
@pytest.mark.parametrize(
    ("script", "output"),
    [
        (
            "apply_patch <<'EOF'\nbogus\nEOF",
            "apply_patch verification failed: invalid patch: The first line of the patch must be "
            "'*** Begin Patch'",
        ),
        (
            f"apply_patch <<'EOF'\n{patch_of('*** Update File: a.txt', '-no')}\nEOF",
            "apply_patch verification failed: Failed to find expected lines in WS/a.txt:\nno",
        ),
        (
            ADD,
            "apply_patch verification failed: this is a patch and not a command; call apply_patch "
            "with it",
        ),
    ],
)
async def test_a_patch_in_a_command_may_not_fit(tmp_path: Path, script: str, output: str) -> None:
    async with workspace(tmp_path) as work:
        work.served.model.scripts.append(calls(shell(script)))
        await start_turn(work.client, work.thread_id, "go")
        assert await work.rest() == [END]
        assert work.output() == output


@claim("patch:heredoc")
async def test_patches_in_commands_are_asked_about_and_follow_each_other(tmp_path: Path) -> None:
    async with workspace(tmp_path, sandbox_policy=READ_ONLY) as work:
        update_new = patch_of("*** Update File: new.txt", "-one", "+1")
        work.served.model.scripts.append(
            calls(*(shell(f"apply_patch <<'EOF'\n{text}\nEOF") for text in (ADD, update_new)))
        )
        await start_turn(work.client, work.thread_id, "go")
        await work.answer("acceptForSession")
        shown = await work.rest()
        ended = [value[0] for method, value in shown if method == "item/completed"]
        assert ended == ["completed", "completed"]
        assert (work.folder / "new.txt").read_text() == "1\ntwo\n"
