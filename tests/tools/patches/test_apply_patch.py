"""patch: what a model's patch does, and what clients and the log see of it."""

import threading
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from app_server.patch.plan import Plan
from app_server.patch.unified import blob_name
from app_server.patch.write import write_plan
from app_server.runtime.machine import machine_name
from tests.support.harness import WAIT_S, claim
from tests.support.model import calls
from tests.support.turn_tools.patch_items import (
    ADD,
    ADDED,
    ADDED_DIFF,
    EDIT,
    END,
    HELLO,
    NOTHING,
    ONE_TWO,
    SUCCESS,
    sent,
    update,
    without_time,
)
from tests.support.turn_tools.patches import (
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
        assert records[1].pop("machine", None) == machine_name()
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


@claim("patch:begun")
async def test_an_interrupt_waits_for_a_patch_that_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(plan: Plan, token: str) -> None:
        begun.set()
        assert go_on.wait(WAIT_S)
        write_plan(plan, token)

    monkeypatch.setattr("app_server.tools.apply_patch.write_plan", slowly)
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
