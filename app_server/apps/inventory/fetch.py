"""Reading the endpoint's whole list of tools, within bounds.

Source: docs/apps.md, "The hosted endpoint".
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import anyio
import anyio.to_thread
from pydantic_core import to_json

from app_server.apps.upstream.endpoint import UpstreamTarget
from app_server.apps.upstream.hosted_session import ElicitationBridge, open_session
from app_server.mcp_wire.errors import PeerError
from app_server.mcp_wire.http.refusals import UNREACHABLE
from protocol.model import Json, JsonObject

MAX_PAGES = 128
MAX_TOOLS = 4096
"""Tools of all pages, unusable ones included."""
MAX_BYTES = 8 * 1024 * 1024
"""Of all tools as one compact JSON array."""
FETCH_S = 30.0
"""For all pages together."""

Page: TypeAlias = Callable[[str | None], Awaitable[JsonObject]]
"""Asks for the page at a cursor; the first page has none."""


class FetchFailed(Exception):
    """Failed fetch of the list; the text says why, without text of the endpoint."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The inclusive bounds of one `tools/list` over all its pages."""

    pages: int = MAX_PAGES
    tools: int = MAX_TOOLS
    total_bytes: int = MAX_BYTES
    time_s: float = FETCH_S


async def fetch_tools(target: UpstreamTarget) -> list[JsonObject]:
    """List all tools of an account in a session of its own, without elicitation.

    Returns them as they were listed. Beside the time of the list, the handshake has its own.

    Raises:
        FetchFailed
    """
    try:
        async with open_session(target, ElicitationBridge()) as session:

            async def page(cursor: str | None) -> JsonObject:
                return await session.request(
                    "tools/list", {} if cursor is None else {"cursor": cursor}
                )

            return await collect_tools(page)
    except PeerError as exc:
        raise FetchFailed(f"the list of tools cannot be had: {_reason(exc)}") from exc


def _reason(error: PeerError) -> str:
    # The text may be the endpoint's.
    status = error.data.get("status") if isinstance(error.data, dict) else None
    if error.code == UNREACHABLE and isinstance(status, int):
        return f"HTTP status {status}"
    return f"error {error.code}"


async def collect_tools(page: Page, limits: FetchLimits | None = None) -> list[JsonObject]:
    """Ask for page after page and return all tools as they were listed.

    Elements that are no objects are counted and left out. What `page` raises goes through.

    Raises:
        FetchFailed: a bound is passed, a cursor comes twice, or a page is none.
    """
    limits = limits or FetchLimits()
    try:
        with anyio.fail_after(limits.time_s):
            return await _collect(page, limits)
    except TimeoutError:
        raise FetchFailed(f"the list of tools took more than {limits.time_s:g} s") from None


async def _collect(page: Page, limits: FetchLimits) -> list[JsonObject]:
    listed: list[Json] = []
    size = len("[]")
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(limits.pages):
        answer = await page(cursor)
        found = answer.get("tools")
        if not isinstance(found, list):
            raise FetchFailed("a page of the list of tools has no tools")
        if len(listed) + len(found) > limits.tools:
            raise FetchFailed(f"the list has more than {limits.tools} tools")
        size += await anyio.to_thread.run_sync(_size_of, found, not listed)
        if size > limits.total_bytes:
            raise FetchFailed(f"the list of tools has more than {limits.total_bytes} bytes")
        listed += found
        cursor = _next_cursor(answer)
        if cursor is None:
            return [tool for tool in listed if isinstance(tool, dict)]
        if cursor in seen:
            raise FetchFailed("the list of tools goes round in circles")
        seen.add(cursor)
    raise FetchFailed(f"the list of tools has more than {limits.pages} pages")


def _size_of(tools: list[Json], is_first: bool) -> int:
    """Return the bytes that tools add to an array, a comma before each but the very first."""
    commas = len(tools) - (1 if is_first and tools else 0)
    return commas + sum(len(to_json(tool)) for tool in tools)


def _next_cursor(answer: JsonObject) -> str | None:
    cursor = answer.get("nextCursor")
    if cursor is not None and not isinstance(cursor, str):
        # To stop here would pass a part for the whole.
        raise FetchFailed("a page of the list of tools has a cursor that is no text")
    return cursor
