"""What is granted beyond a sandbox, as values."""

import pytest

from app_server.permissions.grants import MAX_GRANTED_PATHS, Grant, granted
from app_server.permissions.network import NetworkPolicy
from app_server.permissions.sandbox.policy import UNRESTRICTED, EffectivePolicy
from protocol.turns.policy import (
    AdditionalFileSystemPermissions,
    AdditionalNetworkPermissions,
    FileSystemSandboxEntry,
    GlobPatternFileSystemPath,
    PathFileSystemPath,
)

ASKED = Grant(read=("/etc",), write=("/out",), network=True)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (Grant(write=("/out",)), Grant(write=("/out",))),
        (Grant(write=("/out/sub", "/", "/outer", "/etc")), Grant(write=("/out/sub",))),
        (Grant(read=("/etc/x", "/out", "/usr")), Grant(read=("/etc/x", "/out"))),
        (Grant(network=True), Grant(network=True)),
        (Grant(), Grant()),
    ],
)
def test_only_what_was_asked_for_is_granted(given: Grant, kept: Grant) -> None:
    assert given.within(ASKED) == kept


def test_no_network_is_granted_to_who_did_not_ask() -> None:
    assert Grant(network=True).within(Grant(write=("/out",))) == Grant()


def test_a_grant_widens_a_sandbox_policy() -> None:
    sandbox_policy = EffectivePolicy(readable=("/usr",), writable=("/work",), denied=("/out/key",))
    wider = ASKED.widened(sandbox_policy)
    assert wider.network
    assert [wider.access(path) for path in ("/etc/x", "/out/x", "/work/x", "/opt")] == [
        "read",
        "write",
        "write",
        "none",
    ]
    assert wider.access("/out/key") == "none"
    assert wider.access("/out/.git/config") == "read"
    assert (
        Grant(write=("/out",)).widened(EffectivePolicy(writable=(), network=False)).network is False
    )


def test_whoever_has_the_proxy_keeps_it_when_a_network_is_granted() -> None:
    proxied = EffectivePolicy(writable=(), network=False, proxy=NetworkPolicy(allowed=("a.org",)))
    assert Grant(network=True).widened(proxied) == proxied


def test_whoever_is_not_confined_stays_so() -> None:
    assert ASKED.widened(UNRESTRICTED) is UNRESTRICTED


def test_both_forms_of_the_wire_are_read() -> None:
    entries = [
        FileSystemSandboxEntry(path=PathFileSystemPath(path="/b/"), access="write"),
        FileSystemSandboxEntry(path=PathFileSystemPath(path="/c"), access="read"),
        FileSystemSandboxEntry(path=PathFileSystemPath(path="/d"), access="deny"),
        FileSystemSandboxEntry(path=GlobPatternFileSystemPath(pattern="/e/*"), access="write"),
    ]
    files = AdditionalFileSystemPermissions(
        read=["/a", "relative", "/x/../etc"], write=["/w"], entries=entries
    )
    network = AdditionalNetworkPermissions(enabled=True)
    assert granted(files, network) == Grant(("/a", "/c"), ("/w", "/b"), network=True)
    assert granted(None, None).is_empty
    assert granted(None, AdditionalNetworkPermissions(enabled=None)).is_empty


def test_the_oldest_grants_are_forgotten() -> None:
    many = Grant(write=tuple(f"/{number}" for number in range(MAX_GRANTED_PATHS)))
    joined = many.joined(Grant(write=("/new", "/5")))
    assert len(joined.write) == MAX_GRANTED_PATHS
    assert joined.write[0] == "/1"
    assert joined.write[-1] == "/new"
