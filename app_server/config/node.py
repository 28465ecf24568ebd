"""The settings of a node: where the others of its group reach it, and the secret that they share.

They are read where threads are kept in a database.
Source: docs/scale.md, "How nodes reach one another".
"""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from app_server.config.values import ConfigView
from app_server.runtime.user_paths import expand_user

ADDRESS_KEY = "node_address"
SECRET_KEY = "node_secret_file"

MAX_CHARS = 2048
ADDRESS_RULE = "must be ws://HOST:PORT or wss://HOST, without a user, `?` or `#`"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How a node and the others of its group reach one another."""

    secret_file: Path
    """The same secret on all nodes."""
    address: str | None
    """None: the first `ws://` address that the server listens on."""


def read_node(view: ConfigView, home: Path) -> GroupSettings | None:
    """Read both keys; None: this server passes no requests on. A relative path is in `home`.

    Raises:
        ConfigError: a value makes no sense, or an address is there without a secret.
    """
    secret, address = view.string(SECRET_KEY), view.string(ADDRESS_KEY)
    if address is not None and not _is_address(address):
        raise view.error(ADDRESS_RULE, ADDRESS_KEY)
    if secret is None:
        if address is not None:
            raise view.error(f"needs {SECRET_KEY}: nodes let one another in by it", ADDRESS_KEY)
        return None
    if not secret:
        raise view.error("must name a file", SECRET_KEY)
    return GroupSettings(home / expand_user(secret), address)


def _is_address(text: str) -> bool:
    if len(text) > MAX_CHARS or not text.isprintable() or "@" in text:
        return False
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    return (
        parts.scheme in ("ws", "wss")
        and bool(parts.hostname)
        and port != 0
        and not (parts.query or parts.fragment)
        and not (set(text) & set(" ?#"))
    )
