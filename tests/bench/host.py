"""Figures of host methods of any number of app-servers, side by side in one run.

python -m tests.bench.host TARGET [TARGET…] [--rounds N] [--files N]

A TARGET is the `ws://` URL of a running server, or a command with `{port}` in it, as for
tests/bench/server.py; a command gets a home outside of the folders for temporary files, where some
servers have no sandbox. The first target is what the others are divided by. The targets take turns
with every call, so that whatever else the machine does is the same for all. Before the figures of
100 MB the sizes that were reported are compared.

  python -m tests.bench.host "codex app-server --listen ws://127.0.0.1:{port}" \
                             "app-server --listen ws://127.0.0.1:{port}"

These are figures to look at, not tests: nothing passes or fails.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.bench.server import Target, free_port, print_table, resident_mb, wait_until_ready

FULL_ACCESS = {"type": "dangerFullAccess"}
OUTPUT_BYTES = 100_000_000
QUERIES = ("main", "servuser", "a", "parse_token", "zqx")
WORDS = re.findall(
    r"\w+",
    "app core util view model test main index server client parse token page user auth config "
    "route handler store query build asset image style theme form list item detail",
)
ENDINGS = (".py", ".ts", ".tsx", ".rs", ".md", ".json", ".css", ".go")

Call = Callable[["Socket"], Awaitable[Any]]


class Socket:
    """A lean client that looks at as little of what it receives as it can."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self.received_chars = 0
        """Of notifications, in the last call."""

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """Call a method and return its result; notifications are counted and dropped."""
        number = await self.send(method, params)
        self.received_chars = 0
        while True:
            text = str(await self._socket.recv())
            if text.startswith(f'{{"id":{number},'):
                answer = json.loads(text)
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.received_chars += len(text)

    async def send(self, method: str, params: dict[str, Any]) -> int:
        """Send a request and return its id; its answer is dropped like a notification."""
        number = next(self._ids)
        await self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        return number

    async def receive(self, method: str) -> dict[str, Any]:
        """Return the parameters of the next notification of a method."""
        while True:
            message = json.loads(await self._socket.recv())
            if message.get("method") == method:
                params: dict[str, Any] = message["params"]
                return params


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Socket]:
    """Connect and shake hands."""
    async with connect(target.url, compression=None, max_size=None, ping_interval=None) as socket:
        client = Socket(socket)
        params = {
            "clientInfo": {"name": "bench", "version": "1"},
            "capabilities": {"experimentalApi": True},
        }
        await client.call("initialize", params)
        await socket.send('{"method":"initialized"}')
        yield client


def run_true(**more: Any) -> Call:
    """Make a call that runs `true`."""
    return lambda client: client.call("command/exec", {"command": ["true"], **more})


async def print_much(client: Socket, **more: Any) -> None:
    """Have a program print 100 MB."""
    params = {
        "command": ["head", "-c", str(OUTPUT_BYTES), "/dev/zero"],
        "sandboxPolicy": FULL_ACCESS,
        "disableTimeout": True,
    }
    await client.call("command/exec", {**params, **more})


async def stream_much(client: Socket) -> None:
    """Have a program print 100 MB and receive all of it."""
    streams = {"processId": "p", "streamStdoutStderr": True, "disableOutputCap": True}
    await print_much(client, **streams)
    if client.received_chars < OUTPUT_BYTES * 4 // 3:
        raise RuntimeError(f"only {client.received_chars} characters came")


async def search_in_session(client: Socket, root: Path, query: str) -> tuple[float, float]:
    """Begin a session with a query; returns ms to the first result, and to the end."""
    began = time.perf_counter()
    session = {"sessionId": query}
    await client.call("fuzzyFileSearch/sessionStart", {**session, "roots": [str(root)]})
    # Not awaited: what is found at once may come before the answer, which `call` would drop.
    await client.send("fuzzyFileSearch/sessionUpdate", {**session, "query": query})
    first = None
    while first is None:
        params = await client.receive("fuzzyFileSearch/sessionUpdated")
        if params["query"] == query and params["files"]:
            first = time.perf_counter()
    await client.receive("fuzzyFileSearch/sessionCompleted")
    ended = time.perf_counter()
    await client.call("fuzzyFileSearch/sessionStop", session)
    return (first - began) * 1000, (ended - began) * 1000


async def in_turn(
    clients: dict[str, tuple[Target, Socket]], name: str, call: Call, rounds: int
) -> None:
    """Fill in the median duration of a call in milliseconds, of all targets alternately."""
    durations: dict[str, list[float]] = {key: [] for key in clients}
    for _ in range(rounds):
        for key, (_, client) in clients.items():
            began = time.perf_counter()
            await call(client)
            durations[key].append((time.perf_counter() - began) * 1000)
    for key, (target, _) in clients.items():
        target.figures[f"{name}, p50 ms"] = statistics.median(durations[key])


async def measure(targets: list[Target], root: Path, rounds: int) -> None:
    """Fill in the figures of all targets."""
    async with AsyncExitStack() as stack:
        clients = {
            target.url: (target, await stack.enter_async_context(connected(target)))
            for target in targets
        }
        for target, client in clients.values():
            first, ended = await search_in_session(client, root, "main")
            target.figures["first search, first result, ms"] = first
            target.figures["first search, complete, ms"] = ended
        sessions: dict[str, list[tuple[float, float]]] = {key: [] for key in clients}
        for _, key in itertools.product(range(rounds), clients):
            sessions[key].append(await search_in_session(clients[key][1], root, "main"))
        for key, (target, _) in clients.items():
            firsts, ends = zip(*sessions[key], strict=True)
            target.figures["session, first result, p50 ms"] = statistics.median(firsts)
            target.figures["session, complete, p50 ms"] = statistics.median(ends)
        for query in QUERIES:
            params = {"query": query, "roots": [str(root)]}

            def search(client: Socket, params: dict[str, Any] = params) -> Awaitable[Any]:
                return client.call("fuzzyFileSearch", params)

            await in_turn(clients, f"fuzzyFileSearch {query}", search, rounds)
        await in_turn(clients, "command/exec true, sandbox", run_true(), rounds)
        free = run_true(sandboxPolicy=FULL_ACCESS)
        await in_turn(clients, "command/exec true, none", free, rounds * 2)
        await in_turn(clients, "100 MB, kept up to 1 MiB", print_much, max(rounds // 4, 3))
        await in_turn(clients, "100 MB, streamed", stream_much, max(rounds // 4, 3))
        for target in targets:
            if target.pid is not None:
                target.figures["resident memory, MB"] = resident_mb(target.pid)


def make_files(root: Path, count: int) -> None:
    """Make a repository with so many files."""
    chance = random.Random(1)
    made = 0
    while made < count:
        depth = chance.randint(1, 4)
        folder = root.joinpath(
            *(f"{chance.choice(WORDS)}{chance.randint(0, 9)}" for _ in range(depth))
        )
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(min(50, count - made)):
            name = "_".join(chance.sample(WORDS, 2))
            (folder / f"{name}{made}{chance.choice(ENDINGS)}").touch()
            made += 1
    (root / ".gitignore").write_text("node_modules/\n*.pyc\n__pycache__/\n/dist\n*.log\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)


@contextmanager
def started(command: str) -> Iterator[Target]:
    """Start a server while the context lasts."""
    port = free_port()
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as home:
        process = subprocess.Popen(
            shlex.split(command.replace("{port}", str(port))),
            env={**os.environ, "CODEX_HOME": home, "APP_SERVER_HOME": home, "HOME": home},
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_until_ready(port)
            # What a server does after its start is not what is measured here.
            time.sleep(3)
            name = Path(shlex.split(command)[0]).name
            yield Target(name, f"ws://127.0.0.1:{port}", {}, process.pid)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()


async def main() -> None:
    """Measure all targets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="+", metavar="TARGET")
    parser.add_argument("--rounds", type=int, default=20, help="calls per figure (default: 20)")
    parser.add_argument("--files", type=int, default=100_000, help="searched (default: 100,000)")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        root = Path(folder, "searched")
        root.mkdir()
        print(f"making {options.files} files", file=sys.stderr)
        make_files(root, options.files)
        targets = [
            stack.enter_context(started(text)) if "{port}" in text else Target(text, text, {}, None)
            for text in options.targets
        ]
        await measure(targets, root, options.rounds)
        print_table(targets)


if __name__ == "__main__":
    asyncio.run(main())
