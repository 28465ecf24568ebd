"""Patches of tests, and the items that clients are shown of them."""

from typing import Any

from app_server.patch.unified import blob_name
from tests.support.turn_tools.patches import patch_of

READ_ONLY = {"type": "readOnly", "networkAccess": False}
ADD = patch_of("*** Add File: new.txt", "+one", "+two")
EDIT = patch_of("*** Update File: a.txt", "@@", "-hello", "+goodbye")
NOTHING = "0" * 40
HELLO, ONE_TWO = blob_name(b"hello\n"), blob_name(b"one\ntwo\n")

ADDED = [{"path": "WS/new.txt", "kind": {"type": "add"}, "diff": "one\ntwo\n"}]
ADDED_DIFF = (
    f"diff --git a/new.txt b/new.txt\nnew file mode 100644\nindex {NOTHING}..{ONE_TWO}\n"
    "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"
)
SUCCESS = "Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess. Updated the following files:\n"


def update(diff: str, move_path: str | None = None, name: str = "a.txt") -> dict[str, Any]:
    """Make a change of a file that was there."""
    kind = {"type": "update", "move_path": move_path}
    return {"path": f"WS/{name}", "kind": kind, "diff": diff}


def sent(changes: list[Any], status: str = "completed") -> list[tuple[str, Any]]:
    """Return what a client is sent of an item with these changes."""
    return [("item/started", ("inProgress", changes)), ("item/completed", (status, changes))]


END = ("turn/completed", "completed")


def without_time(output: str) -> str:
    """Set the time in an output to 0, as it differs from run to run."""
    lines = output.split("\n")
    if len(lines) > 1 and lines[1].startswith("Wall time: "):
        lines[1] = "Wall time: 0 seconds"
    return "\n".join(lines)
