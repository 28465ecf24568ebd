"""What confines the tools of a turn, on this machine and on others.

Source: docs/tools.md, "Sandbox"; docs/environments.md, "Threads in an environment".
"""

from dataclasses import dataclass

from app_server.permissions.confinement import Confinement
from app_server.permissions.confining import confinement_of
from app_server.permissions.network.settings import NetworkTable
from app_server.permissions.places import Places
from app_server.permissions.proxied import through_proxy
from app_server.turns.approval.permissions import PermissionGate
from app_server.turns.tools.turn import TurnContext
from protocol.rollout import WorkingFolder


@dataclass(frozen=True, slots=True)
class Confinements:
    """The sandbox of one turn; the settings in force may change while it runs."""

    turn: TurnContext
    permissions: PermissionGate
    places: Places
    proxy: NetworkTable | None

    def here(self) -> Confinement:
        """Return what confines the turn on this machine now, links not followed."""
        turn = self.turn
        confinement = confinement_of(turn.settings, self.places)
        if turn.settings.mode != "plan" and not turn.recorder.is_aside:
            # What was granted to carry work out is not there to plan or to review it.
            confinement = self.permissions.widened(confinement, turn.turn_id)
        return through_proxy(confinement, self.proxy)

    def elsewhere(self, folder: WorkingFolder) -> Confinement:
        """Return what confines it on another machine, as far as that is known here.

        Granted paths are of this machine, and count for nothing there.
        """
        there = {
            "cwd": folder.cwd,
            "workspace_roots": folder.roots,
            "without_environment": None,
            "environments": None,
        }
        settings = self.turn.settings.model_copy(update=there)
        return through_proxy(confinement_of(settings, self.places), self.proxy)
