"""Where tokens are kept: a file that other programs share, or the system's keyring.

Everything here blocks. What a file holds of other servers, and members that are unknown here, stay
as they are. No name of a credential is a secret; the rest is.
Source: docs/mcp.md, "Sign-in".
"""

import contextlib
import fcntl
import hashlib
import importlib
import importlib.util
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from app_server.mcp.errors import OAuthFailed
from protocol.model import JsonObject

FILE_NAME = ".credentials.json"
MAX_FILE_BYTES = 4 * 1024 * 1024

LOCK_WAIT_S = 10
"""How long a write waits for those of other processes."""

LOCK_POLL_S = 0.01

CLIENT_MEMBERS = ("client_secret", "client_auth_method")
"""Members that are there only for clients that were given a secret."""

KEYRING_SERVICE = "app-server MCP credentials"


@dataclass(frozen=True, slots=True)
class Credential:
    """What a sign-in to one server gave."""

    server_name: str
    server_url: str
    issuer: str
    """The authorization server that gave it, and the only one that it is shown to."""
    client_id: str
    access_token: str = field(repr=False)
    expires_at: int | None = None
    """Unix milliseconds; None when nobody said."""
    refresh_token: str | None = field(default=None, repr=False)
    scopes: tuple[str, ...] = ()
    client_secret: str | None = field(default=None, repr=False)
    """Of a registration that came with one."""
    client_auth_method: str | None = None

    @property
    def key(self) -> str:
        """The name of this credential in every store."""
        return credential_key(self.server_name, self.server_url)

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
        expires_at, scopes = entry.get("expires_at"), entry.get("scopes")
        return cls(
            server_name=name,
            server_url=url,
            issuer=_text(entry, "issuer") or "",
            client_id=client_id,
            access_token=token,
            expires_at=expires_at if isinstance(expires_at, int) else None,
            refresh_token=_text(entry, "refresh_token"),
            scopes=tuple(map(str, scopes)) if isinstance(scopes, list) else (),
            client_secret=_text(entry, "client_secret"),
            client_auth_method=_text(entry, "client_auth_method"),
        )


def _text(entry: JsonObject, key: str) -> str | None:
    value = entry.get(key)
    return value if isinstance(value, str) and value else None


def credential_key(name: str, url: str) -> str:
    """Name the credential of a server: its raw name, and a hash of where it is."""
    place = json.dumps(
        {"type": "http", "url": url, "headers": {}}, separators=(",", ":"), ensure_ascii=False
    )
    return f"{name}|{hashlib.sha256(place.encode()).hexdigest()[:16]}"


class CredentialStore:
    """The credentials of one home directory."""

    def __init__(self, home: Path, kind: str) -> None:
        """`kind` is `auto`, `file` or `keyring`; `auto` takes the keyring where there is one."""
        self.home = home
        self._kind = kind
        self._file = home / FILE_NAME

    def load(self, name: str, url: str) -> Credential | None:
        """Return the credential of a server, None when there is none.

        Raises:
            OAuthFailed: the store cannot be read.
        """
        key = credential_key(name, url)
        if self._kind != "file":
            with _keyring_failures(quiet=self._kind == "auto"):
                if (ring := _keyring()) is not None:
                    stored = ring.get_password(KEYRING_SERVICE, key)
                    if stored is not None and (found := Credential.parse(_parsed(stored))):
                        return found
        return None if self._kind == "keyring" else Credential.parse(self._read().get(key))

    def save(self, credential: Credential) -> None:
        """Keep a credential; when this returns it is on disk, or in the keyring.

        Raises:
            OAuthFailed: the store cannot be written; what was there is there still.
        """
        if self._kind != "file":
            with _keyring_failures(quiet=self._kind == "auto"):
                if (ring := _keyring()) is not None:
                    text = to_json(credential.render()).decode()
                    ring.set_password(KEYRING_SERVICE, credential.key, text)
                    # A file that cannot be read does not undo what is stored.
                    with contextlib.suppress(OAuthFailed):
                        self._forget(credential.key)
                    return
                if self._kind == "keyring":
                    raise OAuthFailed("the Python package `keyring` is not installed")
        with store_lock(self.home, "credentials"):
            document = self._read()
            entry = document.get(credential.key)
            kept = dict(entry) if isinstance(entry, dict) else {}
            # A secret goes with its client id.
            for member in CLIENT_MEMBERS:
                kept.pop(member, None)
            document[credential.key] = {**kept, **credential.render()}
            self._write(to_json(document, indent=2))

    def _forget(self, key: str) -> None:
        """Take out of the file what the keyring has now."""
        with store_lock(self.home, "credentials"):
            document = self._read()
            if document.pop(key, None) is not None:
                self._write(to_json(document, indent=2))

    def _read(self) -> JsonObject:
        try:
            with self._file.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as exc:
            raise OAuthFailed(f"{self._file}: {exc.strerror}") from exc
        document = _parsed(content) if len(content) <= MAX_FILE_BYTES else None
        if not isinstance(document, dict):
            raise OAuthFailed(f"{self._file}: not a JSON object of at most {MAX_FILE_BYTES} bytes")
        return document

    def _write(self, content: bytes) -> None:
        draft = self._file.with_name(f"{FILE_NAME}.{secrets.token_hex(8)}")
        try:
            number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(number, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(number)
            draft.replace(self._file)
            folder = os.open(self.home, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as exc:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise OAuthFailed(f"{self._file}: {exc.strerror}") from exc


def open_lock(home: Path, name: str) -> int:
    """Open a lock file below a home directory; its contents are nothing.

    Raises:
        OAuthFailed: it cannot be made.
    """
    path = home / "locks" / f"{name}.lock"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise OAuthFailed(f"{path}: {exc.strerror}") from exc


@contextmanager
def store_lock(home: Path, name: str) -> Iterator[None]:
    """Hold a lock against other threads and processes; for work that takes milliseconds.

    Raises:
        OAuthFailed: it cannot be made, or others have held it for `LOCK_WAIT_S`.
    """
    # The file stays: removing it would let two that opened it at different times hold it at once.
    number = open_lock(home, name)
    give_up = time.monotonic() + LOCK_WAIT_S
    try:
        while True:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    raise OAuthFailed(
                        f"{home / 'locks' / name}.lock: another process has held it for"
                        f" {LOCK_WAIT_S} s"
                    ) from None
                time.sleep(LOCK_POLL_S)
        yield
    finally:
        os.close(number)


def _parsed(content: bytes | str) -> Any:
    try:
        return from_json(content)
    except ValueError:
        return None


def _keyring() -> Any:
    """Return the module `keyring`, None where it is not installed."""
    if importlib.util.find_spec("keyring") is None:
        return None
    return importlib.import_module("keyring")


@contextmanager
def _keyring_failures(*, quiet: bool) -> Iterator[None]:
    """Translate failures of the keyring; a quiet one counts as no keyring."""
    try:
        yield
    except OAuthFailed:
        raise
    except Exception as exc:
        # Each of its backends raises what it likes.
        if not quiet:
            raise OAuthFailed(f"the keyring cannot be used: {type(exc).__name__}") from None
