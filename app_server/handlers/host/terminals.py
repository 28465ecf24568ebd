"""thread/backgroundTerminals/*, thread/shellCommand: commands of a thread beside its turns.

Source: docs/tools.md, "Commands", "Commands of the user".
"""

from app_server.handlers.errors import loaded_thread, thread_failures
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.views.pages import cursor_number
from app_server.sessions.user_shell import DEFAULT_S, UserCommand
from app_server.tools.exec_command import MAX_LINE_CHARS
from app_server.turns.commands import ThreadCommand, ThreadCommands
from protocol.cursors import is_offset
from protocol.host.terminals import (
    ThreadBackgroundTerminal,
    ThreadBackgroundTerminalsCleanParams,
    ThreadBackgroundTerminalsCleanResponse,
    ThreadBackgroundTerminalsListParams,
    ThreadBackgroundTerminalsListResponse,
    ThreadBackgroundTerminalsTerminateParams,
    ThreadBackgroundTerminalsTerminateResponse,
    ThreadShellCommandParams,
    ThreadShellCommandResponse,
)
from protocol.jsonrpc.errors import invalid_request


@serves("thread/shellCommand")
async def run_shell_command(
    context: RequestContext, params: ThreadShellCommandParams
) -> ThreadShellCommandResponse:
    """Run a shell command, unconfined, in the running turn or in one of its own."""
    line, timeout_ms = params.command.strip(), params.timeout_ms
    if not line:
        raise invalid_request("command must not be empty", "invalidCommand")
    if len(line) > MAX_LINE_CHARS or "\0" in line:
        raise invalid_request(
            f"command must have at most {MAX_LINE_CHARS} characters, and no NUL",
            "invalidCommand",
        )
    if timeout_ms is not None and timeout_ms < 0:
        raise invalid_request("timeoutMs must not be negative", "invalidTimeout")
    with thread_failures(params.thread_id):
        session = context.services.sessions.get(params.thread_id)
        command = UserCommand(
            line=line,
            timeout_s=DEFAULT_S if timeout_ms is None else timeout_ms / 1000,
            output_limit_bytes=session.output_limit_bytes,
        )
        accepted = await session.user_commands.start(command)
    context.after_answer(accepted.run_soon)
    return ThreadShellCommandResponse()


@serves("thread/backgroundTerminals/list")
async def list_terminals(
    context: RequestContext, params: ThreadBackgroundTerminalsListParams
) -> ThreadBackgroundTerminalsListResponse:
    """List the background commands of a loaded thread, the oldest first."""
    commands = _commands_of(context.services, params.thread_id)
    after = 0 if params.cursor is None else cursor_number(params.cursor)
    rows = [run for run in commands.background() if run.number > after]
    limit = len(rows) if params.limit is None else max(params.limit, 1)
    more = len(rows) > limit
    return ThreadBackgroundTerminalsListResponse(
        data=[_shown(run) for run in rows[:limit]],
        next_cursor=str(rows[limit - 1].number) if more else None,
    )


@serves("thread/backgroundTerminals/terminate")
async def terminate_terminal(
    context: RequestContext, params: ThreadBackgroundTerminalsTerminateParams
) -> ThreadBackgroundTerminalsTerminateResponse:
    """Terminate one command; answered once it has ended and its item is complete."""
    commands = _commands_of(context.services, params.thread_id)
    if not is_offset(params.process_id):
        raise invalid_request(
            f"invalid background terminal process id: {params.process_id}",
            "invalidProcessId",
            processId=params.process_id,
        )
    run = commands.find(params.process_id)
    if run is None or run.completed.is_set():
        return ThreadBackgroundTerminalsTerminateResponse(terminated=False)
    await run.stop()
    return ThreadBackgroundTerminalsTerminateResponse(terminated=True)


@serves("thread/backgroundTerminals/clean")
async def clean_terminals(
    context: RequestContext, params: ThreadBackgroundTerminalsCleanParams
) -> ThreadBackgroundTerminalsCleanResponse:
    """Terminate all background commands; answered once their items are complete."""
    await _commands_of(context.services, params.thread_id).end_background()
    return ThreadBackgroundTerminalsCleanResponse()


def _commands_of(services: Services, thread_id: str) -> ThreadCommands:
    return loaded_thread(services.sessions, thread_id).commands


def _shown(run: ThreadCommand) -> ThreadBackgroundTerminal:
    return ThreadBackgroundTerminal(
        item_id=run.item.id,
        process_id=run.session_id,
        command=run.line,
        cwd=run.item.cwd,
        os_pid=(run.process.pid or None) if run.process is not None else None,
    )
