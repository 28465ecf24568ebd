"""What confines a thread's tools, for MCP servers that confine themselves the same way.

Source: docs/mcp.md, "Calls".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from protocol.model import JsonObject
from protocol.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxPolicy,
    FileSystemAccessMode,
    FileSystemSandboxEntry,
    MinimalFileSystemSpecialPath,
    PathFileSystemPath,
    ProjectRootsFileSystemSpecialPath,
    ReadOnlySandboxPolicy,
    RootFileSystemSpecialPath,
    SlashTmpFileSystemSpecialPath,
    SpecialFileSystemPath,
    TmpdirFileSystemSpecialPath,
    WorkspaceWriteSandboxPolicy,
)
from protocol.rollout import Settings

_Special = (
    RootFileSystemSpecialPath
    | MinimalFileSystemSpecialPath
    | ProjectRootsFileSystemSpecialPath
    | TmpdirFileSystemSpecialPath
    | SlashTmpFileSystemSpecialPath
)


@dataclass(frozen=True, slots=True)
class Place:
    """An environment that a sandbox state names."""

    environment_id: str
    instance_id: str | None
    cwd: str | None
    """The folder there; None: that of whatever runs processes there."""


def sandbox_state(settings: Settings, place: Place | None = None) -> JsonObject:
    """Describe the sandbox in force: the permission profile and the folder it is for.

    Without a `place` it is that of the thread, which is not named.
    """
    state: JsonObject = {
        "permissionProfile": _profile(settings),
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


def _profile(settings: Settings) -> JsonObject:
    match settings.sandbox_policy:
        case DangerFullAccessSandboxPolicy():
            return {"type": "disabled"}
        case ExternalSandboxPolicy() as external:
            return {"type": "external", "network": external.network_access}
        case ReadOnlySandboxPolicy() as read_only:
            return _managed([], network=read_only.network_access)
        case WorkspaceWriteSandboxPolicy() as workspace:
            others = [root for root in settings.roots if root != settings.cwd]
            return _managed(_writable(workspace, others), network=workspace.network_access)


def _managed(writable: list[FileSystemSandboxEntry], *, network: bool) -> JsonObject:
    entries = [_special(RootFileSystemSpecialPath(), "read"), *writable]
    return {
        "type": "managed",
        "file_system": {
            "type": "restricted",
            "entries": [entry.model_dump(mode="json") for entry in entries],
        },
        "network": "enabled" if network else "restricted",
    }


def _writable(
    policy: WorkspaceWriteSandboxPolicy, other_roots: Sequence[str]
) -> list[FileSystemSandboxEntry]:
    entries = [_special(ProjectRootsFileSystemSpecialPath(), "write")]
    if not policy.exclude_slash_tmp:
        entries.append(_special(SlashTmpFileSystemSpecialPath(), "write"))
    if not policy.exclude_tmpdir_env_var:
        entries.append(_special(TmpdirFileSystemSpecialPath(), "write"))
    return entries + [
        FileSystemSandboxEntry(path=PathFileSystemPath(path=root), access="write")
        for root in dict.fromkeys((*other_roots, *policy.writable_roots))
    ]


def _special(path: _Special, access: FileSystemAccessMode) -> FileSystemSandboxEntry:
    return FileSystemSandboxEntry(path=SpecialFileSystemPath(value=path), access=access)
