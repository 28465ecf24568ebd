"""Marketplaces: files that list plugins, and where such files are looked for.

Source: docs/plugins.md, "Marketplaces".
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from app_server.extensions.plugins.file_members import NAME, read_object, relative_path, text_of
from app_server.runtime.files.opening import BrokenFiles, inside
from app_server.runtime.files.repository import repository_of
from app_server.runtime.user_paths import expand_user
from protocol.integrations.plugins import GitPluginSource, LocalPluginSource, NpmPluginSource

LAYOUTS = (".agents/plugins/marketplace.json", ".claude-plugin/marketplace.json")
"""Below the root of a marketplace; the first that is there counts."""

MAX_ENTRIES = 1024
MAX_FOLDERS = 64
"""Folders of one request that are searched for marketplaces."""

INSTALLATION = ("AVAILABLE", "NOT_AVAILABLE", "INSTALLED_BY_DEFAULT")
AUTHENTICATION = ("ON_INSTALL", "ON_USE")

Source = LocalPluginSource | GitPluginSource | NpmPluginSource


@dataclass(frozen=True, slots=True)
class MarketplaceEntry:
    """A plugin as a marketplace lists it."""

    name: str
    source: Source
    install_policy: str
    auth_policy: str
    category: str | None


@dataclass(frozen=True, slots=True)
class Marketplace:
    """A file with plugins."""

    name: str
    file: Path
    root: Path
    """Folder that the paths of its plugins are relative to."""
    display_name: str | None
    entries: Sequence[MarketplaceEntry]

    def find(self, name: str) -> MarketplaceEntry | None:
        """Return the plugin of a name."""
        return next((entry for entry in self.entries if entry.name == name), None)


def read_marketplace(file: Path) -> Marketplace:
    """Read a marketplace; entries without a name, or with a source outside of it, are left out.

    Raises:
        BrokenFiles: it does not exist, or cannot be used.
    """
    if not file.name:
        raise BrokenFiles(f"marketplace file `{file}` does not exist")
    levels = next((len(Path(one).parts) for one in LAYOUTS if file.match(one)), 1)
    root = file.parents[levels - 1]
    try:
        content = read_object(root, str(file.relative_to(root)))
        found = None if content is None else _parse(content, file, root)
    except BrokenFiles as exc:
        raise BrokenFiles(f"invalid marketplace file `{file}`: {exc}") from exc
    if found is None:
        raise BrokenFiles(f"marketplace file `{file}` does not exist")
    return found


def _parse(content: Mapping[str, Any], file: Path, root: Path) -> Marketplace:
    name, plugins = content.get("name"), content.get("plugins")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BrokenFiles("invalid marketplace name")
    if not isinstance(plugins, list):
        raise BrokenFiles("missing field `plugins`")
    interface = content.get("interface")
    display_name = text_of(interface.get("displayName")) if isinstance(interface, dict) else None
    entries: dict[str, MarketplaceEntry] = {}
    for one in plugins[:MAX_ENTRIES]:
        if (entry := _entry(root, one)) is not None:
            entries.setdefault(entry.name, entry)
    return Marketplace(name, file, root, display_name, tuple(entries.values()))


def find_marketplaces(
    folders: Sequence[Path], user_home: Path, configured: Sequence[Path]
) -> Sequence[Path]:
    """Return the marketplaces' files, each once.

    They are those of the user's home, of folders and their repositories, and the configured ones.
    """
    roots = [user_home]
    for folder in folders[:MAX_FOLDERS]:
        repository = repository_of(folder)
        roots += [folder] if repository is None else [repository, folder]
    return marketplace_files([*roots, *configured])


def marketplace_files(roots: Iterable[Path]) -> Sequence[Path]:
    """Return the files of the marketplaces that are in folders, each once."""
    files = (_file_below(root) for root in dict.fromkeys(roots))
    return list(dict.fromkeys(file for file in files if file is not None))


def marketplace_file(root: Path) -> Path:
    """Return the file of a marketplace in a folder.

    Raises:
        BrokenFiles: there is none.
    """
    file = _file_below(root)
    if file is None:
        raise BrokenFiles("marketplace root does not contain a supported manifest")
    return file


def configured_roots(config: Mapping[str, Any], cloned: Path) -> Mapping[str, Path]:
    """Return the folders of `[marketplaces.NAME]`, by name.

    Those of repositories are in the folder `cloned`, and may not be there.
    """
    tables = config.get("marketplaces")
    roots: dict[str, Path] = {}
    for name, table in tables.items() if isinstance(tables, dict) else ():
        source = table.get("source") if isinstance(table, dict) else None
        if not isinstance(source, str) or not NAME.fullmatch(name):
            continue
        kind = table.get("source_type", "local")
        if kind == "git":
            roots[name] = cloned / name
        elif kind == "local" and (path := expand_user(source)).is_absolute():
            roots[name] = path
    return roots


def _file_below(root: Path) -> Path | None:
    return next((root / one for one in LAYOUTS if _is_file(root / one)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # What we may not look at is not there.
        return False


def _entry(root: Path, value: object) -> MarketplaceEntry | None:
    if not isinstance(value, dict):
        return None
    name, source = value.get("name"), _source(root, value.get("source"))
    if not isinstance(name, str) or not NAME.fullmatch(name) or source is None:
        return None
    policy = value.get("policy")
    table: Mapping[str, Any] = policy if isinstance(policy, dict) else {}
    return MarketplaceEntry(
        name,
        source,
        _choice(table.get("installation"), INSTALLATION),
        _choice(table.get("authentication"), AUTHENTICATION),
        text_of(value.get("category")),
    )


def _choice(value: object, choices: Sequence[str]) -> str:
    """Return the policy that a value names, the first one for None.

    Raises:
        BrokenFiles: it names none of them.
    """
    if value is None:
        return choices[0]
    if not isinstance(value, str) or value not in choices:
        names = ", ".join(f"`{name}`" for name in choices)
        raise BrokenFiles(f"unknown variant `{value}`, expected one of {names}")
    return value


def _source(root: Path, value: object) -> Source | None:
    if isinstance(value, str):
        value = {"source": "local", "path": value}
    if not isinstance(value, dict):
        return None
    kind: Literal["local", "url", "git-subdir", "npm"] | Any = value.get("source")
    if kind == "local" and (path := relative_path(value.get("path"))) is not None:
        try:
            inside(root, path)
        except BrokenFiles:
            return None
        return LocalPluginSource(path=str(root / path))
    if kind in ("url", "git-subdir") and isinstance(url := value.get("url"), str):
        return GitPluginSource(
            url=url,
            path=text_of(value.get("path")),
            ref_name=text_of(value.get("ref")),
            sha=text_of(value.get("sha")),
        )
    if kind == "npm" and isinstance(package := value.get("package"), str):
        return NpmPluginSource(
            package=package,
            version=text_of(value.get("version")),
            registry=text_of(value.get("registry")),
        )
    return None
