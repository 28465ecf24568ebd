"""`[projects."FOLDER"]`: whether the user trusts the project of a folder, as Codex looks it up.

Clients ask for it, and do not go on without it. The instructions of a project that is untrusted are
not read (docs/tools.md).
Source: docs/config.md, "Projects".
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from app_server.config.values import Config
from app_server.permissions.sandbox.policy import GIT, first_line, git_folders, is_there

MAX_PARENTS = 64
"""Folders above a working directory that may have its repository."""


def says_something(config: Config) -> bool:
    """Whether there is any folder of which the user has said something; looks at no disk.

    Raises:
        ConfigError: a value does not fit.
    """
    return bool(read_trust(config))


def project_trust(config: Config, cwd: str) -> str | None:
    """Return `trusted` or `untrusted`; None if the user has not said. Blocks.

    Raises:
        ConfigError: a value does not fit.
    """
    return trust_of(config, _names_of(cwd))


def _names_of(cwd: str) -> Sequence[str]:
    """Return the names of a project: the folder, its repository, that of its worktree."""
    real = os.path.realpath(cwd)
    names = [cwd, real]
    for folder in (Path(real), *Path(real).parents)[:MAX_PARENTS]:
        place = folder / GIT
        if is_there(place):
            names.append(str(folder))
            names += _main_repository(str(place))
            break
    return names


def _main_repository(place: str) -> Sequence[str]:
    """Return the repository of a worktree, if that knows the worktree too."""
    match git_folders(place):
        case [folder, shared]:
            back = first_line(f"{folder}/gitdir")
            if back is not None and os.path.realpath(back) == place:
                return [str(Path(shared).parent)]
    return []


TRUST_LEVELS = ("trusted", "untrusted")


def read_trust(config: Config) -> Mapping[str, str | None]:
    """Read the trust of each folder that has a table; None where it sets none.

    Raises:
        ConfigError: a value does not fit.
    """
    projects = config.view().at("projects")
    return {
        folder: table.choice("trust_level", TRUST_LEVELS) for folder, table in projects.tables()
    }


def trust_of(config: Config, folders: Iterable[str]) -> str | None:
    """Return the trust of the first folder with an entry; None without one.

    Raises:
        ConfigError: a value does not fit.
    """
    levels = read_trust(config)
    return next((level for folder in folders if (level := levels.get(folder)) is not None), None)
