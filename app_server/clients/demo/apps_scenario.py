"""The demo of apps: a hosted endpoint that this package ships, used by a thread.

Nobody's account is needed: the endpoint runs in the server, with a token of its own.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from app_server.clients.demo.process import shown_server
from app_server.clients.demo.thread import DemoThread
from app_server.clients.demo.transcript import Transcript
from app_server.peer.connection import Client
from protocol.model import Json, JsonObject

CONFIG = 'model_provider = "offline"\n\n[apps_service]\ndemo = true\n'
ASKED = "mcpServer/elicitation/request"
APPS = ("calendar", "drive", "mail", "survey")
NOTE = "Buy tea.\n"


async def run(transcript: Transcript, home: Path, /) -> None:
    """Run the demo in an empty folder."""
    (home / "config.toml").write_text(CONFIG)
    (home / "note.txt").write_text(NOTE)
    title = "Start a server with the apps of the demo"
    async with (
        shown_server(transcript, home, title) as server,
        server.connect(extensions={"openai/form": {}}) as client,
    ):
        await _list(transcript, client)
        thread = await _start(transcript, client)
        await _call_with_approval(thread)
        await _send_file(thread, home / "note.txt")
        await _be_asked(thread)
        await _sign_in(thread)


async def _list(transcript: Transcript, client: Client) -> None:
    with transcript.step("Which apps are there?"):
        listed = await client.call("app/list", {})
        names = [app["name"] for app in listed["data"] if app["isAccessible"]]
        transcript.say("server", ", ".join(names))
        transcript.check(
            "the apps of the account are listed", [name.lower() for name in names] == list(APPS)
        )


async def _start(transcript: Transcript, client: Client) -> DemoThread:
    with transcript.step("Start a thread"):
        started = await client.call("thread/start", {})
        thread = DemoThread(transcript, client, started["thread"]["id"])
        await thread.wait_for_servers({f"codex_apps__{name}" for name in APPS})
        transcript.check("every app is an MCP server of the thread", True)
    return thread


async def _call_with_approval(thread: DemoThread) -> None:
    with thread.transcript.step("A call that the user approves"):
        event = {"title": "Tea", "start": "2030-01-02T16:00:00Z"}
        accepted = {"action": "accept", "_meta": {"persist": "session"}}
        asked, item = await _call(thread, "calendar", "_create_event", event, accepted)
        thread.transcript.say("server", asked["message"])
        named, shown = asked["_meta"]["connector_name"], item["appContext"]["appName"]
        thread.transcript.check("the question names the app", named == "Calendar")
        thread.transcript.check("the item names the app", shown == "Calendar")
        thread.transcript.check("the call was made", item["status"] == "completed")


async def _send_file(thread: DemoThread, file: Path) -> None:
    with thread.transcript.step("A file as an argument"):
        accepted = {"action": "accept"}
        _, item = await _call(thread, "drive", "_save_file", {"file": str(file)}, accepted)
        found = item["result"]["structuredContent"]["file"]
        thread.transcript.say("drive", json.dumps(found))
        thread.transcript.check("the app has the whole file", found["bytes"] == len(NOTE))
        uri = item["arguments"]["file"]["uri"]
        thread.transcript.check("the item shows what the app got", uri.startswith("sediment://"))


async def _be_asked(thread: DemoThread) -> None:
    async def refresh() -> None:
        installed = await thread.client.call("app/installed", {"forceRefresh": True})
        is_whole = len(installed["apps"]) == len(APPS)
        thread.transcript.check("the apps are fetched again meanwhile", is_whole)

    with thread.transcript.step("An app asks"):
        chosen = {"action": "accept", "content": {"colour": "green"}}
        asked, item = await _call(thread, "survey", "_ask_by_form", {}, chosen, refresh)
        thread.transcript.say("survey", asked["message"])
        thread.transcript.check("the app has the answer", "green" in json.dumps(item["result"]))


async def _sign_in(thread: DemoThread) -> None:
    with thread.transcript.step("An app that is not linked yet"):
        asked, item = await _call(thread, "mail", "_read_inbox", {}, {"action": "accept"})
        thread.transcript.say("server", f"{asked['message']} {asked['url']}")
        thread.transcript.check("the first call failed", item["status"] == "failed")
        _, item = await _call(thread, "mail", "_read_inbox", {}, None)
        thread.transcript.check("once linked it works", item["status"] == "completed")


async def _call(
    thread: DemoThread,
    app: str,
    tool: str,
    arguments: Mapping[str, Json],
    answer: JsonObject | None,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> tuple[JsonObject, JsonObject]:
    """Have the model call a tool; gives the question, if one is answered, and the item.

    `meanwhile` is done before the answer is given.
    """
    await thread.begin(f"/tool codex_apps__{app}.{tool} {json.dumps(dict(arguments))}")
    asked: JsonObject = {}
    if answer is not None:
        request_id, asked = await thread.client.asked(ASKED)
        if meanwhile is not None:
            await meanwhile()
        await thread.client.reply(request_id, answer)
    item = (await thread.items("mcpToolCall"))[-1]
    await thread.end()
    return asked, item
