"""What confines a thread's tools, for MCP servers that confine themselves the same way.

Source: docs/mcp.md, "Calls".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.places import SLASH_TMP
from protocol.log.rollout import Settings
from protocol.model import JsonObject
from protocol.turns.policy import (
    ExternalSandboxPolicy,
    FileSystemAccessMode,
    FileSystemPath,
    FileSystemSandboxEntry,
    GlobPatternFileSystemPath,
    PathFileSystemPath,
    ProjectRootsFileSystemSpecialPath,
    RootFileSystemSpecialPath,
    SlashTmpFileSystemSpecialPath,
    SpecialFileSystemPath,
)


@dataclass(frozen=True, slots=True)
class Place:
    """An environment that a sandbox state names."""

    environment_id: str
    instance_id: str | None
    cwd: str | None
    """The folder there; None: that of whatever runs processes there."""


def sandbox_state(
    settings: Settings, confinement: Confinement, place: Place | None = None
) -> JsonObject:
    """Describe the sandbox in force: the permission profile and the folder it is for.

    Without a `place` it is that of the thread, which is not named.
    """
    state: JsonObject = {
        "permissionProfile": _profile(settings, confinement),
        "codexLinuxSandboxExe": None,
        "sandboxCwd": Path(settings.cwd).as_uri(),
        "useLegacyLandlock": False,
        "useMxc": False,
    }
    if place is not None:
        state["environmentId"] = place.environment_id
        state["environmentInstanceId"] = place.instance_id
        # A relative folder begins where only the environment knows.
        folder = PurePosixPath(place.cwd or "")
        state["sandboxCwd"] = folder.as_uri() if folder.is_absolute() else None
    return state


def _profile(settings: Settings, confinement: Confinement) -> JsonObject:
    if not confinement.is_confined:
        if isinstance(settings.sandbox_policy, ExternalSandboxPolicy):
            return {"type": "external", "network": settings.sandbox_policy.network_access}
        return {"type": "disabled"}
    entries = _entries(confinement, settings.cwd)
    return {
        "type": "managed",
        "file_system": {
            "type": "restricted",
            "entries": [entry.model_dump(mode="json") for entry in entries],
        },
        "network": "enabled" if confinement.network else "restricted",
    }


def _entries(confinement: Confinement, cwd: str) -> Iterator[FileSystemSandboxEntry]:
    everywhere = ("/",)
    ranks: tuple[tuple[tuple[str, ...], FileSystemAccessMode], ...] = (
        (everywhere if confinement.readable is None else confinement.readable, "read"),
        (everywhere if confinement.writable is None else confinement.writable, "write"),
        (confinement.protected, "read"),
        (confinement.denied, "deny"),
    )
    for places, access in ranks:
        for place in places:
            yield FileSystemSandboxEntry(path=_named(place, cwd), access=access)
    for pattern in confinement.denied_patterns:
        path = GlobPatternFileSystemPath(pattern=pattern)
        yield FileSystemSandboxEntry(path=path, access="deny")


def _named(place: str, cwd: str) -> FileSystemPath:
    if place == "/":
        return SpecialFileSystemPath(value=RootFileSystemSpecialPath())
    if place == cwd:
        return SpecialFileSystemPath(value=ProjectRootsFileSystemSpecialPath())
    if place == SLASH_TMP:
        return SpecialFileSystemPath(value=SlashTmpFileSystemSpecialPath())
    return PathFileSystemPath(path=place)
