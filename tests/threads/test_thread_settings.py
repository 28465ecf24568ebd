"""The settings of a thread's turns."""

from pathlib import Path
from typing import Any

from tests.support.harness import REQUIREMENTS, WireClient, claim, serve
from tests.support.model import Gate, calls, says
from tests.support.threads.metadata import NOBODY, USER_INPUT


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
