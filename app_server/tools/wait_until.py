"""Tool `wait_until`: the turn ends, and another one begins at a time or with the end of a command.

Source: docs/wakes.md, "For models".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from app_server.models.catalogue.models import ModelFeatures
from app_server.turns.commands import ThreadCommand, state_line
from app_server.turns.context import ThreadContext
from app_server.turns.server_context import WakeRefused
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import (
    BadCall,
    RequestedCall,
    ToolArguments,
    TurnTool,
    function_declaration,
    text,
)
from protocol.model import Json, JsonObject
from protocol.signals.wakes import MAX_EVERY_S, MAX_NOTE_BYTES

NAME = "wait_until"
ONE_OF = "give one of `time`, `seconds` and `session_id`"

_DESCRIPTION = (
    "Ends this turn once its calls are done; another one begins when what you wait for has come. "
    "Use it instead of asking again and again. Give one of the arguments that say what for."
)
_MEMBERS: JsonObject = {
    "time": text("A time, such as 2026-01-31T08:00:00Z."),
    "seconds": {"type": "number", "description": "A duration in seconds, 1 or more."},
    "note": text("What you want to be told then."),
}
_SESSION: JsonObject = {
    "session_id": {
        "type": "number",
        "description": "The session id of a command that `exec_command` left running: its end.",
    }
}


class WaitArguments(ToolArguments):
    """Arguments of `wait_until`."""

    time: str | None = None
    seconds: Annotated[float, Field(ge=1, le=MAX_EVERY_S)] | None = None
    session_id: Annotated[float, Field(ge=0, le=1e12, multiple_of=1)] | None = None
    note: Annotated[str, Field(max_length=MAX_NOTE_BYTES)] = ""


@dataclass(frozen=True, slots=True)
class WaitUntil(TurnTool):
    """Sets a wake of the thread, and lets the turn rest."""

    functions = (NAME,)

    context: ThreadContext
    turn: RunningTurn

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the function; without commands there are none to wait for."""
        members = dict(_MEMBERS)
        if self.turn.settings.working_folders:
            members |= _SESSION
        return [function_declaration(NAME, _DESCRIPTION, members, required=[])]

    async def run(self, call: RequestedCall) -> Json:
        """Set the wake, and have the turn end after the calls of this answer.

        Raises:
            BadCall: there is nothing to wait for as it was asked.
        """
        arguments = call.read(WaitArguments)
        wanted = arguments.time, arguments.seconds, arguments.session_id
        if sum(one is not None for one in wanted) != 1:
            raise _failed(ONE_OF)
        if len(arguments.note.encode()) > MAX_NOTE_BYTES:
            raise _failed(f"`note` holds more than {MAX_NOTE_BYTES} bytes")
        wakes, thread_id = self.context.server.wakes, self.context.log.id
        try:
            if arguments.session_id is None:
                at_ms = self._time(arguments)
                await wakes.at_time(thread_id, at_ms, arguments.note)
                shown = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                what = f"at {shown}"
            else:
                command = self._command(str(int(arguments.session_id)))
                if command.completed.is_set():
                    return state_line(command.item.exit_code, command.session_id)
                await wakes.at_exit(thread_id, command.session_id, arguments.note)
                what = f"when session {command.session_id} ends"
        except WakeRefused as exc:
            raise _failed(str(exc)) from exc
        self.turn.rests = True
        return f"This turn ends now. Another one begins {what}."

    def _time(self, arguments: WaitArguments) -> int:
        now_ms = self.context.clock.now_ms()
        if arguments.seconds is not None:
            return now_ms + round(arguments.seconds * 1000)
        assert arguments.time is not None
        try:
            moment = datetime.fromisoformat(arguments.time)
        except ValueError as exc:
            raise _failed("`time` must be a time such as 2026-01-31T08:00:00Z") from exc
        if moment.tzinfo is None:
            raise _failed("`time` needs a time zone, such as the Z of 2026-01-31T08:00:00Z")
        at_ms = round(moment.timestamp() * 1000)
        if not now_ms <= at_ms <= now_ms + MAX_EVERY_S * 1000:
            raise _failed("`time` must not be in the past, and at most a year away")
        return at_ms

    def _command(self, session_id: str) -> ThreadCommand:
        command = self.context.commands.find(session_id)
        if command is None:
            raise _failed(f"Unknown process id {session_id}")
        return command


def _failed(reason: str) -> BadCall:
    return BadCall(f"{NAME} failed: {reason}")
