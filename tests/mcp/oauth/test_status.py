"""oauth: the status of a sign-in, and its settings."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

# Imported here so that no test waits for it.
import app_server.handlers.integrations.mcp
import app_server.mcp.oauth.authorization  # noqa: F401
from app_server.config.values import Config, ConfigError
from app_server.mcp.catalog.config import HttpTransport, OAuthSettings
from app_server.mcp.catalog.tables import read_mcp_settings
from app_server.mcp.errors import NotLoggedIn
from app_server.mcp.servers.server import McpServer
from app_server.mcp.servers.status import AuthProbe
from app_server.mcp.tools.listing import Listing
from app_server.runtime.late_event import LateEvent
from tests.support.harness import claim
from tests.support.mcp_peers.no_processes import NoProcesses
from tests.support.mcp_peers.oauth_peer import PRM, OAuthPeer
from tests.support.mcp_peers.sign_in import SOON, fresh_server, keep
from tests.support.model import Gate


class Idle:
    """A connection that nobody calls."""

    def __init__(self) -> None:
        self.closed = LateEvent()
        self.keeps_session = True
        self.pid = None

    async def request(self, *_: Any, **__: Any) -> Any:
        raise AssertionError


def server_of(peer: OAuthPeer, home: Path | None, failure: bool = True, **more: Any) -> McpServer:
    server = fresh_server(peer, home, **more)
    if failure:
        server.failed(NotLoggedIn())
    else:
        server.ready(Idle(), Listing())
    return server


# Status.


@claim("oauth:status-words")
async def test_the_status_says_whether_there_is_a_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    async with OAuthPeer().serve() as peer:
        probe = AuthProbe(NoProcesses(), lambda: clock[0])
        server = server_of(peer, tmp_path)
        assert await probe.status(server) == "notLoggedIn"
        asked = len(peer.requests)
        assert await probe.status(server) == "notLoggedIn"
        assert len(peer.requests) == asked
        # A server that answers 401 and no more has no sign-in.
        peer.documents.clear()
        clock[0] = 1000.0
        assert await probe.status(server) == "unsupported"
        peer.publish()
        for limit in ("DISCOVERY_S", "CONNECTED_DISCOVERY_S"):
            monkeypatch.setattr(f"app_server.mcp.servers.status.{limit}", 0.05)
            clock[0] += 1000.0
            peer.gates[f"{PRM}/mcp"] = gate = Gate()
            slow = server_of(peer, tmp_path, failure=limit == "DISCOVERY_S")
            assert await probe.status(slow) == "unknown"
            gate.opened.set()
            clock[0] += 31.0
            monkeypatch.undo()
            assert await probe.status(slow) == "notLoggedIn"
        assert await probe.status(server_of(peer, None)) == "unsupported"
        assert await probe.status(server_of(peer, tmp_path, auth="chatgpt")) == "unsupported"
        keep(tmp_path, peer, {"access_token": "a"})
        assert await probe.status(server) == "oAuth"
        keep(tmp_path, peer, {"access_token": "a"}, **SOON)
        assert await probe.status(server) == "notLoggedIn"
        (tmp_path / ".credentials.json").write_text("[")
        assert await probe.status(server) == "unsupported"


async def test_the_same_address_is_another_server_in_another_environment(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        probe = AuthProbe(NoProcesses())
        here = server_of(peer, tmp_path)
        assert await probe.status(here) == "notLoggedIn"
        there = server_of(peer, tmp_path)
        there.config = replace(there.config, environment_id="there")
        assert await probe.status(there) == "unsupported"
        keep(tmp_path, peer, {"access_token": "a"})
        assert [await probe.status(one) for one in (here, there)] == ["oAuth", "unsupported"]


async def test_answers_are_remembered_for_so_many_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.mcp.servers.status.MAX_KEPT", 1)
    async with OAuthPeer().serve() as one, OAuthPeer().serve() as other:
        probe = AuthProbe(NoProcesses())
        for peer in (one, other, one):
            assert await probe.status(server_of(peer, tmp_path)) == "notLoggedIn"
        assert len([path for _, path, _ in one.requests if path == f"{PRM}/mcp"]) == 2


# Configuration.


def test_settings_of_a_sign_in_are_read(tmp_path: Path) -> None:
    document = {
        "mcp_oauth_credentials_store": "file",
        "mcp_oauth_callback_port": 1,
        "mcp_oauth_callback_url": "http://127.0.0.1:1/all",
        "mcp_servers": {
            "a": {
                "url": "http://x",
                "auth": "oauth",
                "oauth_resource": "r",
                "scopes": ["s"],
                "oauth": {
                    "client_id": "c",
                    "client_secret_env_var": "v",
                    "callback_url": "u",
                    "callback_port": 2,
                },
            },
            "b": {"url": "http://x", "auth": "chatgpt"},
        },
    }
    servers = read_mcp_settings(Config(document, tmp_path / "config.toml")).servers
    a, b = servers["a"].transport, servers["b"].transport
    assert isinstance(a, HttpTransport)
    assert isinstance(b, HttpTransport)
    assert a.oauth == OAuthSettings(tmp_path, "file", "c", "v", "u", 2, "r", ["s"])
    assert b.oauth == OAuthSettings(
        tmp_path, "file", callback_url="http://127.0.0.1:1/all", callback_port=1
    )
    assert (a.signs_in, b.signs_in) == (True, False)
    for change, text in (
        ({"oauth": {"callback_port": 65_536}}, "integer `65536`, expected u16"),
        ({"auth": "basic"}, "unknown variant `basic`, expected one of `oauth`"),
        (
            {"oauth": {"client_secret_env_var": "v"}},
            "client_secret_env_var needs client_id",
        ),
        ({"oauth": "secret"}, "invalid type: string, expected a map"),
    ):
        broken = Config({"mcp_servers": {"a": {"url": "http://x", **change}}})
        with pytest.raises(ConfigError, match=text):
            read_mcp_settings(broken)


@pytest.mark.process
def test_the_sdk_is_not_imported_until_an_authorization_server_is_asked_for() -> None:
    code = (
        "import sys, app_server.mcp.client, app_server.mcp.servers.status; "
        "import app_server.handlers.integrations.mcp; "
        "print([name for name in ('mcp', 'mcp_types') if name in sys.modules])"
    )
    argv = [sys.executable, "-c", code]
    assert subprocess.run(argv, capture_output=True, check=True, text=True).stdout == "[]\n"
