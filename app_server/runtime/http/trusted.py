"""The certificates that are trusted, read once and beside the event loop: that takes some 20 ms.

Importing this module imports httpx; whoever uses httpx does.
"""

import ssl
from functools import cache

import anyio.to_thread

# httpx imports it with the first context, on whatever thread.
import certifi  # noqa: F401
import httpx


async def trusted_certificates() -> ssl.SSLContext:
    """Return the TLS context for every client of httpx, equal to its default."""
    return await anyio.to_thread.run_sync(_read)


@cache
def _read() -> ssl.SSLContext:
    return httpx.create_ssl_context()
