"""Messages to many threads over restarts: how fast they are accepted, and what became of them.

python -m tests.bench.signals [--signals N] [--threads N] [--connections N] [--restarts N]
                              [--queue COMMAND]

Each connection is a sender of its own: it delivers its messages one after the other, and says one
again when it does not learn what became of it. The server is killed (SIGKILL) in between. At the
end the model's requests show which messages arrived, how often and in which order.

`signal/deliver` of this package is measured. With --queue the same load goes as `thread/queue/add`
to another server, such as "codex app-server --listen ws://127.0.0.1:{port}".
These are figures to look at, not tests.
"""

import argparse
import asyncio
import contextlib
import os
import re
import shlex
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.bench.server import Client
from tests.support.harness import write_config
from tests.support.model import ScriptedModel

DRAIN_S = 300.0
"""For what is left in queues when the last message was accepted."""
MARK = re.compile(r"#(\d+)-(\d+)#")


class WatchingModel(ScriptedModel):
    """Says "ok" at once, and notes which messages each thread's requests have."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[tuple[int, int]]] = {}
        self.turns = 0
        self.requests = _Watch(self)

    def watch(self, request: dict[str, Any]) -> None:
        """Take a request; the longest history of a thread counts."""
        self.turns += 1
        marks = [
            (int(sender), int(number))
            for item in request["input"]
            if item.get("role") in ("user", "developer")
            for part in item["content"]
            for sender, number in MARK.findall(part.get("text", ""))
        ]
        key = request.get("prompt_cache_key", "")
        if len(marks) >= len(self.seen.get(key, ())):
            self.seen[key] = marks


class _Watch(list[dict[str, Any]]):
    def __init__(self, model: WatchingModel) -> None:
        super().__init__()
        self._model = model

    def append(self, request: dict[str, Any]) -> None:
        self._model.watch(request)


@dataclass
class Load:
    """One run."""

    home: Path
    command: str
    use_queue: bool
    signals: int
    threads: int
    connections: int
    restarts: int
    model: WatchingModel = field(default_factory=WatchingModel)
    port: int = 0
    times_ms: list[float] = field(default_factory=list)
    accepted: int = 0
    repeated: int = 0
    put_off: int = 0
    thread_ids: list[str] = field(default_factory=list)
    _process: asyncio.subprocess.Process | None = None
    _up: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Deliver everything and print the figures."""
        async with self.model.serve():
            write_config(self.home, self.model.url)
            await self._start()
            await self._make_threads()
            began = time.perf_counter()
            async with asyncio.TaskGroup() as tasks:
                for sender in range(self.connections):
                    tasks.create_task(self._send_all(sender))
                tasks.create_task(self._restart())
            accepted_s = time.perf_counter() - began
            await self._wait_until_seen()
            drained_s = time.perf_counter() - began
            await self._stop(signal.SIGTERM)
        self._print(accepted_s, drained_s)

    async def _start(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        environment = {
            key: value for key, value in os.environ.items() if "proxy" not in key.lower()
        }
        self._process = await asyncio.create_subprocess_exec(
            *shlex.split(self.command.format(port=self.port)),
            env={**environment, "CODEX_HOME": str(self.home)},
            cwd=self.home,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        while True:
            try:
                await self._connect()
            except (OSError, ConnectionClosed):
                await asyncio.sleep(0.02)
            else:
                break
        self._up.set()

    async def _stop(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._up.clear()
        os.killpg(self._process.pid, number)
        await self._process.wait()

    async def _connect(self) -> Client:
        stream = await connect(
            f"ws://127.0.0.1:{self.port}", proxy=None, compression=None, max_size=None
        )
        client = Client(stream)
        info = {"name": "bench", "title": None, "version": "1"}
        capabilities = {"experimentalApi": True, "optOutNotificationMethods": []}
        await client.call("initialize", {"clientInfo": info, "capabilities": capabilities})
        return client

    async def _make_threads(self) -> None:
        client = await self._connect()
        for _ in range(self.threads):
            answer = await client.call("thread/start", {})
            self.thread_ids.append(answer["thread"]["id"])
            # A thread that nothing was ever said in may not outlive its server.
            await client.turn(self.thread_ids[-1], "begin")

    async def _restart(self) -> None:
        for number in range(self.restarts):
            while self.accepted < self.signals * (number + 1) // (self.restarts + 1):
                await asyncio.sleep(0.02)
            await self._stop(signal.SIGKILL)
            await self._start()

    async def _send_all(self, sender: int) -> None:
        client: Client | None = None
        count = self.signals // self.connections
        for number in range(count):
            thread_id = self.thread_ids[(sender + number) % self.threads]
            began = time.perf_counter()
            while True:
                try:
                    await self._up.wait()
                    if client is None:
                        client = await self._connect()
                    await asyncio.wait_for(self._send_text(client, sender, number, thread_id), 20)
                    break
                except (OSError, ConnectionClosed, TimeoutError):
                    client = None
                    self.repeated += 1
                    await asyncio.sleep(0.05)
                except RuntimeError as error:
                    if "-32001" in str(error):
                        self.put_off += 1
                    elif client is not None and "not found" in str(error) and self.use_queue:
                        with contextlib.suppress(RuntimeError):
                            await client.call("thread/resume", {"threadId": thread_id})
                    else:
                        raise
                    await asyncio.sleep(0.05)
            self.accepted += 1
            self.times_ms.append((time.perf_counter() - began) * 1000)

    async def _send_text(self, client: Client, sender: int, number: int, thread_id: str) -> None:
        text = f"#{sender}-{number}#"
        if self.use_queue:
            user_input = [{"type": "text", "text": text}]
            params: dict[str, Any] = {"threadId": thread_id, "input": user_input}
            await client.call("thread/queue/add", {**params, "clientUserMessageId": text})
            return
        body = {
            "id": text.strip("#"),
            "source": f"s{sender}",
            "type": "T",
            "sender": "x",
            "summary": text,
        }
        target = {"threadId": thread_id}
        await client.call("signal/deliver", {"signal": body, "target": target, "mode": "wake"})

    async def _wait_until_seen(self) -> None:
        client = await self._connect()
        ended, last = time.perf_counter() + DRAIN_S, -1
        quiet_since = time.perf_counter()
        while time.perf_counter() < ended:
            count = sum(len(set(marks)) for marks in self.model.seen.values())
            if count >= self.accepted:
                return
            if count != last:
                last, quiet_since = count, time.perf_counter()
            elif time.perf_counter() - quiet_since > 5:
                # What waits passively needs a turn to be seen.
                for thread_id in self.thread_ids:
                    with contextlib.suppress(RuntimeError):
                        await client.call("thread/resume", {"threadId": thread_id})
                        await asyncio.wait_for(client.turn(thread_id, "end"), 20)
                ended = min(ended, time.perf_counter() + 10)
            await asyncio.sleep(0.1)

    def _print(self, accepted_s: float, drained_s: float) -> None:
        counts: Counter[tuple[int, int]] = Counter()
        disorder = 0
        for marks in self.model.seen.values():
            counts.update(marks)
            last: dict[int, int] = {}
            for sender, number in marks:
                disorder += number < last.get(sender, -1)
                last[sender] = max(number, last.get(sender, -1))
        wanted = {
            (sender, number)
            for sender in range(self.connections)
            for number in range(self.signals // self.connections)
        }
        times = sorted(self.times_ms)
        method = "thread/queue/add" if self.use_queue else "signal/deliver"
        print(f"{method}: {len(wanted)} to {self.threads} threads, {self.restarts} kills")
        print(f"  accepted in {accepted_s:.1f} s, all seen after {drained_s:.1f} s")
        print(
            f"  acceptance p50 {times[len(times) // 2]:.2f} ms, "
            f"p99 {times[len(times) * 99 // 100]:.2f} ms"
        )
        print(f"  said again {self.repeated}, put off {self.put_off}, requests {self.model.turns}")
        print(
            f"  lost {len(wanted - set(counts))}, "
            f"doubled {sum(count - 1 for count in counts.values())}, out of order {disorder}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the load against this package, and against another server if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Formatter)
    parser.add_argument("--signals", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=100)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--queue", metavar="COMMAND")
    options = parser.parse_args(arguments)
    ours = f"{sys.executable} -m app_server.cli.serve --listen ws://127.0.0.1:{{port}}"
    loads = [(ours, False)] + ([(options.queue, True)] if options.queue else [])
    for command, use_queue in loads:
        with tempfile.TemporaryDirectory(prefix="bench-signals-") as folder:
            load = Load(
                Path(folder),
                command,
                use_queue,
                options.signals,
                options.threads,
                options.connections,
                options.restarts,
            )
            asyncio.run(load.run())


_Formatter = argparse.RawDescriptionHelpFormatter

if __name__ == "__main__":
    main()
