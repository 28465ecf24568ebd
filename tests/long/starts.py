"""Starts of a server that has everything to load at once: apps, MCP servers and a turn.

`python -m tests.long.starts` makes 200 of them beside processes that keep every core busy, half of
them with a stored ChatGPT account and half with the apps of the demo. Each has to list its apps, to
have every MCP server ready in a thread, to run a turn, to say nothing of errors, and to end with
status 0. `--starts 20` is what the suite does (tests/server/test_starts.py).
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import anyio
from pydantic import SecretStr
from websockets.exceptions import WebSocketException

from tests.support.accounts.issuer_peer import make_id_token, make_jwt
from tests.support.apps.hosted import Hosted, serve_hosted
from tests.support.clients.lean import LeanClient, is_end, lean_client
from tests.support.paths import MCP_PEER

STARTS = 200
AT_ONCE = 4
STARTED = "mcpServer/startupStatus/updated"
WAIT_S = 300.0
"""For each step of one start; far more than a busy machine takes."""

SERVERS = ("first", "second", "third")
APPS = ["Calendar", "Drive", "Mail", "Survey"]
WANTED = {*SERVERS, "codex_apps", *(f"codex_apps__{name.lower()}" for name in APPS)}


@dataclass(frozen=True)
class Start:
    """One start: which apps it has, and a folder of its own."""

    apps: str
    """`account` or `demo`."""
    home: Path


@asynccontextmanager
async def hosted_account() -> AsyncIterator[Hosted]:
    """Serve the apps of an account that can be stored: its token is a JWT."""
    async with serve_hosted() as hosted:
        hosted.endpoint.token = SecretStr(make_jwt(exp=4_000_000_000))
        yield hosted


def prepare(start: Start, hosted: Hosted) -> None:
    """Write config.toml, and auth.json if the apps are those of an account."""
    start.home.mkdir()
    lines = ['model_provider = "offline"']
    if start.apps == "account":
        lines.append(f'chatgpt_base_url = "{hosted.endpoint.base_url}"')
        (start.home / "auth.json").write_text(json.dumps(_sign_in(hosted)))
    else:
        lines += ["[apps_service]", "demo = true"]
    for name in SERVERS:
        lines += [
            f"[mcp_servers.{name}]",
            f'command = "{sys.executable}"',
            f'args = ["{MCP_PEER}"]',
        ]
    (start.home / "config.toml").write_text("\n".join(lines))


def _sign_in(hosted: Hosted) -> Any:
    account = hosted.endpoint.account_id
    tokens = {
        "id_token": make_id_token(account),
        "access_token": hosted.endpoint.token.get_secret_value(),
        "refresh_token": "refresh",
        "account_id": account,
    }
    return {
        "auth_mode": "chatgpt",
        "OPENAI_API_KEY": None,
        "tokens": tokens,
        "last_refresh": "2036-11-21T06:52:10Z",
    }


Use: TypeAlias = Callable[[str], Awaitable[str]]
"""Uses a server at an address; returns what went wrong, empty if nothing did."""


async def run(
    start: Start, hosted: Hosted, use: Use, program: Sequence[str] = ("app_server.cli.serve",)
) -> str:
    """Start a server, use it and stop it; returns what went wrong, empty if nothing did.

    `program` is a module that is run, with its first arguments.
    """
    prepare(start, hosted)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *program, "--listen", "ws://127.0.0.1:0"),
        *("--home", str(start.home)),
        stderr=asyncio.subprocess.PIPE,
    )
    said: list[str] = []
    try:
        with anyio.fail_after(WAIT_S * 4):
            try:
                fault = await use(await _address(process, said))
            except (RuntimeError, TimeoutError, OSError, WebSocketException) as exc:
                fault = f"{type(exc).__name__}: {exc}"
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
            assert process.stderr is not None
            said.append((await process.stderr.read()).decode())
            status = await process.wait()
    finally:
        # Not process.kill(): that may reap the child behind asyncio's back.
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
    text = "".join(said)
    if not fault and status != 0:
        fault = f"status {status}"
    if not fault and re.search(" (WARNING|ERROR|CRITICAL) ", text):
        fault = "the log is not empty"
    return f"{fault}\n{text}" if fault else ""


async def use_all(url: str) -> str:
    """List the apps and have every MCP server in a thread with a turn."""
    async with lean_client(url) as lists, lean_client(url) as turns:
        # Both at once: what they need overlaps.
        with anyio.fail_after(WAIT_S):
            listed, started = await asyncio.gather(
                lists.call("app/list", {}), turns.call("thread/start", {})
            )
        names = sorted(app["name"] for app in listed["data"] if app["isAccessible"])
        if names != APPS:
            return f"app/list gave {names}"
        # Servers that were there too late for the start of the thread come with its turn.
        with anyio.fail_after(WAIT_S):
            await turns.turn(started["thread"]["id"], "Hello.")
        while (statuses := _statuses(turns)).keys() < WANTED:
            with anyio.move_on_after(WAIT_S) as scope:
                await turns.read(lambda event: event["method"] == STARTED)
            if scope.cancelled_caught:
                break
    if statuses != dict.fromkeys(WANTED, "ready"):
        return f"MCP servers: {sorted(statuses.items())}"
    (end,) = filter(is_end, turns.events)
    status = end["params"]["turn"]["status"]
    return "" if status == "completed" else f"the turn is {status}"


def _statuses(client: LeanClient) -> dict[str, str]:
    steps = [event["params"] for event in client.events if event["method"] == STARTED]
    return {step["name"]: step["status"] for step in steps if step["status"] != "starting"}


async def _address(process: asyncio.subprocess.Process, said: list[str]) -> str:
    assert process.stderr is not None
    with anyio.fail_after(WAIT_S):
        while line := (await process.stderr.readline()).decode():
            said.append(line)
            if found := re.search(r"listening on: (ws://\S+)", line):
                return found[1]
    raise OSError("the server ended before it was ready")


async def run_many(folder: Path, starts: int, at_once: int) -> list[str]:
    """Run starts, some at a time; returns what went wrong."""
    faults: list[str] = []
    limit = asyncio.Semaphore(at_once)

    async def one(start: Start, hosted: Hosted) -> None:
        async with limit:
            fault = await run(start, hosted, use_all)
        if fault:
            faults.append(f"{start.home.name} ({start.apps}): {fault}")

    async with hosted_account() as hosted, asyncio.TaskGroup() as tasks:
        for number in range(starts):
            apps = ("account", "demo")[number % 2]
            tasks.create_task(one(Start(apps, folder / str(number)), hosted))
    return faults


@contextmanager
def all_cores_busy() -> Iterator[None]:
    """Have a process for each core that does nothing but take it."""
    burners = [
        multiprocessing.Process(target=_burn, daemon=True) for _ in range(os.cpu_count() or 1)
    ]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.join()


def _burn() -> None:
    while True:
        pass


def main() -> int:
    """Run the starts and say what failed; the exit status is 0 only if nothing did."""
    parser = argparse.ArgumentParser(prog="python -m tests.long.starts")
    parser.add_argument("--starts", type=int, default=STARTS)
    parser.add_argument("--at-once", type=int, default=AT_ONCE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, all_cores_busy():
        faults = asyncio.run(run_many(Path(folder), options.starts, options.at_once))
    for fault in faults:
        print(fault)
    kinds = Counter(fault.partition(": ")[2].splitlines()[0] for fault in faults)
    print(f"{len(faults)} of {options.starts} starts failed: {dict(kinds)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
