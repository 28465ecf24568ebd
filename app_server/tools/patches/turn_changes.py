"""The diff of a turn, as its patches change it: of one environment, or of several.

Source: docs/tools.md, "Patches".
"""

from collections.abc import Sequence
from dataclasses import replace

import anyio.to_thread

from app_server.patch.plan import PlannedChange
from app_server.patch.shown import touched
from app_server.patch.turn_diff import Touched, TurnDiff
from app_server.tools.environments import FoundEnvironment
from app_server.tools.patches.texts import root_of_diff
from app_server.turns.slot import RunningTurn
from protocol.turns.notifications import TurnDiffUpdatedNotification


class TurnChanges:
    """What the patches of one turn have changed together."""

    def __init__(self, turn: RunningTurn) -> None:
        self._turn = turn
        self._diff = TurnDiff()
        self._roots: dict[str, str] = {}
        """By environment, the folder that paths begin at."""
        self._sent = ""
        """The diff that clients have."""

    async def notify(self, made: Sequence[PlannedChange], found: FoundEnvironment) -> None:
        """Add what a patch has changed, and notify clients if the diff is another one now."""
        folders = self._turn.settings.working_folders
        is_only = len(folders) < 2 and [one.environment_id for one in folders] in ([], [found.id])
        shown = await anyio.to_thread.run_sync(
            self._after, made, found, "" if is_only else found.id
        )
        if shown != self._sent:
            self._sent = shown
            turn = self._turn
            turn.recorder.emit(TurnDiffUpdatedNotification(**turn.recorder.ids, diff=shown))

    def _after(self, made: Sequence[PlannedChange], found: FoundEnvironment, above: str) -> str:
        root = self._roots.get(found.id)
        if root is None:
            cwd = found.folder.cwd
            root = self._roots[found.id] = root_of_diff(cwd) if found.is_here else cwd
        self._diff.touch([_named(change, root, above) for change in touched(made)])
        return self._diff.render()


def _named(change: Touched, root: str, above: str) -> Touched:
    """Name a change by what clients are shown: with several environments that of its own first."""
    moved_from = change.moved_from
    return replace(
        change,
        path=_shown(change.path, root, above),
        moved_from=None if moved_from is None else _shown(moved_from, root, above),
    )


def _shown(path: str, root: str, above: str) -> str:
    below = path.removeprefix(root.rstrip("/") + "/")
    return f"{above}/{below.lstrip('/')}" if above else below
