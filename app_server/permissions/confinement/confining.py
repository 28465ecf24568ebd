"""From the settings of a thread to what confines it: pure, links and all else of disks apart.

`resolved` (app_server/permissions/confinement/resolving.py) makes of it what can be enforced.
Source: docs/tools.md, "Sandbox".
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from app_server.permissions.confinement.confined import FileAccess, confined_to
from app_server.permissions.confinement.confinement import UNCONFINED, Confinement
from app_server.permissions.confinement.places import SLASH_TMP, Places
from app_server.permissions.confinement.profile_places import confinement_of_profile
from app_server.permissions.network.policy import NetworkPolicy
from app_server.permissions.network.settings import NetworkTable
from protocol.log.rollout import Settings
from protocol.turns.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxPolicy,
    ReadOnlySandboxPolicy,
    SandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)


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


def through_proxy(confinement: Confinement, feature: NetworkTable | None) -> Confinement:
    """Put the proxy in the place of the network, where there is one and the feature is on.

    Where a profile has the proxy anyway both hold: a host is denied if either denies it, and
    allowed if either allows it, unless the feature is closed. What the feature says of local hosts
    counts before what the profile says. Source: docs/config.md, "Network of commands".
    """
    if feature is None or not confinement.is_confined:
        return confinement
    if confinement.network:
        return replace(confinement, network=False, proxy=feature.policy())
    if confinement.proxy is None:
        return confinement
    profile, said = confinement.proxy, feature.policy()
    of_profile = () if feature.is_closed else profile.allowed
    is_local = feature.allow_local_binding
    both = NetworkPolicy(
        allowed=tuple(dict.fromkeys((*of_profile, *said.allowed))),
        denied=tuple(dict.fromkeys((*profile.denied, *said.denied))),
        is_limited=profile.is_limited or said.is_limited,
        reaches_local=profile.reaches_local if is_local is None else is_local,
        has_socks=profile.has_socks and said.has_socks,
        is_closed=said.is_closed,
    )
    return replace(confinement, proxy=both)


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
