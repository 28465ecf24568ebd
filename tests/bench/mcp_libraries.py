"""The calls of tests/bench/mcp.py made by a client library, as a program that prints JSON.

Run by that bench with the Python that has the library, which need not have this project:
`PYTHON -P tests/bench/mcp_libraries.py LIBRARY ROUNDS WIDTH STDIO_SERVER HTTP_URL EVENTS_URL`.
"""

import asyncio
import importlib
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any


async def opened(
    library: str, stack: AsyncExitStack, place: str
) -> Callable[[str], Awaitable[Any]]:
    """Connect to a server: a URL, or a program for this Python; gives what calls a tool."""
    is_url = place.startswith("http")
    if library == "fastmcp":
        fastmcp = importlib.import_module("fastmcp")
        pipes = importlib.import_module("fastmcp.client.transports").StdioTransport
        target = place if is_url else pipes(sys.executable, [place])
        client = await stack.enter_async_context(fastmcp.Client(target))
        return lambda tool: client.call_tool(tool, {})

    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    parameters = StdioServerParameters(command=sys.executable, args=[place])
    transport: Any = streamable_http_client(place) if is_url else stdio_client(parameters)
    streams = await stack.enter_async_context(transport)
    session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
    await session.initialize()
    await session.list_tools()
    return lambda tool: session.call_tool(tool, {})


async def measure(
    name: str, call: Callable[[], Awaitable[Any]], rounds: int, width: int
) -> dict[str, float]:
    """Measure calls one at a time, and so many at once."""
    for _ in range(max(rounds // 10, 3)):
        await call()
    durations = []
    used = time.process_time()
    for _ in range(rounds):
        began = time.perf_counter()
        await call()
        durations.append(time.perf_counter() - began)
    used = time.process_time() - used
    durations.sort()
    p50 = statistics.median(durations) * 1000
    many: list[float] = []
    left = iter(range(rounds * 4))

    async def work() -> None:
        for _ in left:
            began = time.perf_counter()
            await call()
            many.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(width)))
    took = time.perf_counter() - began
    return {
        f"{name}, one at a time, p50 ms": p50,
        f"{name}, one at a time, p99 ms": durations[int(rounds * 0.99)] * 1000,
        f"{name}, one at a time, calls/s": 1000 / p50,
        f"{name}, one at a time, processor ms": used / rounds * 1000,
        f"{name}, {width} in flight, p50 ms": statistics.median(many) * 1000,
        f"{name}, {width} in flight, calls/s": rounds * 4 / took,
    }


async def main() -> None:
    """Measure the library, and print."""
    library, rounds, width, *places = sys.argv[1:]
    figures: dict[str, float] = {}
    for name, place in zip(("stdio", "http", "events"), places, strict=True):
        async with AsyncExitStack() as stack:
            call = await opened(library, stack, place)
            tool = "plain" if name == "stdio" else "look"

            async def one(call: Any = call, tool: str = tool) -> None:
                await call(tool)

            figures |= await measure(name, one, int(rounds), int(width))
    print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(main())
