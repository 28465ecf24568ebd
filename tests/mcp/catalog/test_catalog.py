"""Which server wins a name, and when servers are resolved anew."""

from collections.abc import Sequence

import pytest

from app_server.config.values import Config
from app_server.extensions.contract.registration import ContributionContext, Registration, Tier
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.mcp.catalog.catalog import ServerCatalog, resolve_servers
from app_server.mcp.catalog.config import HttpTransport, ServerConfig, StdioTransport
from app_server.mcp.catalog.tables import read_mcp_settings
from tests.support.harness import claim
from tests.support.mcp_peers.shelf import Shelf

ON, OFF = True, False
PLUGIN, SELECTED, RUNTIME = Tier.PLUGIN, Tier.SELECTED_PLUGIN, Tier.RUNTIME


def registration(command: str, tier: Tier, enabled: bool = ON, name: str = "a") -> Registration:
    return Registration(name, {"command": command, "enabled": enabled}, tier=tier)


def configured(enabled: bool) -> dict[str, ServerConfig]:
    return {"a": ServerConfig("a", StdioTransport("configured"), enabled=enabled)}


@claim("extensions:tiers")
@pytest.mark.parametrize(
    ("mine", "theirs", "winner"),
    [
        ({}, [registration("r", RUNTIME)], ("r", ON)),
        (configured(ON), [registration("r", RUNTIME)], ("r", ON)),
        (configured(OFF), [registration("r", RUNTIME)], ("configured", OFF)),
        (configured(ON), [registration("r", RUNTIME, OFF)], ("r", OFF)),
        ({}, [registration("p", PLUGIN), registration("r", RUNTIME)], ("r", ON)),
        ({}, [registration("p", PLUGIN, OFF), registration("r", RUNTIME)], ("p", OFF)),
        ({}, [registration("s", SELECTED, OFF), registration("r", RUNTIME)], ("r", ON)),
        (configured(ON), [registration("s", SELECTED, OFF)], ("configured", ON)),
        (
            configured(ON),
            [registration("p", PLUGIN, OFF), registration("r", RUNTIME)],
            ("r", ON),
        ),
        (
            {},
            [
                registration("p", PLUGIN, OFF),
                registration("s", SELECTED),
                registration("r", RUNTIME),
            ],
            ("r", ON),
        ),
        ({}, [registration("p", PLUGIN), registration("s", SELECTED)], ("s", ON)),
        ({}, [registration("s", SELECTED), registration("p", PLUGIN)], ("s", ON)),
        (
            configured(ON),
            [registration("p", PLUGIN), registration("s", SELECTED)],
            ("configured", ON),
        ),
        ({}, [registration("first", PLUGIN), registration("second", PLUGIN)], ("first", ON)),
        ({}, [registration("first", SELECTED), registration("second", SELECTED)], ("first", ON)),
        ({}, [registration("first", RUNTIME), registration("second", RUNTIME)], ("second", ON)),
    ],
)
def test_the_highest_tier_wins_unless_the_name_is_switched_off(
    mine: dict[str, ServerConfig], theirs: Sequence[Registration], winner: tuple[str, bool]
) -> None:
    config = resolve_servers(mine, theirs)["a"]
    assert isinstance(config.transport, StdioTransport)
    assert (config.transport.command, config.enabled) == winner


def test_two_of_one_tier_are_a_conflict(caplog: pytest.LogCaptureFixture) -> None:
    twice = [registration("x", tier) for tier in (RUNTIME, PLUGIN, RUNTIME, SELECTED)]
    resolve_servers({}, twice)
    assert caplog.messages == ["MCP server a: registered twice (runtime)"]


def test_servers_are_sorted_and_nonsense_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    servers = resolve_servers(
        configured(ON),
        [
            registration("x", RUNTIME, name="c"),
            Registration("bad", {"url": 5}),
            Registration("none", {}),
            registration("x", PLUGIN, name="b"),
        ],
    )
    assert list(servers) == ["a", "b", "c"]
    assert [config.is_registered for config in servers.values()] == [False, False, True]
    assert len(caplog.records) == 2


class Publishing(Shelf):
    """Publishes something new while it is asked."""

    def contribute(self, context: ContributionContext) -> Sequence[Registration]:
        given = super().contribute(context)
        if len(self.asked) == 1:
            self.publish(Registration("later", {"url": "http://127.0.0.1:9/mcp"}))
        return given


@claim("extensions:revisions")
def test_what_is_published_while_servers_are_resolved_counts_at_the_next_boundary() -> None:
    shelf = Publishing()
    catalog = ServerCatalog(ExtensionRegistry([shelf]), "t")
    config = Config({"key": "value"})
    settings = read_mcp_settings(config)
    assert not catalog.is_current
    assert list(catalog.resolve(settings, config, "current").servers) == []
    assert not catalog.is_current
    servers = catalog.resolve(settings, config, "discover").servers
    assert catalog.is_current
    assert servers == {
        "later": ServerConfig("later", HttpTransport("http://127.0.0.1:9/mcp"), is_registered=True)
    }
    assert [(asked.mode, asked.config, asked.thread_id) for asked in shelf.asked] == [
        ("current", {"key": "value"}, "t"),
        ("discover", {"key": "value"}, "t"),
    ]
