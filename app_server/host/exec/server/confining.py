"""The confinement of an exec server's work: its client's policy, widened by the user's grants.

Source: docs/environments.md, "The exec protocol"; docs/tools.md, "Sandbox".
"""

from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.confining import confinement_for, confinement_of_profile
from app_server.permissions.confinement.places import Places
from app_server.permissions.grants import Grant
from protocol.exec.processes import WorkPolicy


def confinement_there(policy: WorkPolicy, start: str | None, places: Places) -> Confinement:
    """Confine work that begins in a folder; `places` are those of this machine.

    Raises:
        OSError: a root is not absolute.
    """
    roots = policy.roots
    if roots is None:
        roots = [] if start is None else [start]
    if not all(root.startswith("/") for root in roots):
        raise OSError("roots must be absolute paths")
    granted = policy.granted
    grant = Grant(tuple(granted.read), tuple(granted.write), granted.network)
    folder = start if policy.folder is None else policy.folder
    if policy.permission_profile is not None:
        confined = confinement_of_profile(policy.permission_profile, roots, places, folder)
    else:
        confined = confinement_for(policy.sandbox_policy, roots, places, folder)
    return grant.widened(confined)
