"""Patches: the model changes files, and clients see what changes.

A patch is planned as a whole first. Then somebody is asked if need be, and then it is written. The
same happens to a patch that the model hands to a shell command.
Source: docs/tools.md, "Patches".
"""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath

import anyio
import anyio.to_thread

from app_server.host.exec.client.process import RemoteProcess
from app_server.host.exec.client.remote_patch import RemotePatch, planned_elsewhere
from app_server.models.catalogue.models import ModelFeatures
from app_server.patch.in_command import find_patch
from app_server.patch.parse import (
    BEGIN,
    LARK,
    LARK_ENVIRONMENTS,
    EmptyPatch,
    NotWritten,
    Patch,
    PatchFailed,
    parse_patch,
)
from app_server.patch.plan import Plan, PlannedChange, plan_patch
from app_server.patch.shown import shown_changes, summary
from app_server.patch.unified import TurnDiff
from app_server.patch.write import changing_files, new_token, write_plan
from app_server.permissions.sandbox.policy import EffectivePolicy
from app_server.permissions.verdict import NeedsApproval, Refuse
from app_server.runtime.files.repository import repository_of
from app_server.runtime.machine import machine_name
from app_server.tools.environments import (
    FoundEnvironment,
    NoEnvironment,
    TurnEnvironments,
    work_policy,
)
from app_server.turns.approval.files import FileRequest
from app_server.turns.context import ThreadContext
from app_server.turns.recorder import TurnRecorder
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import (
    BadCall,
    RequestedCall,
    ToolArguments,
    TurnTool,
    function_declaration,
    text,
)
from protocol.log.rollout import FilesChanging
from protocol.model import Json, JsonObject
from protocol.turns.items import FileChangeThreadItem
from protocol.turns.notifications import TurnDiffUpdatedNotification

NAME = "apply_patch"

FREEFORM_DESCRIPTION = (
    "Changes files by a patch. The input is the patch as plain text: it is not wrapped in JSON."
)

FUNCTION_DESCRIPTION = """Changes files by a patch, of which `input` is the whole text. \
Its grammar, in Lark's language:

{grammar}
A patch of two files:

*** Begin Patch
*** Update File: src/app.py
@@ def greet():
-    print("Hi")
+    print("Hello")
*** Add File: notes.txt
+A first line.
*** End Patch

Paths begin at the working folder. A line of an update that stays begins with a blank; give about \
three of them around a change. A line behind `@@` is one above the change, such as the head of its \
function. Every line of a new file begins with `+`."""

ENVIRONMENTS = (
    " Without a line `*** Environment ID: NAME` the files are those of `{first}`; the names are: "
    "{names}."
)


class PatchArguments(ToolArguments):
    """Arguments of the function that models without freeform tools call."""

    input: str


@lru_cache
def patch_declaration(*, is_freeform: bool, environments: tuple[str, ...]) -> JsonObject:
    """Declare the tool; `environments` are the ids that a patch can choose from, if any."""
    grammar = LARK_ENVIRONMENTS if environments else LARK
    more = ""
    if environments:
        names = ", ".join(f"`{name}`" for name in environments)
        more = ENVIRONMENTS.format(first=environments[0], names=names)
    if is_freeform:
        return {
            "type": "custom",
            "name": NAME,
            "description": FREEFORM_DESCRIPTION + more,
            "format": {"type": "grammar", "syntax": "lark", "definition": grammar},
        }
    description = FUNCTION_DESCRIPTION.replace("{grammar}", grammar) + more
    return function_declaration(NAME, description, {"input": text("The patch.")})


NO_ENVIRONMENT = "apply_patch environment selection is unavailable for this turn"

NO_COMMAND = (
    "apply_patch verification failed: this is a patch and not a command; call apply_patch with it"
)

PLAN_MODE = "patch rejected: in plan mode nothing is written; put the change into the plan"


@dataclass(frozen=True, slots=True)
class ApplyPatch(TurnTool):
    """The patches of one turn, and what they have changed together."""

    functions = (NAME,)

    context: ThreadContext
    turn: RunningTurn
    environments: TurnEnvironments
    changes: "TurnChanges"

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the tool, freeform if the model takes that; not without a folder to work in."""
        if not self.turn.settings.working_folders:
            return []
        names = tuple(self.environments.names)
        return [patch_declaration(is_freeform=model.freeform_patch, environments=names)]

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is a patch, in either form."""
        is_freeform = call.kind == "custom" and call.namespace is None and call.name == NAME
        return is_freeform or TurnTool.offers(self, call)

    # Calls do not overlap: what a patch finds must be what it changes.

    async def run(self, call: RequestedCall) -> Json:
        """Apply a patch; returns what became of it."""
        if call.kind != "custom":
            text = call.read(PatchArguments).input
        elif isinstance(call.input, str):
            text = call.input
        else:
            raise BadCall("apply_patch takes the text of a patch")
        return await self._apply(call.call_id, text)

    async def run_command(
        self, call_id: str, script: str, found: FoundEnvironment, folder: str
    ) -> str | None:
        """Apply the patch that a shell command is nothing but the application of.

        `folder` is where the command would run there, an absolute path. Returns what the model
        reads; None if the command is something else, which is then run by a shell.

        Raises:
            LoadFailed: scripts cannot be read now.
            OSError: the thread's log cannot be written.
        """
        if script.strip().startswith(BEGIN):
            return NO_COMMAND
        patch = await find_patch(self.context.server.grammar, script)
        if patch is None:
            return None
        where = folder if patch.folder is None else str(PurePosixPath(folder, patch.folder))
        output = await self._apply(call_id, patch.text, found, where)
        if not output.startswith("Exit code: "):
            return output
        return f"Wall time: 0.0000 seconds\nOutput:\n{output}"

    async def _apply(
        self,
        item_id: str,
        text: str,
        found: FoundEnvironment | None = None,
        folder: str | None = None,
    ) -> str:
        """Do all that a patch takes; returns what the model reads.

        Paths begin at `folder` of an environment, else where the patch or the thread says.
        """
        if self.turn.settings.mode == "plan":
            return PLAN_MODE
        try:
            patch = await anyio.to_thread.run_sync(parse_patch, text)
            if patch.environment_id is not None and not self.environments.names:
                return NO_ENVIRONMENT
            if found is None or patch.environment_id is not None:
                found = await self.environments.find(patch.environment_id)
                folder = None
            cwd = found.folder.cwd if folder is None else folder
            sandbox_policy = self.environments.sandbox_policy(found.folder)
            may_write = sandbox_policy.writable is None or bool(sandbox_policy.writable)
            target = _Target(found, cwd, may_write=may_write)
            if found.is_here:
                planned = await planned_here(patch, cwd, sandbox_policy)
                return await self._carry_out(item_id, planned, text, target)
            policy = work_policy(self.environments, found)
            started = self.context.server.environments.start_patch(found.id, cwd, policy)
            async with planned_there(found.id, started, text) as planned:
                return await self._carry_out(item_id, planned, text, target)
        except NoEnvironment as exc:
            return f"apply_patch failed: {exc}"
        except EmptyPatch as exc:
            return f"patch rejected: {exc}"
        except PatchFailed as exc:
            return f"apply_patch verification failed: {exc}"

    async def _carry_out(
        self, item_id: str, planned: "PlannedPatch", text: str, target: "_Target"
    ) -> str:
        shown = await anyio.to_thread.run_sync(shown_changes, planned.plan.changes)
        item = FileChangeThreadItem(id=item_id, changes=shown, status="inProgress")
        plan = planned.plan
        request = FileRequest(
            turn_id=self.turn.id,
            item_id=item_id,
            environment_id=target.found.id,
            cwd=target.cwd,
            paths=[place for change in plan.changes for place in change.written],
            is_inside=not plan.outside and not plan.locked,
            may_write=target.may_write,
            reason=reason_to_ask(plan),
            patch=text,
        )
        verdict = self.context.approvals.files.check(request)
        if isinstance(verdict, Refuse):
            return verdict.text
        self.turn.recorder.started(item)
        if isinstance(verdict, NeedsApproval):
            refusal = await self._ask(item, request)
            if refusal is not None:
                return refusal
        # What was begun is done, and written down: an interrupt comes after it.
        with anyio.CancelScope(shield=True):
            made, failure, wall_s = await self._write(item, planned, target.found)
        return written_text(made, failure, wall_s)

    async def _ask(self, item: FileChangeThreadItem, request: FileRequest) -> str | None:
        """Ask about a patch whose item is announced, and decline the item where it is refused.

        Returns why files must not be changed; None if they may be.
        """
        turn, approvals = self.turn, self.context.approvals.files
        try:
            with approvals.questions.open(approvals.question(request)) as open_question:
                decision = await open_question.decide()
        except BaseException:
            # Interrupted, or refused by the disk: it is not done.
            item.status = "declined"
            await turn.recorder.completed(item)
            raise
        if not decision.is_allowed:
            item.status = "declined"
            await turn.recorder.completed(item)
            if decision.ends_turn:
                await turn.interrupt_here()
            return decision.text
        approvals.keep(request, decision)
        return None

    async def _write(
        self, item: FileChangeThreadItem, planned: "PlannedPatch", found: FoundEnvironment
    ) -> tuple[Sequence[PlannedChange], str | None, float]:
        """Change the files, and complete the item; returns the changes, the failure, seconds."""
        await planned.note(item.id, self.turn.recorder)
        started = time.perf_counter()
        changes = planned.plan.changes
        made: Sequence[PlannedChange] = changes
        failure: str | None = None
        try:
            await planned.write()
        except NotWritten as exc:
            failure = str(exc)
            made = [changes[number] for number in exc.changed or ()]
            if exc.changed is not None:
                item.changes = await anyio.to_thread.run_sync(shown_changes, made)
        wall_s = time.perf_counter() - started
        item.status = "completed" if failure is None else "failed"
        await self.turn.recorder.completed(item)
        await self.changes.notify(self.turn, made, found)
        return made, failure, wall_s


@dataclass(frozen=True, slots=True)
class _Target:
    """Environment and folder of a patch."""

    found: FoundEnvironment
    cwd: str
    """Folder in which its paths begin."""
    may_write: bool
    """Whether the sandbox lets any folder be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPatch:
    """A patch that was checked as a whole."""

    plan: Plan
    """The changes that it makes."""
    token: str | None = None
    """The token of `write_plan`; None for files of another machine."""
    remote: RemotePatch | None = None
    """The patch of files of another machine."""
    environment_id: str | None = None
    """That machine, which the next process cannot look at."""

    async def write(self) -> None:
        """Make all changes.

        Raises:
            NotWritten: see `write_plan`.
        """
        if self.remote is not None:
            await self.remote.write()
        else:
            assert self.token is not None
            await anyio.to_thread.run_sync(write_plan, self.plan, self.token)

    async def note(self, item_id: str, recorder: TurnRecorder) -> None:
        """Write down what the next process has to know if this one dies in the middle.

        Raises:
            OSError: the thread's log cannot be written.
        """
        record = FilesChanging(
            at_ms=recorder.clock.now_ms(),
            turn_id=recorder.turn_id,
            item_id=item_id,
            environment_id=self.environment_id,
            machine=await anyio.to_thread.run_sync(machine_name),
            files=await anyio.to_thread.run_sync(changing_files, self.plan, self.token),
        )
        await recorder.log.append(record, sync=False)


async def planned_here(patch: Patch, cwd: str, sandbox_policy: EffectivePolicy) -> PlannedPatch:
    """Plan a patch of this machine's files.

    Raises:
        PatchFailed: see `plan_patch`.
    """
    plan = await anyio.to_thread.run_sync(plan_patch, patch, cwd, sandbox_policy)
    return PlannedPatch(plan=plan, token=new_token())


@asynccontextmanager
async def planned_there(
    environment_id: str, started: AbstractAsyncContextManager[RemoteProcess], text: str
) -> AsyncIterator[PlannedPatch]:
    """Plan a patch of another machine's files, which stays connected to until it is left.

    Raises:
        PatchFailed: see `plan_patch`.
        NoEnvironment: the machine is out of reach.
    """
    async with AsyncExitStack() as stack:
        try:
            patch = await stack.enter_async_context(planned_elsewhere(started, text))
        except OSError as exc:
            raise NoEnvironment(f"environment `{environment_id}`: {exc}") from exc
        yield PlannedPatch(plan=patch.plan, remote=patch, environment_id=environment_id)


def written_text(made: Sequence[PlannedChange], failure: str | None, wall_s: float) -> str:
    """Render for the model what was changed, and what could not be."""
    code = 0 if failure is None else 1
    head = f"Exit code: {code}\nWall time: {round(wall_s, 1):g} seconds\nOutput:\n"
    done = summary(made)
    if failure is None:
        return f"{head}Success. Updated the following files:\n{done}"
    before = f"Before that, the following files were updated:\n{done}" if done else ""
    return f"{head}{failure}\n{before}"


def reason_to_ask(plan: Plan) -> str | None:
    """Say why it is asked about files that look as if they could be written."""
    outside = "outside of the folders that may be written"
    reasons = [
        f"{path} leads to {place}, {outside}"
        for place, path in plan.outside.items()
        if path != place
    ]
    reasons += [f"{path} is write-protected" for path in plan.locked]
    if not reasons:
        return None
    more = f"; and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return f"{reasons[0]}{more}"


def root_of_diff(folder: str) -> str:
    """Return the folder that paths of a diff begin at: the repository's, else this one; blocks."""
    real = Path(folder).resolve()
    return str(repository_of(real) or real)


@dataclass(slots=True)
class TurnChanges:
    """Combined changes of the patches of one turn."""

    _diff: TurnDiff = field(default_factory=TurnDiff)
    _roots: dict[str, str] = field(default_factory=dict)
    """By environment, the folder that paths begin at."""
    _sent: str = ""
    """The diff that clients have."""

    async def notify(
        self, turn: RunningTurn, made: Sequence[PlannedChange], found: FoundEnvironment
    ) -> None:
        """Add what a patch has changed, and notify clients if the diff is another one now."""
        folders = turn.settings.working_folders
        is_only = len(folders) < 2 and [one.environment_id for one in folders] in ([], [found.id])
        shown = await anyio.to_thread.run_sync(
            self._after, made, found, "" if is_only else found.id
        )
        if shown != self._sent:
            self._sent = shown
            turn.recorder.clients.emit(TurnDiffUpdatedNotification(**turn.recorder.ids, diff=shown))

    def _after(self, made: Sequence[PlannedChange], found: FoundEnvironment, above: str) -> str:
        root = self._roots.get(found.id)
        if root is None:
            cwd = found.folder.cwd
            root = self._roots[found.id] = root_of_diff(cwd) if found.is_here else cwd
        for change in made:
            for place, before, after, origin in change.effects():
                moved_from = None if origin is None else _shown(origin, root, above)
                self._diff.touch(_shown(place, root, above), before, after, moved_from)
        return self._diff.render()


def _shown(path: str, root: str, above: str) -> str:
    """Name a path as clients are shown it: with several environments that of its own first."""
    below = path.removeprefix(root.rstrip("/") + "/")
    return f"{above}/{below.lstrip('/')}" if above else below
