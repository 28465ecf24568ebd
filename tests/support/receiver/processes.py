"""Real bridges, routers and servers as processes, for tests and for `tests.long.real_reference`."""

import asyncio
import contextlib
import json
import re
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
from websockets.asyncio.client import connect

from app_server.clients.receiver.agent.environment import URL_VARIABLE
from app_server.clients.receiver.agent.item import line_holds
from app_server.clients.receiver.failpoints import KILL_AT, Step
from app_server.clients.receiver.router.wire import KEY_VARIABLE, RouterAddress
from app_server.peer.connection import identify
from tests.support.forks import ForkedProcess, fork_program
from tests.support.harness import WAIT_S, environment_without
from tests.support.receiver.peer import KEY

EXECUTABLE = Path(sys.executable).parent / "app-server"
ENTRY = "app_server.cli.entry"
START_S = 180.0
LOOK_S = 0.01

_OURS = (
    "PRISM_AGENT_SURFACE",
    "PRISM_CODEX_APP_SERVER_MODE",
    "PRISM_CODEX_APP_SERVER_URL",
    "PRISM_CODEX_THREAD_ID",
    "PRISM_ROUTER_URL",
    "PRISM_SESSION",
    "APP_SERVER_HOME",
    "CODEX_HOME",
    "OPENAI_API_KEY",
    KILL_AT,
)


def clean_environment(**more: str) -> dict[str, str]:
    """Return an environment without anything that the programs here read."""
    return environment_without(*_OURS) | {KEY_VARIABLE: KEY} | more


@dataclass
class BridgeProcess:
    """A bridge, and this test as its agent."""

    process: ForkedProcess
    session: str
    home: Path
    said: list[str] = field(default_factory=list)
    """What it wrote to stderr."""
    _calls: int = 0

    @property
    def ledger(self) -> Path:
        return self.home / "receiver" / f"{quote(self.session)}.sqlite3"

    async def request(self, method: str, params: Any) -> Any:
        """Make a request of MCP and return its result."""
        assert self.process.stdin is not None
        self._calls += 1
        message = {"jsonrpc": "2.0", "id": self._calls, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        await self.process.stdin.drain()
        return await self._answer(self._calls)

    async def _answer(self, call_id: int | str) -> Any:
        assert self.process.stdout is not None
        with anyio.fail_after(START_S):
            while line := await self.process.stdout.readline():
                answer = json.loads(line)
                if answer.get("id") == call_id:
                    return answer["result"]
        raise EOFError("".join(self.said))

    def greet(self) -> None:
        """Shake hands and ask for the tools, as an agent does, without waiting for the answers."""
        assert self.process.stdin is not None
        client = {"name": "agent", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        for message in (
            {"id": "hello", "method": "initialize", "params": params},
            {"method": "notifications/initialized"},
            {"id": "tools", "method": "tools/list", "params": {}},
        ):
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def initialize(self) -> Any:
        """Wait until hands are shaken."""
        return await self._answer("hello")

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool and return its structured result."""
        result = await self.request("tools/call", {"name": tool, "arguments": arguments})
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        assert result.get("isError", False) == ("error" in result["structuredContent"])
        return result["structuredContent"]

    async def until_status(self, **members: Any) -> None:
        """Wait until the status has these members."""
        with anyio.fail_after(START_S):
            while not members.items() <= (await self.call("prism_status")).items():
                await anyio.sleep(LOOK_S)

    async def ended(self) -> int:
        """Wait for the end and return the exit status."""
        with anyio.fail_after(START_S):
            return await self.process.wait()

    async def leave(self) -> int:
        """Close stdin, as an agent does that has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.ended()


@asynccontextmanager
async def bridge(
    home: Path,
    session: str = "Texi",
    *,
    router: str | None = None,
    server: str | None = None,
    cwd: Path | None = None,
    options: Sequence[str] = (),
    kill_at: Step | None = None,
    **environment: str,
) -> AsyncIterator[BridgeProcess]:
    """Start a bridge; leaving kills it."""
    more = environment | _dying_at(kill_at)
    if server is not None:
        more[URL_VARIABLE] = server
    words = ["receiver", "--home", str(home), "--session", session, *options]
    if router is not None:
        words += ["--router-url", router]
    process = await fork_program(
        ENTRY, *words, environment=clean_environment(**more), folder=cwd or home
    )
    made = BridgeProcess(process, session, home)
    made.greet()
    async with _killed(process), _listening(process, made.said):
        yield made


@asynccontextmanager
async def router_process(
    home: Path, port: int = 0, *, kill_at: Step | None = None, **environment: str
) -> AsyncIterator[tuple[str, ForkedProcess]]:
    """Start a demo router; gives its URL. Leaving kills it."""
    process = await fork_program(
        ENTRY,
        *("receiver", "--demo-router", "--home", str(home), "--port", str(port)),
        environment=clean_environment(**environment, **_dying_at(kill_at)),
        folder=home,
    )
    async with _killed(process):
        yield await read_url(process), process


@asynccontextmanager
async def server_process(
    home: Path, *options: str, **environment: str
) -> AsyncIterator[tuple[str, ForkedProcess]]:
    """Start an app-server that answers; gives its URL. Leaving kills it."""
    process = await fork_program(
        ENTRY,
        *("--home", str(home), *(options or ("--listen", "ws://127.0.0.1:0"))),
        environment=clean_environment(**environment),
        folder=home,
    )
    async with _killed(process):
        url = await read_url(process)
        await identify(url, "test", timeout_s=START_S)
        yield url, process


def _dying_at(step: Step | None) -> dict[str, str]:
    return {} if step is None else {KILL_AT: step}


async def read_url(process: ForkedProcess | asyncio.subprocess.Process) -> str:
    """Read from stderr where a process listens."""
    assert process.stderr is not None
    said = ""
    with anyio.fail_after(START_S):
        while line := (await process.stderr.readline()).decode():
            if found := re.search(r"listening on: (ws://\S+)", line):
                return found[1]
            said += line
    raise EOFError(said)


@asynccontextmanager
async def _killed(process: ForkedProcess) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await process.aclose()


@asynccontextmanager
async def _listening(process: ForkedProcess, said: list[str]) -> AsyncIterator[None]:
    assert process.stderr is not None
    stderr = process.stderr

    async def read() -> None:
        while line := await stderr.readline():
            said.append(line.decode())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        yield
        tasks.cancel_scope.cancel()


async def post(url: str, *sent: dict[str, Any], sender: str = "Desiree") -> None:
    """Give signals to a router."""
    address = RouterAddress(url, sender, KEY)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with connect(
        address.stream_url(None), additional_headers=headers, proxy=None, open_timeout=WAIT_S
    ) as socket:
        for one in sent:
            await socket.send(json.dumps({"type": "send", "signal": one}))
            with anyio.fail_after(START_S):
                assert json.loads(await socket.recv())["type"] == "accepted"


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    with anyio.fail_after(START_S):
        while not condition():
            await anyio.sleep(LOOK_S)


def states(ledger: Path) -> dict[str, str]:
    """Return the states of all signals in a ledger."""
    if not ledger.exists():
        return {}
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        try:
            return dict(connection.execute("SELECT id, state FROM signals ORDER BY place"))
        except sqlite3.OperationalError:
            return {}


def left_with_router(home: Path, session: str) -> list[str]:
    """Return the ids of signals that a session has not acknowledged."""
    path = home / "receiver" / "demo-router.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT id FROM signals WHERE session = ? AND acked = 0 ORDER BY place", (session,)
        )
        return [row[0] for row in rows]


def times_in_log(path: str, signal_id: str) -> int:
    """Count the items of a signal in the log of a thread."""
    with Path(path).open("rb") as log:
        return sum(line_holds(line, signal_id) for line in log)
