"""The tool `request_permissions`: places and the network, beyond what the sandbox allows.

Offered where the feature `request_permissions_tool` is on, as in Codex.
Source: docs/tools.md, "Permissions".
"""

import os.path
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated

import anyio.to_thread
from pydantic import Field
from pydantic_core import to_json

from app_server.models.catalogue.models import ModelFeatures
from app_server.tools.environments import (
    EnvironmentNotKnown,
    NoEnvironment,
    TurnEnvironments,
    environment_member,
)
from app_server.turns.approval.permissions import PermissionRequest
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import (
    BadCall,
    RequestedCall,
    ToolArguments,
    TurnTool,
    function_declaration,
    object_of,
    text,
)
from protocol.model import Json, JsonObject
from protocol.turns.policy import (
    AdditionalFileSystemPermissions,
    AdditionalNetworkPermissions,
    FileSystemAccessMode,
    FileSystemSandboxEntry,
    PathFileSystemPath,
    RequestPermissionProfile,
)

NAME = "request_permissions"
MAX_PATHS = 64
"""For reading and for writing each."""
MAX_PATH_CHARS = 4_096
MAX_REASON_CHARS = 4_096

NOTHING = "request_permissions requires at least one permission"

_Paths = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MAX_PATH_CHARS)]],
    Field(max_length=MAX_PATHS),
]


class _Files(ToolArguments):
    read: _Paths | None = None
    write: _Paths | None = None


class _Network(ToolArguments):
    enabled: bool | None = None


class _Permissions(ToolArguments):
    file_system: _Files | None = None
    network: _Network | None = None


class _Request(ToolArguments):
    permissions: _Permissions
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARS)] | None = None
    environment_id: str | None = None


@dataclass(frozen=True, slots=True)
class RequestPermissions(TurnTool):
    """Asks for permissions, and returns to the model what it was granted."""

    functions = (NAME,)

    context: ThreadContext
    turn: RunningTurn
    environments: TurnEnvironments

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the function."""
        return [_declaration(self.environments.names)]

    # Calls do not overlap: what comes after it is meant to have what is granted.

    async def run(self, call: RequestedCall) -> Json:
        """Ask, and return what was granted, as JSON.

        Raises:
            BadCall: nothing is asked for, or of an environment that the turn does not have.
        """
        request = call.read(_Request)
        try:
            found = await self.environments.find(request.environment_id)
        except EnvironmentNotKnown as exc:
            raise BadCall(f"unknown turn environment id `{request.environment_id}`") from exc
        except NoEnvironment as exc:
            raise BadCall(str(exc)) from exc
        cwd = found.folder.cwd
        files = request.permissions.file_system or _Files()
        read, write = _absolute(files.read, cwd), _absolute(files.write, cwd)
        if found.is_here:
            # The user is asked about where links lead, and what is there now is what is granted.
            held = self.context.settings.machine_paths.pinned
            read = _once(await anyio.to_thread.run_sync(held.look_at, read))
            write = _once(await anyio.to_thread.run_sync(held.look_at, write))
        profile = _profile(read, write, request.permissions.network)
        if profile.file_system is None and profile.network is None:
            raise BadCall(NOTHING)
        given, scope = await self.context.approvals.permissions.ask(
            PermissionRequest(
                turn_id=self.turn.id,
                item_id=call.call_id,
                environment_id=found.id,
                cwd=cwd,
                reason=request.reason,
                profile=profile,
            )
        )
        machine_paths = {
            name: list(paths) for name in ("read", "write") if (paths := getattr(given, name))
        }
        permissions = {
            "network": {"enabled": True} if given.network else None,
            "file_system": machine_paths or None,
        }
        return to_json({"permissions": permissions, "scope": scope}).decode()


def _profile(
    read: Sequence[str], write: Sequence[str], wanted: _Network | None
) -> RequestPermissionProfile:
    files = None
    if read or write:
        entries = [*(_entry(path, "read") for path in read), *(_entry(p, "write") for p in write)]
        files = AdditionalFileSystemPermissions(
            read=list(read) or None, write=list(write) or None, entries=entries
        )
    network = None
    if wanted is not None and wanted.enabled:
        network = AdditionalNetworkPermissions(enabled=True)
    return RequestPermissionProfile(network=network, file_system=files)


def _absolute(paths: Sequence[str] | None, cwd: str) -> list[str]:
    """Join paths to the folder; `..` goes by the text, as no link is looked at."""
    return [os.path.normpath(PurePosixPath(cwd, path)) for path in paths or ()]


def _once(paths: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(paths))


def _entry(path: str, access: FileSystemAccessMode) -> FileSystemSandboxEntry:
    return FileSystemSandboxEntry(path=PathFileSystemPath(path=path), access=access)


def _paths(what: str) -> JsonObject:
    description = f"Files and folders to {what}; relative ones begin in the working directory."
    return {"type": "array", "description": description, "items": {"type": "string"}}


_DESCRIPTION = (
    "Ask the user for more than the sandbox allows, and wait for the answer. The result says "
    "what was granted, which may be less or nothing. It holds for what is run later in this "
    "turn, or with the scope `session` also in later turns."
)

_ONE = text("Leave it out: there is one environment.")


def _declaration(environments: Sequence[str]) -> JsonObject:
    """Declare the function; `environments` are those to choose from, if there are any."""
    files = object_of({"read": _paths("read"), "write": _paths("write")}, ())
    network = object_of({"enabled": {"type": "boolean", "description": "True asks for it."}}, ())
    return function_declaration(
        NAME,
        _DESCRIPTION,
        {
            "permissions": object_of({"file_system": files, "network": network}, ()),
            "reason": text("Why, in a sentence for the user."),
            "environment_id": environment_member(environments) if environments else _ONE,
        },
        required=["permissions"],
    )
