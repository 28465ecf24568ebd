"""The places of this machine that a confinement knows: whose home, where temporary files are.

Source: docs/tools.md, "Sandbox".
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from app_server.config.values import Config
from app_server.permissions.confinement.pinned_places import PinnedPlaces, PlacesFile
from app_server.runtime.user_paths import expand_user

SLASH_TMP = "/tmp"  # noqa: S108 - the policies name this folder

SECRETS_OF_USERS = (
    ".ssh",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".netrc",
    ".config/containers/auth.json",
    ".docker/config.json",
)
"""Below the home of the user: keys and tokens of programs that speak for that user elsewhere."""

SECRETS_OF_HOMES = ("auth.json", ".credentials.json", "app-server.sock")
"""In our home, and in that of Codex: tokens of the account and of MCP servers, and the socket at
which whoever reaches it is a client, who may have commands run without a sandbox."""

SERVICE_SOCKETS = (
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/dbus",
    "/run/docker.sock",
    "/run/initctl",
    "/run/libvirt",
    "/run/lxd",
    "/run/podman",
    "/run/snapd.socket",
    "/run/systemd/private",
    "/var/lib/incus/unix.socket",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
)
"""Sockets, or their folders, of services that start programs outside of our sandboxes."""

RUNTIME_NAMES = (
    "at-spi",
    "bus",
    "containerd",
    "dbus-1",
    "docker.sock",
    "gcr",
    "gnupg",
    "keyring",
    "podman",
    "systemd",
)
"""In the folder that `XDG_RUNTIME_DIR` names, which need not be there for this alone."""

SERVER_FOLDERS = (
    "archived_sessions",
    "cache",
    "index",
    "locks",
    "log",
    "plugins",
    "rules",
    "servers",
    "sessions",
    "signals",
    "skills",
    "threads",
)
"""Folders that a server keeps in its home; no root in one of them is ever writable."""


@dataclass(frozen=True, slots=True)
class Places:
    """Absolute paths, as they were given: links in them are resolved later."""

    home: str
    """Of this server."""
    user_home: str
    tmpdir: str | None = None
    """Folder that `TMPDIR` names."""
    secrets: tuple[str, ...] = ()
    """Paths that no confined process may read; not all of them have to exist."""
    pinned: PinnedPlaces = field(default_factory=PinnedPlaces, compare=False, repr=False)
    """Places that policies have named so far."""


HIDDEN_KEY = "sandbox_hidden_paths"
MAX_HIDDEN = 256
"""Paths in that setting."""


def configured_places(config: Config, places: Places) -> Places:
    """Return the places with what the settings hide as well; looks at no disk.

    Raises:
        ConfigError: `sandbox_hidden_paths` does not fit.
    """
    view = config.view()
    hidden = view.strings(HIDDEN_KEY) or []
    if len(hidden) > MAX_HIDDEN:
        raise view.error(f"expected at most {MAX_HIDDEN} paths", HIDDEN_KEY)
    for path in hidden:
        if not path.startswith(("/", "~/")):
            raise view.error(f"expected a path that begins with `/` or `~/`: `{path}`", HIDDEN_KEY)
    of_user = (
        str(Path(places.user_home, path[2:])) if path.startswith("~/") else path for path in hidden
    )
    return replace(places, secrets=(*places.secrets, *of_user))


def places_of_machine(
    home: str, hidden: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> Places:
    """Read the places from the environment; looks at no disk. They are pinned in that home.

    `hidden` are further absolute paths that are kept from whoever is confined.
    """
    user_home = environ.get("HOME") or str(expand_user("~"))
    secrets = [str(Path(user_home, name)) for name in SECRETS_OF_USERS]
    for of_home in (home, environ.get("CODEX_HOME") or str(Path(user_home, ".codex"))):
        secrets += [str(Path(of_home, name)) for name in SECRETS_OF_HOMES]
    # Keyrings, the session's bus and agents listen there, and all of them act for the user.
    secrets += [f"/run/user/{os.getuid()}"]
    if (runtime := environ.get("XDG_RUNTIME_DIR")) is not None:
        secrets += [str(Path(runtime, name)) for name in RUNTIME_NAMES]
    for name in ("SSH_AUTH_SOCK", "GNOME_KEYRING_CONTROL"):
        secrets += [environ[name]] if name in environ else []
    secrets += hidden
    return Places(
        home=home,
        user_home=user_home,
        tmpdir=environ.get("TMPDIR") or None,
        secrets=tuple(path for path in (*secrets, *SERVICE_SOCKETS) if path.startswith("/")),
        pinned=PinnedPlaces(PlacesFile(Path(home))),
    )
