"""Folders of plugins and marketplaces for tests."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.paths import MCP_PEER


def write(path: Path, content: Any) -> Path:
    """Write a file: a text as it is, anything else as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def server(**more: Any) -> dict[str, Any]:
    """Return the table of a server that is the peer of the tests."""
    return {"command": sys.executable, "args": [str(MCP_PEER)], **more}


def write_plugin(
    root: Path,
    name: str,
    *,
    servers: Mapping[str, Any] | None = None,
    apps: Sequence[str] = (),
    **manifest: Any,
) -> Path:
    """Write a plugin with servers and ids of apps; returns its folder."""
    write(root / ".codex-plugin/plugin.json", {"name": name, **manifest})
    if servers is not None:
        write(root / ".mcp.json", {"mcpServers": servers})
    if apps:
        tables = {f"app{number}": {"id": id_} for number, id_ in enumerate(apps)}
        write(root / ".app.json", {"apps": tables})
    return root


def write_marketplace(root: Path, name: str, *plugins: Any) -> Path:
    """Write a marketplace; a text is a plugin in a folder of that name. Returns its file."""
    entries = [
        {"name": one, "source": f"./{one}"} if isinstance(one, str) else one for one in plugins
    ]
    content = {"name": name, "interface": {"displayName": "The Shop"}, "plugins": entries}
    return write(root / ".agents/plugins/marketplace.json", content)
