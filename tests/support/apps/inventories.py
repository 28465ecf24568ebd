"""What an endpoint of apps lists, as an inventory."""

from typing import Any


def listed(
    name: Any, connector_id: str = "gmail", connector_name: str = "Gmail", **members: Any
) -> dict[str, Any]:
    """Make a tool as the endpoint lists it; `meta` goes on top of its `_meta`."""
    meta = {"connector_id": connector_id, "connector_name": connector_name}
    return {"name": name, "_meta": meta | members.pop("meta", {}), **members}
