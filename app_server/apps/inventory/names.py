"""Names of local servers and their tools, made from names that apps gave themselves. No I/O.

They may change with the next inventory: nothing that is kept may contain one.
Source: docs/apps.md, "Names".
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

from app_server.apps.inventory.inventory import AppTool, Connector, Inventory

RESOURCES = "codex_apps"
"""The server that has every app's resources and no tool."""

MAX_NAME_BYTES = 64
"""UTF-8 bytes of a server's name, and of a tool's."""

_PREFIX = f"{RESOURCES}__"
_NO_SLUG = "app"
_INSTALL_PAGES = "https://chatgpt.com/apps"


@dataclass(frozen=True, slots=True)
class Route:
    """One connector as a server."""

    server: str
    connector: Connector
    tools: Mapping[str, AppTool]
    """By the name under which the server lists them, in the order of the endpoint."""


class _Wanted(NamedTuple):
    """A name that would be natural, and what tells its bearer from all others."""

    base: str
    identity: str


def allocate_routes(inventory: Inventory) -> tuple[Route, ...]:
    """Give every connector with a real tool a server, and its tools names, in the order of ids.

    Connectors without one take part in sharing out the names: the first real tool of one changes
    nobody else's.
    """
    wanted = [_server(connector) for connector in inventory.connectors]
    named = zip(inventory.connectors, wanted, _allocate(wanted), strict=True)
    return tuple(
        Route(server, connector, _tool_names(connector, identity.identity))
        for connector, identity, server in named
        if connector.has_real_tool
    )


def stripped_title(connector: Connector, tool: AppTool) -> str | None:
    """Return a tool's title without the connector's name and the underscore in front of it."""
    title = tool.title
    return None if title is None else title.removeprefix(f"{connector.name}_") or title


def mention_slug(name: str) -> str:
    """Return how users name an app in their input."""
    return re.sub(r"[^A-Za-z0-9]", "-", name).lower().strip("-") or _NO_SLUG


def install_url(name: str, connector_id: str) -> str:
    """Return the page where a user connects an app; computed, whatever upstream says."""
    return f"{_INSTALL_PAGES}/{mention_slug(name)}/{quote(connector_id, safe='')}"


def _server(connector: Connector) -> _Wanted:
    base = _PREFIX + _sanitize(connector.name)
    return _Wanted(base, f"{RESOURCES}\0{base}\0{connector.id}")


def _tool_names(connector: Connector, identity: str) -> Mapping[str, AppTool]:
    begins = [
        _sanitize(name)
        for name in (connector.name, connector.id)
        if re.search(r"[A-Za-z0-9]", name)
    ]
    bases = [_tool_base(begins, tool.name) for tool in connector.tools]
    wanted = [
        _Wanted(base, f"{identity}\0{base}\0{tool.name}")
        for base, tool in zip(bases, connector.tools, strict=True)
    ]
    return dict(zip(_allocate(wanted), connector.tools, strict=True))


def _tool_base(begins: Sequence[str], name: str) -> str:
    whole = _sanitize(name)
    for begin in begins:
        rest = whole.removeprefix(begin)
        if rest and rest != whole:
            return rest
    return whole


def _sanitize(name: str) -> str:
    return mention_slug(name).replace("-", "_")


def _allocate(wanted: Sequence[_Wanted]) -> Iterator[str]:
    """Name everybody, in their order: natural names first, then the others with a hash."""
    count = Counter(one.base for one in wanted)
    names = {one: one.base for one in wanted if count[one.base] == 1 and _fits(one.base)}
    taken = set(names.values())
    for one in sorted(one for one in wanted if one not in names):
        names[one] = next(name for name in _with_hashes(one) if name not in taken)
        taken.add(names[one])
    return (names[one] for one in wanted)


def _with_hashes(wanted: _Wanted) -> Iterator[str]:
    seed = wanted.identity
    attempt = 0
    while True:
        digest = hashlib.sha1(seed.encode(), usedforsecurity=False).hexdigest()
        suffix = f"_{digest[:12]}"
        yield _cut(wanted.base, MAX_NAME_BYTES - len(suffix)) + suffix
        attempt += 1
        seed = f"{wanted.identity}\0{attempt}"


def _fits(name: str) -> bool:
    return len(name.encode()) <= MAX_NAME_BYTES


def _cut(name: str, limit_bytes: int) -> str:
    return name.encode()[:limit_bytes].decode(errors="ignore")
