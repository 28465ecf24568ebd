"""Target of a command's connection, in one spelling for each host.

Source: docs/tools.md, "Network through a proxy".
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal, TypeAlias

TargetProtocol: TypeAlias = Literal["http", "https", "socks5Tcp"]
"""Protocol of a request to the proxy: HTTP with a whole URL, CONNECT, or SOCKS5."""

MAX_HOST_CHARS = 253
"""Of a name, as DNS has it."""

LOCALHOST = "localhost"

_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_TRANSLATED = ip_network("64:ff9b::/96")
"""IPv4 addresses as NAT64 writes them (RFC 6052)."""

Address: TypeAlias = IPv4Address | IPv6Address


class BadHost(ValueError):
    """A text that is no host; the text of this says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A host and a port, and how they were asked for."""

    host: str
    """As `plain_host` returns it."""
    port: int
    protocol: TargetProtocol

    def shown(self) -> str:
        """Return it as a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}"


def plain_host(text: str) -> str:
    """Return a host in lower case, without brackets, and without dots at its end.

    A name whose last part is a number is read as an IPv4 address, as resolvers do, and must be
    written as one: `127.1` and `2130706433` are other spellings of `127.0.0.1`.

    Raises:
        BadHost: it is neither a name of ASCII characters nor an address without a zone.
    """
    host = text.strip().lower()
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host.rstrip(".")
    address = address_of(host)
    if address is not None:
        if "%" in host:
            raise BadHost("an address must not have a zone")
        return str(address)
    if len(host) > MAX_HOST_CHARS or _NAME.fullmatch(host) is None:
        raise BadHost("it must be a name of letters, digits, `-`, `_` and dots, or an address")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        raise BadHost("an IPv4 address must be four numbers")
    return host


def address_of(host: str) -> Address | None:
    """Return the address that a host is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_named_local(host: str) -> bool:
    """Whether a host is local by what it is called; others may yet turn out to be so."""
    address = address_of(host)
    if address is not None:
        return is_local(address)
    return host == LOCALHOST or host.endswith(f".{LOCALHOST}")


def is_local(address: Address) -> bool:
    """Whether an address is not of the public Internet: this machine, private networks, others."""
    inner = _within(address)
    if inner is not None:
        return is_local(inner)
    if isinstance(address, IPv6Address) and address.is_site_local:
        return True
    return not address.is_global or address.is_multicast or address.is_reserved


def is_this_machine(address: Address) -> bool:
    """Whether connecting to an address reaches this machine whatever its networks are."""
    inner = _within(address)
    if inner is not None:
        return is_this_machine(inner)
    return address.is_loopback or address.is_unspecified


def _within(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address leads to; None if it is no such address."""
    if isinstance(address, IPv4Address):
        return None
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
