"""Reads of the hooks that hold in a folder, with a bound of time.

Source: docs/hooks.md, "Declaring hooks".
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from app_server.config.trust import trust_of
from app_server.config.values import Config, ConfigError
from app_server.extensions.hooks.definition import Hook
from app_server.extensions.hooks.files import HookList, places_of, read_hooks
from app_server.extensions.hooks.plugins import HookedPlugin
from app_server.host.folder_reads import FolderReads
from app_server.runtime.files.repository import folders_of_project


async def read_hooks_of(
    config: Config,
    home: Path,
    folder: Path | None,
    plugins: Sequence[HookedPlugin],
    reads: FolderReads,
) -> Sequence[Hook] | None:
    """Read the hooks that hold in a folder; `None` if the disk does not answer in time.

    A thread without a folder is shown those of the user alone.
    """
    found = await reads.read(partial(hooks_of, config, home, folder, plugins))
    return None if found is None else found.hooks


def hooks_of(
    config: Config, home: Path, folder: Path | None, plugins: Sequence[HookedPlugin] = ()
) -> HookList:
    """Read the hooks that hold in a folder; `None` is a thread without one. This blocks."""
    trusted: list[Path] = []
    if folder is not None:
        within = folders_of_project(folder)
        try:
            if trust_of(config, map(str, within)) == "trusted":
                trusted = list(reversed(within))
        except ConfigError:
            # The same value is named to every client that needs it.
            pass
    return read_hooks(places_of(home, trusted), config.document, home / "config.toml", plugins)
