"""A turn with commands that is cut off at a point, and what must hold afterwards.

A point is how many messages of the turn the client has got. Nothing that a command started may
live, each turn has one end, the history has no open item, and the next turn works.
"""

import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.harness import Served, WireClient, serve, write_config
from tests.support.host.exec_peer import Holders
from tests.support.model import COMPLETED, ScriptedModel, calls, says
from tests.support.processes import running

ACCESS = {"sandbox": "danger-full-access", "approvalPolicy": "never"}

POINTS = 24
"""The turn has at least as many messages when nothing cuts it off."""


def scripts(held: Path) -> list[list[Any]]:
    """Script a turn: commands side by side that leave daemons, one behind the turn, a message."""
    hold = f'exec 9>"{held}"; printf x >&9; '
    stubborn = "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.1; done' &\n"

    def command(number: int, line: str, **arguments: Any) -> dict[str, Any]:
        return {
            "name": "exec_command",
            "call_id": f"call_{number}",
            "arguments": {"cmd": line, "login": False, **arguments},
        }

    def thinks(number: int) -> list[Any]:
        return says(f"step {number}", item_id=f"msg_{number}")[:-1]

    return [
        [*thinks(1), *calls(command(1, f"{hold}echo one; {stubborn}echo two; exit 3"))],
        [
            *thinks(2),
            *calls(
                command(2, f"{hold}echo a; sleep 0.1; echo b"),
                command(3, f"{hold}(setsid sleep 1000 &); echo c"),
            ),
        ],
        [*thinks(3), *calls(command(4, f"{hold}echo up; sleep 1000", yield_time_ms=250))],
        [*says("done", item_id="msg_4")[:-1], COMPLETED],
    ]


async def begin(client: WireClient, model: ScriptedModel, thread_id: str, held: Path) -> str:
    """Begin the turn; gives its id."""
    model.scripts[:] = scripts(held)
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
    result = await client.call("turn/start", params)
    turn_id: str = result["turn"]["id"]
    return turn_id


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Served, WireClient, Holders]]:
    """Serve with one client; what commands leave is watched."""
    async with (
        serve(folder / "home") as served,
        served.client() as client,
        Holders(folder).watch() as held,
    ):
        yield served, client, held


async def reach(client: WireClient, point: int) -> list[dict[str, Any]]:
    """Take messages up to a point; fewer if the turn ends before."""
    messages: list[dict[str, Any]] = []
    while len(messages) < point:
        messages.append(await client.receive())
        if messages[-1].get("method") == "turn/completed":
            break
    return messages


def one_end(messages: list[dict[str, Any]], turn_id: str) -> str:
    """Give how the turn ended, which clients got once; and each item's end at most once."""
    ends = [
        message["params"]["turn"]["status"]
        for message in messages
        if message.get("method") == "turn/completed" and message["params"]["turn"]["id"] == turn_id
    ]
    assert len(ends) == 1, messages
    completed = Counter(
        message["params"]["item"]["id"]
        for message in messages
        if message.get("method") == "item/completed"
    )
    started = Counter(
        message["params"]["item"]["id"]
        for message in messages
        if message.get("method") == "item/started"
    )
    assert set(completed.values()) <= {1}
    assert set(started.values()) <= {1}
    end: str = ends[0]
    return end


async def check_history(
    client: WireClient, model: ScriptedModel, thread_id: str, held: Holders
) -> None:
    """Check that the next turn works, that the history is whole, and that nothing lives."""
    model.scripts[:] = []
    done = await client.turn(thread_id, "next")
    assert done["status"] == "completed"
    answered = Counter(
        item["call_id"]
        for item in model.requests[-1]["input"]
        if item["type"] in ("function_call", "function_call_output")
    )
    assert set(answered.values()) <= {2}
    await client.call("thread/backgroundTerminals/clean", {"threadId": thread_id})
    read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
    turns = read["thread"]["turns"]
    assert [turn["status"] for turn in turns][-1] == "completed"
    assert "inProgress" not in {turn["status"] for turn in turns}
    items = [item for turn in turns for item in turn["items"]]
    assert [item for item in items if item.get("status") == "inProgress"] == []
    ids = Counter(item["id"] for item in items if item["type"] == "commandExecution")
    assert set(ids.values()) <= {1}
    assert set(await held.left()) <= {ord("x")}


async def cut_off_by_kill(folder: Path, point: int) -> None:
    """Kill a server at a point, and check what the next one makes of the thread."""
    home = folder / "home"
    async with ScriptedModel().serve() as model, Holders(folder).watch() as held:
        write_config(home, model.url)
        async with running(home) as server, server.client() as client:
            thread_id = await client.start_thread(**ACCESS)
            await begin(client, model, thread_id, held.path)
            await reach(client, point)
            server.process.send_signal(signal.SIGKILL)
            await server.ended()
        async with serve(home, model=model) as served, served.client() as client:
            await client.call("thread/resume", {"threadId": thread_id})
            await check_history(client, model, thread_id, held)
