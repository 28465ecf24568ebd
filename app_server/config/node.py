"""The settings of a node: where its group reaches it, their secret, and a digest of all of them.

They are read where threads are kept in a database.
Source: docs/scale.md, "How nodes reach one another".
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from app_server.config.config_toml import MAX_FILE_BYTES
from app_server.config.values import Config, ConfigView
from app_server.runtime.user_paths import expand_user

ADDRESS_KEY = "node_address"
SECRET_KEY = "node_secret_file"

MAX_CHARS = 2048
ADDRESS_RULE = "must be ws://HOST:PORT or wss://HOST, without a user, `?` or `#`"


OWN_KEYS = frozenset({"store", ADDRESS_KEY, SECRET_KEY})
"""Keys of config.toml that may differ between the nodes of a group."""
SHARED_FILES = ("hooks.json", "AGENTS.md", "AGENTS.override.md")
RULES = "rules/*.rules"
MAX_RULES_FILES = 64
"""As many as are read (docs/tools.md)."""


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


def settings_digest(config: Config, home: Path) -> str:
    """Return a digest of what nodes of a group are to have in common, as 64 hexadecimal digits.

    It covers the settings in force but for OWN_KEYS, an administrator's demands, and in the home
    SHARED_FILES and at most MAX_RULES_FILES files of RULES, each up to MAX_FILE_BYTES; what cannot
    be read counts as absent. Blocks.
    Source: docs/scale.md, "Operation".
    """
    demanded = config.requirements
    shared = {key: value for key, value in config.document.items() if key not in OWN_KEYS}
    documents = [shared, None if demanded is None else demanded.document]
    digest = hashlib.sha256(json.dumps(documents, sort_keys=True, default=str).encode())
    for file in _shared_files(home):
        try:
            with file.open("rb") as opened:
                content = hashlib.sha256(opened.read(MAX_FILE_BYTES))
        except OSError:
            continue
        digest.update(file.name.encode(errors="surrogateescape") + b"\0" + content.digest())
    return digest.hexdigest()


def _shared_files(home: Path) -> Iterator[Path]:
    yield from (home / name for name in SHARED_FILES)
    yield from sorted(islice(home.glob(RULES), MAX_RULES_FILES))
