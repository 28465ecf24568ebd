"""process/*: programs of a client's own, outside of any sandbox.

Source: docs/tools.md, "Host methods".
"""

import logging
from contextlib import ExitStack
from functools import partial

from app_server.handlers.errors import as_path
from app_server.handlers.host import client_programs as given
from app_server.handlers.host.client_programs import ClientPrograms
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.host.programs import Ended, Program, ProgramOutput
from app_server.observability.log_context import start_apart
from app_server.permissions.sandbox.policy import UNRESTRICTED
from app_server.rpc.context import ConnectionId
from protocol.host.processes import (
    ProcessExitedNotification,
    ProcessKillParams,
    ProcessKillResponse,
    ProcessOutputDeltaNotification,
    ProcessResizePtyParams,
    ProcessResizePtyResponse,
    ProcessSpawnParams,
    ProcessSpawnResponse,
    ProcessWriteStdinParams,
    ProcessWriteStdinResponse,
)
from protocol.jsonrpc.errors import invalid_request

logger = logging.getLogger(__name__)

METHOD = "process/spawn"

MAX_KEPT = 1024 * 1024
"""Bytes of each stream in `process/exited`, also without a cap."""


@serves("process/spawn")
async def spawn_process(
    context: RequestContext, params: ProcessSpawnParams
) -> ProcessSpawnResponse:
    """Start a program; notifications of what it prints and of its end follow the answer."""
    client, handle = context.connection_id, params.process_handle
    if not handle:
        raise invalid_request("processHandle must not be empty", "invalidCommand")
    has_cap = "output_bytes_cap" in params.model_fields_set
    program = context.services.part(_programs).make(
        client,
        params,
        partial(ProcessOutputDeltaNotification, process_handle=handle),
        cwd=lambda: str(as_path(params.cwd)),
        cap=params.output_bytes_cap if has_cap else given.DEFAULT_CAP,
        timeout_s=partial(_timeout, params),
    )
    with ExitStack() as entered, context.services.part(_programs).failures():
        entered.enter_context(context.services.part(_programs).entered(client, handle, program))
        await program.start(context.services.commands, UNRESTRICTED)
        running = entered.pop_all()
    context.after_answer(_start, context.services, client, handle, program, running)
    return ProcessSpawnResponse()


@serves("process/writeStdin")
async def write_stdin(
    context: RequestContext, params: ProcessWriteStdinParams
) -> ProcessWriteStdinResponse:
    """Write to the input of a program."""
    context.services.part(_programs).write(context, params.process_handle, params)
    return ProcessWriteStdinResponse()


@serves("process/resizePty")
async def resize_pty(
    context: RequestContext, params: ProcessResizePtyParams
) -> ProcessResizePtyResponse:
    """Change the size of a program's terminal."""
    context.services.part(_programs).resize(
        context.connection_id, params.process_handle, params.size
    )
    return ProcessResizePtyResponse()


@serves("process/kill")
async def kill_process(context: RequestContext, params: ProcessKillParams) -> ProcessKillResponse:
    """Terminate a program."""
    context.services.part(_programs).terminate(context.connection_id, params.process_handle)
    return ProcessKillResponse()


def _start(
    services: Services, client: ConnectionId, handle: str, program: Program, running: ExitStack
) -> None:
    # A program outlives the request that started it.
    start_apart(services.tasks, _run, services, client, handle, program, running)


async def _run(
    services: Services, client: ConnectionId, handle: str, program: Program, running: ExitStack
) -> None:
    try:
        with running:
            ended = await program.run()
    except Exception:
        # One program must not end the server.
        logger.exception("the end of process %r is not known", handle)
        return
    services.hub.notify(client, _exited(handle, ended, program.output))


def _exited(handle: str, ended: Ended, output: ProgramOutput) -> ProcessExitedNotification:
    return ProcessExitedNotification(
        process_handle=handle,
        exit_code=ended.exit_code,
        output_drain_timed_out=not ended.has_all_output,
        stdout=output.kept("stdout"),
        stdout_cap_reached=output.cap_reached("stdout"),
        stderr=output.kept("stderr"),
        stderr_cap_reached=output.cap_reached("stderr"),
    )


def _timeout(params: ProcessSpawnParams) -> float | None:
    if "timeout_ms" not in params.model_fields_set:
        return given.DEFAULT_TIMEOUT_S
    return given.timeout_s(params.timeout_ms, METHOD)


def _programs(services: Services) -> ClientPrograms:
    return ClientPrograms(
        services.hub, METHOD, "process", "process handle", noun="process", max_kept=MAX_KEPT
    )
