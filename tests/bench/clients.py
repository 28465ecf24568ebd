"""What several clients of one thread cost, and what one costs that never reads.

python -m tests.bench.clients [--turns N] [--clients N …]

A server of its own process, a model that answers at once, turns of 2,000 deltas. A row is: clients,
the fastest turn as the first client sees it, the same beside one more client that never reads, and
the ratio. In the first row turns go on until that one is closed (1013); other rows do not wait for
it. These are figures to look at, not tests.
"""

import argparse
import asyncio
import sys
import time
from contextlib import AsyncExitStack, suppress
from typing import Any

from websockets.exceptions import ConnectionClosed

from tests.bench.model import bench_model
from tests.bench.server import started
from tests.support.clients.lean import LeanClient, lean_client


async def listen(client: LeanClient) -> None:
    """Read everything and keep nothing."""
    with suppress(ConnectionClosed, asyncio.CancelledError):
        async for _ in client.socket:
            pass


async def fastest_turn_ms(client: LeanClient, thread_id: str, turns: int) -> float:
    """Run turns one after the other."""
    durations = []
    for _ in range(turns + 1):
        client.events.clear()
        began = time.perf_counter()
        await client.turn(thread_id, "deltas 2000")
        durations.append(time.perf_counter() - began)
    return min(durations[1:]) * 1000


async def measure(
    url: str, config: dict[str, Any], clients: int, turns: int, with_mute: bool, to_end: bool
) -> tuple[float, int | None]:
    """Return the fastest turn, and how the connection that never reads was closed."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(lean_client(url))
        thread_id = (await first.call("thread/start", {"config": config}))["thread"]["id"]
        readers = []
        for _ in range(clients - 1):
            other = await stack.enter_async_context(lean_client(url))
            await other.call("thread/resume", {"threadId": thread_id})
            readers.append(asyncio.create_task(listen(other)))
        mute = None
        if with_mute:
            mute = await stack.enter_async_context(lean_client(url, max_queue=1))
            await mute.call("thread/resume", {"threadId": thread_id})
        fastest = await fastest_turn_ms(first, thread_id, turns)
        code = None
        if mute is not None:
            code = await close_code(mute, first, thread_id) if to_end else None
            mute.socket.transport.abort()
        for reader in readers:
            reader.cancel()
        return fastest, code


async def close_code(mute: LeanClient, first: LeanClient, thread_id: str) -> int | None:
    """Run turns until the connection that never reads is given up; return how it was closed."""
    most = 0
    for _ in range(2000):
        first.events.clear()
        await first.turn(thread_id, "deltas 2000")
        gauges = (await first.call("server/diagnostics", {}))["gauges"]
        waiting = next(g["value"] for g in gauges if g["name"] == "app.outbox.longest")
        if waiting < most // 2:
            break
        most = max(most, waiting)
    with suppress(ConnectionClosed):
        while True:
            await mute.socket.recv()
    return mute.socket.close_code


async def main() -> None:
    """Measure every number of clients."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=9, help="turns per figure (default: 9)")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 10, 50, 200])
    options = parser.parse_args()
    command = f"{sys.executable} -m app_server.cli.serve --listen ws://127.0.0.1:{{port}}"
    with bench_model() as config, started(command, config, starts=1) as target:
        print(f"{'clients':>8}{'turn, ms':>12}{'with one that never reads':>28}{'ratio':>8}")
        for number, clients in enumerate(options.clients):
            work = (target.url, config, clients, options.turns)
            alone, _ = await measure(*work, with_mute=False, to_end=False)
            beside, code = await measure(*work, with_mute=True, to_end=number == 0)
            shown = f"{beside:.1f}" + (f" ({code})" if code else "")
            print(f"{clients:>8}{alone:>12.1f}{shown:>28}{beside / alone:>8.2f}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
