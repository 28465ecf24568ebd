"""Git repositories with plugins, as users, settings and marketplaces write them. No I/O.

Source: docs/plugins.md, "Repositories".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

MAX_SOURCE_CHARS = 2_048
MAX_REF_CHARS = 256
MAX_SPARSE_PATHS = 64
MAX_PATH_CHARS = 1_024

_LOCAL = re.compile(r"/|~/|\.{1,2}(/|$)")
_SCP = re.compile(r"(?!-)[A-Za-z0-9_.-]+@(?!-)[A-Za-z0-9_.-]+:[^\s]+")
"""Neither part may begin with `-`: to git(1), or to ssh(1), it would be an option."""
_GITHUB = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
_REF = re.compile(r"(?!-)[^\s\x00-\x20\x7f~^:?*\[\\]+")
_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


class BadSource(ValueError):
    """It is no repository that can be fetched; the text says why, and clients may read it."""


@dataclass(frozen=True, slots=True)
class GitSource:
    """Git repository, with revision and folder."""

    url: str
    """By http, https or ssh; without a password."""
    ref: str | None = None
    """A branch, a tag or a commit; None: what the repository's HEAD is."""
    sparse_paths: Sequence[str] = ()
    """The only folders that are wanted; none means all."""


def is_local(source: str) -> bool:
    """Whether a text names a folder: it is absolute, or begins with `~/`, `./` or `../`."""
    return _LOCAL.match(source) is not None


def parse_git_source(
    source: str, ref: str | None = None, sparse_paths: Sequence[str] = ()
) -> GitSource:
    """Read an address, `user@host:path`, or `owner/name` of GitHub.

    `#REF` at the end, or `@REF` behind `owner/name`, names a revision; `ref` stands over it.

    Raises:
        BadSource
    """
    if len(source) > MAX_SOURCE_CHARS:
        raise BadSource(f"marketplace source exceeds {MAX_SOURCE_CHARS} characters")
    address, separator, named = source.rpartition("#")
    if not separator:
        address, named = source, ""
        if "://" not in source and not _SCP.fullmatch(source) and "@" in source:
            address, _, named = source.rpartition("@")
    url = _url(address)
    ref = ref or named.strip() or None
    if ref is not None and (len(ref) > MAX_REF_CHARS or not _REF.fullmatch(ref) or ".." in ref):
        raise BadSource(f"invalid revision: at most {MAX_REF_CHARS} characters of a Git revision")
    return GitSource(url, ref, tuple(_checked(sparse_paths)))


def git_source_of(table: Mapping[str, Any]) -> GitSource | None:
    """Read `[marketplaces.NAME]`; None if that is no repository, or makes no sense."""
    source, ref, paths = table.get("source"), table.get("ref"), table.get("sparse_paths", [])
    if table.get("source_type") != "git" or not isinstance(source, str):
        return None
    if not isinstance(ref, str | None) or not isinstance(paths, list):
        return None
    try:
        return parse_git_source(source, ref, [path for path in paths if isinstance(path, str)])
    except BadSource:
        return None


def pinned(source: GitSource, sha: str | None) -> GitSource:
    """Return a source with one commit in place of its revision.

    Raises:
        BadSource: it is no full name of a commit.
    """
    if sha is None:
        return source
    if not _SHA.fullmatch(sha):
        raise BadSource("`sha` is not the full name of a commit")
    return GitSource(source.url, sha, source.sparse_paths)


def _url(address: str) -> str:
    if _SCP.fullmatch(address):
        return address
    scheme, separator, _ = address.partition("://")
    if not separator and _GITHUB.fullmatch(address) and not is_local(address):
        return f"https://github.com/{address}.git"
    if scheme not in ("http", "https", "ssh") or not address.isprintable() or " " in address:
        raise BadSource(
            "invalid marketplace source format; expected owner/repo, a git URL, or a local "
            "marketplace path"
        )
    try:
        parts = urlsplit(address)
    except ValueError as exc:
        raise BadSource("invalid marketplace source: the URL makes no sense") from exc
    if not parts.hostname or parts.hostname.startswith("-"):
        raise BadSource("invalid marketplace source: the URL has no host")
    if parts.password is not None or (scheme != "ssh" and parts.username is not None):
        raise BadSource("a marketplace source must not have credentials; use a credential helper")
    url = address.rstrip("/")
    if parts.netloc == "github.com" and scheme == "https" and not url.endswith(".git"):
        url += ".git"
    return url


def _checked(paths: Sequence[str]) -> Sequence[str]:
    if len(paths) > MAX_SPARSE_PATHS:
        raise BadSource(f"sparsePaths accepts at most {MAX_SPARSE_PATHS} entries")
    for path in paths:
        parts = PurePosixPath(path).parts
        if not parts or len(path) > MAX_PATH_CHARS or path.startswith(("-", "/")):
            raise BadSource("sparsePaths: expected folders of the repository")
        if ".." in parts or not path.isprintable():
            raise BadSource("sparsePaths: expected folders of the repository")
    return paths
