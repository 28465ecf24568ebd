"""What a model is shown of the other machines that its thread works on.

Source: docs/environments.md, "Threads in an environment".
"""

import anyio

from app_server.host.environments import Environments, UnknownEnvironment
from protocol.rollout import LOCAL, Settings

ASK_S = 2.0
"""For all of them together: a turn does not wait longer for a machine that is away."""


async def shells_of(environments: Environments | None, settings: Settings) -> dict[str, str]:
    """Return the names of the shells of a thread's other machines, by environment.

    One that is not known, or does not answer in 2 s, is left out.
    """
    ids = [one.environment_id for one in settings.working_folders if one.environment_id != LOCAL]
    shells: dict[str, str] = {}
    if environments is None or not ids:
        return shells

    async def ask(environment_id: str) -> None:
        try:
            shell, _ = await environments.info(environment_id)
        except (OSError, UnknownEnvironment):
            return
        shells[environment_id] = shell.name

    with anyio.move_on_after(ASK_S):
        async with anyio.create_task_group() as tasks:
            for environment_id in ids:
                tasks.start_soon(ask, environment_id)
    return shells
