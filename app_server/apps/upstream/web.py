"""One HTTP client for requests of this room that are not MCP.

Source: docs/apps.md, "The backend".
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from urllib.parse import urlsplit

import anyio.to_thread

# httpx imports it with its first client, on the event loop.
import httpcore  # noqa: F401
import httpx

from app_server.http.loopback_address import is_this_machine
from protocol.lifecycle import PROTOCOL_VERSION


@asynccontextmanager
async def open_web(url: str, timeout_s: float | None) -> AsyncIterator[httpx.AsyncClient]:
    """Keep connections while the context lasts; an ambient proxy never sees loopback traffic.

    `timeout_s` is for each step of a request; None leaves deadlines to the caller.
    """
    async with httpx.AsyncClient(
        headers={"user-agent": f"app-server/{PROTOCOL_VERSION}"},
        timeout=timeout_s,
        trust_env=not is_this_machine(urlsplit(url).hostname),
        verify=await anyio.to_thread.run_sync(_trusted),
    ) as http:
        yield http


@cache
def _trusted() -> ssl.SSLContext:
    # Reading the certificates takes some 20 ms.
    return httpx.create_ssl_context()
