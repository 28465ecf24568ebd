"""What requests choose for a thread or a turn, as answers and the model show it."""

from typing import Any

from app_server.models.prompt.environment_context import (
    MODE,
    kind_of,
)

INPUT = [{"type": "text", "text": "go"}]


def mode(model: str, effort: str | None, instructions: str | None) -> dict[str, Any]:
    """Return a collaboration mode."""
    settings = {
        "model": model,
        "reasoning_effort": effort,
        "developer_instructions": instructions,
    }
    return {"mode": "default", "settings": settings}


def shown(request: dict[str, Any]) -> tuple[str, str | None, list[str]]:
    """Return model, effort and the developer's messages of a request."""
    said = [
        item
        for item in request["input"]
        if item.get("role") == "developer" and kind_of(item) in (None, MODE)
    ]
    texts = [item["content"][0]["text"] for item in said]
    return request["model"], (request.get("reasoning") or {}).get("effort"), texts


def sandbox_of(result: Any) -> tuple[str, str | None]:
    """Return the sandbox of an answer, and the profile that it is of."""
    profile = result["activePermissionProfile"]
    return result["sandbox"]["type"], profile and profile["id"]


def places(result: Any) -> tuple[str, list[str], list[Any]]:
    """Return the folder, the roots and the environments of an answer."""
    environments = [
        (each["cwd"], each["runtimeWorkspaceRoots"]) for each in result["thread"]["environments"]
    ]
    return result["cwd"], result["runtimeWorkspaceRoots"], environments
