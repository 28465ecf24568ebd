"""Who chooses the reviewer of approvals, and the offline model as one."""

import json
from pathlib import Path

from app_server.models import offline
from app_server.turns.approval.reviewer import (
    SCHEMA_NAME,
    parse_assessment,
)
from tests.support.harness import claim, methods_of, serve, stdio_server
from tests.support.model import calls, says
from tests.support.turn_tools.reviews import (
    ALLOW,
    ASKED,
    COMPLETED,
    STARTED,
    WIPE,
    Place,
    last_output,
    of_review,
    review,
    verdict,
    with_peer,
)


@claim("review:settings")
async def test_the_thread_or_the_turn_names_the_reviewer_also_by_its_old_name(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        started = await client.call("thread/start", {"approvalsReviewer": "guardian_subagent"})
        assert started["approvalsReviewer"] == "auto_review"
        await client.wait_for("mcpServer/startupStatus/updated", lambda p: p["status"] == "ready")
        place = Place(served, client, started["thread"]["id"])
        told = await place.run(calls(WIPE), verdict(ALLOW), says("done"))
        assert methods_of(told).count(COMPLETED) == 1
        await place.begin(calls(WIPE), says("done"), approvalsReviewer="user")
        question = await client.wait_for(ASKED)
        await client.send({"id": question["id"], "result": {"action": "accept"}})
        told = await client.until("turn/completed")
        assert STARTED not in methods_of(told)
    old = 'approvals_reviewer = "guardian_subagent"\n'
    async with with_peer(tmp_path / "old", old, serviceTier="flex") as place:
        told = await place.run(calls(WIPE), verdict(ALLOW), says("done"))
        assert methods_of(told).count(COMPLETED) == 1
        _, (request,) = place.model_requests
        assert request["service_tier"] == "flex"


async def test_an_unknown_reviewer_in_the_file_is_refused(tmp_path: Path) -> None:
    config = 'approvals_reviewer = "robot"\n'
    async with serve(tmp_path, config=config) as served, served.client() as client:
        error = await client.refusal("thread/start", {})
        assert "unknown variant `robot`" in error.message
        assert "expected one of `user`, `auto_review`, `guardian_subagent`" in error.message


@claim("review:policy")
async def test_policy_comes_before_the_reviewer(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as place:
        free = {"type": "dangerFullAccess"}
        for policy, sandbox in (("never", {"type": "readOnly"}), ("never", free)):
            told = await place.run(
                calls(WIPE), says("done"), approvalPolicy=policy, sandboxPolicy=sandbox
            )
            assert STARTED not in methods_of(told)
        read_only = {**WIPE, "name": "meta", "arguments": {}}
        told = await place.run(calls(read_only), says("done"), approvalPolicy="on-request")
        assert STARTED not in methods_of(told)
        assert json.loads(last_output(place.served))["x-codex-turn-metadata"]["auto_review_enabled"]


@claim("review:offline")
async def test_the_offline_model_denies_what_it_cannot_judge(tmp_path: Path) -> None:
    async with with_peer(tmp_path, modelProvider="offline") as place:
        told = of_review(await place.run(text='/tool raw.wipe {"p": 1}'))
        assert [entry[-1] for entry in told if entry[0] == COMPLETED] == [
            review("denied", offline.REVIEW_ANSWER)
        ]
        assert told[-1] == ("turn/completed", "completed")
    assert offline.REVIEW_SCHEMA == SCHEMA_NAME
    parse_assessment(json.dumps(offline.REVIEW_ANSWER))
