"""Files of other machines, within what confines a turn.

Source: docs/environments.md, "Threads in an environment".
"""

import anyio

from app_server.host.exec.client.remote_file import read_beginning
from app_server.permissions.confinement.confinement import Confinement
from app_server.tools.environments import FoundEnvironment, TurnEnvironments
from protocol.exec.processes import ExecGrant, WorkPolicy
from protocol.turns.policy import (
    DangerFullAccessSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)

READ_S = 60.0
"""For a file to be read."""


UNCONFINED_WORK = WorkPolicy(sandbox_policy=DangerFullAccessSandboxPolicy())


def work_policy(environments: TurnEnvironments, found: FoundEnvironment) -> WorkPolicy:
    """Say what confines the turn on another machine.

    The proxy is of this machine: what has its network through it has none there.
    """
    confinement = environments.confinement(found.folder)
    grant = environments.granted(found.id)
    settings, network = environments.turn.settings, confinement.network
    profile = settings.profile_in_force
    if profile is not None:
        profile = profile.model_copy(update={"proxied": None, "network": network})
    return WorkPolicy(
        sandbox_policy=_policy_there(settings.sandbox_policy, confinement),
        permission_profile=profile,
        roots=found.folder.roots,
        folder=found.folder.cwd,
        granted=ExecGrant(
            read=list(grant.read), write=list(grant.write), network=grant.network and network
        ),
    )


async def read_elsewhere(
    environments: TurnEnvironments, found: FoundEnvironment, path: str, limit_bytes: int
) -> bytes:
    """Read the beginning of a file of another machine; `path` is absolute.

    Raises:
        OSError: it is not there, may not be read, or is not read in 60 s; or the machine is out of
            reach.
    """
    policy = work_policy(environments, found)
    opening = environments.machines.open_file(found.id, path, policy)
    try:
        with anyio.fail_after(READ_S):
            content, _ = await read_beginning(opening, limit_bytes)
    except TimeoutError as exc:
        raise OSError(f"it was not read in {READ_S:g} s") from exc
    return content


def _policy_there(policy: SandboxPolicy, confinement: Confinement) -> SandboxPolicy:
    match policy:
        case ReadOnlySandboxPolicy() | WorkspaceWriteSandboxPolicy():
            return policy.model_copy(update={"network_access": confinement.network})
        case _:
            # Somebody else's sandbox is around this machine alone; there nothing confines.
            return DangerFullAccessSandboxPolicy()
