"""What a model is shown of a plugin that the user named. No I/O.

Source: docs/plugins.md, "In turns".
"""

from collections.abc import Sequence

from app_server.extensions.contract.plugins import NamedPlugin

MAX_NAMESPACES = 64
"""Of one plugin; of more it is only said how many."""


def plugin_text(plugin: NamedPlugin, namespaces: Sequence[str], *, is_searched: bool) -> str | None:
    """Say which skills and tools a plugin has; None if it has none.

    `namespaces` are those of its tools, as the model calls them; `is_searched` says that the model
    has to find them with `tool_search` first.
    """
    lines = []
    if plugin.skills_prefix is not None:
        lines.append(f"- Skills whose names begin with `{plugin.skills_prefix}:`.")
    if namespaces:
        shown = ", ".join(f"`{name}`" for name in namespaces[:MAX_NAMESPACES])
        left = len(namespaces) - MAX_NAMESPACES
        more = f" and {left} more" if left > 0 else ""
        how = "; find them with `tool_search`" if is_searched else ""
        lines.append(f"- Tools of its MCP servers, in the namespaces {shown}{more}{how}.")
    if not lines:
        return None
    name = " ".join(plugin.display_name.split())
    first = f"The user named the plugin `{name}`. For this message use what it brings first:"
    return "\n".join((first, *lines))
