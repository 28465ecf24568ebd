"""Whether a host of an address is this machine. No I/O: no name is looked up.

Source: RFC 1122, 3.2.1.3 and RFC 4291, 2.5.3 (addresses), RFC 6761, 6.3 (names).
"""

import ipaddress

LOOPBACK_PATTERNS = ("all://127.0.0.1", "all://*localhost", "all://[::1]")
"""The usual of these hosts as keys of the `mounts` of a client of httpx, which knows no ranges."""


def is_loopback_address(host: str | None) -> bool:
    """Whether a host is an IP address of 127.0.0.0/8, ::1, or one of the former in IPv6.

    It is the host alone: no port, no brackets, no user. Names, `0.0.0.0` and `::` are not loopback,
    nor are addresses in forms other than the usual, as `127.1`.
    """
    try:
        address = ipaddress.ip_address(host or "")
    except ValueError:
        return False
    # Python before 3.13 says no to `::ffff:127.0.0.1`.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def is_this_machine(host: str | None) -> bool:
    """Whether a host is a loopback address, `localhost` or a name below it, in any letter case.

    One dot at the end of a name, which stands for the root, changes nothing.
    """
    if is_loopback_address(host):
        return True
    name = (host or "").lower().removesuffix(".")
    return name == "localhost" or name.endswith(".localhost")
