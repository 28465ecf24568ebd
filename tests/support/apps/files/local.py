"""Files of this machine that an app may ask for."""

from typing import Any

from app_server.apps.files.environments import EnvironmentFiles
from app_server.apps.files.files import PinnedFiles, SandboxState
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


class ThisMachine:
    """Environments with this machine alone, or not even that."""

    def __init__(self, instance: str | None = NOW) -> None:
        self._instance = instance

    def instance_of(self, environment_id: str) -> str | None:
        return self._instance if environment_id == "local" else None

    def instance(self, environment_id: str, instance_id: str) -> None:
        return None


FILES = EnvironmentFiles(ThisMachine())


async def whole(files: PinnedFiles, path: str) -> list[bytes]:
    return [chunk async for chunk in files.read(path)]
