"""Files that declare hooks."""

import json
from typing import Any


def declared(**events: Any) -> str:
    """Render a `hooks.json`: event to its groups."""
    return json.dumps({"hooks": events})


def group(command: str, **members: Any) -> dict[str, Any]:
    """Make a group with one command."""
    return {**members, "hooks": [{"type": "command", "command": command}]}
