"""Threads of two owners in one connection of a client, at a node that owns neither of them."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import WireClient, stdio_server
from tests.support.mcp_peers.calls import asking
from tests.support.model import Gate, calls, says
from tests.support.receiver.signals import deliver
from tests.support.receiver.stages import stage
from tests.support.threads.nodes import Nodes, running_nodes
from tests.support.turn_tools.command_questions import QUESTION, command
from tests.support.turns import start_turn, text_input

pytestmark = pytest.mark.postgresql

ASKS: dict[str, Any] = {"sandbox": "danger-full-access", "approvalPolicy": "untrusted"}
LOOK = {
    "type": "function",
    "name": "look",
    "description": "Look.",
    "inputSchema": {"type": "object", "properties": {}},
}
ASKED = "mcpServer/elicitation/request"
FORM: dict[str, Any] = {
    "mode": "form",
    "message": "Who?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}
LINK = {"mode": "url", "message": "Go", "url": "https://example.com/", "elicitationId": "e1"}


@dataclass
class TwoOwners:
    """A thread of each of two nodes, and a client of a third one that follows both."""

    nodes: Nodes
    client: WireClient
    one: str
    two: str
    streams: dict[str, str]
    """Of the threads, as the client was told."""

    async def of_both(self, method: str) -> dict[str, Any]:
        """Wait for the first message of each thread, and drop what comes between; by thread."""
        found: dict[str, Any] = {}
        while len(found) < 2:
            message = await self.client.wait_for(method)
            found.setdefault(message["params"]["threadId"], message)
        return found

    async def to_both_ends(self) -> list[dict[str, Any]]:
        """Return what comes up to the end of a turn of each thread."""
        heard = await self.client.until("turn/completed")
        return heard + await self.client.until("turn/completed")


@asynccontextmanager
async def two_owners(
    folder: Path, url: str, config: str = "", **params: Any
) -> AsyncIterator[TwoOwners]:
    async with running_nodes(folder, url, 3, config=config) as nodes, AsyncExitStack() as stack:
        first, second, client = [
            await stack.enter_async_context(node.client()) for node in nodes.all
        ]
        threads = [await owner.start_thread(**params) for owner in (first, second)]
        streams = {}
        for thread_id in threads:
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            streams[thread_id] = resumed["streamId"]
        one, two = threads
        yield TwoOwners(nodes, client, one, two, streams)


def _acts(body: dict[str, Any]) -> list[Any]:
    """Make the model: it does what was typed last, then says that it is done."""
    last = body["input"][-1]
    if "output" in last:
        return says("done")
    text = last["content"][-1]["text"]
    return calls({"name": "look"} if text == "look" else command(f"touch {text}"))


def _thread_of(params: dict[str, Any]) -> Any:
    """Return the thread that an event is about; None: none."""
    return params.get("receipt", params).get("threadId")


async def test_questions_of_two_owners_are_open_at_once(tmp_path: Path, database_url: str) -> None:
    config = stdio_server("raw")
    async with two_owners(tmp_path, database_url, config, dynamicTools=[LOOK], **ASKS) as at:
        client = at.client
        at.nodes.model.choose = _acts
        for thread_id in (at.one, at.two):
            await start_turn(client, thread_id, "made")
        asked = await at.of_both(QUESTION)
        assert asked[at.one]["id"] != asked[at.two]["id"]
        # What came last is answered first.
        await client.send({"id": asked[at.two]["id"], "result": {"decision": "accept"}})
        await client.send({"id": asked[at.one]["id"], "result": {"decision": "decline"}})
        heard = await at.to_both_ends()
        resolved = [m["params"] for m in heard if m["method"] == "serverRequest/resolved"]
        assert {one["threadId"]: one["requestId"] for one in resolved} == {
            thread_id: question["id"] for thread_id, question in asked.items()
        }
        made = [(at.nodes.home(number) / "made").exists() for number in range(2)]
        assert made == [False, True]
        # A tool of the client, for both.
        for thread_id in (at.one, at.two):
            await start_turn(client, thread_id, "look")
        for thread_id, question in (await at.of_both("item/tool/call")).items():
            content = [{"type": "inputText", "text": f"seen by {thread_id}"}]
            answer = {"contentItems": content, "success": True}
            await client.send({"id": question["id"], "result": answer})
        await at.to_both_ends()
        for thread_id in (at.one, at.two):
            read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
            assert f"seen by {thread_id}" in json.dumps(read["thread"]["turns"][-1])
        # A form of the one's server, and a link of the other's.
        called = {
            thread_id: await client.request(
                "mcpServer/tool/call",
                {
                    "threadId": thread_id,
                    "server": "raw",
                    "tool": "request",
                    "arguments": asking(elicitation)["arguments"],
                },
            )
            for thread_id, elicitation in ((at.one, FORM), (at.two, LINK))
        }
        questions = await at.of_both(ASKED)
        assert [questions[one]["params"]["mode"] for one in (at.one, at.two)] == ["form", "url"]
        form = {"action": "accept", "content": {"name": "me"}}
        link = {"action": "accept", "content": None}
        await client.send({"id": questions[at.two]["id"], "result": link})
        await client.send({"id": questions[at.one]["id"], "result": form})
        results = [
            json.loads((await client.answer(called[one]))["result"]["content"][0]["text"])["result"]
            for one in (at.one, at.two)
        ]
        assert results == [form, {"action": "accept"}]


async def test_turns_of_two_owners_are_steered_interrupted_woken_and_replayed(
    tmp_path: Path, database_url: str
) -> None:
    async with two_owners(tmp_path, database_url) as at:
        client, model = at.client, at.nodes.model
        gates = {"one": Gate(), "two": Gate(), "stay": Gate()}

        def choose(body: dict[str, Any]) -> list[Any]:
            text = body["input"][-1]["content"][-1]["text"]
            return [gates[text], *says(text)] if text in gates else says("more")

        model.choose = choose
        turns = {
            thread_id: await start_turn(client, thread_id, name)
            for thread_id, name in ((at.one, "one"), (at.two, "two"))
        }
        for name in ("one", "two"):
            await gates[name].wait_until_reached()
        # Each cuts off the request that is under way, and begins one that has it.
        for thread_id, text in ((at.two, "stay"), (at.one, "other")):
            steer = {
                "threadId": thread_id,
                "expectedTurnId": turns[thread_id],
                "input": text_input(text),
            }
            assert await client.call("turn/steer", steer) == {"turnId": turns[thread_id]}
        await gates["stay"].wait_until_reached()
        stop = {"threadId": at.two, "turnId": turns[at.two]}
        await client.call("turn/interrupt", stop)
        ended = await at.of_both("turn/completed")
        statuses = [ended[one]["params"]["turn"]["status"] for one in (at.one, at.two)]
        assert statuses == ["completed", "interrupted"]
        for number, thread_id in enumerate((at.one, at.two)):
            receipt = await deliver(client, thread_id, signal_id=f"s{number}", mode="wake")
            assert receipt["woken"], receipt
            await stage(client, f"s{number}", "answered")
        # Another client has both threads from where it was.
        async with at.nodes.all[2].client() as again:
            for thread_id in (at.one, at.two):
                known = {"streamId": at.streams[thread_id], "afterSeq": 2}
                replayed = await again.call("thread/resume", {"threadId": thread_id, **known})
                assert replayed["resyncRequired"] is False
                heard: list[Any] = []
                ends: list[Any] = []
                while len(ends) < 2:
                    heard += await again.until("turn/completed")
                    own = [m for m in heard if _thread_of(m["params"]) == thread_id]
                    ends = [m for m in own if m["method"] == "turn/completed"]
                seqs = [m["seq"] for m in own if "seq" in m]
                assert seqs == list(range(3, 3 + len(seqs)))
                assert ends[0]["params"]["turn"]["id"] == turns[thread_id]
