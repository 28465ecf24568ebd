"""patch: who says whether one is applied: one of several clients, one that returns, a reviewer."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import claim
from tests.support.model import says
from tests.support.turn_tools.patches import QUESTION, answer_of, custom_call, patch_of, workspace
from tests.support.turns import start_turn

ADD = patch_of("*** Add File: new.txt", "+one")
READ_ONLY = {"type": "readOnly", "networkAccess": False}

ALLOW = {
    "risk_level": "low",
    "user_authorization": "high",
    "outcome": "allow",
    "rationale": "The user asked for it.",
}
DENY = {**ALLOW, "risk_level": "high", "outcome": "deny", "rationale": "Nobody asked for it."}


def decided(records: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what was decided, by whom and on which client."""
    return [
        (record["decision"], record["by"], record.get("client"))
        for record in records
        if record["type"] == "approvalDecided"
    ]


@claim("patch:several-clients")
async def test_of_several_clients_the_first_answer_counts(tmp_path: Path) -> None:
    async with (
        workspace(tmp_path, sandbox_policy=READ_ONLY) as work,
        work.served.pipe() as pipe,
    ):
        second = type(work.client)(pipe)
        await second.initialize("second")
        await second.call("thread/resume", {"threadId": work.thread_id})
        await work.begin(ADD)
        await work.client.wait_for(QUESTION)
        question = await second.wait_for(QUESTION)
        await second.send({"id": question["id"], "result": {"decision": "accept"}})
        await work.client.wait_for("serverRequest/resolved")
        assert (await work.rest())[0][1][0] == "completed"
        assert (work.folder / "new.txt").read_text() == "one\n"
        assert decided(work.log()) == [("accept", "user", "second")]


@claim("patch:several-clients")
async def test_a_client_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    async with workspace(tmp_path, sandbox_policy=READ_ONLY) as work:
        await work.begin(ADD)
        await work.client.wait_for(QUESTION)
        await work.client.pipe.aclose()
        async with work.served.client() as again:
            found = await again.call("thread/resume", {"threadId": work.thread_id})
            assert found["thread"]["status"]["activeFlags"] == ["waitingOnApproval"]
            question = await again.wait_for(QUESTION)
            await again.send({"id": question["id"], "result": {"decision": "decline"}})
            done = await again.wait_for(
                "item/completed", lambda params: params["item"]["type"] == "fileChange"
            )
            assert done["params"]["item"]["status"] == "declined"
            await again.wait_for("turn/completed")
        assert work.output() == "patch rejected by user"
        assert decided(work.log()) == [("decline", "user", "test")]


@claim("patch:broken-answer")
@pytest.mark.parametrize(
    "answer", [{"result": {"decision": "perhaps"}}, {"error": {"code": -1, "message": "no"}}]
)
async def test_an_answer_without_sense_is_no(tmp_path: Path, answer: Any) -> None:
    async with workspace(tmp_path, sandbox_policy=READ_ONLY) as work:
        await work.begin(ADD)
        question = await work.client.wait_for(QUESTION)
        await work.client.send({"id": question["id"], **answer})
        assert (await work.rest())[0][1][0] == "declined"
        assert not (work.folder / "new.txt").exists()
        assert decided(work.log()) == [("failed", "user", "test")]


@claim("patch:reviewed")
@pytest.mark.parametrize(("verdict", "status"), [(ALLOW, "completed"), (DENY, "declined")])
async def test_a_reviewer_may_decide_about_a_patch(
    tmp_path: Path, verdict: dict[str, str], status: str
) -> None:
    async with workspace(
        tmp_path, sandbox_policy=READ_ONLY, approvalsReviewer="auto_review"
    ) as work:
        work.served.model.scripts += [
            answer_of(custom_call(ADD)),
            says(json.dumps(verdict)),
        ]
        await start_turn(work.client, work.thread_id, "go")
        started = await work.client.wait_for("item/autoApprovalReview/started")
        assert started["params"]["targetItemId"] == "call_1"
        assert started["params"]["action"] == {
            "type": "applyPatch",
            "cwd": str(work.folder),
            "files": [str(work.folder / "new.txt")],
        }
        shown = await work.rest()
        assert shown[0][1][0] == status
        assert (work.folder / "new.txt").exists() == (status == "completed")
        # The reviewer is shown the patch itself.
        assert "+one" in json.dumps(work.served.model.requests[1]["input"])
        word = "accept" if status == "completed" else "decline"
        assert decided(work.log()) == [(word, "reviewer", None)]
        if status == "declined":
            assert "Nobody asked for it." in work.output()
