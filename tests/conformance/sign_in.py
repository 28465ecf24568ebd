"""The scenarios of the conformance suite that need a sign-in: through a whole server of ours.

A client starts a thread, signs in with `mcpServer/oauth/login` if the MCP server wants that, opens
the address as a browser would, and calls every tool.
Source: docs/mcp.md, "Conformance".
"""

import json
import os
import tempfile
from pathlib import Path

import httpx2

from tests.support.harness import WireClient, WireError, serve

SERVER = "conformance"
PATIENCE_S = 60


async def run_scenario(url: str) -> list[str]:
    """Sign in and call every tool; returns what went wrong."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    config = f"[mcp_servers.{SERVER}]\nurl = {json.dumps(url)}\n"
    if client_id := context.get("client_id"):
        config += f"oauth = {{ client_id = {json.dumps(client_id)} }}\n"
    with tempfile.TemporaryDirectory() as home:
        async with serve(Path(home), config=config) as served, served.client() as client:
            return await _use(client)


async def _use(client: WireClient) -> list[str]:
    thread_id = await client.start_thread()
    if await _settled(client) != "ready":
        problem = await _sign_in(client)
        if problem is not None:
            return [problem]
        if (step := await _settled(client)) != "ready":
            return [f"{step} after the sign-in"]
    status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
    problems = []
    for tool in status["data"][0]["tools"]:
        params = {"threadId": thread_id, "server": SERVER, "tool": tool, "arguments": {}}
        try:
            await client.call("mcpServer/tool/call", params)
        except WireError as exc:
            problems.append(f"{tool}: {exc}")
    return problems


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
