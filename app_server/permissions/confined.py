"""Confining to some folders, with all that is kept from whoever is confined.

Source: docs/tools.md, "Sandbox".
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from app_server.permissions.confinement import Confinement
from app_server.permissions.network.policy import NetworkPolicy
from app_server.permissions.paths import is_in
from app_server.permissions.places import SERVER_FOLDERS, SLASH_TMP, Places

PROTECTED_NAMES = (".git", ".codex", ".agents")
"""In each writable root: what other programs run, or a later session reads as its settings."""


def confined_to(
    writable: Sequence[str],
    places: Places,
    *,
    shown: Sequence[str] = (),
    temporary: Sequence[str] = (),
    readable: Sequence[str] | None = None,
    denied: Sequence[str] = (),
    denied_patterns: Sequence[str] = (),
    network: bool = False,
    proxy: NetworkPolicy | None = None,
) -> Confinement:
    """Confine to folders to write in, with all that is kept from everybody who is confined.

    `shown` can be read also in a folder that a process gets empty. `temporary` are writable too,
    but have nothing that is protected: no project is there.
    """
    roots = [root for root in map(_plain, writable) if not _is_servers(root, places)]
    allowed = tuple(dict.fromkeys((*roots, *map(_plain, temporary))))
    known = [SLASH_TMP] if places.tmpdir is None else [SLASH_TMP, places.tmpdir]
    return Confinement(
        readable=None if readable is None else tuple(dict.fromkeys(map(_plain, readable))),
        writable=allowed,
        protected=tuple(
            dict.fromkeys(
                (_plain(places.home), *map(_plain, shown), *_protected_in(dict.fromkeys(roots)))
            )
        ),
        denied=tuple(dict.fromkeys(map(_plain, (*places.secrets, *denied)))),
        denied_patterns=tuple(dict.fromkeys(denied_patterns)),
        scratch=tuple(
            place
            for place in dict.fromkeys(map(_plain, known))
            if not any(is_in(place, root) for root in allowed)
        ),
        network=network,
        proxy=proxy,
    )


def _protected_in(roots: Iterable[str]) -> Iterator[str]:
    for root in roots:
        yield from (str(PurePosixPath(root, name)) for name in PROTECTED_NAMES)


def _is_servers(root: str, places: Places) -> bool:
    home = _plain(places.home)
    return root == home or any(
        is_in(root, str(PurePosixPath(home, name))) for name in SERVER_FOLDERS
    )


def _plain(path: str) -> str:
    """Without a slash at the end, doubled ones and `.`; `..` stays, as a link may be before it."""
    return "/" + str(PurePosixPath(path)).lstrip("/")
