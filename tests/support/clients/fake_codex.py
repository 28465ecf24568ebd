"""An agent for tests of the launcher: writes down what it was given, then does as it is told.

FAKE_CODEX is `OUT DO [ARGUMENT]`: the file to write, and `exit N`, `wait`, `count`, which writes
down each SIGINT and ends with their number, or `thread FOLDER`, which starts a thread at the server
and waits.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import anyio
from websockets.asyncio.client import connect

from app_server.clients.connection import identify, open_client


def main() -> int:
    """Run the agent."""
    out, do, *arguments = os.environ["FAKE_CODEX"].split(" ")
    variables = {name: value for name, value in os.environ.items() if name.startswith("PRISM_")}
    given: dict[str, object] = {"words": sys.argv[1:], "variables": variables, "pid": os.getpid()}
    url = variables.get("PRISM_CODEX_APP_SERVER_URL")
    if url is not None:
        given["home"] = anyio.run(_home_of, url, os.environ.get("APP_SERVER_TOKEN"))
    if do == "exit":
        _write(Path(out), given)
        return int(arguments[0])
    if do == "thread":
        assert url is not None
        return anyio.run(_work, url, arguments[0], Path(out), given)
    if do == "count":
        return _count(Path(out), given)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    _write(Path(out), given)
    signal.pause()
    return 0


def _count(out: Path, given: dict[str, object]) -> int:
    numbers = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    count = 0
    while True:
        _write(out, given | {"count": count})
        if signal.sigwait(numbers) == signal.SIGTERM:
            return count
        count += 1


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(50 + number)


async def _home_of(url: str, token: str | None) -> object:
    if token is None:
        return (await identify(url, "fake-codex", timeout_s=10.0))["codexHome"]
    headers = {"Authorization": f"Bearer {token}"}
    async with connect(url, proxy=None, additional_headers=headers) as socket:
        info = {"clientInfo": {"name": "fake-codex", "version": "1"}}
        await socket.send(json.dumps({"id": 1, "method": "initialize", "params": info}))
        return json.loads(await socket.recv())["result"]["codexHome"]


async def _work(url: str, folder: str, out: Path, given: dict[str, object]) -> int:
    async with open_client(url, "fake-codex") as client:
        started = await client.call("thread/start", {"cwd": folder})
        _write(out, given | {"thread": started["thread"]})
        await anyio.sleep_forever()
    return 0


def _write(out: Path, given: dict[str, object]) -> None:
    draft = out.with_suffix(".draft")
    draft.write_text(json.dumps(given))
    draft.replace(out)


if __name__ == "__main__":
    sys.exit(main())
