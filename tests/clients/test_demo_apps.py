"""The apps of the demo, through a whole server and with nobody's account."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.support.apps.demo_apps import DEMO, thread_with_apps
from tests.support.harness import Served, WireClient, WireError, claim, serve
from tests.support.model import calls, says

ASKED = "mcpServer/elicitation/request"


async def asked(
    served: Served, client: WireClient, thread_id: str, function: Any, answer: Any
) -> tuple[Any, Any]:
    """Run a turn whose model makes a call that is asked about; gives question and item."""
    served.model.scripts += [calls(function), says("done")]
    await client.call(
        "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
    )
    question = await client.wait_for(ASKED)
    await client.send({"id": question["id"], "result": answer})
    item = await client.wait_for("item/completed", lambda p: p["item"]["type"] == "mcpToolCall")
    await client.until("turn/completed")
    return question["params"], item["params"]["item"]


@claim("apps:demo")
async def test_the_apps_of_the_demo_are_listed_called_and_approved(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config=DEMO, with_apps=True) as served,
        served.client() as client,
    ):
        thread_id = await thread_with_apps(client)
        listed = await client.call("app/list", {})
        assert [app["name"] for app in listed["data"] if app["isAccessible"]] == [
            "Calendar",
            "Drive",
            "Mail",
            "Survey",
        ]
        installed = await client.call("app/installed", {})
        assert {app["id"]: app["callable"] for app in installed["apps"]} == dict.fromkeys(
            (app["id"] for app in listed["data"] if app["isAccessible"]), True
        )
        [apps] = (await client.call("mcpServerStatus/list", {"threadId": thread_id}))["data"]
        assert apps["name"] == "codex_apps"
        assert {"calendar_list_events", "calendar_create_event"} <= set(apps["tools"])
        create = {
            "namespace": "mcp__codex_apps__calendar",
            "name": "_create_event",
            "arguments": {"title": "Tea", "start": "2026-11-22T16:00:00Z"},
        }
        accepted = {"action": "accept", "_meta": {"persist": "always"}}
        question, item = await asked(served, client, thread_id, create, accepted)
        assert question["serverName"] == "codex_apps__calendar"
        assert question["_meta"]["connector_name"] == "Calendar"
        assert (item["status"], item["appContext"]["appName"]) == ("completed", "Calendar")
        config = (tmp_path / "config.toml").read_text()
        assert 'approval_mode = "approve"' in config
        assert "calendar_create_event" in config
        direct = {"threadId": thread_id, "server": "codex_apps", "tool": "calendar_list_events"}
        events = await client.call("mcpServer/tool/call", {**direct, "arguments": {}})
        assert "Tea" in str(events)


@claim("apps:demo")
async def test_mail_of_the_demo_wants_a_sign_in_first(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config=DEMO, with_apps=True) as served,
        served.client() as client,
    ):
        thread_id = await thread_with_apps(client)
        search = {"namespace": "mcp__codex_apps__mail", "name": "_read_inbox", "arguments": {}}
        question, item = await asked(served, client, thread_id, search, {"action": "accept"})
        assert question["mode"] == "url"
        assert question["url"].startswith("https://chatgpt.com/apps/mail/")
        assert item["status"] == "failed"
        served.model.scripts += [calls(search), says("done")]
        await client.call(
            "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": "again"}]}
        )
        item = await client.wait_for("item/completed", lambda p: p["item"]["type"] == "mcpToolCall")
        assert item["params"]["item"]["status"] == "completed"


@claim("apps:t-31")
async def test_a_form_of_any_schema_goes_from_the_endpoint_to_the_client_and_back(
    tmp_path: Path,
) -> None:
    able: dict[str, Any] = {"extensions": {"openai/form": {}}}
    async with (
        serve(tmp_path, config=DEMO, with_apps=True) as served,
        served.client(**able) as client,
    ):
        thread_id = await thread_with_apps(client)
        call = {
            "namespace": "mcp__codex_apps__survey",
            "name": "_ask_by_openai_form",
            "arguments": {},
        }
        answer = {"action": "accept", "content": {"colour": "red"}}
        question, item = await asked(served, client, thread_id, call, answer)
        assert (question["mode"], question["serverName"]) == ("openai/form", "codex_apps__survey")
        assert item["status"] == "completed"
        assert "red" in str(item["result"])


async def test_without_apps_there_are_none(tmp_path: Path) -> None:
    async with serve(tmp_path, with_apps=True) as served, served.client() as client:
        assert await client.call("app/list", {}) == {"data": [], "nextCursor": None}
        assert await client.call("app/installed", {}) == {"apps": []}
        read = await client.call("app/read", {"appIds": ["a"], "includeTools": False})
        assert read == {"apps": [], "missingAppIds": ["a"]}


async def listed(client: WireClient) -> Any:
    """Return what is listed, None while nothing can be."""
    try:
        return await client.call("app/list", {})
    except WireError:
        return None


async def test_apps_that_break_leave_the_server_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any) -> None:
        raise OSError("no port")

    with monkeypatch.context() as patched:
        patched.setattr("app_server.apps.lazy.LazyApps.run", broken)
        async with serve(tmp_path, with_apps=True) as served, served.client() as client:
            for method in ("app/list", "app/installed", "app/read"):
                params = {"appIds": ["a"], "includeTools": False} if method == "app/read" else {}
                with pytest.raises(WireError, match="cannot be served now: no port") as caught:
                    await client.call(method, params)
                assert caught.value.data["code"] == "appsUnavailable"
            await client.turn(await client.start_thread(), "hi")
            patched.undo()
            # It is tried again by itself: nobody is signed in, so there are none.
            with anyio.fail_after(60):
                while (found := await listed(client)) is None:
                    await anyio.sleep(0.05)
            assert found == {"data": [], "nextCursor": None}
    assert "apps are not served" in [record.getMessage() for record in caplog.records]
