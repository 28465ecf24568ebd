"""The receiver bridge beside the reference implementation, which takes signals as injected items.

python -m tests.long.real_reference [--codex PATH]

Starts real bridges, a demo router, and `codex app-server` with a model of this program's; kills
them at the steps of a delivery, and counts the items in the threads. Prints a line a check, `ok` or
`FAIL`, and exits with 1 if there was a failure, with 2 where there is no `codex`. Not part of the
tests: the reference is a large binary that they do not use.
"""

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import signal as signals
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from app_server.clients.coder.session import Occupant, identify_at, is_app_server
from app_server.peer.connection import open_client
from tests.long.real_servers import Report
from tests.support.harness import write_config
from tests.support.model import ScriptedModel
from tests.support.receiver.bridge_steps import BRIDGE_STEPS
from tests.support.receiver.peer import signal
from tests.support.receiver.processes import (
    START_S,
    bridge,
    clean_environment,
    post,
    router_process,
    states,
    times_in_log,
    until,
)

CODEX = "codex"


@asynccontextmanager
async def reference(
    codex: str, home: Path, port: int = 0
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Start the reference; gives its URL. Leaving kills it and what it has started."""
    process = await asyncio.create_subprocess_exec(
        codex,
        *("app-server", "--listen", f"ws://127.0.0.1:{port}"),
        env=clean_environment(CODEX_HOME=str(home), HOME=str(home)),
        cwd=home,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield await _read_url(process), process
    finally:
        await _kill(process)


async def _read_url(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    with anyio.fail_after(START_S):
        while line := (await process.stderr.readline()).decode():
            if found := re.search(r"ws://127\.0\.0\.1:\d+", line):
                return found[0]
    raise EOFError("the reference ended before it was ready")


async def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signals.SIGKILL)
    with anyio.CancelScope(shield=True):
        await process.wait()


async def check_all(codex: str, work: Path, report: Report) -> None:
    """Try everything with files in `work`."""
    home, own = work / "reference", work / "own"
    own.mkdir()
    async with ScriptedModel().serve() as model, router_process(own) as (router, _):
        write_config(home, model.url)
        async with reference(codex, home) as (url, process):
            port = int(url.rpartition(":")[2])
            with report.check("the launcher takes it for an app-server, and not for one of ours"):
                assert await is_app_server(url)
                assert await identify_at(url, home) is Occupant.STRANGER
            with report.check("a signal is injected without a turn, and the model sees it once"):
                await _is_seen_once(url, router, own, model)
            for step in BRIDGE_STEPS:
                with report.check(f"a bridge killed at '{step}' leaves one item"):
                    await _survives(url, router, own, step)
            thread, folder = await _thread(url, own, "restart")
            async with bridge(
                own,
                "restart",
                router=router,
                server=url,
                cwd=folder,
                options=["--thread", thread["id"]],
            ) as texi:
                await texi.initialize()
                await post(router, signal("s1", to="restart"))
                await until(lambda: states(texi.ledger) == {"s1": "injected"})
                await _kill(process)
                await post(router, signal("s2", to="restart"))
                await until(lambda: states(texi.ledger).get("s2") == "waiting")
                async with reference(codex, home, port):
                    await post(router, signal("s3", to="restart"))
                    done = dict.fromkeys(["s1", "s2", "s3"], "injected")
                    with report.check("a thread that was not loaded is resumed for what waited"):
                        await until(lambda: states(texi.ledger) == done)
                        counts = [times_in_log(thread["path"], one) for one in done]
                        assert counts == [1, 1, 1], counts
                    with report.check("the reference goes on when the bridge ends"):
                        assert await texi.leave() == 0
                        assert await is_app_server(url)


async def _thread(url: str, own: Path, name: str) -> tuple[dict[str, Any], Path]:
    """Start a thread in a folder of its own."""
    folder = own / name
    folder.mkdir()
    async with open_client(url, "terminal") as client:
        answer: Any = await client.call("thread/start", {"cwd": str(folder)})
    return answer["thread"], folder


async def _is_seen_once(url: str, router: str, own: Path, model: ScriptedModel) -> None:
    folder = own / "seen"
    folder.mkdir()
    async with open_client(url, "terminal") as client:
        answer: Any = await client.call("thread/start", {"cwd": str(folder)})
        thread = answer["thread"]
        async with bridge(own, "seen", router=router, server=url, cwd=folder) as texi:
            await post(router, signal("s1", to="seen"))
            await until(lambda: states(texi.ledger) == {"s1": "injected"})
        assert model.requests == []
        words = [{"type": "text", "text": "Go on."}]
        await client.call("turn/start", {"threadId": thread["id"], "input": words})
        await client.wait_for("turn/completed", lambda params: True)
    seen = [str(item) for item in model.requests[0]["input"] if item.get("role") == "developer"]
    assert sum('id: "s1"' in text for text in seen) == 1, seen


async def _survives(url: str, router: str, own: Path, step: Any) -> None:
    thread, folder = await _thread(url, own, step)
    async with bridge(own, step, router=router, server=url, cwd=folder, kill_at=step) as dying:
        await post(router, signal("s1", to=step))
        assert await dying.ended() == -signals.SIGKILL
    async with bridge(own, step, router=router, server=url, cwd=folder) as texi:
        await post(router, signal("s2", to=step))
        await until(lambda: states(texi.ledger) == dict.fromkeys(["s1", "s2"], "injected"))
        await texi.initialize()
        assert (await texi.call("prism_signals_pending"))["signals"] == []
    counts = [times_in_log(thread["path"], one) for one in ("s1", "s2")]
    assert counts == [1, 1], counts


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(prog="python -m tests.long.real_reference")
    parser.add_argument("--codex", default=shutil.which(CODEX), metavar="PATH")
    codex = parser.parse_args().codex
    if codex is None:
        print("nothing was checked: there is no codex on PATH; use --codex PATH", file=sys.stderr)
        return 2
    report = Report()
    with tempfile.TemporaryDirectory() as work:
        anyio.run(check_all, codex, Path(work), report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
