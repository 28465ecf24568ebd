"""The demo of signals: two agents, one asks, the other is woken and answers; then a crash.

Both are threads of one server with the offline model; whoever carries messages between them is a
client, as a receiver is.
"""

from contextlib import AsyncExitStack
from pathlib import Path

from app_server.clients.demo.process import start_server, stop_server
from app_server.clients.demo.thread import SERVER, DemoThread, configure
from app_server.clients.demo.transcript import Transcript
from app_server.peer.connection import Client
from protocol.model import JsonObject

ASKED = "mcpServer/elicitation/request"
UPDATED = "signal/updated"
QUESTION = "Is the build of main green?"
LATER = "And the tests?"
LOOK = [{"type": "text", "text": f'/tool {SERVER}.look {{"at": "the build"}}'}]
_ONCE = ("answered", 1)


async def run(transcript: Transcript, home: Path, /) -> None:
    """Run the demo in an empty folder."""
    configure(home, 'default_tools_approval_mode = "prompt"\n')
    async with AsyncExitStack() as stack:
        with transcript.step("Start a server, and two agents in it"):
            server = await stack.enter_async_context(start_server(home))
            client = await stack.enter_async_context(server.connect())
            ann, bob = [await _start(transcript, client, name) for name in ("ann", "bob")]
            transcript.say("server", f"ann is thread {ann.id}, bob is {bob.id}")
            transcript.check("each has the MCP server of config.toml", True)
        with transcript.step("Ann asks; bob sleeps, and is woken"):
            receipt = await _deliver(transcript, client, "q1", "ann", "bob", QUESTION)
            transcript.check("the message is in bob's thread, and has woken it", receipt["woken"])
            answer = await _answer_of(bob, receipt)
            transcript.check("bob has read the question", QUESTION in answer)
        with transcript.step("Bob's answer goes back to ann"):
            receipt = await _deliver(transcript, client, "a1", "bob", "ann", answer[:200])
            await _answer_of(ann, receipt)
        with transcript.step("The same message again, as after a lost answer"):
            receipt = await _deliver(transcript, client, "q1", "ann", "bob", QUESTION)
            turns = len(await bob.turns())
            transcript.check("bob has had one turn for it", (receipt["stage"], turns) == _ONCE)
        with transcript.step("Bob is busy, ann asks on, and the server dies"):
            # The turn waits for an approval that nobody gives.
            await client.call("turn/start", {"threadId": bob.id, "input": LOOK})
            await client.asked(ASKED)
            receipt = await _deliver(transcript, client, "q2", "ann", "bob", LATER)
            transcript.check("the message waits, on disk", receipt["stage"] == "accepted")
            await server.kill()
            transcript.say("server", "was killed")
    async with AsyncExitStack() as stack:
        with transcript.step("Start it again"):
            server = await stack.enter_async_context(start_server(home))
            client = await stack.enter_async_context(server.connect())
            receipt = await _settled(client, "q2")
            transcript.say("server", f"signal q2 is {receipt['stage']}")
            transcript.check("bob was woken by what had waited", receipt["woken"])
            turns = len(await DemoThread(transcript, client, bob.id).turns())
            transcript.check("it had one turn, and none was lost or doubled", turns == 3)
        await stop_server(transcript, server)


async def _start(transcript: Transcript, client: Client, name: str) -> DemoThread:
    started = await client.call("thread/start", {})
    thread = DemoThread(transcript, client, started["thread"]["id"])
    # Its tool is called later on.
    await thread.wait_for_servers({SERVER})
    await client.call("thread/name/set", {"threadId": thread.id, "name": name})
    return thread


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


async def _answer_of(thread: DemoThread, receipt: JsonObject) -> str:
    text: str = (await thread.items("agentMessage"))[-1]["text"]
    thread.transcript.say("model", text)
    event = await thread.client.wait_for(
        UPDATED,
        lambda params: (
            params["receipt"]["signalId"] == receipt["signalId"]
            and params["receipt"]["stage"] == "answered"
        ),
    )
    same = event["receipt"]["turnId"] == receipt["turnId"]
    thread.transcript.check("the receipt says so: answered, by the turn it began", same)
    return text


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
