"""Confinement of a permission profile, from its entries; pure.

Source: docs/config.md, "Permission profiles".
"""

from collections.abc import Sequence
from dataclasses import replace

from app_server.permissions.confinement.confined import FileAccess, confined_to
from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.paths import is_in
from app_server.permissions.confinement.places import SLASH_TMP, Places
from app_server.permissions.network.policy import policy_of
from protocol.log.rollout import StoredProfile
from protocol.turns.policy import (
    FileSystemAccessMode,
    FileSystemPath,
    GlobPatternFileSystemPath,
    MinimalFileSystemSpecialPath,
    PathFileSystemPath,
    ProjectRootsFileSystemSpecialPath,
    ReadOnlySandboxPolicy,
    RootFileSystemSpecialPath,
    SlashTmpFileSystemSpecialPath,
    SpecialFileSystemPath,
    TmpdirFileSystemSpecialPath,
)

MINIMAL = (
    *("/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr"),
    *("/nix/store", "/run/current-system", "/run/systemd/resolve", "/System", "/Library"),
)
"""Folders of `:minimal`, which programs need to run."""


def read_only(profile: StoredProfile, *, network: bool) -> StoredProfile:
    """Return the same without anything that can be written, and with less network if at all."""
    is_direct = network and profile.network
    proxied = profile.proxied if network else None
    entries = [
        entry.model_copy(update={"access": "read"}) if entry.access == "write" else entry
        for entry in profile.entries
    ]
    policy = ReadOnlySandboxPolicy(network_access=is_direct or proxied is not None)
    changed = {
        "entries": entries,
        "network": is_direct,
        "proxied": proxied,
        "sandbox_policy": policy,
    }
    return profile.model_copy(update=changed)


def confinement_of_profile(
    profile: StoredProfile, roots: Sequence[str], places: Places, cwd: str | None = None
) -> Confinement:
    """Say what a profile lets be reached by work that belongs to the given folders.

    It is done in `cwd`, which need not be one of them. What is hidden from everybody stays so
    unless the profile names exactly that.
    """
    by_access: dict[FileSystemAccessMode, list[str]] = {"read": [], "write": [], "deny": []}
    patterns: list[str] = []
    for entry in profile.entries:
        if isinstance(entry.path, GlobPatternFileSystemPath):
            pattern = entry.path.pattern
            patterns += [pattern] if pattern.startswith("/") else _under(roots, pattern)
        else:
            by_access[entry.access] += _paths(entry.path, roots, places)
    named = {*by_access["read"], *by_access["write"]}
    temporary = {SLASH_TMP, places.tmpdir}
    secrets = tuple(place for place in places.secrets if place not in named)
    files = FileAccess(
        writable=[place for place in by_access["write"] if place not in temporary],
        temporary=[place for place in by_access["write"] if place in temporary],
        shown=_inside(by_access["read"], by_access["write"]) if by_access["write"] else roots,
        readable=None if "/" in named else by_access["read"],
        denied=by_access["deny"],
        denied_patterns=patterns,
        cwd=cwd,
    )
    return confined_to(
        files,
        replace(places, secrets=secrets),
        network=profile.network,
        proxy=None if profile.proxied is None else policy_of(profile.proxied),
    )


def _inside(places: Sequence[str], folders: Sequence[str]) -> list[str]:
    """Return the places that lie in other folders: what is read there is not to be written."""
    return [
        place
        for place in places
        if any(place != folder and is_in(place, folder) for folder in folders)
    ]


def _paths(path: FileSystemPath, roots: Sequence[str], places: Places) -> Sequence[str]:
    match path:
        case PathFileSystemPath():
            return [path.path]
        case SpecialFileSystemPath(value=RootFileSystemSpecialPath()):
            return ["/"]
        case SpecialFileSystemPath(value=MinimalFileSystemSpecialPath()):
            return MINIMAL
        case SpecialFileSystemPath(value=SlashTmpFileSystemSpecialPath()):
            return [SLASH_TMP]
        case SpecialFileSystemPath(value=TmpdirFileSystemSpecialPath()):
            return [] if places.tmpdir is None else [places.tmpdir]
        case SpecialFileSystemPath(value=ProjectRootsFileSystemSpecialPath(subpath=below)):
            return roots if below is None else _under(roots, below)
    return []


def _under(roots: Sequence[str], below: str) -> list[str]:
    return [f"{root.rstrip('/')}/{below}" for root in roots]
