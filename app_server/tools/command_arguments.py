"""Arguments of `exec_command` and `write_stdin`, and their declaration to a model.

Names, types and defaults are those of Codex 0.169, since models know them.
Source: docs/tools.md, "Commands".
"""

from collections.abc import Sequence
from typing import Annotated, cast

from pydantic import Field, StringConstraints

from app_server.permissions.verdict import SandboxPermissions
from app_server.turns.calls import ToolArguments, function_declaration
from protocol.model import JsonObject

EXEC_COMMAND = "exec_command"
WRITE_STDIN = "write_stdin"

YIELD_MS = 10_000
MIN_YIELD_MS, MAX_YIELD_MS = 250, 30_000
POLL_MS = 5_000
MAX_POLL_MS = 300_000
"""A wait for output without input; `POLL_MS` is the least."""

OUTPUT_TOKENS = 10_000
MAX_LINE_CHARS = 100_000
"""Of a command line; the system takes 128 KiB as one argument."""
MAX_CHARS = 1_000_000
"""Of input in one call."""

_Line = Annotated[str, StringConstraints(max_length=MAX_LINE_CHARS, pattern=r"^[^\x00]*$")]
_Number = Annotated[float, Field(ge=0, le=1e12)]
"""The declaration says `number`, and models send 1000.0 for 1000."""


class ExecArguments(ToolArguments):
    """Of `exec_command`."""

    cmd: _Line
    workdir: Annotated[str, StringConstraints(max_length=4096, pattern=r"^[^\x00]*$")] | None = None
    shell: Annotated[str, StringConstraints(max_length=4096, pattern=r"^[^\x00]*$")] | None = None
    tty: bool = False
    login: bool = True
    yield_time_ms: _Number = YIELD_MS
    max_output_tokens: _Number = OUTPUT_TOKENS
    sandbox_permissions: SandboxPermissions = "use_default"
    justification: str | None = None
    prefix_rule: tuple[str, ...] | None = None
    environment_id: str | None = None

    @property
    def yield_s(self) -> float:
        """Seconds to wait for its end."""
        return min(max(self.yield_time_ms, MIN_YIELD_MS), MAX_YIELD_MS) / 1000


class StdinArguments(ToolArguments):
    """Of `write_stdin`."""

    session_id: Annotated[float, Field(ge=0, le=1e12, multiple_of=1)]
    chars: Annotated[str, StringConstraints(max_length=MAX_CHARS)] = ""
    yield_time_ms: _Number | None = None
    max_output_tokens: _Number = OUTPUT_TOKENS

    @property
    def yield_s(self) -> float:
        """Seconds to wait for output."""
        wanted = self.yield_time_ms
        if self.chars:
            return min(max(wanted or 0, MIN_YIELD_MS), MAX_YIELD_MS) / 1000
        return min(max(wanted or 0, POLL_MS), MAX_POLL_MS) / 1000


def _member(kind: str, description: str, **more: object) -> JsonObject:
    return {"type": kind, "description": description, **more}


_BUDGET = _member(
    "number",
    f"Most tokens of output to return; {OUTPUT_TOKENS} if left out. Longer output is cut in the "
    "middle, and the settings may allow less.",
)

EXEC_DECLARATION = function_declaration(
    EXEC_COMMAND,
    "Run a command line in a shell. Returns what it printed when it ends, or a session id for "
    f"`{WRITE_STDIN}` if it still runs after `yield_time_ms`.",
    {
        "cmd": _member("string", "The command line."),
        "workdir": _member(
            "string",
            "The folder to run it in; relative to the folder of the turn, which it is if left out.",
        ),
        "shell": _member("string", "Name or path of the shell; the user's if left out."),
        "tty": _member(
            "boolean",
            "True runs it at a terminal, and keeps its input open; false, the default, with pipes "
            "and without input.",
        ),
        "login": _member("boolean", "Whether the shell reads its profile first; true if left out."),
        "yield_time_ms": _member(
            "number",
            f"How long to wait for its end, in ms: {MIN_YIELD_MS} to {MAX_YIELD_MS}, "
            f"{YIELD_MS} if left out.",
        ),
        "max_output_tokens": _BUDGET,
        "sandbox_permissions": _member(
            "string",
            "`require_escalated` asks the user to let it run outside of the sandbox; "
            "`use_default` if left out.",
            enum=["use_default", "require_escalated"],
        ),
        "justification": _member(
            "string", "With `require_escalated`: the question to the user, in one sentence."
        ),
        "prefix_rule": _member(
            "array",
            "With `require_escalated`: the first words of `cmd` which the user may allow for good, "
            'such as ["git", "pull"].',
            items={"type": "string"},
        ),
    },
    ["cmd"],
)

STDIN_DECLARATION = function_declaration(
    WRITE_STDIN,
    f"Write to a command that `{EXEC_COMMAND}` left running, and return what it printed since the "
    "last time.",
    {
        "session_id": _member("number", "The session id of the command."),
        "chars": _member(
            "string", "What to write; control characters count. Nothing is written if left out."
        ),
        "yield_time_ms": _member(
            "number",
            f"How long to wait for output, in ms: {MIN_YIELD_MS} to {MAX_YIELD_MS} after writing, "
            f"{MIN_YIELD_MS} if left out; without `chars` {POLL_MS} to {MAX_POLL_MS}.",
        ),
        "max_output_tokens": _BUDGET,
    },
    ["session_id"],
)


def environment_member(environments: Sequence[str]) -> JsonObject:
    """Describe the argument `environment_id`, with the ids that a call can choose from."""
    description = "The machine to work on, whose paths are meant; the first one if left out."
    return _member("string", description, enum=list(environments))


def exec_declaration(environments: Sequence[str]) -> JsonObject:
    """Declare `exec_command`, where commands can run in these environments; the first is meant."""
    if len(environments) < 2:
        return EXEC_DECLARATION
    parameters = cast(dict[str, JsonObject], EXEC_DECLARATION["parameters"])
    place = environment_member(environments)
    properties = {**parameters["properties"], "environment_id": place}
    return {**EXEC_DECLARATION, "parameters": {**parameters, "properties": properties}}
