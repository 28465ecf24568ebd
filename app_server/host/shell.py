"""The shell that a user of this machine has."""

import os
import pwd
import shutil
from pathlib import Path

from protocol.environments import EnvironmentShellInfo


def default_shell() -> EnvironmentShellInfo:
    """Take `SHELL`, else what the system has for this user, else `sh`."""
    path = os.environ.get("SHELL") or _listed() or shutil.which("sh") or "sh"
    return EnvironmentShellInfo(name=Path(path).name, path=path)


def _listed() -> str | None:
    try:
        return pwd.getpwuid(os.getuid()).pw_shell or None
    except KeyError:
        return None
