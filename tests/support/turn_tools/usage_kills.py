"""Servers that are killed while a model reports usage to them."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from tests.support.harness import WireClient, write_config
from tests.support.model import ScriptedModel, calls
from tests.support.processes import running
from tests.support.turn_tools.usage import LIST, used, using, without_times
from tests.support.turns import start_turn


async def ledger_over_kills(
    home: Path, delays_s: Sequence[float], options: Sequence[str] = ()
) -> tuple[int, int]:
    """Kill a server some time after a turn has begun that asks its model without end, each time.

    The ledger of the next server must have each response that the killed one has answered with
    another request, and it may have the last one. Servers are started with `options`; one of a
    database has loaded the thread then. Returns how many responses there were, and how many last
    ones it had.
    """
    numbers: list[int] = []
    kept: list[int] = []
    had_last = 0

    def choose(_: Any) -> Sequence[Any]:
        numbers.append(len(numbers) + 1)
        return using(calls(LIST), numbers[-1])

    async with ScriptedModel().serve() as model:
        write_config(home, model.url)
        model.choose = choose
        async with running(home, options=options) as server, server.client() as client:
            thread_id = await client.start_thread()
            # A thread whose first line alone is there has nothing to load.
            await client.call("thread/name/set", {"threadId": thread_id, "name": "killed"})
        for delay_s in delays_s:
            seen = len(numbers)
            async with running(home, options=options) as server, server.client() as client:
                await client.call("thread/resume", {"threadId": thread_id})
                await start_turn(client, thread_id, "go")
                # What is tested is any moment.
                await anyio.sleep(delay_s)
                server.process.send_signal(signal.SIGKILL)
                await server.ended()
            async with running(home, options=options) as server, server.client() as client:
                if options:
                    await client.call("thread/resume", {"threadId": thread_id})
                found = await _ledger(client, thread_id)
            read, last = numbers[seen:-1], numbers[seen:][-1:]
            kept += read
            if last and found == _of(*kept, *last):
                kept += last
                had_last += 1
            assert found == _of(*kept), (numbers[seen:], found)
    return len(numbers), had_last


async def _ledger(client: WireClient, thread_id: str) -> dict[str, Any] | None:
    rows = (await client.call("usage/read", {"threadId": thread_id}))["data"]
    return without_times(rows[0]["usage"]) if rows else None


def _of(*numbers: int) -> dict[str, Any] | None:
    return used(*numbers) if numbers else None
