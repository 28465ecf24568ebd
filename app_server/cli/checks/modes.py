"""Who else may read credentials, or change its settings and code."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from app_server.accounts.store import FILE_NAME as ACCOUNT_FILE
from app_server.cli.checks.machine import Machine
from app_server.mcp.oauth.credentials import FILE_NAME as MCP_FILE
from app_server.threads.repair import Check, Status

SECRET_FILES = (ACCOUNT_FILE, MCP_FILE)
"""With credentials: for nobody else to read."""
SETTINGS_FILES = ("config.toml", "hooks.json", "AGENTS.md")
"""The server does what they say: for nobody else to write."""
SETTINGS_FOLDERS = ("rules", "skills", "plugins")


def check_modes(machine: Machine) -> Check:
    """Look at owners and modes; those of the folders with threads are in the check of the home."""
    check = Check(
        "modes", message="files with credentials, and files with settings and instructions"
    )
    if (problem := _unreachable(machine.home)) is not None:
        check.add("error", f"{machine.home}: {problem}")
        check.advise(f"let {machine.home} be a folder that this user can use")
        return check
    for name in SECRET_FILES:
        _look(machine.home / name, _SECRET, check)
    for name in (*SETTINGS_FILES, *SETTINGS_FOLDERS):
        _look(machine.home / name, _SETTINGS, check)
    if (profile := machine.profile_file) is not None:
        _look(profile, _SETTINGS, check)
    return check


def _unreachable(home: Path) -> str | None:
    """Say why nothing in a home can be looked at; None where it can, or where there is no home."""
    try:
        # The path of something in it: `Path` leaves the point out.
        os.stat(f"{home}/.")  # noqa: PTH116
    except FileNotFoundError:
        return None
    except OSError as exc:
        return exc.strerror
    return None


@dataclass(frozen=True, slots=True)
class _Rule:
    forbidden: int
    change: str
    verb: str
    status: Status


_SECRET = _Rule(stat.S_IRWXG | stat.S_IRWXO, "go=", "use", "error")
_SETTINGS = _Rule(stat.S_IWGRP | stat.S_IWOTH, "go-w", "change", "warning")


def _look(path: Path, rule: _Rule, check: Check) -> None:
    try:
        facts = path.stat()
    except FileNotFoundError:
        return
    except OSError as exc:
        check.add("error", f"{path}: {exc.strerror}")
        check.advise(f"let this user reach {path}")
        return
    if facts.st_uid not in (os.geteuid(), 0):
        check.add("error", f"{path} belongs to another user (number {facts.st_uid})")
        check.advise(f"chown {os.geteuid()} {path}")
    if facts.st_mode & rule.forbidden:
        mode = stat.S_IMODE(facts.st_mode)
        check.add(rule.status, f"others can {rule.verb} {path} (mode {mode:04o})")
        check.advise(f"chmod {rule.change} {path}")
