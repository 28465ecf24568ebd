"""Steps of the demo; each one is checked."""

from contextlib import AsyncExitStack
from pathlib import Path

from pydantic_core import to_json

from app_server.clients.demo.process import shown_server, start_server
from app_server.clients.demo.thread import SERVER, DemoThread, configure
from app_server.clients.demo.transcript import Transcript
from app_server.peer.connection import Client
from protocol.model import Json, JsonObject

SIGNAL = "The build of main has failed."
PLACE = {"city": "Lisbon"}


async def run(transcript: Transcript, home: Path, /) -> None:
    """Run the demo in an empty folder."""
    configure(home)
    besides = f", keeps its files in {home}"
    async with (
        shown_server(transcript, home, "Start a server", besides) as server,
        server.connect() as client,
    ):
        thread = await _start(transcript, client)
        await _text_turn(thread)
        await _inject(thread)
        await _tool_turn(thread)
        await _list_servers(thread)
        before = await thread.turns()
    async with AsyncExitStack() as stack:
        with transcript.step("Start it again"):
            server = await stack.enter_async_context(start_server(home))
            transcript.say("server", f"is back on {server.url}")
        async with server.connect() as client:
            await _resume(DemoThread(transcript, client, thread.id), before)
        await server.stop()


async def _start(transcript: Transcript, client: Client) -> DemoThread:
    with transcript.step("Start a thread"):
        result = await client.call("thread/start", {})
        thread = DemoThread(transcript, client, result["thread"]["id"])
        transcript.say("server", f"thread {thread.id}, model {result['model']}")
        await thread.wait_for_servers({SERVER})
        transcript.check("the MCP server of config.toml is ready", True)
    return thread


async def _turn(
    thread: DemoThread, text: str, **options: Json
) -> tuple[JsonObject, list[JsonObject]]:
    """Run a turn; returns it with its completed items."""
    await thread.begin(text, **options)
    items = await thread.items("agentMessage")
    turn = await thread.end()
    thread.transcript.say("model", items[-1]["text"])
    return turn, items


async def _text_turn(thread: DemoThread) -> None:
    check = thread.transcript.check
    with thread.transcript.step("A turn of text"):
        turn, items = await _turn(thread, "Hello there.")
        check("the turn completed", turn["status"] == "completed")
        check("the model answered what was said", "Hello there." in items[-1]["text"])


async def _inject(thread: DemoThread) -> None:
    with thread.transcript.step("A signal from outside, without a turn"):
        content = [{"type": "input_text", "text": SIGNAL}]
        item = {"type": "message", "role": "developer", "content": content}
        thread.transcript.say("signal", SIGNAL)
        params = {"threadId": thread.id, "items": [item]}
        result = await thread.client.call("thread/inject_items", params)
        thread.transcript.check("it was accepted, which means it is on disk", result == {})
        _, items = await _turn(thread, "Any news?")
        told = SIGNAL in items[-1]["text"]
        thread.transcript.check("the model has it at the next turn", told)


async def _tool_turn(thread: DemoThread) -> None:
    say, check = thread.transcript.say, thread.transcript.check
    with thread.transcript.step(
        "A turn in which the model calls the MCP tool, with metadata for its server"
    ):
        turn, items = await _turn(
            thread,
            f'/tool {SERVER}.look {{"at": "the harbour"}}',
            mcpMetaByServer={SERVER: {"place": PLACE}, "another": {"secret": 1}},
        )
        call = next(item for item in items if item["type"] == "mcpToolCall")
        seen = call["result"]["structuredContent"]
        say("tool", f"was called with {to_json(seen['arguments']).decode()}")
        say("tool", f"and saw place = {to_json(seen['_meta'].get('place')).decode()}")
        check("the call succeeded", call["status"] == "completed")
        check("its arguments arrived", seen["arguments"] == {"at": "the harbour"})
        check("the client's metadata arrived", seen["_meta"].get("place") == PLACE)
        check("metadata for another server did not", "secret" not in seen["_meta"])
        check("the thread's id came with it", seen["_meta"]["threadId"] == thread.id)
        check("the turn completed", turn["status"] == "completed")


async def _list_servers(thread: DemoThread) -> None:
    with thread.transcript.step("The status of the MCP servers"):
        result = await thread.client.call("mcpServerStatus/list", {})
        for status in result["data"]:
            thread.transcript.say(status["name"], f"tools: {', '.join(status['tools'])}")
        listed = [(status["name"], list(status["tools"])) for status in result["data"]]
        thread.transcript.check(
            "the server and its tool are listed", listed == [(SERVER, ["look"])]
        )


async def _resume(thread: DemoThread, before: Json) -> None:
    with thread.transcript.step("Resume the thread"):
        result = await thread.client.call("thread/resume", {"threadId": thread.id})
        turns = result["thread"]["turns"]
        thread.transcript.say("server", f"{len(turns)} turns are back")
        thread.transcript.check("every turn and item is as it was", turns == before)
    with thread.transcript.step("And go on"):
        turn, _ = await _turn(thread, "Still there?")
        thread.transcript.check("the turn completed", turn["status"] == "completed")
