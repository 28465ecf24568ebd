"""Storage of credentials: Codex's file, its keyring entry, or memory alone.

Source: docs/accounts.md, "Where credentials are kept".
"""

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import anyio.to_thread
from pydantic_core import from_json, to_json

from app_server.accounts.account_errors import AccountError
from app_server.accounts.record import AuthRecord
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

    def __init__(self, home: Path, kind: StoreKind) -> None:
        """`auto` takes the keyring where there is one; `ephemeral` keeps nothing for later."""
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
            AccountError: it cannot be made, or others have held it for `LOCK_WAIT_S`.
        """
        with _store_failures():
            async with AsyncExitStack() as stack:
                try:
                    with anyio.fail_after(LOCK_WAIT_S):
                        await stack.enter_async_context(lock_awaited(self._home / "auth.lock"))
                except TimeoutError:
                    raise AccountError(
                        f"another process has held the credentials for {LOCK_WAIT_S:.0f} s"
                    ) from None
                yield

    async def load(self) -> AuthRecord | None:
        """Return what is stored, None when there is nothing that makes sense.

        Raises:
            AccountError: the store cannot be read.
        """
        return await anyio.to_thread.run_sync(self._load, abandon_on_cancel=True)

    async def take_note(self) -> AuthRecord | None:
        """Load, and count what was found as seen; see `has_changed`.

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
        """Forget everything.

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
        return lock_held(self._home / f"{FILE_NAME}.lock", WRITE_WAIT_S)

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
