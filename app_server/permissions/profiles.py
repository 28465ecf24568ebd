"""Permission profiles of the user, `[permissions.NAME]`.

Source: docs/config.md, "Permission profiles".
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import cast

from app_server.config.values import Config, ConfigError, ConfigView
from app_server.permissions.network import NetworkTable, read_network_table, stored
from app_server.permissions.sandbox.paths import is_pattern
from protocol.log.rollout import StoredProfile
from protocol.turns.policy import (
    FileSystemAccessMode,
    FileSystemSandboxEntry,
    FileSystemSpecialPath,
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

ACCESS = ("read", "write", "deny")
MAX_ENTRIES = 512
"""Entries of a profile and of all profiles that it extends."""
MAX_EXTENDED = 16
"""Profiles that one builds on."""


def _special(path: FileSystemSpecialPath, access: FileSystemAccessMode) -> FileSystemSandboxEntry:
    return FileSystemSandboxEntry(path=SpecialFileSystemPath(value=path), access=access)


_ROOTS = (":workspace_roots", ":project_roots")
_READ_ALL = _special(RootFileSystemSpecialPath(), "read")
BUILT_IN: Mapping[str, Sequence[FileSystemSandboxEntry]] = {
    ":read-only": (_READ_ALL,),
    ":workspace": (
        _READ_ALL,
        _special(ProjectRootsFileSystemSpecialPath(), "write"),
        _special(SlashTmpFileSystemSpecialPath(), "write"),
        _special(TmpdirFileSystemSpecialPath(), "write"),
    ),
}
"""Entries of the built-in profiles, which others can extend."""


def profile_names(config: Config) -> Sequence[str]:
    """List the profiles of the configuration.

    Raises:
        ConfigError: one is called like a built-in one.
    """
    view = config.view().at("permissions")
    for name, _ in view.tables():
        if name.startswith(":"):
            raise view.error(
                f"permissions profile `{name}` uses a reserved built-in profile prefix", name
            )
    return [name for name, _ in view.tables()]


def read_profile(config: Config, name: str, user_home: str) -> StoredProfile:
    """Read a profile of the configuration, with the profiles that it extends.

    Raises:
        ConfigError: there is no such profile, or something in it makes no sense.
    """
    if name not in profile_names(config):
        raise ConfigError(f"default_permissions refers to undefined profile `{name}`")
    entries: dict[str, FileSystemSandboxEntry] = {}
    chain = _chain(config, name)
    network = NetworkTable()
    for one in reversed(chain):
        given = BUILT_IN.get(one)
        if given is None:
            view = config.view().at("permissions").at(one)
            given = list(_entries(view.at("filesystem"), user_home))
            network = read_network_table(view.at("network")).over(network)
        entries |= {entry.path.model_dump_json(): entry for entry in given}
    if len(entries) > MAX_ENTRIES:
        raise ConfigError(f"permissions profile `{name}` has more than {MAX_ENTRIES} entries")
    listed = list(entries.values())
    is_on = network.enabled is True
    return StoredProfile(
        id=name,
        extends=chain[1] if len(chain) > 1 else None,
        entries=listed,
        network=is_on and not network.restricts,
        proxied=stored(network.policy()) if is_on and network.restricts else None,
        sandbox_policy=_nearest(listed, network=is_on),
    )


def _chain(config: Config, name: str) -> Sequence[str]:
    """Return a profile and the profiles that it extends, nearest first."""
    chain = [name]
    known = profile_names(config)
    while chain[-1] not in BUILT_IN:
        extends = config.view().at("permissions").at(chain[-1]).string("extends")
        if extends is None:
            break
        where = f"permissions profile `{chain[-1]}`"
        if extends in chain:
            shown = " -> ".join((*chain, extends))
            raise ConfigError(f"permissions profile inheritance cycle detected: {shown}")
        if extends.startswith(":") and extends not in BUILT_IN:
            raise ConfigError(f"{where} cannot extend unsupported built-in profile `{extends}`")
        if extends not in BUILT_IN and extends not in known:
            raise ConfigError(f"{where} extends undefined profile `{extends}`")
        chain.append(extends)
        if len(chain) > MAX_EXTENDED:
            raise ConfigError(f"{where} is more than {MAX_EXTENDED} profiles away from its last")
    return chain


def _entries(table: ConfigView, user_home: str) -> Iterator[FileSystemSandboxEntry]:
    for key, value in table.table.items():
        if key == "glob_scan_max_depth":
            table.integer(key)
        elif isinstance(value, dict):
            if key not in _ROOTS:
                raise table.error(f"only `{_ROOTS[0]}` can have a table of paths below it", key)
            inner = table.at(key)
            for below in value:
                yield _below_roots(inner, below)
        elif key.startswith(":"):
            yield _special(_named(table, key), _access(table, key))
        elif key.startswith(("/", "~/")) or key == "~":
            path = user_home + key[1:] if key.startswith("~") else key
            yield _placed(table, key, path)
        else:
            rule = f"filesystem path `{key}` must be absolute, use `~/...`, or start with `:`"
            raise table.error(rule, key)


def _placed(table: ConfigView, key: str, path: str) -> FileSystemSandboxEntry:
    access = _access(table, key)
    plain = path.removesuffix("/**") or "/"
    if not is_pattern(plain):
        return FileSystemSandboxEntry(path=PathFileSystemPath(path=plain), access=access)
    _check_pattern(table, key, access)
    return FileSystemSandboxEntry(path=GlobPatternFileSystemPath(pattern=path), access=access)


def _below_roots(table: ConfigView, key: str) -> FileSystemSandboxEntry:
    access = _access(table, key)
    plain = key.removesuffix("/**")
    parts = PurePosixPath(plain).parts
    if key.startswith("/") or (key != "." and {".", ".."} & {*key.split("/")}):
        rule = "must be a descendant path without `.` or `..` components"
        raise table.error(f"filesystem subpath `{key}` {rule}", key)
    if is_pattern(plain):
        _check_pattern(table, key, access)
        return FileSystemSandboxEntry(path=GlobPatternFileSystemPath(pattern=key), access=access)
    subpath = "/".join(parts) or None
    return _special(ProjectRootsFileSystemSpecialPath(subpath=subpath), access)


def _check_pattern(table: ConfigView, key: str, access: FileSystemAccessMode) -> None:
    if access != "deny":
        raise table.error(
            f"filesystem glob path `{key}` only supports `deny` access; use an exact path or "
            f"trailing `/**` for `{access}` subtree access",
            key,
        )
    if any(sign in key for sign in "[]{}\\!"):
        rule = "only `*`, `**` and `?` are supported in a pattern"
        raise table.error(f"filesystem glob path `{key}`: {rule}", key)


def _access(table: ConfigView, key: str) -> FileSystemAccessMode:
    return cast(FileSystemAccessMode, table.choice(key, ACCESS) or "deny")


def _named(table: ConfigView, key: str) -> FileSystemSpecialPath:
    match key:
        case ":root":
            return RootFileSystemSpecialPath()
        case ":minimal":
            return MinimalFileSystemSpecialPath()
        case ":workspace_roots" | ":project_roots":
            return ProjectRootsFileSystemSpecialPath()
        case ":slash_tmp":
            return SlashTmpFileSystemSpecialPath()
        case ":tmpdir":
            return TmpdirFileSystemSpecialPath()
    raise table.error(f"there is no special path `{key}`", key)


def _nearest(entries: Sequence[FileSystemSandboxEntry], *, network: bool) -> SandboxPolicy:
    """Return the policy that says most of it to clients which know no profiles."""
    written = [entry.path for entry in entries if entry.access == "write"]
    if not written:
        return ReadOnlySandboxPolicy(network_access=network)
    kinds = [path.value for path in written if isinstance(path, SpecialFileSystemPath)]
    return WorkspaceWriteSandboxPolicy(
        writable_roots=[path.path for path in written if isinstance(path, PathFileSystemPath)],
        network_access=network,
        exclude_slash_tmp=SlashTmpFileSystemSpecialPath() not in kinds,
        exclude_tmpdir_env_var=TmpdirFileSystemSpecialPath() not in kinds,
    )
