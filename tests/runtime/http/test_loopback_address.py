"""Which hosts are this machine: one table for all who ask."""

from urllib.parse import urlsplit

import httpx
import httpx2
import pytest

from app_server.accounts.account_errors import AccountError
from app_server.accounts.issuer import require_private_channel
from app_server.clients.receiver.agent.environment import check_url
from app_server.clients.receiver.router.wire import check_router_url
from app_server.host.exec.client.address import parse_exec_address
from app_server.mcp.oauth.web import Web
from app_server.mcp_wire.http import remote
from app_server.runtime.http.loopback_address import (
    LOOPBACK_PATTERNS,
    is_loopback_address,
    is_this_machine,
)
from tests.support.http_peer import NO_CERTIFICATES

ADDRESSES = ("127.0.0.1", "127.0.0.0", "127.1.2.3", "127.255.255.255")
ADDRESSES_V6 = ("::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::1%lo")
NAMES = ("localhost", "LOCALHOST", "localhost.", "LOCALHOST.", "a.localhost", "a.b.LocalHost.")
OTHERS = (
    *("126.255.255.255", "128.0.0.0", "10.0.0.1", "169.254.1.1", "0.0.0.0", "255.255.255.255"),
    *("::", "::2", "fe80::1%lo", "::ffff:10.0.0.1", "2001:db8::1", "::127.0.0.1"),
    *("127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "127.0.0.1.", "127.0.0.1.example"),
    *(
        "localhost..",
        ".",
        "notlocalhost",
        "localhost.example",
        "localhost1",
        "local",
        "ip6-localhost",
    ),
    *("127.0.0.1:80", "localhost:80", "[::1]", "user@localhost", "localhost ", "", None),
)


@pytest.mark.parametrize("host", [*ADDRESSES, *ADDRESSES_V6])
def test_an_address_of_this_machine(host: str) -> None:
    assert (is_loopback_address(host), is_this_machine(host)) == (True, True)


@pytest.mark.parametrize("host", NAMES)
def test_a_name_of_this_machine_is_no_address(host: str) -> None:
    assert (is_loopback_address(host), is_this_machine(host)) == (False, True)


@pytest.mark.parametrize("host", OTHERS)
def test_another_machine(host: str | None) -> None:
    assert (is_loopback_address(host), is_this_machine(host)) == (False, False)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost@example.com/", False),
        ("http://127.0.0.1@example.com/", False),
        ("http://user@localhost/", True),
        ("http://example.com#@localhost/", False),
        ("http://LOCALHOST.:1/", True),
        ("http://[::1]:1/", True),
        ("http://127.0.0.1:1/", True),
    ],
)
def test_the_three_parsers_of_addresses_agree_on_the_host(url: str, expected: bool) -> None:
    hosts = (urlsplit(url).hostname, httpx.URL(url).host, httpx2.URL(url).host)
    assert [is_this_machine(host) for host in hosts] == [expected] * 3


HERE = ("127.0.0.1", "127.1.2.3", "[::1]", "localhost", "LOCALHOST.", "a.localhost")
ELSEWHERE = ("192.0.2.1", "0.0.0.0", "[::2]", "localhost.example", "example")


@pytest.mark.parametrize(("hosts", "expected"), [(HERE, True), (ELSEWHERE, False)])
def test_all_who_ask_agree(
    hosts: tuple[str, ...], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://192.0.2.9:1")
    monkeypatch.delenv("no_proxy", raising=False)
    near = Web(httpx2.AsyncClient(verify=NO_CERTIFICATES), "http://127.0.0.1:1/mcp", {})
    far = Web(httpx2.AsyncClient(verify=NO_CERTIFICATES), "https://example.com/mcp", {})
    for host in hosts:
        answers = {
            "the issuer of accounts": _accepts(require_private_channel, f"http://{host}:1"),
            "an app-server": _accepts(check_url, f"ws://{host}:1"),
            "a router": _accepts(check_router_url, f"ws://{host}:1"),
            "an exec server": parse_exec_address(f"ws://{host}:1", None, None, None).is_loopback,
            "a local server's sign-in": near.may_visit(f"http://{host}:2"),
            "another server's sign-in": not far.may_visit(f"https://{host}:2"),
            "a proxy": remote.ambient_proxy(httpx2.URL(f"http://{host}:1")) is None,
        }
        assert answers == dict.fromkeys(answers, expected), host


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "a.localhost"])
async def test_a_client_of_httpx_shows_the_usual_hosts_to_no_proxy(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:1")
    async with httpx.AsyncClient(
        verify=NO_CERTIFICATES, mounts=dict.fromkeys(LOOPBACK_PATTERNS)
    ) as client:
        direct = client._transport
        assert client._transport_for_url(httpx.URL(f"http://{host}:2/")) is direct
        elsewhere = client._transport_for_url(httpx.URL("http://example.com/"))
        assert elsewhere is not direct


def _accepts(check: object, url: str) -> bool:
    assert callable(check)
    try:
        check(url)
    except (ValueError, AccountError):
        return False
    return True
