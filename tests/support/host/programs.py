"""What tests of command/exec and process/* share: programs, and what is told of them."""

import base64
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio

from tests.support.harness import WAIT_S, WireClient

FULL_ACCESS = {"type": "dangerFullAccess"}


def encoded(text: str) -> str:
    """Encode text as clients send it."""
    return base64.b64encode(text.encode()).decode()


def output(messages: Iterable[Any], stream: str = "stdout") -> bytes:
    """Join the pieces of a stream that were told."""
    return b"".join(
        base64.b64decode(message["params"]["deltaBase64"])
        for message in messages
        if message.get("method", "").endswith("/outputDelta")
        and message["params"]["stream"] == stream
    )


async def collect_output(client: WireClient, method: str, until: bytes) -> bytes:
    """Collect the output on stdout until it ends with some bytes."""
    heard = b""
    while not heard.endswith(until):
        message = await client.wait_for(method)
        heard += output([message])
    return heard


async def read_pid(path: Path) -> int:
    """Wait until a program has written its process id to a file, with a line end."""
    with anyio.fail_after(WAIT_S):
        while not (path.exists() and path.read_text().endswith("\n")):
            await anyio.sleep(0.01)
    return int(path.read_text())


async def wait_until_gone(pid: int) -> None:
    """Wait until a process has ended."""
    with anyio.fail_after(WAIT_S):
        while is_alive(pid):
            await anyio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
