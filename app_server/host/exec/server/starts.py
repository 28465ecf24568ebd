"""The requests by which a client starts work: the parameters of each, and its function.

Source: docs/environments.md, "The exec protocol".
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from app_server.host.commands.local_commands import LocalCommands
from app_server.host.exec.server.children import open_tunnel
from app_server.host.exec.server.commands import run_command
from app_server.host.exec.server.files import read_file, run_patch
from app_server.host.exec.server.relay import Child
from app_server.host.processes import LocalProcess, LocalProcesses
from app_server.permissions.confinement.places import Places
from app_server.runtime.launch import Launch
from protocol.exec.files import FileOpenParams, PatchStartParams
from protocol.exec.processes import CommandStartParams, ConnectionOpenParams, ProcessStartParams
from protocol.model import WireModel

Params = TypeVar("Params", bound=WireModel)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of an exec server."""

    processes: LocalProcesses
    commands: LocalCommands
    places: Places


@dataclass(frozen=True, slots=True)
class Start(Generic[Params]):
    """One kind of start."""

    params: type[Params]
    """It has a `process_id`."""
    run: Callable[[Machine, Params], AbstractAsyncContextManager[Child]]
    """Entering raises OSError or ValueError where it cannot be started; leaving ends it."""


def _process(
    machine: Machine, params: ProcessStartParams
) -> AbstractAsyncContextManager[LocalProcess]:
    launch = Launch(params.command, params.args, params.env, params.inherit_env, params.cwd)
    return machine.processes.run(launch)


STARTS: Mapping[str, Start[Any]] = {
    "process/start": Start(ProcessStartParams, _process),
    "command/start": Start(
        CommandStartParams,
        lambda machine, params: run_command(machine.commands, params, machine.places),
    ),
    "connection/open": Start(
        ConnectionOpenParams, lambda _, params: open_tunnel(params.host, params.port)
    ),
    "file/open": Start(FileOpenParams, lambda machine, params: read_file(params, machine.places)),
    "patch/start": Start(
        PatchStartParams, lambda machine, params: run_patch(params, machine.places)
    ),
}
