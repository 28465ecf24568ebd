"""Tools `exec_command` and `write_stdin`: a command line, and input for one that runs.

From top to bottom: their arguments, with the names, types and defaults of Codex 0.169, since models
know them; how a command runs in a shell, within what confines the turn, and perhaps goes on behind
the turns; what is written to one that does.
Source: docs/tools.md, "Commands", "Approvals and rules".
"""

import os.path
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, cast

import anyio
import anyio.to_thread
from pydantic import Field, StringConstraints

from app_server.host.commands.local_commands import InputClosed
from app_server.host.commands.output import KeptOutput
from app_server.host.commands.shell import UnknownShell, find_shell, shown_line
from app_server.host.proxy.gate import Gate
from app_server.host.sandbox.wrapped_command import SandboxUnavailable
from app_server.models.catalogue.models import ModelFeatures
from app_server.patch.in_command import may_be_patch
from app_server.permissions.commands.wrappers import read_command, run_by
from app_server.permissions.sandbox.policy import UNRESTRICTED, EffectivePolicy
from app_server.permissions.shell.actions import command_actions
from app_server.permissions.verdict import (
    CommandFacts,
    NeedsApproval,
    Refuse,
    Run,
    SandboxPermissions,
    Verdict,
)
from app_server.tools.apply_patch import ApplyPatch
from app_server.tools.environments import (
    FoundEnvironment,
    NoEnvironment,
    TurnEnvironments,
    environment_member,
    work_policy,
)
from app_server.turns.approval.asking import Decision
from app_server.turns.approval.commands import CommandRequest
from app_server.turns.commands import (
    BYTES_PER_TOKEN,
    NOT_STARTED,
    UNCONFINED_WORK,
    ShellLine,
    ThreadCommand,
    model_text,
    start_failure,
    state_line,
)
from app_server.turns.context import ThreadContext
from app_server.turns.server_context import WakeRefused
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import (
    BadCall,
    RequestedCall,
    ToolArguments,
    TurnTool,
    function_declaration,
)
from protocol.model import Json, JsonObject
from protocol.turns.items import CommandExecutionThreadItem, TerminalInteractionNotification

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
    wake_on_exit: bool = False

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


_WAKE_ON_EXIT = _member(
    "boolean",
    "True: if it still runs after `yield_time_ms`, you may end your turn, and another one begins "
    "when it ends, with its exit code and the end of its output. False if left out.",
)


def exec_declaration(environments: Sequence[str], *, wakes: bool = False) -> JsonObject:
    """Declare `exec_command`, where commands can run in these environments; the first is meant.

    `wakes` says whether the end of a command can wake the thread.
    """
    if len(environments) < 2 and not wakes:
        return EXEC_DECLARATION
    parameters = cast(dict[str, JsonObject], EXEC_DECLARATION["parameters"])
    properties = dict(parameters["properties"])
    if len(environments) > 1:
        properties["environment_id"] = environment_member(environments)
    if wakes:
        properties["wake_on_exit"] = _WAKE_ON_EXIT
    return {**EXEC_DECLARATION, "parameters": {**parameters, "properties": properties}}


STAYS = "no command leaves the sandbox in plan mode, or in a review of code"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A call, once it is known what it runs and who decides about it."""

    arguments: ExecArguments
    request: CommandRequest
    line: ShellLine
    folder: str
    """Of the thread, in the environment of the command."""


@dataclass(frozen=True, slots=True)
class ExecCommand(TurnTool):
    """Runs command lines; what still runs when a call is answered goes on behind the turns."""

    functions = (EXEC_COMMAND,)

    context: ThreadContext
    turn: RunningTurn
    patches: ApplyPatch
    environments: TurnEnvironments

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the function; not without a folder to work in."""
        if not self.turn.settings.working_folders:
            return []
        return [exec_declaration(self.environments.names, wakes=self._may_wake)]

    def may_overlap(self, call: RequestedCall) -> bool:
        """Whether it runs beside other commands of its answer, as all do that apply no patch."""
        return not (isinstance(call.input, str) and may_be_patch(call.input))

    async def run(self, call: RequestedCall) -> Json:
        """Ask if need be, run the line, and return what it printed until it ended or went on.

        A line that does nothing but apply a patch changes files as `apply_patch` does.
        """
        arguments = call.read(ExecArguments)
        try:
            found = await self.environments.find(arguments.environment_id)
        except NoEnvironment as exc:
            raise BadCall(_failed(str(exc))) from exc
        cwd = _folder(found.folder.cwd, arguments.workdir)
        patched = await self.patches.run_command(call.call_id, arguments.cmd, found, cwd)
        if patched is not None:
            return patched
        planned = await self._plan(call.call_id, arguments, found, cwd)
        verdict = self._within(await self.context.approvals.commands.check(planned.request))
        if isinstance(verdict, Refuse):
            return _failed(verdict.text)
        item = CommandExecutionThreadItem(
            id=call.call_id,
            command=planned.request.command,
            cwd=planned.request.cwd,
            source="unifiedExecStartup",
            status="inProgress",
            command_actions=list(planned.request.actions),
        )
        recorder = self.turn.recorder
        command = self.context.commands.add(item, planned.arguments.cmd, recorder)
        try:
            if isinstance(verdict, NeedsApproval):
                decision = await self._ask(command, planned, verdict)
                if not decision.is_allowed:
                    return _failed(decision.text)
                verdict = await self._check_again(planned, verdict)
            else:
                recorder.started(item)
            sandbox_policy = planned.request.sandbox_policy if verdict.sandboxed else UNRESTRICTED
            return await self._run(command, planned, sandbox_policy)
        finally:
            if not command.is_background:
                # Interrupted, or refused by the disk: nothing of it goes on.
                await command.stop()
                self.context.commands.forget(command)

    @property
    def _may_wake(self) -> bool:
        """Whether the end of a command can wake the thread; a review has no turn to go on with."""
        return self.context.settings.offers_wakes and not self.turn.recorder.has_own_history

    async def _wake_on_exit(self, command: ThreadCommand) -> None:
        """Have the thread woken by the end of a command, and say so beside its output."""
        try:
            await self.context.server.wakes.at_exit(self.context.log.id, command.session_id, "")
        except WakeRefused as exc:
            command.note(f"Its end does not wake you: {exc}")
        else:
            command.note("A turn begins when it ends; you need not ask.")

    @property
    def _may_not_leave(self) -> bool:
        """Whether nothing lets a command out of the sandbox: plans and reviews write nothing."""
        return self.turn.settings.mode == "plan" or self.turn.recorder.has_own_history

    def _within(self, verdict: Verdict) -> Verdict:
        if not self._may_not_leave or isinstance(verdict, Refuse) or verdict.sandboxed:
            return verdict
        # A rule lets it out by itself; what asks for it is answered so.
        return Run() if isinstance(verdict, Run) else Refuse(STAYS)

    async def _plan(
        self, call_id: str, arguments: ExecArguments, found: FoundEnvironment, cwd: str
    ) -> _Planned:
        try:
            # That of another machine is looked for there, by its name.
            shell = arguments.shell or found.shell
            if found.shell is None:
                shell = await anyio.to_thread.run_sync(find_shell, arguments.shell)
        except UnknownShell as exc:
            raise BadCall(_failed(str(exc))) from exc
        assert shell is not None
        login = arguments.login and self.context.machine.settings.allow_login_shell
        whole = await read_command(self.context.server.grammar, arguments.cmd)
        script = run_by(whole, shell, is_users=arguments.shell is None)
        request = CommandRequest(
            turn_id=self.turn.id,
            item_id=call_id,
            facts=CommandFacts(
                script=script,
                sandbox_permissions=arguments.sandbox_permissions,
                justification=arguments.justification,
                prefix_rule=arguments.prefix_rule,
            ),
            command=shown_line(shell, arguments.cmd, login=login),
            cwd=cwd,
            actions=command_actions(script, cwd),
            sandbox_policy=self.environments.sandbox_policy(found.folder),
            environment_id=found.id,
        )
        line = ShellLine(
            environment_id=found.id,
            cwd=cwd,
            shell=shell,
            named_shell=arguments.shell,
            login=login,
            tty=arguments.tty,
            policy=UNCONFINED_WORK if found.is_here else work_policy(self.environments, found),
        )
        return _Planned(arguments=arguments, request=request, line=line, folder=found.folder.cwd)

    async def _ask(
        self, command: ThreadCommand, planned: _Planned, needed: NeedsApproval
    ) -> Decision:
        """Announce the item as one that nothing runs for yet, ask, and keep what was allowed."""
        item, approvals = command.item, self.context.approvals.commands
        item.source, item.process_id = "agent", None
        question = approvals.question(planned.request, needed)
        with approvals.questions.open(question) as open_question:
            self.turn.recorder.started(item)
            decision = await open_question.decide()
            if not decision.is_allowed:
                await command.decline()
        if decision.is_allowed:
            await approvals.keep(planned.request, needed, decision)
            item.source, item.process_id = "unifiedExecStartup", command.session_id
        elif decision.ends_turn:
            await self.turn.interrupt_here()
        return decision

    async def _check_again(self, planned: _Planned, needed: NeedsApproval) -> Run:
        """Return how an allowed command runs: as asked, or as a rule says that was just kept."""
        if self._may_not_leave:
            return Run()
        verdict = await self.context.approvals.commands.check(planned.request)
        return verdict if isinstance(verdict, Run) else Run(needed.sandboxed)

    async def _run(
        self,
        command: ThreadCommand,
        planned: _Planned,
        sandbox_policy: EffectivePolicy,
    ) -> str:
        began_s = time.perf_counter()
        try:
            gate: Gate | None = None
            if sandbox_policy.proxy is not None:
                network = self.context.approvals.network
                gate = network.of_command(sandbox_policy.proxy, self.turn.id, command)
            await self.context.commands.start(command, planned.line, sandbox_policy, gate)
        except SandboxUnavailable as exc:
            await command.decline()
            return _failed(str(exc), *command.read_notes())
        except OSError as exc:
            text = start_failure(exc, planned.folder)
            await command.complete(NOT_STARTED, text)
            return _failed(text, *command.read_notes())
        assert command.process is not None
        with self.context.timeouts.move_on_after(planned.arguments.yield_s):
            await command.process.finished.wait()
        # Or it goes on behind the turns.
        has_ended = command.exit_code is not None or not await self.context.commands.leave(command)
        if has_ended and await self._may_run_unsandboxed(command, planned, sandbox_policy):
            command.again()
            return await self._run(command, planned, UNRESTRICTED)
        if has_ended:
            assert command.exit_code is not None
            await command.complete(command.exit_code)
        elif planned.arguments.wake_on_exit and self._may_wake:
            await self._wake_on_exit(command)
        limit = min(
            int(planned.arguments.max_output_tokens) * BYTES_PER_TOKEN,
            self.context.settings.output_limit_bytes,
        )
        return model_text(
            command.read(),
            limit,
            time.perf_counter() - began_s,
            state_line(command.exit_code, command.session_id),
            command.read_notes(),
        )

    async def _may_run_unsandboxed(
        self, command: ThreadCommand, planned: _Planned, sandbox_policy: EffectivePolicy
    ) -> bool:
        """Ask whether what the sandbox seems to have denied may run again without it."""
        assert command.exit_code is not None
        if self._may_not_leave or not sandbox_policy.is_restricted:
            return False
        if not looks_denied(command.exit_code, command.unread):
            return False
        command.send_pending()
        approvals = self.context.approvals.commands
        verdict = await approvals.check_unsandboxed(planned.request)
        if not isinstance(verdict, NeedsApproval):
            return isinstance(verdict, Run)
        question = approvals.question(planned.request, verdict, is_retry=True)
        with approvals.questions.open(question) as open_question:
            decision = await open_question.decide()
        if decision.is_allowed:
            await approvals.keep(planned.request, verdict, decision)
        elif decision.ends_turn:
            await command.complete(command.exit_code)
            await self.turn.interrupt_here()
        return decision.is_allowed


def _folder(cwd: str, workdir: str | None) -> str:
    """Return the folder of a command; looks at no disk."""
    return os.path.normpath(PurePath(cwd, workdir or ""))


def _failed(reason: str, *notes: str) -> str:
    return "\n".join((f"{EXEC_COMMAND} failed: {reason}", *notes))


SIGNS = (
    b"Operation not permitted",
    b"Permission denied",
    b"Read-only file system",
    b"Network is unreachable",
    b"Could not resolve host",
    b"Temporary failure in name resolution",
)
"""Messages of system errors, and of tools that have no network."""

OWN_FAILURES = (2, 126, 127)
"""Exit codes with which shells say that the line itself cannot be run."""

LOOKED_AT_BYTES = 64 * 1024
"""Of the end of its output."""


def looks_denied(exit_code: int, output: KeptOutput) -> bool:
    """Whether the sandbox may be the reason of a failure."""
    if exit_code == 0 or exit_code in OWN_FAILURES:
        return False
    end = output.all()[-LOOKED_AT_BYTES:]
    return any(sign in end for sign in SIGNS)


WRITE_S = 30.0
"""For a command to read what is written to it."""

NO_INPUT = (
    "stdin is closed for this session; run the command again with tty=true to be able to write"
)


@dataclass(frozen=True, slots=True)
class WriteStdin(TurnTool):
    """Writes to commands, and reads what they printed since."""

    functions = (WRITE_STDIN,)
    declared = (STDIN_DECLARATION,)

    context: ThreadContext
    turn: RunningTurn

    # Calls do not overlap: what is written to one command comes in the order of the calls.

    async def run(self, call: RequestedCall) -> Json:
        """Write, wait, and return what the command printed since the model last read of it."""
        arguments = call.read(StdinArguments)
        session_id = str(int(arguments.session_id))
        command = self.context.commands.find(session_id)
        if command is None or command.process is None:
            return _input_failed(f"Unknown process id {session_id}")
        began_s = time.perf_counter()
        if arguments.chars and (failure := await self._write(command, arguments.chars)) is not None:
            return _input_failed(failure)
        self._notify(command, arguments.chars)
        with self.context.timeouts.move_on_after(arguments.yield_s):
            await command.completed.wait()
        if command.completed.is_set():
            self.context.commands.forget(command)
        limit = min(
            int(arguments.max_output_tokens) * BYTES_PER_TOKEN,
            self.context.settings.output_limit_bytes,
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
        self.turn.recorder.clients.emit(
            TerminalInteractionNotification(
                thread_id=self.context.log.id,
                turn_id=self.turn.id,
                item_id=command.item.id,
                process_id=command.session_id,
                stdin=chars,
            )
        )


def _input_failed(reason: str) -> str:
    return f"{WRITE_STDIN} failed: {reason}"
