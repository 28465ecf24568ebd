"""What confines the tools of a turn, on this machine and on others.

Source: docs/tools.md, "Sandbox"; docs/environments.md, "Threads in an environment".
"""

from dataclasses import dataclass

from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.confining import confinement_of
from app_server.permissions.confinement.places import Places
from app_server.permissions.confinement.proxied import through_proxy
from app_server.permissions.grants import Grant
from app_server.permissions.network.settings import NetworkTable
from app_server.turns.approval.permissions import PermissionGate
from app_server.turns.tools.turn import TurnContext
from protocol.rollout import LOCAL, Settings, WorkingFolder


@dataclass(frozen=True, slots=True)
class Confinements:
    """The sandbox of one turn; the settings in force may change while it runs."""

    turn: TurnContext
    permissions: PermissionGate
    places: Places
    proxy: NetworkTable | None

    def here(self) -> Confinement:
        """Return what confines the turn on this machine now, links not followed."""
        return self._of(self.turn.settings, self.granted(LOCAL))

    def elsewhere(self, folder: WorkingFolder) -> Confinement:
        """Return what confines it on another machine, as far as that is known here."""
        there = {
            "cwd": folder.cwd,
            "workspace_roots": folder.roots,
            "without_environment": None,
            "environments": None,
        }
        settings = self.turn.settings.model_copy(update=there)
        return self._of(settings, self.granted(folder.environment_id))

    def granted(self, environment_id: str) -> Grant:
        """Return what the user granted in an environment beyond the sandbox."""
        turn = self.turn
        if turn.settings.mode == "plan" or turn.recorder.has_own_history:
            # What was granted to carry work out is not there to plan or to review it.
            return Grant()
        return self.permissions.granted(turn.turn_id, environment_id)

    def _of(self, settings: Settings, grant: Grant) -> Confinement:
        return through_proxy(grant.widened(confinement_of(settings, self.places)), self.proxy)
