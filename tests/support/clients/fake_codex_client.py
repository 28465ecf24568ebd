"""What the agent for tests of the launcher (fake_codex.py) asks the server that it is given."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from websockets.asyncio.client import connect

from app_server.peer.connection import identify, open_client
from app_server.peer.token_file import TOKEN_FILE_VARIABLE

NAME = "fake-codex"


def home_of(url: str, token: str | None) -> Any:
    """Return the home folder that the server names."""
    return anyio.run(_home_of, url, token)


def work(url: str, folder: str, write: Callable[[Any], None]) -> None:
    """Start a thread in a folder, write it down, and wait without an end."""
    anyio.run(_work, url, folder, write)


async def _home_of(url: str, token: str | None) -> Any:
    if token is None:
        return (await identify(url, NAME, timeout_s=60.0))["codexHome"]
    headers = {"Authorization": f"Bearer {token}"}
    async with connect(url, proxy=None, open_timeout=60.0, additional_headers=headers) as socket:
        info = {"clientInfo": {"name": NAME, "version": "1"}}
        await socket.send(json.dumps({"id": 1, "method": "initialize", "params": info}))
        return json.loads(await socket.recv())["result"]["codexHome"]


async def _work(url: str, folder: str, write: Callable[[Any], None]) -> None:
    file = os.environ.get(TOKEN_FILE_VARIABLE)
    async with open_client(url, NAME, token_file=None if file is None else Path(file)) as client:
        started = await client.call("thread/start", {"cwd": folder})
        write(started["thread"])
        await anyio.sleep_forever()
