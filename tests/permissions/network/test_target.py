"""Hosts in one spelling, and which of them are local."""

from ipaddress import ip_address

import pytest

from app_server.permissions.network import (
    BadHost,
    Target,
    is_local,
    is_named_local,
    is_this_machine,
    plain_host,
)

PLAIN = {
    "Example.ORG.": "example.org",
    " a_b-c.d ": "a_b-c.d",
    "[::1]": "::1",
    "2001:DB8:0::1": "2001:db8::1",
    "10.0.0.1": "10.0.0.1",
    "xn--bcher-kva.example": "xn--bcher-kva.example",
}


@pytest.mark.parametrize("text", PLAIN)
def test_a_host_has_one_spelling(text: str) -> None:
    assert plain_host(text) == PLAIN[text]


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "a..b", "a b", "bücher.example", "a/b", "a:80", "*.a", "a%b", "fe80::1%eth0"),
        *("127.1", "2130706433", "0x7f.1", "1.2.3.04", "0x7f000001", "a" * 64, "a." * 127 + "aa"),
    ],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(BadHost):
        plain_host(text)


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "198.18.0.1", "192.0.2.1", "224.0.0.1", "240.0.0.1"),
        *("255.255.255.255", "::", "::1", "fc00::1", "fe80::1", "ff02::1", "2001:db8::1"),
        *("::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1"),
        *("fec0::1", "::7f00:1", "::ffff:0:7f00:1", "64:ff9b:1::7f00:1", "5f00::1"),
    ],
)
def test_addresses_that_are_not_of_the_public_internet_are_local(text: str) -> None:
    assert is_local(ip_address(text))
    assert is_named_local(text)


@pytest.mark.parametrize(
    "text", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_public_addresses_are_not_local(text: str) -> None:
    assert not is_local(ip_address(text))
    assert not is_named_local(text)


def test_names_of_this_machine_are_local() -> None:
    names = ["localhost", "a.localhost", "localhost.example", "example"]
    assert [is_named_local(name) for name in names] == [True, True, False, False]


def test_which_addresses_lead_to_this_machine() -> None:
    texts = ["127.0.0.2", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "10.0.0.1", "1.1.1.1"]
    found = [is_this_machine(ip_address(text)) for text in texts]
    assert found == [True, True, True, True, True, False, False]


def test_a_target_is_shown_as_a_url() -> None:
    assert Target("a.b", 80, "http").shown() == "http://a.b:80"
    assert Target("::1", 443, "https").shown() == "https://[::1]:443"
