"""What the feature makes of a sandbox policy."""

from app_server.permissions.network import NetworkPolicy, NetworkTable
from app_server.permissions.sandbox.policy import (
    UNRESTRICTED,
    EffectivePolicy,
    through_proxy,
)
from tests.support.harness import claim

FEATURE = NetworkTable(domains={"a.org": "allow", "b.org": "deny"}, mode="limited")
POLICY = NetworkPolicy(allowed=("a.org",), denied=("b.org",), is_limited=True)


def test_the_proxy_takes_the_place_of_a_network() -> None:
    direct = EffectivePolicy(writable=("/w",), network=True)
    assert through_proxy(direct, None) == direct
    proxied = EffectivePolicy(writable=("/w",), network=False, proxy=POLICY)
    assert through_proxy(direct, FEATURE) == proxied
    assert through_proxy(direct, NetworkTable()).proxy == NetworkPolicy()


def test_it_gives_no_network_to_whoever_has_none_or_is_not_confined() -> None:
    without = EffectivePolicy(writable=(), network=False)
    assert through_proxy(without, FEATURE) == without
    assert through_proxy(UNRESTRICTED, FEATURE) is UNRESTRICTED


@claim("requirements:network")
def test_what_an_administrator_says_counts_before_a_profile() -> None:
    profile = NetworkPolicy(("p.org",), ("d.org",), reaches_local=True)
    sandbox_policy = EffectivePolicy(writable=(), network=False, proxy=profile)
    demanded = NetworkTable(domains={"a.org": "allow"}, allow_local_binding=False, is_closed=True)
    assert through_proxy(sandbox_policy, demanded).proxy == NetworkPolicy(
        allowed=("a.org",), denied=("d.org",), reaches_local=False, is_closed=True
    )


def test_with_the_proxy_of_a_profile_both_hold() -> None:
    profile = NetworkPolicy(("p.org", "b.org"), ("d.org",), reaches_local=True, has_socks=False)
    sandbox_policy = EffectivePolicy(writable=(), network=False, proxy=profile)
    assert through_proxy(sandbox_policy, None) == sandbox_policy
    assert through_proxy(sandbox_policy, FEATURE).proxy == NetworkPolicy(
        allowed=("p.org", "b.org", "a.org"),
        denied=("d.org", "b.org"),
        is_limited=True,
        reaches_local=True,
        has_socks=False,
    )
