"""Which of the configured servers an administrator lets run. No I/O.

Source: docs/config.md, "Requirements".
"""

from collections.abc import Mapping

from app_server.config.requirements import ServerIdentity


def may_run(
    name: str,
    demanded: Mapping[str, ServerIdentity] | None,
    *,
    command: str | None = None,
    url: str | None = None,
) -> bool:
    """Whether a server is what an administrator listed under its name; None lets all run.

    Values are compared as they are configured; arguments and variables do not matter.
    """
    if demanded is None:
        return True
    identity = demanded.get(name)
    if identity is None:
        return False
    if command is not None:
        return command == identity.command
    return url is not None and url == identity.url
