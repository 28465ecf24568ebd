"""Patches: the model changes files, and clients see what changes.

A patch is planned as a whole first. Then somebody is asked if need be, and then it is written. The
same happens to a patch that the model hands to a shell command.
Source: docs/tools.md, "Patches".
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.lowlevel
import anyio.to_thread

from app_server.patch.errors import EmptyPatch, NotWritten, PatchFailed
from app_server.patch.grammar import BEGIN
from app_server.patch.half_written import changing_files
from app_server.patch.in_command import find_patch
from app_server.patch.parse import parse_patch
from app_server.patch.plan import Plan, PlannedChange, plan_patch
from app_server.patch.shown import shown_changes, touched
from app_server.patch.turn_diff import TurnDiff
from app_server.patch.write import new_token, write_plan
from app_server.permissions.confinement import Confinement
from app_server.permissions.decision import Ask, Refuse
from app_server.permissions.resolving import resolved
from app_server.permissions.shell.grammar import ShellGrammar
from app_server.tools.environments import NoEnvironment, environment_of
from app_server.tools.patches.declaration import FREEFORM, FUNCTION, NAME, PatchArguments
from app_server.tools.patches.texts import Written, reason_to_ask, root_of_diff
from app_server.turns.approval.approvals import ApprovalCancelled, Denied
from app_server.turns.approval.files import FileGate, FileRequest
from app_server.turns.model.catalogue.features import ModelFeatures
from app_server.turns.tools.call import BadCall, RequestedCall
from app_server.turns.tools.turn import TurnContext
from protocol.items import FileChangeThreadItem, FileUpdateChange
from protocol.model import Json, JsonObject
from protocol.rollout import LOCAL, FilesChanging, Settings
from protocol.turns import TurnDiffUpdatedNotification

NO_ENVIRONMENT = "apply_patch environment selection is unavailable for this turn"

NO_COMMAND = (
    "apply_patch verification failed: this is a patch and not a command; call apply_patch with it"
)

PLAN_MODE = "patch rejected: in plan mode nothing is written; put the change into the plan"


@dataclass(frozen=True, slots=True)
class _Planned:
    plan: Plan
    shown: list[FileUpdateChange]


class ApplyPatch:
    """The patches of one turn, and what they have changed together."""

    def __init__(
        self,
        turn: TurnContext,
        gate: FileGate,
        grammar: ShellGrammar,
        confinement: Callable[[], Confinement],
    ) -> None:
        """`confinement` is what confines the turn now, links in it not followed."""
        self._turn = turn
        self._gate = gate
        self._grammar = grammar
        self._confinement = confinement
        self._diff: TurnDiff | None = None
        self._sent_diff = ""
        """The diff that clients have."""

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the tool, freeform if the model takes that; not without a folder to work in."""
        if self._turn.settings.without_environment:
            return []
        return [FREEFORM if model.freeform_patch else FUNCTION]

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is a patch, in either form."""
        if call.kind == "custom":
            return call.namespace is None and call.name == NAME
        return call.is_function(NAME)

    def may_overlap(self, call: RequestedCall) -> bool:
        """Return False: what a patch finds must be what it changes."""
        return False

    async def run(self, call: RequestedCall) -> Json:
        """Apply a patch; returns what became of it."""
        if call.kind != "custom":
            text = call.read(PatchArguments).input
        elif isinstance(call.input, str):
            text = call.input
        else:
            raise BadCall("apply_patch takes the text of a patch")
        return await self._apply(call.call_id, text, self._turn.settings.cwd)

    async def run_command(self, call_id: str, script: str, folder: str) -> str | None:
        """Apply the patch that a shell command is nothing but the application of.

        `folder` is where the command would run, an absolute path. Returns what the model reads;
        None if the command is something else, which is then run by a shell.

        Raises:
            LoadFailed: scripts cannot be read now.
            OSError: the thread's log cannot be written.
        """
        if script.strip().startswith(BEGIN):
            return NO_COMMAND
        found = await find_patch(self._grammar, script)
        if found is None:
            return None
        where = folder if found.folder is None else str(Path(folder, found.folder))
        output = await self._apply(call_id, found.text, where)
        if not output.startswith("Exit code: "):
            return output
        return f"Wall time: 0.0000 seconds\nOutput:\n{output}"

    async def _apply(self, item_id: str, text: str, folder: str) -> str:
        """Do all that a patch takes; returns what the model reads."""
        if self._turn.settings.mode == "plan":
            return PLAN_MODE
        confinement = self._confinement()
        settings = self._turn.settings
        try:
            planned = await anyio.to_thread.run_sync(_planned, text, folder, settings, confinement)
        except NoEnvironment as exc:
            return str(exc)
        except EmptyPatch as exc:
            return f"patch rejected: {exc}"
        except PatchFailed as exc:
            return f"apply_patch verification failed: {exc}"
        item = FileChangeThreadItem(id=item_id, changes=planned.shown, status="inProgress")
        try:
            await self._allow(item, planned.plan, text, folder)
        except Denied as exc:
            return str(exc)
        # What was begun is done, and written down: an interrupt comes after it.
        with anyio.CancelScope(shield=True):
            written = await self._write(item, planned.plan)
        return written.output()

    async def _allow(self, item: FileChangeThreadItem, plan: Plan, text: str, folder: str) -> None:
        """Announce the item, and ask if need be; returns when the files may be changed.

        Raises:
            Denied: they must not be; the text is for the model.
        """
        turn = self._turn
        request = FileRequest(
            turn_id=turn.turn_id,
            item_id=item.id,
            cwd=folder,
            paths=[place for change in plan.changes for place in change.written],
            is_inside=not plan.outside and not plan.locked,
            may_write=not _is_read_only(self._confinement()),
            reason=reason_to_ask(plan),
            patch=text,
        )
        decision = self._gate.decide(request)
        if isinstance(decision, Refuse):
            raise Denied(decision.text)
        turn.recorder.started(item)
        if isinstance(decision, Ask):
            try:
                await self._gate.ask(request, _nothing)
            except Denied as exc:
                item.status = "declined"
                await turn.recorder.completed(item)
                if isinstance(exc, ApprovalCancelled):
                    turn.interrupt()
                    # Being cancelled arrives here.
                    await anyio.lowlevel.checkpoint()
                raise

    async def _write(self, item: FileChangeThreadItem, plan: Plan) -> Written:
        recorder = self._turn.recorder
        token = new_token()
        files = await anyio.to_thread.run_sync(changing_files, plan, token)
        await recorder.thread.append(
            FilesChanging(
                at_ms=recorder.now_ms(), turn_id=recorder.turn_id, item_id=item.id, files=files
            ),
            sync=False,
        )
        started = time.perf_counter()
        made: Sequence[PlannedChange] = plan.changes
        failure: str | None = None
        try:
            await anyio.to_thread.run_sync(write_plan, plan, token)
        except NotWritten as exc:
            failure = str(exc)
            made = [plan.changes[number] for number in exc.changed]
        wall_s = time.perf_counter() - started
        item.status = "completed" if failure is None else "failed"
        await recorder.completed(item)
        await self._notify_diff(made)
        return Written(made, failure, wall_s)

    async def _notify_diff(self, made: Sequence[PlannedChange]) -> None:
        shown = await anyio.to_thread.run_sync(self._diff_after, made)
        if shown != self._sent_diff:
            self._sent_diff = shown
            turn = self._turn
            turn.recorder.emit(
                TurnDiffUpdatedNotification(
                    thread_id=turn.thread_id, turn_id=turn.turn_id, diff=shown
                )
            )

    def _diff_after(self, made: Sequence[PlannedChange]) -> str:
        if self._diff is None:
            self._diff = TurnDiff(root_of_diff(self._turn.settings.cwd))
        self._diff.touch(list(touched(made)))
        return self._diff.render()


async def _nothing() -> None:
    pass


def _planned(text: str, folder: str, settings: Settings, confinement: Confinement) -> _Planned:
    patch = parse_patch(text)
    if patch.environment_id is not None and settings.environments is None:
        raise NoEnvironment(NO_ENVIRONMENT)
    environment_id = environment_of(settings, patch.environment_id)
    if environment_id != LOCAL:
        raise NoEnvironment(f"apply_patch does not work in environment `{environment_id}`")
    plan = plan_patch(patch, folder, resolved(confinement))
    return _Planned(plan, shown_changes(plan))


def _is_read_only(confinement: Confinement) -> bool:
    return confinement.writable is not None and not confinement.writable
