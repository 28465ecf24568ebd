"""Confinement to some folders, with all that is kept from every confined process.

Source: docs/tools.md, "Sandbox".
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.paths import depth_of, is_in, ways_to
from app_server.permissions.confinement.places import SERVER_FOLDERS, SLASH_TMP, Places
from app_server.permissions.network.policy import NetworkPolicy

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
