"""Figures of calls to an MCP server on this machine through several HTTP clients, in one run.

python -m tests.bench.loopback_http [--rounds N] [--passes N]

The client and the transport are those of the server; only the sender below them changes: ours,
httpx2, httpx, and aiohttp if it is installed. The MCP server
(tests/support/mcp_peers/web_peer.py) is a process of its own and counts its processor time, as this
one does. Clients take turns; a figure is the median of its passes, and what is in brackets is that
divided by ours.

These are figures to look at, not tests: nothing passes or fails.
"""

import argparse
import asyncio
import importlib
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import httpx
import httpx2

from app_server.mcp_wire.handshake import Handshake
from app_server.mcp_wire.http import transport
from app_server.mcp_wire.http.exchange import HttpRequest, HttpResponse, HttpSender
from app_server.mcp_wire.http.loopback import open_loopback
from app_server.mcp_wire.http.remote import open_remote
from app_server.mcp_wire.json_rpc_client import Caller, JsonRpcClient
from protocol.model import JsonObject
from tests.support.mcp_peers.web_peer import WebPeer

aiohttp: Any = importlib.import_module("aiohttp") if importlib.util.find_spec("aiohttp") else None
"""Not among the libraries of the tests: `pip install aiohttp` beside them."""

WIDTH = 32
ANSWER_S = 30.0

Opener: TypeAlias = Callable[[httpx2.URL], AbstractAsyncContextManager[HttpSender]]


class PiecesResponse:
    """A HttpResponse over what a general client gives."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        pieces: AsyncIterator[bytes],
        close: Callable[[], Any],
    ) -> None:
        self.status = status
        self.headers = headers
        self.at_end = False
        self._pieces = pieces
        self._close = close

    async def receive(self) -> bytes:
        """Return the next piece."""
        piece = await anext(self._pieces, b"")
        self.at_end = not piece
        return piece

    async def aclose(self) -> None:
        """Give the connection back."""
        closing = self._close()
        if closing is not None:
            await closing


class HttpxSender:
    """A HttpSender over httpx."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request."""
        outgoing = self._client.build_request(
            request.method,
            str(request.url),
            headers=dict(request.headers),
            content=request.body or None,
        )
        response = await self._client.send(outgoing, stream=True)
        return PiecesResponse(
            response.status_code, response.headers, response.aiter_raw(), response.aclose
        )


@asynccontextmanager
async def open_httpx(url: httpx2.URL) -> AsyncIterator[HttpSender]:
    """Open a sender over httpx, with the limits of our own."""
    forever = httpx.Timeout(None, connect=ANSWER_S)
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=4)
    async with httpx.AsyncClient(limits=limits, trust_env=False, timeout=forever) as client:
        yield HttpxSender(client)


class AiohttpSender:
    """A HttpSender over aiohttp."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def send(self, request: HttpRequest) -> HttpResponse:
        """Send a request."""
        response = await self._client.request(
            request.method,
            str(request.url),
            headers=dict(request.headers),
            data=request.body or None,
            allow_redirects=False,
        )
        headers = {name.lower(): value for name, value in response.headers.items()}
        return PiecesResponse(
            response.status, headers, aiter(response.content.iter_any()), response.release
        )


@asynccontextmanager
async def open_aiohttp(url: httpx2.URL) -> AsyncIterator[HttpSender]:
    """Open a sender over aiohttp, with the limits of our own."""
    async with aiohttp.InitializedClient(
        connector=aiohttp.TCPConnector(limit=100),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as client:
        yield AiohttpSender(client)


OPENERS: dict[str, Opener] = {"ours": open_loopback, "httpx2": open_remote, "httpx": open_httpx}
if aiohttp is not None:
    OPENERS["aiohttp"] = open_aiohttp


class PeerProcess:
    """The MCP server: two of them in one process, one answers in JSON, one in event streams."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.loopback_http", "--peer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.urls = self._line().split()

    def processor_s(self) -> float:
        """Return the processor time that it has used."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


async def serve_peer() -> None:
    """Serve until the end of stdin; each line of it is answered with the processor time used."""
    async with WebPeer().serve() as peer, WebPeer(in_events=True).serve() as in_events:
        print(peer.url, in_events.url, flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(time.process_time(), flush=True)


async def refuse(method: str, params: JsonObject, caller: Caller | None) -> JsonObject:
    """Answer a request of the server: there is none."""
    raise NotImplementedError(method)


async def measure(opener: Opener, url: str, peer: PeerProcess, rounds: int) -> dict[str, float]:
    """Return the figures of one client with one server."""
    transport.open_loopback = opener  # type: ignore[assignment,attr-defined]
    figures: dict[str, float] = {}
    async with transport.open_http(url, {}) as streams, asyncio.TaskGroup() as tasks:
        rpc = JsonRpcClient(*streams)
        running = tasks.create_task(run(rpc))
        handshake = Handshake(rpc, {"name": "bench", "version": "1"}, {})
        await handshake.run(ANSWER_S)

        async def call() -> float:
            began = time.perf_counter()
            params: JsonObject = {"name": "look", "arguments": {}}
            result = await rpc.call("tools/call", params, headers=handshake.headers)
            assert result["content"], result
            return time.perf_counter() - began

        for _ in range(rounds // 10):
            await call()
        for width in (1, WIDTH):
            durations: list[float] = []
            left = iter(range(rounds))

            async def work(durations: list[float] = durations, left: Any = left) -> None:
                durations += [await call() for _ in left]

            here_s, there_s = time.process_time(), peer.processor_s()
            await asyncio.gather(*(work() for _ in range(width)))
            there_s, here_s = peer.processor_s() - there_s, time.process_time() - here_s
            cuts = statistics.quantiles(durations, n=100)
            figures[f"{width} at a time, p50 ms"] = cuts[49] * 1e3
            figures[f"{width} at a time, p99 ms"] = cuts[98] * 1e3
            figures[f"{width} at a time, processor of the client, ms"] = here_s / rounds * 1e3
            figures[f"{width} at a time, processor of both, ms"] = (here_s + there_s) / rounds * 1e3
        running.cancel()
    return figures


async def run(rpc: JsonRpcClient) -> None:
    """Read what the server says."""
    async with asyncio.TaskGroup():
        await rpc.run(refuse, lambda *_: None, task_status=_Started())


class _Started:
    def started(self, value: object = None) -> None:
        """Nobody waits for it."""


async def main(options: argparse.Namespace) -> None:
    """Measure every client in turn, and print a table."""
    peer = PeerProcess()
    passes: dict[tuple[str, str], dict[str, list[float]]] = {}
    try:
        for number in range(options.passes):
            print(f"pass {number + 1} of {options.passes}", file=sys.stderr)
            for kind, url in zip(("JSON", "events"), peer.urls, strict=True):
                for name, opener in OPENERS.items():
                    measured = await measure(opener, url, peer, options.rounds)
                    for figure, value in measured.items():
                        row = passes.setdefault((kind, figure), {})
                        row.setdefault(name, []).append(value)
    finally:
        peer.stop()
    print(f"{'':52}" + "".join(f"{name:>16}" for name in OPENERS))
    for (kind, figure), row in passes.items():
        ours = statistics.median(row["ours"])
        cells = (statistics.median(row[name]) for name in OPENERS)
        shown = "".join(f"{value:8.3f} ({value / ours:4.2f})".rjust(16) for value in cells)
        print(f"{kind + ', ' + figure:52}{shown}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--peer", action="store_true")
    given = parser.parse_args()
    asyncio.run(serve_peer() if given.peer else main(given))
