"""request_permissions: the model asks for more than its sandbox allows."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import claim
from tests.support.model import calls, says
from tests.support.turn_tools.patches import Workspace, answer_of, custom_call, patch_of, workspace
from tests.support.turn_tools.permission_requests import METHOD, ON, READ_ONLY, granting, writing
from tests.support.turn_tools.turn_commands import CommandResult, command
from tests.support.turns import start_turn

NONE = {"permissions": {"network": None, "file_system": None}, "scope": "turn"}


def asking(**arguments: Any) -> Any:
    """Script a call."""
    return calls({"name": "request_permissions", "arguments": arguments})


async def ask(work: Workspace, answer: dict[str, Any], *then: Any, **arguments: Any) -> Any:
    """Run a turn that asks and then plays more; return the question."""
    work.served.model.scripts += [asking(**arguments), *then]
    await start_turn(work.client, work.thread_id, "go")
    question = await work.client.wait_for(METHOD)
    await work.client.send({"id": question["id"], "result": answer})
    await work.client.wait_for("turn/completed")
    return question["params"]


def adding(path: Path) -> Any:
    """Script a patch that adds a file."""
    return answer_of(custom_call(patch_of(f"*** Add File: {path}", "+x"), 2))


@claim("permissions:question")
async def test_the_user_is_asked_and_the_model_gets_what_is_granted(tmp_path: Path) -> None:
    outside = tmp_path.resolve() / "outside"
    (outside / "sub").mkdir(parents=True)
    async with workspace(tmp_path, ON, sandbox_policy=READ_ONLY) as work:
        wanted = {
            "file_system": {"write": [str(outside)], "read": ["a.txt"]},
            "network": {"enabled": True},
        }
        question = await ask(
            work,
            granting(str(outside / "sub"), str(tmp_path), "/"),
            adding(outside / "sub" / "new.txt"),
            permissions=wanted,
            reason="May I?",
        )
        assert question.pop("startedAtMs") > 0
        assert question.pop("turnId")
        entries = [
            {"path": {"type": "path", "path": str(work.folder / "a.txt")}, "access": "read"},
            {"path": {"type": "path", "path": str(outside)}, "access": "write"},
        ]
        assert question == {
            "threadId": work.thread_id,
            "itemId": "call_1",
            "environmentId": "local",
            "cwd": str(work.folder),
            "reason": "May I?",
            "permissions": {
                "network": {"enabled": True},
                "fileSystem": {
                    "read": [str(work.folder / "a.txt")],
                    "write": [str(outside)],
                    "entries": entries,
                },
            },
        }
        output = work.served.model.requests[1]["input"][-1]["output"]
        granted = {"network": None, "file_system": {"write": [str(outside / "sub")]}}
        assert json.loads(output) == {"permissions": granted, "scope": "turn"}
        assert (outside / "sub" / "new.txt").read_text() == "x\n"
        (decided,) = [r for r in work.log() if r["type"] == "approvalDecided"]
        assert (decided["action"], decided["by"], decided["client"]) == (
            "permissions",
            "user",
            "test",
        )


@claim("permissions:scope")
@pytest.mark.parametrize("scope", ["turn", "session"])
async def test_a_grant_lasts_for_the_turn_or_the_session(tmp_path: Path, scope: str) -> None:
    outside = tmp_path.resolve() / "outside"
    outside.mkdir()
    async with workspace(
        tmp_path, ON, sandbox_policy=READ_ONLY, approvalPolicy="on-request"
    ) as work:
        answer = granting(str(outside), scope=scope)
        await ask(work, answer, permissions=writing(str(outside)))
        work.served.model.scripts.append(adding(outside / "new.txt"))
        await start_turn(work.client, work.thread_id, "go")
        if scope == "turn":
            question = await work.client.wait_for("item/fileChange/requestApproval")
            await work.client.send({"id": question["id"], "result": {"decision": "decline"}})
        await work.client.wait_for("turn/completed")
        assert (outside / "new.txt").exists() == (scope == "session")


GRANULAR = {
    "mcp_elicitations": True,
    "rules": True,
    "sandbox_approval": True,
    "request_permissions": False,
}


@claim("permissions:policy")
@pytest.mark.parametrize("policy", ["never", {"granular": GRANULAR}])
async def test_nothing_is_granted_where_nobody_may_be_asked(tmp_path: Path, policy: Any) -> None:
    async with workspace(tmp_path, ON, approvalPolicy=policy) as work:
        work.served.model.scripts.append(asking(permissions=writing("/opt")))
        await work.client.turn(work.thread_id, "go")
        assert json.loads(work.output()) == NONE


async def test_a_refusal_and_an_error_grant_nothing(tmp_path: Path) -> None:
    async with workspace(tmp_path, ON) as work:
        await ask(work, {"permissions": {}}, permissions=writing("/opt"))
        assert json.loads(work.output()) == NONE
        await ask(work, {"nonsense": 1}, permissions=writing("/opt"))
        assert json.loads(work.output()) == NONE


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ({"permissions": {}}, "request_permissions requires at least one permission"),
        (
            {"permissions": {"network": {"enabled": False}}},
            "request_permissions requires at least one permission",
        ),
        (
            {"permissions": writing("/opt"), "environment_id": "x"},
            "unknown turn environment id `x`",
        ),
        (
            {"permissions": {"file_system": {"write": "/opt"}}},
            "failed to parse function arguments: permissions.file_system.write: "
            "Input should be a valid list",
        ),
        (
            {"permissions": writing(*["/opt"] * 65)},
            "failed to parse function arguments: permissions.file_system.write: "
            "List should have at most 64 items after validation, not 65",
        ),
        (
            {"permissions": {"exec": True}},
            "failed to parse function arguments: permissions.exec: Extra inputs are not permitted",
        ),
        ({}, "failed to parse function arguments: permissions: Field required"),
    ],
    ids=["nothing", "no network", "environment", "type", "many", "unknown", "absent"],
)
async def test_wrong_arguments_are_named(
    tmp_path: Path, arguments: dict[str, Any], output: str
) -> None:
    async with workspace(tmp_path, ON) as work:
        work.served.model.scripts.append(asking(**arguments))
        await work.client.turn(work.thread_id, "go")
        assert work.output() == output


async def test_only_the_permissions_are_declared_as_required(tmp_path: Path) -> None:
    async with workspace(tmp_path, ON) as work:
        await work.client.turn(work.thread_id, "go")
        [tool] = [
            tool
            for tool in work.served.model.requests[0]["tools"]
            if tool.get("name") == "request_permissions"
        ]
    objects = [tool["parameters"]]
    required = []
    for one in objects:
        required.append(one.get("required"))
        objects += [member for member in one["properties"].values() if "properties" in member]
    # Not an empty list: JSON Schema up to draft 4, which some providers check by, has none.
    assert required == [["permissions"], None, None, None]


async def test_without_the_feature_there_is_no_such_tool(tmp_path: Path) -> None:
    async with workspace(tmp_path) as work:
        work.served.model.scripts.append(asking(permissions=writing("/opt")))
        await work.client.turn(work.thread_id, "go")
        assert work.output() == "unsupported call: request_permissions"
        declared = [tool.get("name") for tool in work.served.model.requests[0]["tools"]]
        assert "request_permissions" not in declared


@claim("permissions:scope")
async def test_nothing_granted_holds_in_a_review_of_code(tmp_path: Path) -> None:
    outside = tmp_path.resolve() / "outside"
    outside.mkdir()
    async with workspace(tmp_path, ON, sandbox_policy=READ_ONLY) as work:
        granted = granting(str(outside), scope="session")
        await ask(work, granted, says("done"), permissions=writing(str(outside)))
        for name, begin in (("made", "turn/start"), ("reviewed", "review/start")):
            work.served.model.scripts += [calls(command(f"touch {outside}/{name}")), says("done")]
            target = {"target": {"type": "uncommittedChanges"}}
            said = {"input": [{"type": "text", "text": "go"}]}
            params = target if begin == "review/start" else said
            await work.client.call(begin, {"threadId": work.thread_id, **params})
            await work.client.wait_for("turn/completed")
        assert CommandResult(work.output()).exit_code == 1
        assert [path.name for path in outside.iterdir()] == ["made"]


@claim("permissions:question")
async def test_the_user_is_asked_about_where_links_lead_and_grants_that(tmp_path: Path) -> None:
    outside, other = tmp_path.resolve() / "outside", tmp_path.resolve() / "other"
    outside.mkdir()
    other.mkdir()
    async with workspace(tmp_path, ON, sandbox_policy=READ_ONLY) as work:
        link = work.folder / "link"
        link.symlink_to(outside)
        named = {"write": [str(link), "link/.", str(outside)], "read": ["link/no/../file"]}
        question = await ask(
            work,
            granting(str(outside)),
            adding(link / "new.txt"),
            permissions={"file_system": named},
        )
        write, read = str(outside), str(outside / "file")
        assert question["permissions"]["fileSystem"] == {
            "read": [read],
            "write": [write],
            "entries": [
                {"path": {"type": "path", "path": read}, "access": "read"},
                {"path": {"type": "path", "path": write}, "access": "write"},
            ],
        }
        output = work.served.model.requests[1]["input"][-1]["output"]
        granted = {"network": None, "file_system": {"write": [write]}}
        assert json.loads(output) == {"permissions": granted, "scope": "turn"}
        assert (outside / "new.txt").read_text() == "x\n"
        # The link leads elsewhere before the answer: there nothing was granted.
        work.served.model.scripts += [
            asking(permissions={"file_system": {"write": ["link"]}}),
            adding(link / "other.txt"),
        ]
        await start_turn(work.client, work.thread_id, "go")
        asked = await work.client.wait_for(METHOD)
        link.unlink()
        link.symlink_to(other)
        answer = granting(str(outside), str(link))
        await work.client.send({"id": asked["id"], "result": answer})
        # Nothing was granted there, so the user is asked about the patch.
        again = await work.client.wait_for("item/fileChange/requestApproval")
        await work.client.send({"id": again["id"], "result": {"decision": "decline"}})
        await work.client.wait_for("turn/completed")
        assert list(other.iterdir()) == []
