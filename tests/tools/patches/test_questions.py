"""patch: who is asked about it, and what became of the files by the time of the answer."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import claim
from tests.support.turn_tools.patch_items import (
    ADD,
    ADDED,
    ADDED_DIFF,
    EDIT,
    END,
    READ_ONLY,
    without_time,
)
from tests.support.turn_tools.patches import (
    INSIDE_ONLY,
    QUESTION,
    patch_of,
    workspace,
)

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
        assert shown == [("item/completed", ("failed", [])), END]
        assert work.output().startswith("Exit code: 1\nWall time: ")
        assert "Failed to write file WS/sub/new.txt: " in work.output()
        assert os.listdir(outside) == []


@claim("patch:order")
async def test_a_disk_that_refuses_in_the_middle_is_told_alike_to_client_and_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rename

    def rename(source: str, target: str, **folders: int) -> None:
        if target == "second.txt":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target, **folders)

    both = patch_of("*** Add File: new.txt", "+one", "+two", "*** Add File: second.txt", "+x")
    second = {"path": "WS/second.txt", "kind": {"type": "add"}, "diff": "x\n"}
    async with workspace(tmp_path) as work:
        monkeypatch.setattr(os, "rename", rename)
        assert await work.apply(both) == [
            ("item/started", ("inProgress", [*ADDED, second])),
            ("item/completed", ("failed", ADDED)),
            ("turn/diff/updated", ADDED_DIFF),
            END,
        ]
        assert without_time(work.output()) == (
            "Exit code: 1\nWall time: 0 seconds\nOutput:\n"
            "Failed to write file WS/second.txt: No space left on device\n"
            "Before that, the following files were updated:\nA new.txt\n"
        )


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


@claim("patch:interrupt")
async def test_an_interrupt_withdraws_the_question(tmp_path: Path) -> None:
    async with workspace(tmp_path, sandbox_policy=READ_ONLY) as work:
        turn_id = await work.begin(ADD)
        await work.client.wait_for(QUESTION)
        await work.client.call("turn/interrupt", {"threadId": work.thread_id, "turnId": turn_id})
        (declined, shown), end = (await work.rest())[-2:]
        assert (declined, shown[0], end) == (
            "item/completed",
            "declined",
            ("turn/completed", "interrupted"),
        )
        assert not (work.folder / "new.txt").exists()
        (decided,) = [r for r in work.log() if r["type"] == "approvalDecided"]
        assert (decided["decision"], decided["by"]) == ("cancel", "server")
        assert (await work.apply())[-1] == END
