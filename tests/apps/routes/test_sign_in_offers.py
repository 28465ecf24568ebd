"""Sign-ins that a local server offers its client when a call fails for want of one."""

import asyncio
from typing import Any

import anyio
import pytest

from app_server.apps.routes import sign_in
from app_server.apps.routes.backing import RouteBounds
from protocol.model import JsonObject
from tests.support.apps.asker import FORM, URL, Asker
from tests.support.apps.peer import (
    Asked,
    FakePool,
    listed,
    returns,
    serve_tools,
)
from tests.support.harness import WAIT_S, claim


def failed(**given: Any) -> JsonObject:
    """Return a result that asks for a sign-in."""
    failure = {"is_auth_failure": True, **given}
    return {
        "content": [{"type": "text", "text": "no"}],
        "structuredContent": {"s": 1},
        "isError": True,
        "_meta": {"_codex_apps": {"connector_auth_failure": failure}, "kept": 1},
    }


GIVEN: JsonObject = {
    "connector_id": "cal",
    "auth_reason": "missing_link",
    "link_id": "l",
    "error_code": "E1",
    "error_action": "reconnect",
    "error_http_status_code": 401,
    "install_url": "https://evil.example",
    "more": 1,
}
PAGE = "https://chatgpt.com/apps/cal/cal"


@claim("apps:t-33")
async def test_a_sign_in_is_offered_and_once_accepted_the_inventory_is_fetched_anew() -> None:
    user = Asker({"action": "accept"})
    result = failed(**GIVEN)
    async with (
        serve_tools([listed("look")], FakePool(returns(result))) as served,
        served.client(capabilities=URL, asked=user) as client,
    ):
        answer = await client.call("look", **{"codex/toolCallId": "call-1"})
        assert served.refreshed == ["refreshed"]
    kept = {key: GIVEN[key] for key in GIVEN if key not in ("connector_id", "install_url", "more")}
    assert user.asked == [
        (
            "elicitation/create",
            {
                "mode": "url",
                "message": "Sign in to Cal on ChatGPT before it can be used here.",
                "url": PAGE,
                "elicitationId": "codex_apps_auth_call-1",
                "_meta": {
                    "_codex_apps": {
                        "connector_auth_failure": {
                            "is_auth_failure": True,
                            "connector_id": "cal",
                            "connector_name": "Cal",
                            "install_url": PAGE,
                            **kept,
                        }
                    }
                },
            },
        )
    ]
    text = "The sign-in to Cal was accepted. Call the tool again."
    assert answer == {
        "content": [{"type": "text", "text": text}],
        "isError": True,
        "structuredContent": {"s": 1},
        "_meta": {**result["_meta"], "codex/errorCode": "E1"},
    }


@claim("apps:t-33")
@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("oauth_upgrade_required", "Reconnect Cal on ChatGPT to grant it further permissions."),
        ("reauthentication_required", "Reconnect Cal on ChatGPT to restore access to it."),
        ("else", "Sign in to Cal on ChatGPT to go on."),
        (None, "Sign in to Cal on ChatGPT to go on."),
    ],
)
async def test_who_declines_to_sign_in_gets_the_result_as_it_was(
    reason: str | None, message: str
) -> None:
    user = Asker({"action": "decline"}, {"action": "cancel"})
    result = failed(auth_reason=reason)
    async with (
        serve_tools([listed("look")], FakePool(returns(result))) as served,
        served.client(capabilities=URL, asked=user) as client,
    ):
        assert [await client.call("look"), await client.call("look")] == [result, result]
        assert served.refreshed == []
    assert [params["message"] for _, params in user.asked] == [message, message]


@claim("apps:t-34")
@pytest.mark.parametrize(
    ("result", "capabilities", "code"),
    [
        (failed(error_code="E"), FORM, "E"),
        (failed(error_code="E"), {}, "E"),
        (failed(error_code="E", connector_id="drive"), URL, None),
        ({**failed(error_code="E"), "isError": False}, URL, None),
        (failed(error_code="E", is_auth_failure=1), URL, None),
        ({"isError": True, "content": [], "_meta": {"_codex_apps": 1}}, URL, None),
    ],
)
async def test_what_is_no_sign_in_of_this_app_passes_as_it_is(
    result: JsonObject, capabilities: JsonObject, code: str | None
) -> None:
    user = Asker()
    async with (
        serve_tools([listed("look")], FakePool(returns(result))) as served,
        served.client(capabilities=capabilities, asked=user) as client,
    ):
        answer = await client.call("look")
    added = {} if code is None else {"codex/errorCode": code}
    assert answer == {**result, "_meta": {**result["_meta"], **added}}
    assert user.asked == []


async def test_an_error_code_that_upstream_gave_itself_stays() -> None:
    result = failed(error_code="E")
    result["_meta"]["codex/errorCode"] = "mine"
    async with (
        serve_tools([listed("look")], FakePool(returns(result))) as served,
        served.client() as client,
    ):
        assert await client.call("look") == result


@claim("apps:t-33")
async def test_a_sign_in_counts_though_no_new_inventory_can_be_had(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails() -> None:
        raise OSError("no network")

    async def hangs() -> None:
        await asyncio.Event().wait()

    for refresh in (fails, hangs):
        user, pool = Asker({"action": "accept"}), FakePool(returns(failed()))
        bounds = RouteBounds(refresh_s=45.0 if refresh is fails else 0)
        async with (
            serve_tools([listed("look")], pool, refresh=refresh, bounds=bounds) as served,
            served.client(capabilities=URL, asked=user) as client,
        ):
            answer = await client.call("look")
        assert answer["content"][0]["text"].endswith("Call the tool again.")
    said = [record.getMessage() for record in caplog.records if record.name == sign_in.__name__]
    assert said == [
        "no new inventory after a sign-in",
        "no new inventory after a sign-in within 0 s",
    ]


@claim("apps:t-37")
async def test_shutting_down_ends_a_question_that_is_open() -> None:
    reached = asyncio.Event()

    async def thinks(method: str, params: JsonObject) -> JsonObject:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    asked: Asked = thinks
    async with (
        serve_tools([listed("look")], FakePool(returns(failed()))) as served,
        served.client(capabilities=URL, asked=asked) as client,
        anyio.create_task_group() as tasks,
    ):
        refusals = []

        async def call() -> None:
            refusals.append(await client.refusal("tools/call", {"name": "look"}))

        tasks.start_soon(call)
        with anyio.fail_after(WAIT_S):
            await reached.wait()
            await served.generation.close()
    assert refusals == [(-32603, "these app servers have been shut down", None)]
    assert served.refreshed == []
