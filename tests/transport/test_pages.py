"""transport: pages in a browser are kept out, but for those that were allowed and have a token."""

from pathlib import Path

import pytest

from app_server.transport.address import TcpAddress
from app_server.transport.guards import CapabilityAuth, ListenerGuards
from app_server.transport.tokens import digest_of
from app_server.transport.websocket import host_without_port
from tests.support.harness import claim, serve
from tests.support.wire.handshakes import Answer, bearer, handshake

TOKEN = "right-token"
ORIGIN = "https://tools.example.com"
GUARDS = ListenerGuards(
    auth=CapabilityAuth(digest_of(TOKEN)), origins=frozenset({ORIGIN, "http://localhost:8080"})
)

LET_IN = Answer(101, "", {})
NO_TOKEN = Answer(401, "A bearer token is needed.\n", {})
NO_PAGE = Answer(403, "This server does not talk to web pages.\n", {})
NOT_THIS_MACHINE = Answer(403, "Host must name this machine: localhost, 127.0.0.1 or [::1].\n", {})


def of(origin: str) -> tuple[str, str]:
    return ("Origin", origin)


SHOWN = ("Sec-WebSocket-Protocol", f"app-server, bearer.{TOKEN}")


@claim("listener:origin", "listener:allowed-origin")
async def test_a_page_is_let_in_by_its_origin_and_its_token_together(tmp_path: Path) -> None:
    cases = {
        "allowed": ([of(ORIGIN), SHOWN], LET_IN),
        "allowed, with a port": ([of("http://localhost:8080"), SHOWN], LET_IN),
        "allowed, by a program": ([of(ORIGIN), bearer(TOKEN)], LET_IN),
        "allowed, no token": ([of(ORIGIN)], NO_TOKEN),
        "allowed, wrong token": ([of(ORIGIN), bearer("x")], NO_TOKEN),
        "foreign": ([of("https://evil.example.com"), SHOWN], NO_PAGE),
        "other port": ([of("http://localhost:8081"), SHOWN], NO_PAGE),
        "other scheme": ([of("http://tools.example.com"), SHOWN], NO_PAGE),
        "longer": ([of(f"{ORIGIN}.evil.com"), SHOWN], NO_PAGE),
        "below": ([of("https://a.tools.example.com"), SHOWN], NO_PAGE),
        "null": ([of("null"), SHOWN], NO_PAGE),
        "empty": ([of(""), SHOWN], NO_PAGE),
        "two": ([of(ORIGIN), of(ORIGIN), SHOWN], NO_PAGE),
        "two, one foreign": ([of(ORIGIN), of("https://evil.example.com"), SHOWN], NO_PAGE),
    }
    async with serve(tmp_path, guards=GUARDS) as served:
        answers = {
            name: await handshake(served.urls[0], *each) for name, (each, _) in cases.items()
        }
        health = await handshake(served.urls[0], of("null"), path="/readyz", upgrade=())
    assert answers == {name: answer for name, (_, answer) in cases.items()}
    assert health == NO_PAGE


@claim("listener:allowed-origin")
async def test_an_allowed_origin_without_tokens_is_no_way_in(tmp_path: Path) -> None:
    async with serve(tmp_path, guards=ListenerGuards(origins=GUARDS.origins)) as served:
        assert await handshake(served.urls[0], of(ORIGIN)) == NO_PAGE
        assert await handshake(served.urls[0]) == LET_IN


@claim("listener:host")
@pytest.mark.parametrize("guards", [ListenerGuards(), GUARDS], ids=["open", "token"])
async def test_a_name_that_was_made_to_lead_here_is_refused(
    tmp_path: Path, guards: ListenerGuards
) -> None:
    """A page of such a name may read what the server answers, and sends no origin with a GET."""
    right = [
        "localhost", "LOCALHOST:4500", "app.localhost:1", "127.0.0.1", "127.0.0.1:4500",
        "127.9.9.9", "[::1]", "[::1]:4500",
    ]  # fmt: skip
    wrong = [
        "evil.example.com", "evil.example.com:4500", "127.0.0.1.evil.com", "localhost.evil.com",
        "192.168.1.1", "0.0.0.0", "[::]", "[2001:db8::1]:80", "", "127.1", "[::1].evil",
        "[::1].evil:80", "[::1", "[::1]x", "[::1]:80:80", "[::1]@evil", "localhost:80@evil.example",
        "localhost@evil.example", "localhost:x", "localhost:123456", "localhost/evil", "::1",
        "[localhost]", "[127.0.0.1", "evil]localhost", "localhost localhost", "localhost,evil",
        "[::1%25lo]", "localhost#", "localhost?", "127.0.0.1\\evil",
    ]  # fmt: skip
    async with serve(tmp_path, guards=guards) as served:
        (url,) = served.urls
        assert [(await handshake(url, bearer(TOKEN), host=host)).status for host in right] == [
            101
        ] * len(right)
        for host in [*wrong, [], ["localhost", "evil.example.com"], ["localhost", "localhost"]]:
            for path, headers in (("/", [bearer(TOKEN)]), ("/readyz", [])):
                assert await handshake(url, *headers, host=host, path=path) == NOT_THIS_MACHINE, (
                    host
                )


async def test_the_name_is_looked_at_over_both_versions_of_ip(tmp_path: Path) -> None:
    async with serve(tmp_path, listen=[TcpAddress("::1", 0)]) as served:
        assert await handshake(served.urls[0], host="[::1]:9") == LET_IN
        assert await handshake(served.urls[0], host="evil.example.com") == NOT_THIS_MACHINE


def test_the_port_of_a_host_is_left_out() -> None:
    cases = {"a": "a", "a:1": "a", "a:": "a", "[::1]": "::1", "[::1]:5": "::1", "": None, "[": None}
    assert {value: host_without_port(value) for value in cases} == cases
