"""Shell of a command line, whose profile prints outside of the output.

Source: docs/tools.md, "Commands".
"""

import os
import pwd
import shutil
from pathlib import Path

from app_server.permissions.shell.script import shown
from protocol.host.environments import EnvironmentShellInfo

POSIX_SHELLS = frozenset(("bash", "dash", "ksh", "sh", "zsh"))

# Output begins as descriptors 8 and 7: a profile prints to nowhere. What is evaluated then begins
# in the first line, so that the shell counts the lines of the command as the model wrote them.
_HIDE = 'exec 8>&1 7>&2 >/dev/null 2>&1; exec "$@"'
_SHOW = 'exec >&8 2>&7 8>&- 7>&-; eval "shift; $1"'


class UnknownShell(Exception):
    """A shell that was asked for is not on this machine; the text is for the model."""


def default_shell() -> EnvironmentShellInfo:
    """Return `SHELL`, else the login shell of this user, else `sh`."""
    path = os.environ.get("SHELL") or _listed() or shutil.which("sh") or "sh"
    return EnvironmentShellInfo(name=Path(path).name, path=path)


def _listed() -> str | None:
    try:
        return pwd.getpwuid(os.getuid()).pw_shell or None
    except KeyError:
        return None


def find_shell(name: str | None) -> str:
    """Return the path of a shell, by default that of the user; blocks.

    Raises:
        UnknownShell: no program of this machine has this name.
    """
    if name is None:
        return default_shell().path
    found = shutil.which(name)
    if found is None or not Path(found).is_absolute():
        raise UnknownShell(f"shell: no program `{name}` on this machine; leave it out")
    return found


def shown_line(shell: str, line: str, *, login: bool) -> str:
    """Return the command as clients are shown it."""
    return shown([shell, "-lc" if login else "-c", line])


def shell_command(shell: str, line: str, *, login: bool) -> list[str]:
    """Return the argv by which a shell runs a line, after its profile with `login`.

    What the profile prints is not in the output, where the shell is one of `POSIX_SHELLS`.
    """
    if not login:
        return [shell, "-c", line]
    if Path(shell).name not in POSIX_SHELLS:
        return [shell, "-lc", line]
    return ["/bin/sh", "-c", _HIDE, "sh", shell, "-lc", _SHOW, shell, line]
