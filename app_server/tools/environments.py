"""In which environment a tool works, and in which folder there.

Source: docs/environments.md, "Threads in an environment".
"""

from app_server.host.environments import Environments, UnknownEnvironment
from protocol.rollout import LOCAL, Settings, WorkingFolder


class NoEnvironment(Exception):
    """A tool cannot work in an environment; the text is for the model."""


def environment_of(settings: Settings, named: str | None) -> str:
    """Return the id of the environment that a tool works in: the named one, or the thread's first.

    Raises:
        NoEnvironment: environments were chosen for the thread, and it is none of them.
    """
    if settings.environments is None:
        return LOCAL if named is None else named
    ids = [folder.environment_id for folder in settings.working_folders]
    if named is None:
        return ids[0]
    if named not in ids:
        known = ", ".join(f"`{one}`" for one in ids)
        raise NoEnvironment(f"unknown environment `{named}`; this thread has: {known}")
    return named


async def look_elsewhere(
    environments: Environments | None, settings: Settings, environment_id: str
) -> tuple[WorkingFolder, str]:
    """Return the thread's folder on another machine, and the path of the shell there.

    An environment that was not chosen for the thread has the working folder of its exec server.

    Raises:
        NoEnvironment: it is not known, or out of reach.
    """
    if environments is None or not environments.has(environment_id):
        raise NoEnvironment(f"unknown environment `{environment_id}`")
    try:
        shell, cwd = await environments.info(environment_id)
    except (OSError, UnknownEnvironment) as exc:
        raise NoEnvironment(f"environment `{environment_id}`: {exc}") from exc
    folder = settings.working_folder(environment_id)
    return folder or WorkingFolder(environment_id, cwd, [cwd]), shell.path
