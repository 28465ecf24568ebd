"""`[projects."FOLDER"]`: which folders the user trusts.

Clients ask for it, and do not go on without it; nothing here acts on it.

Source: docs/config.md, "Projects".
"""

from collections.abc import Mapping

from app_server.config.values import Config

TRUST_LEVELS = ("trusted", "untrusted")


def read_trust(config: Config) -> Mapping[str, str | None]:
    """Read the trust of each folder that has a table; None where that says nothing of it.

    Raises:
        ConfigError: a value does not fit.
    """
    projects = config.view().at("projects")
    return {
        folder: table.choice("trust_level", TRUST_LEVELS) for folder, table in projects.tables()
    }
