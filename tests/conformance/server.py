"""The server scenarios of the official MCP conformance suite against local routes.

`python -m tests.conformance.server COMMAND...` serves a connector and the resources, each with
answers in JSON and as event streams, and runs `COMMAND server --url URL ...` for each of them. The
suite sends no bearer, so it is put in here; everything else that guards a route is in its place.
Source: docs/mcp.md, "Conformance".
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from pydantic import SecretStr

from app_server.apps.inventory.inventory import build_inventory
from app_server.apps.inventory.names import allocate_routes
from app_server.apps.routes.backing import Backing, OpenStreams, Running
from app_server.apps.routes.connector import ConnectorServer
from app_server.apps.routes.http import GuardedRoutes
from app_server.apps.routes.local_server import RouteApp, resource_server
from app_server.runtime.http.listening import HOST
from app_server.runtime.http.loopback_server import serve_on_loopback
from tests.conformance import endpoint
from tests.support.apps.peer import FakePool, Guard

BEARER = SecretStr("conformance")
BASELINES = Path(__file__).parent
REVISIONS = ("2025-11-25", "2026-07-28")
"""Sets of scenarios; the answers to those of the second do not depend on the way of the first."""
SUITE_S = 120


@asynccontextmanager
async def serve_routes(*, json_answers: bool) -> AsyncIterator[dict[str, str]]:
    """Serve both kinds of routes while the context lasts; gives their addresses."""

    async def refresh() -> None:
        raise AssertionError("nobody signs in")

    guard, streams = Guard(), OpenStreams()
    backing = Backing("conformance", FakePool(endpoint.answer), guard, streams, Running())
    [route] = allocate_routes(build_inventory(endpoint.TOOLS))
    servers = {
        "connector": ConnectorServer(route, backing, None, refresh).server,
        "resources": resource_server(backing),
    }
    apps = {
        f"/{kind}": RouteApp(server, backing, json_answers=json_answers)
        for kind, server in servers.items()
    }
    guarded = GuardedRoutes(guard)
    for path, app in apps.items():
        guarded.add(path, BEARER, app)

    async def with_bearer(scope: Any, receive: Any, send: Any) -> None:
        given = (b"authorization", b"Bearer " + BEARER.get_secret_value().encode())
        await guarded({**scope, "headers": [*scope["headers"], given]}, receive, send)

    async with serve_on_loopback(with_bearer) as port, AsyncExitStack() as stack:
        for app in apps.values():
            await stack.enter_async_context(app.run())
        guarded.port = port
        yield {kind: f"http://{HOST}:{port}/{kind}" for kind in servers}


async def run_suite(command: list[str], output: Path) -> int:
    """Run the active scenarios for each route and kind of answers; returns how many runs failed."""
    failed = 0
    for json_answers in (True, False):
        mode = "json" if json_answers else "events"
        async with serve_routes(json_answers=json_answers) as urls:
            for kind, url in urls.items():
                for revision in REVISIONS if json_answers else REVISIONS[:1]:
                    run = [*command, "server", "--url", url, "--requirements", revision]
                    baseline = BASELINES / f"baseline_{kind}_{revision}.yml"
                    run += ["--expected-failures", str(baseline)]
                    run += ["--output-dir", str(output / f"{mode}-{kind}-{revision}")]
                    done = await anyio.to_thread.run_sync(_run, run)
                    print(f"{kind}, {mode}, {revision}: {_summary(done.stdout)}")
                    if done.returncode:
                        failed += 1
                        print(done.stdout, file=sys.stderr)
    return failed


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SUITE_S, env=os.environ, check=False
    )


def _summary(said: str) -> str:
    totals = re.findall(r"^Total: .*$", said, re.MULTILINE)
    return totals[-1] if totals else "no summary"


def main() -> int:
    """Run everything; returns 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("command", nargs="+", help="that runs the suite")
    options = parser.parse_args()
    return 1 if anyio.run(run_suite, options.command, options.output_dir) else 0


if __name__ == "__main__":
    sys.exit(main())
