"""The demo of a fleet: two nodes with one database, and the death of the one that owns the thread.

The client talks to the other node all the time, as one does that was sent to any of them.
Source: docs/scale.md.
"""

import importlib.util
import secrets
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from pydantic_core import to_json

from app_server.clients.demo.postgresql import (
    Cluster,
    find_programs,
    ordinary_user,
    running_cluster,
)
from app_server.clients.demo.process import ServerProcess, environment, run_to_end, start_server
from app_server.clients.demo.thread import SERVER, DemoThread, configure
from app_server.clients.demo.transcript import NotInstalled, Transcript
from app_server.peer.connection import Client
from app_server.threads.opening.stores import NO_PSYCOPG
from protocol.model import JsonObject

ROLE, DATABASE = "agents", "threads"
ASKED = "mcpServer/elicitation/request"
RESOLVED = "serverRequest/resolved"
SIGNAL = "The build of main has failed."
LOOK = f'/tool {SERVER}.look {{"at": "the harbour"}}'


async def run(transcript: Transcript, folder: Path, /) -> None:
    """Run the demo in an empty folder.

    Raises:
        NotInstalled: PostgreSQL, or the library that talks to it, is not on this machine.
    """
    if not all(importlib.util.find_spec(name) for name in ("psycopg", "psycopg_pool")):
        raise NotInstalled(NO_PSYCOPG)
    user = ordinary_user()
    programs = await find_programs(user)
    homes = [folder / name for name in ("one", "two")]
    async with AsyncExitStack() as stack:
        with transcript.step("Start a PostgreSQL for the demo alone"):
            cluster = await stack.enter_async_context(running_cluster(programs, user))
            transcript.say("database", f"runs in {cluster.folder}")
            url = await _make_database(transcript, cluster, folder)
        one, two = await _start_nodes(transcript, stack, homes, url)
        client = await stack.enter_async_context(two.connect())
        thread = await _begin_at(transcript, one, client)
        await _take_signal(thread)
        before = await thread.turns()
        await _lose_owner(thread, one)
        await _go_on(thread, before)
        with transcript.step("Start node one again: a client of it has the same thread"):
            one = await stack.enter_async_context(start_server(homes[0]))
            transcript.say("one", f"is back on {one.url}")
            await _find_again(thread, one)
        with transcript.step("Stop both nodes with SIGTERM"):
            statuses = [await node.stop() for node in (one, two)]
            transcript.check("they end by themselves", statuses == [0, 0])


async def _make_database(transcript: Transcript, cluster: Cluster, folder: Path) -> str:
    """Make a role, its database and the tables, as docs/scale.md says; returns the URL."""
    for command in (("createuser", ROLE), ("createdb", "--owner", ROLE, DATABASE)):
        transcript.say("admin", " ".join(command))
        await cluster.administer(*command)
    url = cluster.url(ROLE, DATABASE)
    words = ("store", "migrate", "--store", url)
    transcript.say("admin", f"app-server {' '.join(words)}")
    # In an empty home: settings of the user's may be broken.
    program = (sys.executable, "-m", "app_server.cli.serve", *words, "--home", str(folder))
    said = await run_to_end(*program, env=environment(), cwd=folder)
    transcript.check("the database is ready for threads", " is ready: " in said)
    return url


async def _start_nodes(
    transcript: Transcript, stack: AsyncExitStack, homes: Sequence[Path], url: str
) -> list[ServerProcess]:
    """Start a node in each home: one database, and one secret."""
    secret = secrets.token_hex()
    settings = f'store = {to_json(url).decode()}\nnode_secret_file = "node-secret"\n'
    nodes: list[ServerProcess] = []
    with transcript.step("Start two nodes with this database and a secret in common"):
        for home in homes:
            home.mkdir()
            (home / "node-secret").touch(0o600)
            (home / "node-secret").write_text(secret)
            configure(home, 'default_tools_approval_mode = "prompt"\n', settings)
            node = await stack.enter_async_context(start_server(home))
            transcript.say(home.name, f"listens on {node.url}")
            nodes.append(node)
        transcript.check("each has an address of its own", nodes[0].url != nodes[1].url)
    return nodes


async def _begin_at(transcript: Transcript, owner: ServerProcess, client: Client) -> DemoThread:
    """Begin a thread at its owner, and go on as a client of the other node."""
    with transcript.step("Begin a thread at node one, and use it from node two"):
        async with owner.connect() as at_owner:
            started = await at_owner.call("thread/start", {})
            thread = DemoThread(transcript, client, started["thread"]["id"])
            await DemoThread(transcript, at_owner, thread.id).wait_for_servers({SERVER})
            transcript.say("one", f"owns thread {thread.id}")
            await client.call("thread/resume", {"threadId": thread.id})
        turn = await _turn(thread, "Hello there.")
        transcript.check("the client of node two has a turn", turn["status"] == "completed")
        transcript.check("node two has not loaded the thread", await _loaded(client) == 0)
    return thread


async def _take_signal(thread: DemoThread) -> None:
    with thread.transcript.step("Give node two a signal for the thread of node one"):
        thread.transcript.say("signal", SIGNAL)
        named = {"source": "demo", "id": "build-1"}
        signal = {**named, "type": "Build", "sender": "ci", "summary": SIGNAL}
        params = {"signal": signal, "target": {"threadId": thread.id}, "mode": "wake"}
        receipt = (await thread.client.call("signal/deliver", params))["receipt"]
        thread.transcript.say("receipt", f"{receipt['stage']}, woken: {receipt['woken']}")
        thread.transcript.check("the thread was woken by it", receipt["woken"])
        text = (await thread.items("agentMessage"))[-1]["text"]
        thread.transcript.say("model", text)
        thread.transcript.check("the model was told", SIGNAL in text)
        await thread.client.wait_for("signal/updated", _is_answered)
        read = (await thread.client.call("signal/read", named))["receipt"]
        thread.transcript.check("node two has the receipt: answered", read["stage"] == "answered")


def _is_answered(params: JsonObject) -> bool:
    return bool(params["receipt"]["stage"] == "answered")


async def _lose_owner(thread: DemoThread, owner: ServerProcess) -> None:
    with thread.transcript.step("kill -9 node one, in a turn that waits for an approval"):
        await thread.begin(LOOK)
        request_id, asked = await thread.client.asked(ASKED)
        thread.transcript.say("server", asked["message"])
        await owner.kill()
        thread.transcript.say("one", "was killed; node two makes sure that it is dead")
        resolved = await thread.client.wait_for(RESOLVED, lambda params: True)
        withdrawn = resolved == {"threadId": thread.id, "requestId": request_id}
        thread.transcript.check("the question is withdrawn", withdrawn)
        turn = await thread.end()
        thread.transcript.check("the turn has an end", turn["status"] == "interrupted")
        owned = await _loaded(thread.client) == 1
        thread.transcript.check("the thread is node two's", owned)


async def _go_on(thread: DemoThread, before: Sequence[JsonObject]) -> None:
    with thread.transcript.step("The thread goes on, over the same connection"):
        turn = await _turn(thread, "Still there?")
        thread.transcript.check("the turn completed", turn["status"] == "completed")
        turns = await thread.turns()
        thread.transcript.check("turns of before are as they were", turns[:2] == before)
        statuses = [turn["status"] for turn in turns[2:]]
        ended = statuses == ["interrupted", "completed"]
        thread.transcript.check("none was lost or doubled", ended)


async def _find_again(thread: DemoThread, node: ServerProcess) -> None:
    turns = await thread.turns()
    async with node.connect() as client:
        there = DemoThread(thread.transcript, client, thread.id)
        resumed = await client.call("thread/resume", {"threadId": thread.id})
        same = resumed["thread"]["turns"] == turns
        thread.transcript.check("it shows every turn and item", same)
        turn = await _turn(there, "And from here?")
        thread.transcript.check("it has a turn of the thread", turn["status"] == "completed")
        thread.transcript.check("which is still node two's", await _loaded(client) == 0)


async def _turn(thread: DemoThread, text: str) -> JsonObject:
    await thread.begin(text)
    items = await thread.items("agentMessage")
    thread.transcript.say("model", items[-1]["text"])
    return await thread.end()


async def _loaded(client: Client) -> int:
    """Return how many threads the node of a client has in memory."""
    loaded: int = (await client.call("server/diagnostics", {}))["threads"]["loaded"]
    return loaded
