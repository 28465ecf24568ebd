"""Raw names and the names a model sees.

Raw identity is (server, tool) as configured and listed; it goes into items, filters and calls. The
model sees a namespace and a name. Only the table made here leads back: nothing parses visible
names.
Source: docs/mcp.md, "Names".
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

MAX_LENGTH = 128
"""Characters of namespace, name and the two between them."""

PREFIX = "mcp__"
_UNSAFE = re.compile(r"[^A-Za-z0-9_]")
_HASH_LENGTH = 13
"""An underscore and twelve hexadecimal digits."""


class RawName(NamedTuple):
    """A tool as its server calls it."""

    server: str
    tool: str


class VisibleName(NamedTuple):
    """A tool as the model calls it."""

    namespace: str
    name: str


def assign_names(tools: Iterable[RawName]) -> dict[RawName, VisibleName]:
    """Give every tool a name of its own; the result does not depend on the order of `tools`."""
    ordered = sorted(dict.fromkeys(tools))
    namespaces = _namespaces({tool.server for tool in ordered})
    wanted = {tool: VisibleName(namespaces[tool.server], _sanitize(tool.tool)) for tool in ordered}
    count = Counter(wanted.values())
    names: dict[RawName, VisibleName] = {}
    used: set[VisibleName] = set()
    for tool, visible in wanted.items():
        if count[visible] > 1:
            visible = VisibleName(visible.namespace, visible.name + _hash(_tool_identity(tool)))
        if visible in used or not _is_short(visible):
            visible = _cut_to_fit(tool, visible, used)
        used.add(visible)
        names[tool] = visible
    return names


def _namespaces(servers: set[str]) -> dict[str, str]:
    wanted = {server: _prefixed(_sanitize(server)) for server in servers}
    count = Counter(wanted.values())
    return {
        server: name if count[name] == 1 else name + _hash(_server_identity(server))
        for server, name in wanted.items()
    }


def _is_short(visible: VisibleName) -> bool:
    return len(visible.namespace) + len(visible.name) + 2 <= MAX_LENGTH


def _cut_to_fit(tool: RawName, visible: VisibleName, used: set[VisibleName]) -> VisibleName:
    seed = identity = _tool_identity(tool)
    attempt = 0
    while (candidate := _cut(visible, _hash(seed))) in used:
        attempt += 1
        seed = f"{identity}\0{attempt}"
    return candidate


def _cut(visible: VisibleName, suffix: str) -> VisibleName:
    room = MAX_LENGTH - 2 - len(visible.namespace)
    if room < _HASH_LENGTH:
        return VisibleName(visible.namespace[: MAX_LENGTH - 2 - _HASH_LENGTH], suffix)
    return VisibleName(visible.namespace, visible.name[: room - _HASH_LENGTH] + suffix)


def _sanitize(raw: str) -> str:
    return _UNSAFE.sub("_", raw) or "_"


def _prefixed(name: str) -> str:
    return name if name.startswith(PREFIX) else PREFIX + name


def _server_identity(server: str) -> str:
    # The third part tells apart origins inside one server; plain servers have none.
    return f"{server}\0{server}\0"


def _tool_identity(tool: RawName) -> str:
    return f"{_server_identity(tool.server)}\0{tool.tool}\0{tool.tool}"


def _hash(identity: str) -> str:
    return "_" + hashlib.sha1(identity.encode(), usedforsecurity=False).hexdigest()[:12]
