"""requirements: what threads and turns may do, and what clients are told."""

import logging
from pathlib import Path

import anyio.to_thread
import pytest

from tests.support.harness import claim, serve
from tests.support.requirements import FULL, INSTEAD_OF_FULL, INSTEAD_OF_NEVER, NEVER, demand


@claim("requirements:settings")
@pytest.mark.parametrize("by_request", [False, True])
async def test_a_thread_starts_with_what_is_allowed_and_its_client_gets_a_warning(
    tmp_path: Path, by_request: bool
) -> None:
    file = demand(
        tmp_path,
        'allowed_approval_policies = ["on-request"]\nallowed_sandbox_modes = ["read-only"]',
    )
    wanted = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
    config = 'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
    async with (
        serve(tmp_path, config="" if by_request else config) as served,
        served.client() as client,
    ):
        started = await client.call("thread/start", wanted if by_request else {})
        thread_id = started["thread"]["id"]
        messages = await client.until("warning")
        messages += await client.until("warning")
        read = await client.call("configRequirements/read")
    assert (started["approvalPolicy"], started["sandbox"]["type"]) == ("on-request", "readOnly")
    texts = [text.replace("/r.toml", str(file)) for text in (INSTEAD_OF_NEVER, INSTEAD_OF_FULL)]
    told = [(m["method"], m["params"]) for m in messages if m["method"].lower().endswith("warning")]
    assert told == [
        message
        for text in texts
        for message in (
            ("configWarning", {"summary": text, "details": None}),
            ("warning", {"threadId": thread_id, "message": text}),
        )
    ]
    shown = {name: value for name, value in read["requirements"].items() if value is not None}
    assert shown == {
        "allowedApprovalPolicies": ["on-request"],
        "allowedSandboxModes": ["read-only"],
    }


@claim("requirements:settings")
async def test_a_turn_cannot_choose_what_is_not_allowed(tmp_path: Path) -> None:
    file = demand(
        tmp_path,
        'allowed_approval_policies = ["on-request"]\nallowed_sandbox_modes = ["read-only"]',
    )
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        start = {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
        refusals = [
            await client.refusal("turn/start", {**start, "approvalPolicy": "never"}),
            await client.refusal(
                "turn/start", {**start, "sandboxPolicy": {"type": "dangerFullAccess"}}
            ),
        ]
        turn = await client.turn(thread_id, "hi", approvalPolicy="on-request")
    texts = [text.replace("/r.toml", str(file)) for text in (NEVER, FULL)]
    assert [(error.code, error.message, error.data) for error in refusals] == [
        (
            -32600,
            f"invalid thread settings override: {text}",
            {"code": "settingNotAllowed", "detail": text},
        )
        for text in texts
    ]
    assert turn["status"] == "completed"


@claim("requirements:settings")
@pytest.mark.parametrize("restarted", [False, True])
async def test_settings_of_before_do_not_outlive_a_demand(tmp_path: Path, restarted: bool) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(approvalPolicy="never", sandbox="workspace-write")
        await client.turn(thread_id, "one")
        file = demand(tmp_path, 'allowed_approval_policies = ["on-request"]')
        text = INSTEAD_OF_NEVER.replace("/r.toml", str(file))
        if not restarted:
            await client.turn(thread_id, "two")
            resumed = await client.call("thread/resume", {"threadId": thread_id})
    if restarted:
        async with serve(tmp_path) as served, served.client() as client:
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            warning = await client.wait_for("configWarning")
            assert warning["params"]["summary"] == text
            warning = await client.wait_for("warning")
            assert warning["params"] == {"threadId": thread_id, "message": text}
    assert (resumed["approvalPolicy"], resumed["sandbox"]["type"]) == (
        "on-request",
        "workspaceWrite",
    )


@claim("requirements:settings")
async def test_a_loaded_thread_gets_a_warning_of_what_a_new_demand_changes(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(approvalPolicy="never")
        file = demand(tmp_path, 'allowed_approval_policies = ["on-request"]')
        start = {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
        await client.call("turn/start", start)
        updated = await client.wait_for("thread/settings/updated")
        assert updated["params"]["threadSettings"]["approvalPolicy"] == "on-request"
        warning = await client.wait_for("warning")
        assert warning["params"]["message"] == INSTEAD_OF_NEVER.replace("/r.toml", str(file))
        await client.wait_for("turn/completed")


@claim("requirements:unenforced")
async def test_unenforced_requirements_are_logged_and_sent_as_warnings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = demand(tmp_path, "bogus = 1\n[features]\nx = true\n")
    text = f"not enforced by this server: `bogus`, `features` (set by {file})"
    async with serve(tmp_path) as served, served.client() as client:
        logged = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        thread_id = (await client.call("thread/start", {}))["thread"]["id"]
        told = [
            (await client.wait_for("configWarning"))["params"],
            (await client.wait_for("warning"))["params"],
        ]
        assert (await client.call("configRequirements/read"))["requirements"] is None
    assert logged == [text]
    assert told == [
        {"summary": text, "details": None},
        {"threadId": thread_id, "message": text},
    ]


@claim("requirements:broken")
async def test_nothing_runs_until_a_broken_file_is_repaired(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
    file = demand(tmp_path, "= 1")
    detail = f"failed to parse requirements layer {file}:1:1: Invalid statement"
    async with serve(tmp_path) as served, served.client() as client:
        await client.wait_for("configWarning")
        logged = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        refusals = [
            await client.refusal("configRequirements/read"),
            await client.refusal("thread/start", {}),
            await client.refusal("thread/resume", {"threadId": thread_id}),
            await client.refusal("mcpServerStatus/list", {}),
        ]
        file.unlink()
        await client.call("thread/resume", {"threadId": thread_id})
        await anyio.to_thread.run_sync(file.write_text, "= 1")
        start = {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
        refusals.append(await client.refusal("turn/start", start))
    assert logged == [
        f"The configuration cannot be used; requests that need it are refused. {detail}"
    ]
    load = (-32600, f"failed to load configuration: {detail}")
    assert [(error.code, error.message) for error in refusals] == [
        (-32603, f"failed to read configuration layers: {detail}"),
        *[load] * 4,
    ]
    assert {error.data["code"] for error in refusals} == {"configInvalid"}
