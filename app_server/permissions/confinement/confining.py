"""From the settings of a thread to what confines it: pure, links and all else of disks apart.

`resolved` (app_server/permissions/confinement/resolving.py) makes of it what can be enforced.
Source: docs/tools.md, "Sandbox".
"""

from collections.abc import Iterator, Sequence

from app_server.permissions.confinement.confined import FileAccess, confined_to
from app_server.permissions.confinement.confinement import UNCONFINED, Confinement
from app_server.permissions.confinement.places import SLASH_TMP, Places
from app_server.permissions.confinement.profile_places import confinement_of_profile
from protocol.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from protocol.rollout import Settings


def confinement_of(settings: Settings, places: Places) -> Confinement:
    """Say what the sandbox of a thread lets its tools reach."""
    profile = settings.profile_in_force
    if profile is not None:
        return confinement_of_profile(profile, settings.roots, places, settings.cwd)
    return confinement_for(settings.sandbox_policy, settings.roots, places, settings.cwd)


def confinement_for(
    policy: SandboxPolicy, roots: Sequence[str], places: Places, cwd: str | None = None
) -> Confinement:
    """Say what a policy lets be reached by work that belongs to the given folders.

    It is done in `cwd`, which need not be one of them. An external sandbox is somebody else's, so
    it is not confined here.
    """
    match policy:
        case DangerFullAccessSandboxPolicy() | ExternalSandboxPolicy():
            return UNCONFINED
        case ReadOnlySandboxPolicy():
            return confined_to(FileAccess(shown=roots), places, network=policy.network_access)
        case WorkspaceWriteSandboxPolicy():
            files = FileAccess(
                writable=[*roots, *policy.writable_roots],
                temporary=tuple(_temporary(policy, places)),
                cwd=cwd,
            )
            return confined_to(files, places, network=policy.network_access)


def has_network(policy: SandboxPolicy) -> bool:
    """Whether a policy lets commands reach the network, here or in a sandbox of somebody else's."""
    match policy:
        case DangerFullAccessSandboxPolicy():
            return True
        case ExternalSandboxPolicy():
            return policy.network_access == "enabled"
        case _:
            return policy.network_access


def _temporary(policy: WorkspaceWriteSandboxPolicy, places: Places) -> Iterator[str]:
    if not policy.exclude_slash_tmp:
        yield SLASH_TMP
    if not policy.exclude_tmpdir_env_var and places.tmpdir is not None:
        yield places.tmpdir
