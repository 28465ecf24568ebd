"""What config.toml says of the network of commands."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from app_server.config.values import Config, ConfigError
from app_server.permissions.network import (
    MAX_DOMAINS,
    DomainPermission,
    NetworkPolicy,
    NetworkTable,
    read_network_feature,
    read_network_table,
)
from tests.support.harness import claim


def feature(text: str) -> NetworkTable | None:
    return read_network_feature(Config(tomllib.loads(text), Path("/config.toml")))


def table(document: dict[str, Any]) -> NetworkTable:
    return read_network_table(Config(document, Path("/config.toml")).view())


def demanding(text: str, demanded: str) -> NetworkTable | None:
    requirements = Config(tomllib.loads(demanded), Path("/requirements.toml"))
    config = Config(tomllib.loads(text), Path("/config.toml"), requirements=requirements)
    return read_network_feature(config)


@claim("requirements:network")
def test_what_an_administrator_demands_is_put_over_the_feature() -> None:
    user = (
        "[features.network_proxy]\nmode = 'limited'\nallow_local_binding = true\n"
        "domains = {'a.org' = 'deny', 'b.org' = 'allow', 'c.org' = 'deny'}\n"
    )
    demanded = "[experimental_network]\ndomains = {'A.org' = 'allow', 'd.org' = 'deny'}\n"
    assert demanding("", demanded) == NetworkTable(domains={"a.org": "allow", "d.org": "deny"})
    domains: dict[str, DomainPermission] = {
        "a.org": "allow",
        "b.org": "allow",
        "c.org": "deny",
        "d.org": "deny",
    }
    assert demanding(user, demanded) == NetworkTable(
        domains=domains, mode="limited", allow_local_binding=True
    )
    closed = f"{demanded}managed_allowed_domains_only = true\nallow_local_binding = false\n"
    del domains["b.org"]
    assert demanding(user, closed) == NetworkTable(
        domains=domains, mode="limited", allow_local_binding=False, is_closed=True
    )
    assert demanding("", "[experimental_network]\nenabled = false") is None
    with pytest.raises(ConfigError, match="experimental_network: domain `a b`: it must be a name"):
        demanding("", "[experimental_network.domains]\n'a b' = 'allow'")


def test_the_feature_is_a_boolean_or_a_table() -> None:
    assert feature("") is None
    assert feature("features.network_proxy = false") is None
    assert feature("features.network_proxy = true") == NetworkTable()
    assert feature("[features.network_proxy]\nenabled = false\nmode = 'limited'") is None
    on = feature("[features.network_proxy]\ndomains = {'A.org' = 'allow', '*.b.org' = 'deny'}")
    assert on == NetworkTable(domains={"a.org": "allow", "*.b.org": "deny"})


def test_a_table_becomes_a_policy() -> None:
    read = table(
        {
            "enabled": True,
            "domains": {"a.org": "allow", "**.A.Org.": "deny", "*": "allow"},
            "mode": "limited",
            "allow_local_binding": True,
            "enable_socks5": False,
            "proxy_url": "http://127.0.0.1:3128",
            "socks_url": "http://127.0.0.1:8081",
            "enable_socks5_udp": True,
            "allow_upstream_proxy": True,
            "dangerously_allow_non_loopback_proxy": True,
        }
    )
    assert read.restricts
    assert read.policy() == NetworkPolicy(
        allowed=("a.org", "*"),
        denied=("**.a.org",),
        is_limited=True,
        reaches_local=True,
        has_socks=False,
    )
    assert not table({"enabled": True}).restricts
    assert table({"mode": "full"}).restricts
    assert table({}).policy() == NetworkPolicy()


def test_of_two_tables_the_nearer_counts_key_by_key() -> None:
    far = table({"enabled": True, "mode": "limited", "domains": {"a": "allow", "b": "allow"}})
    near = table({"domains": {"b": "deny"}, "allow_local_binding": False, "enable_socks5": False})
    assert near.over(far) == NetworkTable(
        enabled=True,
        mode="limited",
        domains={"a": "allow", "b": "deny"},
        allow_local_binding=False,
        enable_socks5=False,
    )


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"mitm": True}, "`mitm` is not supported of the network of commands"),
    ({"unix_sockets": {"/a": "allow"}}, "`unix_sockets` is not supported"),
    ({"domains": {"a.org": "maybe"}}, "unknown variant `maybe`, expected `allow` or `deny`"),
    ({"domains": {"a.*.org": "allow"}}, "domain `a.\\*.org`: it must be a name"),
    ({"domains": {"127.1": "deny"}}, "domain `127.1`: an IPv4 address must be four numbers"),
    ({"domains": {"*": "deny"}}, "`\\*` cannot be denied"),
    ({"domains": {f"a{n}": "deny" for n in range(MAX_DOMAINS + 1)}}, "at most 1024 domains"),
    ({"mode": "open"}, "unknown variant `open`, expected `full` or `limited`"),
    ({"proxy_url": 1}, "invalid type: integer `1`, expected a string"),
    ({"enable_socks5_udp": 1}, "invalid type: integer `1`, expected a boolean"),
]


@pytest.mark.parametrize(("document", "text"), BROKEN, ids=lambda value: str(value)[:40])
def test_what_makes_no_sense_is_an_error(document: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        table(document)


def test_two_spellings_of_a_domain_are_one_and_the_stricter_word_counts() -> None:
    assert table({"domains": {"A.org": "deny", "a.org": "allow"}}).domains == {"a.org": "deny"}
