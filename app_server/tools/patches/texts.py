"""What is said of a patch: why it is asked about, what became of it, where its paths begin.

Source: docs/tools.md, "Patches".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app_server.patch.plan import Plan, PlannedChange
from app_server.patch.shown import summary
from app_server.runtime.files.repository import repository_of


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a plan."""

    made: Sequence[PlannedChange]
    failure: str | None
    wall_s: float

    def output(self) -> str:
        """Render it for the model."""
        code = 0 if self.failure is None else 1
        head = f"Exit code: {code}\nWall time: {round(self.wall_s, 1):g} seconds\nOutput:\n"
        done = summary(self.made)
        if self.failure is None:
            return f"{head}Success. Updated the following files:\n{done}"
        before = f"Before that, the following files were updated:\n{done}" if done else ""
        return f"{head}{self.failure}\n{before}"


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
