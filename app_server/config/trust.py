"""`[projects."FOLDER"]`: which folders the user trusts.

Clients ask for it, and do not go on without it. The instructions of a project that is untrusted are
not read (docs/tools.md).

Source: docs/config.md, "Projects".
"""

from collections.abc import Iterable, Mapping

from app_server.config.values import Config

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
