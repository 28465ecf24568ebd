"""Kills its process before a change of the disk that a patch makes; see the package.

Each is heard of by an audit event, from the first temporary file of a patch on.
Source: https://docs.python.org/3/library/audit_events.html.
"""

import os
import signal
import sys
from typing import Any

SUFFIX = ".app-server-patch"

_steps = 0


def _is_step(event: str, arguments: tuple[Any, ...]) -> bool:
    match event, arguments:
        case ("open", (str(name), *_)) | ("os.rename", (str(name), *_)):
            return name.endswith(SUFFIX)
        case "os.remove", (str(_), folder):
            return _steps > 0 and folder >= 0
        case _:
            return False


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    global _steps
    if _is_step(event, arguments):
        if _steps == int(os.environ["TESTS_DIE_BEFORE"]):
            os.kill(os.getpid(), signal.SIGKILL)
        _steps += 1


if "TESTS_DIE_BEFORE" in os.environ:
    sys.addaudithook(_hear)
