"""What the demo does, step by step; every step is checked."""

import sys
from contextlib import AsyncExitStack
from pathlib import Path

from pydantic_core import to_json

from app_server.clients.connection import Client, open_client
from app_server.clients.demo.process import WAIT_S, start_server
from app_server.clients.demo.thread_servers import wait_for_servers
from app_server.clients.demo.transcript import Transcript
from protocol.model import Json, JsonObject

SERVER = "demo"
SIGNAL = "The build of main has failed."
PLACE = {"city": "Lisbon"}


def _configure(home: Path) -> None:
    """Choose the offline model, and a real MCP server that this package ships."""
    command = to_json(sys.executable).decode()
    (home / "config.toml").write_text(
        'model_provider = "offline"\n\n'
        f"[mcp_servers.{SERVER}]\ncommand = {command}\n"
        "args = ['-m', 'app_server.clients.demo.tools']\n"
    )


async def run(transcript: Transcript, home: Path, /) -> None:
    """Run the demo in an empty folder."""
    _configure(home)
    async with AsyncExitStack() as stack:
        with transcript.step("Start a server"):
            server = await stack.enter_async_context(start_server(home))
            transcript.say("server", f"listens on {server.url}, keeps its files in {home}")
        async with open_client(server.url, "demo", wait_s=WAIT_S, experimentalApi=True) as client:
            thread_id = await _start(transcript, client)
            await _text_turn(transcript, client, thread_id)
            await _inject(transcript, client, thread_id)
            await _tool_turn(transcript, client, thread_id)
            await _list_servers(transcript, client)
            before = await _read(client, thread_id)
        with transcript.step("Stop the server with SIGTERM"):
            transcript.check("it ends by itself", await server.stop() == 0)
    async with AsyncExitStack() as stack:
        with transcript.step("Start it again"):
            server = await stack.enter_async_context(start_server(home))
            transcript.say("server", f"is back on {server.url}")
        async with open_client(server.url, "demo", wait_s=WAIT_S, experimentalApi=True) as client:
            await _resume(transcript, client, thread_id, before)
        await server.stop()


async def _start(transcript: Transcript, client: Client) -> str:
    with transcript.step("Start a thread"):
        result = await client.call("thread/start", {})
        thread_id: str = result["thread"]["id"]
        transcript.say("server", f"thread {thread_id}, model {result['model']}")
        await wait_for_servers(client, thread_id, {SERVER})
        transcript.check("the MCP server of config.toml is ready", True)
    return thread_id


async def _turn(
    transcript: Transcript, client: Client, thread_id: str, text: str, **options: Json
) -> tuple[JsonObject, list[JsonObject]]:
    """Run a turn; returns it with its completed items."""
    transcript.say("user", text)
    await client.call(
        "turn/start",
        {"threadId": thread_id, "input": [{"type": "text", "text": text}], **options},
    )
    items: list[JsonObject] = []

    def is_end(params: JsonObject) -> bool:
        return bool(params["threadId"] == thread_id)

    def keep(params: JsonObject) -> bool:
        items.append(params["item"])
        return bool(params["item"]["type"] == "agentMessage")

    await client.wait_for("item/completed", keep)
    end = await client.wait_for("turn/completed", is_end)
    transcript.say("model", items[-1]["text"])
    turn: JsonObject = end["turn"]
    return turn, items


async def _text_turn(transcript: Transcript, client: Client, thread_id: str) -> None:
    with transcript.step("A turn of text"):
        turn, items = await _turn(transcript, client, thread_id, "Hello there.")
        transcript.check("the turn completed", turn["status"] == "completed")
        transcript.check("the model answered what was said", "Hello there." in items[-1]["text"])


async def _inject(transcript: Transcript, client: Client, thread_id: str) -> None:
    with transcript.step("A signal from outside, without a turn"):
        item = {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": SIGNAL}],
        }
        transcript.say("signal", SIGNAL)
        result = await client.call("thread/inject_items", {"threadId": thread_id, "items": [item]})
        transcript.check("it was accepted, which means it is on disk", result == {})
        _, items = await _turn(transcript, client, thread_id, "Any news?")
        transcript.check("the model has it at the next turn", SIGNAL in items[-1]["text"])


async def _tool_turn(transcript: Transcript, client: Client, thread_id: str) -> None:
    with transcript.step(
        "A turn in which the model calls the MCP tool, with metadata for its server"
    ):
        turn, items = await _turn(
            transcript,
            client,
            thread_id,
            f'/tool {SERVER}.look {{"at": "the harbour"}}',
            mcpMetaByServer={SERVER: {"place": PLACE}, "another": {"secret": 1}},
        )
        call = next(item for item in items if item["type"] == "mcpToolCall")
        seen = call["result"]["structuredContent"]
        transcript.say("tool", f"was called with {to_json(seen['arguments']).decode()}")
        transcript.say("tool", f"and saw place = {to_json(seen['_meta'].get('place')).decode()}")
        transcript.check("the call succeeded", call["status"] == "completed")
        transcript.check("its arguments arrived", seen["arguments"] == {"at": "the harbour"})
        transcript.check("the client's metadata arrived", seen["_meta"].get("place") == PLACE)
        transcript.check("metadata for another server did not", "secret" not in seen["_meta"])
        transcript.check("the thread's id came with it", seen["_meta"]["threadId"] == thread_id)
        transcript.check("the turn completed", turn["status"] == "completed")


async def _list_servers(transcript: Transcript, client: Client) -> None:
    with transcript.step("The status of the MCP servers"):
        result = await client.call("mcpServerStatus/list", {})
        for status in result["data"]:
            transcript.say(status["name"], f"tools: {', '.join(status['tools'])}")
        transcript.check(
            "the server and its tool are listed",
            [(entry["name"], list(entry["tools"])) for entry in result["data"]]
            == [(SERVER, ["look"])],
        )


async def _read(client: Client, thread_id: str) -> Json:
    result = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
    return result["thread"]["turns"]


async def _resume(transcript: Transcript, client: Client, thread_id: str, before: Json) -> None:
    with transcript.step("Resume the thread"):
        result = await client.call("thread/resume", {"threadId": thread_id})
        turns = result["thread"]["turns"]
        transcript.say("server", f"{len(turns)} turns are back")
        transcript.check("every turn and item is as it was", turns == before)
    with transcript.step("And go on"):
        turn, _ = await _turn(transcript, client, thread_id, "Still there?")
        transcript.check("the turn completed", turn["status"] == "completed")
