"""MCP servers as rows of `mcpServerStatus/list`: what a server says, as far as it fits and holds.

A row is made of its own server alone: what another one says never spoils it, or takes its place.
Source: docs/mcp.md, "Status".
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from pydantic import ValidationError

from app_server.mcp.measurements import origin
from app_server.mcp.servers.status import ServerReport
from app_server.mcp.tools.calls import cut_middle
from app_server.turns.review.evidence import without_account
from protocol.integrations.mcp import (
    McpServerInfo,
    McpServerStatus,
    Resource,
    ResourceTemplate,
    Tool,
)
from protocol.model import JsonObject, WireModel

Element = TypeVar("Element", bound=WireModel)

MAX_PAGE_BYTES = 900_000
"""Of the rows of one page; a message to a client stays below 1 MiB."""

MAX_ERROR_BYTES = 2000
"""Of `toolsError` in a row that had to be cut."""

NO_TOOL_HOLDS = "none of its tools has a name, an input schema and texts where texts belong"


def row(entry: ServerReport, *, of_thread: bool) -> McpServerStatus:
    """Render one server; elements of its lists that are not of the wire's form are left out.

    Validating thousands of tools takes a while: for worker threads.
    """
    described = {name: without_account(tool) for name, tool in entry.tools.items()}
    tools = {
        name: tool
        for name, definition in described.items()
        if (tool := _element(Tool, definition)) is not None
    }
    error = entry.tools_error
    if described and not tools and error is None:
        error = NO_TOOL_HOLDS
    return McpServerStatus(
        name=entry.config.name,
        runtime_status=entry.status if of_thread else None,
        plugin_id=entry.config.metadata.plugin_id,
        http_origin=origin(entry.config),
        server_info=_server_info(entry.listing.server_info),
        server_capabilities=entry.listing.capabilities,
        tool_list_meta=entry.listing.tools_meta,
        tools=tools,
        tools_error=error,
        resources=_elements(Resource, entry.resources),
        resource_templates=_elements(ResourceTemplate, entry.resource_templates),
        auth_status=entry.auth_status,
    )


def page_of(
    groups: Sequence[str], rows_of: Callable[[str], Iterable[McpServerStatus]]
) -> tuple[list[McpServerStatus], int]:
    """Give the rows of as many groups from the front as fit, at least one, and their number.

    A row that fits into no page is cut down. `rows_of` gives the rows of a group; none if its
    servers have gone.
    """
    left = MAX_PAGE_BYTES
    page: list[McpServerStatus] = []
    for number, group in enumerate(groups):
        for whole in rows_of(group):
            shown, size = _cut(whole)
            if size > left and page:
                return page, number
            left -= size
            page.append(shown)
    return page, len(groups)


def _cut(whole: McpServerStatus) -> tuple[McpServerStatus, int]:
    """Take from a row what it has too much of: its lists, then all that its server sent."""
    reason = f"its lists are larger than {MAX_PAGE_BYTES} bytes"
    if (size := _size(whole)) is None:
        reason = "what it lists cannot be written as JSON"
    elif size <= MAX_PAGE_BYTES:
        return whole, size
    error = whole.tools_error if whole.tools_error and not whole.tools else reason
    empty = {
        "tools": {},
        "resources": [],
        "resource_templates": [],
        "tools_error": cut_middle(error, MAX_ERROR_BYTES),
    }
    without_lists = whole.model_copy(update=empty)
    if (size := _size(without_lists)) is not None and size <= MAX_PAGE_BYTES:
        return without_lists, size
    nothing = {"server_info": None, "server_capabilities": None, "tool_list_meta": None}
    bare = without_lists.model_copy(update=nothing)
    return bare, _size(bare) or 0


def _size(shown: McpServerStatus) -> int | None:
    try:
        # With the comma behind it.
        return len(shown.model_dump_json().encode()) + 1
    except ValueError:
        return None


def _elements(kind: type[Element], found: Sequence[JsonObject]) -> list[Element]:
    elements = (_element(kind, element) for element in found)
    return [element for element in elements if element is not None]


def _element(kind: type[Element], found: JsonObject) -> Element | None:
    try:
        return kind.model_validate(found)
    except ValidationError:
        return None


def _server_info(info: JsonObject | None) -> McpServerInfo | None:
    if info is None:
        return None

    def text(key: str) -> str | None:
        value = info.get(key)
        return value if isinstance(value, str) else None

    icons = info.get("icons")
    return McpServerInfo(
        name=text("name") or "",
        title=text("title"),
        version=text("version") or "",
        description=text("description"),
        icons=icons if isinstance(icons, list) else None,
        website_url=text("websiteUrl"),
    )
