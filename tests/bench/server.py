"""Figures of any number of app-servers, side by side in one run.

python -m tests.bench.server TARGET [TARGET…] [--rounds N]

A TARGET is the `ws://` URL of a running server, or a command with `{port}` in it; a command is
started with a fresh home, which also measures how long it takes to become ready. The first target
is what the others are divided by. Everything runs against a model that answers at once
(app_server/clients/bench/model.py).

  python -m tests.bench.server "codex app-server --listen ws://127.0.0.1:{port}" \
                        "app-server --listen ws://127.0.0.1:{port}"

These are figures to look at, not tests: nothing passes or fails.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.bench.model import bench_model

LOWER, HIGHER = "lower is better", "higher is better"


class Client:
    """A lean JSON-RPC client: one reader task, futures by id."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._next = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._turns: dict[str, asyncio.Future[Any]] = {}
        self.server_steps: list[dict[str, Any]] = []
        """How far starts of MCP servers came, in order."""
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for text in self._socket:
                self._take(json.loads(text))
        for future in (*self._waiting.values(), *self._turns.values()):
            if not future.done():
                future.set_exception(ConnectionError("the connection ended"))

    def _take(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            self._waiting.pop(message["id"]).set_result(message)
        elif message["method"] == "mcpServer/startupStatus/updated":
            self.server_steps.append(message["params"])
        elif message["method"] == "turn/completed":
            future = self._turns.pop(message["params"]["threadId"], None)
            if future is not None:
                future.set_result(message)

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """Call a method and return its result."""
        self._next += 1
        future = self._waiting[self._next] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": self._next, "method": method, "params": params}))
        answer = await future
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    async def turn(self, thread_id: str, text: str) -> None:
        """Run a turn to its end."""
        done = self._turns[thread_id] = asyncio.get_running_loop().create_future()
        user_input = [{"type": "text", "text": text}]
        await self.call("turn/start", {"threadId": thread_id, "input": user_input})
        await done


@dataclass
class Target:
    """One server under the clock."""

    name: str
    url: str
    config: dict[str, Any]
    """Overrides that point the server's threads at the bench's model."""
    pid: int | None
    figures: dict[str, float] = field(default_factory=dict)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Connect and shake hands."""
        async with connect(self.url, compression=None, max_size=None) as socket:
            client = Client(socket)
            await client.call(
                "initialize",
                {
                    "clientInfo": {"name": "bench", "version": "1"},
                    "capabilities": {"experimentalApi": True},
                },
            )
            await socket.send('{"method":"initialized"}')
            yield client

    async def thread(self, client: Client) -> str:
        """Start a thread that uses the bench's model."""
        result = await client.call("thread/start", {"config": self.config})
        return str(result["thread"]["id"])


async def p50_ms(call: Callable[[], Awaitable[Any]], rounds: int) -> float:
    """Return the median duration of a call in milliseconds."""
    for _ in range(max(rounds // 10, 3)):
        await call()
    durations = []
    for _ in range(rounds):
        began = time.perf_counter()
        await call()
        durations.append(time.perf_counter() - began)
    return statistics.median(durations) * 1000


async def bursts(client: Client, rounds: int, width: int = 100) -> float:
    """Return requests per second when `width` of them are sent at once, again and again."""
    began = time.perf_counter()
    for _ in range(rounds):
        await asyncio.gather(*(client.call("thread/loaded/list", {}) for _ in range(width)))
    return rounds * width / (time.perf_counter() - began)


async def many_clients(target: Target, clients: int = 16, turns: int = 5) -> float:
    """Return turns per second of several clients, each on a thread of its own."""

    async def work() -> None:
        async with target.client() as client:
            thread_id = await target.thread(client)
            await client.turn(thread_id, "warm up")
            ready.append(None)
            await go.wait()
            for _ in range(turns):
                await client.turn(thread_id, "hello")

    go = asyncio.Event()
    ready: list[None] = []
    tasks = [asyncio.create_task(work()) for _ in range(clients)]
    while len(ready) < clients:
        await asyncio.sleep(0.01)
    began = time.perf_counter()
    go.set()
    await asyncio.gather(*tasks)
    return clients * turns / (time.perf_counter() - began)


async def measure(target: Target, rounds: int) -> None:
    """Fill in a target's figures."""
    figures = target.figures
    async with target.client() as client:
        figures["thread/loaded/list, p50 ms"] = await p50_ms(
            lambda: client.call("thread/loaded/list", {}), rounds * 5
        )
        figures["bursts of 100, requests/s"] = await bursts(client, max(rounds // 10, 3))
        threads = [await target.thread(client) for _ in range(10)]
        for thread_id in threads:
            await client.turn(thread_id, "hello")
        one = threads[0]
        figures["thread/read, p50 ms"] = await p50_ms(
            lambda: client.call("thread/read", {"threadId": one}), rounds
        )
        figures["thread/list of 10, p50 ms"] = await p50_ms(
            lambda: client.call("thread/list", {"limit": 10, "modelProviders": []}), rounds
        )
        figures["mcpServerStatus/list, p50 ms"] = await p50_ms(
            lambda: client.call("mcpServerStatus/list", {"detail": "toolsAndAuthOnly"}), rounds
        )
        item = {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": "a signal"}],
        }
        figures["thread/inject_items, p50 ms"] = await p50_ms(
            lambda: client.call("thread/inject_items", {"threadId": one, "items": [item]}), rounds
        )
        figures["thread/start, p50 ms"] = await p50_ms(
            lambda: target.thread(client), max(rounds // 4, 10)
        )
        turn_thread = await target.thread(client)
        figures["text turn, p50 ms"] = await p50_ms(
            lambda: client.turn(turn_thread, "hello"), max(rounds // 4, 10)
        )
        figures["16 clients, turns/s"] = await many_clients(target)
        figures["turn of 2,000 deltas, p50 ms"] = await p50_ms(
            lambda: client.turn(turn_thread, "deltas 2000"), 5
        )
        if target.pid is not None:
            figures["resident memory, MB"] = resident_mb(target.pid)


def resident_mb(pid: int) -> float:
    """Return the memory of a process and its children."""
    total = 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status = (folder / "status").read_text()
            parent = re.search(r"PPid:\t(\d+)", status)
            resident = re.search(r"VmRSS:\s+(\d+)", status)
            if resident and (int(folder.name) == pid or (parent and int(parent[1]) == pid)):
                total += int(resident[1]) / 1024
    return total


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(port: int, limit_s: float = 30.0) -> float:
    """Return how long `/readyz` took to answer, in milliseconds."""
    began = time.perf_counter()
    while time.perf_counter() - began < limit_s:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1).close()
            return (time.perf_counter() - began) * 1000
        except (OSError, urllib.error.URLError):
            time.sleep(0.001)
    raise TimeoutError(f"nothing became ready on port {port}")


@contextmanager
def started(
    command: str, config: dict[str, Any], starts: int = 5, settings: str = ""
) -> Iterator[Target]:
    """Start a command a few times, keep the last one running while the context lasts.

    `settings` are the text of `config.toml` in its home.
    """
    ready_ms = []
    for attempt in range(starts):
        port = free_port()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
            (Path(home) / "config.toml").write_text(settings)
            environment = {**os.environ, "CODEX_HOME": home, "APP_SERVER_HOME": home, "HOME": home}
            process = subprocess.Popen(
                shlex.split(command.replace("{port}", str(port))),
                env=environment,
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                ready_ms.append(wait_until_ready(port))
                if attempt == starts - 1:
                    # What a server does after its start is not what is measured here.
                    time.sleep(3)
                    name = Path(shlex.split(command)[0]).name
                    target = Target(name, f"ws://127.0.0.1:{port}", config, process.pid)
                    target.figures["process start to /readyz, ms"] = statistics.median(ready_ms)
                    yield target
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                process.wait()


def print_table(targets: list[Target]) -> None:
    """Print a row a figure: each target's value, and its ratio to the first."""
    first, others = targets[0], targets[1:]
    width = max(len(name) for name in first.figures) + 2
    header = "".join(f"{target.name[:22]:>24}" for target in targets)
    print(f"\n{'':{width}}{header}{'  ratio' * len(others)}")
    for name in first.figures:
        values = "".join(f"{target.figures.get(name, float('nan')):>24.2f}" for target in targets)
        ratios = "".join(
            f"{target.figures.get(name, float('nan')) / first.figures[name]:>7.2f}"
            for target in others
        )
        direction = HIGHER if name.endswith("/s") else LOWER
        print(f"{name:{width}}{values}{ratios}  {direction}")


async def main() -> None:
    """Measure every target in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="+", metavar="TARGET")
    parser.add_argument("--rounds", type=int, default=200, help="calls per figure (default: 200)")
    options = parser.parse_args()
    with bench_model() as config:
        measured = []
        for text in options.targets:
            print(f"measuring {text}", file=sys.stderr)
            if "{port}" in text:
                with started(text, config) as target:
                    await measure(target, options.rounds)
            else:
                target = Target(text, text, config, None)
                await measure(target, options.rounds)
            measured.append(target)
        print_table(measured)


if __name__ == "__main__":
    asyncio.run(main())
