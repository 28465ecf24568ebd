"""What confines the work of an exec server: a policy of its client, and what a user granted.

Source: docs/environments.md, "The exec protocol"; docs/tools.md, "Sandbox".
"""

from collections.abc import Sequence

from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.confining import confinement_for
from app_server.permissions.confinement.places import Places
from app_server.permissions.grants import Grant
from protocol.exec_server import ExecGrant
from protocol.policy import SandboxPolicy


def confinement_there(
    policy: SandboxPolicy, roots: Sequence[str], granted: ExecGrant, places: Places
) -> Confinement:
    """Confine to a policy of the client's, with what was granted; `places` are of this machine.

    Raises:
        OSError: a root is not absolute.
    """
    if not all(root.startswith("/") for root in roots):
        raise OSError("roots must be absolute paths")
    grant = Grant(tuple(granted.read), tuple(granted.write), granted.network)
    return grant.widened(confinement_for(policy, roots, places))
