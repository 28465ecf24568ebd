"""What confines a thread's tools, for MCP servers that confine themselves the same way.

Source: docs/mcp.md, "Calls".
"""

from pathlib import Path

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


def sandbox_state(settings: Settings) -> JsonObject:
    """Describe the sandbox in force: the permission profile and the folder it is for."""
    return {
        "permissionProfile": _profile(settings),
        "codexLinuxSandboxExe": None,
        "sandboxCwd": Path(settings.cwd).as_uri(),
        "useLegacyLandlock": False,
        "useMxc": False,
    }


def _profile(settings: Settings) -> JsonObject:
    match settings.sandbox_policy:
        case DangerFullAccessSandboxPolicy():
            return {"type": "disabled"}
        case ExternalSandboxPolicy() as external:
            return {"type": "external", "network": external.network_access}
        case ReadOnlySandboxPolicy() as read_only:
            return _managed([], network=read_only.network_access)
        case WorkspaceWriteSandboxPolicy() as workspace:
            return _managed(_writable(workspace), network=workspace.network_access)


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


def _writable(policy: WorkspaceWriteSandboxPolicy) -> list[FileSystemSandboxEntry]:
    entries = [_special(ProjectRootsFileSystemSpecialPath(), "write")]
    if not policy.exclude_slash_tmp:
        entries.append(_special(SlashTmpFileSystemSpecialPath(), "write"))
    if not policy.exclude_tmpdir_env_var:
        entries.append(_special(TmpdirFileSystemSpecialPath(), "write"))
    return entries + [
        FileSystemSandboxEntry(path=PathFileSystemPath(path=root), access="write")
        for root in policy.writable_roots
    ]


def _special(path: _Special, access: FileSystemAccessMode) -> FileSystemSandboxEntry:
    return FileSystemSandboxEntry(path=SpecialFileSystemPath(value=path), access=access)
