"""From the settings of a thread to what confines a process, or a tool that touches files.

`Confinement` is one value for all. A sandbox policy and a permission profile say which files are
reached; what is kept from every confined process is added to both. That is pure, links and all else
of disks apart; `resolved` makes of it what can be enforced on this machine's disks, where symbolic
links lead and where the folders of Git are. It blocks: call it in a worker thread, right before
what it is for.
Source: docs/tools.md, "Sandbox"; docs/config.md, "Permission profiles".
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

from app_server.permissions.confinement.paths import (
    depth_of,
    expression,
    folded,
    is_in,
    real_pattern,
    ways_to,
)
from app_server.permissions.confinement.places import (
    SERVER_FOLDERS,
    SLASH_TMP,
    Identity,
    PinnedPlaces,
    Places,
)
from app_server.permissions.network import NetworkPolicy, NetworkTable, policy_of
from app_server.runtime.files.opening import open_regular
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

Access: TypeAlias = Literal["write", "read", "none"]
"""Access to a place: `write` includes reading, `none` is neither."""


@dataclass(frozen=True, slots=True)
class Confinement:
    """Absolute paths, without symbolic links; a folder stands for all that is in it.

    Of the places that a path is in, the deepest decides. Of two entries for the same place the
    first of denied, protected, writable, readable does.
    """

    readable: tuple[str, ...] | None = None
    """None: everything that the user may read."""
    writable: tuple[str, ...] | None = None
    """None: everything that the user may write."""
    protected: tuple[str, ...] = ()
    """Inside of writable folders, and yet only readable; it may be that nothing is there."""
    denied: tuple[str, ...] = ()
    """Neither readable nor writable."""
    denied_patterns: tuple[str, ...] = ()
    """Globs of denied places and all that is in them, whatever lies deeper; `*`, `**` and `?` as
    in `expression`, from the root."""
    scratch: tuple[str, ...] = ()
    """Folders that a process gets empty and to itself; what it writes there ends with it."""
    network: bool = True
    """Whether the network is reached as by any other process."""
    proxy: NetworkPolicy | None = None
    """Without `network`: the hosts that are reached through the server's proxy; None: none."""
    pinned: PinnedPlaces = field(default_factory=PinnedPlaces, compare=False, repr=False)
    """Places of its folders, pinned as they were when they were named."""
    identities: Mapping[str, Identity] = field(default_factory=dict, compare=False, repr=False)
    """Of a resolved one: what its folders are, by path."""

    @property
    def is_confined(self) -> bool:
        """Whether there is anything that it keeps from a process."""
        return self != UNCONFINED

    def access(self, path: str) -> Access:
        """Say what may be done with a path that is absolute and has no links, `.` or `..`."""
        return Ruling(self).access(path)


UNCONFINED = Confinement()
"""Confinement to nothing: all that the user of the server may do."""


class Ruling:
    """A confinement that many paths are asked about; it is prepared once."""

    def __init__(self, confinement: Confinement) -> None:
        self.confinement = confinement
        self._patterns = [expression(one) for one in confinement.denied_patterns]
        everywhere = ("/",)
        self._places: Sequence[tuple[Sequence[str], Access]] = (
            (confinement.denied, "none"),
            (confinement.protected, "read"),
            (everywhere if confinement.writable is None else confinement.writable, "write"),
            (everywhere if confinement.readable is None else confinement.readable, "read"),
        )

    def access(self, path: str) -> Access:
        """Say what may be done with a path that is absolute and has no links, `.` or `..`."""
        if self._patterns and any(
            pattern.fullmatch(above) for above in _ways(folded(path)) for pattern in self._patterns
        ):
            return "none"
        found: Access = "none"
        depth = -1
        for rank, (places, access) in enumerate(self._places):
            # Where names differ in case alone a prohibition is for both.
            looked_at = folded(path) if rank < 2 else path
            for place in places:
                there = folded(place) if rank < 2 else place
                if is_in(looked_at, there) and depth_of(place) > depth:
                    found, depth = access, depth_of(place)
        return found


def _ways(path: str) -> Iterator[str]:
    yield path
    end = len(path)
    while (end := path.rfind("/", 0, end)) > 0:
        yield path[:end]


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


@lru_cache(maxsize=1024)
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


GIT = ".git"

MAX_POINTER_BYTES = 4096
"""Of a `.git` file, and of `commondir` in the folder that it names."""


MAX_DEPTH = 128
"""Of paths whose folders are looked at one by one."""


def resolved(confinement: Confinement) -> Confinement:
    """Follow links in all places, and protect where the `.git` files of roots lead.

    A root that is a link counts as the folder that it leads to. A root in which a protected name is
    a link is not writable: nothing can be laid over a link that keeps it from being replaced.
    Folders to read or write in that are not there are left out; the others are pinned, and
    `identities` has what they are.

    Raises:
        PlaceChanged: one of them is not what it was when it was named.
    """
    if not confinement.is_confined:
        return confinement
    links = _Links()
    identities: dict[str, Identity] = {}
    readable = _present(confinement, confinement.readable, identities)
    writable = _present(confinement, confinement.writable, identities)
    scratch = _present(confinement, confinement.scratch, identities)
    protected: list[str] = []
    linked: list[str] = []
    for place in confinement.protected:
        folder, name = os.path.split(place)
        real_place = f"{links.real(folder).rstrip('/')}/{name}"
        leads_to = links.real(real_place)
        if leads_to != real_place:
            linked.append(real_place)
        protected += [real_place, leads_to]
        if name == GIT:
            protected += git_folders(real_place)
    if writable is not None:
        writable = tuple(
            root for root in writable if not any(is_in(place, root) for place in linked)
        )
    confinement.pinned.can_be_written(("/",) if writable is None else writable)
    return replace(
        confinement,
        readable=readable,
        writable=writable,
        protected=tuple(dict.fromkeys(protected)),
        denied=tuple(dict.fromkeys(map(links.real, confinement.denied))),
        denied_patterns=tuple(map(real_pattern, confinement.denied_patterns)),
        scratch=scratch or (),
        identities=identities,
    )


class _Links:
    """Resolver of links in absolute paths; a folder that several share is looked at once."""

    def __init__(self) -> None:
        self._known = {"/": "/"}

    def real(self, path: str) -> str:
        """Follow the links of a path, as os.path.realpath does."""
        known = self._known.get(path)
        if known is None:
            folder, name = os.path.split(path)
            if name in ("", ".", "..") or depth_of(path) > MAX_DEPTH:
                known = os.path.realpath(path)
            else:
                there = f"{self.real(folder).rstrip('/')}/{name}"
                is_link = stat.S_ISLNK(_mode(there))
                known = os.path.realpath(there) if is_link else there
            self._known[path] = known
        return known


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except (OSError, ValueError):
        return 0


def pin_places(confinement: Confinement, *, anew: bool = True) -> None:
    """Set the places of a policy, which somebody outside of every sandbox has named. Blocks.

    See PinnedPlaces.pin.
    """
    if confinement.is_confined:
        places = (confinement.readable or (), confinement.writable or (), confinement.scratch)
        confinement.pinned.pin(chain.from_iterable(places), anew=anew)


def _present(
    confinement: Confinement, places: tuple[str, ...] | None, identities: dict[str, Identity]
) -> tuple[str, ...] | None:
    if places is None:
        return None
    found: dict[str, None] = {}
    for place in places:
        place_now = confinement.pinned.checked(place)
        if place_now.identity is not None:
            identities[place_now.real] = place_now.identity
            found[place_now.real] = None
    return tuple(found)


def git_folders(place: str) -> list[str]:
    """Return where a `.git` file points to, then the repository that it shares if it is a worktree.

    Nothing for a folder, and for what is no such file.
    """
    pointer = first_line(place)
    if pointer is None or not pointer.startswith("gitdir:"):
        return []
    folder = os.path.realpath(Path(place).parent / pointer.removeprefix("gitdir:").strip())
    shared = first_line(f"{folder}/commondir")
    return [folder] if shared is None else [folder, os.path.realpath(Path(folder, shared))]


def first_line(path: str) -> str | None:
    """Return the first line of a small regular file; None where there is none."""
    try:
        file = open_regular(path)
    except OSError:
        return None
    if file is None:
        return None
    with file:
        return os.fsdecode(file.read(MAX_POINTER_BYTES)).split("\n")[0].strip()
