"""The demo of apps: a hosted endpoint that this package ships, used by a thread.

Nobody's account is needed: the endpoint runs in the server, with a token of its own.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from app_server.clients.connection import Client
from app_server.clients.demo.process import shown_server
from app_server.clients.demo.thread import DemoThread
from app_server.clients.demo.transcript import Transcript
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
        story = _Story(await _start(transcript, client))
        await story.call_with_approval()
        await story.send_file(home / "note.txt")
        await story.be_asked()
        await story.sign_in()


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


class _Story:
    """What happens in one thread."""

    def __init__(self, thread: DemoThread) -> None:
        self._thread = thread
        self._transcript = thread.transcript
        self._client = thread.client

    async def call_with_approval(self) -> None:
        """Create an event, which the user has to approve."""
        with self._transcript.step("A call that the user approves"):
            event = {"title": "Tea", "start": "2030-01-02T16:00:00Z"}
            accepted = {"action": "accept", "_meta": {"persist": "session"}}
            asked, item = await self._call("calendar", "_create_event", event, accepted)
            self._transcript.say("server", asked["message"])
            self._check("the question names the app", asked["_meta"]["connector_name"], "Calendar")
            self._check("the item names the app", item["appContext"]["appName"], "Calendar")
            self._check("the call was made", item["status"], "completed")

    async def send_file(self, file: Path) -> None:
        """Save a file, which is read here and uploaded."""
        with self._transcript.step("A file as an argument"):
            accepted = {"action": "accept"}
            _, item = await self._call("drive", "_save_file", {"file": str(file)}, accepted)
            found = item["result"]["structuredContent"]["file"]
            self._transcript.say("drive", json.dumps(found))
            self._check("the app has the whole file", found["bytes"], len(NOTE))
            uri = item["arguments"]["file"]["uri"]
            self._transcript.check("the item shows what the app got", uri.startswith("sediment://"))

    async def be_asked(self) -> None:
        """Answer a form of an app."""
        with self._transcript.step("An app asks"):
            chosen = {"action": "accept", "content": {"colour": "green"}}
            asked, item = await self._call("survey", "_ask_by_form", {}, chosen, self._refresh)
            self._transcript.say("survey", asked["message"])
            self._transcript.check("the app has the answer", "green" in json.dumps(item["result"]))

    async def _refresh(self) -> None:
        """Fetch the apps again, while a call of one of them waits for the user."""
        installed = await self._client.call("app/installed", {"forceRefresh": True})
        self._check("the apps are fetched again meanwhile", len(installed["apps"]), len(APPS))

    async def sign_in(self) -> None:
        """Link an app that wants that first."""
        with self._transcript.step("An app that is not linked yet"):
            asked, item = await self._call("mail", "_read_inbox", {}, {"action": "accept"})
            self._transcript.say("server", f"{asked['message']} {asked['url']}")
            self._check("the first call failed", item["status"], "failed")
            _, item = await self._call("mail", "_read_inbox", {}, None)
            self._check("once linked it works", item["status"], "completed")

    def _check(self, claim: str, found: Json, expected: Json) -> None:
        self._transcript.check(claim, found == expected)

    async def _call(
        self,
        app: str,
        tool: str,
        arguments: Mapping[str, Json],
        answer: JsonObject | None,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
    ) -> tuple[JsonObject, JsonObject]:
        """Have the model call a tool; gives the question, if one is answered, and the item.

        `meanwhile` is done before the answer is given.
        """
        text = f"/tool codex_apps__{app}.{tool} {json.dumps(dict(arguments))}"
        await self._thread.begin(text)
        asked: JsonObject = {}
        if answer is not None:
            request_id, asked = await self._client.asked(ASKED)
            if meanwhile is not None:
                await meanwhile()
            await self._client.reply(request_id, answer)
        item = (await self._thread.items("mcpToolCall"))[-1]
        await self._thread.end()
        return asked, item
