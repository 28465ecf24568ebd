"""What the commands of a script read, for clients to show. No I/O.

Source: docs/tools.md, "Approvals and rules".
"""

from app_server.permissions.shell.script import Script
from protocol.items import CommandAction, UnknownCommandAction


def command_actions(script: Script, cwd: str) -> list[CommandAction]:
    """Return an action for each command that is worth showing; never none.

    Paths of files that are read are absolute, from `cwd` on; all others are as they were given.
    """
    return [UnknownCommandAction(command=script.text)]
