"""Storage of credentials: Codex's document, in its file, its keyring entry, or memory alone.

Members that are unknown here stay as they were when tokens are renewed; a sign-in begins a new
document, since whatever else stood there belonged to another account.
Source: docs/accounts.md, "Where credentials are kept".
"""

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread
from pydantic_core import from_json, to_json

from app_server.accounts.account_errors import AccountError
from app_server.accounts.credentials import (
    WORKSPACE_PLANS,
    Claims,
    Credentials,
    InvalidToken,
    Kind,
    claims_of,
    is_sendable,
    plan_name,
    read_claims,
    text_member,
)
from app_server.accounts.issuer import Issuer
from app_server.config.unchanged import ABSENT, Stamp, stamp_of
from app_server.runtime.files.secret import (
    StoreFailed,
    delete_private,
    keyring_failures,
    load_keyring,
    lock_awaited,
    lock_held,
    read_private,
    write_private,
)
from protocol.model import JsonObject

KEY = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of an issuer."""

    id_token: str = field(repr=False)
    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AuthRecord:
    """One document, whole."""

    document: JsonObject = field(repr=False)

    @classmethod
    def of_api_key(cls, key: str) -> "AuthRecord":
        """Begin a document with an API key."""
        return cls({"auth_mode": "apikey", KEY: key})

    @classmethod
    def of_tokens(cls, tokens: Tokens, issuer: Issuer, now_ms: int) -> "AuthRecord":
        """Begin a document with tokens of a sign-in.

        Raises:
            InvalidToken: the ID token is none.
        """
        return cls(
            {
                "auth_mode": "chatgpt",
                KEY: None,
                "tokens": {
                    "id_token": tokens.id_token,
                    "access_token": tokens.access_token,
                    "refresh_token": tokens.refresh_token,
                    "oauth_provenance": {"issuer": issuer.url, "client_id": issuer.client_id},
                    "account_id": read_claims(tokens.id_token).account_id,
                },
                "last_refresh": _timestamp(now_ms),
            }
        )

    def renewed(self, answer: JsonObject, now_ms: int) -> "AuthRecord":
        """Merge refreshed tokens; members without a valid new value stay."""
        members = ("id_token", "access_token", "refresh_token")
        new = {name: text for name in members if (text := text_member(answer, name)) is not None}
        if claims_of(new.get("id_token")) is None:
            new.pop("id_token", None)
        tokens = {**self._tokens, **new}
        return AuthRecord({**self.document, "tokens": tokens, "last_refresh": _timestamp(now_ms)})

    @property
    def kind(self) -> Kind | None:
        """Kind of the sign-in; None for a kind that is unknown here."""
        mode = self.document.get("auth_mode")
        if mode is None:
            mode = "chatgpt" if text_member(self.document, KEY) is None else "apikey"
        known: dict[Any, Kind] = {"apikey": "apikey", "chatgpt": "chatgpt"}
        return known.get(mode) if isinstance(mode, str) else None

    @property
    def access_token(self) -> str | None:
        """The access token."""
        return text_member(self._tokens, "access_token")

    @property
    def refresh_token(self) -> str | None:
        """Refresh token of the document."""
        return text_member(self._tokens, "refresh_token")

    @property
    def given_by(self) -> Issuer:
        """Issuer of the tokens; the default issuer where none was stored."""
        provenance = self._tokens.get("oauth_provenance")
        known = provenance if isinstance(provenance, dict) else {}
        return Issuer.of(text_member(known, "issuer"), text_member(known, "client_id"))

    @property
    def last_refresh_ms(self) -> int | None:
        """Unix milliseconds of the last refresh."""
        text = text_member(self.document, "last_refresh")
        if text is None:
            return None
        try:
            return int(datetime.fromisoformat(text).timestamp() * 1000)
        except ValueError:
            return None

    def credentials(self) -> Credentials | None:
        """Return the credentials of the document; None without usable ones."""
        match self.kind:
            case "apikey":
                key = text_member(self.document, KEY)
                found = None if key is None else Credentials("apikey", key)
            case "chatgpt":
                found = self._chatgpt()
            case _:
                found = None
        return found if found is not None and _is_sendable(found) else None

    def _chatgpt(self) -> Credentials | None:
        access_token = self.access_token
        claims = claims_of(text_member(self._tokens, "id_token"))
        if access_token is None or claims is None:
            return None
        account_id = text_member(self._tokens, "account_id") or claims.account_id
        return chatgpt_credentials("chatgpt", access_token, claims, account_id, claims.plan)

    @property
    def _tokens(self) -> JsonObject:
        tokens = self.document.get("tokens")
        return tokens if isinstance(tokens, dict) else {}


def external_credentials(token: str, account_id: str, plan: str | None) -> Credentials:
    """Make credentials of a token that a client supplies; without a plan the token's counts.

    Raises:
        InvalidToken: it is no JWT.
    """
    claims = read_claims(token)
    plan = (plan or "").lower() or claims.plan
    credentials = chatgpt_credentials("chatgptAuthTokens", token, claims, account_id, plan)
    if not _is_sendable(credentials):
        raise InvalidToken("the token or the account cannot be sent")
    return credentials


def chatgpt_credentials(
    kind: Kind, token: str, claims: Claims, account_id: str | None, plan: str | None
) -> Credentials:
    """Make credentials of a ChatGPT account."""
    plan = plan_name(plan)
    return Credentials(
        kind,
        token,
        account_id=account_id,
        chatgpt_user_id=claims.user_id,
        is_workspace=plan in WORKSPACE_PLANS,
        is_fedramp=claims.is_fedramp,
        email=claims.email,
        plan=plan,
    )


def _is_sendable(credentials: Credentials) -> bool:
    account_id = credentials.account_id
    return is_sendable(credentials.token) and (account_id is None or is_sendable(account_id))


def _timestamp(now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


FILE_NAME = "auth.json"
MAX_FILE_BYTES = 1024 * 1024

KEYRING_SERVICE = "Codex Auth"

WRITE_WAIT_S = 10
"""Seconds that a write waits for writes of other programs."""

LOCK_WAIT_S = 45.0
"""Seconds that a change waits for changes of other processes, refreshes included."""

StoreKind: TypeAlias = Literal["file", "keyring", "auto", "ephemeral"]


class AuthStore:
    """The credentials of one home directory."""

    def __init__(
        self,
        home: Path,
        kind: StoreKind,
        *,
        lock_wait_s: float = LOCK_WAIT_S,
        write_wait_s: float = WRITE_WAIT_S,
    ) -> None:
        """`auto` takes the keyring if there is one; `ephemeral` stores in memory alone.

        A change waits `lock_wait_s` for changes of other processes, a write `write_wait_s` for
        writes of other programs.
        """
        self._lock_wait_s = lock_wait_s
        self._write_wait_s = write_wait_s
        self._home = home
        self._kind = kind
        self._file = home / FILE_NAME
        self._kept: AuthRecord | None = None
        self._seen: Stamp | None = None

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold the lock that every change of the credentials needs, against other processes.

        The files are those that Codex locks, in its order.

        Raises:
            AccountError: it cannot be made, or others have held it for `lock_wait_s`.
        """
        with _store_failures():
            async with AsyncExitStack() as stack:
                try:
                    with anyio.fail_after(self._lock_wait_s):
                        await stack.enter_async_context(lock_awaited(self._home / "auth.lock"))
                except TimeoutError:
                    raise AccountError(
                        f"another process has held the credentials for {self._lock_wait_s:.0f} s"
                    ) from None
                yield

    async def load(self) -> AuthRecord | None:
        """Return the stored document, None without a valid one.

        Raises:
            AccountError: the store cannot be read.
        """
        return await anyio.to_thread.run_sync(self._load, abandon_on_cancel=True)

    async def load_seen(self) -> AuthRecord | None:
        """Load, and count the stored version as seen; see `has_changed`.

        Raises:
            AccountError: the store cannot be read.
        """
        # Before it is read: what is written meanwhile is a change that is still to be seen.
        self._seen = await anyio.to_thread.run_sync(self._stamp)
        return await self.load()

    async def has_changed(self) -> bool:
        """Whether the file is another one than was noted or written here last.

        It is not read. What a keyring has is not looked at.
        """
        return await anyio.to_thread.run_sync(lambda: self._stamp() != self._seen)

    async def is_there(self) -> bool:
        """Whether there is a file, whatever is in it."""
        return await anyio.to_thread.run_sync(lambda: self._stamp() not in (None, ABSENT))

    async def save(self, record: AuthRecord) -> None:
        """Keep a document; when this returns it is on disk, or in the keyring.

        Raises:
            AccountError: the store cannot be written; what was there is there still.
        """
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._save, record)

    async def delete(self) -> None:
        """Delete the stored document.

        Raises:
            AccountError: something is there still.
        """
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._delete)

    def _load(self) -> AuthRecord | None:
        if self._kind == "ephemeral":
            return self._kept
        with _store_failures():
            if self._kind != "file":
                with keyring_failures(quiet=self._kind == "auto"):
                    stored = self._keyring_entry()
                    if stored is not None:
                        return _parse(stored)
            if self._kind == "keyring":
                return None
            content = read_private(self._file, MAX_FILE_BYTES)
        return None if content is None else _parse(content)

    def _save(self, record: AuthRecord) -> None:
        if self._kind == "ephemeral":
            self._kept = record
            return
        with _store_failures():
            if self._kind != "file":
                with keyring_failures(quiet=self._kind == "auto"):
                    ring = load_keyring()
                    if ring is not None:
                        text = to_json(record.document).decode()
                        ring.set_password(KEYRING_SERVICE, self._keyring_name(), text)
                        self._delete_file()
                        return
                    if self._kind == "keyring":
                        raise StoreFailed("the Python package `keyring` is not installed")
            with self._written_alone():
                write_private(self._file, to_json(record.document, indent=2))
                self._seen = self._stamp()

    def _delete(self) -> None:
        self._kept = None
        if self._kind == "ephemeral":
            return
        with _store_failures():
            entry = None
            if self._kind != "file":
                with keyring_failures(quiet=self._kind == "auto"):
                    entry = self._keyring_entry()
            if entry is not None:
                # Not quiet: what stays would sign the user in again.
                with keyring_failures(quiet=False):
                    load_keyring().delete_password(KEYRING_SERVICE, self._keyring_name())
            self._delete_file()

    def _delete_file(self) -> None:
        if self._file.exists():
            with self._written_alone():
                delete_private(self._file)
        self._seen = ABSENT

    def _stamp(self) -> Stamp | None:
        return None if self._kind == "ephemeral" else stamp_of(self._file)

    def _written_alone(self) -> AbstractContextManager[None]:
        return lock_held(self._home / f"{FILE_NAME}.lock", self._write_wait_s)

    def _keyring_entry(self) -> str | None:
        ring = load_keyring()
        if ring is None:
            return None
        entry: str | None = ring.get_password(KEYRING_SERVICE, self._keyring_name())
        return entry

    def _keyring_name(self) -> str:
        place = hashlib.sha256(str(self._home.resolve()).encode()).hexdigest()
        return f"cli|{place[:16]}"


def _parse(content: bytes | str) -> AuthRecord | None:
    try:
        document: Any = from_json(content) if len(content) <= MAX_FILE_BYTES else None
    except ValueError:
        return None
    return AuthRecord(document) if isinstance(document, dict) else None


@contextmanager
def _store_failures() -> Iterator[None]:
    try:
        yield
    except StoreFailed as exc:
        raise AccountError(str(exc)) from exc
