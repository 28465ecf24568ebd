"""The tool `write_stdin`: input for a command that goes on behind the turns, and what it printed.

Source: docs/tools.md, "Commands".
"""

import time
from collections.abc import Sequence

import anyio

from app_server.host.commands.local_commands import InputClosed
from app_server.models.catalogue.features import ModelFeatures
from app_server.tools.command_arguments import STDIN_DECLARATION, WRITE_STDIN, StdinArguments
from app_server.turns.calls import RequestedCall
from app_server.turns.commands import (
    BYTES_PER_TOKEN,
    ThreadCommand,
    model_text,
    state_line,
)
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import TurnTool
from protocol.model import Json, JsonObject
from protocol.turns.items import TerminalInteractionNotification

WRITE_S = 30.0
"""For a command to read what is written to it."""

NO_INPUT = (
    "stdin is closed for this session; run the command again with tty=true to be able to write"
)


class WriteStdin(TurnTool):
    """Writes to commands, and reads what they printed since."""

    def __init__(self, context: ThreadContext, turn: RunningTurn) -> None:
        self._context = context
        self._turn = turn

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the function."""
        return [STDIN_DECLARATION]

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is this function."""
        return call.is_function(WRITE_STDIN)

    # Calls do not overlap: what is written to one command comes in the order of the calls.

    async def run(self, call: RequestedCall) -> Json:
        """Write, wait, and return what the command printed since the model last read of it."""
        arguments = call.read(StdinArguments)
        session_id = str(int(arguments.session_id))
        command = self._context.commands.find(session_id)
        if command is None or command.process is None:
            return _failed(f"Unknown process id {session_id}")
        began_s = time.perf_counter()
        if arguments.chars and (failure := await self._write(command, arguments.chars)) is not None:
            return _failed(failure)
        self._notify(command, arguments.chars)
        with self._context.timeouts.move_on_after(arguments.yield_s):
            await command.completed.wait()
        if command.completed.is_set():
            self._context.commands.forget(command)
        limit = min(
            int(arguments.max_output_tokens) * BYTES_PER_TOKEN,
            self._context.settings.output_limit_bytes,
        )
        return model_text(
            command.read(),
            limit,
            time.perf_counter() - began_s,
            state_line(command.item.exit_code, command.session_id),
            command.read_notes(),
        )

    async def _write(self, command: ThreadCommand, chars: str) -> str | None:
        """Write to a command; gives why that did not work."""
        process = command.process
        assert process is not None
        if not process.takes_input:
            # What has ended is shown as such, with what it printed last.
            return None if process.finished.is_set() else NO_INPUT
        try:
            with anyio.fail_after(WRITE_S):
                await process.write(chars.encode())
        except InputClosed:
            return None if process.returncode is not None else NO_INPUT
        except TimeoutError:
            return f"the command did not read its input within {WRITE_S:.0f} s"
        return None

    def _notify(self, command: ThreadCommand, chars: str) -> None:
        self._turn.recorder.emit(
            TerminalInteractionNotification(
                thread_id=self._context.log.id,
                turn_id=self._turn.id,
                item_id=command.item.id,
                process_id=command.session_id,
                stdin=chars,
            )
        )


def _failed(reason: str) -> str:
    return f"{WRITE_STDIN} failed: {reason}"
