"""Folders with files, and patches of them."""

from pathlib import Path

from app_server.patch.parse import parse_patch
from app_server.patch.plan import MAX_TOTAL_BYTES, Plan, plan_patch
from app_server.patch.write import new_token, write_plan
from app_server.permissions.sandbox.policy import UNRESTRICTED, EffectivePolicy


def patch_of(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def plan(
    folder: Path,
    text: str,
    sandbox_policy: EffectivePolicy = UNRESTRICTED,
    max_bytes: int = MAX_TOTAL_BYTES,
) -> Plan:
    return plan_patch(parse_patch(text), str(folder), sandbox_policy, max_bytes=max_bytes)


def apply(folder: Path, text: str, max_bytes: int = MAX_TOTAL_BYTES) -> None:
    write_plan(plan(folder, text, max_bytes=max_bytes), new_token())


def content(folder: Path) -> dict[str, bytes]:
    """Read everything below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
