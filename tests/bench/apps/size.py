"""Apps at size: 100 of them with 40 tools each and three threads, beside the reference.

python -m tests.bench.apps.size [--codex PATH] [--apps N] [--tools N] [--threads N] [--rounds N]
                                [--callbacks N]

A hosted endpoint that answers from memory runs in a process of its own, and so does each server;
both servers have the same home, account, model and endpoint, one after the other. Changed reloads
change every tool in one round and one tool in the next. With `--callbacks` the longest callbacks of
this server's event loop are printed as well. These are figures to look at, not tests.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from pydantic_core import from_json, to_json
from starlette.types import Receive, Scope, Send

from app_server.clients.demo.hosted.endpoint import READS, Call, HostedConnector, JsonObject
from app_server.peer.connection import Client, open_client
from app_server.runtime.http.loopback_server import serve_on_loopback
from protocol.jsonrpc.errors import RpcError
from tests.bench.processor.callbacks import watched
from tests.support.accounts.issuer_peer import make_jwt
from tests.support.harness import write_config
from tests.support.model import ScriptedModel

ACCOUNT = "acct-1"
A_DAY_IN_3000 = 32_500_000_000
PAUSE_S = 0.002
"""Between two questions of the client that watches."""
PATIENCE_S = 120.0
IDLE_S = 0.02
"""Of a core in a second; a server that uses no more has nothing to do."""
END_S = 15.0
STARTUP = "mcpServer/startupStatus/updated"
"""For a server to end by itself."""


class Endpoint:
    """A hosted endpoint that has every answer ready; an ASGI application."""

    def __init__(self, apps: int, tools: int) -> None:
        self._apps, self._tools = apps, tools
        self._version = self._every = 0
        self._lists = b""
        self.change("none")

    def change(self, how: str) -> None:
        """List other tools: `all`, `one`, or the same."""
        self._version += how != "none"
        if how == "all":
            self._every = self._version
        made = []
        for number in range(self._apps):
            bare = HostedConnector(f"app-{number}", f"App{number}", "An app of a bench.")
            for one in range(self._tools):
                is_last = (number, one) == (self._apps - 1, self._tools - 1)
                version = self._version if is_last else self._every
                words = {"type": "string", "description": f"Some words, version {version}."}
                named, said = f"tool_{one}", "Does something."
                tool = bare.tool(named, said, {"text": words}, READS, nothing)
                made.append(tool.definition)
        self._lists = to_json({"tools": made})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        body = b""
        more = scope["method"] == "POST"
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        if scope["path"].startswith("/change/"):
            self.change(scope["path"].removeprefix("/change/"))
            await _answer(send, 200, b"{}")
        elif scope["path"] != "/backend-api/ps/mcp":
            await _answer(send, 404, b"{}")
        elif scope["method"] != "POST":
            await _answer(send, 405 if scope["method"] == "GET" else 200, b"")
        else:
            await self._converse(from_json(body), send)

    async def _converse(self, message: dict[str, Any], send: Send) -> None:
        match message.get("method"):
            case "initialize":
                result = to_json(
                    {
                        "protocolVersion": message["params"]["protocolVersion"],
                        "capabilities": {"tools": {}},
                        "serverInfo": {"name": "bench", "version": "1"},
                    }
                )
            case "tools/list":
                result = self._lists
            case _ if "id" in message:
                result = to_json({"content": [], "resources": [], "resourceTemplates": []})
            case _:
                await _answer(send, 202, b"")
                return
        begin = b'{"jsonrpc":"2.0","id":%b,"result":' % to_json(message["id"])
        await _answer(send, 200, begin + result + b"}")


async def nothing(call: Call) -> JsonObject:
    """Answer no call: tools are listed only."""
    raise NotImplementedError


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"mcp-session-id", b"bench"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def serve_endpoint(apps: int, tools: int) -> None:
    """Serve until killed; prints where."""
    async with serve_on_loopback(Endpoint(apps, tools)) as port:
        print(port, flush=True)
        await asyncio.get_running_loop().create_future()


@dataclass(frozen=True)
class Size:
    """How much there is, and how often reloads are measured."""

    apps: int = 100
    tools: int = 40
    """Of each app."""
    threads: int = 3
    rounds: int = 5


SIZE = Size()


def make_home(home: Path, model_url: str, endpoint: str) -> None:
    """Write settings and a sign-in that both servers read."""
    config = f'chatgpt_base_url = "{endpoint}/backend-api"\n[features]\napps = true\n'
    write_config(home, model_url, config)
    auth = {
        "chatgpt_account_id": ACCOUNT,
        "chatgpt_user_id": "user-1",
        "chatgpt_plan_type": "pro",
    }
    token = make_jwt(
        exp=A_DAY_IN_3000, email="a@example.com", **{"https://api.openai.com/auth": auth}
    )
    tokens = {"id_token": token, "access_token": token, "refresh_token": "r"}
    stored = {
        "auth_mode": "chatgpt",
        "OPENAI_API_KEY": None,
        "tokens": {**tokens, "account_id": ACCOUNT},
        "last_refresh": "2026-11-21T06:52:10.032057970Z",
    }
    (home / "auth.json").write_text(json.dumps(stored))


@asynccontextmanager
async def running(command: list[str], home: Path) -> AsyncIterator[tuple[str, int]]:
    """Start a server; gives its URL and process id."""
    # Modules are compiled once, as where the package is installed.
    left_out = {"PYTHONDONTWRITEBYTECODE"}
    environment = {
        **{k: v for k, v in os.environ.items() if "proxy" not in k.lower() and k not in left_out},
        "CODEX_HOME": str(home),
        "HOME": str(home),
        "APP_SERVER_HOME": str(home),
    }
    said = home / "said"
    with said.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--listen", "ws://127.0.0.1:0"],
            env=environment,
            cwd=home,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        while not (found := re.findall(r"ws://127\.0\.0\.1:[1-9]\d*", said.read_text())):
            if process.poll() is not None:
                raise EOFError(f"the server ended before it was ready: {said.read_text()}")
            await asyncio.sleep(0.01)
        yield found[0], _deepest(process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _deepest(pid: int) -> int:
    """Return the process that a launcher started, or the process itself."""
    while True:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        named = [int(c) for c in children if "codex" in Path(f"/proc/{c}/cmdline").read_text()]
        if not named:
            return pid
        pid = named[0]


def offered(model: ScriptedModel) -> int:
    """Count the tools of apps that the last model request declared."""
    return sum(
        len(entry["tools"])
        for entry in model.requests[-1].get("tools", [])
        if entry["type"] == "namespace" and "codex_apps" in entry["name"]
    )


def cpu_s(pid: int) -> float:
    """Return the time that a process has had a core."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def settled(pid: int) -> None:
    """Wait until a server has loaded what it loads by itself: it uses no core for a second."""
    had, until = -1.0, time.perf_counter() + PATIENCE_S
    while (now := cpu_s(pid)) - had > IDLE_S and time.perf_counter() < until:
        had = now
        await asyncio.sleep(1)


async def kept(client: Client, method: str) -> int:
    """Count the kept events of a method, and forget all that are kept."""
    count = 0
    with contextlib.suppress(TimeoutError):
        while True:
            await client.wait_for(method, lambda _: True, timeout_s=0)
            count += 1
    return count


async def turn(client: Client, thread_id: str) -> float:
    """Run a turn; returns how long it took, in s."""
    began = time.perf_counter()
    words = [{"type": "text", "text": "hi"}]
    await client.call("turn/start", {"threadId": thread_id, "input": words}, timeout_s=PATIENCE_S)
    await client.wait_for(
        "turn/completed", lambda p: p["threadId"] == thread_id, timeout_s=PATIENCE_S
    )
    return time.perf_counter() - began


async def watch(url: str, took_ms: list[float]) -> None:
    """Ask for the loaded threads time and again."""
    async with open_client(url, "watcher") as client:
        while True:
            began = time.perf_counter()
            await client.call("thread/loaded/list", {}, timeout_s=PATIENCE_S)
            took_ms.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(PAUSE_S)


async def reload(client: Client) -> float:
    """Reload; returns how long the answer took, in s."""
    began = time.perf_counter()
    await client.call("config/mcpServer/reload", {}, timeout_s=PATIENCE_S)
    return time.perf_counter() - began


async def measure(
    command: list[str], home: Path, model: ScriptedModel, endpoint: str, size: Size
) -> dict[str, float]:
    """Take all figures of one server."""
    rows: dict[str, float] = {}
    expected = size.apps * size.tools
    async with (
        running(command, home) as (url, pid),
        open_client(url, "bench") as client,
        httpx.AsyncClient(trust_env=False) as http,
    ):
        await settled(pid)
        threads: list[str] = []
        began, had = time.perf_counter(), cpu_s(pid)
        for number in range(size.threads):
            answer: Any = await client.call("thread/start", {"cwd": str(home)})
            threads.append(answer["thread"]["id"])
            if not number:
                first = await turn(client, threads[0])
                rows["first turn after the start, s"] = first
                rows["first turn after the start, tools"] = offered(model)
                while offered(model) < expected and time.perf_counter() - began < PATIENCE_S:
                    await turn(client, threads[0])
                rows["first fetch: thread/start to a turn with all tools, s"] = (
                    time.perf_counter() - began
                )
                rows["first fetch: of which on a core, s"] = cpu_s(pid) - had
        for thread_id in threads:
            while True:
                await turn(client, thread_id)
                if offered(model) >= expected or time.perf_counter() - began > PATIENCE_S:
                    break
        rows["turns with all tools, s"] = statistics.median([await turn(client, threads[0])])
        # Whatever starting left open has had its time.
        await asyncio.sleep(6)
        rows["descriptors"] = len(os.listdir(f"/proc/{pid}/fd"))
        same, same_cores = [], []
        for _ in range(size.rounds):
            await kept(client, STARTUP)
            had = cpu_s(pid)
            same.append(await reload(client))
            same_cores.append(cpu_s(pid) - had)
        rows["identical reload, s"] = statistics.median(same)
        rows["identical reload, of which on a core, s"] = statistics.median(same_cores)
        await asyncio.sleep(2)
        with contextlib.suppress(RpcError):
            await client.call("thread/loaded/list", {})
        told = await kept(client, STARTUP)
        rows["identical reload, server news of three threads"] = told
        for how in ("all", "one"):
            took, cores, answers_ms, fewest = [], [], [], expected
            for _ in range(size.rounds):
                (await http.post(f"{endpoint}/change/{how}")).raise_for_status()
                watched: list[float] = []
                watching = asyncio.create_task(watch(url, watched))
                await asyncio.sleep(0.05)
                began, had = time.perf_counter(), cpu_s(pid)
                await reload(client)
                await turn(client, threads[0])
                took.append(time.perf_counter() - began)
                cores.append(cpu_s(pid) - had)
                fewest = min(fewest, offered(model))
                await asyncio.sleep(0.5)
                watching.cancel()
                answers_ms += watched
                # Every thread has what there is now before the next change.
                for thread_id in threads:
                    await turn(client, thread_id)
                await asyncio.sleep(1)
            what = "every tool" if how == "all" else "one tool"
            rows[f"{what} changed: reload and turn, s"] = statistics.median(took)
            rows[f"{what} changed: of which on a core, s"] = statistics.median(cores)
            rows[f"{what} changed: thread/loaded/list p99, ms"] = statistics.quantiles(
                answers_ms, n=100
            )[98]
            rows[f"{what} changed: its slowest answer, ms"] = max(answers_ms)
            rows[f"{what} changed: tools in the turn right after"] = fewest
        rows["descriptors at the end"] = len(os.listdir(f"/proc/{pid}/fd"))
    return rows


async def measure_size(size: Size, codex: str | None, here: list[str]) -> None:
    """Measure this server and the reference, or one of them, and print the figures."""
    servers = {"here": here} if here else {}
    if codex:
        servers["reference"] = [codex, "app-server"]
    figures: dict[str, dict[str, float]] = {}
    numbers = f"{size.apps},{size.tools}"
    for name, command in servers.items():
        peer = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.apps.size", "--endpoint", numbers],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert peer.stdout is not None
        try:
            endpoint = f"http://127.0.0.1:{int(peer.stdout.readline())}"
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
                async with ScriptedModel().serve() as model:
                    make_home(Path(folder), model.url, endpoint)
                    figures[name] = await measure(command, Path(folder), model, endpoint, size)
        finally:
            peer.kill()
            peer.wait()
    print(f"{size.apps} apps, {size.tools} tools each, {size.threads} threads")
    print(f"{'':56}" + "".join(f"{name:>12}" for name in figures))
    for row in next(iter(figures.values())):
        print(f"{row:56}" + "".join(f"{rows[row]:12.3f}" for rows in figures.values()))


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--codex", help="the reference's executable, to measure it as well")
    parser.add_argument("--only", choices=("here", "reference"))
    parser.add_argument("--apps", type=int, default=100)
    parser.add_argument("--tools", type=int, default=40, help="of each app (default: 40)")
    parser.add_argument("--threads", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--callbacks", type=int, default=0, help="how many to print (default: 0)")
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    given = read_arguments()
    if given.endpoint is not None:
        asyncio.run(serve_endpoint(*map(int, given.endpoint.split(","))))
    else:
        size = Size(given.apps, given.tools, given.threads, given.rounds)
        with tempfile.TemporaryDirectory() as folder:
            longest = Path(folder) / "longest"
            here = [str(Path(sys.executable).with_name("app-server"))]
            if given.only == "reference":
                here = []
            elif given.callbacks:
                here = watched(longest, given.callbacks)
            codex = None if given.only == "here" else given.codex
            asyncio.run(measure_size(size, codex, here))
            if longest.exists():
                print(longest.read_text())
