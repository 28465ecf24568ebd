"""Effective sandbox policy of a thread: one value for processes and for tools that touch files.

A sandbox policy or permission profile of the settings names files; paths that are kept from every
restricted process are added. That is pure. `resolved` follows symbolic links and pointers of Git on
this machine's disks: it blocks, so call it in a worker thread, right before the process starts.
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

from app_server.permissions.network import NetworkPolicy, NetworkTable, policy_of
from app_server.permissions.sandbox.paths import (
    depth_of,
    expression,
    folded,
    is_in,
    real_pattern,
    ways_to,
)
from app_server.permissions.sandbox.roots import (
    SERVER_FOLDERS,
    SLASH_TMP,
    Identity,
    MachinePaths,
    PinnedRoots,
)
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
"""Access to a path: `write` includes reading, `none` is neither."""


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """Absolute paths, without symbolic links; a folder stands for all that is in it.

    Of the entries that a path is in, the deepest decides. Of two entries for the same path the
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
    """Globs of denied paths and all below them, whatever lies deeper; `*`, `**` and `?` as in
    `expression`, from the root."""
    scratch: tuple[str, ...] = ()
    """Folders that a process gets empty and to itself; what it writes there ends with it."""
    network: bool = True
    """Whether the network is reached as by any other process."""
    proxy: NetworkPolicy | None = None
    """Without `network`: the hosts that are reached through the server's proxy; None: none."""
    pinned: PinnedRoots = field(default_factory=PinnedRoots, compare=False, repr=False)
    """Identities of its roots when they were named."""
    identities: Mapping[str, Identity] = field(default_factory=dict, compare=False, repr=False)
    """Of a resolved policy: the identity of each root, by path."""

    @property
    def is_restricted(self) -> bool:
        """Whether a sandbox is needed."""
        return self != UNRESTRICTED

    def access(self, path: str) -> Access:
        """Return the access of a path that is absolute and has no links, `.` or `..`."""
        return Ruling(self).access(path)


UNRESTRICTED = EffectivePolicy()
"""No sandbox: all that the user of the server may do."""


class Ruling:
    """Access of many paths under one policy, with its patterns compiled once."""

    def __init__(self, sandbox_policy: EffectivePolicy) -> None:
        self.sandbox_policy = sandbox_policy
        self._patterns = [expression(one) for one in sandbox_policy.denied_patterns]
        everywhere = ("/",)
        self._places: Sequence[tuple[Sequence[str], Access]] = (
            (sandbox_policy.denied, "none"),
            (sandbox_policy.protected, "read"),
            (everywhere if sandbox_policy.writable is None else sandbox_policy.writable, "write"),
            (everywhere if sandbox_policy.readable is None else sandbox_policy.readable, "read"),
        )

    def access(self, path: str) -> Access:
        """Return the access of a path that is absolute and has no links, `.` or `..`."""
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
    """As those of `EffectivePolicy`."""
    cwd: str | None = None
    """Working folder; it may lie below a writable folder."""


def restricted_to(
    files: FileAccess,
    machine_paths: MachinePaths,
    *,
    network: bool = False,
    proxy: NetworkPolicy | None = None,
) -> EffectivePolicy:
    """Restrict to the files of the settings, and keep secrets and the home from every process."""
    roots = [root for root in map(_plain, files.writable) if not _is_servers(root, machine_paths)]
    allowed = _once((*roots, *files.temporary))
    projects = dict.fromkeys((*roots, *_down_to(files.cwd, (*roots, *files.temporary))))
    known = [SLASH_TMP] if machine_paths.tmpdir is None else [SLASH_TMP, machine_paths.tmpdir]
    return EffectivePolicy(
        readable=None if files.readable is None else _once(files.readable),
        writable=allowed,
        protected=_once((machine_paths.home, *files.shown, *_protected_in(projects))),
        denied=_once((*machine_paths.secrets, *files.denied)),
        denied_patterns=tuple(dict.fromkeys(files.denied_patterns)),
        scratch=tuple(
            place for place in _once(known) if not any(is_in(place, root) for root in allowed)
        ),
        network=network,
        proxy=proxy,
        pinned=machine_paths.pinned,
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


def _is_servers(root: str, machine_paths: MachinePaths) -> bool:
    home = _plain(machine_paths.home)
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
    """Return the profile with write access reduced to read, and the network only where allowed."""
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


def effective_policy_of_profile(
    profile: StoredProfile,
    roots: Sequence[str],
    machine_paths: MachinePaths,
    cwd: str | None = None,
) -> EffectivePolicy:
    """Resolve a permission profile against the given workspace roots.

    The work is done in `cwd`, which need not be a root. Secrets stay hidden unless the profile
    names exactly their path.
    """
    by_access: dict[FileSystemAccessMode, list[str]] = {"read": [], "write": [], "deny": []}
    patterns: list[str] = []
    for entry in profile.entries:
        if isinstance(entry.path, GlobPatternFileSystemPath):
            pattern = entry.path.pattern
            patterns += [pattern] if pattern.startswith("/") else _under(roots, pattern)
        else:
            by_access[entry.access] += _paths(entry.path, roots, machine_paths)
    named = {*by_access["read"], *by_access["write"]}
    temporary = {SLASH_TMP, machine_paths.tmpdir}
    secrets = tuple(place for place in machine_paths.secrets if place not in named)
    files = FileAccess(
        writable=[place for place in by_access["write"] if place not in temporary],
        temporary=[place for place in by_access["write"] if place in temporary],
        shown=_inside(by_access["read"], by_access["write"]) if by_access["write"] else roots,
        readable=None if "/" in named else by_access["read"],
        denied=by_access["deny"],
        denied_patterns=patterns,
        cwd=cwd,
    )
    return restricted_to(
        files,
        replace(machine_paths, secrets=secrets),
        network=profile.network,
        proxy=None if profile.proxied is None else policy_of(profile.proxied),
    )


def _inside(places: Sequence[str], folders: Sequence[str]) -> list[str]:
    """Return the readable paths below other folders: they are not to be written."""
    return [
        place
        for place in places
        if any(place != folder and is_in(place, folder) for folder in folders)
    ]


def _paths(
    path: FileSystemPath, roots: Sequence[str], machine_paths: MachinePaths
) -> Sequence[str]:
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
            return [] if machine_paths.tmpdir is None else [machine_paths.tmpdir]
        case SpecialFileSystemPath(value=ProjectRootsFileSystemSpecialPath(subpath=below)):
            return roots if below is None else _under(roots, below)
    return []


def _under(roots: Sequence[str], below: str) -> list[str]:
    return [f"{root.rstrip('/')}/{below}" for root in roots]


def effective_policy_of(settings: Settings, machine_paths: MachinePaths) -> EffectivePolicy:
    """Return the sandbox policy that is in effect under the settings of a thread."""
    profile = settings.profile_in_force
    if profile is not None:
        return effective_policy_of_profile(profile, settings.roots, machine_paths, settings.cwd)
    return effective_policy_for(
        settings.sandbox_policy, settings.roots, machine_paths, settings.cwd
    )


def effective_policy_for(
    policy: SandboxPolicy, roots: Sequence[str], machine_paths: MachinePaths, cwd: str | None = None
) -> EffectivePolicy:
    """Resolve a sandbox policy of the wire against the given workspace roots.

    The work is done in `cwd`, which need not be a root. An external sandbox is enforced by its
    owner, so there is no restriction here.
    """
    match policy:
        case DangerFullAccessSandboxPolicy() | ExternalSandboxPolicy():
            return UNRESTRICTED
        case ReadOnlySandboxPolicy():
            return restricted_to(
                FileAccess(shown=roots), machine_paths, network=policy.network_access
            )
        case WorkspaceWriteSandboxPolicy():
            files = FileAccess(
                writable=[*roots, *policy.writable_roots],
                temporary=tuple(_temporary(policy, machine_paths)),
                cwd=cwd,
            )
            return restricted_to(files, machine_paths, network=policy.network_access)


def through_proxy(sandbox_policy: EffectivePolicy, feature: NetworkTable | None) -> EffectivePolicy:
    """Put the proxy in the place of the network, where there is one and the feature is on.

    Where a profile has the proxy anyway both hold: a host is denied if either denies it, and
    allowed if either allows it, unless the feature is closed. What the feature says of local hosts
    counts before what the profile says. Source: docs/config.md, "Network of commands".
    """
    if feature is None or not sandbox_policy.is_restricted:
        return sandbox_policy
    if sandbox_policy.network:
        return replace(sandbox_policy, network=False, proxy=feature.policy())
    if sandbox_policy.proxy is None:
        return sandbox_policy
    profile, said = sandbox_policy.proxy, feature.policy()
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
    return replace(sandbox_policy, proxy=both)


def has_network(policy: SandboxPolicy) -> bool:
    """Whether a policy lets commands reach the network, also in an external sandbox."""
    match policy:
        case DangerFullAccessSandboxPolicy():
            return True
        case ExternalSandboxPolicy():
            return policy.network_access == "enabled"
        case _:
            return policy.network_access


def _temporary(policy: WorkspaceWriteSandboxPolicy, machine_paths: MachinePaths) -> Iterator[str]:
    if not policy.exclude_slash_tmp:
        yield SLASH_TMP
    if not policy.exclude_tmpdir_env_var and machine_paths.tmpdir is not None:
        yield machine_paths.tmpdir


GIT = ".git"

MAX_POINTER_BYTES = 4096
"""Of a `.git` file, and of `commondir` in the folder that it names."""


MAX_DEPTH = 128
"""Of paths whose folders are looked at one by one."""


def resolved(sandbox_policy: EffectivePolicy) -> EffectivePolicy:
    """Follow links in all paths, and protect the targets of the `.git` files of roots.

    A root that is a link counts as the folder that it leads to. A root in which a protected name is
    a link is not writable: nothing can be laid over a link that keeps it from being replaced.
    Folders to read or write in that are not there are left out; the others are pinned, and
    `identities` has what they are.

    Raises:
        RootChanged: a root is another folder than when it was named.
    """
    if not sandbox_policy.is_restricted:
        return sandbox_policy
    links = _Links()
    identities: dict[str, Identity] = {}
    readable = _present(sandbox_policy, sandbox_policy.readable, identities)
    writable = _present(sandbox_policy, sandbox_policy.writable, identities)
    scratch = _present(sandbox_policy, sandbox_policy.scratch, identities)
    protected: list[str] = []
    linked: list[str] = []
    for place in sandbox_policy.protected:
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
    sandbox_policy.pinned.can_be_written(("/",) if writable is None else writable)
    return replace(
        sandbox_policy,
        readable=readable,
        writable=writable,
        protected=tuple(dict.fromkeys(protected)),
        denied=tuple(dict.fromkeys(map(links.real, sandbox_policy.denied))),
        denied_patterns=tuple(map(real_pattern, sandbox_policy.denied_patterns)),
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


def pin_roots(sandbox_policy: EffectivePolicy, *, anew: bool = True) -> None:
    """Pin the roots of a policy that the user or a client has named. Blocks.

    See PinnedRoots.pin.
    """
    if sandbox_policy.is_restricted:
        roots = (
            sandbox_policy.readable or (),
            sandbox_policy.writable or (),
            sandbox_policy.scratch,
        )
        sandbox_policy.pinned.pin(chain.from_iterable(roots), anew=anew)


def _present(
    sandbox_policy: EffectivePolicy,
    roots: tuple[str, ...] | None,
    identities: dict[str, Identity],
) -> tuple[str, ...] | None:
    if roots is None:
        return None
    found: dict[str, None] = {}
    for root in map(sandbox_policy.pinned.checked, roots):
        if root.identity is not None:
            identities[root.real] = root.identity
            found[root.real] = None
    return tuple(found)


def git_folders(place: str) -> list[str]:
    """Return the target of a `.git` file, then the repository that a worktree shares.

    Empty for a folder, and for any other file.
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


PLACEHOLDER_MODE = stat.S_ISVTX | 0o755
"""Of an empty folder that stands for something protected that is not there.

Sandboxes make them (app_server/host/sandbox/linux/placeholders.py). They are on the disk while a
command runs, so whoever looks for a project's `.git`, `.codex` or `.agents` has to look past them.
No other program gives a folder for one user the sticky bit. Its user can
use it, should a server that was killed have left it behind."""


def is_placeholder(found: os.stat_result) -> bool:
    """Whether a folder is a placeholder, going by its mode."""
    return stat.S_ISDIR(found.st_mode) and found.st_mode & (stat.S_ISVTX | 0o022) == stat.S_ISVTX


def is_there(path: Path) -> bool:
    """Whether a path exists, also as a dangling link, and is no placeholder."""
    try:
        return not is_placeholder(path.lstat())
    except OSError:
        return False
