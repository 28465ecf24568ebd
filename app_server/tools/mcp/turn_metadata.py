"""Sandbox and turn metadata for MCP servers that confine themselves like a thread's tools.

Source: docs/mcp.md, "Calls".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.places import SLASH_TMP
from app_server.turns.slot import RunningTurn
from protocol.log.rollout import Settings
from protocol.model import JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION
from protocol.turns.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxPolicy,
    FileSystemAccessMode,
    FileSystemPath,
    FileSystemSandboxEntry,
    GlobPatternFileSystemPath,
    PathFileSystemPath,
    ProjectRootsFileSystemSpecialPath,
    RootFileSystemSpecialPath,
    SandboxPolicy,
    SlashTmpFileSystemSpecialPath,
    SpecialFileSystemPath,
    WorkspaceWriteSandboxPolicy,
)


def turn_metadata(running: RunningTurn) -> JsonObject:
    """Describe the running turn: ids, model, how far its tools may go, and who lets them."""
    state, options = running.recorder.log.state, running.options
    turn, settings = state.turns[-1], state.in_force
    metadata: JsonObject = {
        "session_id": state.id,
        "thread_id": state.id,
        "model": settings.model,
    }
    if settings.effort is not None:
        metadata["reasoning_effort"] = settings.effort
    if options.trigger is not None:
        metadata["turn_trigger"] = options.trigger
    if options.parent_turn_id is not None:
        metadata["parent_turn_id"] = options.parent_turn_id
    if running.user_was_asked:
        metadata["user_input_requested_during_turn"] = True
    return metadata | {
        "turn_id": turn.id,
        "turn_started_at_unix_ms": turn.started_at_ms,
        "sandbox_mode": _sandbox_mode(settings.sandbox_policy),
        "auto_review_enabled": settings.approvals_reviewer != "user"
        and settings.approval_policy != "never",
        "codex_version": PROTOCOL_VERSION,
    }


def _sandbox_mode(policy: SandboxPolicy) -> str:
    match policy:
        case DangerFullAccessSandboxPolicy() | ExternalSandboxPolicy():
            return "danger-full-access"
        case WorkspaceWriteSandboxPolicy():
            return "workspace-write"
    return "read-only"


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
