"""The requests by which a client starts work: the parameters of each, and what is run.

Source: docs/environments.md, "The exec protocol".
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeAlias

from app_server.host.commands.local_commands import LocalCommands
from app_server.host.exec.server.children import open_tunnel
from app_server.host.exec.server.commands import run_command
from app_server.host.exec.server.files import read_file, run_patch
from app_server.host.exec.server.relay import Child
from app_server.host.processes import LocalProcesses
from app_server.permissions.confinement.places import Places
from app_server.runtime.launch import Launch
from protocol.exec.files import FileOpenParams, PatchStartParams
from protocol.exec.processes import CommandStartParams, ConnectionOpenParams, ProcessStartParams


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of an exec server."""

    processes: LocalProcesses
    commands: LocalCommands
    places: Places


StartParams: TypeAlias = (
    ProcessStartParams
    | CommandStartParams
    | ConnectionOpenParams
    | FileOpenParams
    | PatchStartParams
)

STARTS: Mapping[str, type[StartParams]] = {
    "process/start": ProcessStartParams,
    "command/start": CommandStartParams,
    "connection/open": ConnectionOpenParams,
    "file/open": FileOpenParams,
    "patch/start": PatchStartParams,
}


def run_child(machine: Machine, params: StartParams) -> AbstractAsyncContextManager[Child]:
    """Run what a client starts, for as long as the context lasts.

    Raises:
        OSError, ValueError: on entering; it cannot be started.
    """
    match params:
        case ProcessStartParams():
            launch = Launch(params.command, params.args, params.env, params.inherit_env, params.cwd)
            return machine.processes.run(launch)
        case CommandStartParams():
            return run_command(machine.commands, params, machine.places)
        case ConnectionOpenParams():
            return open_tunnel(params.host, params.port)
        case FileOpenParams():
            return read_file(params, machine.places)
        case PatchStartParams():
            return run_patch(params, machine.places)
