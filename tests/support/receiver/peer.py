"""An app-server that does what a test says, and other things that tests of the receiver share."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.abc
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from app_server.clients.receiver.agent.environment import MODE_VARIABLE, URL_VARIABLE
from app_server.clients.receiver.agent.surface import CodexSurface, SurfaceContext
from app_server.clients.receiver.backoff import Backoff
from app_server.clients.receiver.bridge import Bridge
from app_server.clients.receiver.ledger import Ledger, LedgerLimits, open_ledger
from app_server.clients.receiver.router.envelope import Envelope, Mode, parse_envelope
from tests.support.harness import WAIT_S

KEY = "key-of-the-router"
NOW = 1_800_000_000

Inject = Literal["ok", "refuse", "fail", "close", "hang", "keep and close", "keep and fail"]


def signal(signal_id: str, **members: Any) -> dict[str, Any]:
    """Return a signal as a router sends it."""
    return {
        "signal_id": signal_id,
        "signal_type": "Question",
        "from": "Desiree",
        "to": "Texi",
        "payload": {"summary": f"about {signal_id}", "more": [1, 2]},
        **members,
    }


def envelope(signal_id: str, **members: Any) -> Envelope:
    """Return a signal as it was read."""
    return parse_envelope(signal(signal_id, **members))


@dataclass
class FakeThread:
    """A loaded thread."""

    id: str
    cwd: str
    created_at: int = 1
    path: str | None = None
    parent: str | None = None
    loaded: bool = True

    def to_wire(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "cwd": self.cwd,
            "createdAt": self.created_at,
            "path": self.path,
            "parentThreadId": self.parent,
            "ephemeral": self.path is None,
        }


@dataclass
class FakeAppServer:
    """Answers what the bridge asks; what it was asked is in `requests`."""

    folder: Path
    url: str = ""
    inject: Inject = "ok"
    receipts: dict[str, str] | None = None
    """By signal id: the stage of its receipt, else `inHistory`; None: there are no such methods."""
    threads: list[FakeThread] = field(default_factory=list)
    requests: list[tuple[str, Any]] = field(default_factory=list)
    on_hang: Callable[[], None] = field(default=lambda: None)
    """Called when a request comes that is not answered."""
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with every `thread/inject_items` and `signal/deliver`."""
    connections: int = 0
    kept: list[str] = field(default_factory=list)
    """Signals that `signal/deliver` took."""

    def add_thread(self, thread_id: str = "t1", **members: Any) -> FakeThread:
        """Add a loaded thread with an empty log."""
        path = self.folder / f"{thread_id}.jsonl"
        path.touch()
        thread = FakeThread(thread_id, **{"cwd": "/work", "path": str(path), **members})
        self.threads.append(thread)
        return thread

    def texts(self, thread_id: str = "t1") -> list[str]:
        """Return the items in a thread's log."""
        lines = (self.folder / f"{thread_id}.jsonl").read_text().splitlines()
        return [json.loads(line)["payload"]["content"][0]["text"] for line in lines]

    def ids(self, thread_id: str = "t1") -> list[str]:
        """Return the ids of the signals in a thread's log."""
        return [
            json.loads(text.split("\nid: ")[1].split("\n")[0]) for text in self.texts(thread_id)
        ]

    def methods(self) -> list[str]:
        """Return what it was asked."""
        return [method for method, _ in self.requests]

    @asynccontextmanager
    async def listen(self) -> AsyncIterator["FakeAppServer"]:
        """Listen while the context lasts."""
        async with serve(self._converse, "127.0.0.1", 0) as server:
            self.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    async def _converse(self, socket: ServerConnection) -> None:
        self.connections += 1
        try:
            async for text in socket:
                message = json.loads(text)
                if "id" in message:
                    await self._answer(socket, message)
        except ConnectionClosed:
            return

    async def _answer(self, socket: ServerConnection, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params", {})
        self.requests.append((method, params))
        try:
            result = await self._result(socket, method, params)
        except FakeError as exc:
            error = {"code": exc.code, "message": str(exc), "data": exc.data}
            await socket.send(json.dumps({"id": message["id"], "error": error}))
        else:
            await socket.send(json.dumps({"id": message["id"], "result": result}))

    async def _result(self, socket: ServerConnection, method: str, params: Any) -> Any:
        match method:
            case "initialize":
                return {"userAgent": "fake/1", "codexHome": str(self.folder)}
            case "thread/loaded/list":
                return {"data": [one.id for one in self.threads if one.loaded], "nextCursor": None}
            case "thread/read":
                return {"thread": self._thread(params, loaded=False).to_wire()}
            case "thread/resume":
                thread = self._thread(params, loaded=False)
                thread.loaded = True
                return {"thread": thread.to_wire()}
            case "thread/unsubscribe":
                return {"status": "unsubscribed"}
            case "thread/inject_items":
                self.asked.set()
                await self._inject(socket, params)
                return {}
            case "signal/list" if self.receipts is not None:
                return {"data": [], "nextCursor": None}
            case "signal/deliver" if self.receipts is not None:
                self.asked.set()
                self.kept.append(params["signal"]["id"])
                if self.inject == "keep and close":
                    await socket.close()
                return self._receipt(params["signal"]["id"])
            case "signal/read" if self.receipts is not None:
                if params["id"] not in self.kept:
                    raise FakeError(-32600, "no such signal", {"code": "signalNotFound"})
                return self._receipt(params["id"])
        raise FakeError(-32601, f"Method not found: {method}")

    def _receipt(self, signal_id: str) -> Any:
        assert self.receipts is not None
        return {"receipt": {"stage": self.receipts.get(signal_id, "inHistory")}}

    async def _inject(self, socket: ServerConnection, params: Any) -> None:
        thread = self._thread(params, loaded=True)
        if self.inject == "refuse":
            raise FakeError(-32600, "not this item")
        if self.inject == "fail":
            raise FakeError(-32603, "Internal error")
        if self.inject in ("ok", "keep and close", "keep and fail"):
            assert thread.path is not None
            _append(Path(thread.path), params["items"])
        if self.inject == "keep and fail":
            raise FakeError(-32603, "Internal error")
        if self.inject in ("close", "keep and close"):
            await socket.close()
            await socket.wait_closed()
        if self.inject == "hang":
            self.on_hang()
            await socket.wait_closed()

    def _thread(self, params: Any, *, loaded: bool) -> FakeThread:
        for thread in self.threads:
            if thread.id == params["threadId"] and (thread.loaded or not loaded):
                return thread
        raise FakeError(-32600, f"thread not found: {params['threadId']}")


def _append(log: Path, items: list[Any]) -> None:
    with log.open("a") as file:
        for item in items:
            file.write(json.dumps({"type": "response_item", "payload": item}) + "\n")


class FakeError(Exception):
    """An error on the wire."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def context(url: str | None = None, cwd: str = "/work", **environ: str) -> SurfaceContext:
    """Return a session of an agent."""
    variables = environ if url is None else {URL_VARIABLE: url, **environ}
    return SurfaceContext(variables, Path(cwd), Path("/nowhere"))


OFF = {MODE_VARIABLE: "off"}


@dataclass
class Parts:
    """A bridge without its stream and its tools."""

    ledger: Ledger
    surface: CodexSurface
    bridge: Bridge
    tasks: anyio.abc.TaskGroup
    delays: list[float] = field(default_factory=list)


@contextmanager
def ledger_at(path: Path, **limits: int) -> Iterator[Ledger]:
    """Open a ledger."""
    with open_ledger(path, LedgerLimits(**limits)) as ledger:
        yield ledger


async def limit_pages(ledger: Ledger, count: int) -> None:
    """Let the file of a ledger grow to so many pages, as a full disk would."""
    await ledger._file.run(lambda sql: sql.execute(f"PRAGMA max_page_count = {count}").fetchone())


@asynccontextmanager
async def parts(
    path: Path,
    *,
    now: Callable[[], int] = lambda: NOW,
    modes: Mapping[str, Mode] | None = None,
    **limits: int,
) -> AsyncIterator[Parts]:
    """Make a bridge with a ledger in `path`."""
    with ledger_at(path / "ledger.sqlite3", **limits) as ledger:
        async with anyio.create_task_group() as tasks:
            surface = CodexSurface(ledger, tasks, deadline_s=WAIT_S)
            bridge = Bridge(ledger, surface, Backoff(chance=lambda: 0.0), now, modes or {})
            yield Parts(ledger, surface, bridge, tasks)
            tasks.cancel_scope.cancel()
