"""The demo of signals: two agents, one asks, the other is woken and answers; then a crash.

Both are threads of one server with the offline model; whoever carries messages between them is a
client, as a receiver is.
"""

import sys
from contextlib import AsyncExitStack
from pathlib import Path

from pydantic_core import to_json

from app_server.clients.connection import Client, open_client
from app_server.clients.demo.process import WAIT_S, ServerProcess, start_server
from app_server.clients.demo.thread_servers import wait_for_servers
from app_server.clients.demo.transcript import Transcript
from protocol.model import Json, JsonObject

SERVER = "demo"
ASKED = "mcpServer/elicitation/request"
UPDATED = "signal/updated"
QUESTION = "Is the build of main green?"
LATER = "And the tests?"
LOOK = '/tool demo.look {"at": "the build"}'


async def run(transcript: Transcript, home: Path, /) -> None:
    """Run the demo in an empty folder."""
    command = to_json(sys.executable).decode()
    (home / "config.toml").write_text(
        'model_provider = "offline"\n\n[mcp_servers.demo]\n'
        f"command = {command}\nargs = ['-m', 'app_server.clients.demo.tools']\n"
        'default_tools_approval_mode = "prompt"\n'
    )
    async with AsyncExitStack() as stack:
        with transcript.step("Start a server, and two agents in it"):
            server = await stack.enter_async_context(start_server(home))
            client = await stack.enter_async_context(_client(server))
            ann, bob = [await _start(client, name) for name in ("ann", "bob")]
            transcript.say("server", f"ann is thread {ann}, bob is {bob}")
            transcript.check("each has the MCP server of config.toml", True)
        with transcript.step("Ann asks; bob sleeps, and is woken"):
            receipt = await _deliver(transcript, client, "q1", "ann", "bob", QUESTION)
            transcript.check("the message is in bob's thread, and has woken it", receipt["woken"])
            answer = await _answer_of(transcript, client, bob, receipt)
            transcript.check("bob has read the question", QUESTION in answer)
        with transcript.step("Bob's answer goes back to ann"):
            receipt = await _deliver(transcript, client, "a1", "bob", "ann", answer[:200])
            await _answer_of(transcript, client, ann, receipt)
        with transcript.step("The same message again, as after a lost answer"):
            receipt = await _deliver(transcript, client, "q1", "ann", "bob", QUESTION)
            turns = await _turns(client, bob)
            transcript.check("bob has had one turn for it", (receipt["stage"], turns) == _ONCE)
        with transcript.step("Bob is busy, ann asks on, and the server dies"):
            await _make_busy(client, bob)
            receipt = await _deliver(transcript, client, "q2", "ann", "bob", LATER)
            transcript.check("the message waits, on disk", receipt["stage"] == "accepted")
            await server.kill()
            transcript.say("server", "was killed")
    async with AsyncExitStack() as stack:
        with transcript.step("Start it again"):
            server = await stack.enter_async_context(start_server(home))
            client = await stack.enter_async_context(_client(server))
            receipt = await _settled(client, "q2")
            transcript.say("server", f"signal q2 is {receipt['stage']}")
            transcript.check("bob was woken by what had waited", receipt["woken"])
            turns = await _turns(client, bob)
            transcript.check("it had one turn, and none was lost or doubled", turns == 3)
        with transcript.step("Stop the server with SIGTERM"):
            transcript.check("it ends by itself", await server.stop() == 0)


_ONCE = ("answered", 1)


def _client(server: ServerProcess) -> Json:
    return open_client(server.url, "demo", wait_s=WAIT_S, experimentalApi=True)


async def _start(client: Client, name: str) -> str:
    thread_id: str = (await client.call("thread/start", {}))["thread"]["id"]
    # Its tool is called later on; a turn does not wait for it.
    await wait_for_servers(client, thread_id, {SERVER})
    await client.call("thread/name/set", {"threadId": thread_id, "name": name})
    return thread_id


async def _deliver(
    transcript: Transcript, client: Client, signal_id: str, sender: str, to: str, text: str
) -> JsonObject:
    transcript.say(sender, text)
    signal = {
        "id": signal_id,
        "source": "demo",
        "type": "Question",
        "sender": sender,
        "summary": text,
    }
    params = {"signal": signal, "target": {"name": to}, "mode": "wake"}
    receipt: JsonObject = (await client.call("signal/deliver", params))["receipt"]
    transcript.say("receipt", f"{receipt['stage']}, {to} was {receipt['recipientState']}")
    return receipt


async def _answer_of(
    transcript: Transcript, client: Client, thread_id: str, receipt: JsonObject
) -> str:
    said = await client.wait_for(
        "item/completed",
        lambda params: params["threadId"] == thread_id and params["item"]["type"] == "agentMessage",
    )
    text: str = said["item"]["text"]
    transcript.say("model", text)
    event = await client.wait_for(
        UPDATED,
        lambda params: (
            params["receipt"]["signalId"] == receipt["signalId"]
            and params["receipt"]["stage"] == "answered"
        ),
    )
    same = event["receipt"]["turnId"] == receipt["turnId"]
    transcript.check("the receipt says so: answered, by the turn it began", same)
    return text


async def _make_busy(client: Client, thread_id: str) -> None:
    """Leave a turn waiting for an approval that nobody gives."""
    user_input = [{"type": "text", "text": LOOK}]
    await client.call("turn/start", {"threadId": thread_id, "input": user_input})
    await client.asked(ASKED)


async def _settled(client: Client, signal_id: str) -> JsonObject:
    key = {"source": "demo", "id": signal_id}
    receipt: JsonObject = (await client.call("signal/read", key))["receipt"]
    if receipt["stage"] != "answered":
        await client.call("thread/resume", {"threadId": receipt["threadId"]})
        receipt = (await client.call("signal/read", key))["receipt"]
    while receipt["stage"] != "answered":
        event = await client.wait_for(
            UPDATED, lambda params: params["receipt"]["signalId"] == signal_id
        )
        receipt = event["receipt"]
    return receipt


async def _turns(client: Client, thread_id: str) -> int:
    shown = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
    return len(shown["thread"]["turns"])
