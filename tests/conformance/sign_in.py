"""The scenarios of the conformance suite that need a sign-in: through a whole server of ours.

A client starts a thread, signs in with `mcpServer/oauth/login` if the MCP server wants that, opens
the address as a browser would, and calls every tool. Where a call is refused for the want of a
sign-in, or of scopes, it signs in once more, and makes the call again.
Source: docs/mcp.md, "Conformance".
"""

import json
import os
import tempfile
from pathlib import Path

import httpx2

from protocol.model import JsonObject
from tests.support.harness import WireClient, WireError, serve

SERVER = "conformance"
PATIENCE_S = 60

MAX_SIGN_INS = 2
"""For a start: the authorization server may be another one after the first."""

DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The client metadata document that the suite knows."""

SECRET = "CONFORMANCE_CLIENT_SECRET"


async def run_scenario(url: str) -> list[str]:
    """Sign in and call every tool; returns what went wrong."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    config = f"[mcp_servers.{SERVER}]\nurl = {json.dumps(url)}\n"
    oauth = {"client_id": context.get("client_id", DOCUMENT)}
    if secret := context.get("client_secret"):
        os.environ[SECRET] = secret
        oauth["client_secret_env_var"] = SECRET
    config += "".join(f"oauth.{key} = {json.dumps(value)}\n" for key, value in oauth.items())
    with tempfile.TemporaryDirectory() as home:
        async with serve(Path(home), config=config) as served, served.client() as client:
            return await _use(client)


async def _use(client: WireClient) -> list[str]:
    thread_id = await client.start_thread()
    for _ in range(MAX_SIGN_INS):
        if await _settled(client) == "ready":
            break
        if (failure := await _sign_in(client)) is not None:
            return [failure]
    else:
        if (step := await _settled(client)) != "ready":
            return [f"{step} after the sign-in"]
    status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
    problems: list[str] = []
    for tool in status["data"][0]["tools"]:
        params = {"threadId": thread_id, "server": SERVER, "tool": tool, "arguments": {}}
        error = await _call(client, params)
        if error is not None and _wants_sign_in(error):
            if (failure := await _sign_in(client)) is not None:
                return [*problems, failure]
            error = await _call(client, params)
        if error is not None:
            problems.append(f"{tool}: {error}")
    return problems


def _wants_sign_in(error: WireError) -> bool:
    data = error.data if isinstance(error.data, dict) else {}
    return data.get("status") == 401 or "scopes" in data


async def _call(client: WireClient, params: JsonObject) -> WireError | None:
    try:
        await client.call("mcpServer/tool/call", params)
    except WireError as exc:
        return exc
    return None


async def _settled(client: WireClient) -> str:
    message = await client.wait_for(
        "mcpServer/startupStatus/updated", lambda params: params["status"] != "starting"
    )
    return str(message["params"]["status"])


async def _sign_in(client: WireClient) -> str | None:
    params = {"name": SERVER, "timeoutSecs": PATIENCE_S}
    try:
        login = await client.call("mcpServer/oauth/login", params)
    except WireError as exc:
        return str(exc)
    async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as browser:
        page = await browser.get(login["authorizationUrl"])
        if (back := page.headers.get("location")) is None:
            return f"the authorization page leads nowhere: HTTP status {page.status_code}"
        await browser.get(back)
    completed = await client.wait_for("mcpServer/oauthLogin/completed")
    error = completed["params"].get("error")
    return None if completed["params"]["success"] else str(error)
