"""The exclude files of Git besides `.gitignore`: of a repository, and of the user.

Everything here blocks.
Source: gitignore(5); gitrepository-layout(5); git-config(1), `core.excludesFile`.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from app_server.runtime.user_paths import expand_user

READ_BYTES = 1024 * 1024

_EXCLUDES = re.compile(
    r"^\s*\[core\][^\[]*?^\s*excludesfile\s*=\s*(?P<path>[^\n#;]+)", re.I | re.M | re.S
)


def exclude_files(repository: Path) -> Iterator[Path]:
    """Name the files of exclusions of a repository, the weakest first; they need not exist."""
    yield _of_user()
    git = repository / ".git"
    if git.is_file():
        git = repository / read_text(git).removeprefix("gitdir: ").strip()
        git = git / (read_text(git / "commondir").strip() or ".")
    yield git / "info" / "exclude"


def read_text(path: Path) -> str:
    """Return the beginning of a file; nothing for one that cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = os.read(descriptor, READ_BYTES).decode("utf-8-sig", errors="replace")
        # No path has a null character: what is read here names files and patterns.
        return text.replace("\0", "")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _of_user() -> Path:
    home = expand_user("~")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    for file in (home / ".gitconfig", config / "git" / "config"):
        found = _EXCLUDES.search(read_text(file))
        if found is not None:
            return expand_user(found["path"].strip().strip('"'))
    return config / "git" / "ignore"
