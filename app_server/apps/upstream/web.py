"""One HTTP client for requests of this package that are not MCP.

Source: docs/apps.md, "The backend".
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

# httpx imports it with its first client, on the event loop.
import httpcore  # noqa: F401
import httpx

from app_server.http.loopback_address import is_this_machine
from app_server.http.trusted import trusted_certificates
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
        verify=await trusted_certificates(),
    ) as http:
        yield http
