"""In which environment a tool works, in which folder there, and what confines it.

Source: docs/environments.md, "Threads in an environment"; docs/tools.md, "Sandbox".
"""

from dataclasses import dataclass

from app_server.host.environments import Environments, UnknownEnvironment
from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.confining import confinement_of, through_proxy
from app_server.permissions.confinement.places import Places
from app_server.permissions.grants import Grant
from app_server.permissions.network.settings import NetworkTable
from app_server.turns.approval.permissions import PermissionApprovals
from app_server.turns.tools.turn import TurnContext
from protocol.log.rollout import LOCAL, WorkingFolder

NONE_CHOSEN = "this thread has no environment"


class NoEnvironment(Exception):
    """A tool cannot work in an environment; the text is for the model."""


class EnvironmentNotKnown(NoEnvironment):
    """It was not added, or not chosen for the thread."""


@dataclass(frozen=True, slots=True)
class FoundEnvironment:
    """Where a tool works."""

    folder: WorkingFolder
    shell: str | None = None
    """The path of the user's shell there; None on this machine."""

    @property
    def id(self) -> str:
        """The environment."""
        return self.folder.environment_id

    @property
    def is_here(self) -> bool:
        """Whether it is this machine."""
        return self.id == LOCAL


@dataclass(frozen=True, slots=True)
class TurnEnvironments:
    """The environments of one turn; the settings in force may change while it runs."""

    turn: TurnContext
    machines: Environments
    permissions: PermissionApprovals
    places: Places
    proxy: NetworkTable | None

    @property
    def names(self) -> list[str]:
        """The ids that a call can choose from, the one that is meant without a choice first.

        Empty if there is nothing to choose. Where nobody chose for the thread, it is all that are
        known.
        """
        settings = self.turn.settings
        if settings.environments is None and not settings.without_environment:
            ids = [LOCAL, *self.machines.elsewhere]
        else:
            ids = [one.environment_id for one in settings.working_folders]
        return ids if len(ids) > 1 else []

    async def find(self, named: str | None) -> FoundEnvironment:
        """Return where a call works that names an environment, or none; connects if need be.

        An environment that was not chosen for the thread has the working folder of its exec server.

        Raises:
            NoEnvironment: it is none of the thread's, which may have none at all, not known, or out
                of reach.
        """
        settings, machines = self.turn.settings, self.machines
        if not settings.working_folders:
            raise NoEnvironment(NONE_CHOSEN)
        environment_id = self._id_of(named)
        if environment_id == LOCAL:
            return FoundEnvironment(WorkingFolder(LOCAL, settings.cwd, settings.roots))
        if not machines.has(environment_id):
            raise EnvironmentNotKnown(f"unknown environment `{environment_id}`")
        try:
            shell, cwd = await machines.info(environment_id)
        except (OSError, UnknownEnvironment) as exc:
            raise NoEnvironment(f"environment `{environment_id}`: {exc}") from exc
        folder = settings.working_folder(environment_id)
        return FoundEnvironment(folder or WorkingFolder(environment_id, cwd, [cwd]), shell.path)

    def confinement(self, folder: WorkingFolder | None = None) -> Confinement:
        """Return what confines the turn on the machine of a folder now, as far as is known here.

        None is a folder of this machine. Links are not followed.
        """
        settings, environment_id = self.turn.settings, LOCAL
        if folder is not None and folder.environment_id != LOCAL:
            environment_id = folder.environment_id
            there = {
                "cwd": folder.cwd,
                "workspace_roots": folder.roots,
                "without_environment": None,
                "environments": None,
            }
            settings = settings.model_copy(update=there)
        confined = self.granted(environment_id).widened(confinement_of(settings, self.places))
        return through_proxy(confined, self.proxy)

    def granted(self, environment_id: str) -> Grant:
        """Return what the user granted in an environment beyond the sandbox."""
        turn = self.turn
        if turn.settings.mode == "plan" or turn.recorder.has_own_history:
            # What was granted to carry work out is not there to plan or to review it.
            return Grant()
        return self.permissions.granted(turn.turn_id, environment_id)

    def _id_of(self, named: str | None) -> str:
        settings = self.turn.settings
        if settings.environments is None:
            return LOCAL if named is None else named
        ids = [one.environment_id for one in settings.working_folders]
        if named is None:
            return ids[0]
        if named not in ids:
            known = ", ".join(f"`{one}`" for one in ids)
            raise EnvironmentNotKnown(f"unknown environment `{named}`; this thread has: {known}")
        return named
