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
from app_server.patch.grammar import BEGIN, LARK
from app_server.patch.half_written import changing_files
from app_server.patch.in_command import CommandPatches
from app_server.patch.parse import parse_patch
from app_server.patch.plan import Plan, PlannedChange, plan_patch
from app_server.patch.shown import shown_changes, summary, touched
from app_server.patch.turn_diff import TurnDiff
from app_server.patch.write import new_token, write_plan
from app_server.permissions.confinement import Confinement
from app_server.permissions.decision import Ask, Refuse
from app_server.permissions.resolving import resolved
from app_server.turns.approval.approvals import ApprovalCancelled, Denied
from app_server.turns.approval.files import FileGate, FileRequest
from app_server.turns.model.features import ModelFeatures
from app_server.turns.tools.call import BadCall, RequestedCall, ToolArguments
from app_server.turns.tools.turn import TurnContext
from protocol.items import FileChangeThreadItem, FileUpdateChange
from protocol.model import Json, JsonObject
from protocol.rollout import FilesChanging
from protocol.turns import TurnDiffUpdatedNotification

NAME = "apply_patch"

NO_ENVIRONMENT = "apply_patch environment selection is unavailable for this turn"

NO_COMMAND = (
    "apply_patch verification failed: this is a patch and not a command; call apply_patch with it"
)

MAX_PARENTS = 64
"""Folders above the working folder in which a repository is looked for."""

_FREEFORM: JsonObject = {
    "type": "custom",
    "name": NAME,
    "description": (
        "Changes files by a patch. The input is the patch as plain text: it is not wrapped in JSON."
    ),
    "format": {"type": "grammar", "syntax": "lark", "definition": LARK},
}

_DESCRIPTION = f"""Changes files by a patch, of which `input` is the whole text. \
Its grammar, in Lark's language:

{LARK}
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

_FUNCTION: JsonObject = {
    "type": "function",
    "name": NAME,
    "description": _DESCRIPTION,
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"input": {"type": "string", "description": "The patch."}},
        "required": ["input"],
        "additionalProperties": False,
    },
}


PLAN_MODE = "patch rejected: in plan mode nothing is written; put the change into the plan"


class PatchArguments(ToolArguments):
    """What models take that have no freeform tools."""

    input: str


@dataclass(frozen=True, slots=True)
class _Planned:
    plan: Plan
    shown: list[FileUpdateChange]


@dataclass(frozen=True, slots=True)
class _Written:
    """What became of a plan."""

    made: Sequence[PlannedChange]
    failure: str | None
    wall_s: float

    def output(self) -> str:
        """Tell the model."""
        code = 0 if self.failure is None else 1
        head = f"Exit code: {code}\nWall time: {round(self.wall_s, 1):g} seconds\nOutput:\n"
        done = summary(self.made)
        if self.failure is None:
            return f"{head}Success. Updated the following files:\n{done}"
        before = f"Before that, the following files were updated:\n{done}" if done else ""
        return f"{head}{self.failure}\n{before}"


class ApplyPatch:
    """The patches of one turn, and what they have changed together."""

    def __init__(
        self,
        turn: TurnContext,
        gate: FileGate,
        patches: CommandPatches,
        confinement: Callable[[], Confinement],
    ) -> None:
        """`confinement` is what confines the turn now, links in it not followed."""
        self._turn = turn
        self._gate = gate
        self._patches = patches
        self._confinement = confinement
        self._diff: TurnDiff | None = None
        self._told = ""
        """The diff that clients have."""

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the tool, freeform if the model takes that; not without a folder to work in."""
        if self._turn.settings.without_environment:
            return []
        return [_FREEFORM if model.freeform_patch else _FUNCTION]

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
        found = await self._patches.find(script)
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
        try:
            planned = await anyio.to_thread.run_sync(_planned, text, folder, confinement)
        except EmptyPatch as exc:
            return f"patch rejected: {exc}"
        except PatchFailed as exc:
            return f"apply_patch verification failed: {exc}"
        if planned is None:
            return NO_ENVIRONMENT
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
            reason=_reason(plan),
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

    async def _write(self, item: FileChangeThreadItem, plan: Plan) -> _Written:
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
        await self._tell_diff(made)
        return _Written(made, failure, wall_s)

    async def _tell_diff(self, made: Sequence[PlannedChange]) -> None:
        shown = await anyio.to_thread.run_sync(self._diff_after, made)
        if shown != self._told:
            self._told = shown
            turn = self._turn
            turn.recorder.emit(
                TurnDiffUpdatedNotification(
                    thread_id=turn.thread_id, turn_id=turn.turn_id, diff=shown
                )
            )

    def _diff_after(self, made: Sequence[PlannedChange]) -> str:
        if self._diff is None:
            self._diff = TurnDiff(_root(self._turn.settings.cwd))
        self._diff.touch(list(touched(made)))
        return self._diff.render()


async def _nothing() -> None:
    pass


def _planned(text: str, folder: str, confinement: Confinement) -> _Planned | None:
    """Plan a patch; None if it is for an environment that it names itself."""
    patch = parse_patch(text)
    if patch.environment_id is not None:
        return None
    plan = plan_patch(patch, folder, resolved(confinement))
    return _Planned(plan, shown_changes(plan))


def _reason(plan: Plan) -> str | None:
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


def _is_read_only(confinement: Confinement) -> bool:
    return confinement.writable is not None and not confinement.writable


def _root(folder: str) -> str:
    """Return the folder that paths of a diff begin at: the repository's, or the given one."""
    real = Path(folder).resolve()
    parents = (real, *real.parents)[:MAX_PARENTS]
    return str(next(filter(_is_repository, parents), real))


def _is_repository(folder: Path) -> bool:
    """Whether Git takes a folder for one: an empty `.git`, as a sandbox makes it, is none."""
    git = folder / ".git"
    return git.is_file() or (git / "HEAD").is_file()
