"""A list of JSON objects in a file of its own, whole or not at all, within bounds.

A file that cannot be used counts as none: whoever keeps something here can fetch it again.
Source: docs/apps.md, "Cache".
"""

import contextlib
import hashlib
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread
from pydantic_core import from_json, to_json

from protocol.model import Json, JsonObject

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1

MAX_FILE_BYTES = 8 * 1024 * 1024
"""Of one file; a larger one is neither read nor written."""


class _OtherVersion(ValueError):
    """The file is of another version than ours."""


@dataclass(frozen=True, slots=True)
class StoredList:
    """One file, `{"schema_version": 1, "checksum": …, MEMBER: […]}`.

    The checksum is the SHA-256 of the bytes of the list. The reference writes none.
    """

    file: Path
    member: str
    what: str
    """The objects, for the log."""
    max_objects: int
    """A longer list is neither read nor written."""
    cleaned: Callable[[JsonObject], JsonObject]
    """Takes out of an object what must not be in the file, or is not to be believed from it."""
    deletes_other_versions: bool = False

    async def read(self) -> list[JsonObject] | None:
        """Return the objects; None when there is no file that can be used.

        Cancelling waits for a read that has begun.
        """
        try:
            return await anyio.to_thread.run_sync(self._read)
        except FileNotFoundError:
            return None
        except OSError as exc:
            logger.warning("the cached %s cannot be read: %s", self.what, exc.strerror)
        except ValueError as exc:
            logger.warning("the cached %s are not used: %s", self.what, exc)
        return None

    async def write(self, objects: Sequence[JsonObject]) -> bool:
        """Replace the file; a failure is logged, and leaves it as it was. Gives whether it worked.

        Cancelling waits for a write that has begun.
        """
        try:
            await anyio.to_thread.run_sync(self._write, objects)
        except OSError as exc:
            logger.warning("%s are not cached: %s", self.what, exc.strerror)
        except ValueError as exc:
            logger.warning("%s are not cached: %s", self.what, exc)
        else:
            return True
        return False

    def _read(self) -> list[JsonObject]:
        with self.file.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
        _check_size(content)
        try:
            return self._parse(content)
        except _OtherVersion:
            if self.deletes_other_versions:
                self.file.unlink(missing_ok=True)
            raise

    def _parse(self, content: bytes) -> list[JsonObject]:
        try:
            document: Json = from_json(content)
        except ValueError:
            # What the parser says may quote the file.
            raise ValueError("not JSON") from None
        if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
            raise _OtherVersion(f"not of version {SCHEMA_VERSION}")
        # A member that is not known may be a known one whose name was damaged.
        if document.keys() - {"schema_version", "checksum", self.member}:
            raise ValueError("damaged: it has other members")
        objects = document.get(self.member)
        if not isinstance(objects, list) or not all(isinstance(one, dict) for one in objects):
            raise ValueError(f"no list of {self.member}")
        if "checksum" in document:
            _, _, body = content.partition(b'"%s":' % self.member.encode())
            if document["checksum"] != _sum_of(body.removesuffix(b"}")):
                raise ValueError("damaged: its checksum is another one")
        self._check_count(objects)
        return [self.cleaned(one) for one in objects]

    def _write(self, objects: Sequence[JsonObject]) -> None:
        self._check_count(objects)
        kept = [self.cleaned(one) for one in objects]
        body = to_json(kept)
        start = to_json({"schema_version": SCHEMA_VERSION, "checksum": _sum_of(body)})
        content = b'%s,"%s":%s}' % (start.removesuffix(b"}"), self.member.encode(), body)
        _check_size(content)
        folder = self.file.parent
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        draft = self.file.with_name(f".{self.file.name}.{secrets.token_hex(8)}")
        try:
            number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(number, "wb") as opened:
                opened.write(content)
            draft.replace(self.file)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise

    def _check_count(self, objects: Sequence[JsonObject]) -> None:
        if len(objects) > self.max_objects:
            raise ValueError(f"more than {self.max_objects} {self.member}")


def _sum_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _check_size(content: bytes) -> None:
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"more than {MAX_FILE_BYTES} bytes")
