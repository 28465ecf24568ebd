"""The file of an administrator, as tests write it."""

from pathlib import Path

from tests.support.harness import REQUIREMENTS


def demand(home: Path, text: str) -> Path:
    file = home / REQUIREMENTS
    file.write_text(text)
    return file


NEVER = (
    "invalid value for `approval_policy`: `Never` is not in the allowed set [OnRequest] "
    "(set by /r.toml)"
)
FULL = (
    "invalid value for `sandbox_mode`: `DangerFullAccess` is not in the allowed set [ReadOnly] "
    "(set by /r.toml)"
)
INSTEAD = (
    "Configured value for `{}` is disallowed by requirements; falling back to required value {}. "
    "Details: {}"
)
INSTEAD_OF_NEVER = INSTEAD.format("approval_policy", "OnRequest", NEVER)
INSTEAD_OF_FULL = INSTEAD.format("sandbox_mode", "ReadOnly", FULL)
