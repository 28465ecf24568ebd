"""`[analytics]` of config.toml, with the key of Codex.

Source: docs/operations.md, "Counts of use".
"""

from app_server.config.values import Config


def counts_use(config: Config) -> bool:
    """Whether the user wants to know what is used.

    Raises:
        ConfigError: the value has the wrong type.
    """
    return config.view().at("analytics").boolean("enabled", default=False)
