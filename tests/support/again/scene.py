"""A home in which every method that changes something has something to change."""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.harness import Served, WireClient, serve
from tests.support.model import Gate, ScriptedModel, says

WAITS = "wait for ever"
"""Input with this runs until it is interrupted."""
DRAFT = ".feedback-"
"""Begins the name of a file that is no report yet; a server that is killed leaves it."""
NOISE = frozenset(
    {
        "approvalDecided",
        "historyCompacted",
        "inputTaken",
        "itemCompleted",
        "itemEnded",
        "itemLeftRunning",
        "operationLogged",
        "readStateChanged",
        "tokensUsed",
        "turnCompleted",
        "usageRecorded",
    }
)
"""Records that a turn writes by itself, or a load for it."""


@contextmanager
def scene_model() -> Iterator[ScriptedModel]:
    """Make the model of a scene; what waits in it goes on at the end."""
    model, gates = ScriptedModel(), [Gate()]

    def choose(body: dict[str, Any]) -> list[Any]:
        if WAITS not in json.dumps(body["input"][-1:]):
            return says("done")
        gates.append(Gate())
        return [*says("part")[:3], gates[-1]]

    model.choose = choose
    try:
        yield model
    finally:
        for gate in gates:
            gate.opened.set()


@asynccontextmanager
async def set_up(home: Path) -> AsyncIterator[tuple[Served, WireClient, "Scene"]]:
    """Run a server with a scene, and a client that has made it."""
    with scene_model() as model:
        async with serve(home, model=model) as served, served.client() as client:
            yield served, client, await set_scene(home, client)


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is before a request is sent."""

    home: Path
    idle: str
    """A thread with one turn, and an attachment and a goal."""
    turn_id: str
    revision: str
    """Of its read state."""
    busy: str
    """A thread with a turn that runs."""
    busy_turn: str
    queueing: str
    """A thread with two inputs in its queue, which is paused."""
    queued: Sequence[str]
    archived: str
    project_id: str
    section_id: str
    wake_id: str

    @property
    def workspace(self) -> Path:
        """The folder of the files."""
        return self.home / "work"

    def with_turn(self, turn_id: str) -> "Scene":
        """Return the scene with another turn that runs."""
        return replace(self, busy_turn=turn_id)

    @property
    def threads(self) -> Sequence[str]:
        """All threads that can be resumed."""
        return self.idle, self.busy, self.queueing


def text(words: str) -> list[dict[str, Any]]:
    """Make the input of a turn."""
    return [{"type": "text", "text": words}]


async def set_scene(home: Path, client: WireClient) -> Scene:
    """Make what requests need."""
    workspace = home / "work"
    (workspace / "folder").mkdir(parents=True)
    (workspace / "a.txt").write_text("a")
    make_marketplace(workspace / "market", "market")
    make_marketplace(workspace / "known", "known")
    await client.call("marketplace/add", {"source": str(workspace / "known")})
    plugin = workspace / "known" / ".agents" / "plugins" / "marketplace.json"
    known = {"pluginName": "plug", "marketplacePath": str(plugin)}
    await client.call("plugin/install", known)
    idle, busy, queueing, archived = [await client.start_thread() for _ in range(4)]
    turn = await client.turn(idle, "hello")
    await client.turn(archived, "hello")
    await client.call("thread/archive", {"threadId": archived})
    note = {"attachmentType": "note", "identityKey": "old", "payload": {}}
    await client.call("thread/attachment/add", {"threadId": idle, **note})
    goal = {"threadId": idle, "objective": "Be done.", "status": "paused"}
    await client.call("thread/goal/set", goal)
    read = await client.call("thread/read", {"threadId": idle})
    running = await client.call("turn/start", {"threadId": busy, "input": text(WAITS)})
    await client.wait_for("item/agentMessage/delta", lambda p: p["threadId"] == busy)
    stopped = await client.call("turn/start", {"threadId": queueing, "input": text(WAITS)})
    await client.wait_for("item/agentMessage/delta", lambda p: p["threadId"] == queueing)
    queued = []
    for words in ("first", "second"):
        added = {"threadId": queueing, "input": text(words), "clientUserMessageId": words}
        answer = await client.call("thread/queue/add", added)
        queued.append(answer["queuedSubmission"]["id"])
    stop = {"threadId": queueing, "turnId": stopped["turn"]["id"]}
    await client.call("turn/interrupt", stop)
    await client.wait_for("turn/completed", lambda p: p["threadId"] == queueing)
    signal = {"source": "tests", "id": "old", "type": "Note", "sender": "ann", "summary": "Hi"}
    waiting = {"signal": signal, "target": {"threadId": idle}, "mode": "passive"}
    await client.call("signal/deliver", waiting)
    root = [{"path": str(workspace)}]
    project = await client.call(
        "project/create", {"name": "p", "roots": root, "idempotencyKey": "old"}
    )
    section = await client.call("threadSection/create", {"name": "s"})
    timer = {"threadId": idle, "source": {"type": "timer", "everySecs": 7200}}
    wake = await client.call("thread/wake/set", timer)
    return Scene(
        home=home,
        idle=idle,
        turn_id=turn["id"],
        revision=read["readState"]["revision"],
        busy=busy,
        busy_turn=running["turn"]["id"],
        queueing=queueing,
        queued=queued,
        archived=archived,
        project_id=project["project"]["id"],
        section_id=section["section"]["id"],
        wake_id=wake["wake"]["id"],
    )


def make_marketplace(folder: Path, name: str) -> None:
    """Make a folder with a marketplace of one plugin."""
    (folder / ".agents" / "plugins").mkdir(parents=True)
    (folder / "plugin" / ".codex-plugin").mkdir(parents=True)
    (folder / "plugin" / ".codex-plugin" / "plugin.json").write_text(json.dumps({"name": "plug"}))
    (folder / ".agents" / "plugins" / "marketplace.json").write_text(
        json.dumps(
            {
                "name": name,
                "plugins": [{"name": "plug", "source": {"source": "local", "path": "./plugin"}}],
            }
        )
    )


def _is_answer(record: dict[str, Any]) -> bool:
    """Whether a line has what a model said."""
    return record["type"] == "historyAppended" and all(
        item.get("role") not in ("user", "developer") for item in record["items"]
    )


async def settled(home: Path, client: WireClient) -> Mapping[str, Any]:
    """Return what requests have changed, once the turns that they begin have ended."""
    for thread_id in (await client.call("thread/loaded/list", {}))["data"]:
        await client.call("thread/resume", {"threadId": thread_id, "excludeTurns": True})
    busy = 2
    while busy > 1:
        listed = (await client.call("thread/list", {}))["data"]
        busy = sum(thread["status"]["type"] == "active" for thread in listed)
    return world(home)


def logged(log: bytes) -> Counter[str]:
    """Count the records of a log that requests have written, by their types."""
    records = map(json.loads, log.splitlines())
    return Counter(
        record["type"]
        for record in records
        if record["type"] not in NOISE and not _is_answer(record)
    )


def world(home: Path, *, with_history: bool = True) -> Mapping[str, Any]:
    """Return what requests have changed on disk, without ids and times.

    A turn adds to the history by itself.
    """
    records: Counter[str] = Counter()
    for log in (home / "threads").rglob("*.jsonl"):
        records.update(logged(log.read_bytes()))
    if not with_history:
        del records["historyAppended"]
    filing = home / "filing.jsonl"
    lines = filing.read_text().splitlines() if filing.exists() else []
    records.update(json.loads(line)["type"] for line in lines)
    return {
        "records": dict(records),
        "config": re.sub(r"127\.0\.0\.1:\d+", "HOST", (home / "config.toml").read_text()).replace(
            str(home), "HOME"
        ),
        "files": sorted(
            str(path.relative_to(home / "work"))
            for path in (home / "work").rglob("*")
            if not path.name.startswith(DRAFT)
        ),
    }
