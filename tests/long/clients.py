"""Two clients on one thread, of which one drops every 200 ms; the union of what it saw is compared.

python -m tests.long.clients [--seconds N] [--every-ms N]

The long form of tests/rpc/test_several_clients.py: a server in this process, turns of 1,500 deltas
at the pace of some 2,000 a second, one after the other. The exit status is 1 when what the dropping
client saw is not exactly what the steady one saw, or when it was told to start over.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from websockets.exceptions import ConnectionClosed

from tests.support.clients.lean import LeanClient, is_end, lean_client
from tests.support.harness import serve
from tests.support.http_peer import HttpRequest
from tests.support.model import Gate, ScriptedModel, says
from tests.support.threads.seen import merged, numbered

DELTAS = 1500


class Soon(asyncio.Event):
    """Set after a while, whoever waits."""

    async def wait(self) -> Literal[True]:
        """Wait for that while."""
        await asyncio.sleep(0.005)
        return True


class PacedModel(ScriptedModel):
    """A model that pauses between groups of deltas."""

    async def _answer(
        self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        script: list[Any] = []
        events = says(*(f"{n} " for n in range(DELTAS)), item_id=f"m{len(self.requests)}")
        for number, event in enumerate(events):
            script += [event] if number % 10 else [Gate(opened=Soon()), event]
        self.scripts[:] = [script]
        return await super()._answer(request, reader, writer)


@dataclass
class Dropping:
    """A client that leaves again and again, and what it saw in all its lives."""

    url: str
    thread_id: str
    place: dict[str, Any]
    every_s: float
    seen: list[Any] = field(default_factory=list)
    drops: int = 0
    resyncs: int = 0

    async def run(self, last: asyncio.Future[int]) -> None:
        """Come and go until the last event is known and was seen."""
        while not (last.done() and self.place["afterSeq"] >= last.result()):
            async with lean_client(self.url) as client:
                resume = {"threadId": self.thread_id, **self.place, "excludeTurns": True}
                answer = await client.call("thread/resume", resume)
                self.resyncs += answer["resyncRequired"]
                await self._listen(client)
            self.drops += 1

    async def _listen(self, client: LeanClient) -> None:
        try:
            async with asyncio.timeout(self.every_s):
                await client.read(lambda _: False)
        except TimeoutError:
            # What was received is what was seen; the rest goes down with the connection.
            client.socket.transport.abort()
        except ConnectionClosed:
            pass
        got = numbered(client.events)
        if got:
            self.seen += got
            self.place["afterSeq"] = got[-1]["seq"]


async def work(client: LeanClient, thread_id: str, seconds: float) -> int:
    """Run turns for a while; return the number of the last event."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await client.turn(thread_id, "go")
    return int(numbered(client.events)[-1]["seq"])


async def main() -> int:
    """Compare, and print what was seen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--every-ms", type=float, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        async with (
            serve(Path(home), model=PacedModel()) as served,
            lean_client(served.urls[0]) as steady,
        ):
            started = await steady.call("thread/start", {})
            thread_id = started["thread"]["id"]
            place = {"streamId": started["streamId"], "afterSeq": started["seq"]}
            dropping = Dropping(served.urls[0], thread_id, place, options.every_ms / 1000)
            last: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            coming = asyncio.create_task(dropping.run(last))
            last.set_result(await work(steady, thread_id, options.seconds))
            await coming
    everything = numbered(steady.events)
    same = merged(everything) == merged(dropping.seen)
    print(
        f"{sum(map(is_end, everything))} turns, {len(everything)} messages to the steady client, "
        f"{everything[-1]['seq']} events; {dropping.drops} drops, {dropping.resyncs} resyncs, "
        f"{len(dropping.seen)} messages to the dropping client; the same: {same}"
    )
    return 0 if same and not dropping.resyncs else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
