"""Names of local servers and their tools, made from names that apps gave themselves. No I/O.

They may change with the next inventory: nothing that is kept may contain one.
Source: docs/apps.md, "Names".
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import quote

from app_server.apps.inventory.inventory import AppTool, Connector, Inventory

RESOURCES = "codex_apps"
"""The server that has every app's resources and no tool."""

MAX_NAME_BYTES = 64
"""UTF-8 bytes of a server's name, and of a tool's."""

_PREFIX = f"{RESOURCES}__"
_NO_SLUG = "app"
_OTHERS = re.compile(r"[^A-Za-z0-9]")
_INSTALL_PAGES = "https://chatgpt.com/apps"


@dataclass(frozen=True, slots=True)
class Route:
    """One connector as a server."""

    server: str
    connector: Connector
    tools: Mapping[str, AppTool]
    """By the name under which the server lists them, in the order of the endpoint."""


class _Wanted(NamedTuple):
    """A preferred name, and the key that sets its bearer apart where several prefer it."""

    base: str
    own: str


def allocate_routes(
    inventory: Inventory, before: Mapping[str, Route] = MappingProxyType({})
) -> tuple[Route, ...]:
    """Give every connector with a real tool a server, and its tools names, in the order of ids.

    Connectors without one take part in sharing out the names: the first real tool of one changes
    nobody else's. A route of `before`, by server, stays that very object for the same connector.
    """
    wanted = [_Wanted(_PREFIX + _sanitize(one.name), one.id) for one in inventory.connectors]
    servers = _allocate(RESOURCES, wanted)
    routes = []
    for connector, one, server in zip(inventory.connectors, wanted, servers, strict=True):
        old = before.get(server)
        if old is not None and old.connector is connector:
            routes.append(old)
        elif connector.has_real_tool:
            routes.append(
                Route(server, connector, _tool_names(connector, _identity(RESOURCES, one)))
            )
    return tuple(routes)


def stripped_title(connector: Connector, tool: AppTool) -> str | None:
    """Return a tool's title without the connector's name and the underscore in front of it."""
    title = tool.title
    return None if title is None else title.removeprefix(f"{connector.name}_") or title


def mention_slug(name: str) -> str:
    """Return how users name an app in their input."""
    return _OTHERS.sub("-", name).lower().strip("-") or _NO_SLUG


def install_url(name: str, connector_id: str) -> str:
    """Return the page where a user connects an app; computed, whatever upstream says."""
    return f"{_INSTALL_PAGES}/{mention_slug(name)}/{quote(connector_id, safe='')}"


def _tool_names(connector: Connector, identity: str) -> Mapping[str, AppTool]:
    begins = [
        _sanitize(name)
        for name in (connector.name, connector.id)
        if re.search(r"[A-Za-z0-9]", name)
    ]
    wanted = [_Wanted(_tool_base(begins, tool.name), tool.name) for tool in connector.tools]
    return dict(zip(_allocate(identity, wanted), connector.tools, strict=True))


def _tool_base(begins: Sequence[str], name: str) -> str:
    whole = _sanitize(name)
    for begin in begins:
        rest = whole.removeprefix(begin)
        if rest and rest != whole:
            return rest
    return whole


def _sanitize(name: str) -> str:
    return mention_slug(name).replace("-", "_")


def _allocate(within: str, wanted: Sequence[_Wanted]) -> Iterator[str]:
    """Name everybody, in their order: natural names first, then the others with a hash."""
    count = Counter(one.base for one in wanted)
    names = {one: one.base for one in wanted if count[one.base] == 1 and _fits(one.base)}
    taken = set(names.values())
    for one in sorted(one for one in wanted if one not in names):
        names[one] = next(name for name in _with_hashes(within, one) if name not in taken)
        taken.add(names[one])
    return (names[one] for one in wanted)


def _identity(within: str, wanted: _Wanted) -> str:
    return f"{within}\0{wanted.base}\0{wanted.own}"


def _with_hashes(within: str, wanted: _Wanted) -> Iterator[str]:
    seed = identity = _identity(within, wanted)
    attempt = 0
    while True:
        digest = hashlib.sha1(seed.encode(), usedforsecurity=False).hexdigest()
        suffix = f"_{digest[:12]}"
        yield _cut(wanted.base, MAX_NAME_BYTES - len(suffix)) + suffix
        attempt += 1
        seed = f"{identity}\0{attempt}"


def _fits(name: str) -> bool:
    return len(name.encode()) <= MAX_NAME_BYTES


def _cut(name: str, limit_bytes: int) -> str:
    return name.encode()[:limit_bytes].decode(errors="ignore")
