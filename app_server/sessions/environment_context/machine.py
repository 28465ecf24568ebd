"""Machine context of a model: the user's shell and time zone."""

import os
import pwd
import sys
from datetime import datetime
from pathlib import Path

LOCALTIME = Path("/etc/localtime")
MAX_ZONE_CHARS = 64


def shell_name() -> str:
    """Name the shell of the user that this process runs as."""
    shell = os.environ.get("SHELL")
    if not shell:
        try:
            shell = pwd.getpwuid(os.getuid()).pw_shell
        except KeyError:
            shell = ""
    return Path(shell).name or ("zsh" if sys.platform == "darwin" else "bash")


def date_of(at_ms: int) -> str:
    """Render a day of the local calendar; `at_ms` is a Unix time."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().date().isoformat()


def timezone_name() -> str | None:
    """Name the local time zone, as the database of time zones does; None if that is not known."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if not named:
        named = _linked_zone(LOCALTIME)
    if not named or named.startswith("/") or len(named) > MAX_ZONE_CHARS:
        return None
    return named


def _linked_zone(link: Path) -> str:
    try:
        return os.path.realpath(link, strict=True).partition("/zoneinfo/")[2]
    except OSError:
        return ""
