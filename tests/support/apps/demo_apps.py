"""Threads with the apps of the demo."""

from tests.support.harness import WireClient

DEMO = "[apps_service]\ndemo = true\n"
STARTED = "mcpServer/startupStatus/updated"


async def thread_with_apps(client: WireClient) -> str:
    """Start a thread once the apps are known, and wait for those that are used."""
    await client.call("mcpServerStatus/list", {"serverName": "codex_apps"})
    thread_id = await client.start_thread()
    left = {"codex_apps__calendar", "codex_apps__mail"}
    while left:
        message = await client.wait_for(STARTED, lambda p: p["status"] == "ready")
        left.discard(message["params"]["name"])
    return thread_id
