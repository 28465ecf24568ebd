"""Patches: the model changes files, and clients see what changes.

A patch is planned as a whole first. Then somebody is asked if need be, and then it is written. The
same happens to a patch that the model hands to a shell command.
Source: docs/tools.md, "Patches".
"""

import time
from collections.abc import Sequence
from pathlib import PurePosixPath

import anyio
import anyio.to_thread

from app_server.models.catalogue.features import ModelFeatures
from app_server.patch.errors import EmptyPatch, NotWritten, PatchFailed
from app_server.patch.grammar import BEGIN
from app_server.patch.in_command import find_patch
from app_server.patch.parse import parse_patch
from app_server.patch.plan import Plan, PlannedChange
from app_server.patch.shown import shown_changes
from app_server.permissions.decision import Ask, Refuse
from app_server.tools.environments import (
    FoundEnvironment,
    NoEnvironment,
    TurnEnvironments,
    work_policy,
)
from app_server.tools.patches.declaration import NAME, PatchArguments, patch_declaration
from app_server.tools.patches.planned import PlannedPatch, planned_here, planned_there
from app_server.tools.patches.texts import Written, reason_to_ask
from app_server.tools.patches.turn_changes import TurnChanges
from app_server.turns.approval.files import FileRequest
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn
from app_server.turns.tools.call import BadCall, RequestedCall
from app_server.turns.tools.table import TurnTool
from protocol.model import Json, JsonObject
from protocol.turns.items import FileChangeThreadItem

NO_ENVIRONMENT = "apply_patch environment selection is unavailable for this turn"

NO_COMMAND = (
    "apply_patch verification failed: this is a patch and not a command; call apply_patch with it"
)

PLAN_MODE = "patch rejected: in plan mode nothing is written; put the change into the plan"


class ApplyPatch(TurnTool):
    """The patches of one turn, and what they have changed together."""

    def __init__(
        self,
        context: ThreadContext,
        turn: RunningTurn,
        environments: TurnEnvironments,
    ) -> None:
        self._turn = turn
        self._approvals = context.approvals
        self._grammar = context.server.grammar
        self._environments = environments
        self._changes = TurnChanges(turn)

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the tool, freeform if the model takes that; not without a folder to work in."""
        if not self._turn.settings.working_folders:
            return []
        names = self._environments.names
        return [patch_declaration(is_freeform=model.freeform_patch, environments=names)]

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is a patch, in either form."""
        if call.kind == "custom":
            return call.namespace is None and call.name == NAME
        return call.is_function(NAME)

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
        patch = await find_patch(self._grammar, script)
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
        if self._turn.settings.mode == "plan":
            return PLAN_MODE
        try:
            patch = await anyio.to_thread.run_sync(parse_patch, text)
            if patch.environment_id is not None and not self._environments.names:
                return NO_ENVIRONMENT
            if found is None or patch.environment_id is not None:
                found = await self._environments.find(patch.environment_id)
                folder = None
            cwd = found.folder.cwd if folder is None else folder
            if found.is_here:
                confinement = self._environments.confinement(found.folder)
                planned = await planned_here(patch, cwd, confinement)
                return await self._carry_out(item_id, planned, text, found, cwd)
            policy = work_policy(self._environments, found)
            started = self._environments.machines.start_patch(found.id, cwd, policy)
            async with planned_there(found.id, started, text) as planned:
                return await self._carry_out(item_id, planned, text, found, cwd)
        except NoEnvironment as exc:
            return f"apply_patch failed: {exc}"
        except EmptyPatch as exc:
            return f"patch rejected: {exc}"
        except PatchFailed as exc:
            return f"apply_patch verification failed: {exc}"

    async def _carry_out(
        self, item_id: str, planned: PlannedPatch, text: str, found: FoundEnvironment, cwd: str
    ) -> str:
        shown = await anyio.to_thread.run_sync(shown_changes, planned.plan)
        item = FileChangeThreadItem(id=item_id, changes=shown, status="inProgress")
        refusal = await self._refusal(item, planned.plan, text, found, cwd)
        if refusal is not None:
            return refusal
        # What was begun is done, and written down: an interrupt comes after it.
        with anyio.CancelScope(shield=True):
            written = await self._write(item, planned, found)
        return written.output()

    async def _refusal(
        self, item: FileChangeThreadItem, plan: Plan, text: str, found: FoundEnvironment, cwd: str
    ) -> str | None:
        """Return why files must not be changed, after announcing the item and asking if need be."""
        turn = self._turn
        writable = self._environments.confinement(found.folder).writable
        request = FileRequest(
            turn_id=turn.id,
            item_id=item.id,
            environment_id=found.id,
            cwd=cwd,
            paths=[place for change in plan.changes for place in change.written],
            is_inside=not plan.outside and not plan.locked,
            may_write=writable is None or bool(writable),
            reason=reason_to_ask(plan),
            patch=text,
        )
        approvals = self._approvals.files
        verdict = approvals.check(request)
        if isinstance(verdict, Refuse):
            return verdict.text
        turn.recorder.started(item)
        if isinstance(verdict, Ask):
            with self._approvals.questions.open(approvals.question(request)) as asked:
                decision = await asked.decide()
            if not decision.is_allowed:
                item.status = "declined"
                await turn.recorder.completed(item)
                if decision.ends_turn:
                    await turn.interrupt_here()
                return decision.text
            approvals.keep(request, decision)
        return None

    async def _write(
        self, item: FileChangeThreadItem, planned: PlannedPatch, found: FoundEnvironment
    ) -> Written:
        await planned.note(item.id, self._turn.recorder)
        started = time.perf_counter()
        changes = planned.plan.changes
        made: Sequence[PlannedChange] = changes
        failure: str | None = None
        try:
            await planned.write()
        except NotWritten as exc:
            failure = str(exc)
            made = [changes[number] for number in exc.changed]
        wall_s = time.perf_counter() - started
        item.status = "completed" if failure is None else "failed"
        await self._turn.recorder.completed(item)
        await self._changes.notify(made, found)
        return Written(made, failure, wall_s)
