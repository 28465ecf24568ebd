"""From the settings of a thread to what confines it: pure, links and all else of disks apart.

A sandbox policy and a permission profile say which files are reached; what is kept from every
confined process is added to both. `resolved` (app_server/permissions/confinement/resolving.py)
makes of it what can be enforced.
Source: docs/tools.md, "Sandbox"; docs/config.md, "Permission profiles".
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from app_server.permissions.confinement.confinement import UNCONFINED, Confinement
from app_server.permissions.confinement.paths import depth_of, is_in, ways_to
from app_server.permissions.confinement.places import SERVER_FOLDERS, SLASH_TMP, Places
from app_server.permissions.network.policy import NetworkPolicy, policy_of
from app_server.permissions.network.settings import NetworkTable
from protocol.log.rollout import Settings, StoredProfile
from protocol.turns.policy import (
    DangerFullAccessSandboxPolicy,
    ExternalSandboxPolicy,
    FileSystemAccessMode,
    FileSystemPath,
    GlobPatternFileSystemPath,
    MinimalFileSystemSpecialPath,
    PathFileSystemPath,
    ProjectRootsFileSystemSpecialPath,
    ReadOnlySandboxPolicy,
    RootFileSystemSpecialPath,
    SandboxPolicy,
    SlashTmpFileSystemSpecialPath,
    SpecialFileSystemPath,
    TmpdirFileSystemSpecialPath,
    WorkspaceWriteSandboxPolicy,
)

PROTECTED_NAMES = (".git", ".codex", ".agents")
"""In each writable root, and from there down to where the work is done: what other programs run, or
a later session reads as its settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAccess:
    """Access to folders that settings give, as absolute paths."""

    writable: Sequence[str] = ()
    temporary: Sequence[str] = ()
    """Writable too, with nothing in them that is protected: no project is there."""
    shown: Sequence[str] = ()
    """Readable also in a folder that a process gets empty."""
    readable: Sequence[str] | None = None
    """None: everything that the user may read."""
    denied: Sequence[str] = ()
    denied_patterns: Sequence[str] = ()
    """As those of `Confinement`."""
    cwd: str | None = None
    """Working folder; it may lie below a writable folder."""


def confined_to(
    files: FileAccess,
    places: Places,
    *,
    network: bool = False,
    proxy: NetworkPolicy | None = None,
) -> Confinement:
    """Confine to what settings say, with all that is kept from everybody who is confined."""
    roots = [root for root in map(_plain, files.writable) if not _is_servers(root, places)]
    allowed = _once((*roots, *files.temporary))
    projects = dict.fromkeys((*roots, *_down_to(files.cwd, (*roots, *files.temporary))))
    known = [SLASH_TMP] if places.tmpdir is None else [SLASH_TMP, places.tmpdir]
    return Confinement(
        readable=None if files.readable is None else _once(files.readable),
        writable=allowed,
        protected=_once((places.home, *files.shown, *_protected_in(projects))),
        denied=_once((*places.secrets, *files.denied)),
        denied_patterns=tuple(dict.fromkeys(files.denied_patterns)),
        scratch=tuple(
            place for place in _once(known) if not any(is_in(place, root) for root in allowed)
        ),
        network=network,
        proxy=proxy,
        pinned=places.pinned,
    )


def _down_to(cwd: str | None, writable: Iterable[str]) -> Iterator[str]:
    """Give the folders from below the outermost writable one down to the one of the work."""
    if cwd is None:
        return
    cwd = _plain(cwd)
    around = [folder for folder in map(_plain, writable) if folder != cwd and is_in(cwd, folder)]
    if around:
        outermost = min(around, key=depth_of)
        ways = [cwd, *ways_to(cwd)]
        yield from ways[: ways.index(outermost)]


def _protected_in(folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        yield from (str(PurePosixPath(folder, name)) for name in PROTECTED_NAMES)


def _is_servers(root: str, places: Places) -> bool:
    home = _plain(places.home)
    return root == home or any(
        is_in(root, str(PurePosixPath(home, name))) for name in SERVER_FOLDERS
    )


def _once(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_plain, paths)))


def _plain(path: str) -> str:
    """Without a slash at the end, doubled ones and `.`; `..` stays, as a link may be before it."""
    return "/" + str(PurePosixPath(path)).lstrip("/")


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
