"""Where command lines of the user run: in the first environment of the thread, unconfined.

Source: docs/tools.md, "Commands of the user"; docs/environments.md, "Threads in an environment".
"""

import anyio.to_thread

from app_server.host.commands.launch import CommandLaunch
from app_server.host.commands.shell import find_shell, shell_command
from app_server.host.environments import UnknownEnvironment
from app_server.host.exec.client.starts import CommandOrder
from app_server.permissions.confinement.confinement import UNCONFINED
from app_server.tools.commands.run import CommandRun
from app_server.tools.commands.terminals import CommandPlace, Terminals
from app_server.tools.elsewhere import UNCONFINED_WORK
from protocol.rollout import LOCAL, WorkingFolder


async def shell_of_user(place: CommandPlace, folder: WorkingFolder) -> str | None:
    """Return the path of the user's shell there; None on a machine that is away."""
    if folder.environment_id == LOCAL:
        return await anyio.to_thread.run_sync(find_shell, None)
    if place.environments is None:
        return None
    try:
        shell, _ = await place.environments.info(folder.environment_id)
    except (OSError, UnknownEnvironment):
        return None
    return shell.path


async def start_of_user(
    terminals: Terminals, run: CommandRun, thread_id: str, folder: WorkingFolder, shell: str
) -> None:
    """Start the process of a command of the user's.

    Raises:
        OSError: it cannot be started.
    """
    login = terminals.place.settings.allow_login_shell
    if folder.environment_id == LOCAL:
        argv = shell_command(shell, run.line, login=login)
        variables = terminals.environment(thread_id, run.item.id)
        await terminals.start(run, CommandLaunch(argv, variables, folder.cwd), UNCONFINED)
        return
    order = CommandOrder(
        line=run.line,
        policy=UNCONFINED_WORK,
        login=login,
        cwd=folder.cwd,
        variables=terminals.variables(thread_id, run.item.id),
    )
    await terminals.start_elsewhere(run, folder.environment_id, order)
