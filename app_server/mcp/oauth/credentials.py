"""The store of OAuth tokens: a file that other programs share, or the system's keyring.

Everything here blocks. What a file holds of other servers, and members that are unknown here, stay
as they are. No name of a credential is a secret; the rest is.
Source: docs/mcp.md, "Sign-in".
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from app_server.mcp.catalog.config import LOCAL
from app_server.mcp.errors import OAuthFailed
from app_server.runtime.files.secret import (
    StoreFailed,
    keyring_failures,
    load_keyring,
    lock_held,
    read_private,
    write_private,
)
from protocol.model import JsonObject

FILE_NAME = ".credentials.json"
MAX_FILE_BYTES = 4 * 1024 * 1024

LOCK_WAIT_S = 10
"""Seconds that a write waits for the writes of other processes."""

OPTIONAL_MEMBERS = ("client_secret", "client_auth_method", "wanted_scopes")
"""Members that are there only for clients that were given a secret, and where scopes lack."""

KEYRING_SERVICE = "app-server MCP credentials"


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """Our OAuth client at an authorization server."""

    client_id: str
    secret: str | None = field(default=None, repr=False)
    auth_method: str | None = None
    """`client_secret_basic` or `client_secret_post`; None without a secret."""


@dataclass(frozen=True, slots=True)
class Credential:
    """The tokens and the client of one server's sign-in."""

    server_name: str
    server_url: str
    issuer: str
    """The authorization server that gave it, and the only one that it is shown to."""
    client_id: str
    access_token: str = field(repr=False)
    expires_at: int | None = None
    """Unix milliseconds; None if the authorization server gave no lifetime."""
    refresh_token: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    client_secret: str | None = field(default=None, repr=False)
    """Of a registration that came with one."""
    client_auth_method: str | None = None
    environment_id: str = LOCAL
    """The environment from which the server is reached."""
    wanted_scopes: tuple[str, ...] = ()
    """Scopes that the server refused a request for the want of."""

    @property
    def key(self) -> str:
        """The name of this credential in every store."""
        return credential_key(self.server_name, self.server_url, self.environment_id)

    def usable(self, now_ms: int) -> bool:
        """Whether it opens the server still, by itself or after a refresh."""
        return self.refresh_token is not None or not self.expires_within(now_ms, 0)

    def expires_within(self, now_ms: int, margin_ms: int) -> bool:
        """Whether the access token will have expired after so many milliseconds."""
        return self.expires_at is not None and self.expires_at <= now_ms + margin_ms

    def render(self) -> JsonObject:
        """Make the entry of the file."""
        entry: JsonObject = {
            "server_name": self.server_name,
            "server_url": self.server_url,
            "issuer": self.issuer,
            "client_id": self.client_id,
            "access_token": self.access_token,
            "expires_at": self.expires_at,
            "refresh_token": self.refresh_token,
            "scopes": list(self.scopes),
        }
        if self.client_secret is not None:
            entry["client_secret"] = self.client_secret
            entry["client_auth_method"] = self.client_auth_method
        if self.wanted_scopes:
            entry["wanted_scopes"] = list(self.wanted_scopes)
        if self.environment_id != LOCAL:
            entry["environment_id"] = self.environment_id
        return entry

    @classmethod
    def parse(cls, entry: Any) -> "Credential | None":
        """Read an entry; None when it makes no sense."""
        if not isinstance(entry, dict):
            return None
        texts = [
            entry.get(key) for key in ("server_name", "server_url", "client_id", "access_token")
        ]
        if not all(isinstance(text, str) for text in texts):
            return None
        name, url, client_id, token = map(str, texts)
        expires_at = entry.get("expires_at")
        return cls(
            server_name=name,
            server_url=url,
            issuer=_text(entry, "issuer") or "",
            client_id=client_id,
            access_token=token,
            expires_at=expires_at if isinstance(expires_at, int) else None,
            refresh_token=_text(entry, "refresh_token"),
            scopes=_texts(entry, "scopes"),
            client_secret=_text(entry, "client_secret"),
            client_auth_method=_text(entry, "client_auth_method"),
            environment_id=_text(entry, "environment_id") or LOCAL,
            wanted_scopes=_texts(entry, "wanted_scopes"),
        )


def _text(entry: JsonObject, key: str) -> str | None:
    value = entry.get(key)
    return value if isinstance(value, str) and value else None


def _texts(entry: JsonObject, key: str) -> tuple[str, ...]:
    value = entry.get(key)
    return tuple(map(str, value)) if isinstance(value, list) else ()


def credential_key(name: str, url: str, environment_id: str = LOCAL) -> str:
    """Name the credential of a server: its raw name, and a hash of where it is."""
    there = {} if environment_id == LOCAL else {"environment_id": environment_id}
    place = json.dumps(
        {"type": "http", "url": url, "headers": {}, **there},
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return f"{name}|{hashlib.sha256(place.encode()).hexdigest()[:16]}"


class CredentialStore:
    """The credentials of one home directory."""

    def __init__(self, home: Path, kind: str) -> None:
        """`kind` is `auto`, `file` or `keyring`; `auto` takes the keyring where there is one."""
        self.home = home
        self.lock_wait_s: float = LOCK_WAIT_S
        """Seconds that a write waits for other processes."""
        self._kind = kind
        self._file = home / FILE_NAME
        self._lock = home / "locks" / "credentials.lock"

    def load(self, name: str, url: str, environment_id: str = LOCAL) -> Credential | None:
        """Return the credential of a server, None when there is none.

        Raises:
            OAuthFailed: the store cannot be read.
        """
        key = credential_key(name, url, environment_id)
        with store_failures():
            if self._kind != "file":
                with keyring_failures(quiet=self._kind == "auto"):
                    if (ring := load_keyring()) is not None:
                        stored = ring.get_password(KEYRING_SERVICE, key)
                        if stored is not None and (found := Credential.parse(_parsed(stored))):
                            return found
            return None if self._kind == "keyring" else Credential.parse(self._read().get(key))

    def save(self, credential: Credential) -> None:
        """Keep a credential; when this returns it is on disk, or in the keyring.

        Raises:
            OAuthFailed: the store cannot be written; what was there is there still.
        """
        with store_failures():
            if self._kind != "file":
                with keyring_failures(quiet=self._kind == "auto"):
                    if (ring := load_keyring()) is not None:
                        text = to_json(credential.render()).decode()
                        ring.set_password(KEYRING_SERVICE, credential.key, text)
                        # A file that cannot be read does not undo what is stored.
                        with contextlib.suppress(StoreFailed):
                            self._forget(credential.key)
                        return
                    if self._kind == "keyring":
                        raise StoreFailed("the Python package `keyring` is not installed")
            with lock_held(self._lock, self.lock_wait_s):
                document = self._read()
                entry = document.get(credential.key)
                kept = dict(entry) if isinstance(entry, dict) else {}
                # A secret goes with its client id, and what was wanted with its token.
                for member in OPTIONAL_MEMBERS:
                    kept.pop(member, None)
                document[credential.key] = {**kept, **credential.render()}
                write_private(self._file, to_json(document, indent=2))

    def remove(self, name: str, url: str, environment_id: str = LOCAL) -> bool:
        """Delete the credential of a server, wherever it is; False if there was none.

        Raises:
            OAuthFailed: a store cannot be read or written; the credential may be there still.
        """
        key = credential_key(name, url, environment_id)
        was_there = False
        with store_failures():
            if self._kind != "file":
                with keyring_failures(quiet=self._kind == "auto"):
                    ring = load_keyring()
                    if ring is not None and ring.get_password(KEYRING_SERVICE, key) is not None:
                        ring.delete_password(KEYRING_SERVICE, key)
                        was_there = True
            if self._kind != "keyring":
                was_there = self._forget(key) or was_there
        return was_there

    def _forget(self, key: str) -> bool:
        """Take a credential out of the file; False if it was not there."""
        with lock_held(self._lock, self.lock_wait_s):
            document = self._read()
            if document.pop(key, None) is None:
                return False
            write_private(self._file, to_json(document, indent=2))
            return True

    def _read(self) -> JsonObject:
        content = read_private(self._file, MAX_FILE_BYTES)
        if content is None:
            return {}
        document = _parsed(content) if len(content) <= MAX_FILE_BYTES else None
        if not isinstance(document, dict):
            raise StoreFailed(f"{self._file}: not a JSON object of at most {MAX_FILE_BYTES} bytes")
        return document


@contextmanager
def store_failures() -> Iterator[None]:
    """Translate failures of a place for secrets."""
    try:
        yield
    except StoreFailed as exc:
        raise OAuthFailed(str(exc)) from exc


def _parsed(content: bytes | str) -> Any:
    try:
        return from_json(content)
    except ValueError:
        return None
