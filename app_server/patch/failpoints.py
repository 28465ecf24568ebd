"""Dying at a named step of a write, so that tests can show what a crash there leaves behind.

Source: docs/tools.md, "Patches".
"""

import os
import signal
from typing import Literal, TypeAlias

KILL_AT = "APP_SERVER_PATCH_KILL_AT"
"""The variable that names the step and the number of the change, as in `written:0`; without it
nothing here does anything."""

Step: TypeAlias = Literal["opened", "written", "checked", "replaced", "deleted"]
"""In the order in which a change goes through them."""


def passed(step: Step, number: int) -> None:
    """Die by SIGKILL if this is the step that the environment names."""
    if os.environ.get(KILL_AT) == f"{step}:{number}":
        os.kill(os.getpid(), signal.SIGKILL)
