"""mcp: which redirects are followed, and what is sent to where they lead.

The addresses are of no server: a sender that writes down what it is asked to send answers.
"""

from dataclasses import replace

import httpx2
import pytest

from app_server.mcp_wire.http.exchange import HttpRequest
from app_server.mcp_wire.http.redirects import follow, redirect_of
from tests.mcp_wire.senders import Response, Sender


def request_to(url: str, method: str = "POST") -> HttpRequest:
    return HttpRequest(method, httpx2.URL(url), {"authorization": "Bearer secret"}, b"{}")


FOLLOWED = [
    ("POST", 307, "http://a.example/mcp", "/other", "http://a.example/other"),
    ("POST", 308, "http://a.example/mcp", "other", "http://a.example/other"),
    ("GET", 301, "http://a.example/mcp", "/other", "http://a.example/other"),
    ("GET", 302, "http://a.example/mcp", "/other", "http://a.example/other"),
    ("GET", 303, "http://a.example/mcp", "/other", "http://a.example/other"),
    ("GET", 308, "https://a.example:8443/mcp", "//a.example:8443/b", "https://a.example:8443/b"),
    ("POST", 307, "https://a.example/mcp", "https://A.example:443/b", "https://a.example/b"),
    ("POST", 307, "http://127.0.0.1:81/mcp", "http://127.0.0.1:81/b", "http://127.0.0.1:81/b"),
    # The same server, now encrypted.
    ("POST", 307, "http://a.example/mcp", "https://a.example/mcp", "https://a.example/mcp"),
    ("POST", 308, "http://a.example:80/mcp", "https://a.example:443/b", "https://a.example/b"),
]


@pytest.mark.parametrize(("method", "status", "url", "location", "target"), FOLLOWED)
async def test_a_redirect_to_the_same_server_is_sent_the_whole_request(
    method: str, status: int, url: str, location: str, target: str
) -> None:
    request = request_to(url, method)
    first, last = Response(status, {"location": location}), Response(200)
    sender = Sender([first, last])
    assert await follow(sender, request) is last
    assert sender.sent == [request, replace(request, url=httpx2.URL(target))]
    assert (first.closed, last.closed) == (1, 0)


NOT_FOLLOWED = [
    # Another host, port or scheme, each alone.
    ("POST", 307, "http://a.example/mcp", "http://b.example/mcp"),
    ("POST", 307, "http://a.example/mcp", "http://a.example:81/mcp"),
    ("POST", 307, "http://a.example:81/mcp", "http://a.example/mcp"),
    ("POST", 307, "https://a.example/mcp", "http://a.example/mcp"),
    ("POST", 307, "http://a.example/mcp", "ftp://a.example/mcp"),
    ("POST", 307, "http://a.example/mcp", "//a.example.b.example/mcp"),
    # Encrypted, but not the same server.
    ("POST", 307, "http://a.example/mcp", "https://b.example/mcp"),
    ("POST", 307, "http://a.example:81/mcp", "https://a.example/mcp"),
    ("POST", 307, "http://a.example/mcp", "https://a.example:8443/mcp"),
    ("POST", 307, "http://a.example:81/mcp", "https://a.example:81/mcp"),
    ("POST", 307, "ws://a.example/mcp", "https://a.example/mcp"),
    # On this machine the port is the server.
    ("POST", 307, "http://localhost/mcp", "https://localhost/mcp"),
    ("POST", 307, "http://127.0.0.1/mcp", "https://127.0.0.1/mcp"),
    ("POST", 307, "http://[::1]/mcp", "https://[::1]/mcp"),
    # Credentials that somebody else chose.
    ("POST", 307, "http://a.example/mcp", "http://u:p@a.example/mcp"),
    ("GET", 302, "http://a.example/mcp", "http://u@a.example/mcp"),
    # They would become a GET.
    ("POST", 301, "http://a.example/mcp", "/other"),
    ("POST", 302, "http://a.example/mcp", "/other"),
    ("POST", 303, "http://a.example/mcp", "/other"),
    ("DELETE", 302, "http://a.example/mcp", "/other"),
    # No redirects.
    ("GET", 300, "http://a.example/mcp", "/other"),
    ("GET", 304, "http://a.example/mcp", "/other"),
    ("POST", 400, "http://a.example/mcp", "/other"),
    ("POST", 201, "http://a.example/mcp", "/other"),
    ("POST", 307, "http://a.example/mcp", ""),
    ("POST", 307, "http://a.example/mcp", "http://a.example:x/"),
]


@pytest.mark.parametrize(("method", "status", "url", "location"), NOT_FOLLOWED)
async def test_any_other_redirect_is_sent_nothing(
    method: str, status: int, url: str, location: str
) -> None:
    request = request_to(url, method)
    response = Response(status, {"location": location})
    sender = Sender([response])
    assert await follow(sender, request) is response
    assert (sender.sent, response.closed) == ([request], 0)


async def test_the_sixth_redirect_of_a_request_is_not_followed() -> None:
    request = request_to("http://a.example/0")
    responses = [Response(307, {"location": f"/{number}"}) for number in range(1, 8)]
    sender = Sender(responses)
    assert await follow(sender, request) is responses[5]
    assert [sent.url.path for sent in sender.sent] == ["/0", "/1", "/2", "/3", "/4", "/5"]
    assert [response.closed for response in responses] == [1] * 5 + [0] * 2


@pytest.mark.parametrize(
    ("status", "headers", "target"),
    [
        (301, {"location": "b"}, "http://a.example/b"),
        (302, {"location": "//b.example/"}, "http://b.example/"),
        (303, {"location": "?x"}, "http://a.example/a?x"),
        (307, {"location": "https://b.example/"}, "https://b.example/"),
        (308, {"location": "b"}, "http://a.example/b"),
        (308, {}, None),
        (308, {"location": ""}, None),
        (308, {"location": "http://a.example:x/"}, None),
        (304, {"location": "b"}, None),
        (200, {"location": "b"}, None),
    ],
)
def test_a_redirect_leads_to_its_location(
    status: int, headers: dict[str, str], target: str | None
) -> None:
    found = redirect_of(request_to("http://a.example/a"), Response(status, headers))
    assert found == (None if target is None else httpx2.URL(target))
