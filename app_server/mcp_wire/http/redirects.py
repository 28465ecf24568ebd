"""Redirects that a server's messages follow: within its origin, and with the same method.

Headers, tokens and messages were meant for one origin; a redirect elsewhere gets none of them.
Source: docs/mcp.md, "Connections".
"""

from dataclasses import replace
from typing import TypeAlias

import httpx2

from app_server.mcp_wire.http.exchange import HttpRequest, HttpResponse, HttpSender, leave
from app_server.runtime.http.loopback_address import is_this_machine

MAX_REDIRECTS = 5
"""Of one request."""

KEEPS_METHOD = (307, 308)
ANY_REDIRECT = (301, 302, 303, *KEEPS_METHOD)

Origin: TypeAlias = tuple[str, str, int | None]


def origin_of(url: httpx2.URL) -> Origin:
    """Return scheme, host and port; the port is None where it is that of the scheme."""
    return url.scheme, url.host, url.port


def shown(url: httpx2.URL) -> httpx2.URL:
    """Return a URL as it may be shown: without a query and without credentials."""
    return url.copy_with(query=None, username=None, password=None, fragment=None)


async def follow(sender: HttpSender, request: HttpRequest) -> HttpResponse:
    """Send a request, and again to where it is redirected to, as far as that is allowed.

    The response may be a redirect that is not followed; see `redirect_of`.

    Raises:
        Unreachable: see HttpSender.
    """
    response = await sender.send(request)
    if response.status < 300:
        return response
    for _ in range(MAX_REDIRECTS):
        target = redirect_of(request, response)
        if target is None or not _may_follow(request, response.status, target):
            break
        await leave(response)
        request = replace(request, url=target)
        response = await sender.send(request)
    return response


def redirect_of(request: HttpRequest, response: HttpResponse) -> httpx2.URL | None:
    """Return where a response redirects to, None if it does not."""
    location = response.headers.get("location")
    if response.status not in ANY_REDIRECT or not location:
        return None
    try:
        return request.url.join(location)
    except httpx2.InvalidURL:
        return None


def _may_follow(request: HttpRequest, status: int, target: httpx2.URL) -> bool:
    if status not in KEEPS_METHOD and request.method != "GET":
        return False
    if target.userinfo:
        return False
    here, there = origin_of(request.url), origin_of(target)
    is_upgrade = (
        here[1] == there[1]
        and here[0] == "http"
        and there[0] == "https"
        and here[2] is None
        and there[2] is None
    )
    return here == there or (is_upgrade and not is_this_machine(request.url.host))
