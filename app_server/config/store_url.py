"""The setting `store`: the database that threads are kept in, where it is not files.

The password of its URL is in no text: `str` and `repr` leave it out.
Source: docs/scale.md, "Settings".
"""

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from app_server.config.values import ConfigError, ConfigView

KEY = "store"
OPTION = "--store"
STORE_VARIABLE = "APP_SERVER_STORE"
PASSWORD_VARIABLE = "PGPASSWORD"
"""Read by the client library of PostgreSQL."""

SCHEMES = ("postgresql", "postgres")
MAX_CHARS = 2048
LEASE_KEY = "lease_seconds"
LEASE_S = 10
"""Seconds that the lease of a server lasts, if nothing else is set."""
MIN_LEASE_S = 3
MAX_LEASE_S = 600
SECRET_PARAMETERS = ("password", "sslpassword")
"""Of the query of a URL."""

TODO = "write postgresql://USER@HOST/DATABASE, or leave it out to keep threads in files"
HIDDEN_PASSWORD = (
    "every user of this machine can read a password in a command line; leave it out, and put it "
    f"into {STORE_VARIABLE}, {PASSWORD_VARIABLE} or the file ~/.pgpass"
)

ESCAPES = "`@`, `/`, `?`, `&`, `=` and `%` in a name or a password are written %40, %2F, %3F, …"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://[^\s\x00-\x1f\x7f]*")
_CHAR = r"(?:[^@/?&=%:]|%(?!00)[0-9A-Fa-f]{2})"
_PAIR = rf"{_CHAR}+=(?:{_CHAR}|[:/])*"
_PARTS = re.compile(
    rf"\w+://(?:{_CHAR}*(?P<password>:(?:{_CHAR}|:)*)?@)?"
    rf"(?:{_CHAR}|:)*(?:/(?:{_CHAR}|[:/])*)?(?:\?(?P<query>{_PAIR}(?:&{_PAIR})*))?"
)
"""The library repeats in its errors what it cannot read, which may be part of a password."""
_NAMED = re.compile(rb"^\s*[\"']?store[\"']?\s*=", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """URL of a database; as text it has no password."""

    url: str = field(repr=False)
    """As the client library takes it, with the password if it has one."""

    @classmethod
    def parse(cls, text: str) -> "StoreUrl":
        """Parse a URL as far as that is possible without the library.

        Raises:
            ValueError: not a URL, of an unknown scheme, or above MAX_CHARS; never repeats the text.
        """
        if len(text) > MAX_CHARS:
            raise ValueError(f"a URL has at most {MAX_CHARS} characters; {TODO}")
        found = _SCHEME.fullmatch(text)
        if found is None:
            raise ValueError(f"this is no URL; {TODO}")
        if found[1] not in SCHEMES:
            raise ValueError(f"`{found[1]}` is no scheme of a store; {TODO}")
        if _PARTS.fullmatch(text) is None:
            raise ValueError(f"this URL cannot be read: {ESCAPES}")
        return cls(text)

    @property
    def has_password(self) -> bool:
        """Whether the URL has a password, in either of its places."""
        return str(self) != self.url

    def __str__(self) -> str:
        """Show the URL without passwords."""
        shown, mark, query = self.url.partition("?")
        found = _PARTS.fullmatch(self.url)
        if found is not None and found["password"] is not None:
            shown = shown[: found.start("password")] + shown[found.end("password") :]
        kept = [pair for pair in query.split("&") if _name(pair) not in SECRET_PARAMETERS]
        return f"{shown}{mark}{'&'.join(kept)}" if kept else shown

    def taking_password(self, environ: MutableMapping[str, str]) -> "StoreUrl":
        """Move the password out of the environment, which children of the server inherit."""
        if self.has_password or not (password := environ.pop(PASSWORD_VARIABLE, "")):
            return self
        mark = "&" if "?" in self.url else "?"
        return StoreUrl(f"{self.url}{mark}password={quote(password, safe='')}")


def _name(pair: str) -> str:
    return unquote(pair.partition("=")[0])


def chosen_store(
    option: str | None, overrides: Mapping[str, Any], environ: Mapping[str, str]
) -> StoreUrl | None:
    """Return the store of the command line or the variable; None: config.toml decides.

    `option` is that of OPTION, stronger than `overrides`, which are those of `-c`.

    Raises:
        ConfigError: it is no URL of a store, or a command line has a password.
    """
    given = overrides.get(KEY)
    for source, text in ((OPTION, option), ("-c store", given if isinstance(given, str) else None)):
        if text is not None:
            found = _parsed(source, text)
            if found.has_password:
                raise ConfigError(f"{source}: {HIDDEN_PASSWORD}")
            return found
    text = environ.get(STORE_VARIABLE)
    return None if not text else _parsed(STORE_VARIABLE, text)


def _parsed(source: str, text: str) -> StoreUrl:
    try:
        return StoreUrl.parse(text)
    except ValueError as exc:
        raise ConfigError(f"{source}: {exc}") from None


def read_store(view: ConfigView) -> StoreUrl | None:
    """Read the key; None: threads are kept in files.

    Raises:
        ConfigError: the value is no URL of a store; it is not repeated.
    """
    value = view.table.get(KEY)
    if value is None:
        return None
    if not isinstance(value, str):
        raise view.error(f"this is no URL; {TODO}", KEY)
    try:
        return StoreUrl.parse(value)
    except ValueError as exc:
        raise view.error(str(exc), KEY) from None


def read_lease_seconds(view: ConfigView) -> int:
    """Read the seconds of a lease, MIN_LEASE_S to MAX_LEASE_S.

    Raises:
        ConfigError
    """
    seconds = view.integer(LEASE_KEY)
    if seconds is None:
        return LEASE_S
    if not MIN_LEASE_S <= seconds <= MAX_LEASE_S:
        raise view.error(f"a lease lasts {MIN_LEASE_S} to {MAX_LEASE_S} seconds", LEASE_KEY)
    return seconds


def may_name_a_store(content: bytes) -> bool:
    """Whether a file of settings that cannot be read may say where threads are kept."""
    return _NAMED.search(content) is not None
