"""Files of this machine that an app may ask for."""

from typing import Any

from app_server.apps.files.files import PinnedFiles, SandboxState
from app_server.apps.files.local import LocalFiles
from protocol.model import Json

NOW = "instance-2"


def entry(access: Json = "read", kind: str = "root") -> Json:
    return {"path": {"type": "special", "value": {"kind": kind}}, "access": access}


def managed(*entries: Json) -> dict[str, Json]:
    return {"type": "managed", "file_system": {"entries": list(entries)}}


def state(**members: Any) -> SandboxState:
    return SandboxState.parse(
        {
            "environmentId": "local",
            "environmentInstanceId": NOW,
            "permissionProfile": {"type": "disabled"},
            "sandboxCwd": "file:///",
            **members,
        }
    )


def instance_of(environment_id: str) -> str | None:
    return {"local": NOW}.get(environment_id)


FILES = LocalFiles(instance_of)


async def whole(files: PinnedFiles, path: str) -> list[bytes]:
    return [chunk async for chunk in files.read(path)]
