"""Requests of a model for more than its sandbox allows."""

from typing import Any

ON = "[features]\nrequest_permissions_tool = true\n"
READ_ONLY = {"type": "readOnly"}
METHOD = "item/permissions/requestApproval"


def writing(*paths: str) -> dict[str, Any]:
    """Return what a model asks for, and a user grants, to write paths."""
    return {"file_system": {"write": list(paths)}}


def granting(*paths: str, scope: str = "turn") -> dict[str, Any]:
    """Return the answer that grants to write paths."""
    return {"permissions": {"fileSystem": {"write": list(paths)}}, "scope": scope}
