"""Makes calls on one server and says of what class each answer is."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from protocol.contract.methods import METHODS
from tests.interop.methods.cases import Case, cases_of, methods
from tests.interop.methods.valid import Facts, valid_params
from tests.interop.tools.play import Client, Place, opened, running
from tests.support.model import ScriptedModel, says

ANSWER_S = 30.0
BEGIN_TURNS = ("review/start", "thread/compact/start", "thread/shellCommand", "turn/start")
INVALID_PARAMS = "invalid params"
NO_ANSWER = "no answer"
CLOSED = "connection closed"


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one call: its class, and for people its text."""

    kind: str
    """`ok`, the code of an error, INVALID_PARAMS, or why there is no answer."""
    members: frozenset[str] = frozenset()
    """Of a result."""
    text: str = ""
    status: str = ""
    """Of the thread in a result."""


async def answers(command: str, chosen: Sequence[str]) -> dict[str, Answer]:
    """Call the chosen methods on a server of its own; gives the answers by case."""
    async with ScriptedModel().serve() as model, running(command, model) as (place, url):
        model.scripts[:] = [says("Hello.") for _ in range(50)]
        facts = await prepare(url, place)
        found = {
            f"{name} {state}": answer
            for state in ("before initialize", "without the opt-in")
            for name, answer in (await _unready(url, chosen, state, facts)).items()
        }
        async with Caller(url) as caller:
            for case in _cases(chosen, facts):
                found[str(case)] = await caller.call(case.method, case.params)
                if case.method in BEGIN_TURNS:
                    await until_idle(caller, (facts.thread_id, facts.other_thread_id))
        return found


def _cases(chosen: Sequence[str], facts: Facts) -> Iterator[Case]:
    valid = valid_params(facts)
    for method in methods():
        if method in chosen:
            yield from cases_of(method, valid.get(method, {}))


async def _unready(url: str, chosen: Sequence[str], state: str, facts: Facts) -> dict[str, Answer]:
    valid = valid_params(facts)
    opts_in = None if state == "before initialize" else False
    async with Caller(url, opts_in=opts_in) as caller:
        # What is stable is called with all else.
        called = [name for name in chosen if opts_in is None or METHODS[name].experimental]
        return {name: await caller.call(name, valid.get(name, {})) for name in called}


async def until_idle(caller: "Caller", thread_ids: Sequence[str]) -> None:
    """Wait until no turn of these threads runs."""
    with anyio.fail_after(ANSWER_S):
        for thread_id in thread_ids:
            while "active" in await caller.status(thread_id):
                await anyio.sleep(0.01)


async def prepare(url: str, place: Place) -> Facts:
    """Make what the calls are about: a workspace, two threads with a turn, a project, a section."""
    workspace: Path = place.root / "workspace"
    workspace.mkdir()
    (workspace / "a.txt").write_text("a\n")
    client = Client(await opened(url))
    hello = {"clientInfo": {"name": "m", "version": "1"}, "capabilities": {"experimentalApi": True}}
    await client.call("initialize", hello)
    await client.send({"method": "initialized"})
    ids = []
    for _ in range(2):
        begun = await client.call("thread/start", {"cwd": str(workspace)})
        ids.append(begun["thread"]["id"])
        text = [{"type": "text", "text": "Hello."}]
        await client.call("turn/start", {"threadId": ids[-1], "input": text})
        while (await client.receive()).get("method") != "turn/completed":
            pass
    read = await client.call("thread/read", {"threadId": ids[0], "includeTurns": True})
    [turn] = read["thread"]["turns"]
    roots = [{"path": str(workspace)}]
    project = {"name": "zero", "roots": roots, "idempotencyKey": "prepared"}
    project_id = (await client.call("project/create", project))["project"]["id"]
    section_id = (await client.call("threadSection/create", {"name": "Zero"}))["section"]["id"]
    await client.close()
    item_id = turn["items"][0]["id"]
    return Facts(workspace, ids[0], turn["id"], item_id, ids[1], project_id, section_id)


class Caller:
    """A connection that is made again where the server closes it."""

    def __init__(self, url: str, *, opts_in: bool | None = True) -> None:
        """`opts_in` None: the handshake is left out."""
        self._url = url
        self._opts_in = opts_in
        self._socket: ClientConnection | None = None
        self._sent = 0

    async def __aenter__(self) -> "Caller":
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._socket is not None:
            await self._socket.close()

    async def call(self, method: str, params: Any) -> Answer:
        try:
            with anyio.fail_after(ANSWER_S):
                if self._socket is None:
                    await self._connect()
                return await self._exchange(method, params)
        except TimeoutError:
            return Answer(NO_ANSWER)
        except ConnectionClosed:
            self._socket = None
            return Answer(CLOSED)

    async def status(self, thread_id: str) -> str:
        """Return the type of a thread's status; empty if there is no such thread."""
        answer = await self.call("thread/read", {"threadId": thread_id})
        return answer.status

    async def _connect(self) -> None:
        self._socket = await opened(self._url)
        if self._opts_in is not None:
            await self._exchange(
                "initialize",
                {
                    "clientInfo": {"name": "m", "version": "1"},
                    "capabilities": {"experimentalApi": self._opts_in},
                },
            )
            await self._socket.send(json.dumps({"method": "initialized"}))

    async def _exchange(self, method: str, params: Any) -> Answer:
        return _classified(await self.message(method, params))

    async def message(self, method: str, params: Any) -> dict[str, Any]:
        """Call a method, and return the whole answer; questions meanwhile are refused."""
        if self._socket is None:
            await self._connect()
        assert self._socket is not None
        self._sent += 1
        request = {"id": self._sent, "method": method}
        await self._socket.send(
            json.dumps(request if params is None else {**request, "params": params})
        )
        while True:
            message: dict[str, Any] = json.loads(await self._socket.recv())
            if "method" in message:
                if "id" in message:
                    refusal = {"code": -32000, "message": "not now"}
                    await self._socket.send(json.dumps({"id": message["id"], "error": refusal}))
            elif message.get("id") == self._sent:
                return message


def _classified(message: dict[str, Any]) -> Answer:
    if "error" in message:
        code, text = message["error"]["code"], message["error"]["message"]
        # JSON-RPC 2.0 has -32602 for params that do not fit; the reference says -32600.
        is_about_params = code == -32602 or text.startswith("Invalid request: ")
        return Answer(INVALID_PARAMS if is_about_params else str(code), text=text)
    result = message["result"]
    if not isinstance(result, dict):
        return Answer("ok")
    thread = result.get("thread")
    status = thread.get("status", {}).get("type", "") if isinstance(thread, dict) else ""
    return Answer("ok", frozenset(result), status=status)
