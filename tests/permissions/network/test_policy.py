"""Which hosts the proxy lets commands reach: a table."""

import pytest

from app_server.permissions.network import (
    NetworkPolicy,
    NetworkRule,
    Target,
    TargetProtocol,
    Verdict,
    matches_any,
    verdict_on,
)

POLICY = NetworkPolicy(
    allowed=("a.org", "*.below.org", "**.within.org", "localhost", "127.0.0.1"),
    denied=("bad.a.org", "x.within.org", "**.evil.org"),
)
RULES = (
    NetworkRule("ruled.org", "https", "allow"),
    NetworkRule("denied.org", "socks5Udp", "forbidden"),
    NetworkRule("both.org", "http", "allow"),
    NetworkRule("both.org", "http", "forbidden"),
    NetworkRule("evil.org", "https", "allow"),
    NetworkRule("a.org", "http", "prompt"),
    NetworkRule("10.0.0.1", "https", "allow"),
)

VERDICTS: list[tuple[str, TargetProtocol, Verdict]] = [
    ("a.org", "https", "allow"),
    ("a.org", "http", "ask"),
    ("b.a.org", "https", "ask"),
    ("bad.a.org", "https", "denied"),
    ("below.org", "https", "ask"),
    ("one.below.org", "https", "allow"),
    ("two.one.below.org", "socks5Tcp", "allow"),
    ("notbelow.org", "https", "ask"),
    ("within.org", "http", "allow"),
    ("y.within.org", "http", "allow"),
    ("x.within.org", "http", "denied"),
    ("ruled.org", "https", "allow"),
    ("ruled.org", "http", "ask"),
    ("denied.org", "http", "denied"),
    ("both.org", "http", "denied"),
    ("evil.org", "https", "denied"),
    ("localhost", "http", "allow"),
    ("127.0.0.1", "http", "allow"),
    ("127.0.0.2", "http", "not_allowed_local"),
    ("a.localhost", "http", "not_allowed_local"),
    ("10.0.0.1", "https", "not_allowed_local"),
    ("1.1.1.1", "https", "ask"),
]


@pytest.mark.parametrize(("host", "protocol", "verdict"), VERDICTS)
def test_what_becomes_of_a_connection(
    host: str, protocol: TargetProtocol, verdict: Verdict
) -> None:
    assert verdict_on(Target(host, 443, protocol), POLICY, RULES) == verdict


def test_a_limited_network_has_plain_http_alone() -> None:
    limited = NetworkPolicy(allowed=("*",), is_limited=True)
    protocols: list[TargetProtocol] = ["http", "https", "socks5Tcp"]
    found = [verdict_on(Target("a.org", 80, protocol), limited, ()) for protocol in protocols]
    assert found == ["allow", "method_not_allowed", "method_not_allowed"]


def test_where_nobody_else_allows_hosts_no_rule_does_and_nobody_is_asked() -> None:
    closed = NetworkPolicy(allowed=("a.org",), is_closed=True)
    rules = (NetworkRule("b.org", "https", "allow"), NetworkRule("a.org", "https", "prompt"))
    hosts = ["a.org", "b.org", "c.org"]
    found = [verdict_on(Target(host, 443, "https"), closed, rules) for host in hosts]
    assert found == ["allow", "not_allowed", "not_allowed"]


def test_every_host_may_be_allowed_and_local_ones_with_a_word_of_its_own() -> None:
    every = NetworkPolicy(allowed=("*",))
    assert verdict_on(Target("any.org", 80, "http"), every, ()) == "allow"
    assert verdict_on(Target("10.0.0.1", 80, "http"), every, ()) == "not_allowed_local"
    local = NetworkPolicy(allowed=("*",), reaches_local=True)
    assert verdict_on(Target("10.0.0.1", 80, "http"), local, ()) == "allow"
    assert not every.may_be_local("any.org")
    assert local.may_be_local("any.org")
    # A name that is allowed may not lead to a local address.
    assert not NetworkPolicy(allowed=("any.org",)).may_be_local("any.org")
    assert NetworkPolicy(allowed=("::1",)).may_be_local("::1")


def test_a_pattern_matches_whole_parts_of_a_name() -> None:
    assert matches_any(["*"], "a")
    assert not matches_any(["*.a.org"], "xa.org")
    assert not matches_any(["**.a.org"], "xa.org")
    assert not matches_any([], "a")
