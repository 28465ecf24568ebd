"""Addresses to listen on: `ws://IP:PORT`, `unix://PATH`, `stdio://`, `off`."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from app_server.runtime.http.loopback_address import is_loopback_address


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """An IP address; port 0 lets the system choose."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """Unix socket; its file does not exist yet, or has no listener."""

    path: Path


@dataclass(frozen=True, slots=True)
class StdioAddress:
    """Stdin and stdout of this process."""


Address: TypeAlias = TcpAddress | UnixAddress | StdioAddress


def parse_address(text: str, default_socket: Path) -> Address | None:
    """Read one `--listen` value; None for `off`. `default_socket` is what a bare `unix://` means.

    Raises:
        ValueError: with a sentence that says what would be accepted.
    """
    if text == "off":
        return None
    if text == "stdio://":
        return StdioAddress()
    if text.startswith("unix://"):
        path = text.removeprefix("unix://")
        return UnixAddress(Path(path) if path else default_socket)
    if text.startswith("ws://"):
        return _parse_tcp(text)
    raise ValueError(
        f"cannot listen on {text!r}: use ws://127.0.0.1:PORT, unix://PATH, stdio:// or off"
    )


def _parse_tcp(text: str) -> TcpAddress:
    try:
        parts = urlsplit(text)
        address, port = ipaddress.ip_address(parts.hostname or ""), parts.port
    except ValueError as exc:
        raise ValueError(f"cannot listen on {text!r}: {exc}; use ws://127.0.0.1:PORT") from exc
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"cannot listen on {text!r}: nothing may follow the port")
    if port is None:
        raise ValueError(f"cannot listen on {text!r}: the port is missing; 0 picks a free one")
    return TcpAddress(str(address), port)


def require_protection(address: Address, *, wants_token: bool) -> None:
    """Refuse to let everybody on the network run agents here.

    Raises:
        ValueError: other machines can reach the address, and clients need no token.
    """
    if (
        isinstance(address, TcpAddress)
        and not wants_token
        and not is_loopback_address(address.host)
    ):
        raise ValueError(
            f"refusing to listen on {address.host} without a token: everybody on the network could "
            "run agents here; use --ws-auth capability-token or signed-bearer-token, or 127.0.0.1"
        )
