"""Arguments of tools that go into headers of HTTP as well: `x-mcp-header` in an input schema.

Source: MCP 2026-07-28, "Streamable HTTP", "Custom Headers from Tool Parameters".
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from app_server.mcp_wire.revisions import header_value
from protocol.model import Json, JsonObject

ANNOTATION = "x-mcp-header"
PREFIX = "mcp-param-"

Mirrored: TypeAlias = Mapping[tuple[str, ...], str]
"""Names of headers by the path of properties whose value goes there."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES = ("string", "integer", "boolean")
_DATA = ("default", "examples", "const", "enum")
"""Keywords whose values are no schemas."""
_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords whose values are objects of schemas."""


class BadAnnotation(Exception):
    """A tool must not be used, as an annotation of it makes no sense; the text says which rule."""


def mirrored_of(schema: Json) -> Mirrored:
    """Return what of a tool's arguments goes into headers.

    Raises:
        BadAnnotation: an annotation breaks a rule.
    """
    found: dict[tuple[str, ...], str] = {}
    for path, part in _annotated(schema) if isinstance(schema, dict) else ():
        name = part[ANNOTATION]
        if not path:
            raise BadAnnotation(f"{ANNOTATION} stands where no property is reached directly")
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise BadAnnotation(f"{ANNOTATION} must be the name of a header")
        if part.get("type") not in _TYPES:
            raise BadAnnotation(f"{ANNOTATION} is for strings, integers and booleans only")
        found[path] = name
    if len({name.lower() for name in found.values()}) < len(found):
        raise BadAnnotation(f"two properties have the same {ANNOTATION}")
    return {path: PREFIX + name.lower() for path, name in found.items()}


def mirrored_headers(mirrored: Mirrored, arguments: Json) -> dict[str, str]:
    """Return the headers for the arguments of one call; what is absent or null has none."""
    headers: dict[str, str] = {}
    for path, name in mirrored.items():
        value = arguments
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        if isinstance(value, bool):
            headers[name] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            headers[name] = header_value(str(value))
    return headers


def usable_tools(tools: Iterable[Json]) -> tuple[list[Json], dict[str, Mirrored], list[str]]:
    """Return tools without those whose annotations make no sense; what goes into headers, by name.

    Last come sentences on what was left out. Thousands of schemas take a while: for worker threads.
    """
    kept: list[Json] = []
    mirrored: dict[str, Mirrored] = {}
    faults: list[str] = []
    for tool in tools:
        name = tool.get("name") if isinstance(tool, dict) else None
        try:
            found = mirrored_of(tool.get("inputSchema")) if isinstance(tool, dict) else {}
        except BadAnnotation as exc:
            faults.append(f"listed the tool {str(name)[:100]!r}, which cannot be used: {exc}")
            continue
        if found and isinstance(name, str):
            mirrored.setdefault(name, found)
        kept.append(tool)
    return kept, mirrored, faults


def _annotated(root: JsonObject) -> Iterator[tuple[tuple[str, ...] | None, JsonObject]]:
    """Yield the schemas with an annotation, and the properties that lead there; None: not alone."""
    left: list[tuple[tuple[str, ...] | None, JsonObject]] = [((), root)]
    while left:
        path, schema = left.pop()
        if ANNOTATION in schema:
            yield path, schema
        for keyword, value in schema.items():
            if keyword in _DATA:
                continue
            if keyword in _MAPS and isinstance(value, dict):
                for name, part in value.items():
                    if isinstance(part, dict):
                        is_direct = keyword == "properties" and path is not None
                        left.append(((*(path or ()), name) if is_direct else None, part))
            else:
                parts = value if isinstance(value, list) else [value]
                left += [(None, part) for part in parts if isinstance(part, dict)]
