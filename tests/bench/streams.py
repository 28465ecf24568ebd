"""What streams of models cost the server's other clients, and how much memory one can take.

python -m tests.bench.streams [TARGET…] [--threads 100] [--deltas 1000] [--seconds 12]

A TARGET is a command with `{port}` in it, as for tests/bench/server.py, or the URL of a running
server; without one it is this server. The model, the server and the client that measures are
processes of their own. Three figures for each target:

- load: `--threads` turns at once, each of `--deltas` deltas, with an HTTP chunk for each. Meanwhile
  another client calls `/readyz` and `thread/list` in turn; shown are its latencies.
- flood: a model that never stops to send deltas of half a megabyte, for `--seconds`: the server's
  memory before and at its highest, and how the turn ended, if it did.
- huge: one delta of 20 MB to a client that reads at once: how the turn ended, or the connection.

These are figures to look at, not tests: nothing passes or fails.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from tests.bench.model import bench_model
from tests.bench.server import Target, started
from tests.support.clients.lean import lean_client

CONNECTIONS = 4
"""That the threads of the load are spread over."""
PAUSE_S = 0.005
"""Between the calls of the client that measures."""
END = b'"method":"turn/completed"'


async def measure_calls(url: str) -> None:
    """Call until standard input ends; print the latencies of each kind in ms, as JSON."""
    stop = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    host, port = url.removeprefix("ws://").split(":")
    latencies: dict[str, list[float]] = {"/readyz": [], "thread/list": []}
    async with lean_client(url) as client:
        print("ready", flush=True)
        while not stop.done():
            for name in latencies:
                began = time.perf_counter()
                if name == "/readyz":
                    await get(host, int(port), name)
                else:
                    await client.call(name, {})
                    client.events.clear()
                latencies[name].append((time.perf_counter() - began) * 1000)
                await asyncio.sleep(PAUSE_S)
    print(json.dumps(latencies))


async def get(host: str, port: int, path: str) -> None:
    """Make a request over a new connection and wait for its whole answer."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200"), answer[:80]
    writer.close()


async def read_ends(socket: ClientConnection, ends: int) -> int:
    """Read until so many turns have ended; return how many messages came."""
    messages = 0
    while ends:
        text = await socket.recv(decode=False)
        messages += 1
        ends -= END in text[:200]
    return messages


async def load(target: Target, threads: int, deltas: int) -> str:
    """Measure another client's calls while many turns stream."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(lean_client(target.url)) for _ in range(CONNECTIONS)
        ]
        ids: list[list[str]] = [[] for _ in clients]
        for number in range(threads):
            result = await clients[number % CONNECTIONS].call(
                "thread/start", {"config": target.config}
            )
            ids[number % CONNECTIONS].append(result["thread"]["id"])
        with contextlib.closing(measuring(target.url)) as other:
            began, used = time.perf_counter(), processor_s(target.pid)
            for client, mine in zip(clients, ids, strict=True):
                for thread_id in mine:
                    await client.socket.send(turn_start(thread_id, f"events {deltas}"))
            counts = await asyncio.gather(
                *(
                    read_ends(client.socket, len(mine))
                    for client, mine in zip(clients, ids, strict=True)
                )
            )
            seconds, used = time.perf_counter() - began, processor_s(target.pid) - used
            latencies = await asyncio.to_thread(other.latencies)
    shown = "; ".join(f"{name} {described(values)}" for name, values in latencies.items())
    done = f"{sum(counts):,} messages in {seconds:.1f} s ({used:.1f} s of a processor)"
    return f"{done}; {shown}"


def described(values: list[float]) -> str:
    """Show the middle, the 99th percentile and the highest of latencies in ms."""
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    middle = statistics.median(ordered)
    return f"p50 {middle:.1f}, p99 {p99:.1f}, max {ordered[-1]:.1f} ms of {len(ordered)}"


class measuring:  # noqa: N801, as a context it reads like a word
    """The client that measures, in a process of its own."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.streams", "--measure", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def latencies(self) -> dict[str, list[float]]:
        """Stop, and give what was measured."""
        out, _ = self._process.communicate()
        return dict(json.loads(out))

    def close(self) -> None:
        """End the process, if it still runs."""
        self._process.kill()
        self._process.wait()


def turn_start(thread_id: str, text: str) -> str:
    """Render a request that starts a turn."""
    params = {"threadId": thread_id, "input": [{"type": "text", "text": text}]}
    return json.dumps({"id": thread_id, "method": "turn/start", "params": params})


async def one_turn(target: Target, text: str, seconds: float) -> str:
    """Run a turn of a model that sends too much; say how it ended, and what memory it took."""
    async with lean_client(target.url) as client:
        result = await client.call("thread/start", {"config": target.config})
        thread_id = result["thread"]["id"]
        before = highest = resident_mb(target.pid)
        began = time.perf_counter()
        await client.socket.send(turn_start(thread_id, text))
        reading = asyncio.create_task(end_of_turn(client.socket))
        largest, end = 0, "still running"
        while time.perf_counter() - began < seconds and not reading.done():
            await asyncio.wait([reading], timeout=0.05)
            highest = max(highest, resident_mb(target.pid))
        if reading.done():
            largest, end = reading.result()
        reading.cancel()
        took = time.perf_counter() - began
    shown = f"largest message {largest:,} bytes; " if largest else ""
    return f"memory {before} -> {highest} MB in {took:.1f} s; {shown}{end}"


async def end_of_turn(socket: ClientConnection) -> tuple[int, str]:
    """Read to the end of a turn: the largest message, and how it ended."""
    largest = 0
    try:
        while True:
            message = await socket.recv(decode=False)
            largest = max(largest, len(message))
            if END in message[:200]:
                turn: dict[str, Any] = json.loads(message)["params"]["turn"]
                return largest, f"{turn['status']}: {(turn['error'] or {}).get('message')}"
    except ConnectionClosed as exc:
        return largest, f"connection closed: {exc.rcvd.code if exc.rcvd else None}"


def resident_mb(pid: int | None) -> int:
    """Return the memory of a process in MB, as Linux counts it; 0 of one that is not ours."""
    if pid is None:
        return 0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    return 0


def processor_s(pid: int | None) -> float:
    """Return what a process has used of processors so far; 0 of one that is not ours."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(target: Target, options: argparse.Namespace) -> None:
    """Print the figures of one server."""
    print(f"  load:  {await load(target, options.threads, options.deltas)}", flush=True)
    print(f"  flood: {await one_turn(target, 'flood', options.seconds)}", flush=True)
    print(f"  huge:  {await one_turn(target, 'huge', options.seconds)}", flush=True)


async def main() -> None:
    """Measure every target in turn."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    own = f"{sys.executable} -m app_server.cli.serve --listen ws://127.0.0.1:{{port}}"
    parser.add_argument("targets", nargs="*", metavar="TARGET", default=[own])
    parser.add_argument("--threads", type=int, default=100, help="of the load (default: 100)")
    parser.add_argument("--deltas", type=int, default=1000, help="of each turn (default: 1,000)")
    parser.add_argument("--seconds", type=float, default=12, help="of flood and huge (default: 12)")
    parser.add_argument("--measure", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        await measure_calls(options.measure)
        return
    with bench_model() as config:
        for text in options.targets:
            print(text, flush=True)
            if "{port}" in text:
                with started(text, config, starts=1) as target:
                    await measure(target, options)
            else:
                await measure(Target(text, text, config, None), options)


if __name__ == "__main__":
    asyncio.run(main())
