"""Signing in as an editor asks for it, and out."""

from pathlib import Path
from typing import Any

import acp
import anyio
import pytest

from tests.support.accounts.account import browse, callback_of, server, stored
from tests.support.clients.acp import FORMS, acp_socket
from tests.support.harness import claim


async def refused(call: Any) -> tuple[int, Any]:
    with pytest.raises(acp.RequestError) as caught:
        await call
    data = caught.value.data
    return caught.value.code, data.get("field", data["code"]) if isinstance(data, dict) else data


@claim("acp:sign-in")
async def test_a_key_signs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        server(tmp_path, monkeypatch) as (_, served, _),
        acp_socket(served.urls[0]) as (_, agent),
    ):
        place = {"cwd": str(tmp_path), "mcp_servers": []}
        assert await refused(agent.new_session(**place)) == (-32000, "authRequired")
        for method, meta, field in (
            ("none", {}, "methodId"),
            ("chatgpt", {}, "methodId"),
            ("api-key", {}, "_meta.api-key.apiKey"),
            ("api-key", {"api-key": {"apiKey": 1}}, "_meta.api-key.apiKey"),
        ):
            assert await refused(agent.authenticate(method_id=method, **meta)) == (-32602, field)
        await agent.authenticate(method_id="api-key", **{"api-key": {"apiKey": "sk-x"}})
        assert stored(tmp_path)["OPENAI_API_KEY"] == "sk-x"
        assert (await agent.new_session(**place)).session_id


@claim("acp:sign-in")
async def test_a_browser_signs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        server(tmp_path, monkeypatch) as (issuer, served, client),
        acp_socket(served.urls[0], FORMS) as (editor, agent),
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(lambda: agent.authenticate(method_id="chatgpt"))
        await editor.until(lambda: editor.requests("elicitation/create"))
        (asked,) = editor.requests("elicitation/create")
        url = asked.pop("url")
        login_id = asked.pop("elicitationId")
        assert asked == {"requestId": 1, "mode": "url", "message": "Sign in to ChatGPT."}
        await browse(callback_of(url), **issuer.agree(url))
        await editor.until(lambda: editor.requests("elicitation/complete"))
        assert editor.requests("elicitation/complete") == [{"elicitationId": login_id}]
        place = {"cwd": str(tmp_path), "mcp_servers": []}
        assert (await agent.new_session(**place)).session_id
        await client.call("account/logout")
        assert await refused(agent.new_session(**place)) == (-32000, "authRequired")
