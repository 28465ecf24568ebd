"""Figures of the Apps service: a hop, an inventory, refreshes, and turns beside a bad endpoint.

python -m tests.bench.apps.service [--rounds N] [--refreshes N] [--turns N] [--codex PATH]

The hosted endpoint of the demo, with tools that answer at once, runs in a process of its own. The
hop goes through a connector's route; beside it the same client calls the endpoint itself. Turns are
those of a server in this process whose model answers at once. Last come the figures of
`python -m tests.bench.apps.size`, beside those of the reference if there is one.

These are figures to look at, not tests: nothing passes or fails.
"""

import argparse
import asyncio
import gc
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
from pydantic import SecretStr
from starlette.responses import Response

from app_server.apps.account import FixedAccount
from app_server.apps.service import AppsService, Snapshot
from app_server.apps.upstream.endpoint import upstream_target
from app_server.apps.upstream.hosted_session import ElicitationBridge, open_session
from app_server.clients.demo.hosted.endpoint import (
    READS,
    Call,
    HostedConnector,
    text_result,
)
from app_server.extensions.contract.registry import ExtensionRegistry
from protocol.model import JsonObject
from tests.bench.apps.size import SIZE, measure_size
from tests.bench.server import p50_ms
from tests.support.apps.hooked_endpoint import Arrival, HookedEndpoint
from tests.support.apps.hosted import Hosted, serve_hosted
from tests.support.apps.peer import LocalClient, connect
from tests.support.apps.service import NoPlugins
from tests.support.harness import Served, WireClient, serve

WIDTH = 32
LARGE = (4095, 200)
"""Tools and connectors; one more tool makes another inventory of it, at the bound."""
SMALL = (20, 4)
SLOW_S = 2.0


async def answer(call: Call) -> dict[str, Any]:
    """Do nothing."""
    return text_result("done")


def apps(tools: int, connectors: int) -> list[HostedConnector]:
    """Make connectors that share a number of tools."""
    made = []
    for number in range(connectors):
        bare = HostedConnector(f"app-{number}", f"App{number}", "An app of a bench.")
        names = (f"tool_{one}" for one in range(number, tools, connectors))
        properties = {"text": {"type": "string", "description": "Some words."}}
        of_it = [bare.tool(name, "Does something.", properties, READS, answer) for name in names]
        made.append(HostedConnector(bare.id, bare.name, bare.description, tuple(of_it)))
    return made


async def serve_endpoint(tools: int, connectors: int) -> None:
    """Run an endpoint until killed; prints where it is. `POST /change` changes its inventory."""
    few = apps(tools, connectors)
    more = [*few[:-1], apps(tools + connectors, connectors)[-1]]

    async def change(arrival: Arrival) -> Response | None:
        if arrival.path != "/change":
            return None
        endpoint.connectors[:] = more if len(endpoint.tools()) == tools else few
        return Response()

    endpoint = HookedEndpoint(few, change)
    async with endpoint.serve():
        print(endpoint.base_url, endpoint.token.get_secret_value(), flush=True)
        await asyncio.get_running_loop().create_future()


class Bench:
    """A service whose endpoint is in another process."""

    def __init__(self, base_url: str, token: str, service: AppsService) -> None:
        self.config = {"chatgpt_base_url": base_url}
        self.base_url = base_url
        self.url = f"{base_url}/ps/mcp"
        self.token = SecretStr(token)
        self.service = service
        self._change = f"{base_url.removesuffix('/backend-api')}/change"

    async def refreshed(self) -> Snapshot:
        """Fetch, and return what is published then."""
        snapshot = await self.service.refresh_snapshot(self.config)
        assert snapshot is not None
        return snapshot

    async def change(self) -> None:
        """Let the endpoint list something else."""
        async with httpx.AsyncClient(trust_env=False) as http:
            (await http.post(self._change)).raise_for_status()


@asynccontextmanager
async def bench(tools: int, connectors: int) -> AsyncIterator[Bench]:
    """Start an endpoint and a service."""
    command = [
        sys.executable,
        "-m",
        "tests.bench.apps.service",
        "--endpoint",
        f"{tools},{connectors}",
    ]
    peer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert peer.stdout is not None
    try:
        base_url, token = peer.stdout.readline().split()
        with tempfile.TemporaryDirectory() as home:
            account = FixedAccount(token, "demo-account", "user")
            service = AppsService(Path(home), account, NoPlugins(), environ={})
            async with anyio.create_task_group() as tasks:
                await tasks.start(service.run)
                yield Bench(base_url, token, service)
                service.begin_shutdown()
    finally:
        peer.kill()
        peer.wait()


async def per_second(clients: list[LocalClient], tool: str, rounds: int) -> tuple[float, float]:
    """Keep a call of each client in flight; returns calls per second, and their median in ms."""
    durations: list[float] = []
    left = iter(range(rounds))

    async def work(client: LocalClient) -> None:
        for _ in left:
            began = time.perf_counter()
            await client.call(tool, {"text": "x"})
            durations.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*map(work, clients))
    return rounds / (time.perf_counter() - began), statistics.median(durations) * 1000


async def measure_hop(rounds: int) -> None:
    """Compare calls through a route with calls of the endpoint."""
    async with bench(*SMALL) as one:
        with await one.refreshed() as snapshot:
            name, generation = "codex_apps__app0", snapshot.published.generation
            routed, hosted_tool = next(iter(snapshot.published.made.routes[name].tools.items()))
            ways = [
                ("the endpoint itself", one.url, one.token, hosted_tool.name),
                ("a route", generation.url(name), generation.bearer(name), routed),
            ]
            for what, url, bearer, tool in ways:
                async with AsyncExitStack() as stack:
                    clients = [
                        await stack.enter_async_context(connect(url, bearer)) for _ in range(WIDTH)
                    ]
                    for client in clients:
                        assert (await client.call(tool, {"text": "x"}))["content"]
                    first = clients[0]

                    async def call(client: LocalClient = first, tool: str = tool) -> None:
                        await client.call(tool, {"text": "x"})

                    alone = await p50_ms(call, rounds)
                    rate, p50 = await per_second(clients, tool, rounds * 4)
                report(f"{what}: one at a time, p50 ms", alone)
                report(f"{what}: one at a time, calls/s", 1000 / alone)
                report(f"{what}: {WIDTH} in flight, p50 ms", p50)
                report(f"{what}: {WIDTH} in flight, calls/s", rate)
            target = upstream_target(one.base_url, one.token, account_id="demo-account")
            async with open_session(target, ElicitationBridge()) as session:

                async def directly() -> None:
                    await session.request(
                        "tools/call", {"name": hosted_tool.name, "arguments": words}
                    )

                words: JsonObject = {"text": "x"}
                report(
                    "the endpoint by the client of apps: one at a time, p50 ms",
                    await p50_ms(directly, rounds),
                )


def memory_mib() -> float:
    """Return what this process takes of the memory, in MiB."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def longest_pauses_ms(work: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
    """Return the longest pauses during some work: of the event loop, of a garbage collection."""
    longest = collecting = begun = 0.0

    def collects(phase: str, info: dict[str, int]) -> None:
        nonlocal begun, collecting
        if phase == "start":
            begun = time.perf_counter()
        else:
            collecting = max(collecting, time.perf_counter() - begun)

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - began)

    gc.callbacks.append(collects)
    watcher = asyncio.create_task(watch())
    await work()
    watcher.cancel()
    gc.callbacks.remove(collects)
    return longest * 1000, collecting * 1000


async def measure_large() -> None:
    """Fetch, publish and fetch again an inventory at its bound."""
    async with bench(*LARGE) as one:
        snapshots: list[Snapshot] = []

        async def refresh() -> None:
            snapshots.append(await one.refreshed())

        before = memory_mib()
        began = time.perf_counter()
        pause, collection = await longest_pauses_ms(refresh)
        report(
            "4,095 tools, 200 connectors: connect, fetch, publish, s", time.perf_counter() - began
        )
        report("the same: longest pause of the event loop, ms", pause)
        report("the same: of which a garbage collection, ms", collection)
        began = time.perf_counter()
        await refresh()
        report("the same: refresh without a change, s", time.perf_counter() - began)
        for _ in range(3):
            await one.change()
            began = time.perf_counter()
            await refresh()
            took = time.perf_counter() - began
        report("the same: refresh with a change, s", took)
        report("the same: memory of a generation, MiB", (memory_mib() - before) / 4)
        for snapshot in snapshots:
            snapshot.release()


def left_behind() -> tuple[int, int, float]:
    """Count open descriptors and tasks, and memory."""
    return len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks()), memory_mib()


async def measure_refreshes(number: int) -> None:
    """Refresh again and again, and look what is left."""
    async with bench(*SMALL) as one:
        (await one.refreshed()).release()
        for what, changes in (("without", False), ("with", True)):
            for _ in range(20):
                (await one.refreshed()).release()
            before = left_behind()
            began = time.perf_counter()
            for _ in range(number):
                if changes:
                    await one.change()
                (await one.refreshed()).release()
            took = time.perf_counter() - began
            await asyncio.sleep(3)
            after = left_behind()
            report(f"{number} refreshes {what} changes: ms each", took / number * 1000)
            report(f"{number} refreshes {what} changes: descriptors left", after[0] - before[0])
            report(f"{number} refreshes {what} changes: tasks left", after[1] - before[1])
            report(f"{number} refreshes {what} changes: MiB left", after[2] - before[2])


async def first_token_ms(client: WireClient, thread_id: str) -> float:
    """Run a turn; returns when its first words came, after it was asked for."""
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "hi"}]}
    began = time.perf_counter()
    await client.request("turn/start", params)
    await client.wait_for("item/agentMessage/delta")
    took = time.perf_counter() - began
    await client.wait_for("turn/completed")
    return took * 1000


Trouble = Callable[[Arrival], Awaitable[Response | None]]


async def blocked(arrival: Arrival) -> Response | None:
    """Never answer."""
    await asyncio.get_running_loop().create_future()
    return None


async def slow(arrival: Arrival) -> Response | None:
    """Answer late."""
    await asyncio.sleep(SLOW_S)
    return None


async def garbage(arrival: Arrival) -> Response | None:
    """Answer what makes no sense."""
    return Response(os.urandom(1024), media_type="application/json")


@asynccontextmanager
async def place(home: Path, trouble: Trouble | None) -> AsyncIterator[Served]:
    """Serve threads; without an endpoint in trouble there are no apps."""
    if trouble is None:
        async with serve(home, config="features = { apps = false }") as served:
            yield served
        return
    hosted: Hosted
    async with serve_hosted(apps(*SMALL)) as hosted, anyio.create_task_group() as tasks:
        hosted.endpoint.hook = trouble
        account = FixedAccount(hosted.endpoint.token.get_secret_value(), "demo-account", "user")
        service = AppsService(home / "apps", account, NoPlugins(), environ={})
        await tasks.start(service.run)
        config = f'chatgpt_base_url = "{hosted.endpoint.base_url}"'
        registry = ExtensionRegistry([service], in_turns=[service])
        async with serve(home, config=config, extensions=registry) as served:
            yield served
        service.begin_shutdown()
        tasks.cancel_scope.cancel()


async def measure_turns(turns: int) -> None:
    """Compare first words of turns beside an endpoint in trouble with those without apps."""
    off = 0.0
    troubles: list[tuple[str, Trouble | None]] = [
        # Whoever is first pays for what all import; it is not shown.
        ("", None),
        ("off", None),
        ("blocked", blocked),
        (f"{SLOW_S} s late", slow),
        ("answering garbage", garbage),
    ]
    for what, trouble in troubles:
        with tempfile.TemporaryDirectory() as home:
            async with place(Path(home), trouble) as served, served.client() as client:
                firsts, later = [], []
                for _ in range(turns):
                    thread_id = await client.start_thread()
                    firsts.append(await first_token_ms(client, thread_id))
                    later.append(await first_token_ms(client, thread_id))
        if not what:
            continue
        p50 = statistics.median(firsts)
        off = off or p50
        report(f"apps {what}: first words of a thread's first turn, p50 ms", p50)
        report(f"apps {what}: ratio to off", p50 / off)
        report(f"apps {what}: of its second turn, p50 ms", statistics.median(later))
        report(f"apps {what}: slowest of all, ms", max(firsts + later))


def report(what: str, figure: float) -> None:
    """Print a figure."""
    print(f"{what:72}{figure:>10.2f}", flush=True)


async def main(options: argparse.Namespace) -> None:
    """Measure everything in turn."""
    # An endpoint that is stopped while it does not answer complains; that is no figure.
    logging.getLogger("uvicorn.error").disabled = True
    # As a server does once it has started.
    gc.collect()
    gc.freeze()
    await measure_hop(options.rounds)
    await measure_large()
    await measure_turns(options.turns)
    await measure_refreshes(options.refreshes)
    here = [str(Path(sys.executable).with_name("app-server"))]
    await measure_size(SIZE, options.codex, here)


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=500, help="calls a figure (default: 500)")
    parser.add_argument("--refreshes", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--turns", type=int, default=100, help="threads a figure (default: 100)")
    parser.add_argument("--codex", help="the reference's executable, to measure size with it too")
    parser.add_argument("--endpoint", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    given = read_arguments()
    if given.endpoint is not None:
        asyncio.run(serve_endpoint(*map(int, given.endpoint.split(","))))
    else:
        asyncio.run(main(given))
